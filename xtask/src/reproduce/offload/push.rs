//! The Push and Pull columns of Table 1: Level-1 nodes send on to Level-2 nodes, and the end site
//! fetches from all of them at once.

use std::collections::BTreeMap;

use anyhow::Context;

use super::{
    measured::{LEVEL_1, Matrix},
    world::{Played, World},
};

/// Result of pushing on and pulling.
pub struct Pushed {
    /// Seconds from the first fragment that was sent on until the last one lay at Level 2.
    pub push_s: f64,
    /// Seconds from safety at Level 1 until then.
    pub after_s: f64,
    /// Seconds of the end site's fetch from nodes of both levels.
    pub pull_s: f64,
    /// Seconds of a fetch from the Level-1 nodes alone, as if nothing had been pushed on.
    pub unpushed_s: f64,
}

/// The code: one fragment for each Level-1 node, any of which may be lost.
const CODE: &str = "3+1";
/// Its data fragments.
const DATA: usize = 3;

/// Plays the centre that sends to the Level-1 nodes, which send on to the sixteen others. The paper
/// does not print a node's own egress and ingress, but the links between the nodes.
fn play(matrix: &Matrix, bytes: f64, chunk_kib: f64) -> anyhow::Result<Played> {
    let mut world = World::new("push");
    for node in LEVEL_1 {
        world = world.node(node, matrix.rate("Center", node)?);
    }
    for node in beyond(matrix) {
        // Nothing comes to it from the centre; node a is on the same campus.
        world = world.node_of_level(node, matrix.rate("a", node)?, 2);
    }
    for from in LEVEL_1 {
        for to in beyond(matrix) {
            world = world.path(from, to, matrix.rate(from, to)?);
        }
    }
    let lines = format!("deadline_s = 30000\nrelease = false\ncode = \"{CODE}\"");
    world.play(bytes, chunk_kib, &lines)
}

/// Returns the intermediate nodes that are not next to the centre.
fn beyond(matrix: &Matrix) -> impl Iterator<Item = &str> {
    let all = matrix.nodes.iter().map(String::as_str);
    all.filter(|node| !LEVEL_1.contains(node))
}

/// Plays it, and lets the end site pull.
///
/// # Errors
/// Fails if a checker objects, or not everything was pushed on.
pub fn pushed(matrix: &Matrix, bytes: f64, chunk_kib: f64) -> anyhow::Result<Pushed> {
    let played = play(matrix, bytes, chunk_kib)?;
    let moments = |what: &str| {
        let lines = played.report.timeline.iter();
        let mut told = lines.filter(|entry| played.report.line(entry).contains(what));
        let first = told.next().map(|entry| entry.at.as_secs_f64());
        first.with_context(|| format!("nobody said `{what}`"))
    };
    let (began, ended) = (moments("pushed on to")?, moments("all is pushed on")?);
    let safe_s = played.safe_after_s()?;
    let mut sources = Vec::new();
    for (depot, held) in &played.recording.holders {
        let place = usize::try_from(depot.get())?.wrapping_sub(1);
        let name = played.report.depots.get(place).context("no such depot")?;
        let fragments = held
            .iter()
            .map(|(chunk, fragment)| (chunk.get(), fragment.get()));
        sources.push(Source {
            is_near: LEVEL_1.contains(&name.as_str()),
            mbps: matrix.rate(name, "Ns")?,
            fragments: fragments.collect(),
        });
    }
    let fragment_bits = chunk_kib * 1024.0 * 8.0 / 3.0;
    let pull_s = pull(&sources, fragment_bits / 1e6);
    sources.retain(|source| source.is_near);
    Ok(Pushed {
        push_s: ended - began,
        after_s: ended - safe_s,
        pull_s,
        unpushed_s: pull(&sources, fragment_bits / 1e6),
    })
}

/// A node with its content.
struct Source {
    is_near: bool,
    mbps: f64,
    /// Fragments, at most one of each chunk.
    fragments: BTreeMap<u32, u8>,
}

/// Returns the seconds until enough of every chunk has arrived. Like the real `pull`, it asks chunk
/// by chunk, each fragment from the node that will have sent it first, by its earlier requests; all
/// nodes send at once.
fn pull(sources: &[Source], fragment_mbit: f64) -> f64 {
    let chunks = sources.iter().flat_map(|source| source.fragments.keys());
    let chunks: std::collections::BTreeSet<u32> = chunks.copied().collect();
    let mut busy_s = vec![0.0; sources.len()];
    for chunk in chunks {
        let mut have = Vec::new();
        while have.len() < DATA {
            let offers = sources.iter().enumerate().filter_map(|(place, source)| {
                let fragment = *source.fragments.get(&chunk)?;
                let done = busy_s[place] + fragment_mbit / source.mbps;
                (!have.contains(&fragment)).then_some((done, place, fragment))
            });
            let best = offers.min_by(|one, other| one.0.total_cmp(&other.0));
            let Some((done, place, fragment)) = best else {
                return f64::INFINITY;
            };
            busy_s[place] = done;
            have.push(fragment);
        }
    }
    busy_s.into_iter().fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_puller_takes_from_all_holders_by_their_rates() {
        let source = |mbps: f64, fragment: u8| Source {
            is_near: true,
            mbps,
            fragments: (0..30).map(|chunk| (chunk, fragment)).collect(),
        };
        // Three must send everything: the slowest decides.
        let three = [source(10.0, 0), source(10.0, 1), source(5.0, 2)];
        assert!((pull(&three, 1.0) - 6.0).abs() < 1e-9);
        // A second holder of that fragment takes half of it.
        let four = [
            source(10.0, 0),
            source(10.0, 1),
            source(5.0, 2),
            source(5.0, 2),
        ];
        assert!((pull(&four, 1.0) - 3.0).abs() < 1e-9);
        assert!(pull(&three[..2], 1.0).is_infinite());
    }

    #[test]
    fn what_was_pushed_on_is_pulled_faster() {
        let matrix = Matrix::read().unwrap();
        let small = pushed(&matrix, 50e6, 1024.0).unwrap();
        assert!(small.pull_s * 2.0 < small.unpushed_s, "{} s", small.pull_s);
        assert!(small.push_s > 0.0 && small.after_s > 0.0);
    }
}
