//! Agents that know nothing of each other share one modelled link.

use core::time::Duration;
use posthaste_plan::tuner::{
    Bounds, Choice, Class, Method, Optimizer, PathFacts, Probe, Reason, Stocks, Tuner, Urgency,
    optimizer,
};
use posthaste_types::Bytes;

/// A link that streams share evenly; each is limited by its window, and costs a little of the
/// capacity.
#[derive(Clone, Copy)]
struct Link {
    /// Bytes a second.
    capacity: u64,
    /// Most that one stream carries, in bytes a second.
    stream: u64,
    /// Largest error of a measurement, in thousandths.
    noise_permille: u64,
    /// State of the noise.
    seed: u64,
}

/// Capacity lost for each stream, in millionths: 256 streams cost a twentieth.
const OVERHEAD_PPM: u64 = 200;

/// Slow and fast links, limited by the link or by the streams.
const LINKS: [(u64, u64); 5] = [
    (125_000_000, 2_000_000),
    (125_000_000, 10_000_000),
    (125_000_000, 125_000_000),
    (1_250_000_000, 4_000_000),
    (1_250_000_000, 60_000_000),
];

const FACTS: PathFacts = PathFacts {
    rtt: Duration::from_millis(30),
    bandwidth: None,
    buffer: Bytes::mebi(4),
    cores: 4,
    piece: Bytes::ZERO,
};

const BOUNDS: Bounds = Bounds {
    concurrency_min: 1,
    concurrency_max: 64,
    parallelism_max: 16,
    pipelining_max: 32,
};

/// Seconds between the starts of two agents.
const APART_S: usize = 20;
/// Seconds after which the last agent has its share.
const SETTLED_S: usize = 60;

impl Link {
    fn of((capacity, stream): (u64, u64), noise_permille: u64, seed: u64) -> Self {
        Self {
            capacity,
            stream,
            noise_permille,
            seed: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        }
    }

    /// Draws a number below `limit`; xorshift64.
    fn random(&mut self, limit: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % limit
    }

    /// Returns each agent's rate with these streams.
    fn carry(&mut self, streams: &[u64]) -> Vec<u64> {
        let all: u64 = streams.iter().sum();
        let capacity = self.capacity * 1_000_000 / (1_000_000 + all * OVERHEAD_PPM);
        let each = self.stream.min(capacity / all.max(1));
        let noisy = |count: &u64| {
            let noise = self.random(2 * self.noise_permille + 1);
            count * each * (1000 + noise - self.noise_permille) / 1000
        };
        streams.iter().map(noisy).collect()
    }
}

/// A transfer and its optimizer.
struct Agent {
    tuner: Tuner,
    start_s: usize,
    choice: Option<Choice>,
    age_s: u64,
    moved: u64,
    reasons: Vec<Reason>,
}

/// Returns far more files than are moved here.
fn stocks() -> Stocks {
    let mut stocks = Stocks::default();
    (0..5000).for_each(|_| stocks.add(Class::Huge, Bytes::mebi(2048)));
    stocks
}

impl Agent {
    fn new(method: Method, urgency: Urgency, start_s: usize) -> Self {
        Self {
            tuner: optimizer(method, FACTS, BOUNDS, None, urgency),
            start_s,
            choice: None,
            age_s: 0,
            moved: 0,
            reasons: Vec::new(),
        }
    }

    fn streams(&self) -> u64 {
        let setting = self.choice.as_ref().map(Choice::setting);
        setting.map_or(0, |setting| setting.streams().into())
    }

    fn take(&mut self, choice: Choice) {
        self.reasons.push(choice.reason);
        self.choice = Some(choice);
        (self.age_s, self.moved) = (0, 0);
    }

    /// Passes one second in which `carried` bytes arrived.
    fn pass(&mut self, now_s: usize, carried: u64, stocks: &Stocks) {
        let Some(choice) = &self.choice else {
            if now_s >= self.start_s {
                let choice = self.tuner.first(stocks);
                self.take(choice);
            }
            return;
        };
        self.age_s += 1;
        if self.age_s > choice.skip.as_secs() {
            self.moved += carried;
        }
        if self.age_s >= (choice.skip + choice.probe).as_secs() {
            let probe = Probe {
                setting: choice.setting(),
                elapsed: choice.probe,
                bytes: Bytes::new(self.moved),
                lost_permille: None,
            };
            let choice = self.tuner.on_probe(&probe, stocks);
            self.take(choice);
        }
    }
}

/// Continues for these seconds; returns each agent's bytes in each.
fn play(link: &mut Link, agents: &mut [Agent], seconds: core::ops::Range<usize>) -> Vec<Vec<u64>> {
    let stocks = stocks();
    let mut history = Vec::new();
    for now_s in seconds {
        let streams: Vec<u64> = agents.iter().map(Agent::streams).collect();
        let carried = link.carry(&streams);
        for (agent, &carried) in agents.iter_mut().zip(&carried) {
            agent.pass(now_s, carried, &stocks);
        }
        history.push(carried);
    }
    history
}

