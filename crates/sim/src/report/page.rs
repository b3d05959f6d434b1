//! A run as one self-contained HTML page, in light and dark colours.

mod facts;
mod figures;

use std::fmt::Write;

use super::{Recording, Report};
use facts::{checkers, events, requests, tiles};
use figures::{figures, marks};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Texts of a page beyond the run itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page<'a> {
    /// Summary of the scenario in a sentence.
    pub summary: &'a str,
    /// Source text of the scenario.
    pub scenario: &'a str,
    /// Command that replays the run.
    pub command: &'a str,
}

/// Returns the page. It is also well-formed XML. Its size is bounded for every run: plots are
/// thinned and tables cut, with a note.
#[must_use]
pub fn page(report: &Report, recording: &Recording, page: &Page<'_>) -> String {
    let marks = marks(report, recording);
    let (figures, numbers) = figures(report, recording, &marks);
    let name = escape(&report.scenario);
    let mut html = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>{name}, seed {}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{name}</h1>\n<p>{}</p>\n<p class=\"soft\">Seed {}. Times count from the start, which is {}.</p>\n",
        report.seed,
        escape(page.summary),
        report.seed,
        report.start,
    );
    html.push_str(&tiles(report, recording));
    html.push_str(&figures);
    html.push_str(&requests(report, recording));
    html.push_str(&events(report));
    html.push_str(&checkers(report));
    let _ = write!(
        html,
        "<h2>Play it again</h2>\n<div class=\"scroll\"><pre>{}</pre></div>\n\
         <details open=\"open\"><summary>The scenario</summary>\n<div class=\"scroll\"><pre>{}</pre></div></details>\n\
         <p class=\"soft\">Fingerprint {:016x}, {} steps of the mind.</p>\n</main>\n\
         <script type=\"application/json\" id=\"numbers\">{}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n",
        escape(page.command),
        escape(page.scenario),
        report.fingerprint,
        report.steps,
        inert(&numbers.to_string()),
    );
    html
}

/// Escapes text for an element or an attribute. Replaces characters that no document may contain.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            '\n' | '\t' => safe.push(letter),
            _ if letter.is_control() => safe.push('\u{fffd}'),
            _ => safe.push(letter),
        }
    }
    safe
}

