//! Some hundred random scenarios under all checkers. A failure is printed as the smallest scenario
//! that still fails. Keep it in a file and replay it with `posthaste simulate FILE --seed SEED`.

use posthaste_core::Settings;
use posthaste_sim::swarm::play;

/// Worlds played for each change; the nightly run plays more.
const BY_DAY: u64 = 100;
const BY_NIGHT: u64 = 300;

#[test]
fn nothing_that_must_never_be_happens_in_random_worlds() {
    plays(0..BY_DAY);
}

#[test]
fn nor_does_it_in_random_worlds_of_the_night() {
    plays(BY_DAY..BY_NIGHT);
}

fn plays(seeds: std::ops::Range<u64>) {
    let settings = Settings::default();
    for seed in seeds {
        if let Some(failing) = play(seed, &settings) {
            let (checker, what) = (failing.checker, failing.what);
            let scenario = failing.scenario;
            panic!("VIOLATED {checker}: {what}\nplay it again with --seed {seed}:\n\n{scenario}");
        }
    }
}
