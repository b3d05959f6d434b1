//! `posthaste watch`: a request as it runs: depots, slack, and each decision with its reason.

use std::{collections::VecDeque, process::ExitCode, time::Duration};

use clap::Args;
use posthaste_api as api;
use posthaste_types::{ByteRate, Bytes};

use crate::{
    client::{Events, ServiceArguments, ServiceClient},
    failure::{Exit, Failure, Outcome},
    moment, output,
    screen::{Line, Screen, Style},
};

/// How often a frame is drawn.
const FRAME_EVERY: Duration = Duration::from_millis(250);
/// Events a frame shows.
const EVENTS_SHOWN: usize = 8;
/// Cells of the progress bar.
const BAR_CELLS: usize = 40;

/// Watches a request until it is safe (and released, if that was asked for), or a stage-in until it is here
///
/// One that is wanted at its destinations by a moment is watched until it is there, or late. Exits with 0 when
/// that is in time, 10 when late, 11 when refused.
#[derive(Debug, Args)]
pub struct WatchArguments {
    /// The request's id, like r7
    id: String,
    /// Print events as JSON lines instead of a picture
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Runs the command.
///
/// # Errors
/// The service's refusal, or that it can't be reached.
pub async fn run(arguments: WatchArguments) -> Outcome {
    let service = ServiceClient::open(&arguments.service)?;
    if arguments.json {
        let _known: api::Request = service
            .get(&format!("/v1/requests/{}", arguments.id))
            .await?;
        let mut events = service.events(Some(&arguments.id), 0).await?;
        while let Some(event) = events.next().await {
            output::json(&event);
            let request: api::Request = service
                .get(&format!("/v1/requests/{}", arguments.id))
                .await?;
            if is_settled(&request) && ends(&event) {
                return Ok(exit_of(&request));
            }
        }
        return Err(Failure::new(
            Exit::Temporary,
            "the service ended the stream",
        ));
    }
    let request = until_settled(&service, &arguments.id, true).await?;
    Ok(exit_of(&request))
}

/// Whether this event is the last that says something new about where its request stands.
fn ends(event: &api::Event) -> bool {
    matches!(
        event.name.as_str(),
        "refused"
            | "safe"
            | "released"
            | "release-failed"
            | "delivered"
            | "delivery-missed"
            | "arrived"
            | "cancelled"
            | "failed"
    )
}

/// Whether nothing more will happen to the request by itself.
pub fn is_settled(request: &api::Request) -> bool {
    let is_awaited = request.delivery.as_ref().is_some_and(|delivery| {
        delivery.deliver_by.is_some() && !delivery.missed && delivery.delivered.is_none()
    });
    if is_awaited && matches!(request.state.as_str(), "safe" | "released") {
        return false;
    }
    match request.state.as_str() {
        "safe" => request.release == api::Release::Never,
        "arrived" => !request.stage_in.as_ref().is_some_and(|one| one.releases),
        "refused" | "released" | "delivered" | "cancelled" | "failed" => true,
        _ => false,
    }
}

/// The exit code that tells a program how the request went.
pub fn exit_of(request: &api::Request) -> ExitCode {
    let is_undelivered = request
        .delivery
        .as_ref()
        .is_some_and(|delivery| delivery.missed);
    let exit = match (request.state.as_str(), request.missed || is_undelivered) {
        ("refused", _) => Exit::Refused,
        ("failed" | "cancelled", _) => Exit::Other,
        (_, true) => Exit::TimeLimit,
        (_, false) => return ExitCode::SUCCESS,
    };
    ExitCode::from(exit as u8)
}

/// Follows the request, drawing it when `shown` and standard error is a terminal, else one line an
/// event.
///
/// # Errors
/// The service's refusal, or that it can't be reached.
pub async fn until_settled(
    service: &ServiceClient,
    id: &str,
    shown: bool,
) -> Result<api::Request, Failure> {
    let mut screen = Screen::new(shown);
    let mut follower = Follower::new(service, id).await?;
    loop {
        let request = follower.look(service).await?;
        if screen.is_live() {
            screen.draw(&frame(&request, follower.recent()));
        } else if shown {
            for event in follower.take_unsaid() {
                eprintln!("{}", event_text(&event));
            }
        }
        if is_settled(&request) {
            return Ok(request);
        }
        tokio::time::sleep(FRAME_EVERY).await;
    }
}

/// An event as one line of text.
pub fn event_text(event: &api::Event) -> String {
    let depot = event
        .depot
        .as_ref()
        .map_or_else(String::new, |depot| format!(" {depot}"));
    format!(
        "{}{depot} {}: {}",
        moment::time_of_day(&event.at),
        event.text,
        event.reason
    )
}

/// Follows a request and its events.
pub struct Follower {
    id: String,
    events: Events,
    recent: VecDeque<api::Event>,
    unsaid: Vec<api::Event>,
}

impl Follower {
    /// Starts to follow.
    ///
    /// # Errors
    /// The service's refusal, or that it can't be reached.
    pub async fn new(service: &ServiceClient, id: &str) -> Result<Self, Failure> {
        let _known: api::Request = service.get(&format!("/v1/requests/{id}")).await?;
        Ok(Self {
            id: id.to_owned(),
            events: service.events(Some(id), 0).await?,
            recent: VecDeque::new(),
            unsaid: Vec::new(),
        })
    }

