//! Reasons about being at the destinations in time, as people read them.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "other reasons have their words elsewhere"
)]

use core::fmt;
use posthaste_types::Timestamp;

use super::{super::offer::write_offers, Reason};
use crate::contract::WouldBuy;

#[expect(
    clippy::too_many_lines,
    reason = "a sentence for each reason, in one place"
)]
pub(super) fn write(f: &mut fmt::Formatter<'_>, reason: &Reason) -> fmt::Result {
    match reason {
        Reason::WholeInTime {
            destinations,
            whole_at,
            deliver_by,
        } => {
            write_whole(f, *destinations, *whole_at)?;
            write!(f, ", in time: it was wanted by {deliver_by}")
        }
        Reason::WholeLate {
            destinations,
            whole_at,
            deliver_by,
        } => {
            write_whole(f, *destinations, *whole_at)?;
            write!(f, ", late: it was wanted by {deliver_by}")
        }
        Reason::DeliveryBehind {
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
        Reason::DeliveryBehind {
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
        Reason::DeliverySuffices { finish, deliver_by } => {
            write!(f, "p90 delivered {finish}, wanted by {deliver_by}")
        }
        Reason::DeliveryInfeasible {
            name,
            hindrance,
            earliest,
            deliver_by,
            would_buy,
        } => {
            write!(f, "it can't be at {name} by {deliver_by}: {hindrance}")?;
            write_rest(f, *earliest, would_buy)
        }
        Reason::DeliveryCrowdsOut {
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
        Reason::NoDestination => {
            f.write_str("it is wanted at its destination, and that runs no relay")
        }
        Reason::DeliverByPast { deliver_by } => {
            write!(
                f,
                "{deliver_by}, when it was wanted at its destination, has passed"
            )
        }
        Reason::Binds {
            deadline,
            deliver_by,
            is_delivery: true,
        } => write!(
            f,
            "delivery by {deliver_by} leaves less time than being safe by {deadline}"
        ),
        Reason::Binds {
            deadline,
            deliver_by,
            is_delivery: false,
        } => write!(
            f,
            "being safe by {deadline} leaves less time than delivery by {deliver_by}"
        ),
        Reason::NewDeliverBy { from, to } => match (from, to) {
            (None, Some(to)) => write!(f, "the user wants it delivered by {to}"),
            (Some(from), Some(to)) => {
                write!(f, "the user wants it delivered by {to} instead of {from}")
            }
            (_, None) => f.write_str("the user wants it delivered at any time"),
        },
        _ => Ok(()),
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
