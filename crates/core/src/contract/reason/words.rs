//! Reasons in words for people.

use alloc::{format, string::String};
use core::fmt;
use posthaste_types::{ByteRate, Bytes, Code, Timestamp};

use crate::{
    contract::reason::{Reason, circuit::write_circuit, unkept::write_unkept},
    contract::{Binding, Dollars, offer::write_offers},
};

/// Claim about data that arrived: a source may keep no checksum.
const AS_KEPT: &str = "and what came is right by each checksum that a source keeps";

impl fmt::Display for Reason {
    #[expect(
        clippy::too_many_lines,
        reason = "a sentence for each reason, in one place"
    )]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FinishesFirst => f.write_str("it would be stored there first"),
            course @ (Self::Admitted { .. }
            | Self::DirectSuffices { .. }
            | Self::DirectTooSlow { .. }
            | Self::Behind { .. }
            | Self::Ahead { .. }
            | Self::SlackThin { .. }) => write_course(f, course),
            Self::DepotLost { fault } => write!(f, "the depot is lost: {fault}"),
            Self::DepotBack => f.write_str("the depot is back"),
            Self::RateMoved { from, to } => write!(f, "its forecast moved from {from} to {to}"),
            Self::Slowed { waits } => write!(
                f,
                "what is on its way there would take {} s: others would have it sooner",
                waits.as_secs()
            ),
            Self::Repair { lost } => write!(f, "a fragment was lost with depot {lost}"),
            Self::Retry { fault, attempt } => write!(f, "try {attempt}: {fault}"),
            Self::Circuit { name, why } => write_circuit(f, name, *why),
            Self::Endgame => f.write_str("it is late, so the fastest lane sends it too"),
            Self::AllSafe { losses: 1 } => {
                f.write_str("every chunk survives the loss of any depot, digests verified")
            }
            Self::AllSafe { losses: 0 } => f.write_str("every chunk is stored, digests verified"),
            Self::AllSafe { losses } => {
                write!(
                    f,
                    "every chunk survives the loss of any {losses} depots, digests verified"
                )
            }
            Self::Restarted => f.write_str("the service started again"),
            Self::Asked => f.write_str("the user asked for it"),
            Self::Infeasible {
                earliest,
                deadline,
                would_buy,
            } => {
                write!(f, "the deadline {deadline} can't be met")?;
                if let Some(earliest) = earliest {
                    write!(f, "; earliest finish {earliest} (p90)")?;
                }
                if !would_buy.is_empty() {
                    f.write_str("; ")?;
                }
                write_offers(f, would_buy)
            }
            Self::Planned {
                finish,
                deadline,
                others,
            } => {
                write!(
                    f,
                    "by a plan over time: p90 finish {finish} is before the deadline {deadline}"
                )?;
                match others {
                    0 => Ok(()),
                    1 => f.write_str("; one other request leaves it depots"),
                    others => write!(f, "; {others} other requests leave it depots"),
                }
            }
            Self::Rearranged { more: 1 } => f.write_str("a plan over time keeps one deadline more"),
            Self::Rearranged { more } => {
                write!(f, "a plan over time keeps {more} deadlines more")
            }
            Self::Unplanned => f.write_str("the plan over time is not followed any more"),
            Self::Concedes { more: 1 } => f.write_str(
                "it can't be on time any more, and one other deadline is kept if others go first",
            ),
            Self::Concedes { more } => write!(
                f,
                "it can't be on time any more, and {more} other deadlines are kept if others go first"
            ),
            Self::Regained => f.write_str("it can be on time again, and makes no other late"),
            Self::DeadlinePast { deadline } => write!(f, "the deadline {deadline} has passed"),
            Self::TooFewDepots {
                code,
                needed,
                available,
            } => write!(
                f,
                "code {code} needs {needed} depots, one for each fragment, and {available} can take data"
            ),
            Self::UnknownDepot { depot } => write!(f, "depot {depot} is not in the books"),
            Self::SourceFile { fault, what } => write!(f, "{fault}: {what}"),
            Self::Source { fault } => write!(f, "{fault} after the dataset was sealed"),
            Self::NoSpace { needed, available } => {
                write!(f, "{needed} are needed on depots and {available} are free")
            }
            Self::GaveUp { fault, attempts } => {
                let tries = if *attempts == 1 { "try" } else { "tries" };
                write!(f, "gave up after {attempts} {tries}: {fault}")
            }
            Self::OutsideHours => f.write_str("it is outside the hours its owner lends it"),
            Self::TooFewDomains { code, available } => write!(
                f,
                "with code {code} on {available} {} the loss of one could lose data: name depots elsewhere, or ask \
                 for more parity",
                if *available == 1 { "site" } else { "sites" }
            ),
            Self::OnlyKinHaveRoom { most, code } => write!(
                f,
                "nothing else has room, so one site may hold {most} fragments of a chunk of code {code}: its loss \
                 could lose data until room is made elsewhere"
            ),
            Self::Offered { would_buy } => write_offers(f, would_buy),
            Self::NewDeadline { from, to } => {
                write!(f, "the user moved it from {from} to {to}")
            }
            Self::OverBudget {
                budget,
                needed,
                finish,
            } => {
                let (budget, needed) = (Dollars(*budget), Dollars(*needed));
                match finish {
                    Some(finish) => write!(
                        f,
                        "{budget} does not pay it: with {needed} it would be safe by {finish}"
                    ),
                    None => write!(f, "{budget} does not pay it: it may cost {needed}"),
                }
            }
            Self::NoMoneySuffices {
                budget,
                needed,
                finish,
                deadline,
            } => {
                let (budget, needed) = (Dollars(*budget), Dollars(*needed));
                write!(
                    f,
                    "{budget} does not pay it: it costs {needed} at least, and for no money is it here by {deadline}"
                )?;
                match finish {
                    Some(finish) => write!(f, ", but by {finish} for more"),
                    None => Ok(()),
                }
            }
            Self::BudgetSpent { spent, budget } => write!(
                f,
                "{} of its budget of {} are spent, and the rest does not pay what is missing",
                Dollars(*spent),
                Dollars(*budget)
            ),
            Self::RepairWaits { lost, losses } => write!(
                f,
                "what was lost with depot {lost} waits: any {losses} depots may still be lost"
            ),
            Self::PurgeFirst { purge_at, deadline } => write!(
                f,
                "the purge of its source at {purge_at} comes before the deadline {deadline} that was \
                 asked for"
            ),
            Self::DeadlineFirst { deadline, purge_at } => write!(
                f,
                "the deadline {deadline} comes before the purge of its source at {purge_at}"
            ),
            Self::LessFirst { losses, parity } => write!(
                f,
                "there is no time for more by the deadline: at first the loss of any {losses} of its depots is survived, later of any {parity}"
            ),
            Self::RestFollows { losses, parity } => write!(
                f,
                "the loss of any {losses} of its depots is survived, as was to suffice by the deadline; what makes that {parity} follows, behind others"
            ),
            Self::Purged => {
                f.write_str("all was safe before it went, and nothing can be made again from here")
            }
            Self::ReleaseAgain { fault, attempt, at } => {
                write!(f, "{fault}; try {attempt} is at {at}")
            }
            Self::NewLimit { from, to } => {
                let shown = |rate: &Option<ByteRate>| match rate {
                    Some(rate) => format!("{rate}"),
                    None => String::from("no limit"),
                };
                write!(
                    f,
                    "the user changed it from {} to {}",
                    shown(from),
                    shown(to)
                )
            }
            Self::NewPriority { from, to } => {
                write!(f, "the user changed it from {from} to {to}")
            }
            Self::Paused { by, .. } => write!(f, "paused by {by}"),
            Self::Resumed { by, since } => {
                write!(f, "resumed by {by}; it had waited since {since}")
            }
            Self::PausedLate {
                by,
                since,
                finish,
                deadline,
            } => match finish {
                Some(finish) => write!(
                    f,
                    "paused by {by} since {since}; if it went on now, it would be done by {finish}, and the deadline is {deadline}"
                ),
                None => write!(
                    f,
                    "paused by {by} since {since}; the deadline is {deadline}, and no finish would be in sight"
                ),
            },
            Self::Delivery { why } => super::delivery::write(f, why),
            Self::Hoped { why } => why.fmt(f),
            Self::GoesOnAsItComes => {
                f.write_str("nothing else goes that way, so it goes on while it still arrives")
            }
            Self::DidNotArrive => f.write_str("what was to go on as it came did not arrive"),
            Self::CodedThere => f.write_str(
                "it codes the chunk and sends fragments on, which leaves the centre once",
            ),
            Self::HasIt => f.write_str("others have it, and it leaves the centre once"),
            Self::Drained { why } => why.fmt(f),
            Self::Near { why } => why.fmt(f),
            Self::Pinned { why } => why.fmt(f),
            Self::Lent { why } => why.fmt(f),
            Self::Foreseen { purge_at, rule } => match purge_at {
                Some(at) => write!(
                    f,
                    "the purge takes the first file of its source at {at}: {rule}"
                ),
                None => write!(f, "no purge takes any file of its source: {rule}"),
            },
            Self::Nearer { level } => {
                write!(f, "level {level} is nearer to the destination")
            }
            Self::Redundancy { code, loss_ppb } => write_redundancy(f, *code, *loss_ppb),
            Self::CannotSurvive { survive, depots } => {
                write!(f, "no code on {depots} depots survives {survive}")
            }
            apart @ (Self::InboundBound { .. }
            | Self::OnlyThere { .. }
            | Self::HeldNowhere { .. }) => write_apart(f, apart),
            arrival @ (Self::Inbound { .. }
            | Self::MustBegin { .. }
            | Self::MayArrive { .. }
            | Self::SourceLost { .. }
            | Self::NoSourceLeft { .. }
            | Self::DestinationRefuses { .. }
            | Self::NotKeptThere { .. }
            | Self::NotThere { .. }
            | Self::FromOneSource { .. }
            | Self::AllHere { .. }
            | Self::CameEarly { .. }
            | Self::InboundLate { .. }
            | Self::InboundThin { .. }
            | Self::InboundSuffices { .. }
            | Self::NothingMoreUrgent
            | Self::ArrivesFirst
            | Self::GaveAgain
            | Self::NoSourceKnown) => write_arrival(f, arrival),
            Self::Verified => f.write_str("every chunk was pulled and its digest verified"),
            Self::Spare { name } => write!(f, "the others suffice without {name}"),
            Self::Tuned { why } => write!(f, "{}", why.of_fragments()),
            Self::Space { why } => why.fmt(f),
            Self::Way { why } => why.fmt(f),
            Self::PathStale {
                measured_at,
                budget,
            } => write_stale(f, *measured_at, *budget),
        }
    }
}

