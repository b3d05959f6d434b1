//! Reasons about being at the destinations in time, and how people read them.

use alloc::{string::String, vec::Vec};
use core::fmt;

use posthaste_types::{RequestId, Timestamp, record};

use super::super::offer::write_offers;
use crate::contract::{Hindrance, WouldBuy};

record! {
    /// Why something was decided about being at the destinations in time.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum DeliveryReason {
        /// Every chunk lies whole at each destination, its digest checked there.
        0 = WholeThere {
            /// How many those are.
            destinations: u32,
        },
        /// Each destination had every chunk by when it was wanted there.
        1 = InTime {
            /// How many those are.
            destinations: u32,
            /// When they did.
            whole_at: Timestamp,
            /// By when it was wanted.
            deliver_by: Timestamp,
        },
        /// Each destination had every chunk only later than it was wanted there.
        2 = Late {
            /// How many those are.
            destinations: u32,
            /// When they did.
            whole_at: Timestamp,
            /// By when it was wanted.
            deliver_by: Timestamp,
        },
        /// A destination would have all of it too late, or so little before that it is in danger.
        3 = Behind {
            /// The name of the last one.
            name: String,
            /// What keeps it waiting.
            hindrance: Hindrance,
            /// When it would have all of it, p90; none while that is not in sight.
            finish: Option<Timestamp>,
            /// By when it is wanted.
            deliver_by: Timestamp,
        },
        /// Every destination has all of it in time, as it looks.
        4 = Suffices {
            /// When, p90.
            finish: Timestamp,
            /// By when it is wanted.
            deliver_by: Timestamp,
        },
        /// It can't be at its destinations by when it is wanted there.
        5 = Infeasible {
            /// The name of the destination that has it last.
            name: String,
            /// What keeps it waiting.
            hindrance: Hindrance,
            /// The earliest it can be wanted there, where that is in sight.
            earliest: Option<Timestamp>,
            /// By when it was wanted.
            deliver_by: Timestamp,
            /// What would make it possible.
            would_buy: Vec<WouldBuy>,
        },
        /// It would come too late what was promised to be at the same destination in time.
        6 = CrowdsOut {
            /// The request that would.
            request: RequestId,
            /// The earliest it can be wanted there without that, where that is in sight.
            earliest: Option<Timestamp>,
            /// By when it was wanted.
            deliver_by: Timestamp,
            /// What would make it possible.
            would_buy: Vec<WouldBuy>,
        },
        /// It is wanted at its destinations, and there is none that takes chunks.
        7 = NoDestination,
        /// It was wanted at its destinations in the past.
        8 = Passed {
            /// By when.
            deliver_by: Timestamp,
        },
        /// Of being safe and being delivered in time the one leaves less time than the other.
        9 = Binds {
            /// When it must be safe.
            deadline: Timestamp,
            /// By when it is wanted at its destinations.
            deliver_by: Timestamp,
            /// It is delivery that leaves less.
            is_delivery: bool,
        },
        /// A user changed by when it is wanted at its destinations.
        10 = NewDeliverBy {
            /// Before; none for any time.
            from: Option<Timestamp>,
            /// From now on.
            to: Option<Timestamp>,
        },
        /// A depot that is to remove what every destination has was told so in vain.
        11 = NotForgotten {
            /// How often.
            times: u32,
        },
        /// It goes on to its address from the depots that hold it.
        12 = GoesOn {
            /// As this request.
            by: RequestId,
        },
        /// All of it is at the address that it went on to.
        13 = AtAddress {
            /// As this request.
            by: RequestId,
        },
        /// It is not brought to its address any more.
        14 = NotBrought {
            /// By this request, which ended.
            by: RequestId,
        },
        /// It is read from the depots of a request that is over, or was not taken.
        15 = StaysBehind {
            /// That request.
            of: RequestId,
        },
        /// A destination lies in a store, which takes whole chunks from the centre and gathers nothing.
        16 = GathersNothing {
            /// The name of the destination.
            name: String,
        },
    }
}

