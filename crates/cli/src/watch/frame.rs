//! View of a request.

use posthaste_api as api;
use posthaste_types::{ByteRate, Bytes};

use crate::{
    answer, moment, output,
    screen::{Line, Style},
};

/// Events in a frame.
pub const EVENTS_SHOWN: usize = 8;
/// Files left out that a frame names.
const LEFT_OUT_SHOWN: usize = 10;
/// Cells of the progress bar.
const BAR_CELLS: usize = 40;

/// Draws a request.
pub fn frame(request: &api::Request, events: &[api::Event]) -> Vec<Line> {
    let mut lines = vec![
        Line::new(format!("{}  ", request.id), Style::Bold)
            .and(
                format!("{} → {}  ", output::one_line(&request.source), request.to),
                Style::Plain,
            )
            .and(request.state.as_str(), state_style(request)),
        deadline_line(request),
        progress_line(request),
    ];
    let until = request.kept_until.as_deref().map(answer::kept_until);
    lines.extend(until.map(|until| Line::new(until, Style::Plain)));
    lines.extend(request.paused.as_ref().map(pause_line));
    lines.extend(delivery_line(request));
    lines.extend(request.reservations.iter().map(reservation_line));
    let warned = match request.out_of_reach {
        false => Style::Warning,
        true => Style::Bad,
    };
    for warning in &request.warnings {
        lines.push(Line::new(format!("warning: {warning}"), warned));
    }
    if let Some(reason) = &request.reason {
        lines.push(Line::new(reason.clone(), Style::Bad));
    }
    lines.extend(left_out_lines(request));
    if !request.shares.is_empty() {
        lines.push(Line::default());
        lines.push(Line::new(
            format!(
                "{:<12} {:<8} {:>6} {:>12} {:>10} {:>14}",
                "DEPOT", "STATE", "SHARE", "STORED", "IN FLIGHT", "RATE"
            ),
            Style::Dim,
        ));
        let total: u64 = request.shares.iter().map(|share| share.stored_bytes).sum();
        lines.extend(request.shares.iter().map(|share| share_line(share, total)));
    }
    lines.extend(stage_in_lines(request));
    if !events.is_empty() {
        lines.push(Line::default());
        lines.extend(events.iter().map(event_line));
    }
    lines
}

/// Files that were left out: how many, and the first of them.
fn left_out_lines(request: &api::Request) -> Vec<Line> {
    let lines = left_out_text(request).into_iter();
    lines.map(|line| Line::new(line, Style::Warning)).collect()
}

/// Prints plain lines.
pub fn left_out_text(request: &api::Request) -> Vec<String> {
    let Some(left_out) = &request.left_out else {
        return Vec::new();
    };
    // What depots hold need not be on scratch any more, though it is not at the address.
    let comes_of_depots = request.goes_on_as.is_some()
        || request.stage_in.is_some() && !request.source.contains(['/', ':']);
    let where_it_is = match comes_of_depots {
        true => "not at its address",
        false => "not removed",
    };
    let files = output::counted(left_out.files, "file");
    let bytes = Bytes::new(left_out.bytes);
    let named = left_out.named.iter().take(LEFT_OUT_SHOWN);
    let mut lines: Vec<String> = named
        .map(|one| format!("  {}", output::one_line(one)))
        .collect();
    lines.insert(0, format!("{files} left out ({bytes}), {where_it_is}:"));
    let more = left_out.files.saturating_sub(LEFT_OUT_SHOWN as u64);
    if more > 0 {
        lines.push(format!("  and {more} more (--json names them)"));
    }
    lines
}

/// Formats who paused the request. Its forecast assumes that it resumes now.
fn pause_line(pause: &api::Pause) -> Line {
    let since = moment::time_of_day(&pause.since);
    let said = format!(
        "paused by {} since {since}; if it went on now, as above",
        pause.by
    );
    Line::new(said, Style::Warning)
}

fn state_style(request: &api::Request) -> Style {
    match request.state.as_str() {
        _ if request.out_of_reach => Style::Bad,
        "safe" | "released" if request.at_risk => Style::Warning,
        "safe" | "released" | "delivered" | "arrived" => Style::Good,
        "refused" | "failed" | "cancelled" => Style::Bad,
        _ => Style::Bold,
    }
}

