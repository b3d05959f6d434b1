use core::time::Duration;
use posthaste_forecast::{Prior, Quantiles, Series};
use posthaste_types::{ByteRate, Bytes, Timestamp, record};

use crate::Settings;

record! {
    /// The way from the centre to one depot: what it carries and what is on it.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub(crate) struct Link {
        series: Series,
        advert: Option<ByteRate>,
        /// The forecast, kept because every placement asks for it.
        pub(crate) rates: Quantiles,
        /// Bytes of all fragments in flight.
        pub(crate) in_flight: Bytes,
        /// Fragments in flight.
        pub(crate) flights: u32,
        /// When something was last seen to move, or the link last began to be used.
        pub(crate) progress_at: Timestamp,
        announced: ByteRate,
        moved_samples: u32,
    }
}

/// Samples beyond the band below before a moved forecast is said (`docs/algorithms/greedy-planner.md`).
const MOVED_SAMPLES: u32 = 3;

impl Link {
    pub(crate) fn new(advert: Option<ByteRate>, prior: &Prior) -> Self {
        Self {
            series: Series::default(),
            advert,
            rates: prior.quantiles(advert),
            in_flight: Bytes::ZERO,
            flights: 0,
            progress_at: Timestamp::default(),
            announced: ByteRate::ZERO,
            moved_samples: 0,
        }
    }

    pub(crate) fn is_measured(&self) -> bool {
        self.series.is_measured()
    }

    /// The rate the depot's owner lends changed, or was said again.
    pub(crate) fn set_advert(&mut self, advert: Option<ByteRate>, prior: &Prior) {
        self.advert = advert.or(self.advert);
        self.forecast_again(prior);
    }

    /// Takes a measurement. Returns the forecast (p50) before and after once it left the last one
    /// told by more than a quarter for three samples.
    pub(crate) fn observe(
        &mut self,
        rate: ByteRate,
        saturated: bool,
        prior: &Prior,
    ) -> Option<(ByteRate, ByteRate)> {
        if saturated {
            self.series.observe(rate);
        } else {
            self.series.observe_censored(rate, self.rates.p50);
        }
        self.forecast_again(prior);
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

    fn forecast_again(&mut self, prior: &Prior) {
        let forecast = self
            .series
            .forecast()
            .unwrap_or_else(|| prior.quantiles(self.advert));
        self.rates = forecast.capped(self.advert);
    }

    /// What its owner says that it takes.
    pub(crate) fn advert(&self) -> Option<ByteRate> {
        self.advert
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
