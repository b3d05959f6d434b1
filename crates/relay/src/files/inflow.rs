//! Body of a request: a message, then bytes and their digest.

use std::{sync::Arc, time::Duration};

use bytes::{Buf, Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use posthaste_endpoint::{
    ErrorKind,
    peer::{
        frame::DIGEST_BYTES,
        wire::{MESSAGE_BYTES_MAX, Refusal},
    },
};
use posthaste_types::Record;
use tokio::time::timeout;

use crate::rate::RateLimit;

/// Silence after which a body is given up. Clients that read slowly elsewhere, or have to, send
/// nothing for minutes; the kernel detects dead ones.
const BODY_TIMEOUT: Duration = Duration::from_secs(300);

/// Maximum of bytes read after a refusal, only so that the refusal arrives.
const REFUSED_BYTES_MAX: u64 = 32 << 20;

/// Body that is being read.
pub(super) struct Inflow {
    body: Incoming,
    pending: Bytes,
    rate: Option<Arc<RateLimit>>,
}

impl Inflow {
    pub(super) fn new(body: Incoming, rate: Option<Arc<RateLimit>>) -> Self {
        Self {
            body,
            pending: Bytes::new(),
            rate,
        }
    }

    /// Waits until there is something; returns `false` at the end.
    async fn fill(&mut self) -> Result<bool, Refusal> {
        while self.pending.is_empty() {
            let frame = timeout(BODY_TIMEOUT, self.body.frame())
                .await
                .map_err(|_| Refusal::new(ErrorKind::TimedOut, "nothing arrived for 5 minutes"))?;
            let Some(frame) = frame else {
                return Ok(false);
            };
            let frame = frame.map_err(|cause| {
                Refusal::new(ErrorKind::Unreachable, format!("the body: {cause}"))
            })?;
            if let Ok(data) = frame.into_data() {
                if let Some(rate) = &self.rate {
                    rate.take(data.len()).await;
                }
                self.pending = data;
            }
        }
        Ok(true)
    }

    /// Returns the next `len` bytes in one piece.
    async fn exact(&mut self, len: usize) -> Result<Bytes, Refusal> {
        if self.pending.len() >= len {
            return Ok(self.pending.split_to(len));
        }
        let mut gathered = BytesMut::with_capacity(len);
        while gathered.len() < len {
            if !self.fill().await? {
                return Err(cut_off());
            }
            let count = (len - gathered.len()).min(self.pending.len());
            gathered.extend_from_slice(&self.pending[..count]);
            self.pending.advance(count);
        }
        Ok(gathered.freeze())
    }

    /// Returns the message at its start, as bytes.
    pub(super) async fn message_bytes(&mut self) -> Result<Bytes, Refusal> {
        let head = self.exact(4).await?;
        let head: [u8; 4] = head[..].try_into().map_err(|_| cut_off())?;
        let len = usize::try_from(u32::from_le_bytes(head)).unwrap_or(usize::MAX);
        if len > MESSAGE_BYTES_MAX {
            return Err(Refusal::new(
                ErrorKind::Invalid,
                format!("a message of {len} bytes is longer than any"),
            ));
        }
        self.exact(len).await
    }

    /// Returns the message at its start.
    pub(super) async fn message<T: Record>(&mut self) -> Result<T, Refusal> {
        let bytes = self.message_bytes().await?;
        T::from_bytes(&bytes)
            .map_err(|cause| Refusal::new(ErrorKind::Invalid, format!("the message: {cause}")))
    }

    /// Returns at most the next `len` bytes, as they arrive; neither `len` nor the result is 0.
    pub(super) async fn some(&mut self, len: u64) -> Result<Bytes, Refusal> {
        if !self.fill().await? {
            return Err(cut_off());
        }
        let count = usize::try_from(len).unwrap_or(usize::MAX);
        Ok(self.pending.split_to(count.min(self.pending.len())))
    }

    /// Reads the digest of the bytes before it, which must be `found`.
    pub(super) async fn digest(&mut self, found: &blake3::Hasher) -> Result<(), Refusal> {
        let told = self.exact(DIGEST_BYTES).await?;
        if told[..] == found.finalize().as_bytes()[..] {
            return Ok(());
        }
        let mut refusal = Refusal::new(
            ErrorKind::Corrupt,
            "what arrived has another digest than what was sent",
        );
        refusal.temporary = true;
        Err(refusal)
    }

    /// Waits until it is known whether anything follows.
    pub(super) async fn is_ended(&mut self) -> Result<bool, Refusal> {
        Ok(!self.fill().await?)
    }

    /// Checks that nothing follows.
    pub(super) async fn end(&mut self) -> Result<(), Refusal> {
        if !self.is_ended().await? {
            return Err(Refusal::new(
                ErrorKind::Invalid,
                "the body is longer than it said",
            ));
        }
        Ok(())
    }

    /// Reads and forgets the rest of the body, so that a refusal reaches a client that is still
    /// sending. Returns whether the body ended.
    pub(super) async fn discard(&mut self) -> bool {
        let mut left = REFUSED_BYTES_MAX;
        while let Ok(true) = self.fill().await {
            match left.checked_sub(self.pending.len() as u64) {
                Some(rest) => left = rest,
                None => return false,
            }
            self.pending.clear();
        }
        true
    }
}

fn cut_off() -> Refusal {
    Refusal::new(ErrorKind::Invalid, "the body is cut off")
}
