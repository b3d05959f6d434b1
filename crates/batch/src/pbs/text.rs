//! `qstat -f` as text.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use serde_json::{Map, Value};

use super::queue_of;
use crate::queue::Queue;

/// Reads [`QUEUE_TEXT`](super::QUEUE_TEXT) and [`HISTORY_TEXT`](super::HISTORY_TEXT); local times are of `zone`. Jobs that
/// make no sense are counted; what is no answer of `qstat` has no jobs.
#[must_use]
pub fn queue_text(bytes: &[u8], zone: &TimeZone) -> Queue {
    let text = String::from_utf8_lossy(bytes);
    let mut jobs = BTreeMap::new();
    for block in text.split("Job Id: ").skip(1) {
        let (id, lines) = block.split_once('\n').unwrap_or((block, ""));
        // Long values go on in lines that begin with a tab.
        let lines = lines.replace("\n\t", "");
        let mut fields = Map::new();
        for line in lines.lines() {
            if let Some((name, value)) = line.trim_start().split_once(" = ") {
                set(&mut fields, name, value);
            }
        }
        jobs.insert(id.trim().to_owned(), Value::Object(fields));
    }
    queue_of(&jobs, zone)
}

/// Sets a field as it stands in the JSON: `Resource_List.ncpus` is `ncpus` of `Resource_List`. The first of a name counts:
/// what follows may be lines of a value.
fn set(fields: &mut Map<String, Value>, name: &str, value: &str) {
    let value = Value::from(value);
    let Some((group, name)) = name.split_once('.') else {
        fields.entry(name).or_insert(value);
        return;
    };
    let group = fields.entry(group).or_insert_with(|| Map::new().into());
    if let Value::Object(group) = group {
        group.entry(name).or_insert(value);
    }
}