/// Writes the basis of a decision about a stage-in.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only what is about stage-ins comes here"
)]
fn write_arrival(f: &mut fmt::Formatter<'_>, reason: &Reason) -> fmt::Result {
    match reason {
        Reason::Inbound {
            sources,
            begin_by,
            finish,
            deadline,
        } => write_inbound(f, *sources, *begin_by, *finish, *deadline),
        Reason::MustBegin { deadline } => {
            write!(f, "waiting longer would endanger the deadline {deadline}")
        }
        Reason::MayArrive { not_before } => write!(f, "it may be here since {not_before}"),
        Reason::NothingMoreUrgent => f.write_str("nothing more urgent needs what is free"),
        Reason::ArrivesFirst => f.write_str("it would be here first from there"),
        Reason::SourceLost { name, fault } => write!(f, "{name}: {fault}"),
        Reason::GaveAgain => f.write_str("it gave a chunk again"),
        Reason::NoSourceKnown => f.write_str("none of its sources is known"),
        Reason::NoSourceLeft { fault } => {
            write!(
                f,
                "no source is left that could give the rest; the last: {fault}"
            )
        }
        Reason::NotThere { said } | Reason::FromOneSource { said } => f.write_str(said),
        Reason::DestinationRefuses { said } => write!(f, "its destination refuses it: {said}"),
        Reason::NotKeptThere { modes, times } => write_unkept(f, *modes, *times),
        Reason::AllHere { chunks: 1 } => write!(f, "its chunk arrived, {AS_KEPT}"),
        Reason::AllHere { chunks } => write!(f, "all {chunks} chunks arrived, {AS_KEPT}"),
        Reason::CameEarly {
            not_before,
            deadline,
        } => write!(
            f,
            "it came before {not_before}, or the deadline {deadline} would have been in danger"
        ),
        Reason::InboundLate { finish, deadline } => write!(
            f,
            "the sources give it too late: p90 finish {finish}, deadline {deadline}"
        ),
        Reason::InboundThin { finish, deadline } => write!(
            f,
            "hardly any slack is left: p90 finish {finish}, deadline {deadline}"
        ),
        Reason::InboundSuffices { finish, deadline } => write!(
            f,
            "the sources give it in time: p90 finish {finish} is before the deadline {deadline}"
        ),
        _ => Ok(()),
    }
}

