//! Files being written through a plug-in, visible under their final names only when complete.

use std::{
    ops::Range,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use futures_util::StreamExt;
use serde_json::Value;
use tokio::sync::watch;

use super::{
    call::Sent,
    refusal::Doing,
    remote::{Remote, dressed},
    session::Ask,
    wire::decode_name,
};
use crate::{
    Checksum, Error, ErrorKind, Locus, Result, Summer,
    config::state_folder,
    endpoint::{Boxed, ByteStream, FileSpec, Writer},
    ledger::{Claim, Head, Kept, Ledger},
};

/// Longest name of an unfinished file, in bytes: a path as long as file systems allow.
const NAME_BYTES_MAX: usize = 4096;

/// Unfinished file as the plug-in names it.
pub(super) struct Unfinished<'a> {
    remote: &'a Remote,
    path: &'a [u8],
    spec: &'a FileSpec,
    /// Plug-in's name for it, as the plug-in wrote it.
    name: String,
    /// Set if this is the file asked for, and keeps what it held.
    is_held: bool,
}

impl<'a> Unfinished<'a> {
    /// Starts a file, or opens the one that the plug-in once called `name`.
    pub(super) async fn create(
        remote: &'a Remote,
        path: &'a [u8],
        spec: &'a FileSpec,
        name: Option<&str>,
    ) -> Result<Self> {
        let ask = dressed(Ask::new("create"), path, spec)
            .with("size", spec.size)
            .with("file", name.map_or(Value::Null, Value::from));
        let answer = remote.ask(ask, Doing::WRITE, path).await?;
        let given = answer.get("file").and_then(Value::as_str);
        let given = given.filter(|given| (1..=NAME_BYTES_MAX).contains(&given.len()));
        let Some(given) = given else {
            return Err(remote.nonsense(Doing::WRITE, path, "no name for an unfinished file"));
        };
        let is_held = answer.get("held").and_then(Value::as_bool) == Some(true);
        Ok(Self {
            remote,
            path,
            spec,
            name: given.to_owned(),
            is_held: is_held && name == Some(given),
        })
    }

    /// Writes a range and checks that it is held.
    async fn write(&self, start: u64, len: u64, body: ByteStream) -> Result<Sent> {
        let remote = self.remote;
        let algorithm = remote.greeting.algorithm().filter(|_| remote.rules.verify);
        let ask = Ask::new("write")
            .with("file", &*self.name)
            .with("offset", start)
            .with("length", len);
        let call = remote.begin(ask, 0, Doing::WRITE, self.path).await?;
        let sent = call.upload(len, body, algorithm).await?;
        let reads_back = remote.greeting.capabilities.reads_unfinished;
        if remote.rules.verify
            && algorithm.is_none()
            && reads_back
            && self.sum_of(start..start + len).await? != sent.sum
        {
            return Err(self.corrupt("what was written reads back differently"));
        }
        Ok(sent)
    }

    fn corrupt(&self, cause: &'static str) -> Error {
        Doing::WRITE
            .error(ErrorKind::Corrupt, &self.remote.show(self.path))
            .cause(cause)
            .at(Locus::Destination)
    }

    async fn sum_of(&self, range: Range<u64>) -> Result<Checksum> {
        let place = Ask::new("read").with("file", &*self.name);
        let len = range.end - range.start;
        let call = self.remote.read(place, range.start, len, self.path).await?;
        let mut body = call.stream();
        let mut summer = Summer::default();
        while let Some(bytes) = body.next().await {
            summer.add(&bytes?);
        }
        Ok(summer.sum())
    }

    /// Returns whether a segment noted by an earlier run is still there. If the plug-in can't be
    /// asked, the note is believed.
    async fn holds(&self, range: Range<u64>, noted: &Kept) -> Result<bool> {
        let remote = self.remote;
        if !remote.rules.verify {
            return Ok(true);
        }
        let algorithm = remote.greeting.algorithm();
        if let Some((algorithm, sum)) =
            algorithm.zip(noted_sum(noted, algorithm.map(|it| it.name())))
        {
            let ask = Ask::new("checksum")
                .with("file", &*self.name)
                .with("offset", range.start)
                .with("length", range.end - range.start)
                .with("algorithm", algorithm.name());
            let answer = remote.ask(ask, Doing::CHECK, self.path).await?;
            let found = answer.get("checksum").and_then(Value::as_str);
            return Ok(found.is_some_and(|found| found.eq_ignore_ascii_case(sum)));
        }
        if remote.greeting.capabilities.reads_unfinished {
            return Ok(self.sum_of(range).await? == noted.checksum);
        }
        Ok(true)
    }

