//! The mind: it decides what moves where and when, behind one pure contract.
//!
//! A driver hands [`Mind::step`] its inputs: a depot is up, a request was submitted, a fragment is
//! stored, or nothing but that time has passed. It carries out the commands that come back, and
//! answers each with an input. That is the whole contract ([`contract`]). Nothing here reads a
//! clock, a file, a socket or a random number, so the same inputs at the same times give the same
//! commands. The service lives by that: its journal holds the inputs, and replaying them rebuilds
//! the mind. So does the simulator, which plays years in seconds against the same code.
//!
//! # Example
//!
//! ```
//! use posthaste_core::{
//!     Mind, Settings,
//!     contract::{Command, Input, Outbox, ReleasePolicy, RequestSpec},
//! };
//! use posthaste_types::{ByteRate, Bytes, Code, DepotId, RequestId, Timestamp};
//!
//! let mut mind = Mind::new(Settings::default());
//! let now = Timestamp::from_secs(1_800_000_000);
//! let (depot, request) = (DepotId::new(1), RequestId::new(1));
//! let inputs = vec![
//!     Input::DriverStarted,
//!     Input::DepotAdded {
//!         depot,
//!         name: "ash".into(),
//!         capacity: Bytes::mebi(1024),
//!         rate_max: Some(ByteRate::new(50 << 20)),
//!     },
//!     Input::DepotUp {
//!         depot,
//!         free: Bytes::mebi(1024),
//!         rate_max: None,
//!     },
//!     Input::RequestSubmitted {
//!         request,
//!         spec: RequestSpec {
//!             bytes: Bytes::mebi(8),
//!             files: 1,
//!             chunk_size: Bytes::mebi(4),
//!             deadline: Timestamp::from_secs(1_800_000_600),
//!             code: Code::new(1, 0).unwrap(),
//!             via: vec![depot],
//!             destinations: vec![],
//!             release: ReleasePolicy::Never,
//!             best_effort: false,
//!         },
//!     },
//! ];
//! let mut out = Outbox::default();
//! mind.step(now, inputs, &mut out);
//! let sends = |command: &&Command| matches!(command, Command::Send { .. });
//! assert_eq!(out.commands.iter().filter(sends).count(), 2);
//! assert!(mind.next_wakeup().is_some());
//! ```
//!
//! # Layers
//!
//! The state of the mind is one set of books, which answer and record and decide nothing. Above
//! them lie forecasts, then decisions, which are functions of the state and change nothing. Only the
//! layer above those, `apply`, changes the state: it has one function for each input and for each
//! decision. `machine` puts them together in one step. `explain` reads what is there and tells
//! people. Each layer uses those below it alone, which `cargo xtask tidy` checks.
//!
//! [`movers`] gives work to processes that move data, by the same rule of no clocks and no sockets.
#![no_std]
extern crate alloc;
#[cfg(test)]
extern crate std;

mod apply;
pub mod contract;
mod decide;
mod explain;
mod forecast;
mod machine;
pub mod movers;
mod settings;
mod state;

pub use explain::story;
pub use machine::Mind;
pub use settings::Settings;
