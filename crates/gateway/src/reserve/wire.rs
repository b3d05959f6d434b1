//! Reservations as JSON in the REST API.

use jiff::Timestamp as Moment;
use posthaste_plan::reserve::{Amount, Ask, Change, Piece, Refusal, Shape, State};
use posthaste_types::{ByteRate, Bytes, Timestamp};
use serde::{Deserialize, Serialize};

use super::flow::Flow;

/// Most flows of one reservation.
const FLOWS_MAX: usize = 8;

/// Request for a reservation.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    /// Client's own name for it: a repeated request gets one reservation.
    pub id: String,
    /// Device; required if rates are reserved on several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fixed: Option<Fixed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub volume: Option<Volume>,
    /// Packets that belong to it beside the streams that name it.
    #[serde(default)]
    pub flows: Vec<Flow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_s: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Fixed {
    rate_bytes_per_s: u64,
    /// Start; at once if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<Moment>,
    end: Moment,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Volume {
    bytes: u64,
    /// Earliest start; at once if missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    earliest: Option<Moment>,
    deadline: Moment,
    #[serde(default)]
    rate_bytes_per_s_min: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_bytes_per_s_max: Option<u64>,
    #[serde(default)]
    shape: Preferred,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
enum Preferred {
    #[default]
    EarliestFinish,
    LatestStart,
    Shortest,
}

/// Change of a reservation.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Changed {
    start: Option<Moment>,
    end: Option<Moment>,
    rate_bytes_per_s: Option<u64>,
    /// New volume, or the rest of it, instead of all the other fields.
    pub volume: Option<Volume>,
}

/// Piece of a reservation, as shown and kept.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Span {
    from: Moment,
    to: Moment,
    rate_bytes_per_s: u64,
}

/// Converts a time; one outside either side's range makes no sense in a reservation.
pub(super) fn moment(at: Timestamp) -> Moment {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    Moment::from_microsecond(micros).unwrap_or(Moment::MAX)
}

pub(super) fn timestamp(at: Moment) -> Timestamp {
    Timestamp::from_micros(u64::try_from(at.as_microsecond()).unwrap_or(0))
}

impl Asked {
    /// Returns the request, which must be either a fixed rate or a volume.
    pub(super) fn ask(&self, now: Timestamp) -> Result<Ask, &'static str> {
        if self.flows.len() > FLOWS_MAX {
            return Err("a reservation has at most 8 flows");
        }
        match (&self.fixed, &self.volume) {
            (Some(fixed), None) => Ok(Ask::Fixed {
                amount: Amount::of_link(ByteRate::new(fixed.rate_bytes_per_s)),
                start: fixed.start.map_or(now, timestamp),
                end: timestamp(fixed.end),
            }),
            (None, Some(volume)) => Ok(volume.ask(now)),
            (Some(_), Some(_)) | (None, None) => Err("say either `fixed` or `volume`"),
        }
    }
}

impl Volume {
    pub(super) fn ask(&self, now: Timestamp) -> Ask {
        Ask::Volume {
            bytes: Bytes::new(self.bytes),
            earliest: self.earliest.map_or(now, timestamp),
            deadline: timestamp(self.deadline),
            least: ByteRate::new(self.rate_bytes_per_s_min),
            most: ByteRate::new(self.rate_bytes_per_s_max.unwrap_or(u64::MAX)),
            shape: match self.shape {
                Preferred::EarliestFinish => Shape::EarliestFinish,
                Preferred::LatestStart => Shape::LatestStart,
                Preferred::Shortest => Shape::Shortest,
            },
        }
    }
}

impl Changed {
    pub(super) fn change(&self) -> Change {
        Change {
            start: self.start.map(timestamp),
            end: self.end.map(timestamp),
            amount: self
                .rate_bytes_per_s
                .map(|rate| Amount::of_link(ByteRate::new(rate))),
        }
    }
}

impl From<&Piece> for Span {
    fn from(piece: &Piece) -> Self {
        Self {
            from: moment(piece.from),
            to: moment(piece.to),
            rate_bytes_per_s: piece.amount.rate().get(),
        }
    }
}

impl From<&Span> for Piece {
    fn from(span: &Span) -> Self {
        Self {
            from: timestamp(span.from),
            to: timestamp(span.to),
            amount: Amount::of_link(ByteRate::new(span.rate_bytes_per_s)),
        }
    }
}

/// Returns when a hold ends; `None` if it is committed.
pub(super) fn held_until(state: State) -> Option<Moment> {
    match state {
        State::Held { until } => Some(moment(until)),
        State::Committed => None,
    }
}

/// Refusal, with the terms that would be granted.
#[derive(Debug, Default, Serialize)]
pub(super) struct Refused {
    error: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    earliest_start: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_bytes_per_s_most: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    earliest_finish: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes_most: Option<u64>,
}

impl Refused {
    /// Refuses for a reason that no other terms would remove.
    pub(super) fn because(why: impl Into<String>) -> Self {
        Self {
            error: why.into(),
            ..Self::default()
        }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        let said = Self {
            error: refusal.to_string(),
            ..Self::default()
        };
        match refusal {
            Refusal::Unknown | Refusal::Senseless | Refusal::TooMany | Refusal::Varies => said,
            Refusal::NoRoom {
                earliest_start,
                most,
            } => Self {
                earliest_start: earliest_start.map(moment),
                rate_bytes_per_s_most: Some(most.rate().get()),
                ..said
            },
            Refusal::NoTime {
                earliest_finish,
                volume,
            } => Self {
                earliest_finish: earliest_finish.map(moment),
                bytes_most: Some(volume.get()),
                ..said
            },
        }
    }
}
