//! Late fragments at the end are sent, or asked for, once more if that takes half the time.

use std::{collections::BTreeSet, mem, time::Duration};

use crate::support::desk::Desk;
use posthaste_core::{Settings, contract::*};
use posthaste_types::{ByteRate, Bytes, ChunkIndex, DepotId, FragmentIndex, RequestId, Timestamp};

const REQUEST: RequestId = RequestId::new(1);
/// The depot whose path becomes slow.
const SLOW: DepotId = DepotId::new(1);
const MEBI: u64 = 1 << 20;
/// Price of one PUT in each test with a budget.
const PUT_MICRO_USD: u64 = 6;

type Sent = (DepotId, ChunkIndex, FragmentIndex);

/// A request whose depots store what they get within a second, but for what the slow one is late with.
struct Run {
    desk: Desk,
    /// Number of sends that were looked at.
    seen: usize,
    under_way: Vec<Sent>,
    /// Number of late ones among the first sends to the slow depot.
    late: usize,
    held: Vec<Sent>,
    slow: ByteRate,
}

impl Run {
    fn new(spec: impl Fn(&Desk) -> RequestSpec, wishes: Wishes, late: usize, slow: u64) -> Self {
        let mut desk = Desk::new(Settings::default());
        for number in 1..=3 {
            desk.give(Input::DepotPriced {
                depot: DepotId::new(number),
                prices: DepotPrices {
                    put_micro_usd: PUT_MICRO_USD * 1000,
                    ..DepotPrices::default()
                },
            });
        }
        let spec = spec(&desk);
        desk.give(Input::RequestAsked {
            request: REQUEST,
            spec,
            optimizer: Method::Auto,
            wishes,
        });
        Self {
            desk,
            seen: 0,
            under_way: Vec::new(),
            late,
            held: Vec::new(),
            slow: ByteRate::new(slow),
        }
    }

    /// Sorts what was sent into what will be stored and what is late.
    fn note(&mut self) {
        let sent = self.desk.sent.iter().zip(&self.desk.pieces);
        for ((_, depot), (chunk, fragment)) in sent.skip(self.seen) {
            let sent = (*depot, *chunk, *fragment);
            if *depot == SLOW && self.held.len() < self.late {
                self.held.push(sent);
            } else {
                self.under_way.push(sent);
            }
        }
        self.seen = self.desk.sent.len();
    }

    fn store(&mut self, (depot, chunk, fragment): Sent) {
        self.desk.give(Input::FragmentStored {
            request: REQUEST,
            depot,
            chunk,
            fragment,
        });
    }

    /// Stores everything under way, and measures each path. Nothing that was recalled had not left.
    fn pass(&mut self) {
        self.note();
        for sent in mem::take(&mut self.under_way) {
            self.store(sent);
        }
        for number in 1..=3 {
            let depot = DepotId::new(number);
            let rate = match depot {
                SLOW => self.slow,
                _ => ByteRate::new(10 * MEBI),
            };
            self.desk.give(Input::Throughput {
                depot,
                bytes: rate.volume(Duration::from_secs(1)),
                window: Duration::from_secs(1),
                saturated: true,
            });
        }
        self.desk.wait(Duration::from_secs(1));
        self.note();
    }

    /// Lets time pass until something is sent twice, half a minute at most after the rest is through. Returns what is.
    fn until_twice(&mut self) -> Vec<Sent> {
        for _ in 0..60 {
            self.pass();
            if !self.twice().is_empty() {
                break;
            }
        }
        self.twice()
    }

    /// Returns the fragments sent again because they were late.
    fn twice(&self) -> Vec<Sent> {
        let sent = self.desk.sent.iter().zip(&self.desk.pieces);
        let sent = sent.zip(&self.desk.whys);
        let late = sent.filter(|(_, why)| **why == Reason::Endgame);
        late.map(|(((_, depot), (chunk, fragment)), _)| (*depot, *chunk, *fragment))
            .collect()
    }

    fn view(&self) -> RequestView {
        self.desk.mind.request(REQUEST).unwrap()
    }

    /// Chunks that are not safe.
    fn missing(&self) -> u64 {
        let view = self.view();
        view.spec.bytes.get() / view.spec.chunk_size.get() - u64::from(view.chunks_safe)
    }

    fn fed(&self) -> usize {
        self.view()
            .shares
            .iter()
            .filter(|share| share.active)
            .count()
    }

    fn times_safe(&self) -> usize {
        let said = self.desk.said.iter();
        let safe = said.filter(|(_, happening, _)| matches!(happening, Happening::Safe { .. }));
        safe.count()
    }
}

/// So much that all three depots are needed, in chunks of so much.
fn over_three(chunk_mebi: u64) -> impl Fn(&Desk) -> RequestSpec {
    move |desk| RequestSpec {
        chunk_size: Bytes::mebi(chunk_mebi),
        ..desk.spec(480, 25, &[1, 2, 3])
    }
}

#[test]
fn a_late_fragment_is_sent_once_more_where_that_takes_half_the_time() {
    // What is left of 4 MiB takes a second at 4 MiB/s and two thirds of one at 6; another depot takes 0.4 s.
    for (slow, is_sent) in [(4, true), (6, false)] {
        let mut run = Run::new(over_three(4), Wishes::default(), 1, slow * MEBI);
        let twice = run.until_twice();
        let (_, chunk, fragment) = run.held[0];
        let pieces: Vec<_> = twice.iter().map(|sent| (sent.1, sent.2)).collect();
        let expected = if is_sent {
            vec![(chunk, fragment)]
        } else {
            vec![]
        };
        assert_eq!(pieces, expected, "{slow} MiB/s");
        assert!(twice.iter().all(|(depot, ..)| *depot != SLOW));
        assert_eq!(run.view().state, RequestState::Moving);
        assert_eq!(run.missing(), 1, "everything else went first");
    }
}

