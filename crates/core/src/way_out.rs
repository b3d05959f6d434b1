//! The centre's way out, where what it carries is known: whether it is full.
//!
//! What shares a full way out shares it evenly, whoever is in a hurry. So whoever is not waits, and what a
//! depot took meanwhile says only what its own path carries at least.

use core::time::Duration;
use posthaste_types::{ByteRate, Bytes, Timestamp, record};

use crate::Mind;

/// Full is what carries so much, in hundredths of what is known.
const FULL_PERCENT: u64 = 95;

/// What was measured longer ago says nothing of now.
const FRESH: Duration = Duration::from_secs(3);

/// Who gets so much of what the fastest gets, in hundredths, has its share of a full way out.
const SHARE_PERCENT: u64 = 80;

record! {
    /// What all depots together took lately.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub(crate) struct WayOut {
        /// The measurements that came at one moment, so far.
        at: Timestamp,
        bytes: Bytes,
        window: Duration,
        /// The fastest depot of those.
        most: ByteRate,
        /// What those of the moment before came to, and the fastest of them.
        rate: ByteRate,
        share: ByteRate,
    }
}

impl WayOut {
    /// Takes what one depot took.
    pub(crate) fn observe(&mut self, now: Timestamp, bytes: Bytes, window: Duration) {
        if now != self.at {
            self.rate = if self.window.is_zero() {
                ByteRate::ZERO
            } else {
                ByteRate::over(self.bytes, self.window)
            };
            self.share = self.most;
            (self.at, self.bytes, self.most) = (now, Bytes::ZERO, ByteRate::ZERO);
        }
        self.bytes += bytes;
        self.most = self.most.max(ByteRate::over(bytes, window));
        self.window = window;
    }
}

impl Mind {
    /// Whether the way out is known to carry no more.
    pub(crate) fn is_way_out_full(&self) -> bool {
        let egress = self.settings.egress;
        let is_fresh = self.now.since(self.way_out.at) <= FRESH;
        is_fresh
            && egress.is_some_and(|egress| self.way_out.rate >= egress.scaled(FULL_PERCENT, 100))
    }

    /// Whether a depot took so much only because the way out carries no more: what is slower than the
    /// share of others is slow by itself.
    pub(crate) fn is_held_by_way_out(&self, rate: ByteRate) -> bool {
        self.is_way_out_full() && rate >= self.way_out.share.scaled(SHARE_PERCENT, 100)
    }
}
