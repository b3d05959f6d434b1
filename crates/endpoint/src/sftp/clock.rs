//! Precision with which file systems behind a server keep the times of files.

use std::collections::HashMap;

use bytes::Buf;
use tokio::sync::Mutex;

use super::{
    OK,
    attributes::attributes_of,
    parent_of,
    remote::Remote,
    session::Batch,
    wire::{
        Attributes, CLOSE, EXTENDED, LSTAT, OPEN, OPEN_CREATE, OPEN_WRITE, REMOVE, Reply, Request,
        SETSTAT,
    },
};
use crate::{
    Result,
    endpoint::new_word,
    trial::{PROBE, SECOND_NS},
};

/// Offset of a file system's number in the answer to statvfs, in bytes (PROTOCOL, section 4.4).
const NUMBER_AT: usize = 64;

/// Learnt clocks of file systems, by their number. If the server reports no number, all file
/// systems count as one.
pub(super) type Clocks = Mutex<HashMap<u64, Option<u32>>>;

impl Remote {
    /// Returns the step of the times beside `full`, in nanoseconds; `None` if no time can be set.
    /// If nothing can be learnt, times count as kept to the second.
    pub(super) async fn time_step_ns(&self, full: &[u8]) -> Result<Option<u32>> {
        let number = self.file_system(full).await?;
        let mut known = self.clocks.lock().await;
        if let Some(step_ns) = known.get(&number) {
            return Ok(*step_ns);
        }
        let step_ns = self.learn_step_ns(full).await?;
        known.insert(number, step_ns);
        Ok(step_ns)
    }

    /// Returns the number of the file system that a path lies in.
    async fn file_system(&self, full: &[u8]) -> Result<u64> {
        let session = self.session().await?;
        if !session.statvfs {
            return Ok(0);
        }
        let request = Request::new(EXTENDED).string(b"statvfs@openssh.com");
        let answer = session.ask(request.string(parent_of(full))).await?;
        let Reply::Extended(mut figures) = answer else {
            return Ok(0);
        };
        if figures.len() < NUMBER_AT + 8 {
            return Ok(0);
        }
        figures.advance(NUMBER_AT);
        Ok(figures.get_u64())
    }

    /// Probes the step by setting the time of a temporary file.
    async fn learn_step_ns(&self, full: &[u8]) -> Result<Option<u32>> {
        let session = self.session().await?;
        let probe = self.partial(full, &new_word());
        let open = Request::new(OPEN)
            .string(&probe)
            .u32(OPEN_WRITE | OPEN_CREATE)
            .attributes(&Attributes::default());
        let Reply::Handle(handle) = session.ask(open).await? else {
            return Ok(Some(SECOND_NS));
        };
        let mut batch = Batch::new(&session);
        let wanted = attributes_of(None, Some(PROBE));
        let closed = batch.add(Request::new(CLOSE).string(&handle));
        let set = batch.add(Request::new(SETSTAT).string(&probe).attributes(&wanted));
        let looked = batch.add(Request::new(LSTAT).string(&probe));
        let removed = batch.add(Request::new(REMOVE).string(&probe));
        batch.send().await?;
        closed.reply().await?;
        let (set, looked) = (set.reply().await?, looked.reply().await?);
        removed.reply().await?;
        let (Reply::Status { code: OK, .. }, Reply::Attributes(found)) = (set, looked) else {
            return Ok(None);
        };
        let steps = [SECOND_NS, 2 * SECOND_NS];
        let is_within = |step: &u32| {
            let found = found.file_time();
            found.is_some_and(|found| found.agrees(PROBE, *step))
        };
        Ok(steps.into_iter().find(is_within))
    }
}