    /// Gives it its final name.
    async fn commit(&self) -> Result<()> {
        let ask = dressed(Ask::new("commit"), self.path, self.spec)
            .with("file", &*self.name)
            .with("size", self.spec.size);
        self.remote.ask(ask, Doing::WRITE, self.path).await?;
        Ok(())
    }

    pub(super) async fn discard(&self) {
        forget(self.remote, &self.name, self.path).await;
    }

    /// Writes all of a small file and gives it its name.
    pub(super) async fn store_whole(
        &self,
        len: u64,
        body: ByteStream,
        sum: Checksum,
    ) -> Result<()> {
        if self.write(0, len, body).await?.sum != sum {
            return Err(self.corrupt("it was not what was to be written"));
        }
        self.commit().await
    }
}

/// Returns the plug-in's own sum in the note of a segment, `ALGORITHM:DIGITS`.
fn noted_sum<'n>(noted: &'n Kept, algorithm: Option<&str>) -> Option<&'n str> {
    let (name, sum) = noted.receipt.split_once(':')?;
    (Some(name) == algorithm).then_some(sum)
}

/// Makes the plug-in remove an unfinished file, which may be gone.
async fn forget(remote: &Remote, name: &str, path: &[u8]) {
    let ask = Ask::new("discard").with("file", name);
    // A file that can't be removed now is in nobody's way: it is hidden, and the next copy replaces
    // it.
    let _ = remote.ask(ask, Doing::REMOVE, path).await;
}

/// Large file being written.
pub(super) struct PluginWriter {
    remote: Arc<Remote>,
    path: Vec<u8>,
    spec: FileSpec,
    name: String,
    segment_size: u64,
    kept: Vec<(u64, Checksum)>,
    /// Segment whose turn it is, if they have to come in order.
    turn: Option<watch::Sender<u64>>,
    ledger: Mutex<Option<Ledger>>,
}

fn ledger_path(remote: &Remote, path: &[u8], spec: &FileSpec) -> PathBuf {
    let mut hasher = blake3::Hasher::new();
    hasher.update(remote.show(b"").as_bytes());
    hasher.update(b"\n");
    hasher.update(path);
    hasher.update(b"\n");
    hasher.update(spec.origin.as_bytes());
    state_folder().join(format!("plugin-{}", &hasher.finalize().to_hex()[..32]))
}

impl PluginWriter {
    /// Continues the unfinished copy of this source, or starts one.
    pub(super) async fn start(remote: Arc<Remote>, path: &[u8], spec: &FileSpec) -> Result<Self> {
        let can = remote.greeting.capabilities(remote.scheme());
        let segment_size = remote.greeting.segment_size();
        let note = ledger_path(&remote, path, spec);
        let unnoted =
            |cause| Error::io("note an unfinished copy in", note.to_string_lossy(), cause);
        // `None` if another process has it: this copy can't be continued then. If none can be
        // continued, the remainder is removed.
        let claim = Claim::take(&note).map_err(unnoted)?;
        let found = claim.as_ref().and_then(Claim::load);
        let identity = spec.identity();
        let continued = match &found {
            Some((head, noted)) => match decode_token(&head.token) {
                Some(name)
                    if can.resumes
                        && head.identity == identity
                        && head.segment_size == segment_size =>
                {
                    Some((name, noted.as_slice()))
                }
                Some(stale) => {
                    forget(&remote, &stale, path).await;
                    None
                }
                None => None,
            },
            None => None,
        };
        let name = continued.as_ref().map(|(name, _)| &**name);
        let draft = Unfinished::create(&remote, path, spec, name).await?;
        let noted = continued
            .filter(|_| draft.is_held)
            .map(|(_, noted)| noted)
            .unwrap_or_default();
        let kept = still_held(&draft, segment_size, noted, can.segments_in_any_order).await?;
        let name = draft.name;
        let head = Head {
            identity,
            segment_size,
            token: encode_token(&name),
        };
        let ledger = claim.map(|claim| claim.start(&head, &kept));
        let ledger = ledger.transpose().map_err(unnoted)?;
        let turn = (!can.segments_in_any_order).then(|| watch::Sender::new(kept.len() as u64));
        Ok(Self {
            path: path.to_vec(),
            spec: spec.clone(),
            name,
            segment_size,
            kept: kept
                .iter()
                .map(|kept| (kept.index, kept.checksum))
                .collect(),
            turn,
            ledger: Mutex::new(ledger),
            remote,
        })
    }

