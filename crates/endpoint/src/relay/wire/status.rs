//! Status that a relay reports.

use serde::{Deserialize, Deserializer, Serialize};

/// Body of `/v1/status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusBody {
    /// The relay's own name, for people.
    pub name: String,
    /// Release that it runs.
    pub version: String,
    /// Bytes it lends in all.
    pub capacity_bytes: u64,
    /// Bytes stored.
    pub used_bytes: u64,
    /// Bytes neither stored, nor promised to uploads in progress, nor reserved.
    pub free_bytes: u64,
    /// Bytes reserved now for datasets that have not filled them.
    #[serde(default)]
    pub reserved_bytes: u64,
    /// Rate at which it accepts bodies, all clients together.
    pub rate_limit_bytes_per_s: Option<u64>,
    /// Bytes of bodies received since it started, including uploads that were not kept.
    #[serde(default)]
    pub received_bytes: u64,
    /// Connections that it serves now.
    #[serde(default)]
    pub connections: u32,
    /// Features that not every relay has.
    #[serde(default)]
    pub features: Vec<String>,
    /// Set if it will be switched off: `keep` if its data stays until it expires, `move` if its
    /// data is to go to others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draining: Option<String>,
    /// Hours in which it is lent, by its own clock. Absent if always.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "read_hours"
    )]
    pub hours: Option<HoursBody>,
    /// Load average of its machine's last minute over its cores, in thousandths. Absent if unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_permille: Option<u32>,
    /// Store in which it keeps everything, as [`store_name`] names it. Relays with the same name
    /// share one bucket or container, and so one fate. Absent if it keeps data itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<String>,
    /// Word that distinguishes this process from earlier ones. Absent if not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}

/// Digits of a store's name.
const STORE_DIGITS: usize = 16;

/// Returns the name of a bucket or container at a host: the same for every user and every prefix.
#[must_use]
pub fn store_name(host: &str, bucket: &str) -> String {
    // Some stores have the bucket in the host name.
    let host = host.to_ascii_lowercase();
    let host = host.strip_prefix(&format!("{bucket}.")).unwrap_or(&host);
    let digest = blake3::hash(format!("{host}/{bucket}").as_bytes());
    digest.to_hex().chars().take(STORE_DIGITS).collect()
}

/// Returns whether a text is the name of a store, as [`store_name`] makes them.
pub(crate) fn is_store_name(text: &str) -> bool {
    text.len() == STORE_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Hours in which a relay is lent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoursBody {
    /// Hours as its operator wrote them: `20-06`, `Mon-Fri 20-06, Sat-Sun 00-24`.
    pub open: String,
    /// Minutes that its clock is ahead of UTC now.
    pub ahead_of_utc_min: i32,
}

/// Reads the hours. A form of a later release becomes a text without hours, so that nothing else of
/// the status is lost.
fn read_hours<'de, D: Deserializer<'de>>(from: D) -> Result<Option<HoursBody>, D::Error> {
    let said: Option<serde_json::Value> = Option::deserialize(from)?;
    Ok(said.map(|said| {
        let unknown = said.to_string();
        serde_json::from_value(said).unwrap_or(HoursBody {
            open: unknown,
            ahead_of_utc_min: 0,
        })
    }))
}

/// Value of [`StatusBody::draining`]: data stays until it expires.
pub const DRAINS_KEEP: &str = "keep";
/// Value of [`StatusBody::draining`]: data is to go on to others.
pub const DRAINS_MOVE: &str = "move";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_has_one_name_however_it_is_addressed() {
        let name = store_name("s3.example.org:9000", "lent");
        assert!(is_store_name(&name), "{name}");
        assert_eq!(store_name("lent.S3.example.org:9000", "lent"), name);
        for (host, bucket) in [
            ("s3.example.org:9001", "lent"),
            ("s3.example.org:9000", "other"),
        ] {
            assert_ne!(store_name(host, bucket), name);
        }
        assert!(!is_store_name("aws,campus"));
    }

    #[test]
    fn hours_of_another_form_cost_nothing_else_of_a_status() {
        let status = |hours: &str| -> StatusBody {
            let text = format!(
                r#"{{"name": "n", "version": "v", "capacity_bytes": 1, "used_bytes": 0,
                "free_bytes": 1, "rate_limit_bytes_per_s": null{hours}}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let known = status(r#", "hours": {"open": "20-06", "ahead_of_utc_min": -60}"#);
        let hours = HoursBody {
            open: "20-06".into(),
            ahead_of_utc_min: -60,
        };
        assert_eq!(known.hours, Some(hours));
        for (later, open) in [
            (r#"["20-06"]"#, r#"["20-06"]"#),
            (r#""20-06""#, r#""20-06""#),
            (r#"{"open": 7}"#, r#"{"open":7}"#),
        ] {
            let hours = status(&format!(r#", "hours": {later}"#)).hours.unwrap();
            assert_eq!((hours.open.as_str(), hours.ahead_of_utc_min), (open, 0));
        }
        for none in ["", r#", "hours": null"#] {
            assert_eq!(status(none).hours, None);
        }
        let text = serde_json::to_string(&status("")).unwrap();
        assert!(!text.contains("hours"), "{text}");
    }
}
