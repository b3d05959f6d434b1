use alloc::{
    boxed::Box,
    format,
    string::{String, ToString},
    vec::Vec,
};
use posthaste_types::{DepotId, SourceId, Timestamp, record};

use crate::contract::{ArrivalView, Happening, Reason, RequestView};

record! {
    /// Entry of `explain`: a decision, its time and its reason.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Decision {
        /// Moment.
        pub at: Timestamp,
        /// Event, if the decision is one.
        pub happening: Option<Happening>,
        /// Name of the depot it is about; empty if none.
        pub depot: Box<str>,
        /// Number of chunks, sends or other things; zero if nothing is counted.
        pub count: u32,
        /// Description for people of a decision that is no event; see [`Decision::what`].
        pub note: Box<str>,
        /// Reason.
        pub reason: Reason,
    }
}

impl Decision {
    /// Returns the description for people.
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
    /// Cause of a change of a request's forecast finish.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Cause {
        /// The assumed rate of an unmeasured depot or source was too high or too low.
        0 = Belief,
        /// A depot or source was lost, or came back.
        1 = Loss,
        /// The hours of a depot's owner began or ended.
        2 = Hours,
        /// The forecast rate of a measured depot or source changed.
        3 = Rate,
        /// Depots were added or dropped, data took another way, or a limit changed.
        4 = Course,
        /// Less or more data arrived than forecast.
        5 = Pace,
        /// More urgent requests used more or less of the path than before, or less arrived.
        6 = Others,
        /// The request was paused.
        7 = Paused,
        /// The destination refuses data.
        8 = Refusal,
    }
}

record! {
    /// Sender or receiver of the bytes that a cause is about.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Party {
        /// A depot.
        0 = Depot {
            /// The depot.
            depot: DepotId,
        },
        /// A source of a stage-in.
        1 = Source {
            /// The source.
            source: SourceId,
        },
    }
}

record! {
    /// Total effect of one cause on the forecast finish of a request.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Charge {
        /// The cause.
        pub cause: Cause,
        /// Depot or source it is about, if it is about one alone.
        pub party: Option<Party>,
        /// Cost in slack, in microseconds; negative for a gain.
        pub cost_micros: i64,
    }
}

/// Material for the story of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tale {
    /// Time of the story.
    pub now: Timestamp,
    /// The request as it stands.
    pub view: RequestView,
    /// Names of its depots, and of its destination if that is one.
    pub names: Vec<(DepotId, String)>,
    /// Decisions, oldest first.
    pub decisions: Vec<Decision>,
    /// Deadline and p90 finish of the first answer; none without a forecast.
    pub answered: Option<(Timestamp, Timestamp)>,
    /// Changes of that finish since. Together they lead to the last forecast finish, and in the end
    /// to the moment of safety.
    pub charges: Vec<Charge>,
}

/// Material for the story of a stage-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrivalTale {
    /// Time of the story.
    pub now: Timestamp,
    /// The stage-in as it stands.
    pub view: ArrivalView,
    /// Decisions, oldest first.
    pub decisions: Vec<Decision>,
    /// Deadline and p90 finish of the first answer; none without a forecast.
    pub answered: Option<(Timestamp, Timestamp)>,
    /// Changes of that finish since, as [`Tale::charges`].
    pub charges: Vec<Charge>,
}
