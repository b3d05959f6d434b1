use alloc::vec::Vec;
use core::time::Duration;
use posthaste_forecast::{Measure, Path, Prior, Quantiles};
use posthaste_types::{ByteRate, Bytes, Timestamp, record};

use super::Flight;
use crate::{Settings, contract::Knowledge};

record! {
    /// The way from the centre to one depot: what it carries and what is on it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Link {
        path: Path,
        advert: Option<ByteRate>,
        /// What data gets as of the last look, kept because every placement asks for it: the forecast, or what
        /// is reserved where that is more.
        pub(crate) rates: Quantiles,
        /// The forecast alone: what the path carries beside others.
        pub(crate) shared: Quantiles,
        /// What is reserved now, and since when.
        reserved: ByteRate,
        reserved_at: Timestamp,
        /// What was carried lately while something was.
        carried: Vec<ByteRate>,
        /// Its p10 as of the last measurement: what age alone has not lowered.
        pub(crate) p10_then: ByteRate,
        /// Bytes of all fragments in flight.
        pub(crate) in_flight: Bytes,
        /// Fragments in flight.
        pub(crate) flights: u32,
        /// Those of them whose optimizer wants more than a window has room for.
        pub(crate) raised: u32,
        /// When something was last seen to move, or the link last began to be used.
        pub(crate) progress_at: Timestamp,
        /// When a probe of it last ended, whether it showed anything or not.
        pub(crate) probed_at: Option<Timestamp>,
        /// A person asked for a probe that did not start yet.
        pub(crate) is_probe_asked: bool,
        announced: ByteRate,
        moved_samples: u32,
    }
}

/// What was measured so soon after a reservation began or ended may be of before.
const SETTLING: Duration = Duration::from_secs(2);
/// Samples of what a reservation carries: the best of them says what it is good for.
const CARRIED_MAX: usize = 8;

/// Of flights with fewer bytes on average, how long they take is how far a path reaches, not what it carries.
pub(super) const FEW: Bytes = Bytes::new(64 << 10);

/// Samples beyond the band below before a moved forecast is said (`docs/algorithms/greedy-planner.md`).
const MOVED_SAMPLES: u32 = 3;

impl Link {
    pub(crate) fn new(advert: Option<ByteRate>, prior: &Prior) -> Self {
        let rates = prior.quantiles(advert);
        Self {
            path: Path::default(),
            advert,
            rates,
            shared: rates,
            reserved: ByteRate::ZERO,
            reserved_at: Timestamp::default(),
            carried: Vec::new(),
            p10_then: rates.p10,
            in_flight: Bytes::ZERO,
            flights: 0,
            raised: 0,
            progress_at: Timestamp::default(),
            probed_at: None,
            is_probe_asked: false,
            announced: ByteRate::ZERO,
            moved_samples: 0,
        }
    }

    pub(crate) fn is_measured(&self) -> bool {
        self.path.is_measured()
    }

    /// What is known of the path, and how well.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether transfers measured it within `fresh`.
    pub(crate) fn is_known_by_transfers(&self, now: Timestamp, fresh: Duration) -> bool {
        let measured_at = self.path.measured_at();
        self.path.samples().0 >= 3 && measured_at.is_some_and(|at| at + fresh > now)
    }

    /// The rate the depot's owner lends changed, or was said again.
    pub(crate) fn set_advert(
        &mut self,
        now: Timestamp,
        advert: Option<ByteRate>,
        settings: &Settings,
    ) {
        self.advert = advert.or(self.advert);
        self.learn(now, settings);
    }

    /// Data goes another way from now on, of which this is known. Returns what is known of the one before.
    pub(crate) fn turn_to(&mut self, path: Path, now: Timestamp, settings: &Settings) -> Path {
        let before = core::mem::replace(&mut self.path, path);
        (self.announced, self.moved_samples) = (ByteRate::ZERO, 0);
        self.learn(now, settings);
        before
    }

    /// Takes what transfers showed, or at least showed. Returns the forecast (p50) before and after
    /// once it left the last one told by more than a quarter for three samples.
    pub(crate) fn observe(
        &mut self,
        now: Timestamp,
        rate: ByteRate,
        saturated: bool,
        settings: &Settings,
    ) -> Option<(ByteRate, ByteRate)> {
        // What the owner lends bounds what can be forecast; above it lies what buffers took.
        let rate = rate.min(self.advert.unwrap_or(rate));
        if self.is_reserved(now) {
            self.observe_reserved(now, rate, saturated, settings);
            return None;
        }
        self.look(now, settings);
        self.path
            .observe_transfer(now, rate, !saturated, self.rates);
        self.learn(now, settings);
        if !self.is_measured() {
            return None;
        }
        let now = self.rates.p50;
        if self.announced == ByteRate::ZERO {
            self.announced = now;
        }
        let band = self.announced.scaled(3, 4)..=self.announced.scaled(5, 4);
        self.moved_samples = if band.contains(&now) {
            0
        } else {
            self.moved_samples + 1
        };
        if self.moved_samples < MOVED_SAMPLES {
            return None;
        }
        self.moved_samples = 0;
        Some((core::mem::replace(&mut self.announced, now), now))
    }

