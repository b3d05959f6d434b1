//! First messages of both sides: versions, limits, and the plug-in's abilities.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    Launch,
    check::Algorithm,
    wire::{Fault, LINE_BYTES_MAX, PAYLOAD_BYTES_MAX, encode_name},
};
use crate::Capabilities;

/// Version of the protocol spoken here.
pub(super) const VERSION: u64 = 1;

/// Bytes of one range that a plug-in may send ahead of their reader, and those sent ahead to it if
/// it states no limit: a pipe needs no more, and a few dozen streams cost a few dozen MiB.
pub(super) const WINDOW_BYTES: u64 = 1 << 20;

/// Most requests under way at once, whatever a plug-in offers.
pub(super) const REQUESTS_MAX: u64 = 64;

/// Largest file that a plug-in may request in one piece: it is whole in memory in transit.
const SMALL_BYTES_MAX: u64 = 64 << 20;

/// Smallest and largest segment: below, its request costs more than its bytes; above, a crash loses
/// too much.
const SEGMENT_BYTES_MIN: u64 = 64 << 10;
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// Segment size of large files if the plug-in states none.
const SEGMENT_BYTES: u64 = 16 << 20;

/// Most small files in flight in a lane on a plug-in's own advice.
const REQUESTS_AHEAD_MAX: u16 = 64;

/// Description that a plug-in gives of itself.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Greeting {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub version: String,
    /// Name of the server that copies among its own files.
    #[serde(default)]
    pub realm: Option<String>,
    /// Path of the address within the realm.
    #[serde(default)]
    pub root: String,
    #[serde(default)]
    pub capabilities: Abilities,
    #[serde(default)]
    pub limits: Limits,
}

/// Abilities of a plug-in; an ability that it does not state is absent.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Abilities {
    byte_names: bool,
    ascii_names: bool,
    lists: bool,
    pub lists_trees: bool,
    /// Marks of a listing stay good for another process.
    pub marks: bool,
    ranges: bool,
    writes: bool,
    removes: bool,
    segments_in_any_order: bool,
    resumes: bool,
    mtime_step_ns: Option<u32>,
    mtimes_listed: bool,
    modes: bool,
    links: bool,
    directory_attributes: bool,
    server_copy: bool,
    pub reads_unfinished: bool,
    checks: Vec<String>,
    segment_size_min: Option<u64>,
    segment_size: Option<u64>,
    file_bytes_max: Option<u64>,
    requests_ahead_max: Option<u16>,
}

/// Most that a plug-in accepts at once.
#[derive(Debug, Clone, Deserialize)]
#[serde(default)]
pub(super) struct Limits {
    pub requests_max: u64,
    pub window_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            requests_max: 1,
            window_bytes: WINDOW_BYTES,
        }
    }
}

impl Greeting {
    /// Parses a hello in the version spoken here.
    pub(super) fn read(hello: Value) -> Result<Self, Fault> {
        let greeting: Self = serde_json::from_value(hello)
            .map_err(|cause| Fault::new(format!("says a hello that makes no sense ({cause})")))?;
        if greeting.limits.requests_max == 0 || greeting.limits.window_bytes == 0 {
            return Err(Fault::new("takes no request"));
        }
        Ok(greeting)
    }

    /// Returns the sum it compares with the stored bytes, the cheapest first.
    pub(super) fn algorithm(&self) -> Option<Algorithm> {
        Algorithm::ALL
            .into_iter()
            .find(|known| self.capabilities.checks.iter().any(|it| it == known.name()))
    }

    /// Returns the bytes of each segment but the last.
    pub(super) fn segment_size(&self) -> u64 {
        let wanted = self.capabilities.segment_size.unwrap_or(SEGMENT_BYTES);
        wanted.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX)
    }

    /// Returns the capabilities that callers branch on.
    pub(super) fn capabilities(&self, scheme: &str) -> Capabilities {
        let can = &self.capabilities;
        let least = Capabilities::least(kept_scheme(scheme));
        Capabilities {
            byte_names: can.byte_names && !can.ascii_names,
            ascii_names: can.ascii_names,
            lists: can.lists,
            ranges: can.ranges,
            writes: can.writes,
            removes: can.removes,
            segments_in_any_order: can.segments_in_any_order,
            resumes: can.resumes && can.writes,
            mtime_step_ns: can.mtime_step_ns.filter(|&step_ns| step_ns > 0),
            mtimes_listed: can.mtimes_listed,
            modes: can.modes,
            links: can.links,
            directory_attributes: can.directory_attributes,
            server_copy: can.server_copy && self.realm.is_some(),
            segment_size_min: can
                .segment_size_min
                .unwrap_or(least.segment_size_min)
                .clamp(1, SMALL_BYTES_MAX),
            file_bytes_max: can.file_bytes_max,
            requests_ahead_max: can
                .requests_ahead_max
                .unwrap_or(least.requests_ahead_max)
                .clamp(1, REQUESTS_AHEAD_MAX),
            segments_held: false,
            ..least
        }
    }
}

