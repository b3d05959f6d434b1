//! What client and relay must agree on: paths, headers, limits and small bodies.

use posthaste_types::{ChunkIndex, Digest, FragmentIndex};
use serde::{Deserialize, Serialize};

use super::DatasetId;
use crate::ErrorKind;

mod orders;
mod pass;
mod space;
mod status;

pub use orders::{
    ForwardBody, ForwardEnd, GatherBody, GatherEnd, GatherSender, MeasureBody, MeasureEnd,
    PieceEnd, ScatterBody, ScatterPiece, ScatterTaker, SenderEnd,
};
pub use pass::{PassAnswer, PassBody};
pub use space::{SpaceBody, SpaceGrant, SpaceHeld};
pub(crate) use status::is_store_name;
pub use status::{DRAINS_KEEP, DRAINS_MOVE, HoursBody, StatusBody, store_name};

/// Largest fragment or manifest, in bytes: what one request may make a relay hold on disk unasked,
/// and a client in memory.
pub const OBJECT_BYTES_MAX: u64 = 256 << 20;

/// Largest probe, in bytes: what one request may make a relay's network carry for nothing.
pub const PROBE_BYTES_MAX: u64 = 256 << 20;

/// Entries in one page of an inventory: 2.4 MB, so that neither side needs much memory.
pub const INVENTORY_PAGE_MAX: usize = 65_536;

/// Bytes of one inventory entry: chunk (4, little-endian), fragment (1), digest (32).
pub const INVENTORY_ENTRY_BYTES: usize = 37;

/// BLAKE3 of the body, 64 hexadecimal digits.
pub const DIGEST_HEADER: &str = "posthaste-digest";
/// When the dataset may be removed, in seconds since the Unix epoch.
pub const EXPIRES_HEADER: &str = "posthaste-expires";
/// Where the next page of an inventory starts, `CHUNK.FRAGMENT`; absent on the last page.
pub const NEXT_HEADER: &str = "posthaste-next";

/// Among the features of a relay: it can send on what it holds.
pub const FORWARD: &str = "forward";
/// The same: it can send on what it still receives.
pub const FOLLOW: &str = "follow";
/// The same: it can gather fragments from others and rebuild a chunk.
pub const GATHER: &str = "gather";
/// The same: it can rebuild one fragment of a chunk from those it gathers.
pub const MEND: &str = "mend";
/// The same: it can code a chunk and send its fragments on.
pub const SCATTER: &str = "scatter";
/// The same: it can measure the path to another relay.
pub const MEASURE: &str = "measure";
/// The same: it reserves space for datasets.
pub const SPACE: &str = "space";
/// The same: it takes a fragment as it is from whoever has it.
pub const TAKE: &str = "take";
/// The same: it takes no bytes itself, but lets those who send and read through to a store.
pub const PASS: &str = "pass";

/// Longest order to code a chunk, in bytes: it names 63 relays at most.
pub const SCATTER_ORDER_BYTES_MAX: usize = 64 << 10;

/// Among the facts of an error: how much space would be granted.
pub(super) const MOST_BYTES: &str = "most_bytes";

/// Longest request for space, in bytes.
pub const SPACE_BODY_BYTES_MAX: usize = 4 << 10;

/// Longest time for which space is held before it is committed, in seconds: a hold keeps others out.
pub const SPACE_HOLD_S_MAX: u32 = 3600;

/// Longest time for which a relay keeps anything, in seconds: a token for one request must not fill it for ever.
pub const KEPT_S_MAX: u64 = 20 * 366 * 86_400;

/// Something a relay holds for a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    /// The manifest.
    Manifest,
    /// One fragment of one chunk.
    Fragment(ChunkIndex, FragmentIndex),
}

/// A request's target, once its path was understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// `/v1/status`
    Status,
    /// `/v1/probe`
    Probe,
    /// `/v1/measure`
    Measure,
    /// `/v1/register`, of a service
    Register,
    /// `/v1/heartbeat`, of a service
    Heartbeat,
    /// `/v1/spaces`
    Spaces,
    /// `/v1/datasets/ID`
    Dataset(DatasetId),
    /// `/v1/datasets/ID/space`
    Space(DatasetId),
    /// `/v1/datasets/ID/inventory`
    Inventory(DatasetId),
    /// `/v1/datasets/ID/manifest`, `/v1/datasets/ID/fragments/CHUNK/FRAGMENT`
    Object(DatasetId, Object),
    /// `/v1/datasets/ID/manifest/pass`, `/v1/datasets/ID/fragments/CHUNK/FRAGMENT/pass`
    Pass(DatasetId, Object),
    /// `/v1/datasets/ID/fragments/CHUNK/FRAGMENT/forward`
    Forward(DatasetId, Object),
    /// `/v1/datasets/ID/fragments/CHUNK/FRAGMENT/gather`
    Gather(DatasetId, Object),
    /// `/v1/datasets/ID/fragments/CHUNK/FRAGMENT/scatter`
    Scatter(DatasetId, Object),
}

