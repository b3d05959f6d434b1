//! Progress of each file of a request.

use std::process::ExitCode;

use posthaste_api as api;
use posthaste_types::Bytes;

use crate::{
    client::ServiceClient,
    failure::{Failure, Outcome},
    output,
};

/// Files fetched per page.
const PAGE: usize = 10_000;

/// Shows all files, page by page.
///
/// # Errors
/// Returns the service's refusal, or fails if it can't be reached.
pub(super) async fn show(service: &ServiceClient, id: &str, json: bool) -> Outcome {
    let mut next = Some(0);
    while let Some(from) = next {
        let path = format!("/v1/requests/{id}/files?from={from}&limit={PAGE}");
        let page: api::FilePage = service.get(&path).await?;
        for file in &page.files {
            output::line(&line(file, json)?);
        }
        next = page.next;
    }
    Ok(ExitCode::SUCCESS)
}

fn line(file: &api::FileProgress, json: bool) -> Result<String, Failure> {
    if json {
        return Ok(serde_json::to_string(file).map_err(anyhow::Error::from)?);
    }
    let state = match file.state {
        api::FileState::Waiting => "waiting",
        api::FileState::Moving => "moving",
        api::FileState::Done => "done",
    };
    let percent = (u128::from(file.done) * 100).checked_div(u128::from(file.size));
    let percent = percent.map_or_else(String::new, |percent| format!("{percent} %"));
    let size = Bytes::new(file.size).to_string();
    // A name may have anything in it.
    let path = output::one_line(&file.path);
    Ok(format!("{state:<7} {percent:>5} {size:>10}  {path}"))
}
