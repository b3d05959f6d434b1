//! `posthaste list`, `status`, `explain`, `deadline` and `cancel`: shows requests and ends them.

mod files;
mod format;
mod transfers;

use std::process::ExitCode;

use clap::Args;
use hyper::Method;
use posthaste_api as api;
use posthaste_types::{ByteRate, Bytes};

use crate::{
    answer,
    client::{ServiceArguments, ServiceClient},
    copy::history,
    failure::{Exit, Failure, Outcome},
    moment, output, watch,
};

/// Moves the deadline of a running request; what was promised to others is kept
#[derive(Debug, Args)]
pub struct DeadlineArguments {
    /// The request's id, like r7
    id: String,
    /// Time by which it must be safe: 10m, 2h30m, 3d, 2026-11-20T18:00 (local) or with a zone
    #[arg(value_name = "WHEN", allow_hyphen_values = true)]
    deadline: String,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Changes a running request; what is not named stays
#[derive(Debug, Args)]
#[group(required = true, multiple = true, args = ["deadline", "deliver_by", "purge_at", "bwlimit", "priority"])]
pub struct ModifyArguments {
    /// The request's id, like r7
    id: String,
    /// Time by which it must be safe: 10m, 2h30m, 3d, 2026-11-20T18:00 (local) or with a zone
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    deadline: Option<String>,
    /// Time by which all of it is to be at every destination, as with --deadline; any for any time
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    deliver_by: Option<String>,
    /// Time at which the first file of its source is to be purged
    #[arg(long, value_name = "WHEN", allow_hyphen_values = true)]
    purge_at: Option<String>,
    /// Most to send for it a second, over all paths together: 10M, 1.5G; off for no limit
    #[arg(long, value_name = "RATE", value_parser = limit)]
    bwlimit: Option<ByteRate>,
    /// Priority beside others: low, normal, high, urgent, or a number from -9 to 9
    #[arg(long, value_name = "PRIORITY", allow_hyphen_values = true)]
    priority: Option<String>,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Parses a rate limit; zero for none.
fn limit(text: &str) -> Result<ByteRate, String> {
    match text {
        "off" => Ok(ByteRate::ZERO),
        rate => rate.parse().map_err(|error| format!("{error}, or off")),
    }
}

/// Checks that the text can stand in an address unescaped.
fn words(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.,".contains(c);
    match text.chars().all(plain) && !text.is_empty() {
        true => Ok(text.to_owned()),
        false => Err("letters, digits, `-`, `_` and `.` alone can be in a name".to_owned()),
    }
}

/// Lists requests, newest first
///
/// Examples:
///   posthaste list --state open
///   posthaste list --state refused,failed --to home --limit 20
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ListArguments {
    /// Only those in these states: scanning, refused, moving, paused, safe, released, delivered, cancelled, failed;
    /// of stage-ins also waiting, landing, arrived; open for all that something still comes of
    #[arg(long, value_name = "STATE,…", value_parser = words)]
    state: Option<String>,
    /// Only those to this name
    #[arg(long, value_name = "NAME", value_parser = words)]
    to: Option<String>,
    /// Only the newest so many
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Print a line for each instead, as in '{id:<6} {state} {eta}': {NAME} is id, state, flag, source, to, owner, project, priority,
    /// submitted, deadline, eta, eta_p90, slack, bytes, size, files, chunks, chunks_safe, percent, code, dataset or reason; {NAME:<8} is at
    /// least eight letters wide, {NAME:>8} with them at its right; \t and \n are what they are elsewhere
    #[arg(short = 'o', long, value_name = "FORMAT", conflicts_with = "json")]
    format: Option<format::Format>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Shows how a request stands, or the service and all that moves
#[derive(Debug, Args)]
pub struct StatusArguments {
    /// The request's id, like r7; without it, everything that is not settled
    id: Option<String>,
    /// Print a line for each instead, as in '{id:<6} {state} {eta}': {NAME} is id, state, flag, source, to, owner, project, priority,
    /// submitted, deadline, eta, eta_p90, slack, bytes, size, files, chunks, chunks_safe, percent, code, dataset or reason; {NAME:<8} is at
    /// least eight letters wide, {NAME:>8} with them at its right; \t and \n are what they are elsewhere
    #[arg(short = 'o', long, value_name = "FORMAT", conflicts_with = "json")]
    format: Option<String>,
    /// Show how far each of its files is; with --json a line each
    #[arg(long, requires = "id", conflicts_with = "format")]
    files: bool,
    /// Show each way its data goes: how far that is, how fast, and when it will be through; {NAME} of a format is then kind, from, to,
    /// state, reason, done, left, percent, in_flight, rate, eta or eta_p90
    #[arg(long, requires = "id", conflicts_with = "files")]
    transfers: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Explains a request, or the last copy: what was asked, answered and done, and why
///
/// Tells the story of a request in sentences, from what was asked to how it stands or ended; of one in
/// danger or late also where its slack went. With --json every decision and its reason.
#[derive(Debug, Args)]
pub struct ExplainArguments {
    /// The request's id, like r7; `last` is the last `posthaste cp` of this user with a remote end
    id: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Cancels a request: its source stays, and depots forget what they hold of it; of a stage-in, what was
/// written is removed
#[derive(Debug, Args)]
pub struct CancelArguments {
    /// The request's id, like r7
    id: String,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Lets depots remove what they hold of a request, for which you have all that you need of it
///
/// They keep what was pulled until its deadline and a while, for others to pull it too, unless it went to depots that each
/// have all of it. A destination that does not have it yet is waited for no longer.
///
/// Example:
///   posthaste pull r7 ~/results && posthaste forget r7
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ForgetArguments {
    /// The request's id, like r7: somebody pulled all of it
    id: String,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Runs `posthaste forget`.
///
/// # Errors
/// Returns the service's refusal, or fails if it can't be reached.
pub async fn forget(arguments: ForgetArguments) -> Outcome {
    let service = ServiceClient::open(&arguments.service)?;
    let path = format!("/v1/requests/{}/forget", arguments.id);
    service.tell(Method::POST, &path).await?;
    let id = &arguments.id;
    output::line(&format!("{id}: depots remove what they hold of it"));
    Ok(ExitCode::SUCCESS)
}

/// Runs `posthaste list`.
///
/// # Errors
/// Returns the service's refusal, or fails if it can't be reached.
pub async fn list(arguments: ListArguments) -> Outcome {
    let state = arguments.state.map(|state| format!("&state={state}"));
    let to = arguments.to.map(|to| format!("&to={to}"));
    let choice = state.unwrap_or_default() + &to.unwrap_or_default();
    let service = ServiceClient::open(&arguments.service)?;
    let most = arguments.limit.unwrap_or(usize::MAX);
    let requests = service.requests(&choice, most).await?;
    if let Some(format) = &arguments.format {
        print_as(format, &requests);
    } else if arguments.json {
        output::json(&requests);
    } else {
        print_requests(&requests);
    }
    Ok(ExitCode::SUCCESS)
}

fn print_as(format: &format::Format, requests: &[api::Request]) {
    for request in requests {
        output::line(&format.show(request));
    }
}

fn print_requests(requests: &[api::Request]) {
    let heading = ["ID", "STATE", "SAFE", "BYTES", "SLACK", "TO", "SOURCE"];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    rows.extend(requests.iter().map(|request| {
        let percent = u64::from(request.chunks_safe) * 100;
        let safe = percent.checked_div(u64::from(request.chunks));
        let flag = answer::flag(request);
        let flag = flag.map_or_else(String::new, |flag| format!(" {flag}"));
        vec![
            request.id.clone(),
            format!("{}{flag}", request.state),
            safe.map_or_else(|| "-".to_owned(), |safe| format!("{safe} %")),
            Bytes::new(answer::bytes_in(request)).to_string(),
            request
                .slack_s
                .map_or_else(|| "-".to_owned(), moment::show_seconds),
            request.to.clone(),
            output::one_line(&request.source),
        ]
    }));
    output::table(&rows);
}

/// Runs `posthaste status`.
///
/// # Errors
/// Returns the service's refusal, or fails if it can't be reached.
pub async fn status(arguments: StatusArguments) -> Outcome {
    let service = ServiceClient::open(&arguments.service)?;
    if let (Some(id), true) = (&arguments.id, arguments.transfers) {
        return transfers::show(&service, id, arguments.format.as_deref(), arguments.json).await;
    }
    let format = arguments.format.as_deref().map(format::read).transpose()?;
    if let Some(id) = arguments.id {
        if arguments.files {
            return files::show(&service, &id, arguments.json).await;
        }
        let request: api::Request = service.get(&format!("/v1/requests/{id}")).await?;
        if let Some(format) = &format {
            output::line(&format.show(&request));
        } else if arguments.json {
            output::json(&request);
        } else {
            for line in watch::frame(&request, &[]) {
                let text: String = line.0.iter().map(|(text, _)| text.as_str()).collect();
                output::line(text.trim_end());
            }
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(format) = &format {
        print_as(format, &service.requests("&state=open", usize::MAX).await?);
        return Ok(ExitCode::SUCCESS);
    }
    let health: api::Health = service.get("/v1/health").await?;
    let depots: Vec<api::Depot> = service.get("/v1/depots").await?;
    let open = service.requests("&state=open", usize::MAX).await?;
    if arguments.json {
        output::json(&serde_json::json!({ "service": health, "depots": depots, "requests": open }));
        return Ok(ExitCode::SUCCESS);
    }
    let up = depots
        .iter()
        .filter(|depot| depot.state == api::DepotState::Up)
        .count();
    output::line(&format!(
        "posthaste {}: {up} of {} depots up, {} requests open",
        health.version,
        depots.len(),
        open.len()
    ));
    if !open.is_empty() {
        print_requests(&open);
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `posthaste explain`.
///
/// # Errors
/// Returns the service's refusal, or fails if it can't be reached.
pub async fn explain(arguments: ExplainArguments) -> Outcome {
    if arguments.id == "last" {
        return explain_last(arguments.json);
    }
    let service = ServiceClient::open(&arguments.service)?;
    if arguments.json {
        let path = format!("/v1/requests/{}/explain", arguments.id);
        let decisions: Vec<api::Decision> = service.get(&path).await?;
        output::json(&decisions);
        return Ok(ExitCode::SUCCESS);
    }
    let path = format!("/v1/requests/{}/story", arguments.id);
    let story: api::Story = service.get(&path).await?;
    for sentence in story.sentences {
        output::line(&sentence);
    }
    Ok(ExitCode::SUCCESS)
}

/// Explains the last copy.
fn explain_last(json: bool) -> Outcome {
    let last = history::last().ok_or_else(|| {
        Failure::new(
            Exit::FileNotFound,
            "no copy with a remote end is remembered here".to_owned(),
        )
    })?;
    if json {
        output::json(&last);
        return Ok(ExitCode::SUCCESS);
    }
    output::line(&format!("{}, ended {}", last.path, last.ended_at));
    for step in last.steps {
        let rate = step
            .rate_bytes_per_s
            .map_or_else(String::new, |rate| format!("{}; ", ByteRate::new(rate)));
        output::line(&format!(
            "{:8.1} s  {rate}{}: {}",
            step.at_s, step.setting, step.reason
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `posthaste deadline`.
///
/// # Errors
/// Returns the service's refusal, or fails if the deadline is invalid or the service can't be
/// reached.
pub async fn move_deadline(arguments: DeadlineArguments) -> Outcome {
    modify(ModifyArguments {
        id: arguments.id,
        deadline: Some(arguments.deadline),
        deliver_by: None,
        purge_at: None,
        bwlimit: None,
        priority: None,
        service: arguments.service,
    })
    .await
}

/// Runs `posthaste modify`.
///
/// # Errors
/// Returns the service's refusal, or fails if the deadline is invalid or the service can't be
/// reached.
pub async fn modify(arguments: ModifyArguments) -> Outcome {
    let deadline = arguments.deadline.as_deref().map(moment::parse_deadline);
    let purge_at = arguments.purge_at.as_deref();
    let purge_at = purge_at.map(|at| moment::parse_coming("purge", at));
    let deliver_by = match arguments.deliver_by.as_deref() {
        None => None,
        Some("any") => Some("any".to_owned()),
        Some(at) => Some(moment::parse_coming("delivery", at)?.to_string()),
    };
    let new = api::Change {
        deliver_by,
        deadline: deadline.transpose()?.map(|deadline| deadline.to_string()),
        purge_at: purge_at.transpose()?.map(|at| at.to_string()),
        rate_bytes_per_s_max: arguments.bwlimit.map(ByteRate::get),
        priority: arguments.priority,
    };
    let service = ServiceClient::open(&arguments.service)?;
    let path = format!("/v1/requests/{}", arguments.id);
    service.patch(&path, &new).await?;
    let id = arguments.id;
    if let Some(deadline) = &new.deadline {
        output::line(&format!("{id}: deadline {}", moment::time_of_day(deadline)));
    }
    match new.deliver_by.as_deref() {
        Some("any") => output::line(&format!("{id}: delivered at any time")),
        Some(by) => output::line(&format!("{id}: delivered by {}", moment::time_of_day(by))),
        None => {}
    }
    if let Some(purge_at) = &new.purge_at {
        output::line(&format!("{id}: purge {}", moment::time_of_day(purge_at)));
    }
    match arguments.bwlimit {
        Some(ByteRate::ZERO) => output::line(&format!("{id}: no limit")),
        Some(rate) => output::line(&format!("{id}: at most {rate}")),
        None => {}
    }
    if let Some(priority) = &new.priority {
        output::line(&format!("{id}: priority {priority}"));
    }
    let request: api::Request = service.get(&path).await?;
    // What is told of its finish may be newer than whether it is at risk.
    let is_late = |finish: &api::Finish| finish.p90 > request.deadline;
    let is_late = request.finish.as_ref().is_none_or(is_late);
    if request.missed || (request.at_risk && is_late) {
        let text = answer::in_danger(&request);
        output::line(text.trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

/// Runs `posthaste cancel`.
///
/// # Errors
/// Returns the service's refusal, or fails if it can't be reached.
pub async fn cancel(arguments: CancelArguments) -> Outcome {
    let service = ServiceClient::open(&arguments.service)?;
    let path = format!("/v1/requests/{}", arguments.id);
    let request: api::Request = service.get(&path).await?;
    service.tell(Method::DELETE, &path).await?;
    let what = match &request.stage_in {
        Some(stage_in) if stage_in.goes_out => {
            "its source stays, and what is there of it already too"
        }
        Some(_) => "what was written of it is removed",
        None => "its source stays",
    };
    output::line(&format!("{} cancelled: {what}", arguments.id));
    Ok(ExitCode::SUCCESS)
}