impl Target {
    /// The path that names it.
    #[must_use]
    pub fn path(&self) -> String {
        match self {
            Self::Status => "/v1/status".into(),
            Self::Probe => "/v1/probe".into(),
            Self::Measure => "/v1/measure".into(),
            Self::Register => "/v1/register".into(),
            Self::Heartbeat => "/v1/heartbeat".into(),
            Self::Spaces => "/v1/spaces".into(),
            Self::Dataset(dataset) => format!("/v1/datasets/{dataset}"),
            Self::Space(dataset) => format!("/v1/datasets/{dataset}/space"),
            Self::Inventory(dataset) => format!("/v1/datasets/{dataset}/inventory"),
            Self::Object(dataset, Object::Manifest) => format!("/v1/datasets/{dataset}/manifest"),
            Self::Object(dataset, Object::Fragment(chunk, fragment)) => {
                let (chunk, fragment) = (chunk.get(), fragment.get());
                format!("/v1/datasets/{dataset}/fragments/{chunk}/{fragment}")
            }
            Self::Pass(dataset, object) => {
                format!("{}/pass", Self::Object(*dataset, *object).path())
            }
            Self::Forward(dataset, object) => {
                format!("{}/forward", Self::Object(*dataset, *object).path())
            }
            Self::Gather(dataset, object) => {
                format!("{}/gather", Self::Object(*dataset, *object).path())
            }
            Self::Scatter(dataset, object) => {
                format!("{}/scatter", Self::Object(*dataset, *object).path())
            }
        }
    }

    /// Understands a path; `None` when it names nothing.
    #[must_use]
    pub fn parse(path: &str) -> Option<Self> {
        let fields: Vec<&str> = path.strip_prefix("/v1/")?.split('/').collect();
        match fields[..] {
            ["status"] => return Some(Self::Status),
            ["probe"] => return Some(Self::Probe),
            ["measure"] => return Some(Self::Measure),
            ["register"] => return Some(Self::Register),
            ["heartbeat"] => return Some(Self::Heartbeat),
            ["spaces"] => return Some(Self::Spaces),
            _ => {}
        }
        let ["datasets", dataset, ref rest @ ..] = fields[..] else {
            return None;
        };
        let dataset: DatasetId = dataset.parse().ok()?;
        match *rest {
            [] => Some(Self::Dataset(dataset)),
            ["space"] => Some(Self::Space(dataset)),
            ["inventory"] => Some(Self::Inventory(dataset)),
            ["manifest"] => Some(Self::Object(dataset, Object::Manifest)),
            ["manifest", "pass"] => Some(Self::Pass(dataset, Object::Manifest)),
            ["fragments", chunk, fragment, "pass"] => {
                Some(Self::Pass(dataset, parse_fragment(chunk, fragment)?))
            }
            ["fragments", chunk, fragment] => {
                Some(Self::Object(dataset, parse_fragment(chunk, fragment)?))
            }
            ["fragments", chunk, fragment, "forward"] => {
                Some(Self::Forward(dataset, parse_fragment(chunk, fragment)?))
            }
            ["fragments", chunk, fragment, "gather"] => {
                Some(Self::Gather(dataset, parse_fragment(chunk, fragment)?))
            }
            ["fragments", chunk, fragment, "scatter"] => {
                Some(Self::Scatter(dataset, parse_fragment(chunk, fragment)?))
            }
            _ => None,
        }
    }
}

fn parse_fragment(chunk: &str, fragment: &str) -> Option<Object> {
    let chunk = ChunkIndex::new(decimal(chunk)?.try_into().ok()?);
    let fragment = FragmentIndex::new(decimal(fragment)?.try_into().ok()?);
    Some(Object::Fragment(chunk, fragment))
}

/// A number in its one canonical form, so that one object has one path.
fn decimal(text: &str) -> Option<u64> {
    let canonical = text == "0" || !text.starts_with('0');
    let digits = text.bytes().all(|digit| digit.is_ascii_digit());
    (canonical && digits).then(|| text.parse().ok()).flatten()
}

/// Reads `CHUNK.FRAGMENT`, an inventory position.
#[must_use]
pub fn parse_position(text: &str) -> Option<(ChunkIndex, FragmentIndex)> {
    let (chunk, fragment) = text.split_once('.')?;
    Some((
        ChunkIndex::new(decimal(chunk)?.try_into().ok()?),
        FragmentIndex::new(decimal(fragment)?.try_into().ok()?),
    ))
}

/// Reads the query of an inventory: where it starts, at the beginning where there is none. `None` when
/// it is no such query.
#[must_use]
pub fn parse_from(query: Option<&str>) -> Option<(ChunkIndex, FragmentIndex)> {
    match query {
        None => Some((ChunkIndex::new(0), FragmentIndex::new(0))),
        Some(query) => parse_position(query.strip_prefix("from=")?),
    }
}

