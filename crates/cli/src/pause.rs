//! `posthaste pause` and `resume`: pauses requests and resumes them.

use std::process::ExitCode;

use clap::Args;
use posthaste_api as api;

use crate::{
    client::{ServiceArguments, ServiceClient},
    failure::{Failure, Outcome},
    moment, output,
};

/// Lets requests wait: nothing of them is sent or fetched until they are resumed
///
/// What was stored stays where it is. Deadlines and purges stay too: it is said how long each may wait. One that is paused
/// already stays as it is.
///
/// Examples:
///   posthaste pause r7
///   posthaste pause r7 r8 r9 --json
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct PauseArguments {
    #[command(flatten)]
    which: WhichArguments,
}

/// Lets paused requests go on: everything about them is planned anew
///
/// Examples:
///   posthaste resume r7
///   posthaste list --state paused
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct ResumeArguments {
    #[command(flatten)]
    which: WhichArguments,
}

#[derive(Debug, Args)]
struct WhichArguments {
    /// The requests' ids, like r7
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
    /// Print the requests as a JSON list
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Runs `posthaste pause`.
///
/// # Errors
/// Returns the service's refusal of any of them, or fails if it can't be reached.
pub async fn pause(arguments: PauseArguments) -> Outcome {
    each(arguments.which, "pause", paused).await
}

/// Runs `posthaste resume`.
///
/// # Errors
/// Fails as [`pause`] does.
pub async fn resume(arguments: ResumeArguments) -> Outcome {
    each(arguments.which, "resume", resumed).await
}

/// Asks for one after the other; a refusal does not stop the rest.
async fn each(which: WhichArguments, verb: &str, say: fn(&api::Request) -> String) -> Outcome {
    let service = ServiceClient::open(&which.service)?;
    let mut done: Vec<api::Request> = Vec::new();
    let mut refused: Option<Failure> = None;
    for id in &which.ids {
        let path = format!("/v1/requests/{id}/{verb}");
        match service.post(&path, &serde_json::Map::new()).await {
            Ok(request) => done.push(request),
            Err(failure) => {
                if let Some(before) = refused.replace(failure) {
                    output::complain(&before);
                }
            }
        }
        if let Some(request) = done.last().filter(|last| last.id == *id && !which.json) {
            output::line(&say(request));
        }
    }
    if which.json {
        output::json(&done);
    }
    refused.map_or(Ok(ExitCode::SUCCESS), Err)
}

fn paused(request: &api::Request) -> String {
    let id = &request.id;
    let by = request.paused.as_ref().map_or("nobody", |pause| &pause.by);
    let purge = request.purge_at.as_deref().map(|at| {
        let left = moment::seconds_until(at).unwrap_or(0.0);
        let (at, left) = (moment::time_of_day(at), moment::show_seconds(left));
        format!("; its source is purged {at} (in {left})")
    });
    let purge = purge.unwrap_or_default();
    if request.safe_after_s.is_some() {
        return format!("{id} paused by {by}: it is safe, and its source stays{purge}");
    }
    let deadline = moment::time_of_day(&request.deadline);
    let left = match request.slack_s.filter(|slack| *slack > 0.0) {
        Some(slack) => format!("it may wait {} at most", moment::show_seconds(slack)),
        None => "it would be late if it went on now".to_owned(),
    };
    format!("{id} paused by {by}: its deadline {deadline} stays, {left}{purge}")
}

fn resumed(request: &api::Request) -> String {
    let id = &request.id;
    let deadline = moment::time_of_day(&request.deadline);
    match (&request.finish, request.safe_after_s) {
        (Some(finish), None) => {
            let finish = moment::time_of_day(&finish.p90);
            format!("{id} goes on: p90 finish {finish}, deadline {deadline}")
        }
        (None, None) => format!("{id} goes on: no finish is in sight, deadline {deadline}"),
        (_, Some(_)) => format!("{id} goes on"),
    }
}
