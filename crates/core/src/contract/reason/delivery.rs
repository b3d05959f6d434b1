//! Reasons about delivery in time, in words.

use alloc::{string::String, vec::Vec};
use core::fmt;

use posthaste_types::{RequestId, Timestamp, record};

use crate::contract::offer::write_offers;
use crate::contract::{Hindrance, WouldBuy};

record! {
    /// Reason of a decision about delivery in time.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum DeliveryReason {
        /// Every chunk lies whole at each destination, its digest verified there.
        0 = WholeThere {
            /// Number of destinations.
            destinations: u32,
        },
        /// Each destination had every chunk by the deliver-by time.
        1 = InTime {
            /// Number of destinations.
            destinations: u32,
            /// Time of complete delivery.
            whole_at: Timestamp,
            /// Deliver-by time.
            deliver_by: Timestamp,
        },
        /// Some destination had every chunk only after the deliver-by time.
        2 = Late {
            /// Number of destinations.
            destinations: u32,
            /// Time of complete delivery.
            whole_at: Timestamp,
            /// Deliver-by time.
            deliver_by: Timestamp,
        },
        /// A destination would be complete too late, or so shortly before that it is in danger.
        3 = Behind {
            /// Name of the last destination.
            name: String,
            /// Hindrance of that destination.
            hindrance: Hindrance,
            /// Time of its complete delivery, p90; none without a forecast.
            finish: Option<Timestamp>,
            /// Deliver-by time.
            deliver_by: Timestamp,
        },
        /// Every destination is forecast to be complete in time.
        4 = Suffices {
            /// Time of complete delivery, p90.
            finish: Timestamp,
            /// Deliver-by time.
            deliver_by: Timestamp,
        },
        /// The deliver-by time can't be met.
        5 = Infeasible {
            /// Name of the last destination to be complete.
            name: String,
            /// Hindrance of that destination.
            hindrance: Hindrance,
            /// Earliest feasible deliver-by time, if known.
            earliest: Option<Timestamp>,
            /// Deliver-by time.
            deliver_by: Timestamp,
            /// Offers that would make the request possible.
            would_buy: Vec<WouldBuy>,
        },
        /// The request would make a promised delivery to the same destination late.
        6 = CrowdsOut {
            /// Request of that delivery.
            request: RequestId,
            /// Earliest feasible deliver-by time without that, if known.
            earliest: Option<Timestamp>,
            /// Deliver-by time.
            deliver_by: Timestamp,
            /// Offers that would make the request possible.
            would_buy: Vec<WouldBuy>,
        },
        /// The request has a deliver-by time, and no destination that takes chunks.
        7 = NoDestination,
        /// The deliver-by time is in the past.
        8 = Passed {
            /// Deliver-by time.
            deliver_by: Timestamp,
        },
        /// Deadline and deliver-by time leave different amounts of time.
        9 = Binds {
            /// Deadline for safety.
            deadline: Timestamp,
            /// Deliver-by time.
            deliver_by: Timestamp,
            /// True if the deliver-by time leaves less.
            is_delivery: bool,
        },
        /// A user changed the deliver-by time.
        10 = NewDeliverBy {
            /// Previous time; none for any time.
            from: Option<Timestamp>,
            /// New time; none for any time.
            to: Option<Timestamp>,
        },
        /// A depot did not remove data that every destination has.
        11 = NotForgotten {
            /// Number of attempts.
            times: u32,
        },
        /// The dataset goes on to its address from the depots that hold it.
        12 = GoesOn {
            /// Request that brings it there.
            by: RequestId,
        },
        /// All of it is at its address.
        13 = AtAddress {
            /// Request that brought it there.
            by: RequestId,
        },
        /// The dataset is not brought to its address any more.
        14 = NotBrought {
            /// Request that ended.
            by: RequestId,
        },
        /// The source request, from whose depots it is read, is over or was rejected.
        15 = StaysBehind {
            /// The source request.
            of: RequestId,
        },
        /// A destination lies in a store, which takes whole chunks from the centre and gathers
        /// nothing.
        16 = GathersNothing {
            /// Name of the destination.
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
