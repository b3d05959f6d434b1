use alloc::{string::String, vec::Vec};
use core::{fmt, time::Duration};
use posthaste_types::{ByteRate, Bytes, Code, RequestId, Timestamp, record};

record! {
    /// Offer that would make an infeasible deadline feasible.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum WouldBuy {
        /// A later deadline.
        0 = Later {
            /// Earliest deadline that can be met with the configured confidence.
            deadline: Timestamp,
        },
        /// More rate from further depots.
        1 = MoreRate {
            /// Missing rate.
            rate: ByteRate,
        },
        /// Less redundancy.
        2 = LighterCode {
            /// Code that would meet the deadline on the same depots.
            code: Code,
        },
        /// More space on depots.
        3 = MoreSpace {
            /// Missing space.
            bytes: Bytes,
        },
        /// More depots, so that each fragment of a chunk has its own.
        4 = MoreDepots {
            /// Missing depots.
            count: u32,
        },
        /// Registered depots that the request does not name.
        16 = NamedDepots {
            /// Names of the depots: all of them are needed.
            names: Vec<String>,
            /// Time at which the dataset would be safe then, with admission's confidence.
            finish: Timestamp,
        },
        /// Return of a named depot that is lost.
        17 = DepotBack {
            /// Name of the depot.
            name: String,
            /// Time at which the dataset would be safe then.
            finish: Timestamp,
        },
        /// Use of a named depot outside its hours.
        18 = DepotHours {
            /// Name of the depot.
            name: String,
            /// Time at which the dataset would be safe then.
            finish: Timestamp,
        },
        /// A later deadline of another request.
        19 = OthersSlack {
            /// The other request.
            request: RequestId,
            /// Delay of its deadline.
            later: Duration,
            /// Its deadline after the delay.
            deadline: Timestamp,
        },
        /// A higher rate limit of the request.
        112 = HigherLimit {
            /// The limit.
            rate: ByteRate,
            /// Time at which the dataset would be safe, or here, then.
            finish: Timestamp,
        },
        /// A higher budget.
        113 = Budget {
            /// The higher budget, in millionths of a dollar.
            micro_usd: u64,
            /// Time at which the dataset would be safe then.
            finish: Timestamp,
        },
        /// A later deliver-by time.
        40 = DeliveredLater {
            /// Earliest feasible deliver-by time.
            deliver_by: Timestamp,
        },
        /// Return of a destination that is away.
        41 = DestinationBack {
            /// Name of the destination.
            name: String,
            /// Time at which delivery would be complete then.
            finish: Timestamp,
        },
        /// Removal of a destination.
        42 = WithoutDestination {
            /// Name of the last destination to finish.
            name: String,
            /// Time at which the others would be complete.
            finish: Timestamp,
        },
        /// Rate on an offered circuit.
        43 = Circuit {
            /// Name of the circuit.
            name: String,
            /// Rate.
            rate: ByteRate,
            /// Start.
            from: Timestamp,
            /// Time at which the dataset would be safe then.
            finish: Timestamp,
        },
        /// Return of a lost source of a stage-in.
        44 = SourceBack {
            /// Name of the source.
            name: String,
            /// Time at which all of it would be here then.
            finish: Timestamp,
        },
        /// Reserved rate, besides the forecast rate.
        20 = Reservation {
            /// Name of the depot or source at the other end of the link; empty for the centre's
            /// egress.
            on: String,
            /// Rate.
            rate: ByteRate,
            /// Start.
            from: Timestamp,
            /// End.
            until: Timestamp,
        },
    }
}

impl fmt::Display for WouldBuy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Later { deadline } => write!(f, "a deadline of {deadline} or later"),
            Self::MoreRate { rate } => write!(f, "another {rate} of depots"),
            Self::LighterCode { code } => write!(f, "code {code}"),
            Self::MoreSpace { bytes } => write!(f, "another {bytes} of depot space"),
            Self::MoreDepots { count } => write!(f, "{count} more depots"),
            Self::NamedDepots { names, finish } => {
                let noun = if names.len() == 1 { "depot" } else { "depots" };
                write!(f, "{noun} ")?;
                for (place, name) in names.iter().enumerate() {
                    let before = match place {
                        0 => "",
                        _ if place + 1 == names.len() => " and ",
                        _ => ", ",
                    };
                    write!(f, "{before}{name}")?;
                }
                write!(f, " as well (safe by {finish})")
            }
            Self::DepotBack { name, finish } => write!(f, "depot {name} back (safe by {finish})"),
            Self::SourceBack { name, finish } => {
                write!(f, "source {name} back (here by {finish})")
            }
            Self::HigherLimit { rate, finish } => {
                write!(f, "a limit of {rate} or more (done by {finish})")
            }
            Self::Budget { micro_usd, finish } => {
                write!(f, "a budget of {} (safe by {finish})", Dollars(*micro_usd))
            }
            Self::DeliveredLater { deliver_by } => {
                write!(f, "being wanted there by {deliver_by} or later")
            }
            Self::DestinationBack { name, finish } => {
                write!(f, "{name} back (delivered by {finish})")
            }
            Self::WithoutDestination { name, finish } => {
                write!(f, "doing without {name} (delivered by {finish})")
            }
            Self::DepotHours { name, finish } => {
                write!(f, "depot {name} outside its hours (safe by {finish})")
            }
            Self::OthersSlack {
                request,
                later,
                deadline,
            } => {
                let minutes = later.as_secs() / 60;
                write!(
                    f,
                    "the deadline of {request} {minutes} min later, {deadline}"
                )
            }
            Self::Circuit {
                name,
                rate,
                from,
                finish,
            } => write!(
                f,
                "a reservation of {rate} on {name} from {from} (safe by {finish})"
            ),
            Self::Reservation {
                on, rate, until, ..
            } if on.is_empty() => {
                write!(f, "{rate} reserved on the way out until {until}")
            }
            Self::Reservation {
                on, rate, until, ..
            } => write!(f, "{rate} more reserved on the link to {on} until {until}"),
        }
    }
}

/// Millionths of a dollar, as people write them: to the cent, or as exact as needed.
pub(crate) struct Dollars(pub(crate) u64);

impl fmt::Display for Dollars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000_000, self.0 % 1_000_000);
        match rest {
            rest if rest % 10_000 == 0 => write!(f, "${whole}.{:02}", rest / 10_000),
            rest if rest % 100 == 0 => write!(f, "${whole}.{:04}", rest / 100),
            rest => write!(f, "${whole}.{rest:06}"),
        }
    }
}

pub(super) fn write_offers(f: &mut fmt::Formatter<'_>, offers: &[WouldBuy]) -> fmt::Result {
    for (place, offer) in offers.iter().enumerate() {
        let before = if place == 0 { "it would take" } else { ", or" };
        write!(f, "{before} {offer}")?;
    }
    Ok(())
}