#[expect(
    clippy::too_many_lines,
    reason = "a sentence for each reason, in one place"
)]
pub(super) fn write(f: &mut fmt::Formatter<'_>, reason: &DeliveryReason) -> fmt::Result {
    match reason {
        DeliveryReason::WholeThere { destinations: 1 } => {
            f.write_str("every chunk lies whole at the destination, its digest checked there")
        }
        DeliveryReason::WholeThere { destinations } => write!(
            f,
            "every chunk lies whole at all {destinations} destinations, its digest checked there"
        ),
        DeliveryReason::InTime {
            destinations,
            whole_at,
            deliver_by,
        } => {
            write_whole(f, *destinations, *whole_at)?;
            write!(f, ", in time: it was wanted by {deliver_by}")
        }
        DeliveryReason::Late {
            destinations,
            whole_at,
            deliver_by,
        } => {
            write_whole(f, *destinations, *whole_at)?;
            write!(f, ", late: it was wanted by {deliver_by}")
        }
        DeliveryReason::Behind {
            name,
            hindrance,
            finish: Some(finish),
            deliver_by,
        } => {
            let late = if finish > deliver_by {
                ""
            } else {
                ", too little before"
            };
            write!(
                f,
                "{name} would have all of it by {finish} (p90){late}, and it is wanted by {deliver_by}: {hindrance}"
            )
        }
        DeliveryReason::Behind {
            name,
            hindrance,
            finish: None,
            deliver_by,
        } => {
            write!(
                f,
                "when {name} has all of it is not in sight: {hindrance}; it is wanted by {deliver_by}"
            )
        }
        DeliveryReason::Suffices { finish, deliver_by } => {
            write!(f, "p90 delivered {finish}, wanted by {deliver_by}")
        }
        DeliveryReason::Infeasible {
            name,
            hindrance,
            earliest,
            deliver_by,
            would_buy,
        } => {
            write!(f, "it can't be at {name} by {deliver_by}: {hindrance}")?;
            write_rest(f, *earliest, would_buy)
        }
        DeliveryReason::CrowdsOut {
            request,
            earliest,
            deliver_by,
            would_buy,
        } => {
            write!(
                f,
                "delivered by {deliver_by} it would make {request} late, to which that was promised"
            )?;
            write_rest(f, *earliest, would_buy)
        }
        DeliveryReason::NoDestination => {
            f.write_str("it is wanted at its destination, and that runs no relay")
        }
        DeliveryReason::Passed { deliver_by } => {
            write!(
                f,
                "{deliver_by}, when it was wanted at its destination, has passed"
            )
        }
        DeliveryReason::Binds {
            deadline,
            deliver_by,
            is_delivery: true,
        } => write!(
            f,
            "delivery by {deliver_by} leaves less time than being safe by {deadline}"
        ),
        DeliveryReason::Binds {
            deadline,
            deliver_by,
            is_delivery: false,
        } => write!(
            f,
            "being safe by {deadline} leaves less time than delivery by {deliver_by}"
        ),
        DeliveryReason::NewDeliverBy { from, to } => match (from, to) {
            (None, Some(to)) => write!(f, "the user wants it delivered by {to}"),
            (Some(from), Some(to)) => {
                write!(f, "the user wants it delivered by {to} instead of {from}")
            }
            (_, None) => f.write_str("the user wants it delivered at any time"),
        },
        DeliveryReason::NotForgotten { times } => {
            write!(
                f,
                "told {times} times in vain; what it holds it removes at its expiry"
            )
        }
        DeliveryReason::GoesOn { by } => {
            write!(
                f,
                "as {by}, read from the depots once all of it is safe there"
            )
        }
        DeliveryReason::AtAddress { by } => {
            write!(f, "{by} brought all of it to its address")
        }
        DeliveryReason::NotBrought { by } => write!(
            f,
            "{by} ended before all of it was at its address; depots keep it until it expires, `posthaste pull` brings it"
        ),
        DeliveryReason::GathersNothing { name } => {
            write!(
                f,
                "{name} lies in a store, which gathers nothing from depots: send to it alone, without depots and losses to survive, or to the \
                 address of its bucket"
            )
        }
        DeliveryReason::StaysBehind { of } => {
            write!(
                f,
                "it is read from the depots of {of}, and that was not taken or is over"
            )
        }
    }
}

fn write_whole(f: &mut fmt::Formatter<'_>, destinations: u32, at: Timestamp) -> fmt::Result {
    match destinations {
        1 => write!(
            f,
            "every chunk lay whole at the destination by {at}, its digest checked there"
        ),
        _ => write!(
            f,
            "every chunk lay whole at all {destinations} destinations by {at}, its digest checked there"
        ),
    }
}

fn write_rest(
    f: &mut fmt::Formatter<'_>,
    earliest: Option<Timestamp>,
    would_buy: &[WouldBuy],
) -> fmt::Result {
    if let Some(earliest) = earliest {
        write!(f, "; earliest delivery {earliest} (p90)")?;
    }
    if !would_buy.is_empty() {
        f.write_str("; ")?;
    }
    write_offers(f, would_buy)
}
