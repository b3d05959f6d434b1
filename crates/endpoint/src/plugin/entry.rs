//! Entries as a plug-in describes them.

use serde_json::Value;

use super::wire::decode_name;
use crate::{FileTime, Kind, endpoint::Entry};

/// Parses an entry. Names must be valid in a directory: those that would lead out of it are
/// refused. In a tree (`below`) they are paths of such names.
pub(super) fn read_entry(value: &Value, below: Option<Names>) -> Option<Entry> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let name = match (text("name"), below) {
        (_, None) => Vec::new(),
        (Some(name), Some(names)) => decode_name(name).filter(|name| names.allow(name))?,
        (None, Some(_)) => return None,
    };
    let kind = match text("kind")? {
        "file" => Kind::File,
        "directory" => Kind::Directory,
        "link" => Kind::Link,
        "special" => Kind::Special,
        _ => return None,
    };
    let size = match value.get("size") {
        None | Some(Value::Null) if kind != Kind::File => 0,
        size => size?.as_u64()?,
    };
    let time = |key: &str| match text(key) {
        Some(text) => read_time(text).map(Some),
        None => Some(None),
    };
    let (mtime, stored) = (time("mtime")?, time("stored")?);
    let mode = match text("mode") {
        Some(digits) => Some(u32::from_str_radix(digits, 8).ok()? & 0o7777),
        None => None,
    };
    Some(Entry {
        name,
        kind,
        size,
        mtime,
        stored,
        mode,
        version: text("version").map(Into::into),
    })
}

fn read_time(text: &str) -> Option<FileTime> {
    text.is_ascii().then(|| text.parse().ok())?
}

/// Names allowed in a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Names {
    /// Single names.
    Single,
    /// Relative paths.
    Paths,
}

impl Names {
    fn allow(self, name: &[u8]) -> bool {
        let is_plain = |name: &[u8]| {
            !matches!(name, b"" | b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
        };
        match self {
            Self::Single => is_plain(name),
            Self::Paths => name.split(|&byte| byte == b'/').all(is_plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn named(name: &str, names: Names) -> Option<Vec<u8>> {
        let entry = json!({"name": name, "kind": "file", "size": 1});
        read_entry(&entry, Some(names)).map(|entry| entry.name)
    }

    #[test]
    fn names_that_lead_out_of_a_directory_are_refused() {
        for name in ["", ".", "..", "a/b", "../a", "%2e%2e", "a%2Fb", "a%00", "%"] {
            assert_eq!(named(name, Names::Single), None, "{name}");
        }
        for name in ["", "/a", "a//b", "a/../b", "..", "a/", "a/%2e%2e/%2e%2e/b"] {
            assert_eq!(named(name, Names::Paths), None, "{name}");
        }
        assert_eq!(named("...", Names::Single).unwrap(), b"...");
        assert_eq!(named("a/caf%E9", Names::Paths).unwrap(), b"a/caf\xe9");
    }

    #[test]
    fn entries_are_read_or_refused() {
        let whole =
            json!({"kind": "file", "size": 7, "mtime": "-1.5", "mode": "0640", "version": "v"});
        let entry = read_entry(&whole, None).unwrap();
        assert_eq!((entry.size, entry.mode), (7, Some(0o640)));
        let mtime = FileTime {
            secs: -2,
            nanos: 500_000_000,
        };
        assert_eq!(entry.mtime, Some(mtime));
        for bad in [
            json!({"size": 7}),
            json!({"kind": "file"}),
            json!({"kind": "file", "size": -1}),
            json!({"kind": "door", "size": 1}),
            json!({"kind": "file", "size": 1, "mtime": "noon"}),
            json!({"kind": "file", "size": 1, "mtime": "1.é"}),
            json!({"kind": "file", "size": 1, "mode": "rw"}),
            json!(7),
        ] {
            assert!(read_entry(&bad, None).is_none(), "{bad}");
        }
    }
}
