use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

impl Keyed for String {
    fn key(&self) -> &str {
        self
    }
}

/// Behaviour of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Right,
    /// Ignores the requested start.
    Forgetful,
    /// Refuses any start.
    Refusing,
    /// Has an order of its own.
    Disorderly,
}

/// Store with these keys.
struct Model {
    keys: Vec<String>,
    page_keys: usize,
    manner: Manner,
}

impl Model {
    fn new(keys: impl IntoIterator<Item = String>, page_keys: usize, manner: Manner) -> Self {
        let sorted: BTreeSet<String> = keys.into_iter().collect();
        let mut keys: Vec<String> = sorted.into_iter().collect();
        if manner == Manner::Disorderly {
            keys.sort_by_key(|key| key.bytes().rev().collect::<Vec<u8>>());
        }
        Self {
            keys,
            page_keys,
            manner,
        }
    }

    fn page(&self, start: &Start) -> Option<(Vec<String>, Option<String>)> {
        let from = match start {
            Start::First => 0,
            Start::After(_) if self.manner == Manner::Refusing => return None,
            Start::After(_) if self.manner == Manner::Forgetful => 0,
            Start::After(key) => self.keys.partition_point(|known| known <= key),
            Start::Token(place) => place.parse().unwrap(),
        };
        let to = (from + self.page_keys).min(self.keys.len());
        let next = (to < self.keys.len()).then(|| to.to_string());
        Some((self.keys[from..to].to_vec(), next))
    }
}

/// Result of a listing.
#[derive(Debug, Default)]
struct Told {
    keys: Vec<String>,
    directories: Vec<String>,
    requests: usize,
    /// Rounds, each of as many requests as were made at once.
    rounds: usize,
}

/// Lists with pages that come back in an order that `lots` decides; stops after `pages_max`.
fn run(
    ranges: &mut Ranges,
    model: &Model,
    flying_max: usize,
    mut lots: impl FnMut(usize) -> usize,
    pages_max: usize,
    known: &mut BTreeSet<String>,
) -> Told {
    let mut told = Told::default();
    let mut flying: Vec<Ask> = Vec::new();
    let mut round_left = 0;
    while told.requests - flying.len() < pages_max {
        while let Some(ask) = ranges.next(flying_max) {
            assert!(flying.len() < flying_max);
            told.requests += 1;
            flying.push(ask);
        }
        if flying.is_empty() {
            break;
        }
        if round_left == 0 {
            told.rounds += 1;
            round_left = flying.len();
        }
        round_left -= 1;
        let ask = flying.remove(lots(flying.len()));
        match model.page(&ask.from) {
            Some((mut page, next)) => {
                let above = ranges.arrived(ask.range, &mut page, next).unwrap();
                let mut above = above.into_iter().peekable();
                for (place, key) in page.into_iter().enumerate() {
                    while let Some((_, directory)) = above.next_if(|(at, _)| *at == place) {
                        known.insert(directory.clone());
                        told.directories.push(directory);
                    }
                    check_directories(known, &key);
                    told.keys.push(key);
                }
                assert!(above.next().is_none(), "a directory of no key");
            }
            None => assert!(ranges.failed(ask.range, true), "the first page failed"),
        }
    }
    told
}

/// Checks that directories come before their content.
fn check_directories(told: &BTreeSet<String>, key: &str) {
    let Some(slash) = key.rfind('/').filter(|_| !key.contains("//")) else {
        return;
    };
    let directory = &key[..slash];
    assert!(
        directory.is_empty() || told.contains(directory),
        "{key:?} before its directory"
    );
}

fn list(model: &Model, flying_max: usize) -> Told {
    let told = run(
        &mut Ranges::new(false),
        model,
        flying_max,
        |_| 0,
        usize::MAX,
        &mut BTreeSet::new(),
    );
    check_all(model, told.keys.clone(), told.directories.clone());
    told
}

/// Checks that every key and every directory comes once.
fn check_all(model: &Model, mut keys: Vec<String>, mut directories: Vec<String>) {
    let mut wanted = model.keys.clone();
    wanted.sort();
    keys.sort();
    assert_eq!(keys, wanted);
    let slashes = wanted.iter().flat_map(|key| {
        key.match_indices('/')
            .map(|(slash, _)| key[..slash].to_owned())
    });
    let named = slashes.filter(|directory| !directory.is_empty() && !directory.ends_with('/'));
    let wanted: BTreeSet<String> = named.collect();
    directories.sort();
    assert_eq!(directories, wanted.into_iter().collect::<Vec<_>>());
}

