//! Tables of the page: the result, the requests, the events and the verdicts.

use std::fmt::Write;

use posthaste_core::contract::RequestView;

use super::{
    super::{Fate, Recording, Report},
    escape,
    figures::{class, symbol},
    moment,
};

/// Row limit of the table of requests, and of the table of events.
const REQUESTS_MAX: usize = 200;
const EVENTS_MAX: usize = 300;

/// Returns the verdict in a line, and the run's main figures.
pub(super) fn tiles(report: &Report, recording: &Recording) -> String {
    let broken = report
        .verdicts()
        .iter()
        .filter(|(_, found)| found.is_some())
        .count();
    let verdict = match broken {
        0 => String::from("<p class=\"verdict good\">Every checker is content</p>\n"),
        1 => String::from("<p class=\"verdict bad\">A checker is violated</p>\n"),
        _ => format!("<p class=\"verdict bad\">{broken} checkers are violated</p>\n"),
    };
    let all = report.fates.len();
    let fates = [
        Fate::Late,
        Fate::Unsafe,
        Fate::Refused,
        Fate::Cancelled,
        Fate::Failed,
    ];
    let others: Vec<String> = fates
        .iter()
        .map(|fate| (report.count(*fate), fate.name()))
        .filter(|(count, _)| *count > 0)
        .map(|(count, name)| format!("{count} {name}"))
        .collect();
    let others = match others.is_empty() {
        true => String::from("requests safe by their deadline"),
        false => format!("safe by their deadline; {}", others.join(", ")),
    };
    let span = report.span.as_secs_f64();
    let mut tiles = vec![
        (format!("{} of {all}", report.count(Fate::Met)), others),
        (format!("{span:.0} s"), String::from("of virtual time")),
        (report.sent.to_string(), String::from("sent")),
        (
            report.stored.to_string(),
            String::from("stored, digests verified"),
        ),
    ];
    if report.fan_outs.len() > 1 {
        let course: Vec<String> = report.fan_outs.iter().take(8).map(u32::to_string).collect();
        let dots = if report.fan_outs.len() > 8 {
            " \u{2026}"
        } else {
            ""
        };
        let what = String::from("fan-out of the first request");
        tiles.push((format!("{}{dots}", course.join(" \u{2192} ")), what));
    }
    if let Some(last) = recording.samples.last().filter(|_| recording.is_priced) {
        let micro = last.micro_usd;
        let dollars = format!("{}.{:04} USD", micro / 1_000_000, micro % 1_000_000 / 100);
        tiles.push((dollars, String::from("spent")));
    }
    let mut html = format!("{verdict}<div class=\"tiles\">\n");
    for (number, what) in tiles {
        let _ = writeln!(
            html,
            "<div class=\"tile\"><b>{}</b><span>{}</span></div>",
            escape(&number),
            escape(&what)
        );
    }
    html.push_str("</div>\n");
    html
}

/// Returns the table with a row for each request.
pub(super) fn requests(report: &Report, recording: &Recording) -> String {
    let mut html = String::from(
        "<h2>Requests</h2>\n<div class=\"scroll\"><table>\n<tr><th>request</th><th class=\"number\">size</th>\
         <th>code</th><th class=\"number\">asked</th><th class=\"number\">deadline</th>\
         <th class=\"number\">safe</th><th class=\"number\">to spare</th><th>fate</th><th>lies on</th></tr>\n",
    );
    for view in recording.requests.iter().take(REQUESTS_MAX) {
        html.push_str(&request(report, view));
    }
    html.push_str("</table></div>\n");
    html.push_str(&left_out(recording.requests.len(), REQUESTS_MAX));
    html
}

fn request(report: &Report, view: &RequestView) -> String {
    let since = |at: posthaste_types::Timestamp| at.since(report.start).as_secs_f64();
    let deadline = since(view.spec.deadline);
    let safe = view.safe_at.map(since);
    let fate = report
        .fates
        .iter()
        .find(|(request, _)| *request == view.request);
    let (fate, tone) = fate.map_or(("", ""), |(_, fate)| (fate.name(), tone(*fate)));
    let holders: Vec<String> = view
        .shares
        .iter()
        .filter(|share| share.stored > 0)
        .map(|share| {
            format!(
                "{} {}",
                escape(report.depot(share.depot)),
                share.stored_bytes
            )
        })
        .collect();
    let dash = || String::from("\u{2013}");
    format!(
        "<tr><td>{}</td><td class=\"number\">{}</td><td>{}</td><td class=\"number\">{}</td>\
         <td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>\
         <td class=\"{tone}\">{fate}</td><td>{}</td></tr>\n",
        view.request,
        view.spec.bytes,
        view.spec.code,
        moment(since(view.submitted)),
        moment(deadline),
        safe.map_or_else(dash, moment),
        safe.map_or_else(dash, |safe| moment(deadline - safe)),
        holders.join(", "),
    )
}

fn tone(fate: Fate) -> &'static str {
    match fate {
        Fate::Met => "good",
        Fate::Late | Fate::Unsafe | Fate::Failed => "bad",
        Fate::Refused => "warn",
        Fate::Cancelled => "soft",
    }
}

/// Returns the events with their reasons and the symbols of the plots.
pub(super) fn events(report: &Report) -> String {
    let mut html = String::from(
        "<h2>What happened, and why</h2>\n<div class=\"scroll\"><table>\n\
         <tr><th class=\"number\">at</th><th></th><th>what</th></tr>\n",
    );
    for entry in report.timeline.iter().take(EVENTS_MAX) {
        let class = class(&entry.what).unwrap_or_default();
        let _ = writeln!(
            html,
            "<tr><td class=\"number\">{}</td><td><span class=\"key {class}\">{}</span></td><td>{}</td></tr>",
            moment(entry.at.as_secs_f64()),
            symbol(class),
            escape(&report.line(entry))
        );
    }
    html.push_str("</table></div>\n");
    let more = usize::try_from(report.timeline_left_out).unwrap_or(usize::MAX);
    html.push_str(&left_out(
        report.timeline.len().saturating_add(more),
        EVENTS_MAX,
    ));
    html
}

fn left_out(all: usize, most: usize) -> String {
    match all.checked_sub(most) {
        None | Some(0) => String::new(),
        Some(more) => {
            format!(
                "<p class=\"soft\">{more} more are left out; <code>--timeline</code> tells all.</p>\n"
            )
        }
    }
}

/// Returns the verdict of each checker.
pub(super) fn checkers(report: &Report) -> String {
    let mut html = String::from(
        "<h2>Checkers</h2>\n<div class=\"scroll\"><table>\n<tr><th>what must hold</th><th>verdict</th></tr>\n",
    );
    for (checker, violation) in report.verdicts() {
        let verdict = match violation {
            None => String::from("<td class=\"good\">holds</td>"),
            Some(violation) => format!(
                "<td class=\"bad\">violated at {}: {}</td>",
                moment(violation.at.since(report.start).as_secs_f64()),
                escape(&violation.what)
            ),
        };
        let _ = writeln!(html, "<tr><td>{}</td>{verdict}</tr>", escape(checker));
    }
    html.push_str("</table></div>\n");
    html
}
