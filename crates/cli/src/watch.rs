//! `posthaste watch`: a running request, with its depots, slack, and each decision with its reason;
//! or the whole service.

mod board;
mod follower;
mod frame;
mod terminal;
mod whole;

use std::{collections::BTreeSet, process::ExitCode, time::Duration};

use clap::Args;
use posthaste_api as api;

use crate::{
    client::{ServiceArguments, ServiceClient},
    failure::{Exit, Failure, Outcome},
    moment, output,
    screen::Screen,
};
use frame::left_out_text;
pub use {follower::Follower, frame::frame};

/// Interval between two frames.
const FRAME_EVERY: Duration = Duration::from_millis(250);
/// Beginning of the warning that says why it is out of reach.
const OUT_OF_REACH: &str = "OUT OF REACH";
/// Beginning of the warning that says that depots keep it no longer.
const KEPT_NO_LONGER: &str = "depots keep it no longer";

/// Watches a request until it is safe (and released, if that was asked for), or a stage-in until it is here; or the whole service
///
/// Without an id everything is shown in one window, the requests with the least slack first, until q or Ctrl-C; where standard
/// output is no terminal what happens from now on is printed, a line for each event. A request that is wanted at its destinations by a moment is watched until it is there, or late. Exits with 0 when
/// that is in time, 10 when late, 11 when refused.
#[derive(Debug, Args)]
pub struct WatchArguments {
    /// The request's id, like r7; without it, the whole service
    id: Option<String>,
    /// Print events as JSON lines instead of a picture: of a request all of them, of the whole service those from now on
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Runs the command.
///
/// # Errors
/// Returns the service's refusal, or fails if it can't be reached.
pub async fn run(arguments: WatchArguments) -> Outcome {
    let service = ServiceClient::open(&arguments.service)?;
    let Some(id) = arguments.id else {
        return whole::run(&service, arguments.json).await;
    };
    if arguments.json {
        return outcome_of(&print_events(&service, &id).await?);
    }
    let request = until_settled(&service, &id, true).await?;
    outcome_of(&request)
}

/// Prints events until the one that reports the end: a request that could not be begun has none.
async fn print_events(service: &ServiceClient, id: &str) -> Result<api::Request, Failure> {
    let mut follower = Follower::new(service, id).await?;
    let mut said = BTreeSet::new();
    loop {
        let request = follower.look(service).await?;
        for event in follower.take_unsaid() {
            output::json(&event);
            said.insert(event.name);
        }
        let is_late = request
            .delivery
            .as_ref()
            .is_some_and(|delivery| delivery.missed);
        let last = match is_late {
            true => "delivery-missed",
            false => request.state.as_str(),
        };
        let is_over = request.state == api::RequestState::Failed || request.keep_ended;
        if is_over || is_settled(&request) && said.contains(last) {
            name_left_out(&request);
            return Ok(request);
        }
        tokio::time::sleep(FRAME_EVERY).await;
    }
}

/// Names the files left out, if no frame does.
fn name_left_out(request: &api::Request) {
    for line in left_out_text(request) {
        output::note!("{}", output::plain(&line));
    }
}

/// Returns whether nothing more happens to the request by itself.
pub fn is_settled(request: &api::Request) -> bool {
    if request.keep_ended {
        return true;
    }
    let is_awaited = request.delivery.as_ref().is_some_and(|delivery| {
        delivery.deliver_by.is_some() && !delivery.missed && delivery.delivered.is_none()
    });
    if is_awaited
        && matches!(
            request.state,
            api::RequestState::Safe | api::RequestState::Released
        )
    {
        return false;
    }
    match request.state.as_str() {
        "safe" => request.release == api::Release::Never || request.source_kept,
        "arrived" => !request.stage_in.as_ref().is_some_and(|one| one.releases),
        "refused" | "released" | "delivered" | "cancelled" | "failed" => true,
        _ => false,
    }
}

/// Returns the request's result: an exit code for programs, and for a failed one a line with the
/// reason, which may have been no event. Says why one is out of reach.
///
/// # Errors
/// Fails if the request failed.
pub fn outcome_of(request: &api::Request) -> Outcome {
    if request.state == api::RequestState::Failed {
        let doing = format!("{} failed", request.id);
        return Err(Failure::of_request(request, &doing));
    }
    if request.out_of_reach || request.keep_ended {
        let mut warnings = request.warnings.iter();
        let is_why = |warning: &&String| {
            warning.starts_with(OUT_OF_REACH) || warning.starts_with(KEPT_NO_LONGER)
        };
        let why = warnings.find(is_why);
        let why = why.map_or(OUT_OF_REACH, String::as_str);
        output::complain(&format!("{}: {why}", request.id));
    }
    Ok(exit_of(request))
}

/// Returns whether it ended with less than was asked for.
fn has_less(request: &api::Request) -> bool {
    let is_short = request.left_out.is_some() || request.source_kept;
    is_short || request.out_of_reach || request.keep_ended
}

fn exit_of(request: &api::Request) -> ExitCode {
    let is_undelivered = request
        .delivery
        .as_ref()
        .is_some_and(|delivery| delivery.missed);
    let exit = match (request.state.as_str(), request.missed || is_undelivered) {
        ("refused", _) => Exit::Refused,
        ("failed" | "cancelled", _) => Exit::Other,
        (_, true) => Exit::TimeLimit,
        (_, false) if has_less(request) => Exit::LessSerious,
        (_, false) => return ExitCode::SUCCESS,
    };
    ExitCode::from(exit as u8)
}

/// Follows the request. Draws it if `shown` and standard error is a terminal, and else prints one
/// line an event.
///
/// # Errors
/// Returns the service's refusal, or fails if it can't be reached.
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
                output::note!("{}", output::plain(&event_text(&event)));
            }
        }
        if is_settled(&request) {
            if !screen.is_live() {
                name_left_out(&request);
            }
            return Ok(request);
        }
        tokio::time::sleep(FRAME_EVERY).await;
    }
}

