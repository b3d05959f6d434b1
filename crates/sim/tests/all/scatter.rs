//! Relays that code for the centre, with all kinds of faults.

use posthaste_sim::{Fate, Report};

use crate::support::playing;

use playing::{play_written, written};

/// Returns the world without faults.
fn calm() -> String {
    let text = written("scatter");
    text.split("[[fault]]").next().unwrap().to_owned()
}

/// Returns the seconds from the start until the last request was safe.
fn safe_s(report: &Report) -> f64 {
    let told = report.timeline.iter().rev();
    let mut told = told.filter(|entry| entry.what.to_string().contains("every chunk survives"));
    told.next().unwrap().at.as_secs_f64()
}

/// Returns the bytes that left the centre for each byte of data. Stored fragments count 5:3, by the
/// code 3+2.
fn times_data(report: &Report) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    let ratio = report.left.get() as f64 / report.stored.get() as f64;
    ratio * 5.0 / 3.0
}

#[test]
fn what_fails_while_relays_code_costs_no_safety() {
    for report in play_written("scatter", &written("scatter"), 0..100) {
        assert_eq!(report.count(Fate::Unsafe), 0, "{}", report.to_text());
        assert_eq!(report.count(Fate::Met), 2, "{}", report.to_text());
    }
}

#[test]
fn where_all_goes_well_the_data_leaves_the_centre_once() {
    for encode in ["relays", "auto"] {
        let text = calm().replace("\"auto\"", &format!("\"{encode}\""));
        for report in play_written("scatter", &text, 0..20) {
            let times = times_data(&report);
            let most = if encode == "auto" { 1.4 } else { 1.05 };
            assert!(
                times <= most,
                "{encode} seed {}: {times} times\n{}",
                report.seed,
                report.to_text()
            );
        }
    }
    let text = calm().replace("\"auto\"", "\"centre\"");
    for report in play_written("scatter", &text, 0..5) {
        assert!(times_data(&report) > 1.6, "{}", report.to_text());
    }
}

#[test]
fn where_the_way_out_binds_all_is_safe_sooner() {
    let centre = calm().replace("\"auto\"", "\"centre\"");
    let (auto, centre) = (
        play_written("scatter", &calm(), 0..20),
        play_written("scatter", &centre, 0..20),
    );
    let sum = |reports: &[Report]| reports.iter().map(safe_s).sum::<f64>();
    let (auto, centre) = (sum(&auto), sum(&centre));
    assert!(
        auto < centre * 0.8,
        "{auto} s by relays, {centre} s by the centre"
    );
}

#[test]
fn a_relay_that_cannot_is_hardly_asked_and_nothing_waits_for_it() {
    let text = calm().replace(
        "advertises = true\nway_in",
        "advertises = true\ncodes = false\nway_in",
    );
    for report in play_written("scatter", &text.replace("\"auto\"", "\"relays\""), 0..10) {
        assert_eq!(report.count(Fate::Met), 2, "{}", report.to_text());
        assert!(times_data(&report) > 1.6, "{}", report.to_text());
    }
}