fn deadline_line(request: &api::Request) -> Line {
    let left = moment::seconds_until(&request.deadline).unwrap_or(0.0);
    let line = Line::new(
        format!(
            "deadline {} ({})  ",
            moment::time_of_day(&request.deadline),
            moment::from_now(left)
        ),
        Style::Plain,
    );
    // Work after the request is safe has no deadline.
    let is_short =
        request.safe_after_s.is_none() && request.slack_s.is_some_and(|slack| slack < 0.0);
    let (word, style) = match (request.missed, request.at_risk || is_short) {
        _ if request.out_of_reach => return line.and("OUT OF REACH", Style::Bad),
        _ if request.keep_ended => return line.and("KEPT NO LONGER", Style::Bad),
        (true, _) => ("late", Style::Bad),
        (false, true) => ("at risk", Style::Warning),
        (false, false) => ("on time", Style::Good),
    };
    let line = match (&request.finish, request.safe_after_s) {
        (_, Some(after)) => line.and(
            format!(
                "{} after {}  ",
                if request.stage_in.is_none() {
                    "safe"
                } else {
                    end_of(request)
                },
                moment::show_seconds(after)
            ),
            Style::Good,
        ),
        (Some(finish), None) => line.and(
            format!("p90 finish {}  ", moment::time_of_day(&finish.p90)),
            Style::Plain,
        ),
        (None, None) => line,
    };
    match request.slack_s {
        Some(slack) => line
            .and(format!("slack {}  ", moment::show_seconds(slack)), style)
            .and(word, style),
        // An unknown finish is the worst.
        None if request.at_risk || request.missed => line
            .and("no finish in sight  ", Style::Bad)
            .and(word, Style::Bad),
        None => line,
    }
}

/// Formats the delivery deadline and its prospects; `None` if there is no deadline.
fn delivery_line(request: &api::Request) -> Option<Line> {
    let delivery = request.delivery.as_ref()?;
    let by = delivery.deliver_by.as_deref()?;
    let left = moment::seconds_until(by).unwrap_or(0.0);
    let (at, left) = (moment::time_of_day(by), moment::show_seconds(left));
    let line = Line::new(format!("deliver by {at} (in {left})  "), Style::Plain);
    let line = match (&delivery.delivered, &delivery.finish) {
        (Some(at), _) => line.and(
            format!("delivered {}  ", moment::time_of_day(at)),
            Style::Good,
        ),
        (None, Some(finish)) => line.and(
            format!("p90 delivered {}  ", moment::time_of_day(&finish.p90)),
            Style::Plain,
        ),
        (None, None) => line.and("no end of it in sight  ", Style::Bad),
    };
    let is_short = delivery.slack_s.is_some_and(|slack| slack < 0.0);
    let (word, style) = match (
        delivery.missed,
        delivery.at_risk || is_short,
        &delivery.delivered,
    ) {
        (true, ..) => ("late", Style::Bad),
        (false, true, _) => ("at risk", Style::Warning),
        (false, false, Some(_)) => ("in time", Style::Good),
        (false, false, None) => ("on time", Style::Good),
    };
    let slack = delivery
        .slack_s
        .map(|slack| format!("slack {}  ", moment::show_seconds(slack)));
    Some(line.and(slack.unwrap_or_default(), style).and(word, style))
}

/// Formats the reservation of the request.
fn reservation_line(held: &api::Reservation) -> Line {
    let (from, until) = (
        moment::time_of_day(&held.from),
        moment::time_of_day(&held.until),
    );
    let rate = ByteRate::new(held.rate_bytes_per_s);
    let style = match held.state.as_str() {
        "up" => Style::Good,
        "down" => Style::Bad,
        _ => Style::Plain,
    };
    let line = Line::new(
        format!(
            "reserved {rate} on {} from {from} until {until}  ",
            held.circuit
        ),
        Style::Plain,
    );
    let line = match held.cost_usd > 0.0 {
        true => line.and(format!("{:.2} $  ", held.cost_usd), Style::Plain),
        false => line,
    };
    line.and(held.state.as_str(), style)
}