/// Reads the query of a removal: the digest of what stays. `None` when it is no such query.
#[must_use]
pub fn parse_unless(query: Option<&str>) -> Option<Digest> {
    query?.strip_prefix("unless=")?.parse().ok()
}

/// One entry of an inventory.
pub type Held = (ChunkIndex, FragmentIndex, Digest);

/// Appends an inventory entry.
pub fn write_held(out: &mut Vec<u8>, (chunk, fragment, digest): &Held) {
    out.extend_from_slice(&chunk.get().to_le_bytes());
    out.push(fragment.get());
    out.extend_from_slice(digest.as_bytes());
}

/// Reads a page of an inventory; `None` when it is none.
#[must_use]
pub fn read_held(page: &[u8]) -> Option<Vec<Held>> {
    if !page.len().is_multiple_of(INVENTORY_ENTRY_BYTES) {
        return None;
    }
    page.chunks_exact(INVENTORY_ENTRY_BYTES)
        .map(|entry| {
            let chunk = u32::from_le_bytes(entry[..4].try_into().ok()?);
            let digest = Digest::new(entry[5..].try_into().ok()?);
            Some((ChunkIndex::new(chunk), FragmentIndex::new(entry[4]), digest))
        })
        .collect()
}

/// What a relay saw of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeBody {
    /// Bytes that arrived.
    pub received_bytes: u64,
    /// Microseconds since the first byte and bytes that had arrived by then, in order.
    pub marks: Vec<(u64, u64)>,
}

/// The body of every refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// The kind, as a code of `docs/errors/`.
    pub error: String,
    /// What went wrong.
    pub message: String,
    /// What to try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Of space that was refused: what would be granted over that span.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_bytes: Option<u64>,
}

/// The HTTP status a relay answers each kind of error with.
#[must_use]
pub fn status_of(kind: ErrorKind) -> u16 {
    match kind {
        ErrorKind::Invalid => 400,
        ErrorKind::Unauthenticated => 401,
        ErrorKind::PermissionDenied => 403,
        ErrorKind::NotFound => 404,
        ErrorKind::Unsupported => 405,
        ErrorKind::TimedOut => 408,
        ErrorKind::Conflict | ErrorKind::Changed => 409,
        ErrorKind::Corrupt => 422,
        ErrorKind::Busy | ErrorKind::Unreachable | ErrorKind::Cancelled => 503,
        ErrorKind::Full => 507,
        ErrorKind::Other => 500,
    }
}

/// The kind of error an HTTP status means.
#[must_use]
pub fn kind_of(status: u16) -> ErrorKind {
    match status {
        401 => ErrorKind::Unauthenticated,
        403 => ErrorKind::PermissionDenied,
        404 => ErrorKind::NotFound,
        405 | 501 => ErrorKind::Unsupported,
        408 | 504 => ErrorKind::TimedOut,
        409 => ErrorKind::Conflict,
        422 => ErrorKind::Corrupt,
        429 | 503 => ErrorKind::Busy,
        507 => ErrorKind::Full,
        400..=499 => ErrorKind::Invalid,
        _ => ErrorKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_understood_as_they_are_made_and_nothing_else_is() {
        let dataset = DatasetId::new([0xab; 16]);
        let fragment = Object::Fragment(ChunkIndex::new(7), FragmentIndex::WHOLE);
        for target in [
            Target::Status,
            Target::Probe,
            Target::Measure,
            Target::Register,
            Target::Heartbeat,
            Target::Spaces,
            Target::Dataset(dataset),
            Target::Space(dataset),
            Target::Inventory(dataset),
            Target::Object(dataset, Object::Manifest),
            Target::Object(dataset, fragment),
            Target::Pass(dataset, Object::Manifest),
            Target::Pass(dataset, fragment),
            Target::Forward(dataset, fragment),
            Target::Gather(dataset, fragment),
            Target::Scatter(dataset, fragment),
        ] {
            assert_eq!(Target::parse(&target.path()), Some(target));
        }
        let base = Target::Dataset(dataset).path();
        for path in ["/", "/v1", "/v1/status/", "/v1/datasets/..", "//v1/status"] {
            assert_eq!(Target::parse(path), None, "{path}");
        }
        for rest in [
            "/x",
            "/fragments/1",
            "/fragments/01/1",
            "/fragments/+1/1",
            "/fragments/1/256",
        ] {
            assert_eq!(Target::parse(&format!("{base}{rest}")), None, "{rest}");
        }
    }

    #[test]
    fn an_inventory_comes_back_as_it_was_written() {
        let held: Vec<Held> = (0..5)
            .map(|n| {
                (
                    ChunkIndex::new(n * 1000),
                    FragmentIndex::new(3),
                    Digest::new([9; 32]),
                )
            })
            .collect();
        let mut page = Vec::new();
        held.iter().for_each(|entry| write_held(&mut page, entry));
        assert_eq!(read_held(&page), Some(held));
        assert_eq!(read_held(&page[1..]), None);
    }
}
