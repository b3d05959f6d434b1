//! Driver 2: the same mind in a model world under a virtual clock.
//!
//! A [`Scenario`] describes the world and its faults; a seed decides the rest. The world moves
//! bytes as a fluid and plays the depots. [`simulate`] is the driver that executes the mind's
//! commands and reports events to it. Checkers watch all of it. Their verdicts apply to the shipped
//! code, because the simulated mind is the shipped mind.

mod checkers;
mod crowd;
pub mod deadlines;
mod driver;
pub mod movers;
mod random;
mod rehearsal;
mod report;
mod rivals;
mod scenario;
pub mod swarm;
mod world;

pub use checkers::{Checkers, Violation};
pub use driver::{simulate, simulate_explained, simulate_recorded, simulate_with};
pub use rehearsal::{Rehearsal, rehearse};
pub use report::{Entry, Fate, Page, Recording, Report, Sample, What, page, timeline};
pub use rivals::Rival;
pub use scenario::{Scenario, ScenarioError};