/// Writes a reason about sources that hold different files.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only what is about such sources comes here"
)]
fn write_apart(f: &mut fmt::Formatter<'_>, reason: &Reason) -> fmt::Result {
    match reason {
        Reason::InboundBound {
            sources,
            begin_by,
            finish,
            deadline,
            binding,
        } => {
            write_inbound(f, *sources, *begin_by, *finish, *deadline)?;
            f.write_str("; the last to come are ")?;
            write_binding(f, binding)
        }
        Reason::OnlyThere {
            binding,
            finish,
            deadline,
            would_buy,
        } => {
            match finish {
                Some(finish) => write!(
                    f,
                    "the deadline {deadline} can't be met; earliest finish {finish} (p90), of "
                )?,
                None => write!(f, "nothing comes now, by the deadline {deadline}, of ")?,
            }
            write_binding(f, binding)?;
            if !would_buy.is_empty() {
                f.write_str("; ")?;
            }
            write_offers(f, would_buy)
        }
        Reason::HeldNowhere { bytes, fault } => write!(
            f,
            "no source is left that holds {bytes} of what is missing; the last: {fault}"
        ),
        _ => Ok(()),
    }
}

/// Writes the data that only some sources hold.
fn write_binding(f: &mut fmt::Formatter<'_>, binding: &Binding) -> fmt::Result {
    let names = binding.names.join(" and ");
    write!(f, "{} that lie only at {names}", binding.bytes)
}

