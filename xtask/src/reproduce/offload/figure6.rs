//! Figure 6: 2.1 GB in 600 s while links slow and a node fails.

use std::fmt::Write;

use super::{
    measured::{LEVEL_1, Matrix},
    world::{Played, World, play},
};

/// The experiment over links for which the fan-out must change as the paper describes.
const SLOWDOWN: &str = include_str!("../../../../scenarios/slowdown.toml");

/// The paper's events: seconds, lines of a fault, and its description of the answer.
pub const PHASES: [(f64, &str, &str); 4] = [
    (0.0, "direct to the end site", "direct"),
    (
        10.0,
        "the end site's link is cut to a tenth",
        "staged, N1 and N2",
    ),
    (150.0, "N1 is limited to about 1 MB/s", "N3 is added"),
    (250.0, "N2 fails", "N3 to its maximum, then N4 is added"),
];
pub const DEADLINE_S: f64 = 600.0;

/// Plays the same events over the links of Figure 5; the end site has a link of 64 Mbit/s before it
/// is cut.
fn over_figure_5(matrix: &Matrix) -> anyhow::Result<Played> {
    let mut world = World::new("figure-6").node("home", 64.0);
    for node in LEVEL_1 {
        world = world.node(node, matrix.rate("Center", node)?);
    }
    // N1 and N2 are the nodes that are fed first: the fastest.
    world
        .fault("at_s = 10\nkind = \"slows\"\ndepot = \"home\"\nrate_mib_per_s = 0.763")
        .fault("at_s = 150\nkind = \"slows\"\ndepot = \"a\"\nrate_mib_per_s = 0.954")
        .fault("at_s = 250\nkind = \"dies\"\ndepot = \"c\"")
        .play(
            2.1e9,
            1024.0,
            "deadline_s = 600\ncode = \"1+0\"\nrelease = false\ndestination = \"home\"\nvia = [\"a\", \"b\", \"c\", \"d\"]",
        )
}

pub fn section(matrix: &Matrix) -> anyhow::Result<String> {
    let mut text = String::from(
        "## Figure 6: the deadline is kept while links slow\n\n2.1 GB in 600 s. The paper prints no bandwidths for this run. Two \
         worlds: `scenarios/slowdown.toml`, whose links are such that N1 and N2 just suffice at first; and the links of \
         Figure 5, where N1 is node a and alone carries more than is needed.\n\n",
    );
    let runs = [
        ("`scenarios/slowdown.toml`", play(SLOWDOWN)?),
        ("The links of Figure 5", over_figure_5(matrix)?),
    ];
    for (name, played) in &runs {
        text.push_str(&table(name, played)?);
    }
    text.push_str(
        "Why they differ. Ours does not give the direct path up when it is cut, and the end site counts in its fan-out: so fewer \
         nodes do, N2 is let go for a while, and comes back where the paper adds N3. The paper's nodes are named in the order they were added; ours are added fastest first. In its \
         run N3 was fed below its maximum while that was enough; ours feeds a node with all it takes once it is \
         chosen, and saves on the number of nodes instead. With less to send early, the rest has more slack when the next \
         event comes. The page of a run has the plot itself: `posthaste simulate scenarios/slowdown.toml --report \
         figure6.html`.\n\n",
    );
    Ok(text)
}

fn table(name: &str, played: &Played) -> anyhow::Result<String> {
    let safe_s = played.safe_after_s()?;
    let course: Vec<String> = played.report.fan_outs.iter().map(u32::to_string).collect();
    let mut text = format!(
        "**{name}.** Safe after {safe_s:.0} s; fan-out {}. Means in Mbit/s:\n\n| from | event | the paper's answer | {} |\n|---|---|---|{}\n",
        course.join(", "),
        played.report.depots.join(" | "),
        "---|".repeat(played.report.depots.len())
    );
    for (place, (from_s, event, answer)) in PHASES.iter().enumerate() {
        let next = PHASES.get(place + 1).map_or(safe_s, |(next, ..)| *next);
        let means = played.mean_mbps(*from_s, next);
        let cells: Vec<String> = means.iter().map(|mean| format!("{mean:.1}")).collect();
        let _ = writeln!(
            text,
            "| {from_s:.0} s | {event} | {answer} | {} |",
            cells.join(" | ")
        );
    }
    text.push_str("\nSaid:\n\n");
    for entry in &played.report.timeline {
        if ["rerouted", "depot-activated", "depot-down", "safe"].contains(&entry.what.name()) {
            let _ = writeln!(
                text,
                "- {:.0} s: {}",
                entry.at.as_secs_f64(),
                played.report.line(entry)
            );
        }
    }
    text.push('\n');
    anyhow::ensure!(safe_s <= DEADLINE_S, "{name}: {safe_s} s");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_deadline_is_kept_and_depots_are_added_to_the_direct_path() {
        let played = play(SLOWDOWN).unwrap();
        assert!(
            played.report.fan_outs.starts_with(&[1, 3]),
            "direct, and two"
        );
        assert!(played.safe_after_s().unwrap() <= DEADLINE_S);
        // Nodes fed in each phase, by the paper's Figure 6.
        let fed = |from_s, to_s| -> Vec<bool> {
            let means = played.mean_mbps(from_s, to_s);
            means.iter().map(|mean| *mean > 1.0).collect()
        };
        assert_eq!(fed(1.0, 10.0), [true, false, false, false, false], "direct");
        assert_eq!(
            fed(20.0, 145.0),
            [true, true, true, false, false],
            "and N1 and N2"
        );
        assert_eq!(
            fed(170.0, 250.0),
            [true, true, true, false, false],
            "the direct path is not given up: N1 and N2 still do"
        );
        assert_eq!(
            fed(290.0, 400.0),
            [true, true, false, true, true],
            "N3 and N4 for N2"
        );
    }

    #[test]
    fn over_the_links_of_figure_5_it_is_kept_as_well() {
        let played = over_figure_5(&Matrix::read().unwrap()).unwrap();
        assert!(played.safe_after_s().unwrap() <= DEADLINE_S);
        assert!(played.told("rerouted").is_some());
    }
}