#[test]
fn the_first_copy_counts_and_the_other_changes_nothing() {
    for is_late_one_first in [false, true] {
        let mut run = Run::new(over_three(4), Wishes::default(), 1, MEBI);
        let (late, again) = (run.until_twice()[0], run.held[0]);
        let (first, second) = match is_late_one_first {
            true => (again, late),
            false => (late, again),
        };
        run.under_way.clear();
        run.store(first);
        assert_eq!((run.view().state, run.missing()), (RequestState::Safe, 0));
        run.store(second);
        run.pass();
        assert_eq!((run.view().state, run.missing()), (RequestState::Safe, 0));
        assert_eq!(run.times_safe(), 1);
        assert_eq!(run.twice().len(), 1);
        let story = run.desk.mind.story(REQUEST).unwrap();
        let told = "One late send was made a second time, where that was faster.";
        assert!(story.iter().any(|line| line == told), "{story:?}");
    }
}

#[test]
fn no_more_than_twice_the_fan_out_is_sent_twice() {
    let mut run = Run::new(over_three(1), Wishes::default(), 8, MEBI / 4);
    run.until_twice();
    assert_eq!(run.held.len(), 8);
    for _ in 0..10 {
        run.pass();
    }
    let twice = run.twice();
    assert_eq!(run.fed(), 3);
    assert_eq!(twice.len(), 6, "{twice:?}");
    let chunks: BTreeSet<ChunkIndex> = twice.iter().map(|(_, chunk, _)| *chunk).collect();
    assert_eq!(chunks.len(), 6, "each another one");
    assert_eq!(run.missing(), 2, "what stays late is waited for");
    let story = run.desk.mind.story(REQUEST).unwrap().join("\n");
    assert!(
        story.contains("6 late sends were made a second time"),
        "{story}"
    );
}

#[test]
fn a_second_copy_is_sent_only_where_the_budget_leaves_the_rest_its_money() {
    for (spare, is_sent) in [(2, true), (1, false)] {
        let wishes = Wishes {
            // 120 fragments, and what a second copy of one of them may take.
            budget_micro_usd: Some((120 + spare) * PUT_MICRO_USD),
            keep_until: Some(Timestamp::default()),
            ..Wishes::default()
        };
        let mut run = Run::new(over_three(4), wishes, 1, MEBI);
        let twice = run.until_twice();
        assert_eq!(!twice.is_empty(), is_sent, "{spare}");
        assert_eq!(run.missing(), 1);
    }
}

/// Chunks that go whole to the slow depot, or in halves to the two others.
fn whole_or_coded(desk: &Desk) -> RequestSpec {
    RequestSpec {
        code: "2+0".parse().unwrap(),
        destinations: vec![SLOW],
        ..desk.spec(480, 35, &[2, 3])
    }
}

#[test]
fn a_chunk_that_is_late_on_its_way_to_the_destination_goes_coded_to_depots() {
    let mut run = Run::new(whole_or_coded, Wishes::default(), 1, MEBI);
    let twice = run.until_twice();
    let (depot, chunk, whole) = run.held[0];
    assert_eq!((depot, whole), (SLOW, FragmentIndex::WHOLE));
    let halves = [2, 3].map(|number| {
        let fragment = FragmentIndex::new(number - 2);
        (DepotId::new(number.into()), chunk, fragment)
    });
    assert_eq!(twice, halves);
    run.pass();
    assert_eq!((run.view().state, run.missing()), (RequestState::Safe, 0));
    run.store(run.held[0]);
    run.pass();
    assert_eq!(run.times_safe(), 1);
    assert_eq!(run.twice().len(), 2);
}

#[test]
fn what_is_held_to_a_rate_or_a_budget_waits_for_its_late_chunk() {
    let bounds = [
        Wishes {
            rate_max: Some(ByteRate::new(25 * MEBI)),
            ..Wishes::default()
        },
        Wishes {
            budget_micro_usd: Some(1_000_000),
            keep_until: Some(Timestamp::default()),
            ..Wishes::default()
        },
    ];
    for wishes in bounds {
        let mut run = Run::new(whole_or_coded, wishes, 1, MEBI);
        assert_eq!(run.until_twice(), []);
        assert_eq!(run.held[0].2, FragmentIndex::WHOLE);
        assert_eq!(run.missing(), 1);
    }
}

#[test]
fn second_copies_keep_the_rate_too() {
    let mut run = Run::new(over_three(1), Wishes::default(), 8, MEBI / 4);
    while run.missing() > 60 {
        run.pass();
    }
    run.desk.give(Input::RateLimited {
        request: REQUEST,
        rate_max: Some(ByteRate::new(MEBI)),
    });
    let mut in_each = Vec::new();
    for _ in 0..90 {
        let before = run.twice().len();
        run.pass();
        in_each.push(run.twice().len() - before);
    }
    assert_eq!(in_each.iter().sum::<usize>(), 6);
    assert!(
        in_each.iter().all(|count| *count <= 1),
        "a chunk a second: {in_each:?}"
    );
}
