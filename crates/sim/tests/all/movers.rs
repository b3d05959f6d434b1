//! Work of movers under faults: all of it is done, and counts once.

use posthaste_sim::movers::{Tally, play};

#[test]
fn all_work_is_done_once_whatever_befalls_movers() {
    let mut all = Tally::default();
    for seed in 0..400 {
        let tally = play(seed, 300).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
        all.by_movers += tally.by_movers;
        all.by_driver += tally.by_driver;
        all.in_vain += tally.in_vain;
        all.gone += tally.gone;
        all.unheard += tally.unheard;
    }
    // The faults occur, and movers still do most of the work.
    assert!(all.by_movers > all.by_driver, "{all:?}");
    assert!(
        all.by_driver > 100 && all.in_vain > 100 && all.gone > 100 && all.unheard > 100,
        "{all:?}"
    );
}

#[test]
fn a_seed_plays_the_same_each_time() {
    assert_eq!(play(7, 200).unwrap(), play(7, 200).unwrap());
}
