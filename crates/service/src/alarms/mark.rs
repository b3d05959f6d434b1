//! How far an alarm has told what happened, on disk.

use posthaste_endpoint::{Error, ErrorKind, Result};

use crate::{secrets, store::Store};

/// Events that are passed over before the mark is written though nothing was told: they are read again after a crash.
const UNWRITTEN_MAX: u64 = 4096;

/// The place of one alarm in the journal's events.
#[derive(Debug)]
pub(super) struct Mark {
    name: String,
    /// Makes ids of what is told those of this alarm of this service alone.
    key: String,
    seq: u64,
    written: u64,
}

impl Mark {
    /// Where the alarm left; one that is new begins with what happens from now on. No mark is ahead of the journal, as one may be
    /// that lies beside a journal from a backup.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] for a mark that is none; the journal's and the operating system's.
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

    /// The last event that is done with.
    pub(super) fn seq(&self) -> u64 {
        self.seq
    }

    /// What the event is called to whoever is told.
    pub(super) fn id_of(&self, seq: u64) -> String {
        format!("{}-{seq}", self.key)
    }

    /// The event is done with: it is not told again.
    pub(super) fn pass(&mut self, seq: u64) {
        self.seq = seq;
    }

    /// Whether it is time to write it, though nothing was told.
    pub(super) fn is_far_ahead(&self) -> bool {
        self.seq - self.written >= UNWRITTEN_MAX
    }

    /// Durable when this returns.
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
