//! View of the whole service, as much as fits the window, the most urgent first.

use std::collections::BTreeMap;

use posthaste_api as api;
use posthaste_types::{ByteRate, Bytes};

use super::{
    frame::event_line,
    whole::{Row, Seen},
};
use crate::{
    moment,
    screen::{Line, Style},
};

/// States of running requests.
const UNDER_WAY: [&str; 4] = ["moving", "paused", "waiting", "landing"];
/// Divisor of the rows below the head for the least share of depots, and of events.
const FIFTH: usize = 5;
/// Divisor for the least share of paths between depots, and of movers.
const EIGHTH: usize = 8;
/// Rows of the smallest section: a heading, a row, and the count of further ones.
const SECTION_MIN: usize = 3;
/// Rows reserved for events, with their heading.
const EVENTS_MIN: usize = 4;

/// Summarizes all requests in one line.
pub fn summary(overview: &api::Overview) -> String {
    let slack = overview.least_slack_s.map(moment::show_seconds);
    format!(
        "{} under way, {} at risk, {} late; {} to move; least slack {}",
        overview.under_way,
        overview.at_risk,
        overview.missed,
        Bytes::new(overview.waiting_bytes),
        slack.as_deref().unwrap_or("-"),
    )
}

/// Draws the service into a window with so many columns and rows.
pub fn frame(seen: &Seen, (_, rows): (usize, usize)) -> Vec<Line> {
    let mut lines = head(seen);
    let room = rows.saturating_sub(lines.len());
    let fifth = (room / FIFTH).max(SECTION_MIN);
    let eighth = (room / EIGHTH).max(SECTION_MIN);
    let depots = section(depot_heading(), depot_lines(seen), fifth);
    let between = seen.paths.iter().filter(|path| path.from != "centre");
    let paths = section(path_heading(), between.map(path_line).collect(), eighth);
    let movers = section(
        mover_heading(),
        seen.movers.iter().map(mover_line).collect(),
        eighth,
    );
    let below = depots.len() + paths.len() + movers.len();
    let kept = if seen.events.is_empty() {
        0
    } else {
        EVENTS_MIN.max(room / FIFTH)
    };
    let pressing = pressing(seen, room.saturating_sub(below + kept));
    let events = room.saturating_sub(below + pressing.len());
    lines.extend(pressing);
    lines.extend(depots);
    lines.extend(paths);
    lines.extend(movers);
    lines.extend(newest(seen, events));
    lines.truncate(rows);
    lines
}

fn head(seen: &Seen) -> Vec<Line> {
    let overview = &seen.overview;
    let style = match (overview.missed, overview.at_risk) {
        (0, 0) => Style::Good,
        (0, _) => Style::Warning,
        (_, _) => Style::Bad,
    };
    let mut lines = vec![
        Line::new("posthaste  ", Style::Bold)
            .and(summary(overview), style)
            .and("  q ends this", Style::Dim),
    ];
    if let Some(trouble) = &seen.trouble {
        lines.push(Line::new(trouble.clone(), Style::Bad));
    }
    let all = counts(overview).into_iter();
    let all: Vec<String> = all
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    lines.push(Line::new(all.join(", "), Style::Dim));
    lines
}

/// Counts requests by state, stage-outs and stage-ins together.
fn counts(overview: &api::Overview) -> BTreeMap<&str, u64> {
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (state, count) in overview.stage_outs.iter().chain(&overview.stage_ins) {
        *counts.entry(state).or_default() += count;
    }
    counts
}

/// Returns a heading and as many rows as fit; nothing without rows.
fn section(heading: Line, mut rows: Vec<Line>, most: usize) -> Vec<Line> {
    if rows.is_empty() || most < 2 {
        return Vec::new();
    }
    let room = most - 1;
    if rows.len() > room {
        let left = rows.len() - (room - 1);
        rows.truncate(room - 1);
        rows.push(Line::new(format!("… and {left} more"), Style::Dim));
    }
    rows.insert(0, heading);
    rows
}

fn heading(text: String) -> Line {
    Line::new(text, Style::Dim)
}