/// Returns each agent's bytes in these seconds.
fn carried(history: &[Vec<u64>], seconds: core::ops::Range<usize>) -> Vec<u64> {
    let agents = 0..history[0].len();
    let sum = |agent: usize| {
        history[seconds.clone()]
            .iter()
            .map(|second| second[agent])
            .sum()
    };
    agents.map(sum).collect()
}

/// Returns Jain's index in thousandths: 1000 when all are equal.
fn jain_permille(shares: &[u64]) -> u128 {
    let sum: u128 = shares.iter().map(|&share| u128::from(share)).sum();
    let squares: u128 = shares.iter().map(|&share| u128::from(share).pow(2)).sum();
    sum * sum * 1000 / (squares * shares.len() as u128).max(1)
}

/// Plays `count` agents that start one after another.
///
/// Returns Jain's index in the last ten seconds of the first minute after the last start, and in
/// the two minutes after that, and the use of the link in the latter, in percent.
fn share(method: Method, mut link: Link, count: usize) -> (u128, u128, u64) {
    let start = |place| Agent::new(method, Urgency::Normal, place * APART_S);
    let mut agents: Vec<Agent> = (0..count).map(start).collect();
    let all_there = (count - 1) * APART_S;
    let history = play(&mut link, &mut agents, 0..all_there + 3 * SETTLED_S);
    let settled = all_there + SETTLED_S;
    let soon = carried(&history, settled - 10..settled);
    let later = carried(&history, settled..all_there + 3 * SETTLED_S);
    let used = later.iter().sum::<u64>() / (2 * SETTLED_S as u64) * 100 / link.capacity;
    (jain_permille(&soon), jain_permille(&later), used)
}

#[test]
fn two_to_four_auto_agents_share_a_link_within_a_minute() {
    for noise_permille in [0, 30, 100] {
        for (of, seed) in LINKS
            .into_iter()
            .flat_map(|of| (1..=8).map(move |seed| (of, seed)))
        {
            for count in 2..=4 {
                let link = Link::of(of, noise_permille, seed);
                let (soon, later, used) = share(Method::Auto, link, count);
                let which =
                    format!("{count} agents on {of:?}, noise {noise_permille}, seed {seed}");
                assert!(soon >= 900, "{which}: index {soon} after a minute");
                assert!(later >= 900, "{which}: index {later} later");
                assert!(used >= 75, "{which}: {used} % used");
            }
        }
    }
}

/// Falcon's rule alone is fair if each file is slow by itself, as in its authors' tests, and
/// measurements are accurate.
#[test]
fn falcon_agents_share_a_link_of_slow_streams() {
    for seed in 1..=8 {
        for count in 2..=4 {
            let quiet = Link::of((1_250_000_000, 4_000_000), 0, seed);
            let (soon, ..) = share(Method::Falcon, quiet, count);
            assert!(soon >= 900, "{count} agents, seed {seed}: index {soon}");
            let noisy = Link::of((1_250_000_000, 4_000_000), 5, seed);
            let (_, later, used) = share(Method::Falcon, noisy, count);
            assert!(
                later >= 900,
                "{count} agents, seed {seed}: index {later} later"
            );
            assert!(used >= 75, "{count} agents, seed {seed}: {used} % used");
        }
    }
}

#[test]
fn alone_an_agent_fills_the_link_and_notices_when_it_changes() {
    for (of, seed) in LINKS
        .into_iter()
        .flat_map(|of| (1..=8).map(move |seed| (of, seed)))
    {
        let mut link = Link::of(of, 30, seed);
        let mut agents = [Agent::new(Method::Auto, Urgency::Normal, 0)];
        let used = |history: &[Vec<u64>], link: &Link| {
            let last = history.len() - 30..history.len();
            // 128 streams carry all of it.
            let most = link.capacity.min(128 * link.stream);
            carried(history, last)[0] / 30 * 100 / most
        };
        let before = used(&play(&mut link, &mut agents, 0..90), &link);
        assert!(before >= 80, "{of:?}, seed {seed}: {before} % used");
        // A third of the link is left, and each stream is a third as fast.
        (link.capacity, link.stream) = (link.capacity / 3, link.stream / 3);
        let after = used(&play(&mut link, &mut agents, 90..210), &link);
        assert!(
            after >= 80,
            "{of:?}, seed {seed}: {after} % used after the change"
        );
        let has_moved = |reason: &Reason| matches!(reason, Reason::Moved { .. });
        assert!(
            agents[0].reasons.iter().any(has_moved),
            "{of:?}, seed {seed}"
        );
    }
}

#[test]
fn who_is_in_the_background_gets_less_than_who_is_late() {
    for of in LINKS {
        let mut sums = [0, 0];
        for seed in 1..=20 {
            let mut link = Link::of(of, 30, seed);
            let mut agents = [
                Agent::new(Method::Auto, Urgency::Background, 0),
                Agent::new(Method::Auto, Urgency::Late, APART_S),
            ];
            let history = play(&mut link, &mut agents, 0..240);
            let shares = carried(&history, 120..240);
            sums = [sums[0] + shares[0], sums[1] + shares[1]];
        }
        // If the link is wide enough for both, both get all they can use.
        assert!(sums[0] <= sums[1], "{of:?}: {sums:?}");
    }
}
