//! Transfers of a request's data, and the progress of each.

use std::process::ExitCode;

use posthaste_api as api;
use posthaste_types::{ByteRate, Bytes};

use super::format::{self, Fields};
use crate::{client::ServiceClient, failure::Outcome, moment, output};

/// Shows the transfers: as a table, as JSON, or in the user's format.
///
/// # Errors
/// Returns the service's refusal, or fails if it can't be reached or the format is invalid.
pub(super) async fn show(
    service: &ServiceClient,
    id: &str,
    format: Option<&str>,
    json: bool,
) -> Outcome {
    let format = format.map(format::read::<api::Transfer>).transpose()?;
    let path = format!("/v1/requests/{id}/transfers");
    let transfers: Vec<api::Transfer> = service.get(&path).await?;
    match format {
        Some(format) => {
            for transfer in &transfers {
                output::line(&format.show(transfer));
            }
        }
        None if json => output::json(&transfers),
        None if transfers.is_empty() => {
            output::line(&format!("{id}: nothing of it is moved, or was"));
        }
        None => print(&transfers),
    }
    Ok(ExitCode::SUCCESS)
}

fn print(transfers: &[api::Transfer]) {
    let heading = [
        "KIND",
        "FROM",
        "TO",
        "STATE",
        "DONE",
        "LEFT",
        "RATE",
        "DONE BY",
        "AT LATEST",
        "",
    ];
    let mut rows = vec![heading.map(str::to_owned).to_vec()];
    let dash = || "-".to_owned();
    let at =
        |moment: Option<String>| moment.map_or_else(dash, |moment| moment::time_of_day(&moment));
    rows.extend(transfers.iter().map(|transfer| {
        vec![
            transfer.kind.to_string(),
            output::one_line(&transfer.from),
            output::one_line(&transfer.to),
            transfer.state.name().to_owned(),
            Bytes::new(transfer.done_bytes).to_string(),
            Bytes::new(transfer.left_bytes).to_string(),
            transfer
                .rate_bytes_per_s
                .map_or_else(dash, |rate| ByteRate::new(rate).to_string()),
            at(transfer.value("eta")),
            at(transfer.value("eta_p90")),
            transfer.reason.clone().unwrap_or_default(),
        ]
    }));
    output::table(&rows);
}

impl Fields for api::Transfer {
    const NAMES: &'static [&'static str] = &[
        "kind",
        "from",
        "to",
        "state",
        "reason",
        "done",
        "left",
        "percent",
        "in_flight",
        "rate",
        "eta",
        "eta_p90",
    ];

    fn value(&self, name: &str) -> Option<String> {
        let finish = self.finish.as_ref();
        match name {
            "kind" => Some(self.kind.to_string()),
            "from" => Some(self.from.clone()),
            "to" => Some(self.to.clone()),
            "state" => Some(self.state.name().to_owned()),
            "reason" => self.reason.clone(),
            "done" => Some(self.done_bytes.to_string()),
            "left" => Some(self.left_bytes.to_string()),
            "percent" => {
                let all = u128::from(self.done_bytes) + u128::from(self.left_bytes);
                let percent = (u128::from(self.done_bytes) * 100).checked_div(all);
                percent.map(|percent| percent.to_string())
            }
            "in_flight" => Some(self.in_flight.to_string()),
            "rate" => self.rate_bytes_per_s.map(|rate| rate.to_string()),
            "eta" => finish.map(|finish| finish.p50.clone()),
            "eta_p90" => finish.map(|finish| finish.p90.clone()),
            _ => None,
        }
    }
}