/// Writes the answer to a stage-in.
fn write_inbound(
    f: &mut fmt::Formatter<'_>,
    sources: u32,
    begin_by: Option<Timestamp>,
    finish: Timestamp,
    deadline: Timestamp,
) -> fmt::Result {
    let noun = if sources == 1 { "source" } else { "sources" };
    write!(
        f,
        "from {sources} {noun}: p90 finish {finish} is before the deadline {deadline}"
    )?;
    match begin_by {
        Some(at) => write!(f, "; it begins by {at}, not earlier than it must"),
        None => Ok(()),
    }
}

/// Writes the cost and gain of a code in words for people.
fn write_redundancy(f: &mut fmt::Formatter<'_>, code: Code, loss_ppb: u32) -> fmt::Result {
    let (total, parity) = (code.total(), code.parity());
    let data = u32::from(code.data().max(1));
    let stored = (u32::from(total) * 100 + data / 2) / data;
    write!(f, "{code} on {total} depots: any {parity} may be lost; ")?;
    if code.data() == 1 {
        write!(f, "{total} copies are stored")?;
    } else {
        let (whole, hundredths) = (stored / 100, stored % 100);
        write!(f, "{whole}.{hundredths:02} bytes are stored for each")?;
    }
    let once = 1_000_000_000 / loss_ppb.max(1);
    write!(
        f,
        ", and by what these depots lost so far, data is lost once in {once} times"
    )
}

/// Writes the age of a path's last measurement.
fn write_stale(
    f: &mut fmt::Formatter<'_>,
    measured_at: Option<Timestamp>,
    budget: Bytes,
) -> fmt::Result {
    match measured_at {
        None => f.write_str("the path was never measured")?,
        Some(at) => write!(f, "the path was last measured at {at}")?,
    }
    write!(f, ": at most {budget} are spent on that")
}

/// Writes the fan-out and the way that data takes.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only what is about the course comes here"
)]
fn write_course(f: &mut fmt::Formatter<'_>, reason: &Reason) -> fmt::Result {
    match reason {
        Reason::Admitted {
            fan_out,
            finish,
            deadline,
        } => write!(
            f,
            "{fan_out} depots at once: p90 finish {finish} is before the deadline {deadline}"
        ),
        Reason::DirectSuffices { finish, deadline } => write!(
            f,
            "the direct path suffices: p90 finish {finish} is before the deadline {deadline}"
        ),
        Reason::DirectTooSlow { finish, deadline } => write!(
            f,
            "the direct path is too slow: p90 finish {finish} is after the deadline {deadline}"
        ),
        Reason::Behind {
            fan_out,
            finish,
            deadline,
        } => write!(
            f,
            "{fan_out} depots now: p90 finish {finish} was after the deadline {deadline}"
        ),
        Reason::Ahead {
            fan_out,
            finish,
            deadline,
        } => write!(
            f,
            "{fan_out} depots are enough: p90 finish {finish} is well before the deadline {deadline}"
        ),
        Reason::SlackThin {
            fan_out,
            finish,
            deadline,
        } => write!(
            f,
            "fed to {fan_out}: p90 finish {finish} leaves too little slack to the deadline {deadline}"
        ),
        _ => Ok(()),
    }
}
