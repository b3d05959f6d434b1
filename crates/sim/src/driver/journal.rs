use posthaste_core::{Mind, contract::Input, contract::Outbox};
use posthaste_types::Timestamp;

use super::Run;
use crate::checkers::{Found, ensure};

pub(super) const NAME: &str = "snapshot and replay give the same mind";

/// Bytes of the last snapshot for each step before the next one. Limits the work to about a
/// microsecond for each step, whatever the mind's size.
const BYTES_PER_STEP: u64 = 1000;

/// Data that survives the driver: a snapshot and the inputs since.
#[derive(Debug)]
pub(super) struct Journal {
    /// Need for the journal; false if nothing will read it.
    is_kept: bool,
    snapshot: Vec<u8>,
    /// Steps since the last snapshot.
    steps: u64,
    inputs: Vec<(Timestamp, Vec<Input>)>,
    lost: Option<Mind>,
}

impl Journal {
    pub(super) fn new(mind: &Mind, is_kept: bool) -> Self {
        Self {
            is_kept,
            steps: 0,
            snapshot: mind.snapshot(),
            inputs: Vec::new(),
            lost: None,
        }
    }

    pub(super) fn append(&mut self, now: Timestamp, inputs: &[Input]) {
        self.steps += 1;
        if self.is_kept {
            self.inputs.push((now, inputs.to_vec()));
        }
    }

    /// Returns whether a snapshot is due: after `every` steps, or later if it is large.
    pub(super) fn is_due(&self, every: u64) -> bool {
        let large = self.snapshot.len() as u64 / BYTES_PER_STEP;
        self.steps >= every.max(large)
    }

    /// Keeps the mind that was killed, for comparison.
    pub(super) fn lose(&mut self, mind: Option<Mind>) {
        self.lost = mind;
    }

    /// Returns the mind from snapshot and replay, and whether it equals the one that was lost.
    pub(super) fn recover(&mut self) -> (Option<Mind>, Result<(), Found>) {
        let mut mind = match Mind::restore(&self.snapshot) {
            Ok(mind) => mind,
            Err(error) => {
                return (
                    None,
                    Err(Found {
                        checker: NAME,
                        what: error.to_string(),
                    }),
                );
            }
        };
        for (now, inputs) in &self.inputs {
            mind.step(*now, inputs.clone(), &mut Outbox::default());
        }
        let is_same = self.lost.take().is_none_or(|lost| lost == mind);
        let found = ensure(NAME, is_same, || String::from("the replayed mind differs"));
        (Some(mind), found)
    }
}

impl Run<'_> {
    /// Serializes the mind and reads it back. The run continues with the result.
    pub(super) fn round_trip(&mut self, mind: Mind) -> Mind {
        let snapshot = mind.snapshot();
        let restored = Mind::restore(&snapshot);
        let is_same = restored.as_ref() == Ok(&mind);
        let found = ensure(NAME, is_same, || String::from("the restored mind differs"));
        self.checkers.note(self.now, found);
        self.journal.snapshot = snapshot;
        self.journal.inputs.clear();
        self.journal.steps = 0;
        restored.unwrap_or(mind)
    }
}
