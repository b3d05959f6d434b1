//! Properties of every optimizer, for any input.

use core::time::Duration;
use posthaste_plan::tuner::{
    Bounds, Choice, Class, ClassSet, Method, Optimizer, PathFacts, Probe, Setting, Stocks, Tuner,
    Urgency, optimizer,
};
use posthaste_types::{ByteRate, Bytes, Record};
use proptest::prelude::*;

/// A path, and the files to move over it.
#[derive(Debug, Clone)]
struct World {
    method: Method,
    facts: PathFacts,
    bounds: Bounds,
    history: Option<Setting>,
    urgency: Urgency,
    files: Vec<(u64, u64)>,
}

/// A period: its length, bytes, losses, and the share of each class that is done.
type Period = (u64, u64, Option<u16>, u64, bool);

fn stocks(facts: &PathFacts, files: &[(u64, u64)], done_of_eight: u64) -> Stocks {
    let mut stocks = Stocks::default();
    for &(count, size) in files {
        let size = Bytes::new(size);
        let left = count - count * done_of_eight / 8;
        (0..left).for_each(|_| stocks.add(facts.class(size), size));
    }
    stocks
}

fn method() -> impl Strategy<Value = Method> {
    let fixed =
        (1u16..200, 1u16..200, 1u16..200).prop_map(|(concurrency, parallelism, pipelining)| {
            let setting = Setting::new(concurrency, parallelism, pipelining);
            Method::Fixed { setting }
        });
    let named = (0..Method::NAMES.len()).prop_map(|place| Method::NAMES[place].1);
    prop_oneof![1 => fixed, 8 => named]
}

fn world() -> impl Strategy<Value = World> {
    let facts = (
        0u64..400_000,
        proptest::option::of(0u64..20_000_000_000),
        0u64..100_000_000,
        0u16..64,
    );
    let facts = facts.prop_map(|(rtt_us, bandwidth, buffer, cores)| PathFacts {
        rtt: Duration::from_micros(rtt_us),
        bandwidth: bandwidth.map(ByteRate::new),
        buffer: Bytes::new(buffer),
        cores,
        piece: Bytes::ZERO,
    });
    let bounds =
        (1u16..130, 1u16..40, 1u16..130).prop_map(|(concurrency, parallelism, pipelining)| {
            Bounds {
                concurrency_min: 1,
                concurrency_max: concurrency,
                parallelism_max: parallelism,
                pipelining_max: pipelining,
            }
        });
    let history = proptest::option::of((1u16..300, 1u16..300, 1u16..300))
        .prop_map(|history| history.map(|(one, two, three)| Setting::new(one, two, three)));
    let urgency = prop_oneof![
        Just(Urgency::Background),
        Just(Urgency::Normal),
        Just(Urgency::Late)
    ];
    let files = proptest::collection::vec((0u64..60, 0u64..(1 << 34)), 0..4);
    (method(), facts, bounds, history, urgency, files).prop_map(
        |(method, facts, bounds, history, urgency, files)| World {
            method,
            facts,
            bounds,
            history,
            urgency,
            files,
        },
    )
}

fn periods() -> impl Strategy<Value = Vec<Period>> {
    let lost = proptest::option::of(0u16..1100);
    let period = (
        0u64..5_000_000,
        0u64..(1 << 36),
        lost,
        0u64..9,
        any::<bool>(),
    );
    proptest::collection::vec(period, 0..60)
}

fn assert_within(choice: &Choice, bounds: &Bounds, stocks: &Stocks) {
    assert!(!choice.shares.is_empty(), "nothing moves");
    let mut seen = ClassSet::NONE;
    let mut channels = 0u32;
    for share in &choice.shares {
        assert_eq!(bounds.clamp(share.setting), share.setting, "{choice:?}");
        assert!(share.channels > 0, "{choice:?}");
        assert!(!share.classes.is_empty(), "{choice:?}");
        let twice = share.classes.iter().any(|class| seen.contains(class));
        assert!(!twice, "a class is in two shares: {choice:?}");
        seen = seen.union(share.classes);
        channels += u32::from(share.channels);
    }
    assert!(channels <= u32::from(bounds.concurrency_max), "{choice:?}");
    let present = stocks.present();
    let is_fed = present.iter().any(|class| seen.contains(class));
    assert!(
        present.is_empty() || is_fed,
        "what is there waits: {choice:?}"
    );
    assert!(choice.probe > Duration::ZERO);
    assert!(!format!("{}", choice.reason).is_empty());
}

