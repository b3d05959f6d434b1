//! Jobs and files in FTS's words: every property that its clients look for, also those without
//! meaning here.

use posthaste_journal::{FtsFile, FtsState};
use posthaste_types::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    office::{Seen, Standing, account, server_of},
    state::{JobState, Kind},
};
use crate::credentials::shown;

/// FTS's reason for a job that did not succeed.
const SOME_FAILED: &str =
    "One or more files failed. Please have a look at the details for more information";

/// Fields of FTS that files never have here: clients look for some of them.
const NOTHING: [&str; 17] = [
    "dest_surl_uuid",
    "staging_host",
    "recoverable",
    "staging_start",
    "staging_finished",
    "archive_start_time",
    "archive_finish_time",
    "internal_file_params",
    "pid",
    "staging_metadata",
    "archive_metadata",
    "bringonline_token",
    "log_file",
    "log_debug",
    "scitag",
    "src_token_id",
    "dst_token_id",
];

/// Returns a moment in UTC as FTS writes it: to the second, without a zone.
pub(super) fn moment(at: Timestamp) -> String {
    let shown = crate::render::moment(at);
    shown.split('.').next().unwrap_or(&shown).to_owned()
}

fn optional(at: Option<Timestamp>) -> Value {
    at.map_or(Value::Null, |at| moment(at).into())
}

/// Returns the owner of a job as a certificate would name it.
pub(super) fn name_of(owner: &str) -> String {
    let owner = if owner.is_empty() { "posthaste" } else { owner };
    format!("/CN={owner}")
}

/// Returns the owner's stand-in for FTS's id of delegated credentials.
pub(super) fn delegation_of(owner: &str) -> String {
    let hash = blake3::hash(name_of(owner).as_bytes());
    hash.to_hex().chars().take(16).collect()
}

/// Returns the properties of a job.
pub(super) fn job(standing: &Standing) -> Map<String, Value> {
    let Standing {
        job,
        asked,
        files,
        state,
    } = standing;
    let shown = json!({
        "job_id": job.id,
        "job_state": state.word(),
        "job_type": asked.kind.letter(),
        "source_se": server(files, asked.kind, |seen| &seen.pair.source, false),
        "dest_se": server(files, asked.kind, |seen| &seen.pair.destination, true),
        "cancel_job": job.is_cancelled,
        "submit_host": "posthaste",
        "user_dn": name_of(&job.owner),
        "cred_id": delegation_of(&job.owner),
        "vo_name": account(&job.project),
        "reason": reason(standing),
        "submit_time": moment(job.created),
        "priority": job.priority,
        "max_time_in_queue": asked.queue_until_s,
        "destination_spacetoken": null,
        "source_spacetoken": null,
        "internal_job_params": null,
        "dst_file_report": false,
        "overwrite_flag": asked.replaces.flag(),
        "job_finished": optional(job.ended),
        "copy_pin_lifetime": -1,
        "verify_checksum": asked.verify,
        "bring_online": -1,
        "archive_timeout": -1,
        "target_qos": null,
        "job_metadata": asked.metadata,
        "retry": asked.retries,
        "retry_delay": asked.retry_delay_min,
        "os_project_id": null,
    });
    object(shown)
}

/// Returns the server of all files if it is the same; of hops, the first one's or the last one's.
fn server(files: &[Seen], kind: Kind, of: fn(&Seen) -> &String, is_last: bool) -> Value {
    let end = if is_last { files.last() } else { files.first() };
    let Some(end) = end.map(|seen| server_of(of(seen))) else {
        return Value::Null;
    };
    let mut servers = files.iter().map(|seen| server_of(of(seen)));
    if kind == Kind::Hops || servers.all(|server| server == end) {
        return end.into();
    }
    // The path that succeeded, of several.
    let winner = files
        .iter()
        .find(|seen| kind == Kind::Replicas && seen.file.state == FtsState::Finished);
    winner.map_or(Value::Null, |seen| server_of(of(seen)).into())
}