fn progress_line(request: &api::Request) -> Line {
    let chunks = u64::from(request.chunks);
    let safe = u64::from(request.chunks_safe);
    // Empty datasets have no chunks, and neither have unread or unreadable ones.
    let is_done = matches!(
        request.state,
        api::RequestState::Safe
            | api::RequestState::Released
            | api::RequestState::Delivered
            | api::RequestState::Arrived
    );
    let of_none = if is_done && !request.out_of_reach && !request.keep_ended {
        100
    } else {
        0
    };
    let per_cent = (safe * 100).checked_div(chunks).unwrap_or(of_none);
    let cells = usize::try_from(per_cent).unwrap_or(0) * BAR_CELLS / 100;
    Line::new("█".repeat(cells), Style::Good)
        .and("░".repeat(BAR_CELLS - cells), Style::Dim)
        .and(
            format!(
                "  {per_cent} % {}  {safe} of {chunks} chunks  {} in {}{}",
                end_of(request),
                Bytes::new(request.bytes),
                output::counted(request.files, "file"),
                match request.stage_in {
                    Some(_) => String::new(),
                    None => format!("  code {}", request.code),
                }
            ),
            Style::Plain,
        )
}

/// Returns the state that the deadline asks for.
fn end_of(request: &api::Request) -> &'static str {
    match &request.stage_in {
        Some(stage_in) if stage_in.goes_out => "there",
        Some(_) => "here",
        None if answer::is_only_copy(request) => "delivered, the only copy",
        None if request.state == api::RequestState::Delivered => "delivered",
        None => "safe",
    }
}

/// Formats the sources of a stage-in, and its start.
fn stage_in_lines(request: &api::Request) -> Vec<Line> {
    let Some(stage_in) = &request.stage_in else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    if let (Some(begin_by), true) = (&stage_in.begin_by, stage_in.begun.is_none()) {
        let at = moment::time_of_day(begin_by);
        lines.push(Line::new(format!("begins by {at}"), Style::Plain));
    }
    if stage_in.sources.is_empty() {
        return lines;
    }
    lines.push(Line::default());
    lines.push(Line::new(
        format!(
            "{:<32} {:<8} {:>8} {:>12} {:>10} {:>14}",
            if stage_in.goes_out { "PATH" } else { "SOURCE" },
            "STATE",
            "CHUNKS",
            "BYTES",
            "IN FLIGHT",
            "RATE"
        ),
        Style::Dim,
    ));
    lines.extend(stage_in.sources.iter().map(|source| {
        let style = match source.state.as_str() {
            "up" => Style::Good,
            "down" | "gone" => Style::Bad,
            _ => Style::Warning,
        };
        Line::new(format!("{:<32} ", source.name), Style::Plain)
            .and(format!("{:<8} ", source.state), style)
            .and(
                format!(
                    "{:>8} {:>12} {:>10} {:>14}",
                    source.chunks,
                    Bytes::new(source.bytes).to_string(),
                    source.in_flight,
                    ByteRate::new(source.rate_bytes_per_s).to_string()
                ),
                Style::Plain,
            )
    }));
    let waiting = stage_in.sources.iter();
    let waiting = waiting.filter(|source| source.near && source.holds_bytes > 0);
    lines.extend(waiting.map(|source| {
        let (bytes, name) = (Bytes::new(source.holds_bytes), &source.name);
        Line::new(
            format!("{bytes} wait at {name} until it is welcome"),
            Style::Plain,
        )
    }));
    lines
}

fn share_line(share: &api::Share, total: u64) -> Line {
    let per_cent = (share.stored_bytes * 100).checked_div(total).unwrap_or(0);
    let (state, style) = match (share.state.as_str(), share.active) {
        ("up", true) => ("fed", Style::Good),
        ("up", false) => ("spare", Style::Dim),
        ("down", _) => ("down", Style::Bad),
        _ => ("unknown", Style::Warning),
    };
    Line::new(format!("{:<12} ", share.depot), Style::Plain)
        .and(format!("{state:<8} "), style)
        .and(
            format!(
                "{per_cent:>4} % {:>12} {:>10} {:>14}",
                Bytes::new(share.stored_bytes).to_string(),
                share.in_flight,
                ByteRate::new(share.rate_bytes_per_s).to_string()
            ),
            Style::Plain,
        )
}