/// Lists the requests with the least slack, and counts the rest by state.
fn pressing(seen: &Seen, most: usize) -> Vec<Line> {
    let all = seen.overview.under_way.max(seen.requests.len() as u64);
    if all == 0 || most < 2 {
        return Vec::new();
    }
    let title = format!(
        "{:<8} {:<9} {:<12} {:>5} {:>10} {:>10} {:>9}  {:<12} SOURCE",
        "REQUEST", "STATE", "", "DONE", "SIZE", "SLACK", "BY (p90)", "TO"
    );
    let room = most - 1;
    let is_all = all <= room as u64 && seen.requests.len() as u64 == all;
    let shown = if is_all { room } else { room - 1 };
    let shown = &seen.requests[..shown.min(seen.requests.len())];
    let mut lines = vec![heading(title)];
    lines.extend(shown.iter().map(request_line));
    let left = all - shown.len() as u64;
    if left > 0 {
        let mut by_state = counts(&seen.overview);
        by_state.retain(|state, _| UNDER_WAY.contains(state));
        for request in shown {
            if let Some(count) = by_state.get_mut(request.state.as_str()) {
                *count = count.saturating_sub(1);
            }
        }
        let states = by_state.iter().filter(|(_, count)| **count > 0);
        let states: Vec<String> = states
            .map(|(state, count)| format!("{count} {state}"))
            .collect();
        let said = format!("… and {left} more with more slack: {}", states.join(", "));
        lines.push(Line::new(said, Style::Dim));
    }
    lines
}

fn request_line(request: &Row) -> Line {
    let (flag, style) = match (request.out_of_reach, request.missed, request.at_risk) {
        (true, _, _) => ("OUT OF REACH", Style::Bad),
        _ if request.keep_ended => ("KEPT NO LONGER", Style::Bad),
        (false, true, _) => ("LATE", Style::Bad),
        (false, false, true) => ("AT RISK", Style::Warning),
        (false, false, false) => ("", Style::Plain),
    };
    let percent = u64::from(request.chunks_safe) * 100;
    let percent = percent.checked_div(u64::from(request.chunks));
    let percent = percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent} %"));
    let slack = request.slack_s.map(moment::show_seconds);
    let by = request.finish.as_ref();
    let by = by.map(|finish| moment::time_of_day(&finish.p90));
    let way = match &request.stage_in {
        Some(stage_in) if !stage_in.goes_out => "in",
        _ => request.to.as_str(),
    };
    let is_stuck = by.is_none() && (request.at_risk || request.missed);
    let style = if is_stuck { Style::Bad } else { style };
    let dash = || if is_stuck { "none" } else { "-" }.to_owned();
    Line::new(
        format!("{:<8} {:<9} ", request.id, request.state),
        Style::Plain,
    )
    .and(format!("{flag:<12} "), style)
    .and(
        format!(
            "{percent:>5} {:>10} ",
            Bytes::new(request.bytes).to_string()
        ),
        Style::Plain,
    )
    .and(format!("{:>10} ", slack.unwrap_or_else(dash)), style)
    .and(
        format!(
            "{:>9}  {way:<12} {}",
            by.unwrap_or_else(dash),
            request.source
        ),
        Style::Plain,
    )
}

fn depot_heading() -> Line {
    heading(format!(
        "{:<16} {:<9} {:>10} {:>10} {:>14} {:>14}  P10 TO P90, KNOWN BY",
        "DEPOT", "STATE", "USED", "OF", "RATE", "FORECAST"
    ))
}

fn depot_lines(seen: &Seen) -> Vec<Line> {
    let path_to = |name: &str| {
        let mut paths = seen.paths.iter();
        paths.find(|path| path.from == "centre" && path.to == name)
    };
    let depots = seen.depots.iter();
    depots
        .map(|depot| depot_line(depot, path_to(&depot.name)))
        .collect()
}

fn depot_line(depot: &api::Depot, path: Option<&api::Path>) -> Line {
    let (state, style) = match (depot.state.as_str(), &depot.drain) {
        ("up", Some(_)) => ("draining", Style::Warning),
        ("up", None) => ("up", Style::Good),
        ("down", _) => ("down", Style::Bad),
        (state, _) => (state, Style::Warning),
    };
    let used = depot.capacity_bytes.saturating_sub(depot.free_bytes);
    let known = path.map(|path| {
        let (low, high) = (path.rate_p10_bytes_per_s, path.rate_p90_bytes_per_s);
        let (low, high) = (ByteRate::new(low), ByteRate::new(high));
        format!("  {low} to {high}, {}", path.known_by)
    });
    Line::new(format!("{:<16} ", depot.name), Style::Plain)
        .and(format!("{state:<9} "), style)
        .and(
            format!(
                "{:>10} {:>10} {:>14} {:>14}{}",
                Bytes::new(used).to_string(),
                Bytes::new(depot.capacity_bytes).to_string(),
                ByteRate::new(depot.rate_bytes_per_s).to_string(),
                ByteRate::new(depot.rate_p50_bytes_per_s).to_string(),
                known.unwrap_or_default()
            ),
            Style::Plain,
        )
}

fn path_heading() -> Line {
    heading(format!(
        "{:<33} {:>14}  P10 TO P90, KNOWN BY",
        "BETWEEN DEPOTS", "FORECAST"
    ))
}

