//! Requests of the named scenarios whose stories are kept.

use std::path::PathBuf;

use posthaste_sim::{Scenario, simulate_explained};
use posthaste_types::RequestId;

/// Scenario and request of each story.
const TOLD: [(&str, u64); 16] = [
    ("demo", 1),
    ("slowdown", 1),
    ("infeasible", 1),
    ("infeasible", 2),
    ("infeasible", 6),
    ("night-shift", 1),
    ("site-failure", 1),
    ("two-domains", 1),
    ("direct-to-staged", 1),
    ("squeezed", 1),
    ("squeezed", 2),
    ("paused", 1),
    ("reserved", 1),
    ("reserved-fails", 1),
    ("stage-in", 1),
    ("stage-in", 2),
];

pub fn load(name: &str) -> Scenario {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../scenarios")
        .join(format!("{name}.toml"));
    Scenario::load(&path).expect("a scenario of the repository")
}

/// Returns all stories, each under a heading.
pub fn all() -> String {
    let told = TOLD.map(|(name, request)| {
        let (_, story) = simulate_explained(&load(name), 0, RequestId::new(request));
        let story = story.map_or_else(|| "unknown".into(), |story| story.join("\n"));
        format!("# {name} r{request}\n{story}\n\n")
    });
    told.concat()
}