/// Returns the next number of a fixed pseudorandom sequence.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Returns a number below `of`.
fn draw(state: &mut u64, of: usize) -> usize {
    usize::try_from(random(state) % of as u64).unwrap()
}

/// Returns keys of usual kinds, 100 pages of each.
fn usual() -> BTreeMap<&'static str, Vec<String>> {
    let mut state = 88_172_645_463_325_252;
    let mut next = move || random(&mut state);
    let each = |name: &dyn Fn(u64) -> String| (0..100_000).map(name).collect::<Vec<String>>();
    let hashes: Vec<String> = (0..100_000).map(|_| format!("{:016x}", next())).collect();
    let in_folders = hashes.iter();
    let in_folders = in_folders.map(|hash| format!("objects/{}/{}", &hash[..2], &hash[2..]));
    BTreeMap::from([
        ("a counter", each(&|n| format!("img-{n:07}.jpg"))),
        ("a short counter", each(&|n| format!("{n}"))),
        ("far below", each(&|n| format!("a/long/way/down/{n:08}"))),
        ("hashes in folders", in_folders.collect()),
        ("hashes", hashes),
        ("days", each(&day)),
        ("runs", each(&run_of)),
        ("words", each(&words)),
        ("one huge directory among small", each(&uneven)),
    ])
}

fn day(n: u64) -> String {
    let (year, month, day) = (2019 + n % 7, 1 + n / 7 % 12, 1 + n / 84 % 28);
    format!("log/{year}-{month:02}-{day:02}/node{:03}.gz", n / 2_352)
}

fn run_of(n: u64) -> String {
    let (run, step, rank) = (n / 20_000, n / 2_000 % 10, n % 2_000);
    format!("run-{run}/step{step}/rank{rank:05}")
}

fn words(n: u64) -> String {
    const WORDS: [&str; 8] = ["alpha", "out", "raw", "tmp", "Zürich", "x", "restart", "λ"];
    let [a, b, c] = [n * 7, n / 5, n / 8].map(|n| WORDS[usize::try_from(n % 8).unwrap()]);
    format!("{a}/{b}-{c}/{n:x}")
}

fn uneven(n: u64) -> String {
    match n % 50 {
        0 => format!("d{:04}/only", n / 50),
        _ => format!("d0777/file.{n:06}"),
    }
}

#[test]
fn usual_keys_are_listed_side_by_side_with_few_requests_more() {
    for (what, keys) in usual() {
        let model = Model::new(keys, 1_000, Manner::Right);
        let pages = model.keys.len().div_ceil(1_000);
        let told = list(&model, 16);
        println!(
            "{what}: {pages} pages, {} requests, {} rounds",
            told.requests, told.rounds
        );
        assert!(
            told.requests * 2 <= pages * 3,
            "{what}: {} requests",
            told.requests
        );
        assert!(told.rounds * 4 <= pages, "{what}: {} rounds", told.rounds);
    }
}

#[test]
fn stores_that_start_nowhere_are_listed_one_page_after_the_other() {
    for (what, keys) in usual() {
        for manner in [Manner::Forgetful, Manner::Refusing, Manner::Disorderly] {
            let keys = keys.iter().take(20_000).cloned();
            let model = Model::new(keys, 1_000, manner);
            let told = list(&model, 16);
            assert!(told.requests <= 22, "{what}, {manner:?}: {told:?}");
        }
    }
}

#[test]
fn one_page_takes_one_request() {
    let model = Model::new((0..1_000).map(|n| format!("{n}")), 1_000, Manner::Right);
    assert_eq!(list(&model, 16).requests, 1);
    let nothing = Model::new([], 1_000, Manner::Right);
    assert_eq!(list(&nothing, 16).requests, 1);
}

#[test]
fn disorder_after_cutting_is_an_error() {
    let model = Model::new((0..9_000).map(|n| format!("{n:05}")), 10, Manner::Right);
    let mut ranges = Ranges::new(false);
    run(&mut ranges, &model, 8, |_| 0, 50, &mut BTreeSet::new());
    let mut page = vec!["00009".to_owned(), "00001".to_owned()];
    let id = ranges.ranges[0].id;
    assert_eq!(ranges.arrived(id, &mut page, None), Err(Disorder));
}

#[test]
fn a_failed_page_is_asked_for_again() {
    let model = Model::new((0..100).map(|n| format!("{n:05}")), 10, Manner::Right);
    let mut ranges = Ranges::new(false);
    let ask = ranges.next(1).unwrap();
    assert_eq!(ranges.next(1), None);
    assert!(!ranges.failed(ask.range, false));
    let told = run(
        &mut ranges,
        &model,
        4,
        |_| 0,
        usize::MAX,
        &mut BTreeSet::new(),
    );
    check_all(&model, told.keys, told.directories);
}

