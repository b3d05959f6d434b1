use core::time::Duration;
use posthaste_forecast::{Prior, Quantiles};
use posthaste_plan::horizon::Effort;
use posthaste_types::{ByteRate, Bytes, record};

use crate::contract::Encode;

record! {
    /// Constants by which the mind decides, with their units. The defaults give their reasons.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Settings {
        /// Interval at which forecasts, fan-out and risk are looked at.
        pub tick: Duration,
        /// Belief about a depot that was not measured yet.
        pub prior: Prior,
        /// Age at which the variance of a measured rate counts double: 10 minutes suit relays, an
        /// hour object stores. A longer one trusts old measurements more, and probes matter less
        /// often.
        pub forecast_tau: Duration,
        /// Time without a measurement after which a usable path is probed.
        pub probe_after: Duration,
        /// Bytes of probes for a request, in thousandths of what is to be sent for it.
        pub probe_permille: u32,
        /// Fewest bytes worth a probe: less ends inside slow start almost everywhere.
        pub probe_bytes_min: Bytes,
        /// Most bytes of one probe.
        pub probe_bytes_max: Bytes,
        /// Forecast (p50) time to the finish below which a request gets no probe: the answer would
        /// come too late.
        pub probe_lead: Duration,
        /// Time after which an unanswered probe is forgotten.
        pub probe_wait: Duration,
        /// Capacity of the centre's uplink, if known.
        pub egress: Option<ByteRate>,
        /// Place where chunks are coded: relays spare the centre's uplink, and each fragment goes
        /// through one machine more.
        pub encode: Encode,
        /// Data in flight to a depot, as time at its p50 rate.
        pub window: Duration,
        /// Data in flight, as such a time, while an optimizer has found, or tries, that more at
        /// once carries more. Slow streams need more than `window` to fill the link.
        pub window_raised: Duration,
        /// Most data in flight to a depot, whatever its rate, unless two fragments are more.
        pub window_bytes_max: Bytes,
        /// Most fragments in flight to a depot.
        pub flights_max: u32,
        /// Most fragments on their way from one depot to another.
        pub push_flights_max: u32,
        /// Most bytes of those, unless two fragments are more: depots have memory too.
        pub push_bytes_max: Bytes,
        /// Most chunks on their way to a destination from others.
        pub deliver_flights_max: u32,
        /// Most of those while the centre sends there: data that is not safe yet goes first.
        pub deliver_flights_fed: u32,
        /// Time without a landing after which a fragment between two depots is given up.
        pub push_wait: Duration,
        /// Most chunks of a request being encoded and sent at once.
        pub stripes_max: u32,
        /// Most bytes of those, unless two chunks are more.
        pub stripes_bytes_max: Bytes,
        /// Ticks behind before a depot is added, and late before that is reported.
        pub behind_ticks: u32,
        /// Ticks far ahead before a depot is dropped.
        pub ahead_ticks: u32,
        /// Ticks on time before a danger is over.
        pub recovered_ticks: u32,
        /// Time without progress after which a depot with fragments in flight is lost.
        pub stall: Duration,
        /// First pause after a send failed; doubles with each consecutive failure.
        pub backoff: Duration,
        /// Longest of those pauses.
        pub backoff_max: Duration,
        /// Consecutive failures to connect that make a depot lost.
        pub unreachable_max: u32,
        /// Other consecutive failures that make a depot lost.
        pub failures_max: u32,
        /// Times a depot may be lost to failing sends without storing anything in between.
        pub fruitless_max: u32,
        /// First rest of a depot that failed though it answers; doubles each time.
        pub hold: Duration,
        /// Longest of those rests.
        pub hold_max: Duration,
        /// Number of depots such that the recent loss of one of them puts new ones in doubt as
        /// well; never if this is 0.
        pub restless_of: u32,
        /// Time after which an unanswered inventory query is repeated.
        pub inventory_wait: Duration,
        /// Time after which past service to a user or project counts half: longer remembers more of
        /// past use, shorter shares what there is now.
        pub share_half_life: Duration,
        /// Number of looks at everything of which one ignores priorities among requests that can't
        /// be on time: fewer give more to low priorities.
        pub fair_looks: u32,
        /// Most requests for which a plan over time is asked; with more of them, or none allowed,
        /// only the greedy plan is used. More find more, and a program takes time by the square of
        /// them.
        pub plan_requests_max: u32,
        /// Most depots of such a plan.
        pub plan_depots_max: u32,
        /// Effort that may be spent on one.
        pub plan_effort: Effort,
        /// Time from one to the next; doubles, up to `plan_every_max`, while none gains anything.
        pub plan_every: Duration,
        /// Longest of those times.
        pub plan_every_max: Duration,
        /// Time after which an unanswered plan is no longer awaited.
        pub plan_wait: Duration,
        /// Most newcomers that may wait for a plan at once.
        pub plan_held_max: u32,
        /// Most decisions remembered for each request.
        pub decisions_max: u32,
        /// Most finished requests remembered.
        pub finished_max: u32,
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            // The paper re-plans every 1 to 5 s (`docs/algorithms/greedy-planner.md`); a plan must change within a second.
            tick: Duration::from_secs(1),
            // Prior: from a busy home line to a data-centre port, centred on one hard disk's share.
            // Wide on purpose: the first request is admitted and watched.
            prior: Prior {
                unknown: Quantiles {
                    p10: ByteRate::new(4 << 20),
                    p50: ByteRate::new(32 << 20),
                    p90: ByteRate::new(1 << 30),
                },
                advert_p10_permille: 750,
                advert_p50_permille: 950,
            },
            forecast_tau: Duration::from_secs(600),
            // The notes' rule (`docs/algorithms/bandwidth-forecast.md`).
            probe_after: Duration::from_secs(300),
            probe_permille: 10,
            probe_bytes_min: Bytes::mebi(4),
            // Size that a relay's sink accepts at once.
            probe_bytes_max: Bytes::mebi(256),
            // Six times the duration of a probe, so that most of the request can profit.
            probe_lead: Duration::from_secs(30),
            // A probe lasts 20 s at most; the rest is for connecting and failing to.
            probe_wait: Duration::from_secs(60),
            egress: None,
            encode: Encode::Centre,
            // Long enough to hide a round trip and a late acknowledgement, short enough that a
            // decision bites within seconds.
            window: Duration::from_secs(2),
            // Room for the doubling that a search tries: a higher rate widens the window itself.
            // More than that would keep more urgent requests waiting.
            window_raised: Duration::from_secs(4),
            // The driver holds encoded stripes in memory.
            window_bytes_max: Bytes::mebi(256),
            flights_max: 256,
            // Enough to hide a round trip at a few fragments a second.
            push_flights_max: 4,
            push_bytes_max: Bytes::mebi(64),
            // A relay rebuilds each of them in memory.
            deliver_flights_max: 4,
            deliver_flights_fed: 1,
            // A fragment of 32 MiB over a line of half a megabit a second.
            push_wait: Duration::from_secs(600),
            stripes_max: 32,
            stripes_bytes_max: Bytes::mebi(512),
            // The paper's greedy rule, `docs/algorithms/greedy-planner.md`.
            behind_ticks: 2,
            ahead_ticks: 12,
            recovered_ticks: 3,
            stall: Duration::from_secs(10),
            // A relay restarts in about a second; a store under load asks for seconds.
            backoff: Duration::from_millis(250),
            backoff_max: Duration::from_secs(30),
            unreachable_max: 3,
            failures_max: 5,
            // With doubling holds that is most of an hour of trying.
            fruitless_max: 8,
            hold: Duration::from_secs(5),
            hold_max: Duration::from_secs(300),
            // One loss in a dozen may be an accident if all depots are new: it then costs some more
            // depots at once.
            restless_of: 20,
            // Listing 10^6 fragments at an object store takes about this long.
            inventory_wait: Duration::from_secs(60),
            // Slurm's default for shares of processors: a week.
            share_half_life: Duration::from_secs(7 * 86400),
            fair_looks: 8,
            // 20 relays, 50 requests and 96 slots are what `docs/benchmarks/plan.md` measures as seconds.
            plan_requests_max: 50,
            plan_depots_max: 20,
            // Half a second each at most, and mostly one is enough.
            plan_effort: Effort {
                programs: 6,
                columns: 4000,
            },
            // The paper re-plans every 1 to 5 s.
            plan_every: Duration::from_secs(5),
            plan_every_max: Duration::from_secs(80),
            // Twice what the largest effort takes.
            plan_wait: Duration::from_secs(6),
            plan_held_max: 16,
            decisions_max: 256,
            finished_max: 1000,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthaste_types::Record;

    #[test]
    fn settings_come_back_as_they_were_written() {
        let settings = Settings::default();
        assert_eq!(Settings::from_bytes(&settings.to_bytes()), Ok(settings));
    }
}
