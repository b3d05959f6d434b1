//! Stories that `explain` gives of simulated requests.

mod told;

use posthaste_sim::simulate_explained;
use posthaste_types::RequestId;

/// Most sentences of a story; recurring events are summarized.
const SENTENCES_MAX: usize = 80;

#[test]
fn stories_are_told_as_they_were_agreed() {
    let told = told::all();
    let agreed = include_str!("stories.txt");
    assert!(
        told == agreed,
        "another story is told; if it is the better one: cargo run -p posthaste-sim --example stories \
         > crates/sim/tests/all/stories.txt\n{told}"
    );
}

#[test]
fn every_request_of_every_kind_of_trouble_has_a_short_story_with_an_end() {
    for name in [
        "crashes-without-spare",
        "crowded",
        "demo",
        "destination-wiped",
        "direct-hangs",
        "direct-to-staged",
        "driver-crashes",
        "flapping-depots",
        "infeasible",
        "night-shift",
        "paused",
        "site-failure",
        "slowdown",
        "stale-paths",
        "staged-ends",
        "tight-sites",
        "weather",
    ] {
        let scenario = told::load(name);
        for request in 1..=2 {
            let (report, story) = simulate_explained(&scenario, 1, RequestId::new(request));
            let Some(story) = story else {
                assert!(
                    (report.fates.len() as u64) < request,
                    "{name} r{request} has no story"
                );
                continue;
            };
            let text = story.join("\n");
            assert!(
                (2..SENTENCES_MAX).contains(&story.len()),
                "{name} r{request}:\n{text}"
            );
            let is_sentence = |line: &String| line.ends_with('.') && !line.contains("  ");
            assert!(story.iter().all(is_sentence), "{name} r{request}:\n{text}");
        }
    }
}
