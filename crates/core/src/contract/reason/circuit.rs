use core::fmt;

use super::Reason;
use crate::contract::Obstacle;
use posthaste_types::{ByteRate, Timestamp, record};

record! {
    /// Why something was done about a reservation.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CircuitReason {
        /// The user wished it.
        0 = Wished {
            /// How much.
            rate: ByteRate,
            /// From when.
            from: Timestamp,
            /// Until when.
            until: Timestamp,
        },
        /// Without it the deadline would be missed.
        1 = Needed {
            /// How much.
            rate: ByteRate,
            /// From when.
            from: Timestamp,
            /// Until when.
            until: Timestamp,
            /// p90 finish without it, where one is in sight.
            without: Option<Timestamp>,
            /// p90 finish with it.
            finish: Timestamp,
            /// The deadline.
            deadline: Timestamp,
        },
        /// The deadline is kept once it is granted: so the request was taken.
        2 = Counted {
            /// How much.
            rate: ByteRate,
            /// From when.
            from: Timestamp,
            /// p90 finish with it.
            finish: Timestamp,
            /// The deadline.
            deadline: Timestamp,
        },
        /// It was granted.
        3 = Granted {
            /// How much.
            rate: ByteRate,
            /// From when.
            from: Timestamp,
            /// Until when.
            until: Timestamp,
        },
        /// Its owner refused it.
        4 = Refused {
            /// What would fit.
            fits: Option<ByteRate>,
        },
        /// Nobody answered.
        5 = Silent,
        /// It is up.
        6 = Carries {
            /// How much.
            rate: ByteRate,
            /// Until when.
            until: Timestamp,
        },
        /// It is down for now.
        7 = Interrupted,
        /// It failed before its time.
        8 = Failed,
        /// It is over as it should be.
        9 = Over,
        /// Its request needs it no longer.
        10 = Spare,
        /// Less suffices.
        11 = TooLarge {
            /// Before.
            from: ByteRate,
            /// What suffices.
            to: ByteRate,
        },
        /// It would end before its request does.
        12 = TooShort {
            /// Until when it is wanted.
            until: Timestamp,
        },
        /// Another request uses what is left of it.
        13 = Passed,
        /// Its owner does not change it.
        14 = Kept {
            /// How much.
            rate: ByteRate,
            /// Until when.
            until: Timestamp,
        },
        /// It can't be asked for.
        15 = Unobtainable {
            /// Why.
            why: Obstacle,
        },
    }
}

impl Reason {
    /// The earliest finish there is, where a deadline can't be met and that is known.
    pub(crate) fn earliest(&self) -> Option<Timestamp> {
        if let Self::Infeasible { earliest, .. } = self {
            *earliest
        } else {
            None
        }
    }
}

/// The reason beside the name of its circuit, as people read it.
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