    /// Takes what a probe showed, or at least showed.
    pub(crate) fn observe_probe(
        &mut self,
        now: Timestamp,
        rate: ByteRate,
        is_bound: bool,
        settings: &Settings,
    ) {
        self.look(now, settings);
        if self.is_reserved(now) {
            return;
        }
        self.path.observe_probe(now, rate, is_bound, self.rates);
        self.learn(now, settings);
    }

    /// From now on so much is reserved; zero for nothing.
    pub(crate) fn set_reserved(&mut self, now: Timestamp, rate: ByteRate, settings: &Settings) {
        if rate != self.reserved {
            (self.reserved, self.reserved_at) = (rate, now);
            self.carried.clear();
            self.look(now, settings);
        }
    }

    /// Whether what is measured now says nothing of what the path carries beside others.
    fn is_reserved(&self, now: Timestamp) -> bool {
        let is_settling =
            self.reserved_at > Timestamp::default() && now < self.reserved_at + SETTLING;
        self.reserved > ByteRate::ZERO || is_settling
    }

    /// Takes what data got while rate was reserved.
    fn observe_reserved(
        &mut self,
        now: Timestamp,
        rate: ByteRate,
        saturated: bool,
        settings: &Settings,
    ) {
        let is_settled = now >= self.reserved_at + SETTLING;
        if saturated && is_settled && self.reserved > ByteRate::ZERO {
            if self.carried.len() >= CARRIED_MAX {
                self.carried.remove(0);
            }
            self.carried.push(rate);
        }
        self.look(now, settings);
    }

    /// What can be counted on of what is reserved: all of it until as many samples as are kept say less.
    fn firm(&self) -> ByteRate {
        let most = self.reserved.min(self.advert.unwrap_or(self.reserved));
        let best = self.carried.iter().copied().max().unwrap_or(most);
        if self.carried.len() < CARRIED_MAX {
            most
        } else {
            most.min(best)
        }
    }

    /// What a sample says of the path when rate may be reserved on it that nobody spoke of yet: no more than
    /// was believed before.
    pub(crate) fn at_most_believed(&self, rate: ByteRate) -> ByteRate {
        rate.min(self.shared.p90)
    }

    /// What is believed of the path now.
    pub(crate) fn believed(&self, now: Timestamp, settings: &Settings) -> Quantiles {
        self.path
            .forecast(now, settings.forecast_tau)
            .unwrap_or_else(|| settings.prior.quantiles(self.advert))
            .capped(self.advert)
    }

    /// Lets what is known age until now.
    pub(crate) fn look(&mut self, now: Timestamp, settings: &Settings) {
        self.shared = self.believed(now, settings);
        let firm = self.firm();
        self.rates = Quantiles {
            p10: self.shared.p10.max(firm),
            p50: self.shared.p50.max(firm),
            p90: self.shared.p90.max(firm),
        };
    }

    /// The same, after something new was heard.
    fn learn(&mut self, now: Timestamp, settings: &Settings) {
        self.look(now, settings);
        let then = self.path.measured_at().unwrap_or(now);
        self.p10_then = self.believed(then, settings).p10;
    }

    /// How what is believed now is known.
    pub(crate) fn knowledge(&self, now: Timestamp, settings: &Settings) -> Knowledge {
        match self.path.measured_by(now, settings.forecast_tau) {
            Some(Measure::Transfers) => Knowledge::Transfers,
            Some(Measure::Probe) => Knowledge::Probe,
            None if self.advert.is_some() => Knowledge::Advertised,
            None => Knowledge::Assumed,
        }
    }

    /// What its owner says that it takes.
    pub(crate) fn advert(&self) -> Option<ByteRate> {
        self.advert
    }

    /// A fragment is on its way.
    pub(crate) fn begin_flight(&mut self, now: Timestamp, flight: &Flight) {
        if self.flights == 0 {
            self.progress_at = now;
        }
        self.flights += 1;
        self.raised += u32::from(flight.is_raised);
        self.in_flight += flight.bytes;
    }

    /// It is no longer.
    pub(crate) fn end_flight(&mut self, flight: &Flight) {
        self.flights -= 1;
        self.raised -= u32::from(flight.is_raised);
        self.in_flight -= flight.bytes;
    }

    /// Whether how long `bytes` took, of what was under way until now, says what the path carries: with flights of a few bytes it
    /// says how long one takes, and the path may carry any number more.
    pub(crate) fn shows_rate(&self, bytes: Bytes) -> bool {
        match self.flights {
            0 => bytes >= FEW,
            flights => self.in_flight >= FEW.times(flights.into()),
        }
    }

    /// What may be in flight: what the link carries in `span`, as far as memory allows.
    pub(crate) fn window(&self, span: Duration, settings: &Settings) -> Bytes {
        self.rates.p50.volume(span).min(settings.window_bytes_max)
    }

    /// Whether a fragment of `bytes` may start now: two fragments always may, so that the link
    /// never idles between them; more as long as they fit into the window of `span`.
    pub(crate) fn has_window(&self, bytes: Bytes, span: Duration, settings: &Settings) -> bool {
        let window = self.window(span, settings);
        self.flights < 2
            || (self.flights < settings.flights_max && self.in_flight + bytes <= window)
    }

    /// Microseconds until a fragment of `bytes` started now would be stored (p50).
    pub(crate) fn finish_micros(&self, bytes: Bytes) -> u64 {
        let span = self.rates.p50.time_for(self.in_flight + bytes);
        u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
    }
}
