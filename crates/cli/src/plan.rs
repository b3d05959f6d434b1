//! `posthaste plan`: forecasts a stage-out without submitting it.

use std::process::ExitCode;

use clap::Args;
use posthaste_api as api;
use posthaste_types::Bytes;

use crate::{
    answer,
    client::{ServiceArguments, ServiceClient},
    failure::{Failure, Outcome},
    moment,
    offload::WishArguments,
    output, stage_in,
};

/// Says what would become of a stage-out, and changes nothing
///
/// When it would be done (as likely as not, and nine times in ten), over which depots, how long the
/// data stays on scratch and what it costs; or the earliest deadline that can be met and what
/// would make yours possible. Exit code 11 when the deadline can't be met.
///
/// Example:
///   posthaste plan /scratch/run7 --to home --deadline 2h --via a,b,c,d --code 2+1
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct PlanArguments {
    #[command(flatten)]
    wish: WishArguments,
    /// Print the request as it would be, as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Runs the command.
///
/// # Errors
/// Returns [`Exit::Refused`](crate::failure::Exit::Refused) if the deadline can't be met, and the
/// service's refusal otherwise.
pub async fn run(arguments: PlanArguments) -> Outcome {
    let service = ServiceClient::open(&arguments.service)?;
    arguments.wish.refuse_slips(&service).await?;
    let new = arguments.wish.request(None)?;
    let request: api::Request = service.post("/v1/requests?dry_run=true", &new).await?;
    if arguments.json {
        output::json(&request);
    }
    if request.state == api::RequestState::Refused {
        if !arguments.json {
            let offers =
                answer::warnings(&request) + &answer::offers(&request, arguments.wish.via());
            if !offers.is_empty() {
                output::line(offers.trim_end());
            }
        }
        let doing = format!("{} can't be in time", request.source);
        return Err(Failure::of_request(&request, &doing));
    }
    if !arguments.json {
        let text = if request.stage_in.is_some() {
            stage_in::describe(&request, true)
        } else {
            describe(&request) + &arguments.wish.unsurvived(&request) + &answer::warnings(&request)
        };
        output::line(text.trim_end());
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(request: &api::Request) -> String {
    let verdict = if request.at_risk {
        "would be taken, its deadline in danger"
    } else {
        "would be safe in time"
    };
    let mut text = format!(
        "{} {verdict}: {} in {} as {}, by {}\n",
        request.source,
        Bytes::new(request.bytes),
        output::counted(request.files, "file"),
        request.code,
        moment::time_of_day(&request.deadline),
    );
    text += &answer::forecast(request);
    let names = |active: bool| -> Vec<&str> {
        let shares = request.shares.iter().filter(|share| share.active == active);
        shares.map(|share| share.depot.as_str()).collect()
    };
    text += &answer::row("depots", &names(true).join(", "));
    if !names(false).is_empty() {
        text += &answer::row("spare", &names(false).join(", "));
    }
    text
}