fn path_line(path: &api::Path) -> Line {
    let rate = ByteRate::new;
    let ends = format!("{} → {}", path.from, path.to);
    let text = format!(
        "{ends:<33} {:>14}  {} to {}, {}",
        rate(path.rate_p50_bytes_per_s).to_string(),
        rate(path.rate_p10_bytes_per_s),
        rate(path.rate_p90_bytes_per_s),
        path.known_by
    );
    Line::new(text, Style::Plain)
}

fn mover_heading() -> Line {
    heading(format!(
        "{:<16} {:<9} {:>10} {:>10} {:>8} {:>8}",
        "MOVER", "STATE", "WORKING", "MOVED", "DONE", "FAILED"
    ))
}

fn mover_line(mover: &api::Mover) -> Line {
    let style = match mover.state.as_str() {
        "works" => Style::Good,
        "rests" => Style::Bad,
        _ => Style::Warning,
    };
    Line::new(format!("{:<16} ", mover.name), Style::Plain)
        .and(format!("{:<9} ", mover.state), style)
        .and(
            format!(
                "{:>10} {:>10} {:>8} {:>8}  {}",
                format!("{} of {}", mover.working, mover.slots),
                Bytes::new(mover.bytes).to_string(),
                mover.done,
                mover.failed,
                mover.failure.as_deref().unwrap_or_default()
            ),
            Style::Plain,
        )
}

/// Lists the newest events, the newest last.
fn newest(seen: &Seen, most: usize) -> Vec<Line> {
    if seen.events.is_empty() || most < 2 {
        return Vec::new();
    }
    let skipped = seen.events.len().saturating_sub(most - 1);
    let mut lines = vec![heading("WHAT HAPPENED".to_owned())];
    lines.extend(seen.events.iter().skip(skipped).map(|event| {
        let request = event.request.as_deref().unwrap_or("-");
        let mut line = event_line(event);
        line.0.insert(1, (format!("{request:<8} "), Style::Plain));
        line
    }));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(number: u64) -> Row {
        Row {
            id: format!("r{number}"),
            source: format!("/scratch/run{number}"),
            to: "home".into(),
            state: "moving".into(),
            at_risk: number == 1,
            missed: false,
            slack_s: Some(60.0),
            finish: None,
            bytes: 1 << 30,
            chunks: 4,
            chunks_safe: 1,
            out_of_reach: false,
            keep_ended: false,
            stage_in: None,
        }
    }

    fn event(seq: u64) -> api::Event {
        api::Event {
            seq,
            at: "2026-11-20T18:00:00Z".into(),
            request: Some("r1".into()),
            depot: None,
            name: "at-risk".into(),
            text: format!("at risk {seq}"),
            reason: "it is slow".into(),
        }
    }

    fn seen(requests: u64) -> Seen {
        let mut overview = api::Overview {
            under_way: requests,
            at_risk: 1,
            ..api::Overview::default()
        };
        overview.stage_outs.insert("moving".into(), requests);
        overview.stage_outs.insert("delivered".into(), 7);
        Seen {
            overview,
            requests: (1..=requests.min(200)).map(row).collect(),
            events: (0..50).map(event).collect(),
            ..Seen::default()
        }
    }

    fn text(frame: &[Line]) -> Vec<String> {
        let pieces = |line: &Line| line.0.iter().map(|(text, _)| text.as_str()).collect();
        frame.iter().map(pieces).collect()
    }

    #[test]
    fn a_thousand_requests_fit_in_any_window_the_most_pressing_first() {
        for rows in [1, 2, 3, 8, 24, 60, 150] {
            let shown = text(&frame(&seen(1000), (100, rows)));
            assert!(shown.len() <= rows, "{rows}: {shown:#?}");
            assert!(shown[0].contains("1000 under way, 1 at risk"), "{shown:#?}");
        }
        let shown = text(&frame(&seen(1000), (100, 24)));
        assert_eq!(shown.len(), 24);
        assert!(shown[1].contains("1000 moving") && shown[1].contains("7 delivered"));
        assert!(
            shown[3].starts_with("r1 ") && shown[3].contains("AT RISK"),
            "{shown:#?}"
        );
        let more = shown.iter().find(|line| line.starts_with("… and")).unwrap();
        let requests = shown.iter().filter(|line| line.contains("/scratch/run"));
        let left = 1000 - requests.count();
        assert_eq!(
            more,
            &format!("… and {left} more with more slack: {left} moving")
        );
        assert!(shown.last().unwrap().contains("at risk 49"), "{shown:#?}");
    }

    #[test]
    fn what_fits_is_shown_whole() {
        let shown = text(&frame(&seen(3), (100, 40)));
        let requests = shown.iter().filter(|line| line.contains("/scratch/run"));
        assert_eq!(requests.count(), 3);
        assert!(
            !shown.iter().any(|line| line.starts_with("… and")),
            "{shown:#?}"
        );
    }
}
