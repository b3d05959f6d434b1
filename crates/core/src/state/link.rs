use alloc::vec::Vec;
use core::time::Duration;
use posthaste_forecast::{Measure, Path, Prior, Quantiles};
use posthaste_types::{ByteRate, Bytes, Timestamp, record};

use crate::state::Flight;
use crate::{Settings, contract::Knowledge};

record! {
    /// Link from the centre to one depot: its rate and the transfers on it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Link {
        path: Path,
        advert: Option<ByteRate>,
        /// Usable rate as of the last look, cached because every placement asks for it: the
        /// forecast, or the reserved rate if that is higher.
        pub(crate) rates: Quantiles,
        /// Forecast alone: the rate of the path beside others.
        pub(crate) shared: Quantiles,
        /// Rate reserved now, and since when.
        reserved: ByteRate,
        reserved_at: Timestamp,
        /// Recent rates while something was reserved.
        carried: Vec<ByteRate>,
        /// p10 at the last measurement, before age lowered it.
        pub(crate) p10_then: ByteRate,
        /// Bytes of all fragments in flight.
        pub(crate) in_flight: Bytes,
        /// Fragments in flight.
        pub(crate) flights: u32,
        /// Fragments in flight whose optimizer wants more than fits into a window.
        pub(crate) raised: u32,
        /// Time at which something was last seen to move, or at which the link last began to be
        /// used.
        pub(crate) progress_at: Timestamp,
        /// Time at which a probe of it last ended, whether it showed anything or not.
        pub(crate) probed_at: Option<Timestamp>,
        /// True if a person asked for a probe that did not start yet.
        pub(crate) is_probe_asked: bool,
        announced: ByteRate,
        moved_samples: u32,
    }
}

/// Time after a reservation began or ended in which a measurement may still be of before.
const SETTLING: Duration = Duration::from_secs(2);
/// Samples kept of a reservation's rate: the best of them is its worth.
const CARRIED_MAX: usize = 8;

/// Average size of flights below which their duration shows the length of a path, not its rate.
pub(super) const FEW: Bytes = Bytes::new(64 << 10);