#[test]
fn flat_listings_begin_in_no_directory() {
    // With a delimiter a store lists a directory again if a page starts behind its name.
    let keys = (0..3_000).map(|n| match n % 3 {
        0 => format!("d{:04}/", n / 7),
        _ => format!("d{n:04}"),
    });
    let model = Model::new(keys, 10, Manner::Right);
    let mut ranges = Ranges::new(true);
    let mut flying = Vec::new();
    let mut found = Vec::new();
    loop {
        while let Some(ask) = ranges.next(8) {
            if let Start::After(key) = &ask.from {
                assert!(!key.contains('/'), "{key}");
            }
            flying.push(ask);
        }
        if flying.is_empty() {
            break;
        }
        let ask = flying.remove(0);
        let (mut page, next) = model.page(&ask.from).unwrap();
        assert_eq!(ranges.arrived(ask.range, &mut page, next), Ok(Vec::new()));
        found.extend(page);
    }
    found.sort();
    assert_eq!(found, model.keys);
}

/// Generates keys of every kind, including difficult ones: prefixes of one another, slashes at odd
/// places.
fn any_keys() -> impl Strategy<Value = Vec<String>> {
    let letter = prop_oneof![
        5 => "[0-9]",
        3 => "[a-c]",
        2 => Just("/".to_owned()),
        1 => "[é\u{3b1}-\u{3c9}\u{1f600}-\u{1f610}]",
        1 => "[\u{1} +%-.\u{7f}\u{d7ff}\u{e000}\u{10ffff}]",
    ];
    let key = proptest::collection::vec(letter, 1..12).prop_map(|letters| letters.concat());
    let prefix = prop_oneof![
        Just(String::new()),
        Just("p/".to_owned()),
        Just("a/very/long/common/prefix/of/all/keys/in/here/".to_owned()),
    ];
    let odd = (prefix.clone(), proptest::collection::vec(key, 0..400));
    let counted = (prefix, 0..2_000_u64, 1..4_u64, any::<bool>());
    prop_oneof![
        odd.prop_map(|(prefix, keys)| keys.iter().map(|key| format!("{prefix}{key}")).collect()),
        counted.prop_map(|(prefix, count, step, padded)| {
            (0..count)
                .map(|n| match padded {
                    true => format!("{prefix}{:06}", n * step * step),
                    false => format!("{prefix}{}/x", n * step),
                })
                .collect()
        }),
    ]
}

fn any_manner() -> impl Strategy<Value = Manner> {
    prop_oneof![
        5 => Just(Manner::Right),
        1 => Just(Manner::Forgetful),
        1 => Just(Manner::Refusing),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn every_key_comes_once_whatever_the_keys(
        keys in any_keys(),
        manner in any_manner(),
        page_keys in 1..40_usize,
        flying_max in 1..20_usize,
        seed in 1..u64::MAX,
    ) {
        let model = Model::new(keys, page_keys, manner);
        let mut state = seed;
        let mut lots = |of: usize| draw(&mut state, of);
        let told = run(&mut Ranges::new(false), &model, flying_max, &mut lots, usize::MAX, &mut BTreeSet::new());
        let pages = model.keys.len().div_ceil(page_keys).max(1);
        prop_assert!(
            // Pages of one key make many ranges that turn out empty: each one in flight may, twice.
            told.requests <= 2 * pages + 2 * flying_max.max(8),
            "{} requests for {} pages", told.requests, pages
        );
        check_all(&model, told.keys, told.directories);
    }

    #[test]
    fn a_listing_goes_on_where_it_was(
        keys in any_keys(),
        page_keys in 1..40_usize,
        stops in proptest::collection::vec(1..30_usize, 0..6),
        seed in 1..u64::MAX,
    ) {
        let model = Model::new(keys, page_keys, Manner::Right);
        let mut state = seed;
        let mut lots = |of: usize| draw(&mut state, of);
        let mut ranges = Ranges::new(false);
        let (mut keys, mut directories) = (Vec::new(), Vec::new());
        let mut known = BTreeSet::new();
        for pages_max in stops.into_iter().chain([usize::MAX]) {
            let told = run(&mut ranges, &model, 8, &mut lots, pages_max, &mut known);
            let spans = ranges.spans();
            if spans.is_none() && pages_max < usize::MAX {
                // Too early for a mark: it starts anew.
                ranges = Ranges::new(false);
                keys.clear();
                directories.clear();
                continue;
            }
            keys.extend(told.keys);
            directories.extend(told.directories);
            ranges = Ranges::resumed(false, spans.unwrap_or_default());
        }
        check_all(&model, keys, directories);
    }
}
