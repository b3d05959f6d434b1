use alloc::{
    boxed::Box,
    format,
    string::{String, ToString},
    vec::Vec,
};
use posthaste_types::{DepotId, SourceId, Timestamp, record};

use super::{ArrivalView, Happening, Reason, RequestView};

record! {
    /// One entry of what `explain` shows: what was decided when, and why.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Decision {
        /// When.
        pub at: Timestamp,
        /// The event it is, where it is one.
        pub happening: Option<Happening>,
        /// The name of the depot it is about; empty when it is about none.
        pub depot: Box<str>,
        /// Chunks, sends or whatever else it counts; zero when it counts nothing.
        pub count: u32,
        /// What, as a person would say it, where it is no event; see [`Decision::what`].
        pub note: Box<str>,
        /// Why.
        pub reason: Reason,
    }
}

impl Decision {
    /// What, as a person would say it.
    #[must_use]
    pub fn what(&self) -> String {
        let what = match &self.happening {
            Some(happening) => format!("{happening}"),
            None => self.note.to_string(),
        };
        match &*self.depot {
            "" => what,
            depot => format!("{depot}: {what}"),
        }
    }
}

record! {
    /// What moved the forecast finish of a request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Cause {
        /// A belief about a depot or source nobody had measured was too hopeful, or not hopeful enough.
        0 = Belief,
        /// A depot or source was lost, or came back.
        1 = Loss,
        /// A depot went as the hours of its owner say.
        2 = Hours,
        /// The forecast rate of a measured depot or source changed.
        3 = Rate,
        /// Depots were added or let go, the data took another way, or a limit was changed.
        4 = Course,
        /// Less or more got through than was forecast.
        5 = Pace,
        /// More urgent requests took more or less of the way than before, or less got through.
        6 = Others,
        /// It was paused.
        7 = Paused,
        /// Where it goes does not take what comes.
        8 = Refusal,
    }
}

record! {
    /// Who gives or takes the bytes that a cause is about.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Party {
        /// A depot.
        0 = Depot {
            /// Which.
            depot: DepotId,
        },
        /// A source of a stage-in.
        1 = Source {
            /// Which.
            source: SourceId,
        },
    }
}

record! {
    /// How far one cause moved the forecast finish of a request in all.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Charge {
        /// The cause.
        pub cause: Cause,
        /// Who it is about, where it is about one alone.
        pub party: Option<Party>,
        /// Microseconds: what it cost of the slack; less than zero when it won some.
        pub cost_micros: i64,
    }
}

/// All that a request's story is told from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tale {
    /// As of when.
    pub now: Timestamp,
    /// The request as it stands.
    pub view: RequestView,
    /// The names of its depots, and of its destination where that is one.
    pub names: Vec<(DepotId, String)>,
    /// What was decided, oldest first.
    pub decisions: Vec<Decision>,
    /// When it was to be safe, and the p90 finish that was answered; none where none was in sight.
    pub answered: Option<(Timestamp, Timestamp)>,
    /// What moved that finish since: with it they add up to the finish as last forecast, and in the
    /// end to the moment it became safe.
    pub charges: Vec<Charge>,
}

/// All that the story of a stage-in is told from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrivalTale {
    /// As of when.
    pub now: Timestamp,
    /// The stage-in as it stands.
    pub view: ArrivalView,
    /// What was decided, oldest first.
    pub decisions: Vec<Decision>,
    /// When it was to be here, and the p90 finish that was answered; none where none was in sight.
    pub answered: Option<(Timestamp, Timestamp)>,
    /// What moved that finish since, as [`Tale::charges`].
    pub charges: Vec<Charge>,
}