/// Samples below the band before a moved forecast is reported
/// (`docs/algorithms/greedy-planner.md`).
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

    /// Returns what is known of the path, and how well.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether transfers measured it within `fresh`.
    pub(crate) fn is_known_by_transfers(&self, now: Timestamp, fresh: Duration) -> bool {
        let measured_at = self.path.measured_at();
        self.path.samples().0 >= 3 && measured_at.is_some_and(|at| at + fresh > now)
    }

    /// Sets the rate that the depot's owner lends, new or repeated.
    pub(crate) fn set_advert(
        &mut self,
        now: Timestamp,
        advert: Option<ByteRate>,
        settings: &Settings,
    ) {
        self.advert = advert.or(self.advert);
        self.learn(now, settings);
    }

    /// Moves data to another way, of which this is known. Returns what is known of the one before.
    pub(crate) fn turn_to(&mut self, path: Path, now: Timestamp, settings: &Settings) -> Path {
        let before = core::mem::replace(&mut self.path, path);
        (self.announced, self.moved_samples) = (ByteRate::ZERO, 0);
        self.learn(now, settings);
        before
    }

    /// Records the rate, or lower bound, of transfers. Returns the forecast (p50) before and after,
    /// once it left the last reported one by more than a quarter for three samples.
    pub(crate) fn observe(
        &mut self,
        now: Timestamp,
        rate: ByteRate,
        saturated: bool,
        settings: &Settings,
    ) -> Option<(ByteRate, ByteRate)> {
        // The owner's rate bounds any forecast; bytes above it went into buffers.
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

    /// Records the rate, or lower bound, of a probe.
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

    /// Sets the reserved rate; zero for nothing.
    pub(crate) fn set_reserved(&mut self, now: Timestamp, rate: ByteRate, settings: &Settings) {
        if rate != self.reserved {
            (self.reserved, self.reserved_at) = (rate, now);
            self.carried.clear();
            self.look(now, settings);
        }
    }

    /// Returns whether a measurement now shows nothing about the path beside others.
    fn is_reserved(&self, now: Timestamp) -> bool {
        let is_settling =
            self.reserved_at > Timestamp::default() && now < self.reserved_at + SETTLING;
        self.reserved > ByteRate::ZERO || is_settling
    }

    /// Records the rate of data while rate was reserved.
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

    /// Returns the dependable part of the reserved rate: all of it until all the kept samples show
    /// less.
    fn firm(&self) -> ByteRate {
        let most = self.reserved.min(self.advert.unwrap_or(self.reserved));
        let best = self.carried.iter().copied().max().unwrap_or(most);
        if self.carried.len() < CARRIED_MAX {
            most
        } else {
            most.min(best)
        }
    }

    /// Returns a sample's evidence of the path if rate may be reserved on it without a report yet:
    /// no more than was believed before.
    pub(crate) fn at_most_believed(&self, rate: ByteRate) -> ByteRate {
        rate.min(self.shared.p90)
    }

    /// Returns the believed rate of the path now.
    pub(crate) fn believed(&self, now: Timestamp, settings: &Settings) -> Quantiles {
        self.path
            .forecast(now, settings.forecast_tau)
            .unwrap_or_else(|| settings.prior.quantiles(self.advert))
            .capped(self.advert)
    }

    /// Ages knowledge until now.
    pub(crate) fn look(&mut self, now: Timestamp, settings: &Settings) {
        self.shared = self.believed(now, settings);
        let firm = self.firm();
        self.rates = Quantiles {
            p10: self.shared.p10.max(firm),
            p50: self.shared.p50.max(firm),
            p90: self.shared.p90.max(firm),
        };
    }

    /// Updates the rates after new evidence.
    fn learn(&mut self, now: Timestamp, settings: &Settings) {
        self.look(now, settings);
        let then = self.path.measured_at().unwrap_or(now);
        self.p10_then = self.believed(then, settings).p10;
    }

    /// Returns how the believed rate is known.
    pub(crate) fn knowledge(&self, now: Timestamp, settings: &Settings) -> Knowledge {
        match self.path.measured_by(now, settings.forecast_tau) {
            Some(Measure::Transfers) => Knowledge::Transfers,
            Some(Measure::Probe) => Knowledge::Probe,
            None if self.advert.is_some() => Knowledge::Advertised,
            None => Knowledge::Assumed,
        }
    }

    /// Returns the rate that its owner lends.
    pub(crate) fn advert(&self) -> Option<ByteRate> {
        self.advert
    }

    /// Records that a fragment is on its way.
    pub(crate) fn begin_flight(&mut self, now: Timestamp, flight: &Flight) {
        if self.flights == 0 {
            self.progress_at = now;
        }
        self.flights += 1;
        self.raised += u32::from(flight.is_raised);
        self.in_flight += flight.bytes;
    }

    /// Records that a fragment is no longer on its way.
    pub(crate) fn end_flight(&mut self, flight: &Flight) {
        self.flights -= 1;
        self.raised -= u32::from(flight.is_raised);
        self.in_flight -= flight.bytes;
    }

    /// Returns whether the duration of `bytes` that were in progress until now shows the rate of
    /// the path. With flights of a few bytes it shows one flight's duration, and the path may carry
    /// any number more.
    pub(crate) fn shows_rate(&self, bytes: Bytes) -> bool {
        match self.flights {
            0 => bytes >= FEW,
            flights => self.in_flight >= FEW.times(flights.into()),
        }
    }

    /// Returns the bytes that may be in flight: what the link carries in `span`, as far as memory
    /// allows.
    pub(crate) fn window(&self, span: Duration, settings: &Settings) -> Bytes {
        self.rates.p50.volume(span).min(settings.window_bytes_max)
    }

    /// Returns whether a fragment of `bytes` may start now. Two always may, so that the link never
    /// idles between them; more as long as they fit into the window of `span`.
    pub(crate) fn has_window(&self, bytes: Bytes, span: Duration, settings: &Settings) -> bool {
        let window = self.window(span, settings);
        self.flights < 2
            || (self.flights < settings.flights_max && self.in_flight + bytes <= window)
    }

    /// Returns the microseconds until a fragment of `bytes` started now would be stored (p50).
    pub(crate) fn finish_micros(&self, bytes: Bytes) -> u64 {
        let span = self.rates.p50.time_for(self.in_flight + bytes);
        u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
    }
}