fn reason(standing: &Standing) -> Value {
    match standing.state {
        JobState::Submitted | JobState::Active => Value::Null,
        JobState::Finished => "".into(),
        JobState::FinishedDirty | JobState::Failed => SOME_FAILED.into(),
        JobState::Cancelled => {
            let files = standing.files.iter().map(|seen| &seen.file);
            let mut cancelled = files.filter(|file| file.state == FtsState::Cancelled);
            cancelled
                .next()
                .map_or(Value::Null, |file| file.reason.clone().into())
        }
    }
}

/// Returns the properties of a file of a job.
pub(super) fn file(standing: &Standing, seen: &Seen) -> Map<String, Value> {
    let Seen { file, pair, .. } = seen;
    let took_s = match (file.begun, file.ended) {
        (Some(begun), Some(ended)) => Some(ended.since(begun).as_secs_f64()),
        (Some(_) | None, None) | (None, Some(_)) => None,
    };
    let shown = json!({
        "file_id": file.id,
        "file_index": file.place,
        "job_id": file.job,
        "hashed_id": file.id % 65_536,
        "vo_name": account(&standing.job.project),
        "source_se": server_of(&pair.source),
        "dest_se": server_of(&pair.destination),
        "source_surl": shown(&pair.source),
        "dest_surl": shown(&pair.destination),
        "priority": file.priority,
        "file_state": word(seen),
        "file_state_initial": "SUBMITTED",
        "transfer_host": file.begun.map(|_| "posthaste"),
        "reason": file_reason(file),
        "filesize": file.bytes,
        "user_filesize": pair.bytes,
        "checksum": pair.checksum,
        "start_time": optional(file.begun),
        "finish_time": optional(file.ended),
        "tx_duration": took_s,
        "throughput": throughput(file.bytes, took_s),
        "retry": file.attempts.saturating_sub(1),
        "file_metadata": pair.metadata.value(),
        "selection_strategy": pair.strategy,
        "activity": pair.activity,
        // Extension: the request with the full history.
        "posthaste_request": file.request.map(|request| request.to_string()),
    });
    let mut shown = object(shown);
    shown.extend(NOTHING.map(|name| (name.to_owned(), Value::Null)));
    shown
}

/// Returns the throughput in MiB/s.
fn throughput(bytes: Option<u64>, took_s: Option<f64>) -> Option<f64> {
    #[expect(
        clippy::cast_precision_loss,
        reason = "shown to people, to the thousandth"
    )]
    let mebibytes = bytes? as f64 / 1_048_576.0;
    let took_s = took_s.filter(|took_s| *took_s > 0.0)?;
    Some((mebibytes / took_s * 1e3).round() / 1e3)
}

fn file_reason(file: &FtsFile) -> Value {
    let is_good = file.state == FtsState::Finished;
    if file.reason.is_empty() && !is_good {
        return Value::Null;
    }
    file.reason.clone().into()
}

/// Returns FTS's word for the state of a file.
pub(super) fn word(seen: &Seen) -> &'static str {
    match seen.file.state {
        FtsState::NotUsed => "NOT_USED",
        FtsState::Given if seen.moves => "ACTIVE",
        FtsState::Waiting | FtsState::Given => "SUBMITTED",
        FtsState::Finished => "FINISHED",
        FtsState::Failed => "FAILED",
        FtsState::Cancelled => "CANCELED",
    }
}

/// Returns the earlier attempts at a file.
pub(super) fn tried(file: &FtsFile) -> Value {
    let mut tried: Vec<Value> = serde_json::from_str(&file.tried).unwrap_or_default();
    for attempt in &mut tried {
        if let Value::Object(attempt) = attempt {
            attempt.insert("file_id".into(), file.id.into());
            attempt.insert("transfer_host".into(), "posthaste".into());
            attempt.insert("log_file".into(), Value::Null);
        }
    }
    Value::Array(tried)
}

/// Returns the named properties only, if any are named; unknown names are ignored, as FTS does.
pub(super) fn pick(mut shown: Map<String, Value>, fields: Option<&str>) -> Map<String, Value> {
    if let Some(fields) = fields {
        let wanted: Vec<&str> = fields.split(',').collect();
        shown.retain(|name, _| wanted.contains(&name.as_str()));
    }
    shown
}

fn object(shown: Value) -> Map<String, Value> {
    match shown {
        Value::Object(object) => object,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}
