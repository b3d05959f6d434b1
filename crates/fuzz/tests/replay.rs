//! Replays the fuzzers' finds, and mutations of them, without a fuzzer.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeSet,
    fs,
    panic::catch_unwind,
    path::{Path, PathBuf},
};

use posthaste_engine::dataset::{FileList, Manifest};
use posthaste_fuzz::{IDENTITY, TARGETS, Target};

/// Mutations of each target: they take seconds on one core without optimization.
const MUTATIONS: u32 = 4_000;

/// Seed of the mutations; the failing input is printed.
const SEED: u64 = 20_261_121;

/// Most bytes of a mutated input: less is enough for everything that parsers know.
const BYTES_MAX: usize = 16 << 10;

/// Words that parsers look for.
const WORDS: [&[u8]; 24] = [
    b"\n",
    b"{",
    b"}",
    b"\"",
    b":",
    b"://",
    b"/",
    b"..",
    b"%2F",
    b"%",
    b"@",
    b"[",
    b"]",
    b",",
    b"=",
    b"null",
    b"-1",
    b"18446744073709551616",
    b"\xff",
    b"\0",
    b"</",
    b">",
    b"&#0;",
    b"&amp;",
];

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn names_in(folder: &str) -> BTreeSet<String> {
    let entries = fs::read_dir(fuzz_folder().join(folder)).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect()
}

fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = fuzz_folder().join("corpus").join(name);
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files.iter().map(|path| fs::read(path).unwrap()).collect()
}

fn play(name: &str, target: Target, input: &[u8]) {
    let outcome = catch_unwind(|| target(input));
    assert!(
        outcome.is_ok(),
        "{name} does not take {:?}",
        input.escape_ascii().to_string()
    );
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % limit.max(1)
    }

    fn byte(&mut self) -> u8 {
        self.below(256).to_le_bytes()[0]
    }

    fn mutate(&mut self, input: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let place = self.below(input.len() + 1);
        let end = place + self.below(input.len() - place + 1);
        match self.below(7) {
            0 if place < input.len() => input[place] ^= 1 << self.below(8),
            1 if place < input.len() => input[place] = self.byte(),
            2 => drop(input.drain(place..end)),
            3 => {
                let again = input[place..end].to_vec();
                drop(input.splice(place..place, again));
            }
            4 => {
                let other = &corpus[self.below(corpus.len())];
                let from = self.below(other.len() + 1);
                let until = from + self.below(other.len() - from + 1);
                drop(input.splice(place..end, other[from..until].iter().copied()));
            }
            5 => input.truncate(place),
            _ => {
                let word = WORDS[self.below(WORDS.len())];
                drop(input.splice(place..place, word.iter().copied()));
            }
        }
        input.truncate(BYTES_MAX);
    }
}

#[test]
fn every_target_has_a_fuzzer_and_a_corpus() {
    let targets: BTreeSet<String> = TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(targets.len(), TARGETS.len(), "two have one name");
    assert_eq!(names_in("fuzz_targets"), targets);
    assert_eq!(names_in("corpus"), targets);
    for (name, _) in TARGETS {
        assert!(!corpus(name).is_empty(), "{name} has an empty corpus");
    }
}

#[test]
fn what_a_mutation_begins_with_is_read_whole() {
    for manifest in corpus("manifest") {
        Manifest::from_bytes(&manifest).unwrap();
    }
    for list in corpus("file_list") {
        FileList::from_bytes(&list).unwrap();
    }
    for envelope in corpus("envelope") {
        Manifest::open(&envelope, &[IDENTITY.parse().unwrap()]).unwrap();
    }
}

#[test]
fn what_was_found_is_survived() {
    for (name, target) in TARGETS {
        play(name, target, b"");
        for input in corpus(name) {
            play(name, target, &input);
        }
    }
}

#[test]
fn mutations_of_what_was_found_are_survived() {
    let mut random = Random(SEED);
    for (name, target) in TARGETS {
        let corpus = corpus(name);
        for _ in 0..MUTATIONS {
            let mut input = corpus[random.below(corpus.len())].clone();
            for _ in 0..=random.below(6) {
                random.mutate(&mut input, &corpus);
            }
            play(name, target, &input);
        }
    }
}
