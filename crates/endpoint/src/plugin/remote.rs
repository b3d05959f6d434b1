//! Requests to a plug-in, over a process that is restarted when it dies.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::{Map, Value, json};
use tokio::{sync::Mutex, time::sleep};

use super::{
    Launch,
    call::Call,
    entry::read_entry,
    greeting::Greeting,
    refusal::Doing,
    session::{Ask, Session, Unstarted},
    wire::encode_name,
};
use crate::{
    Checksum, Error, ErrorKind, FileTime, Locus, Result, Summer,
    endpoint::{ByteStream, Entry, FileSpec, Whole, base_name, same_partial_name},
    error::Status,
    location::shown_address,
    outgoing::Outgoing,
    posix::DraftRules,
};

/// Deaths in a row, without an answer in between, after which a plug-in is not restarted.
const DEATHS_MAX: u32 = 5;

/// Pause before a plug-in that died is restarted; it doubles each time.
const PAUSE_FIRST: Duration = Duration::from_millis(100);

/// Longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A living process, or the facts about a dead one.
struct Slot {
    session: Option<Arc<Session>>,
    /// Deaths in a row.
    deaths: u32,
    /// Reason of the last death.
    fate: String,
}

/// Connection to a living plug-in for one address.
pub(super) struct Remote {
    launch: Launch,
    address: Vec<u8>,
    pub rules: DraftRules,
    /// Greeting of the first process.
    pub greeting: Greeting,
    slot: Mutex<Slot>,
}

impl Remote {
    pub(super) async fn open(launch: Launch, address: Vec<u8>, rules: DraftRules) -> Result<Self> {
        let shown = show(&launch.scheme, &address, b"");
        let session = Session::start(&launch, Some(&address), &shown)
            .await
            .map_err(Unstarted::error)?;
        Ok(Self {
            launch,
            address,
            rules,
            greeting: session.greeting.clone(),
            slot: Mutex::new(Slot {
                session: Some(session),
                deaths: 0,
                fate: String::new(),
            }),
        })
    }

    pub(super) fn scheme(&self) -> &str {
        &self.launch.scheme
    }

    pub(super) fn show(&self, path: &[u8]) -> String {
        show(&self.launch.scheme, &self.address, path)
    }

    /// Returns the living process; a dead one is replaced, after a pause that grows with its
    /// deaths.
    async fn session(&self) -> Result<Arc<Session>> {
        let mut slot = self.slot.lock().await;
        if let Some(session) = slot.session.take() {
            if !session.is_dead() {
                slot.session = Some(Arc::clone(&session));
                return Ok(session);
            }
            let before = if session.has_answered() {
                0
            } else {
                slot.deaths
            };
            (slot.deaths, slot.fate) = (before + 1, session.fate());
        }
        if slot.deaths >= DEATHS_MAX {
            let cause = format!("the plug-in {}", slot.fate);
            return Err(Doing::OPEN
                .error(ErrorKind::Unreachable, &self.show(b""))
                .cause(cause)
                .hint("it died too often to be started again")
                .status_is(Status::Permanent));
        }
        let pause = PAUSE_FIRST * 2_u32.saturating_pow(slot.deaths.saturating_sub(1));
        sleep(pause.min(PAUSE_MAX)).await;
        match Session::start(&self.launch, Some(&self.address), &self.show(b"")).await {
            Ok(session) => {
                slot.session = Some(Arc::clone(&session));
                Ok(session)
            }
            Err(Unstarted::Refused(error)) => Err(error),
            Err(Unstarted::Died(error)) => {
                slot.deaths += 1;
                slot.fate = "does not start any more".to_owned();
                Err(error.status_is(Status::Temporary))
            }
        }
    }

    /// Sends a request whose answer has up to `rest` bytes before its end.
    pub(super) async fn begin(
        &self,
        ask: Ask,
        rest: u64,
        doing: Doing,
        path: &[u8],
    ) -> Result<Call> {
        let session = self.session().await?;
        session.begin(ask, rest, doing, self.show(path)).await
    }

    /// Sends a request that moves no bytes.
    pub(super) async fn ask(
        &self,
        ask: Ask,
        doing: Doing,
        path: &[u8],
    ) -> Result<Map<String, Value>> {
        self.begin(ask, 0, doing, path).await?.end().await
    }

    /// Returns the error for a senseless answer.
    pub(super) fn nonsense(&self, doing: Doing, path: &[u8], what: &str) -> Error {
        doing
            .error(ErrorKind::Other, &self.show(path))
            .cause(format!("the plug-in answered with {what}"))
    }

    pub(super) async fn stat(&self, path: &[u8], follow: bool) -> Result<Option<Entry>> {
        let ask = Ask::new("stat")
            .with("path", encode_name(path))
            .with("follow", follow);
        let answer = self.ask(ask, Doing::LOOK, path).await?;
        match answer.get("entry") {
            None | Some(Value::Null) => Ok(None),
            Some(entry) => match read_entry(entry, None) {
                Some(entry) => Ok(Some(entry)),
                None => Err(self.nonsense(Doing::LOOK, path, "an impossible entry")),
            },
        }
    }

    /// Requests the range of a file that `place` names.
    pub(super) async fn read(&self, place: Ask, start: u64, len: u64, path: &[u8]) -> Result<Call> {
        let ask = place.with("offset", start).with("length", len);
        self.begin(ask, len, Doing::READ, path).await
    }

