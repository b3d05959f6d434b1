//! `posthaste whoami`: the service's view of the caller.

use std::process::ExitCode;

use clap::Args;
use posthaste_api as api;
use posthaste_types::Bytes;

use crate::{
    client::{ServiceArguments, ServiceClient},
    failure::Outcome,
    output,
};

/// Says who the service thinks that you are, what you may there, and until when
#[derive(Debug, Args)]
pub struct WhoamiArguments {
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
}

/// Runs the command.
///
/// # Errors
/// Returns the service's refusal, or fails if it can't be reached.
pub async fn run(arguments: WhoamiArguments) -> Outcome {
    let service = ServiceClient::open(&arguments.service)?;
    let who: api::Whoami = service.get("/v1/whoami").await?;
    if arguments.json {
        output::json(&who);
    } else {
        show(&who);
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints it for people.
pub fn show(who: &api::Whoami) {
    let user = match (&who.user, &who.subject, &who.token) {
        (Some(user), Some(subject), _) => format!("{user} (subject {subject})"),
        (Some(user), None, Some(token)) => format!("{user} (token {token})"),
        (None, _, Some(token)) => format!("nobody in particular (token {token})"),
        (Some(user), None, None) => user.clone(),
        (None, _, None) => "the service's own user".to_owned(),
    };
    let several = |names: &[String]| match names {
        [] => "-".to_owned(),
        names => names.join(" "),
    };
    let or_none = |name: &Option<String>| name.clone().unwrap_or_else(|| "-".to_owned());
    for (what, said) in [
        ("user", user),
        ("scope", who.scope.word().to_owned()),
        ("project", or_none(&who.project)),
        ("below", several(&who.below)),
        ("profiles", several(&who.profiles)),
        (
            "until",
            who.expires.clone().unwrap_or_else(|| "-".to_owned()),
        ),
    ] {
        output::line(&format!("{what:<9} {said}"));
    }
    if let Some(quota) = &who.quota {
        let of = |most: Option<String>| most.map_or(String::new(), |most| format!(" of {most}"));
        let most = quota.bytes_max.map(|most| Bytes::new(most).to_string());
        output::line(&format!(
            "open      {}{} requests, {}{}",
            quota.requests,
            of(quota.requests_max.map(|most| most.to_string())),
            Bytes::new(quota.bytes),
            of(most)
        ));
    }
}
