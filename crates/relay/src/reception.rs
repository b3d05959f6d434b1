//! Reception of an upload's body: at the limited rate, to disk and through the digest at once.

use std::{pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use posthaste_endpoint::{ErrorKind, relay::wire::ProbeBody};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::{Instant, timeout},
};

use crate::{
    rate::RateLimit,
    store::{Refusal, Upload},
};

/// Silence after which a body is given up, and its space with it.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest time for which a probe is read: its sender waits five seconds longer for the answer.
const PROBE_SPAN_MAX: Duration = Duration::from_secs(35);
/// Interval at which the bytes of a probe are noted.
const MARK_EVERY: Duration = Duration::from_millis(40);
/// Bytes gathered before they go to the disk, so that there are fewer hand-overs between threads.
/// An upload holds twice as many in memory, because one batch is written while the next arrives.
const BATCH_BYTES: usize = 1 << 20;
/// Frames in a batch, whatever their size.
const BATCH_FRAMES: usize = 1024;

/// Body that is being read.
pub(crate) struct Reception {
    body: Incoming,
    rate: Arc<RateLimit>,
}

impl Reception {
    pub(crate) fn new(body: Incoming, rate: Arc<RateLimit>) -> Self {
        Self { body, rate }
    }

    /// Returns the next bytes; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Refusal> {
        loop {
            let frame = timeout(BODY_TIMEOUT, self.body.frame())
                .await
                .map_err(|_| Refusal::new(ErrorKind::TimedOut, "nothing arrived for 30 s"))?;
            let Some(frame) = frame else { return Ok(None) };
            let frame = frame
                .map_err(|cause| Refusal::new(ErrorKind::Invalid, format!("the body: {cause}")))?;
            if let Ok(data) = frame.into_data() {
                self.rate.take(data.len()).await;
                return Ok(Some(data));
            }
        }
    }

    /// Reads the body into the upload and seals it.
    pub(crate) async fn store(mut self, upload: Upload) -> Result<(), Refusal> {
        let growth = upload.growth();
        let mut writing = Writing::Idle(upload);
        let (mut batch, mut bytes) = (Vec::new(), 0);
        loop {
            let mut next = pin!(self.next());
            let data = loop {
                // A transfer that follows gets them as soon as the disk is free.
                let is_followed = growth.is_followed();
                tokio::select! {
                    biased;
                    data = &mut next => break data?,
                    idle = writing.rest(), if is_followed && bytes > 0 => {
                        idle?;
                        writing = writing.write(std::mem::take(&mut batch)).await?;
                        bytes = 0;
                    }
                    () = growth.wanted(), if !is_followed => {}
                }
            };
            let Some(data) = data else { break };
            bytes += data.len();
            batch.push(data);
            if bytes >= BATCH_BYTES || batch.len() >= BATCH_FRAMES {
                writing = writing.write(std::mem::take(&mut batch)).await?;
                bytes = 0;
            }
        }
        let upload = writing.write(batch).await?.finish().await?;
        blocking(move || upload.seal()).await
    }

    /// Reads a body of at most `bytes_max` into memory.
    pub(crate) async fn read(mut self, bytes_max: usize) -> Result<Vec<u8>, Refusal> {
        let mut bytes = Vec::new();
        while let Some(data) = self.next().await? {
            if bytes.len() + data.len() > bytes_max {
                let what = format!("the body has more than {bytes_max} bytes");
                return Err(Refusal::new(ErrorKind::Invalid, what));
            }
            bytes.extend_from_slice(&data);
        }
        Ok(bytes)
    }

    /// Reads one line of at most `bytes_max`, and what came behind it with its last bytes.
    pub(crate) async fn read_line(
        &mut self,
        bytes_max: usize,
    ) -> Result<(Vec<u8>, Bytes), Refusal> {
        let mut line = Vec::new();
        while let Some(mut data) = self.next().await? {
            let end = data.iter().position(|byte| *byte == b'\n');
            line.extend_from_slice(&data[..end.unwrap_or(data.len())]);
            if line.len() > bytes_max {
                let what = format!("the first line has more than {bytes_max} bytes");
                return Err(Refusal::new(ErrorKind::Invalid, what));
            }
            if let Some(end) = end {
                return Ok((line, data.split_off(end + 1)));
            }
        }
        Err(Refusal::new(
            ErrorKind::Invalid,
            "the body ended in its first line",
        ))
    }

    /// Reads the rest of the body into memory: `first` and what follows are exactly `size` bytes.
    pub(crate) async fn read_rest(mut self, first: Bytes, size: u64) -> Result<Vec<u8>, Refusal> {
        let wrong = || {
            let what = format!("the body has not the {size} bytes that it should");
            Refusal::new(ErrorKind::Invalid, what)
        };
        let size = usize::try_from(size).map_err(|_| wrong())?;
        let mut bytes =
            Vec::with_capacity(size + usize::from(posthaste_types::Code::FRAGMENTS_MAX));
        let mut next = Some(first);
        while let Some(data) = next {
            if bytes.len() + data.len() > size {
                return Err(wrong());
            }
            bytes.extend_from_slice(&data);
            next = self.next().await?;
        }
        match bytes.len() == size {
            true => Ok(bytes),
            false => Err(wrong()),
        }
    }

    /// Reads and forgets a probe, and returns when its bytes came. It does not wait for the end of
    /// a long one, whose bytes kernels and gateways still send over a slow path: by then the probe
    /// has shown what it could.
    ///
    /// # Errors
    /// The refusal of a body and its unread rest, if it has more than `bytes_max`.
    pub(crate) async fn sink(mut self, bytes_max: u64) -> Result<ProbeBody, (Refusal, Self)> {
        let mut seen = ProbeBody {
            received_bytes: 0,
            marks: Vec::new(),
        };
        let mut started = None;
        loop {
            let data = match self.next().await {
                Ok(Some(data)) => data,
                Ok(None) => return Ok(seen),
                Err(refusal) => return Err((refusal, self)),
            };
            let since = started.get_or_insert_with(Instant::now).elapsed();
            seen.received_bytes += data.len() as u64;
            if seen.received_bytes > bytes_max {
                let what = format!("a probe has {bytes_max} bytes at most");
                return Err((Refusal::new(ErrorKind::Invalid, what), self));
            }
            if since > PROBE_SPAN_MAX {
                return Ok(seen);
            }
            let micros = u64::try_from(since.as_micros()).unwrap_or(u64::MAX);
            let grain = u64::try_from(MARK_EVERY.as_micros()).unwrap_or(u64::MAX);
            match seen.marks.last_mut() {
                // The last mark of a grain stands for it.
                Some((at, bytes)) if micros / grain == *at / grain => {
                    (*at, *bytes) = (micros, seen.received_bytes);
                }
                _ => seen.marks.push((micros, seen.received_bytes)),
            }
        }
    }

    /// Reads and forgets at most `bytes_max`, so that the refusal reaches a client that is still
    /// sending. Returns whether the body ended.
    pub(crate) async fn discard(mut self, bytes_max: u64) -> bool {
        let mut left = bytes_max;
        while let Ok(data) = self.next().await {
            let Some(data) = data else { return true };
            match left.checked_sub(data.len() as u64) {
                Some(rest) => left = rest,
                None => return false,
            }
        }
        false
    }
}

/// State of an upload: at rest, or with a batch on its way to the disk.
enum Writing {
    Idle(Upload),
    Busy(JoinHandle<Result<Upload, Refusal>>),
}

impl Writing {
    /// Waits for the batch before. Dropping it loses nothing.
    async fn rest(&mut self) -> Result<(), Refusal> {
        if let Self::Busy(writing) = self {
            *self = Self::Idle(writing.await.map_err(ended)??);
        }
        Ok(())
    }

    async fn finish(self) -> Result<Upload, Refusal> {
        match self {
            Self::Idle(upload) => Ok(upload),
            Self::Busy(writing) => writing.await.map_err(ended)?,
        }
    }

    /// Waits for the batch before, then starts to write this one.
    async fn write(self, batch: Vec<Bytes>) -> Result<Self, Refusal> {
        let mut upload = self.finish().await?;
        Ok(Self::Busy(spawn_blocking(move || {
            upload.write(&batch)?;
            Ok(upload)
        })))
    }
}

/// Runs blocking work on a thread for it.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    spawn_blocking(work).await.map_err(ended)?
}

fn ended(_: tokio::task::JoinError) -> Refusal {
    Refusal::new(ErrorKind::Busy, "the relay is shutting down")
}
