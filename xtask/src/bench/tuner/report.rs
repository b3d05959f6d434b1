//! The page.

use std::collections::BTreeSet;

use super::{
    Course,
    replay::{Outcome, Rival},
};
use crate::bench::figures::commit;

/// Returns the beginning of the page.
pub fn head() -> String {
    let page = "# Optimizers over measured and made-up paths\n\n\
     Written by `cargo xtask bench tuner FOLDER`, or without a folder for the made-up paths alone \
     (`xtask/src/bench/tuner/synthetic.rs` has the formula). Nothing is sent: a sweep knows what a \
     transfer carried at many settings, and answers from that. A setting that was not measured is \
     answered by the nearest (by doublings), and between two counts of files at once by the line \
     between them; one that was measured several times by one measurement after another. The \
     score is what the setting an optimizer settles at carries on average, as a fraction of the \
     sweep's best average. It has settled when it stays for three periods; one that never does is \
     judged after 20 periods of 3 s. *Probes* are the periods before it settles, *most* the most of \
     them in any sweep. *Second minute* is the mean of everything it did from the 21st to the 40th \
     period. *Streams* are the median of where it settles.\n\n\
     The measured paths are GridFTP transfers that were published with Falcon \
     (github.com/arif-zaman/Falcon-File-Transfer-Optimizer): CSV files with the columns FileSize, \
     FileNumbers, Bandwidth, RTT, BufferSize, P, CC, PP and Throughput. The parameters of `auto` \
     were chosen on the sweeps of at least 30 settings, so their score says what it is worth on such \
     paths. What it is worth elsewhere is said by the sweeps of 8 to 29 settings, which it was not \
     made with. Smaller ones are left out.";
    format!("{page}\n\n- commit: {}\n\n", commit())
}

/// Returns a table of all optimizers over these sweeps, and one by origin.
pub fn section(title: &str, courses: &[Course], results: &[(Rival, Vec<Outcome>)]) -> String {
    let origins: BTreeSet<&str> = courses
        .iter()
        .map(|course| course.origin.as_str())
        .collect();
    let counts: Vec<String> = origins
        .iter()
        .map(|origin| {
            let count = courses
                .iter()
                .filter(|course| course.origin == *origin)
                .count();
            format!("{count} {origin}")
        })
        .collect();
    let mut text = format!(
        "## {title}\n\n{} sweeps: {}.\n\n\
         | optimizer | mean | p10 | median | probes | most | second minute | streams |\n\
         |---|---|---|---|---|---|---|---|\n",
        courses.len(),
        counts.join(", ")
    );
    for (rival, outcomes) in results {
        text.push_str(&row(rival, outcomes));
    }
    text.push_str("\nMean by origin:\n\n| optimizer |");
    origins
        .iter()
        .for_each(|origin| text.push_str(&format!(" {origin} |")));
    text.push_str(&format!("\n|---|{}\n", "---|".repeat(origins.len())));
    for (rival, outcomes) in results {
        text.push_str(&format!("| {rival} |"));
        for origin in &origins {
            let of = courses
                .iter()
                .zip(outcomes)
                .filter(|(course, _)| course.origin == *origin);
            let settled: Vec<f64> = of.map(|(_, outcome)| outcome.settled).collect();
            text.push_str(&format!(" {:.2} |", mean(&settled)));
        }
        text.push('\n');
    }
    text.push('\n');
    text
}

fn row(rival: &Rival, outcomes: &[Outcome]) -> String {
    let sorted = |figure: fn(&Outcome) -> f64| {
        let mut figures: Vec<f64> = outcomes.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures
    };
    let settled = sorted(|outcome| outcome.settled);
    let probes = sorted(|outcome| outcome.probes as f64);
    let streams = sorted(|outcome| outcome.streams.into());
    let later = sorted(|outcome| outcome.later);
    let bold = if rival.is_default() { "**" } else { "" };
    format!(
        "| {rival} | {bold}{:.3}{bold} | {:.2} | {:.2} | {bold}{:.1}{bold} | {:.0} | {:.3} | {:.0} |\n",
        mean(&settled),
        quantile(&settled, 0.1),
        quantile(&settled, 0.5),
        mean(&probes),
        quantile(&probes, 1.0),
        mean(&later),
        quantile(&streams, 0.5),
    )
}

fn mean(figures: &[f64]) -> f64 {
    figures.iter().sum::<f64>() / figures.len().max(1) as f64
}

/// Interpolates between neighbours in a straight line.
#[expect(clippy::cast_possible_truncation, reason = "a place in a short list")]
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let place = share * sorted.len().saturating_sub(1) as f64;
    let (low, high) = (place.floor() as usize, place.ceil() as usize);
    let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
    at(low) + (at(high) - at(low)) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_neighbours() {
        let figures = [1.0, 2.0, 3.0, 5.0];
        assert!((quantile(&figures, 0.0) - 1.0).abs() < 1e-9);
        assert!((quantile(&figures, 0.5) - 2.5).abs() < 1e-9);
        assert!((quantile(&figures, 1.0) - 5.0).abs() < 1e-9);
    }
}
