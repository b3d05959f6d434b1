//! `qstat -f` as text.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use serde_json::{Map, Value};

use super::queue_of;
use crate::queue::Queue;

/// Reads [`QUEUE_TEXT`](super::QUEUE_TEXT) and [`HISTORY_TEXT`](super::HISTORY_TEXT); local times
/// are in `zone`. Invalid jobs are counted. An answer that is not from `qstat` has no jobs.
#[must_use]
pub fn queue_text(bytes: &[u8], zone: &TimeZone) -> Queue {
    let text = String::from_utf8_lossy(bytes);
    let mut jobs = BTreeMap::new();
    for block in text.split("Job Id: ").skip(1) {
        let (id, lines) = block.split_once('\n').unwrap_or((block, ""));
        // Long values continue in lines that begin with a tab.
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

/// Sets a field as the JSON has it: `Resource_List.ncpus` is `ncpus` of `Resource_List`. The first
/// value of a name counts, as later ones may be lines of another value.
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
