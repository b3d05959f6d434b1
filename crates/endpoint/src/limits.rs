//! Enforcement of a profile's caps: requests at once, requests per second, bytes per second.
//!
//! [`Limits`] are shared by every endpoint that is opened with a profile, both ends of a copy
//! included. They may change while requests are under way. [`Limited`] holds any endpoint to them:
//! a request waits for its place, then for its moment; payload waits for the rate, in pieces, so
//! that streams share it evenly. No holder of a place waits for another place, with one exception
//! that [`Limited`] handles: a written stream may be one that is being read.

mod excuse;
mod file;
mod gate;
mod limited;
mod throttle;

use std::{
    collections::BTreeMap,
    num::NonZeroU32,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use posthaste_types::ByteRate;
use tokio::sync::Notify;

pub use excuse::Excuse;
pub use gate::{Gate, Pass};
pub use limited::Limited;
pub use throttle::Throttle;

use crate::{Result, config::Profile, endpoint::ByteStream};

/// Requests at once if no cap is set: more than there ever are.
const NO_CAP: usize = 1 << 24;

/// Most bytes that wait for the rate together: streams alternate in pieces of this size.
const TURN_BYTES: u64 = 128 << 10;

/// Caps of a profile; `None` is no cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Caps {
    /// Most requests in progress at once.
    pub connections_max: Option<NonZeroU32>,
    /// Most bytes per second, in both directions together.
    pub rate_max: Option<ByteRate>,
    /// Most requests begun in a second.
    pub requests_per_s_max: Option<NonZeroU32>,
}

impl Caps {
    pub(crate) fn of(profile: &Profile) -> Self {
        Self {
            connections_max: profile.connections_max,
            rate_max: profile.rate_max,
            requests_per_s_max: profile.requests_per_s_max,
        }
    }
}

/// Caps in force. Clones share them.
#[derive(Debug, Clone)]
pub struct Limits {
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    caps: Mutex<Caps>,
    places: Arc<Gate>,
    /// Rate of starts, in requests rather than bytes.
    starts: Throttle,
    rate: Throttle,
    /// Notification of changed caps.
    changed: Notify,
    /// Number of endpoints under these caps.
    ends: AtomicUsize,
}

impl Limits {
    /// Starts with these caps.
    #[must_use]
    pub fn new(caps: Caps) -> Self {
        let limits = Self {
            state: Arc::new(State {
                caps: Mutex::default(),
                places: Gate::new(NO_CAP),
                starts: Throttle::default(),
                rate: Throttle::default(),
                changed: Notify::new(),
                ends: AtomicUsize::new(0),
            }),
        };
        limits.set(caps);
        limits
    }

    /// Changes the caps. Waiting requests follow at once; requests under way are not called back.
    pub fn set(&self, caps: Caps) {
        let state = &self.state;
        let mut now = state.caps.lock().unwrap_or_else(PoisonError::into_inner);
        if *now == caps {
            return;
        }
        let places = caps
            .connections_max
            .map_or(NO_CAP, |max| (max.get() as usize).min(NO_CAP));
        state.places.set(places);
        let starts = caps.requests_per_s_max;
        let starts = starts.map(|max| ByteRate::new(max.get().into()));
        if caps.requests_per_s_max != now.requests_per_s_max {
            state.starts.set(starts);
        }
        if caps.rate_max != now.rate_max {
            state.rate.set(caps.rate_max);
        }
        *now = caps;
        drop(now);
        state.changed.notify_waiters();
    }

    /// Returns the present caps.
    #[must_use]
    pub fn caps(&self) -> Caps {
        let caps = self.state.caps.lock();
        *caps.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until one more request may begin. It ends when the pass is dropped.
    pub(crate) async fn enter(&self) -> Pass {
        let _waiting = Excuse::current().wait();
        let pass = self.state.places.pass().await;
        self.state.starts.pass(1).await;
        pass
    }

    /// Waits until `bytes` of payload may go.
    async fn pay(&self, bytes: u64, excuse: &Excuse) {
        let _waiting = excuse.wait();
        let mut left = bytes;
        while left > 0 {
            let turn = left.min(TURN_BYTES);
            self.state.rate.pass(turn).await;
            left -= turn;
        }
    }

    /// Waits as [`Limits::enter`] does, for a request that sends `body`. Reads the body into memory
    /// first if it must, also if that becomes necessary during the wait.
    async fn enter_with(&self, body: ByteStream, bytes: u64) -> Result<(Pass, ByteStream)> {
        let mut changed = pin!(self.state.changed.notified());
        loop {
            // Registered here, so that no change falls between the check and the wait.
            changed.as_mut().enable();
            if self.takes_bodies_whole() {
                let body = file::taken_in(body, bytes).await?;
                return Ok((self.enter().await, body));
            }
            tokio::select! {
                place = self.enter() => return Ok((place, body)),
                () = &mut changed => changed.set(self.state.changed.notified()),
            }
        }
    }

    /// Returns whether bodies must be read into memory before a place is requested. Reads and
    /// writes may both count here, and streams that wait for a write could hold every place.
    fn takes_bodies_whole(&self) -> bool {
        self.state.ends.load(Relaxed) > 1 && self.caps().connections_max.is_some()
    }
}

/// Limits of profiles in use, by name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Registry {
    by_profile: Arc<Mutex<BTreeMap<String, Limits>>>,
}

impl Registry {
    /// Returns the limits of a profile, also of one that has no caps yet.
    pub(crate) fn limits(&self, name: &str, profile: Option<&Profile>) -> Limits {
        let caps = profile.map(Caps::of).unwrap_or_default();
        let known = self.by_profile.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        if let Some(limits) = known.get(name) {
            limits.set(caps);
            return limits.clone();
        }
        let limits = Limits::new(caps);
        known.insert(name.to_owned(), limits.clone());
        limits
    }

    /// Gives all limits the caps that `look_up` finds for their profiles now. A removed profile has
    /// none.
    pub(crate) fn renew(&self, look_up: impl Fn(&str) -> Result<Option<Profile>>) -> Result<()> {
        let known = self.by_profile.lock();
        for (name, limits) in known.unwrap_or_else(PoisonError::into_inner).iter() {
            let profile = look_up(name)?;
            limits.set(profile.as_ref().map(Caps::of).unwrap_or_default());
        }
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        let known = self.by_profile.lock();
        known.unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use futures_util::{FutureExt, StreamExt, stream};

    use super::*;

    const ONE: Option<NonZeroU32> = NonZeroU32::new(1);

    #[tokio::test]
    async fn a_cap_set_while_a_write_looks_leaves_no_stream_waiting_for_another() {
        let limits = Limits::new(Caps::default());
        limits.state.ends.store(2, Relaxed);
        // The stream being read holds the only place until its last byte.
        let place = limits.enter().await;
        let body = stream::once(async move {
            drop(place);
            Ok(Bytes::from_static(b"all"))
        });
        // Same state as in the middle of `set`: no more places, and the cap not yet reported.
        limits.state.places.set(1);
        let mut entering = Box::pin(limits.enter_with(Box::pin(body), 3));
        assert!((&mut entering).now_or_never().is_none());
        limits.set(Caps {
            connections_max: ONE,
            ..Caps::default()
        });
        let entered = tokio::time::timeout(Duration::from_secs(120), entering);
        let (_place, mut body) = entered.await.unwrap().unwrap();
        assert_eq!(body.next().await.unwrap().unwrap(), "all");
    }
}