    fn draft(&self) -> Unfinished<'_> {
        Unfinished {
            remote: &self.remote,
            path: &self.path,
            spec: &self.spec,
            name: self.name.clone(),
            is_held: true,
        }
    }

    async fn store(&self, index: u64, range: Range<u64>, body: ByteStream) -> Result<Checksum> {
        if let Some(turn) = &self.turn {
            // The sender lives as long as `self`.
            let _ = turn.subscribe().wait_for(|&next| next == index).await;
        }
        let len = range.end - range.start;
        let sent = self.draft().write(range.start, len, body).await?;
        let receipt = match (self.remote.greeting.algorithm(), &sent.theirs) {
            (Some(algorithm), Some(sum)) => format!("{}:{sum}", algorithm.name()),
            (None, _) | (_, None) => "-".to_owned(),
        };
        {
            let ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(ledger) = ledger.as_ref() {
                ledger.add(index, sent.sum, &receipt).map_err(|cause| {
                    Error::io("note an unfinished copy of", &*self.spec.origin, cause)
                })?;
            }
        }
        if let Some(turn) = &self.turn {
            turn.send_replace(index + 1);
        }
        Ok(sent.sum)
    }

    fn forget_note(&self) {
        let mut ledger = self.ledger.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ledger) = ledger.take() {
            ledger.remove();
        }
    }
}

/// Returns the noted segments that are still there; for a file that is written in order, only those
/// before the first gap.
async fn still_held(
    draft: &Unfinished<'_>,
    segment_size: u64,
    noted: &[Kept],
    any_order: bool,
) -> Result<Vec<Kept>> {
    let mut noted: Vec<&Kept> = noted.iter().collect();
    noted.sort_by_key(|noted| noted.index);
    noted.dedup_by_key(|noted| noted.index);
    let mut kept: Vec<Kept> = Vec::new();
    for noted in noted {
        let start = noted.index.saturating_mul(segment_size);
        let end = start.saturating_add(segment_size).min(draft.spec.size);
        let in_order = noted.index == kept.len() as u64;
        if start < end && (any_order || in_order) && draft.holds(start..end, noted).await? {
            kept.push(noted.clone());
        }
    }
    Ok(kept)
}

/// Encodes a plug-in's name for an unfinished file as one word of a ledger.
fn encode_token(name: &str) -> String {
    name.bytes()
        .map(|byte| match byte {
            b'!'..=b'~' if byte != b'%' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

fn decode_token(token: &str) -> Option<String> {
    String::from_utf8(decode_name(token)?).ok()
}

impl Writer for PluginWriter {
    fn segment_size(&self) -> u64 {
        self.segment_size
    }

    fn kept(&self) -> Vec<(u64, Checksum)> {
        self.kept.clone()
    }

    fn write(
        &self,
        index: u64,
        range: Range<u64>,
        body: ByteStream,
    ) -> Boxed<'_, Result<Checksum>> {
        Box::pin(self.store(index, range, body))
    }

    fn finish(&self, _whole: Checksum) -> Boxed<'_, Result<()>> {
        Box::pin(async {
            self.draft().commit().await?;
            self.forget_note();
            Ok(())
        })
    }

    fn discard(&self) -> Boxed<'_, ()> {
        Box::pin(async {
            self.draft().discard().await;
            self.forget_note();
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_unfinished_files_fit_into_a_ledger() {
        for name in ["plain/.x", "a b", "100%", "é\n"] {
            let token = encode_token(name);
            assert!(!token.contains([' ', '\n']), "{token:?}");
            assert_eq!(decode_token(&token).as_deref(), Some(name));
        }
    }
}
