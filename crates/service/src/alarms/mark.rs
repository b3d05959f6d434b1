//! Position of an alarm in the events, on disk.

use posthaste_endpoint::{Error, ErrorKind, Result};

use crate::{secrets, store::Store};

/// Events passed without a notice before the mark is written: after a crash they are read again.
const UNWRITTEN_MAX: u64 = 4096;

/// Position of one alarm in the journal's events.
#[derive(Debug)]
pub(super) struct Mark {
    name: String,
    /// Makes the ids of notices unique to this alarm of this service.
    key: String,
    seq: u64,
    written: u64,
}

impl Mark {
    /// Opens the mark; a new alarm begins with the next event. A mark ahead of the journal, as
    /// after restoring a backup, is set back.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for an invalid mark; the journal's and the operating system's.
    pub(super) fn open(store: &Store, name: &str) -> Result<Self> {
        let newest = store.journal(|journal| journal.newest_event())?;
        if let Some(text) = store.mark(name)? {
            let (key, seq) = read(&text).ok_or_else(|| {
                Error::new(
                    ErrorKind::Corrupt,
                    "read",
                    format!("the mark of alarm {name}"),
                )
                .hint("remove it: the alarm begins with what happens from then on")
            })?;
            let seq = seq.min(newest);
            return Ok(Self {
                name: name.to_owned(),
                key,
                seq,
                written: seq,
            });
        }
        let mut key = [0; 8];
        getrandom::fill(&mut key).map_err(|cause| {
            Error::new(ErrorKind::Other, "make", "a key").cause(cause.to_string())
        })?;
        let mut mark = Self {
            name: name.to_owned(),
            key: secrets::to_hex(&key),
            seq: newest,
            written: newest,
        };
        mark.write(store)?;
        Ok(mark)
    }

    /// Returns the last event that is done.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// Returns the id of an event for the recipient.
    pub(super) fn id_of(&self, seq: u64) -> String {
        format!("{}-{seq}", self.key)
    }

    /// Marks the event as done: no notice follows.
    pub(super) fn pass(&mut self, seq: u64) {
        self.seq = seq;
    }

    /// Returns whether the mark should be written although no notice was sent.
    pub(super) fn is_far_ahead(&self) -> bool {
        self.seq - self.written >= UNWRITTEN_MAX
    }

    /// Writes the mark, durably.
    ///
    /// # Errors
    /// The operating system's.
    pub(super) fn write(&mut self, store: &Store) -> Result<()> {
        store.keep_mark(&self.name, &format!("{} {}\n", self.key, self.seq))?;
        self.written = self.seq;
        Ok(())
    }
}

fn read(text: &str) -> Option<(String, u64)> {
    let (key, seq) = text.trim_end().split_once(' ')?;
    Some((key.to_owned(), seq.parse().ok()?))
}