/// Escapes JSON for a script element, so that nothing in it ends the element.
fn inert(json: &str) -> String {
    json.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

/// Formats a time of the run for people.
fn moment(at_s: f64) -> String {
    format!("{at_s:.1} s")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scenario, simulate_recorded};
    use posthaste_core::Settings;

    const NASTY: &str = r#"
        name = "</script><script>alert(1)</script> & \u0007"
        summary = "One <b>depot</b> & another."
        horizon_s = 900
        [[depot]]
        name = "a<img src=x onerror=alert(1)>"
        rate_mib_per_s = 2
        capacity_mib = 500
        usd_per_gb = 0.09
        [[depot]]
        name = "\"b' & c"
        rate_mib_per_s = 3
        capacity_mib = 500
        [[request]]
        size_mib = 200
        deadline_s = 70
        code = "1+0"
        best_effort = true
        [[fault]]
        at_s = 20
        kind = "dies"
        depot = "\"b' & c"
    "#;

    fn drawn(text: &str) -> (Report, String) {
        let scenario = Scenario::parse(text).unwrap();
        let (report, recording) = simulate_recorded(&scenario, 1, Settings::default());
        let said = Page {
            summary: &scenario.summary,
            scenario: text,
            command: "posthaste simulate x.toml --seed 1",
        };
        let html = page(&report, &recording, &said);
        (report, html)
    }

    /// Returns every element's name, and the text between them.
    ///
    /// # Panics
    /// If the page is not well formed.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the other pieces don't matter here"
    )]
    fn read(html: &str) -> (Vec<String>, String) {
        let mut reader = quick_xml::Reader::from_str(html);
        reader.config_mut().check_end_names = true;
        let (mut names, mut text, mut open) = (Vec::new(), String::new(), Vec::new());
        loop {
            match reader.read_event().unwrap() {
                quick_xml::events::Event::Start(start) => {
                    let name = start.name().as_ref().to_string();
                    start.attributes().for_each(|attribute| {
                        attribute.unwrap();
                    });
                    open.push(name.clone());
                    names.push(name);
                }
                quick_xml::events::Event::End(_) => {
                    open.pop().unwrap();
                }
                quick_xml::events::Event::Text(piece) => {
                    text.push_str(&piece);
                }
                quick_xml::events::Event::Eof => break,
                _ => {}
            }
        }
        assert_eq!(open, [""; 0], "left open");
        (names, text)
    }

    #[test]
    fn a_page_is_well_formed_and_loads_nothing() {
        let (report, html) = drawn(NASTY);
        assert!(report.is_clean(), "{}", report.to_text());
        let (names, text) = read(&html);
        let count = |name: &str| names.iter().filter(|other| *other == name).count();
        assert_eq!((count("svg"), count("script"), count("style")), (4, 2, 1));
        assert_eq!((count("img"), count("b") > 0), (0, true));
        assert!(text.contains("Rate per path") && text.contains("alert(1)"));
        for word in ["http", "<link", "<img", "@import", "url(", "<script>alert"] {
            assert!(!html.contains(word), "{word} in the page");
        }
    }

    #[test]
    fn a_page_holds_every_depot_request_verdict_and_mark() {
        let (report, html) = drawn(NASTY);
        for series in ["&lt;img src=x onerror=alert(1)&gt;", "&quot;b&#39; &amp; c"] {
            assert!(html.matches(series).count() > 3, "{series}");
        }
        for (checker, _) in report.verdicts() {
            assert!(html.contains(checker), "{checker}");
        }
        for class in [
            "mark lost",
            "mark missed",
            "mark deadline",
            "mark safe",
            "mark world",
        ] {
            assert!(html.contains(class), "no {class}");
        }
        assert!(html.contains("posthaste simulate x.toml --seed 1"));
        assert!(html.contains(">late<"), "the request's fate");
        let numbers = html.split("id=\"numbers\">").nth(1).unwrap();
        let numbers = numbers.split("</script>").next().unwrap();
        let numbers: serde_json::Value = serde_json::from_str(numbers).unwrap();
        let ids: Vec<&str> = numbers
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|it| it["id"].as_str())
            .collect();
        assert_eq!(ids, ["rates", "slack", "used", "cost"]);
        let rates = &numbers[0]["series"];
        assert_eq!(rates[0]["name"], "a<img src=x onerror=alert(1)>");
        let most = rates[0]["values"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(serde_json::Value::as_f64);
        let most = most.fold(0.0, f64::max);
        assert!((most - 2.0).abs() < 0.2, "{most} MiB/s over a link of 2");
    }

    #[test]
    fn a_long_run_with_many_requests_makes_a_small_page() {
        let mut text = String::from("name='long'\nsummary=''\nhorizon_s=30000\n");
        for depot in 0..30 {
            let _ = write!(
                text,
                "[[depot]]\nname='depot-{depot}'\nrate_mib_per_s=[1,9]\ncapacity_mib=90000\njitter_permille=300\n"
            );
        }
        text.push_str("[[request]]\ncount=100\nat_s=[0,22000]\nsize_mib=[8,64]\ndeadline_s=[40,900]\ncode='2+1'\nbest_effort=true\n");
        text.push_str("[[fault]]\ncount=300\nat_s=[0,22000]\nkind='dies'\nfor_s=[10,300]\n");
        let (report, html) = drawn(&text);
        assert!(report.span.as_secs() > 15_000, "not long");
        assert!(html.len() < 2_000_000, "{} bytes", html.len());
        read(&html);
    }
}