    /// Takes up the events that came and looks at the request.
    ///
    /// # Errors
    /// The service's refusal, or that it can't be reached.
    pub async fn look(&mut self, service: &ServiceClient) -> Result<api::Request, Failure> {
        let request = service.get(&format!("/v1/requests/{}", self.id)).await?;
        // Whatever the service wrote down before it answered above is on its way already.
        while let Ok(Some(event)) =
            tokio::time::timeout(Duration::from_millis(20), self.events.next()).await
        {
            self.recent.push_back(event.clone());
            if self.recent.len() > EVENTS_SHOWN {
                self.recent.pop_front();
            }
            self.unsaid.push(event);
        }
        Ok(request)
    }

    /// The newest events.
    pub fn recent(&mut self) -> &[api::Event] {
        self.recent.make_contiguous()
    }

    /// Events not taken before.
    pub fn take_unsaid(&mut self) -> Vec<api::Event> {
        std::mem::take(&mut self.unsaid)
    }
}

/// Draws a request.
pub fn frame(request: &api::Request, events: &[api::Event]) -> Vec<Line> {
    let mut lines = vec![
        Line::new(format!("{}  ", request.id), Style::Bold)
            .and(
                format!("{} → {}  ", request.source.escape_debug(), request.to),
                Style::Plain,
            )
            .and(request.state.clone(), state_style(request)),
        deadline_line(request),
        progress_line(request),
    ];
    lines.extend(request.paused.as_ref().map(pause_line));
    lines.extend(delivery_line(request));
    lines.extend(request.reservations.iter().map(reservation_line));
    if let Some(reason) = &request.reason {
        lines.push(Line::new(reason.clone(), Style::Bad));
    }
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

/// Who lets it wait; what is said of its finish is as if it went on now.
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
        "safe" | "released" | "delivered" | "arrived" => Style::Good,
        "refused" | "failed" | "cancelled" => Style::Bad,
        _ => Style::Bold,
    }
}

fn deadline_line(request: &api::Request) -> Line {
    let left = moment::seconds_until(&request.deadline).unwrap_or(0.0);
    let line = Line::new(
        format!(
            "deadline {} (in {})  ",
            moment::time_of_day(&request.deadline),
            moment::show_seconds(left)
        ),
        Style::Plain,
    );
    let (word, style) = match (request.missed, request.at_risk) {
        (true, _) => ("late", Style::Bad),
        (false, true) => ("at risk", Style::Warning),
        (false, false) => ("on time", Style::Good),
    };
    let line = match (&request.finish, request.safe_after_s) {
        (_, Some(after)) => line.and(
            format!(
                "{} after {}  ",
                end_of(request),
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
        None => line,
    }
}

/// When all of it is to be at its destinations, and how that stands; none where nobody said when.
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
        (None, None) => line,
    };
    let (word, style) = match (delivery.missed, delivery.at_risk, &delivery.delivered) {
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

/// What is reserved for it.
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
    line.and(held.state.clone(), style)
}

fn progress_line(request: &api::Request) -> Line {
    let chunks = u64::from(request.chunks);
    let safe = u64::from(request.chunks_safe);
    let per_cent = (safe * 100)
        .checked_div(chunks)
        .unwrap_or(if safe == chunks { 100 } else { 0 });
    let cells = usize::try_from(per_cent).unwrap_or(0) * BAR_CELLS / 100;
    Line::new("█".repeat(cells), Style::Good)
        .and("░".repeat(BAR_CELLS - cells), Style::Dim)
        .and(
            format!(
                "  {per_cent} % {}  {safe} of {chunks} chunks  {} in {} files{}",
                end_of(request),
                Bytes::new(request.bytes),
                request.files,
                match request.stage_in {
                    Some(_) => String::new(),
                    None => format!("  code {}", request.code),
                }
            ),
            Style::Plain,
        )
}

/// What it is to be by its deadline.
fn end_of(request: &api::Request) -> &'static str {
    match &request.stage_in {
        Some(stage_in) if stage_in.goes_out => "there",
        Some(_) => "here",
        None => "safe",
    }
}

/// The sources of a stage-in, and when it begins.
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

fn event_line(event: &api::Event) -> Line {
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

    fn request(state: &str, missed: bool) -> api::Request {
        api::Request {
            id: "r1".into(),
            dataset: String::new(),
            source: "/scratch/run".into(),
            only: Vec::new(),
            to: "home".into(),
            state: state.into(),
            paused: None,
            reason: None,
            at_risk: false,
            missed,
            encrypt_for: Vec::new(),
            code: "2+1".into(),
            release: api::Release::WhenSafe,
            optimizer: "auto".into(),
            wishes: api::Wishes::default(),
            submitted: "2026-11-20T18:00:00Z".into(),
            deadline: "2026-11-20T18:01:00Z".into(),
            slack_s: Some(12.5),
            finish: None,
            delivery: None,
            safe_after_s: None,
            bytes: 100,
            files: 2,
            chunks: 4,
            chunks_safe: 1,
            chunks_repaired: 0,
            cost_usd: 0.0,
            cost_usd_per_month: 0.0,
            cost_usd_to_read: 0.0,
            spent_usd: 0.0,
            purge_at: None,
            exposure: None,
            offers: Vec::new(),
            shares: vec![],
            reservations: Vec::new(),
            stage_in: None,
        }
    }

    #[test]
    fn a_request_is_settled_only_when_the_release_it_asked_for_is_done() {
        assert!(!is_settled(&request("safe", false)));
        assert!(is_settled(&request("released", false)));
        assert!(!is_settled(&request("moving", true)));
    }

    #[test]
    fn the_frame_says_state_progress_and_slack() {
        let text: String = frame(&request("moving", false), &[])
            .iter()
            .flat_map(|line| &line.0)
            .map(|(text, _)| text.as_str())
            .collect();
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