fn next(tuner: &mut Tuner, choice: &Choice, period: &Period, stocks: &Stocks) -> Choice {
    let &(elapsed_us, bytes, lost_permille, _, is_late) = period;
    if is_late {
        tuner.set_urgency(Urgency::Late);
    }
    let probe = Probe {
        setting: choice.setting(),
        elapsed: Duration::from_micros(elapsed_us),
        bytes: Bytes::new(bytes),
        lost_permille,
    };
    tuner.on_probe(&probe, stocks)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn no_choice_is_outside_its_bounds_and_the_same_input_gives_the_same_choice(
        world in world(),
        periods in periods(),
    ) {
        let World { method, facts, bounds, history, urgency, ref files } = world;
        let start = || optimizer(method, facts, bounds, history, urgency);
        let (mut tuner, mut twin) = (start(), start());
        let mut left = stocks(&facts, files, 0);
        let mut choice = tuner.first(&left);
        assert_within(&choice, &bounds, &left);
        prop_assert_eq!(&twin.first(&left), &choice);
        for period in &periods {
            left = stocks(&facts, files, period.3);
            let chosen = next(&mut tuner, &choice, period, &left);
            // The twin sleeps between periods.
            twin = Tuner::from_bytes(&twin.to_bytes()).unwrap();
            let same = next(&mut twin, &choice, period, &left);
            prop_assert_eq!(&same, &chosen);
            choice = chosen;
            assert_within(&choice, &bounds, &left);
            if let Some(best) = tuner.best() {
                prop_assert_eq!(bounds.clamp(best), best);
            }
        }
        prop_assert_eq!(tuner, twin);
    }

    #[test]
    fn merged_classes_cover_what_is_there_once_and_none_is_slight(
        sizes in proptest::collection::vec((1u64..50, 1u64..(1 << 32)), 0..6),
        bdp in 1u64..(1 << 30),
    ) {
        let bdp = Bytes::new(bdp);
        let mut stocks = Stocks::default();
        for &(count, size) in &sizes {
            let size = Bytes::new(size);
            (0..count).for_each(|_| stocks.add(Class::of(size, bdp), size));
        }
        let groups = stocks.merged(bdp);
        let mut seen = ClassSet::NONE;
        for &(class, classes) in &groups {
            prop_assert!(classes.contains(class));
            prop_assert!(classes.iter().all(|class| !seen.contains(class)));
            seen = seen.union(classes);
            let stock = stocks.sum(classes);
            let is_slight = stock.files < 2 || stock.bytes < bdp.times(5);
            prop_assert!(!is_slight || groups.len() == 1);
        }
        prop_assert_eq!(seen, stocks.present());
    }
}

/// Checks the default's result against the best of all settings within a doubling of the start,
/// where files at once and streams per file each have one peak.
#[test]
fn the_search_finds_what_trying_everything_finds() {
    let facts = PathFacts {
        rtt: Duration::from_millis(5),
        bandwidth: None,
        buffer: Bytes::mebi(4),
        cores: 4,
        piece: Bytes::ZERO,
    };
    let bounds = Bounds {
        concurrency_min: 1,
        concurrency_max: 64,
        parallelism_max: 8,
        pipelining_max: 1,
    };
    let mut left = Stocks::default();
    (0..1000).for_each(|_| left.add(Class::Huge, Bytes::mebi(1024)));
    for (files, streams) in [4u16, 8, 16]
        .into_iter()
        .flat_map(|files| [1u16, 2, 4].map(|streams| (files, streams)))
    {
        let height = |value: u16, peak: u16| {
            let off = value.ilog2().abs_diff(peak.ilog2());
            100 - 25 * u64::from(off.min(3))
        };
        let carried = |setting: Setting| {
            100_000 * height(setting.concurrency, files) * height(setting.parallelism, streams)
        };
        let around = [4u16, 8, 16]
            .into_iter()
            .flat_map(|files| [1u16, 2, 4].map(|streams| Setting::new(files, streams, 1)));
        let best = around.max_by_key(|&setting| carried(setting)).unwrap();
        let mut tuner = optimizer(Method::Auto, facts, bounds, None, Urgency::Normal);
        let mut choice = tuner.first(&left);
        assert_eq!(choice.setting(), Setting::new(8, 2, 1));
        for _ in 0..8 {
            let rate = ByteRate::new(carried(choice.setting()));
            let probe = Probe {
                setting: choice.setting(),
                elapsed: choice.probe,
                bytes: rate.volume(choice.probe),
                lost_permille: None,
            };
            choice = tuner.on_probe(&probe, &left);
        }
        assert_eq!(
            tuner.best(),
            Some(best),
            "peak at {files} files, {streams} streams"
        );
    }
}

#[test]
fn the_last_files_get_the_streams_of_those_that_are_done() {
    let facts = PathFacts {
        rtt: Duration::from_millis(60),
        bandwidth: None,
        buffer: Bytes::mebi(4),
        cores: 2,
        piece: Bytes::ZERO,
    };
    let bounds = Bounds {
        concurrency_min: 1,
        concurrency_max: 64,
        parallelism_max: 64,
        pipelining_max: 16,
    };
    let mut tuner = optimizer(Method::Auto, facts, bounds, None, Urgency::Normal);
    let all = stocks(&facts, &[(1_000, 100 << 10), (2, 200 << 20)], 0);
    let first = tuner.first(&all).setting();
    assert_eq!(first.streams(), 64, "{first}");
    let last = stocks(&facts, &[(2, 200 << 20)], 0);
    let probe = Probe {
        setting: first,
        elapsed: Duration::from_secs(3),
        bytes: Bytes::mebi(300),
        lost_permille: None,
    };
    let then = tuner.on_probe(&probe, &last).setting();
    assert_eq!((then.concurrency, then.parallelism), (2, 32));
}