/// Formats an event as one line.
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    #[test]
    fn what_failed_says_why() {
        let mut failed = request("failed", false);
        failed.reason = Some("can't list s3://x: no credentials".into());
        let said = outcome_of(&failed).unwrap_err().to_string();
        assert_eq!(said, "r1 failed: can't list s3://x: no credentials");
        failed.state = api::RequestState::Released;
        assert!(outcome_of(&failed).is_ok());
    }

    pub(crate) fn request(state: &str, missed: bool) -> api::Request {
        api::Request {
            id: "r1".into(),
            dataset: String::new(),
            source: "/scratch/run".into(),
            only: Vec::new(),
            to: "home".into(),
            state: api::RequestState::named(state).unwrap(),
            paused: None,
            reason: None,
            error_code: None,
            warnings: Vec::new(),
            at_risk: false,
            missed,
            source_kept: false,
            encrypt_for: Vec::new(),
            code: "2+1".into(),
            release: api::Release::WhenSafe,
            optimizer: "auto".into(),
            wishes: api::Wishes::default(),
            submitted: "2026-11-20T18:00:00Z".into(),
            deadline: "2026-11-20T18:01:00Z".into(),
            slack_s: Some(12.5),
            finish: None,
            assumed: false,
            delivery: None,
            goes_on_as: None,
            safe_after_s: None,
            bytes: 100,
            files: 2,
            chunks: 4,
            chunks_safe: 1,
            chunks_out_of_reach: 0,
            out_of_reach: false,
            kept_until: None,
            keep_ended: false,
            modes_not_kept: 0,
            times_not_kept: 0,
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
            left_out: None,
            stage_in: None,
        }
    }

    #[test]
    fn a_request_is_settled_only_when_the_release_it_asked_for_is_done() {
        assert!(!is_settled(&request("safe", false)));
        assert!(is_settled(&request("released", false)));
        let kept = api::Request {
            source_kept: true,
            ..request("safe", false)
        };
        assert!(is_settled(&kept), "it is not tried again");
        let exit = format!("{:?}", outcome_of(&kept).unwrap());
        assert_eq!(exit, format!("{:?}", ExitCode::from(6)));
        assert!(!is_settled(&request("moving", true)));
        let lost = api::Request {
            out_of_reach: true,
            ..request("released", false)
        };
        let exit = format!("{:?}", outcome_of(&lost).unwrap());
        assert_eq!(exit, format!("{:?}", ExitCode::from(6)));
    }
}
