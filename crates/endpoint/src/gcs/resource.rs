//! Resources: the store's descriptions of objects, and the metadata it keeps.
//!
//! Modification times are written in the form that both rclone and gsutil read, permission bits as
//! rclone does; the forms of both tools are read.

use serde::{Deserialize, Deserializer, de::IgnoredAny};
use serde_json::{Map, Value, json};

use crate::{
    FileTime,
    checksum::Crc32c,
    dates::{parse_rfc3339, show_rfc3339},
    endpoint::{Entry, FileSpec, Kind},
    objects::{content_type, listed_size, parse_mode, show_mode},
    s3::listing::{ListedObject, ListedPage},
};

const MTIME: &str = "mtime";
const MTIME_OF_GSUTIL: &str = "goog-reserved-file-mtime";
const MODE: &str = "mode";

/// Fields requested for each object.
pub(super) const FIELDS: &str = "name,size,generation,crc32c,md5Hash,timeCreated,metadata";

/// Object as the store describes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Resource {
    pub name: String,
    #[serde(deserialize_with = "number")]
    pub size: u64,
    /// Generation, which differs for each version of an object.
    pub generation: Box<str>,
    #[serde(default, deserialize_with = "checksum")]
    pub crc32c: Option<Crc32c>,
    /// MD5 in base64, of an object that was not composed.
    pub md5_hash: Option<String>,
    time_created: Option<String>,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Metadata {
    mtime: Option<String>,
    #[serde(rename = "goog-reserved-file-mtime")]
    mtime_of_gsutil: Option<String>,
    mode: Option<String>,
    #[serde(rename = "goog-reserved-posix-mode")]
    mode_of_gsutil: Option<String>,
}

/// Result of one request for keys.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Page {
    pub items: Vec<Resource>,
    pub prefixes: Vec<String>,
    pub next_page_token: Option<String>,
    /// Field that no page has.
    pub error: Option<IgnoredAny>,
}

/// Progress of a copy on the server.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rewrite {
    pub done: bool,
    pub rewrite_token: Option<String>,
    pub resource: Option<Resource>,
}

impl Resource {
    fn stored(&self) -> Option<FileTime> {
        parse_rfc3339(self.time_created.as_deref()?)
    }

    /// Returns the file's own time, or the time at which the store received it.
    fn mtime(&self) -> Option<FileTime> {
        let metadata = &self.metadata;
        let of_rclone = || parse_rfc3339(metadata.mtime.as_deref()?);
        let of_gsutil = || metadata.mtime_of_gsutil.as_deref()?.parse().ok();
        of_rclone().or_else(of_gsutil).or_else(|| self.stored())
    }

    fn mode(&self) -> Option<u32> {
        let metadata = &self.metadata;
        let text = metadata.mode.as_deref();
        parse_mode(text.or(metadata.mode_of_gsutil.as_deref())?)
    }

    /// Returns its entry.
    pub(super) fn entry(&self, kind: Kind) -> Entry {
        Entry {
            name: Vec::new(),
            kind,
            size: self.size,
            mtime: self.mtime(),
            stored: None,
            mode: self.mode(),
            version: Some(self.generation.clone()),
        }
    }
}

impl From<Page> for ListedPage {
    fn from(page: Page) -> Self {
        let objects = page.items.into_iter().map(|item| ListedObject {
            size: item.size,
            stored: item.stored(),
            mtime: item.mtime(),
            mode: item.mode(),
            etag: Some(item.generation),
            key: item.name,
        });
        Self {
            objects: objects.collect(),
            prefixes: page.prefixes,
            next: page.next_page_token.filter(|token| !token.is_empty()),
        }
    }
}

/// Returns the metadata that an object keeps besides its bytes.
pub(super) fn kept_of(spec: &FileSpec, kind: Kind) -> Value {
    let mut metadata = Map::new();
    if let Some(mtime) = spec.mtime {
        metadata.insert(MTIME_OF_GSUTIL.to_owned(), json!(mtime.secs.to_string()));
        if let Some(text) = show_rfc3339(mtime) {
            metadata.insert(MTIME.to_owned(), json!(text));
        }
    }
    if let Some(mode) = spec.mode {
        metadata.insert(MODE.to_owned(), json!(show_mode(kind, mode)));
    }
    json!({ "contentType": content_type(kind), "metadata": metadata })
}

/// Parses a number written as text, since JavaScript's own numbers are too short.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    String::deserialize(deserializer).map(|text| listed_size(&text))
}

fn checksum<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Crc32c>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.and_then(|text| Crc32c::from_base64(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resource(metadata: &str) -> Resource {
        let text = format!(
            r#"{{"name":"a","size":"3","generation":"17","crc32c":"4waSgw==",
            "timeCreated":"2009-10-12T17:50:30.25Z","metadata":{metadata},"kind":"x"}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn times_and_modes_of_other_tools_are_read() {
        let time = |secs, nanos| Some(FileTime { secs, nanos });
        for (metadata, mtime, mode) in [
            ("{}", time(1_255_369_830, 250_000_000), None),
            (
                r#"{"mtime":"2009-10-12T19:50:31.5+02:00","goog-reserved-file-mtime":"7"}"#,
                time(1_255_369_831, 500_000_000),
                None,
            ),
            (
                r#"{"goog-reserved-file-mtime":"7","goog-reserved-posix-mode":"640"}"#,
                time(7, 0),
                Some(0o640),
            ),
            (
                r#"{"mtime":"never","mode":"100755","other":"x"}"#,
                time(1_255_369_830, 250_000_000),
                Some(0o755),
            ),
        ] {
            let entry = resource(metadata).entry(Kind::File);
            assert_eq!((entry.mtime, entry.mode), (mtime, mode), "{metadata}");
            assert_eq!((entry.size, entry.version.as_deref()), (3, Some("17")));
        }
        assert_eq!(resource("{}").crc32c, Crc32c::from_hex("e3069283"));
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let spec = FileSpec {
            size: 3,
            mtime: Some(FileTime {
                secs: 1_600_000_000,
                nanos: 123_456_789,
            }),
            mode: Some(0o640),
            origin: "test:kept".into(),
            version: None,
        };
        let kept = kept_of(&spec, Kind::File);
        let entry = resource(&kept["metadata"].to_string()).entry(Kind::File);
        assert_eq!((entry.mtime, entry.mode), (spec.mtime, spec.mode));
        assert_eq!(kept["metadata"][MTIME_OF_GSUTIL], "1600000000");
    }

    #[test]
    fn pages_are_read() {
        let text = r#"{"kind":"storage#objects","prefixes":["p/"],"nextPageToken":"t",
            "items":[{"name":"a b","size":"5","generation":"1"}]}"#;
        let page: Page = serde_json::from_str(text).unwrap();
        let page = ListedPage::from(page);
        assert_eq!(page.objects[0].key, "a b");
        assert_eq!(
            (&*page.prefixes, page.next.as_deref()),
            (&["p/".to_owned()][..], Some("t"))
        );
        for broken in [r#"{"items":[{"name":"a","generation":"1"}]}"#, "{"] {
            assert!(serde_json::from_str::<Page>(broken).is_err(), "{broken}");
        }
    }
}