    /// Reads a small file whole, and again if it no longer matches the listing.
    pub(super) async fn get(&self, path: &[u8], listed: &Entry) -> Result<Whole> {
        let mut entry = listed.clone();
        if !self.greeting.capabilities(self.scheme()).mtimes_listed {
            entry = self.present(path).await?;
        }
        let (data, after) = self.read_whole(path, &entry).await?;
        if is_same(&entry, &after) {
            return Ok(whole(after, data));
        }
        // The file is whole in memory here: a file that has grown large is not read again.
        let bytes_max = self.greeting.capabilities(self.scheme()).segment_size_min;
        if after.size <= bytes_max {
            let (data, again) = self.read_whole(path, &after).await?;
            if is_same(&after, &again) {
                return Ok(whole(again, data));
            }
        }
        Err(self.changed(path))
    }

    /// Returns the bytes of a file as large as `entry` says, and its entry after they were read.
    async fn read_whole(&self, path: &[u8], entry: &Entry) -> Result<(Vec<Bytes>, Entry)> {
        if entry.size == 0 {
            return Ok((Vec::new(), self.present(path).await?));
        }
        let place = Ask::new("read").with("path", encode_name(path));
        let read = self.read(place, 0, entry.size, path).await?.collect().await;
        let (data, answer) = match read {
            Ok(read) => read,
            // Shorter than listed: its present entry decides whether it can be read.
            Err(error) if error.kind() == ErrorKind::Changed => {
                let now = self.present(path).await?;
                return if now.size < entry.size {
                    Ok((Vec::new(), now))
                } else {
                    Err(error)
                };
            }
            Err(error) => return Err(error),
        };
        let told = answer
            .get("entry")
            .and_then(|entry| read_entry(entry, None));
        match told {
            Some(after) => Ok((data, after)),
            None => Ok((data, self.present(path).await?)),
        }
    }

    pub(super) async fn present(&self, path: &[u8]) -> Result<Entry> {
        self.stat(path, true).await?.ok_or_else(|| {
            Doing::READ
                .error(ErrorKind::NotFound, &self.show(path))
                .cause("no such file")
                .at(Locus::Source)
        })
    }

    pub(super) fn changed(&self, path: &[u8]) -> Error {
        Doing::READ
            .error(ErrorKind::Changed, &self.show(path))
            .cause("it changed while it was read")
            .hint("copy it again when nothing writes to it")
            .at(Locus::Source)
    }

    pub(super) async fn put(
        &self,
        path: &[u8],
        spec: &FileSpec,
        data: Vec<Bytes>,
        sum: Checksum,
    ) -> Result<()> {
        let len = data.iter().map(|bytes| bytes.len() as u64).sum();
        let algorithm = self.greeting.algorithm().filter(|_| self.rules.verify);
        if self.rules.verify && algorithm.is_none() && self.greeting.capabilities.reads_unfinished {
            let draft = super::draft::Unfinished::create(self, path, spec, None).await?;
            let stored = draft.store_whole(len, body_of(data), sum).await;
            if stored.is_err() {
                draft.discard().await;
            }
            return stored;
        }
        let ask = dressed(Ask::new("put"), path, spec).with("size", len);
        let call = self.begin(ask, 0, Doing::WRITE, path).await?;
        call.upload(len, body_of(data), algorithm).await?;
        Ok(())
    }
}

pub(super) fn body_of(data: Vec<Bytes>) -> ByteStream {
    Outgoing::current().counted(data)
}

fn whole(entry: Entry, data: Vec<Bytes>) -> Whole {
    let mut summer = Summer::default();
    data.iter().for_each(|bytes| summer.add(bytes));
    Whole {
        entry,
        checksum: summer.sum(),
        data,
    }
}

/// Returns whether both entries can have the same content. An attribute that one of them lacks is
/// not compared.
pub(super) fn is_same(before: &Entry, after: &Entry) -> bool {
    fn agree<T: PartialEq>(before: Option<&T>, after: Option<&T>) -> bool {
        before.is_none() || after.is_none() || before == after
    }
    before.size == after.size
        && agree(before.mtime.as_ref(), after.mtime.as_ref())
        && agree(before.version.as_ref(), after.version.as_ref())
}

/// Returns an address for people. It never holds a secret: those are in profiles.
fn show(scheme: &str, address: &[u8], path: &[u8]) -> String {
    let address = String::from_utf8_lossy(address);
    let slash = if path.is_empty() || address.ends_with('/') {
        ""
    } else {
        "/"
    };
    let shown = format!(
        "{scheme}://{address}{slash}{}",
        String::from_utf8_lossy(path)
    );
    shown_address(shown.as_ref())
}

/// Adds the attributes that a plug-in is to keep of a file.
pub(super) fn dressed(ask: Ask, path: &[u8], spec: &FileSpec) -> Ask {
    let partial = same_partial_name(base_name(path), spec);
    attributed(ask.with("path", encode_name(path)), spec.mtime, spec.mode)
        .with("partial", encode_name(&partial))
}

/// Adds times as decimal seconds and permission bits as octal digits, if known.
pub(super) fn attributed(ask: Ask, mtime: Option<FileTime>, mode: Option<u32>) -> Ask {
    ask.with("mtime", json!(mtime.map(|mtime| mtime.to_string())))
        .with("mode", json!(mode.map(|mode| format!("{mode:04o}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_with_their_paths() {
        assert_eq!(show("tape", b"silo/a", b"b/c"), "tape://silo/a/b/c");
        assert_eq!(show("tape", b"/", b"b"), "tape:///b");
        assert_eq!(show("tape", b"/x", b""), "tape:///x");
    }
}
