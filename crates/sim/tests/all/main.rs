//! Tests of the simulator: named scenarios, many seeds, and their invariants.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod delivery;
mod large;
mod mend;
mod movers;
mod push;
mod reserved;
mod rivals;
mod scale;
mod scatter;
mod seeds;
mod space;
mod spaces;
mod stage_in;
mod stories;
mod support;
mod swarm;
mod ways;
mod wishes;
