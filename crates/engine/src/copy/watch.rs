//! Watch over streams: how fast each is, and whether waiting for it still makes sense.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use posthaste_endpoint::{ByteStream, Error, ErrorKind, Locus, Outgoing, Result, limits::Excuse};
use posthaste_plan::patience::{Verdict, judge};
use posthaste_types::{ByteRate, Bytes};
use tokio::time::sleep;

use super::{cargo::Cargo, clock, lane::Shared, progress::Moving};

/// Interval of checks of a stream.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Streams needed for their median to predict another.
const LIKE_MIN: usize = 3;

/// Rate of one attempt's bytes.
#[derive(Debug)]
pub(super) struct Meter {
    moving: Arc<Moving>,
    sent: AtomicU64,
    started: Instant,
    /// Microseconds after `started` when the last byte left.
    last_us: AtomicU64,
    /// The stream is held back by our own rate, or has nothing left to send: silence means nothing.
    excused: AtomicBool,
    /// Time held back by the caps of a profile.
    excuse: Excuse,
    /// Microseconds held back by those caps, as of the last look.
    waited_us: AtomicU64,
}

impl Meter {
    fn sent(&self, bytes: u64) {
        self.sent.fetch_add(bytes, Relaxed);
        self.last_us.store(self.elapsed_us(), Relaxed);
    }

    fn elapsed_us(&self) -> u64 {
        let elapsed = clock::now().saturating_duration_since(self.started);
        u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX)
    }

    /// Returns how long it could have moved bytes.
    fn busy(&self) -> Duration {
        let waited_us = self.waited_us.load(Relaxed);
        Duration::from_micros(self.elapsed_us().saturating_sub(waited_us))
    }

    fn rate(&self) -> ByteRate {
        ByteRate::over(Bytes::new(self.sent.load(Relaxed)), self.busy())
    }

    /// Counts the time since the last look as a wait.
    fn waited(&self) {
        let look_us = u64::try_from(LOOK_EVERY.as_micros()).unwrap_or(0);
        self.waited_us.fetch_add(look_us, Relaxed);
        self.last_us.store(self.elapsed_us(), Relaxed);
    }
}

/// Streams under way.
#[derive(Debug, Default)]
pub(super) struct Speeds {
    next: AtomicU64,
    meters: Mutex<BTreeMap<u64, Arc<Meter>>>,
}

impl Speeds {
    fn meters(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<Meter>>> {
        self.meters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what a stream carries now: the median of all.
    fn expected(&self) -> Option<ByteRate> {
        let meters = self.meters();
        let counted = meters.values().filter(|meter| !meter.excused.load(Relaxed));
        let mut rates: Vec<ByteRate> = counted.map(|meter| meter.rate()).collect();
        drop(meters);
        if rates.len() < LIKE_MIN {
            return None;
        }
        rates.sort_unstable();
        rates.get(rates.len() / 2).copied()
    }
}

/// Guard that takes the meter off the list when the attempt ends.
struct Listed<'a> {
    speeds: &'a Speeds,
    number: u64,
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.speeds.meters().remove(&self.number);
    }
}

/// Runs one attempt to move `bytes`: `attempt` gets a way to meter its body. The attempt is given
/// up when nothing moves any more or, while `hurries`, when similar streams are far faster.
pub(super) async fn watched<T, F>(
    shared: &Arc<Shared>,
    (moving, bytes): (&Arc<Moving>, u64),
    hurries: bool,
    attempt: impl FnOnce(Tap) -> F,
) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let meter = Arc::new(Meter {
        moving: Arc::clone(moving),
        sent: AtomicU64::new(0),
        started: clock::now(),
        last_us: AtomicU64::new(0),
        excused: AtomicBool::new(false),
        excuse: Excuse::default(),
        waited_us: AtomicU64::new(0),
    });
    let number = shared.speeds.next.fetch_add(1, Relaxed);
    shared.speeds.meters().insert(number, Arc::clone(&meter));
    let _listed = Listed {
        speeds: &shared.speeds,
        number,
    };
    let attempt = async {
        let tap = Tap {
            shared: Arc::clone(shared),
            meter: Arc::clone(&meter),
            outgoing: Outgoing::current(),
        };
        attempt(tap).await
    };
    let cargo = Cargo::of(moving, bytes);
    let mut attempt = pin!(meter.excuse.cover(cargo.carry_all(attempt)));
    loop {
        tokio::select! {
            done = &mut attempt => return done,
            () = sleep(LOOK_EVERY) => {}
        }
        if let Some(error) = give_up(shared, &meter, hurries) {
            cargo.give_up();
            return Err(error);
        }
    }
}

fn give_up(shared: &Shared, meter: &Meter, hurries: bool) -> Option<Error> {
    if meter.excused.load(Relaxed) {
        return None;
    }
    if meter.excuse.is_waiting() {
        meter.waited();
        return None;
    }
    let last = Duration::from_micros(meter.last_us.load(Relaxed));
    let silent = Duration::from_micros(meter.elapsed_us()).saturating_sub(last);
    let expected = hurries.then(|| shared.speeds.expected()).flatten();
    let error = || Error::new(ErrorKind::TimedOut, "copy", meter.moving.name()).at(Locus::Network);
    match judge(silent, meter.busy(), meter.rate(), expected) {
        Verdict::Moving => None,
        Verdict::Silent => Some(error().cause(format!("nothing moved for {} s", silent.as_secs()))),
        Verdict::Slow => Some(error().cause(format!(
            "a stream at {} where its like carry {}",
            meter.rate(),
            expected.unwrap_or_default()
        ))),
    }
}

/// Meter for what flows through it.
#[derive(Clone)]
pub(super) struct Tap {
    shared: Arc<Shared>,
    meter: Arc<Meter>,
    outgoing: Outgoing,
}

impl Tap {
    /// Returns the body held to the copy's rate, counted, and ended when the copy is stopped.
    pub(super) fn meter(self, body: ByteStream) -> ByteStream {
        let ended = self.clone();
        let end = futures_util::stream::once(async move {
            ended.meter.excused.store(true, Relaxed);
        });
        let body = body.then(move |bytes| {
            let Self {
                shared,
                meter,
                outgoing,
            } = self.clone();
            async move {
                let bytes = bytes?;
                if shared.is_stopped() {
                    let name = meter.moving.name();
                    return Err(Error::new(ErrorKind::Cancelled, "copy", name));
                }
                meter.excused.store(true, Relaxed);
                shared.options.throttle.pass(bytes.len() as u64).await;
                meter.excused.store(false, Relaxed);
                meter.sent(bytes.len() as u64);
                outgoing.pass(bytes.len() as u64);
                Ok(bytes)
            }
        });
        Box::pin(body.chain(end.filter_map(|()| async { None })))
    }
}
