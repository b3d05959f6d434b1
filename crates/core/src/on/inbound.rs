use alloc::string::String;
use core::time::Duration;
use posthaste_types::{ByteRate, Bytes, SourceId};

use crate::{Mind, contract::Reason};

impl Mind {
    /// Handles a measurement of what a source gave.
    pub(crate) fn on_inbound(
        &mut self,
        id: SourceId,
        bytes: Bytes,
        window: Duration,
        saturated: bool,
    ) {
        let (now, settings) = (self.now, &self.settings);
        let Some(source) = self.arrivals.sources.get_mut(&id) else {
            return;
        };
        if window.is_zero() {
            return;
        }
        if bytes > Bytes::ZERO {
            source.link.progress_at = now;
        }
        let rate = ByteRate::over(bytes, window);
        let saturated = saturated && source.link.shows_rate(bytes);
        let moved = source.link.observe(now, rate, saturated, settings);
        if let Some((from, to)) = moved {
            let name = source.name.clone();
            for request in self.arrivals.users(id) {
                let reason = Reason::RateMoved { from, to };
                let what = String::from("forecast moved");
                self.remember_of(request, name.clone(), 0, what, reason);
            }
        }
    }
}
