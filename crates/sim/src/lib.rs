//! Driver 2: the same mind in a model world under a virtual clock.
//!
//! A [`Scenario`] says what the world is and what goes wrong in it; a seed decides the rest. The
//! world moves bytes as a fluid and plays the depots; [`simulate`] is the driver that
//! carries out what the mind commands and tells it what happened. Five checkers watch all of it. What
//! they prove is true of the code that ships, because the mind here is the mind that ships.

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
