//! Values that clients give in a job, in their several notations.

use std::time::Duration;

use posthaste_types::Timestamp;
use serde_json::{Map, Value, json};

use super::{METADATA_BYTES_MAX, Pair, Refused};

/// Returns whether an option is on: clients write it as a boolean, a number or a word.
pub(super) fn flag(params: &Map<String, Value>, key: &str) -> bool {
    match params.get(key) {
        Some(Value::Bool(is_on)) => *is_on,
        Some(Value::Number(number)) => number.as_f64().is_some_and(|number| number != 0.0),
        Some(Value::String(word)) => word.starts_with(['y', 'Y']),
        _ => false,
    }
}

/// Returns a whole number, which clients also write as text.
pub(super) fn number(params: &Map<String, Value>, key: &str) -> Result<Option<i64>, Refused> {
    let read = match params.get(key) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(Value::Number(number)) => number.as_i64().or_else(|| {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "what does not fit is cut to what does"
            )]
            number.as_f64().map(|number| number as i64)
        }),
        Some(Value::Bool(is_on)) => Some((*is_on).into()),
        Some(_) => None,
    };
    let wrong = || format!("Invalid value within the request: {key} is no whole number");
    read.map(Some).ok_or_else(wrong)
}

/// Returns how long something may wait: none if the value is negative. A number is in hours, other
/// values have a unit; anything else is no limit.
pub(super) fn lasts(given: Option<&Value>) -> Option<Option<Duration>> {
    let (count, unit_s) = match given? {
        Value::Number(number) => (number.as_i64()?, 3600),
        Value::String(text) => {
            let unit = text.chars().last()?;
            let unit_s = match unit.to_ascii_lowercase() {
                's' => 1,
                'm' => 60,
                'h' => 3600,
                'd' => 86_400,
                _ => return None,
            };
            (text[..text.len() - 1].parse::<i64>().ok()?, unit_s)
        }
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    if count == 0 {
        return None;
    }
    let count = u64::try_from(count).ok();
    // Ten years count as unlimited.
    let most = 10 * 366 * 86_400;
    Some(count.map(|count| Duration::from_secs(count.saturating_mul(unit_s).min(most))))
}

pub(super) fn deadline(given: &Value, now: Timestamp) -> Result<Timestamp, Refused> {
    let text = given.as_str().unwrap_or_default();
    let at = crate::render::parse_moment("job_metadata.deadline", text);
    let at = at.map_err(|error| format!("Invalid value within the request: {error}"))?;
    if at <= now {
        return Err(
            "Invalid value within the request: the deadline in job_metadata has passed".into(),
        );
    }
    Ok(at)
}

/// Returns the metadata of a job or a file: FTS makes an object of a word.
pub(super) fn metadata(given: Option<&Value>) -> Result<Option<Map<String, Value>>, Refused> {
    let object = match given {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Object(object)) => object.clone(),
        Some(Value::String(label)) => Map::from_iter([("label".into(), json!(label))]),
        Some(_) => return Err("Metadata neither JSON nor String".into()),
    };
    let bytes = serde_json::to_vec(&object).map_or(usize::MAX, |bytes| bytes.len());
    if bytes > METADATA_BYTES_MAX {
        return Err(format!(
            "Job Submission Refused, metadata exceeds size limit of {METADATA_BYTES_MAX}"
        ));
    }
    Ok(Some(object))
}

/// Returns a job's metadata, which is never missing: clients look into it.
pub(super) fn job_metadata(given: Option<&Value>) -> Result<Map<String, Value>, Refused> {
    let mut object = metadata(given)?.unwrap_or_default();
    object.insert("auth_method".into(), json!("oauth2"));
    Ok(object)
}

pub(super) fn verify(given: Option<&Value>, last: Option<&Pair>) -> Result<char, Refused> {
    let has_value = last.is_some_and(|pair| matches!(pair.expected(), Ok(Some(_))));
    let letter = match given {
        Some(Value::Bool(true)) => 'b',
        Some(Value::String(word)) => word
            .chars()
            .next()
            .map_or('n', |first| first.to_ascii_lowercase()),
        _ if has_value => 't',
        _ => 'n',
    };
    if ['n', 's', 't', 'b'].contains(&letter) {
        return Ok(letter);
    }
    Err("Invalid value within the request: verify_checksum is source, target, both or none".into())
}

pub(super) fn sid(params: &Map<String, Value>) -> Result<Option<String>, Refused> {
    match (params.get("id_generator"), params.get("sid")) {
        (Some(Value::String(how)), Some(Value::String(sid)))
            if how == "deterministic" && !sid.is_empty() && sid.len() <= METADATA_BYTES_MAX =>
        {
            Ok(Some(sid.clone()))
        }
        (Some(Value::String(how)), _) if how == "deterministic" => {
            Err("Need sid for deterministic job id generation".into())
        }
        _ => Ok(None),
    }
}
