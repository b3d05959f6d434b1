//! A run as JSON lines: events and samples in the order of time.

use serde_json::{Value, json};

use super::{Entry, Recording, Report, Sample, What, recording::seconds};

/// Returns the lines of a run, one JSON object each, without the line end. The first (`kind` is
/// `run`) describes the run, the last (`end`) its result. Between them are events and samples
/// (`sample`). Seconds count from the start of the run.
pub fn timeline<'a>(
    report: &'a Report,
    recording: &'a Recording,
) -> impl Iterator<Item = String> + 'a {
    let mut events = report.timeline.iter().peekable();
    let mut samples = recording.samples.iter().peekable();
    let middle = std::iter::from_fn(move || {
        let event_at = events.peek().map(|entry| entry.at);
        let is_event = match (event_at, samples.peek()) {
            (Some(at), Some(sample)) => at <= sample.at,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if is_event {
            events.next().map(|entry| event(report, entry))
        } else {
            samples.next().map(|it| sample(report, recording, it))
        }
    });
    let lines = std::iter::once(first(report)).chain(middle);
    lines
        .chain(std::iter::once_with(|| last(report)))
        .map(|line| line.to_string())
}

fn first(report: &Report) -> Value {
    json!({
        "at_s": 0.0,
        "kind": "run",
        "scenario": report.scenario,
        "seed": report.seed,
        "start": report.start.to_string(),
        "depots": report.depots,
    })
}

fn event(report: &Report, entry: &Entry) -> Value {
    let (what, reason) = match &entry.what {
        What::Said { happening, reason } => {
            let at = report.start + entry.at;
            let said = at.undate(&happening.to_string());
            (said, Some(at.undate(&reason.to_string())))
        }
        What::World(what) | What::Driver(what) | What::User(what) => (what.clone(), None),
    };
    json!({
        "at_s": entry.at.as_secs_f64(),
        "kind": entry.what.name(),
        "request": entry.request.map(|request| request.to_string()),
        "depot": entry.depot.map(|depot| report.depot(depot)),
        "what": what,
        "reason": reason,
    })
}

fn sample(report: &Report, recording: &Recording, sample: &Sample) -> Value {
    let by_depot = |numbers: &[u64]| -> Value {
        let named = report.depots.iter().zip(numbers);
        named
            .map(|(name, number)| (name.clone(), json!(number)))
            .collect()
    };
    let slacks: Value = sample
        .slacks
        .iter()
        .map(|(request, slack)| (request.to_string(), json!(slack.map(seconds))))
        .collect();
    let mut line = json!({
        "at_s": sample.at.as_secs_f64(),
        "kind": "sample",
        "rate_bytes_per_s": by_depot(&sample.rates),
        "used_bytes": by_depot(&sample.used),
        "slack_s": slacks,
    });
    if recording.is_priced {
        line["cost_micro_usd"] = json!(sample.micro_usd);
    }
    line
}

fn last(report: &Report) -> Value {
    let fates = report
        .fates
        .iter()
        .map(|(request, fate)| (request.to_string(), json!(fate.name())));
    let violations = report.violations.iter().map(|violation| {
        let at = violation.at.since(report.start).as_secs_f64();
        json!({"at_s": at, "checker": violation.checker, "what": violation.what})
    });
    json!({
        "at_s": report.span.as_secs_f64(),
        "kind": "end",
        "requests": fates.collect::<Value>(),
        "bytes_sent": report.sent.get(),
        "bytes_stored": report.stored.get(),
        "steps": report.steps,
        "events_left_out": report.timeline_left_out,
        "violations": violations.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Scenario, simulate, simulate_recorded};

    const SCENARIO: &str = r#"
        name = "priced"
        summary = "Two depots with a price; one dies."
        horizon_s = 400
        [[depot]]
        name = "alpha \"<b>\""
        rate_mib_per_s = 4
        capacity_mib = 500
        usd_per_gb = 0.09
        [[depot]]
        name = "beta"
        rate_mib_per_s = 3
        capacity_mib = 500
        usd_per_gb_month = 0.2
        [[request]]
        size_mib = 40
        deadline_s = 60
        code = "1+0"
        [[fault]]
        at_s = 3
        kind = "dies"
        depot = "beta"
    "#;

    #[test]
    fn every_line_is_json_in_the_order_of_time_and_bytes_add_up() {
        let scenario = Scenario::parse(SCENARIO).unwrap();
        let (report, recording) =
            simulate_recorded(&scenario, 3, posthaste_core::Settings::default());
        assert!(report.is_clean(), "{}", report.to_text());
        assert_eq!(
            simulate(&scenario, 3),
            report,
            "looking changes what happens"
        );
        let lines: Vec<Value> = timeline(&report, &recording)
            .map(|line| serde_json::from_str(&line).unwrap())
            .collect();
        let kinds: Vec<&str> = lines
            .iter()
            .filter_map(|line| line["kind"].as_str())
            .collect();
        assert_eq!((kinds.first(), kinds.last()), (Some(&"run"), Some(&"end")));
        for kind in ["user", "world", "admitted", "depot-down", "safe", "sample"] {
            assert!(kinds.contains(&kind), "no {kind} in {kinds:?}");
        }
        let at = |line: &Value| line["at_s"].as_f64().unwrap();
        assert!(lines.is_sorted_by_key(at), "out of order");
        let down = lines
            .iter()
            .find(|line| line["kind"] == "depot-down")
            .unwrap();
        assert_eq!(down["depot"], "beta");
        assert!(down["reason"].as_str().unwrap().contains("lost"));
        let samples: Vec<&Value> = lines.iter().filter(|it| it["kind"] == "sample").collect();
        let moved = |name: &str| -> f64 {
            let rate = |line: &Value| line["rate_bytes_per_s"][name].as_f64().unwrap();
            let spans = samples.windows(2);
            spans
                .map(|pair| (at(pair[1]) - at(pair[0])) * rate(pair[1]))
                .sum()
        };
        let (sent, moved) = (
            report.sent.get() as f64,
            moved("alpha \"<b>\"") + moved("beta"),
        );
        // Bytes that a dead depot had received of a fragment were sent again.
        assert!(
            moved <= sent * 1.02 && moved > 0.9 * sent,
            "{moved} of {sent}"
        );
        let last = samples.last().unwrap();
        assert!(last["cost_micro_usd"].as_u64().unwrap() > 0);
        assert!(
            samples
                .iter()
                .any(|it| it["slack_s"]["r1"].as_f64().is_some())
        );
    }
}
