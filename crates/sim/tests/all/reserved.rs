//! Reserved rate on circuits, with all kinds of faults, and its benefit.

use posthaste_sim::{Fate, Report};

use crate::support::playing;

use playing::{play, play_written, told_s, written};

/// Returns a scenario without its circuits.
fn without(name: &str) -> String {
    let text = written(name);
    let (before, circuit) = text.split_once("[[circuit]]").unwrap();
    let (_, after) = circuit.split_once("\n\n").unwrap();
    format!("{before}{after}")
}

fn met(reports: &[Report]) -> usize {
    reports.iter().map(|report| report.count(Fate::Met)).sum()
}

#[test]
fn a_deadline_is_kept_by_a_circuit_that_is_given_back_in_the_end() {
    for report in play("reserved", 0..30) {
        let told = |what| told_s(&report, what).unwrap_or_else(|| panic!("{}", report.to_text()));
        let (up, back) = (told("circuit up"), told("given back"));
        let safe = report.timeline.iter().find(|entry| {
            let what = entry.what.to_string();
            what.starts_with("safe,")
        });
        let safe = safe.unwrap().at.as_secs_f64();
        assert!(up < back && back <= safe + 1.0, "{}", report.to_text());
        assert_eq!(report.sent, report.stored, "something was sent again");
        let asked = report.timeline.iter();
        let asked = asked.filter(|entry| entry.what.to_string().starts_with("reservation asked"));
        assert_eq!(asked.count(), 1, "{}", report.to_text());
    }
}

#[test]
fn what_keeps_its_deadline_by_a_circuit_does_not_without() {
    // No outcome is expected of the mind without the circuit, because the path was never measured.
    let bare = without("reserved").replace("expect = [\"met\"]", "");
    let with = play("reserved", 0..20);
    let bare = play_written("reserved", &bare, 0..20);
    assert_eq!(met(&with), 2 * with.len());
    assert_eq!(met(&bare), bare.len(), "the small request only");
}

#[test]
fn whatever_befalls_a_circuit_nothing_is_lost_and_all_is_said() {
    for report in play("reserved-fails", 0..100) {
        assert_eq!(report.count(Fate::Unsafe), 0, "{}", report.to_text());
        assert_eq!(report.count(Fate::Refused), 0, "{}", report.to_text());
    }
}

/// Break-even of overlay-2010: 350 Mbit/s shared, 940 reserved, two minutes of setup. With 8.4 GB
/// both take as long. Each size is wanted a little sooner than the shared path delivers it.
#[test]
fn a_circuit_is_asked_for_from_the_break_even_on() {
    let text = |gigabytes: u64| {
        let mebi = gigabytes * 1_000_000_000 / (1 << 20);
        let deadline_s = gigabytes * 23 - 8;
        format!(
            "name = \"break-even\"\nsummary = \"So many GB a little too soon.\"\nhorizon_s = 2000\n\
             monitored_s = 30\n\
             [[depot]]\nname = \"university\"\nrate_mib_per_s = 41.7\ncapacity_mib = 200000\n\
             [[circuit]]\nname = \"lambda\"\ndepots = [\"university\"]\nrate_mib_per_s = 112\nlead_s = 120\n\
             [[request]]\nat_s = 31\nsize_mib = {mebi}\nchunk_mib = 16\ndeadline_s = {deadline_s}\ncode = \"1+0\"\n\
             destination = \"university\"\n"
        )
    };
    for (gigabytes, is_asked) in [(2, false), (4, false), (8, false), (10, true), (20, true)] {
        for report in play_written("break-even", &text(gigabytes), 0..3) {
            let asked = told_s(&report, "reservation asked").is_some();
            assert_eq!(asked, is_asked, "{gigabytes} GB\n{}", report.to_text());
            let fate = if is_asked { Fate::Met } else { Fate::Refused };
            assert_eq!(
                report.count(fate),
                1,
                "{gigabytes} GB\n{}",
                report.to_text()
            );
        }
    }
}
