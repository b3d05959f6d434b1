//! Some hundred random scenarios under all checkers. One that fails is printed as the smallest scenario
//! that still does, to be kept in a file and played again with `posthaste simulate FILE --seed SEED`.

use posthaste_core::Settings;
use posthaste_sim::swarm::play;

#[test]
fn nothing_that_must_never_be_happens_in_random_worlds() {
    let settings = Settings::default();
    for seed in 0..300 {
        if let Some(failing) = play(seed, &settings) {
            let (checker, what) = (failing.checker, failing.what);
            let scenario = failing.scenario;
            panic!("VIOLATED {checker}: {what}\nplay it again with --seed {seed}:\n\n{scenario}");
        }
    }
}
