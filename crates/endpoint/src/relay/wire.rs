//! Wire format that client and relay share: paths, headers, limits and small bodies.

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

/// Largest fragment or manifest, in bytes: the most that one request may make a relay hold on disk
/// unasked, and a client in memory.
pub const OBJECT_BYTES_MAX: u64 = 256 << 20;

/// Largest probe, in bytes: the most that one request may make a relay's network carry for nothing.
pub const PROBE_BYTES_MAX: u64 = 256 << 20;

/// Most entries in one page of an inventory: 2.4 MB, so that neither side needs much memory.
pub const INVENTORY_PAGE_MAX: usize = 65_536;

/// Bytes of one inventory entry: chunk (4, little-endian), fragment (1), digest (32).
pub const INVENTORY_ENTRY_BYTES: usize = 37;

/// BLAKE3 of the body, 64 hexadecimal digits.
pub const DIGEST_HEADER: &str = "posthaste-digest";
/// Time after which the dataset may be removed, in seconds since the Unix epoch.
pub const EXPIRES_HEADER: &str = "posthaste-expires";
/// Start of the next page of an inventory, `CHUNK.FRAGMENT`; absent on the last page.
pub const NEXT_HEADER: &str = "posthaste-next";

/// Feature of a relay: it can forward fragments that it holds.
pub const FORWARD: &str = "forward";
/// Feature of a relay: it can forward fragments that it still receives.
pub const FOLLOW: &str = "follow";
/// Feature of a relay: it can gather fragments from others and rebuild a chunk.
pub const GATHER: &str = "gather";
/// Feature of a relay: it can rebuild one fragment of a chunk from gathered ones.
pub const MEND: &str = "mend";
/// Feature of a relay: it can code a chunk and send its fragments on.
pub const SCATTER: &str = "scatter";
/// Feature of a relay: it can measure the path to another relay.
pub const MEASURE: &str = "measure";
/// Feature of a relay: it reserves space for datasets.
pub const SPACE: &str = "space";
/// Feature of a relay: it can copy a fragment as it is from another relay.
pub const TAKE: &str = "take";
/// Feature of a relay: it accepts no bytes itself, but hands out presigned URLs to a store.
pub const PASS: &str = "pass";

/// Largest order to code a chunk, in bytes: it names 63 relays at most.
pub const SCATTER_ORDER_BYTES_MAX: usize = 64 << 10;

/// Field of an error: bytes that would be granted.
pub(super) const MOST_BYTES: &str = "most_bytes";

/// Largest request for space, in bytes.
pub const SPACE_BODY_BYTES_MAX: usize = 4 << 10;

/// Longest time for which space is held before it is committed, in seconds: a hold keeps others
/// out.
pub const SPACE_HOLD_S_MAX: u32 = 3600;

/// Longest time for which a relay keeps anything, in seconds: a token for one request must not fill
/// it for ever.
pub const KEPT_S_MAX: u64 = 20 * 366 * 86_400;

/// Object that a relay holds for a dataset.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Object {
    /// The manifest.
    Manifest,
    /// Fragment of a chunk.
    Fragment(ChunkIndex, FragmentIndex),
}

/// Target of a request, from its path.
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
    /// Returns the path that names it.
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

    /// Parses a path; `None` if it names nothing.
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

/// Parses a number in its one canonical form, so that one object has one path.
fn decimal(text: &str) -> Option<u64> {
    let canonical = text == "0" || !text.starts_with('0');
    let digits = text.bytes().all(|digit| digit.is_ascii_digit());
    (canonical && digits).then(|| text.parse().ok()).flatten()
}

/// Parses `CHUNK.FRAGMENT`, an inventory position.
#[must_use]
pub fn parse_position(text: &str) -> Option<(ChunkIndex, FragmentIndex)> {
    let (chunk, fragment) = text.split_once('.')?;
    Some((
        ChunkIndex::new(decimal(chunk)?.try_into().ok()?),
        FragmentIndex::new(decimal(fragment)?.try_into().ok()?),
    ))
}

/// Word in the query of an inventory that asks for what is right, and not for what is there.
pub const PROOF: &str = "proof";

/// Parses the query of an inventory: its start, the beginning without one, and whether a proof is
/// asked for. `None` if it is not such a query.
#[must_use]
pub fn parse_from(query: Option<&str>) -> Option<((ChunkIndex, FragmentIndex), bool)> {
    let (mut from, mut proves) = ((ChunkIndex::new(0), FragmentIndex::new(0)), false);
    for word in query.into_iter().flat_map(|query| query.split('&')) {
        match word {
            PROOF => proves = true,
            word => from = parse_position(word.strip_prefix("from=")?)?,
        }
    }
    Some((from, proves))
}

/// Word in the query of an inventory before the fragment that came wrong.
const DOUBT: &str = "doubt=";

/// Returns the query of an inventory that has one fragment read, which came wrong.
#[must_use]
pub fn show_doubt((chunk, fragment): (ChunkIndex, FragmentIndex)) -> String {
    format!("{DOUBT}{}.{}", chunk.get(), fragment.get())
}

/// Parses the output of [`show_doubt`]. `None` if it is not such a query.
#[must_use]
pub fn parse_doubt(query: Option<&str>) -> Option<(ChunkIndex, FragmentIndex)> {
    parse_position(query?.strip_prefix(DOUBT)?)
}

/// Parses the query of a removal: the digest of what stays. `None` if it is not such a query.
#[must_use]
pub fn parse_unless(query: Option<&str>) -> Option<Digest> {
    query?.strip_prefix("unless=")?.parse().ok()
}

/// Entry of an inventory.
pub type Held = (ChunkIndex, FragmentIndex, Digest);

/// Appends an inventory entry.
pub fn write_held(out: &mut Vec<u8>, (chunk, fragment, digest): &Held) {
    out.extend_from_slice(&chunk.get().to_le_bytes());
    out.push(fragment.get());
    out.extend_from_slice(digest.as_bytes());
}

/// Parses a page of an inventory; `None` if it is not one.
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

/// Relay's observations of a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeBody {
    /// Bytes that arrived.
    pub received_bytes: u64,
    /// Microseconds since the first byte and bytes that had arrived by then, in order.
    pub marks: Vec<(u64, u64)>,
}

/// Body of every refusal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// Kind of the error, as a code of `docs/errors/`.
    pub error: String,
    /// Message of the error.
    pub message: String,
    /// Hint for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Bytes that would be granted for that span, if space was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_bytes: Option<u64>,
}

/// Returns the HTTP status with which a relay answers each kind of error.
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

/// Returns the kind of error that an HTTP status means.
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
