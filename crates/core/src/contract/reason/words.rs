//! Reasons that take more than a line to say.

use core::fmt;
use posthaste_types::{Bytes, Code, Timestamp};

use super::Reason;

/// What a decision about a stage-in rests on.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only what is about stage-ins comes here"
)]
pub(super) fn write_arrival(f: &mut fmt::Formatter<'_>, reason: &Reason) -> fmt::Result {
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
        Reason::AllHere { chunks: 1 } => f.write_str("its chunk is here, its digest noted"),
        Reason::AllHere { chunks } => {
            write!(f, "all {chunks} chunks are here, their digests noted")
        }
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

/// What was answered to a stage-in.
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

/// What a code takes and gives, as a person would say it.
pub(super) fn write_redundancy(
    f: &mut fmt::Formatter<'_>,
    code: Code,
    loss_ppb: u32,
) -> fmt::Result {
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

/// Since when a path was not measured.
pub(super) fn write_stale(
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

/// How many depots are fed, and which way data goes.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only what is about the course comes here"
)]
pub(super) fn write_course(f: &mut fmt::Formatter<'_>, reason: &Reason) -> fmt::Result {
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