pub fn event_line(event: &api::Event) -> Line {
    let style = match event.name.as_str() {
        "admitted" | "safe" | "released" | "delivered" | "arrived" | "on-time" | "depot-up"
        | "source-back" => Style::Good,
        "at-risk" | "repairing" | "forecast-moved" | "unsafe" => Style::Warning,
        "refused" | "missed" | "depot-down" | "source-left" | "failed" | "release-failed" => {
            Style::Bad
        }
        _ => Style::Bold,
    };
    let depot = event
        .depot
        .as_ref()
        .map_or_else(String::new, |depot| format!(" {depot}"));
    Line::new(format!("{}  ", moment::time_of_day(&event.at)), Style::Dim)
        .and(format!("{}{depot}  ", event.text), style)
        .and(event.reason.clone(), Style::Plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::tests::request;

    fn text_of(request: &api::Request) -> String {
        let lines = frame(request, &[]);
        let spans = lines.iter().flat_map(|line| &line.0);
        spans.map(|(text, _)| text.as_str()).collect()
    }

    #[test]
    fn what_has_no_chunks_is_done_only_where_it_is() {
        for (state, said) in [
            ("scanning", "0 % safe"),
            ("failed", "0 % safe"),
            ("released", "100 % safe"),
        ] {
            let mut empty = request(state, false);
            (empty.chunks, empty.chunks_safe, empty.files) = (0, 0, 1);
            let text = text_of(&empty);
            assert!(text.contains(&format!("  {said}")), "{state}: {text}");
            assert!(text.contains("in 1 file "), "{state}: {text}");
        }
    }

    #[test]
    fn what_nobody_can_say_the_end_of_looks_as_bad_as_it_is() {
        let mut stuck = request("moving", false);
        (stuck.at_risk, stuck.slack_s, stuck.finish) = (true, None, None);
        let said = text_of(&stuck);
        assert!(said.contains("no finish in sight  at risk"), "{said}");
        let line = deadline_line(&stuck);
        assert!(matches!(line.0.last(), Some((_, Style::Bad))), "{said}");
        stuck.missed = true;
        assert!(text_of(&stuck).contains("no finish in sight  late"));
        stuck.at_risk = false;
        stuck.missed = false;
        assert!(
            !text_of(&stuck).contains("in sight"),
            "it waits for its scan"
        );
    }

    #[test]
    fn one_copy_is_delivered_and_no_more() {
        let mut there = request("delivered", false);
        there.chunks_safe = there.chunks;
        let share = |depot: &str, state: &str, stored| api::Share {
            depot: depot.into(),
            state: api::DepotState::named(state).unwrap(),
            active: true,
            stored,
            stored_bytes: 25,
            in_flight: 0,
            reserved_bytes: 0,
            rate_bytes_per_s: 0,
        };
        there.shares = vec![share("ash", "up", 0), share("home", "up", 4)];
        let said = text_of(&there);
        assert!(
            said.contains("100 % delivered") && !said.contains("100 % safe"),
            "{said}"
        );
        assert!(said.contains("on time"), "{said}");
        there.out_of_reach = true;
        let said = text_of(&there);
        assert!(
            said.contains("OUT OF REACH") && !said.contains("on time"),
            "{said}"
        );
    }

    #[test]
    fn until_when_depots_keep_it_is_said() {
        let mut request = request("released", false);
        request.kept_until = Some("2126-11-20T18:01:00.000Z".into());
        let said = text_of(&request);
        assert!(
            said.contains("depots keep it until 2126-11-20 18:01:00Z"),
            "{said}"
        );
        request.kept_until = Some("2020-11-20T18:01:00.000Z".into());
        assert!(text_of(&request).contains("depots kept it until 2020-11-20"));
    }

    #[test]
    fn the_frame_says_state_progress_and_slack() {
        let text = text_of(&request("moving", false));
        for said in [
            "r1",
            "/scratch/run → home",
            "moving",
            "25 % safe",
            "slack 12.5 s",
            "on time",
        ] {
            assert!(text.contains(said), "{said} is missing in {text}");
        }
    }
}