/// Keeps a scheme for the life of the process. Only schemes with an installed plug-in occur, so
/// there are few.
fn kept_scheme(scheme: &str) -> &'static str {
    static KEPT: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = kept.get(scheme) {
        return known;
    }
    let known: &'static str = Box::leak(scheme.to_owned().into_boxed_str());
    kept.insert(known);
    known
}

/// Returns the first line for a plug-in. The profile travels here and nowhere else: others can see
/// arguments and the environment.
pub(super) fn hello(launch: &Launch, address: Option<&[u8]>) -> Value {
    let profile: Map<String, Value> = launch
        .profile
        .iter()
        .map(|(key, text)| (key.clone(), Value::from(text.as_str())))
        .collect();
    json!({
        "hello": {
            "protocols": [VERSION],
            "posthaste": env!("CARGO_PKG_VERSION"),
            "scheme": launch.scheme,
            "address": address.map(encode_name),
            "profile": profile,
            "settings": launch.settings,
            "limits": {
                "line_bytes_max": LINE_BYTES_MAX,
                "payload_bytes_max": PAYLOAD_BYTES_MAX,
                "window_bytes": WINDOW_BYTES,
                "requests_max": REQUESTS_MAX,
                "quiet_s_max": launch.patience.quiet.as_secs(),
            },
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(text: &str) -> Greeting {
        Greeting::read(serde_json::from_str(text).unwrap()).unwrap()
    }

    #[test]
    fn a_plugin_that_takes_nothing_is_none() {
        for text in [
            "7",
            r#"{"limits":{"requests_max":0}}"#,
            r#"{"limits":{"window_bytes":0}}"#,
            r#"{"limits":{"window_bytes":-1}}"#,
            r#"{"capabilities":["everything"]}"#,
        ] {
            let hello = serde_json::from_str(text).unwrap();
            assert!(Greeting::read(hello).is_err(), "{text}");
        }
    }

    #[test]
    fn what_is_not_said_can_not_be_done() {
        let least = greeting(r#"{"protocol":1}"#);
        let wanted = Capabilities {
            segments_held: false,
            ..Capabilities::least("tape")
        };
        assert_eq!(least.capabilities("tape"), wanted, "more than the least");
        assert_eq!(least.limits.requests_max, 1);
        assert_eq!(least.algorithm(), None);
    }

    #[test]
    fn figures_out_of_reason_are_brought_into_it() {
        let wild = greeting(
            r#"{"protocol":1,"capabilities":{"segment_size":1,"segment_size_min":0,"requests_ahead_max":60000,
            "server_copy":true,"resumes":true,"mtime_step_ns":0}}"#,
        );
        let can = wild.capabilities("wild");
        assert_eq!(wild.segment_size(), SEGMENT_BYTES_MIN);
        assert_eq!((can.segment_size_min, can.requests_ahead_max), (1, 64));
        assert!(!can.server_copy, "no realm, no copy");
        assert!(!can.resumes, "what can't write can't resume");
        assert_eq!(can.mtime_step_ns, None);
    }

    #[test]
    fn the_cheapest_sum_both_know_is_taken() {
        let md5 = greeting(r#"{"protocol":1,"capabilities":{"checks":["sha1","md5"]}}"#);
        assert_eq!(md5.algorithm(), Some(Algorithm::Md5));
        let both = greeting(r#"{"protocol":1,"capabilities":{"checks":["md5","crc64nvme"]}}"#);
        assert_eq!(both.algorithm(), Some(Algorithm::Crc64Nvme));
    }
}
