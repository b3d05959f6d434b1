//! The contract between the mind and its drivers: inputs, commands and events.
//!
//! Each direction is one closed enum. Every command carries a [`Reason`] for people. Every event
//! reports something to people. All of it is a [`Record`](posthaste_types::Record), so that the
//! journal keeps it and the simulator replays it.

/// Defines `name`, the word for each variant, and `NAMES`, all these words.
macro_rules! named {
    ($($pattern:pat => $name:literal),+ $(; $rest:pat => $value:expr)?) => {
        /// Every name given here.
        pub const NAMES: &'static [&'static str] = &[$($name),+];

        /// Returns the word programs know it by, in the API and in logs.
        #[must_use]
        pub const fn name(&self) -> &'static str {
            match self {
                $($pattern => $name,)+
                $($rest => $value,)?
            }
        }
    };
}

mod arrival;
mod circuit;
mod command;
mod drain;
mod due;
mod encode;
mod event;
mod fault;
mod input;
mod lent;
mod near;
mod offer;
mod pin;
mod prices;
mod reason;
mod request;
mod space;
mod tale;
mod tally;
mod terms;
mod transfer;
mod view;
mod way;
mod wishes;

pub use arrival::{
    ArrivalSpec, ArrivalState, ArrivalView, Binding, Cut, Holding, LeftOut, NearDepot,
    SourceShareView, SourceView, StageInNews,
};
pub use circuit::{
    CircuitTerms, News, Obstacle, ReservationState, ReservationView, Reserve, ReserveError, Step,
};
pub use command::Command;
pub use drain::{Drain, DrainReason, DrainView};
pub use due::{DeliveryView, Hindrance, Undelivered};
pub use encode::{Encode, EncodeError};
pub use event::{Event, Happening};
pub use fault::{Fault, FileAtFault, GiverEnd, Omission};
pub use input::Input;
pub use lent::{LentReason, LentTerms, load_left};
pub use near::NearReason;
pub(crate) use offer::Dollars;
pub use offer::WouldBuy;
pub use pin::PinReason;
pub use posthaste_forecast::{Finding, Probe, Quantiles, Score};
pub use posthaste_plan::{
    Windows, WindowsError,
    tuner::{Method, MethodError},
};
pub use prices::{DepotPrices, EgressPrice, SourcePrice};
pub use reason::{CircuitReason, DeliveryReason, HopeReason, Reason};
pub use request::{Pause, ReleasePolicy, RequestSpec};
pub use space::{SpaceNews, SpaceReason};
pub use tale::{ArrivalTale, Cause, Charge, Decision, Party, Tale};
pub use tally::Tally;
pub use terms::DepotTerms;
pub(crate) use terms::GIGABYTE;
pub use transfer::{Standstill, TransferEnd, TransferKind, TransferState, TransferView};
pub use view::{
    Cost, DepotState, DepotView, Forecast, Knowledge, PathView, RankView, RequestState,
    RequestView, ShareView, TurnShare, TurnView,
};
pub use way::{WayReason, WayView};
pub use wishes::{Priority, PriorityError, Repair, Survive, Wishes};

use alloc::vec::Vec;

/// Commands and events of one step of the mind, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outbox {
    /// Commands for the driver.
    pub commands: Vec<Command>,
    /// Reports for people.
    pub events: Vec<Event>,
}
