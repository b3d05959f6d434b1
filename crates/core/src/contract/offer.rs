use alloc::{string::String, vec::Vec};
use core::{fmt, time::Duration};
use posthaste_types::{ByteRate, Bytes, Code, RequestId, Timestamp, record};

record! {
    /// What would make an infeasible deadline feasible.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum WouldBuy {
        /// A later deadline.
        0 = Later {
            /// The earliest that can be met with the configured confidence.
            deadline: Timestamp,
        },
        /// This much more rate from further depots.
        1 = MoreRate {
            /// Rate that is missing now.
            rate: ByteRate,
        },
        /// Less redundancy.
        2 = LighterCode {
            /// A code that would meet the deadline on the same depots.
            code: Code,
        },
        /// This much more space on depots.
        3 = MoreSpace {
            /// Space that is missing now.
            bytes: Bytes,
        },
        /// More depots, so that each fragment of a chunk has its own.
        4 = MoreDepots {
            /// How many more.
            count: u32,
        },
        /// Depots that are in the books and were not named.
        16 = NamedDepots {
            /// Their names: all of them are needed.
            names: Vec<String>,
            /// When it would be safe then, with the confidence admission asks for.
            finish: Timestamp,
        },
        /// A named depot that is lost, were it back now.
        17 = DepotBack {
            /// Its name.
            name: String,
            /// When it would be safe then.
            finish: Timestamp,
        },
        /// A named depot, were it lent outside its hours as well.
        18 = DepotHours {
            /// Its name.
            name: String,
            /// When it would be safe then.
            finish: Timestamp,
        },
        /// A later deadline of another request.
        19 = OthersSlack {
            /// That request.
            request: RequestId,
            /// How much later.
            later: Duration,
            /// Its deadline then.
            deadline: Timestamp,
        },
        /// A higher limit on what may be sent, or read, for the request.
        112 = HigherLimit {
            /// The limit.
            rate: ByteRate,
            /// When it would be safe, or here, then.
            finish: Timestamp,
        },
        /// A higher budget.
        113 = Budget {
            /// Most that it may cost then, in millionths of a dollar.
            micro_usd: u64,
            /// When it would be safe then.
            finish: Timestamp,
        },
        /// Being wanted later at its destinations.
        40 = DeliveredLater {
            /// The earliest that can be kept.
            deliver_by: Timestamp,
        },
        /// A destination that is away, were it back now.
        41 = DestinationBack {
            /// Its name.
            name: String,
            /// When all of it would be delivered then.
            finish: Timestamp,
        },
        /// One destination less.
        42 = WithoutDestination {
            /// The name of the one that has it last.
            name: String,
            /// When the others would have all of it.
            finish: Timestamp,
        },
        /// Rate on a circuit that is offered.
        43 = Circuit {
            /// Its name.
            name: String,
            /// How much.
            rate: ByteRate,
            /// From when.
            from: Timestamp,
            /// When it would be safe then.
            finish: Timestamp,
        },
        /// A source of a stage-in that is lost, were it back now.
        44 = SourceBack {
            /// Its name.
            name: String,
            /// When all of it would be here then.
            finish: Timestamp,
        },
        /// Rate that nobody else takes, beside what is forecast.
        20 = Reservation {
            /// The name of the depot or source on whose link; empty for the centre's way out.
            on: String,
            /// How much.
            rate: ByteRate,
            /// From when.
            from: Timestamp,
            /// Until when.
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

/// Millionths of a dollar, as people write them: to the cent, or as exact as it takes.
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
