use core::fmt;

use crate::contract::Obstacle;
use crate::contract::reason::Reason;
use posthaste_types::{ByteRate, Timestamp, record};

record! {
    /// Reason of an action on a reservation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CircuitReason {
        /// The user wished it.
        0 = Wished {
            /// Rate.
            rate: ByteRate,
            /// Start.
            from: Timestamp,
            /// End.
            until: Timestamp,
        },
        /// The deadline would be missed without it.
        1 = Needed {
            /// Rate.
            rate: ByteRate,
            /// Start.
            from: Timestamp,
            /// End.
            until: Timestamp,
            /// p90 finish without it, if there is one.
            without: Option<Timestamp>,
            /// p90 finish with it.
            finish: Timestamp,
            /// The deadline.
            deadline: Timestamp,
        },
        /// The request was accepted because the reservation meets its deadline once it is granted.
        2 = Counted {
            /// Rate.
            rate: ByteRate,
            /// Start.
            from: Timestamp,
            /// p90 finish with it.
            finish: Timestamp,
            /// The deadline.
            deadline: Timestamp,
        },
        /// The reservation was granted.
        3 = Granted {
            /// Rate.
            rate: ByteRate,
            /// Start.
            from: Timestamp,
            /// End.
            until: Timestamp,
        },
        /// The owner of the circuit refused the reservation.
        4 = Refused {
            /// Rate that would fit.
            fits: Option<ByteRate>,
        },
        /// Nobody answered.
        5 = Silent,
        /// The reservation is up.
        6 = Carries {
            /// Rate.
            rate: ByteRate,
            /// End.
            until: Timestamp,
        },
        /// The reservation is down for now.
        7 = Interrupted,
        /// The reservation failed before its time.
        8 = Failed,
        /// The reservation ended as planned.
        9 = Over,
        /// The request no longer needs the reservation.
        10 = Spare,
        /// A lower rate suffices.
        11 = TooLarge {
            /// Previous rate.
            from: ByteRate,
            /// Sufficient rate.
            to: ByteRate,
        },
        /// The reservation would end before its request does.
        12 = TooShort {
            /// Wanted end.
            until: Timestamp,
        },
        /// Another request uses the rest of the reservation.
        13 = Passed,
        /// The owner of the circuit refused the change.
        14 = Kept {
            /// Rate.
            rate: ByteRate,
            /// End.
            until: Timestamp,
        },
        /// The circuit can't be reserved.
        15 = Unobtainable {
            /// Reason.
            why: Obstacle,
        },
    }
}

impl Reason {
    /// Returns the earliest known finish if the deadline can't be met.
    pub(crate) fn earliest(&self) -> Option<Timestamp> {
        if let Self::Infeasible { earliest, .. } = self {
            *earliest
        } else {
            None
        }
    }
}

/// Writes the reason and the name of its circuit for people.
pub(super) fn write_circuit(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    why: CircuitReason,
) -> fmt::Result {
    match why {
        CircuitReason::Wished { rate, from, until } => {
            write!(
                f,
                "its user wished {rate} on {name} from {from} until {until}"
            )
        }
        CircuitReason::Needed {
            rate,
            from,
            without,
            finish,
            deadline,
            ..
        } => {
            match without {
                Some(without) => {
                    write!(f, "p90 finish {without} is after the deadline {deadline}")?
                }
                None => write!(f, "no finish is in sight before the deadline {deadline}")?,
            }
            write!(f, "; {rate} on {name} from {from} make it {finish}")
        }
        CircuitReason::Counted {
            rate,
            from,
            finish,
            deadline,
        } => write!(
            f,
            "with {rate} reserved on {name} from {from} its p90 finish {finish} is before the deadline {deadline}"
        ),
        CircuitReason::Granted { rate, from, until } => {
            write!(f, "{name} gives {rate} from {from} until {until}")
        }
        CircuitReason::Refused { fits: None } => write!(f, "{name} has no room for it"),
        CircuitReason::Refused { fits: Some(fits) } => {
            write!(f, "{name} has no room for it, {fits} would fit")
        }
        CircuitReason::Silent => write!(f, "{name} does not answer"),
        CircuitReason::Unobtainable { why } => write_obstacle(f, name, why),
        CircuitReason::Carries { rate, until } => {
            write!(f, "{name} carries {rate} until {until}")
        }
        CircuitReason::Interrupted => {
            write!(f, "{name} carries nothing now, so data goes at best effort")
        }
        CircuitReason::Failed => write!(f, "{name} failed, so data goes at best effort"),
        CircuitReason::Over => write!(f, "the time on {name} is over"),
        CircuitReason::Spare => write!(f, "{name} is not needed any more"),
        CircuitReason::TooLarge { from, to } => {
            write!(f, "{to} on {name} suffice, instead of {from}")
        }
        CircuitReason::TooShort { until } => write!(f, "{name} is needed until {until}"),
        CircuitReason::Passed => write!(f, "another request uses what is left on {name}"),
        CircuitReason::Kept { rate, until } => {
            write!(f, "{name} stays at {rate} until {until}")
        }
    }
}

fn write_obstacle(f: &mut fmt::Formatter<'_>, name: &str, why: Obstacle) -> fmt::Result {
    match why {
        Obstacle::NotKnown => write!(f, "who sells {name} does not take our credential")?,
        Obstacle::NotUnderstood => write!(f, "who sells {name} can't do what is asked")?,
        Obstacle::NotOpen => return write!(f, "{name} is not among the circuits any more"),
    }
    f.write_str("; the log of the service says more")
}
