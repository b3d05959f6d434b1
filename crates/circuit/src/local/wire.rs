//! Messages to and from a gateway's calendar.

use jiff::Timestamp as Moment;
use posthaste_types::{ByteRate, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{Ask, Change, Flow, Local, State, Terms, What, line};

/// Time in seconds for which a hold waits for its commit: long enough for a request that times out
/// and is repeated. The hold keeps others out all that time.
const HOLD_S: u64 = 120;

fn moment(at: Timestamp) -> Moment {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    Moment::from_microsecond(micros).unwrap_or(Moment::MAX)
}

fn timestamp(at: Moment) -> Timestamp {
    Timestamp::from_micros(u64::try_from(at.as_microsecond()).unwrap_or(0))
}

#[derive(Debug, Serialize)]
pub(super) struct Wanted<'a> {
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fixed: Option<Fixed>,
    #[serde(skip_serializing_if = "Option::is_none")]
    volume: Option<Volume>,
    flows: &'a [Flow],
    hold_s: u64,
}

#[derive(Debug, Serialize)]
struct Fixed {
    rate_bytes_per_s: u64,
    start: Moment,
    end: Moment,
}

#[derive(Debug, Serialize)]
struct Volume {
    bytes: u64,
    earliest: Moment,
    deadline: Moment,
    rate_bytes_per_s_max: u64,
    shape: &'static str,
}

impl<'a> Wanted<'a> {
    /// Builds a request; a volume starts at the earliest at `set_up`, when the circuit can be
    /// ready.
    pub(super) fn new(
        ask: &'a Ask,
        local: &'a Local,
        rate_max: ByteRate,
        set_up: Timestamp,
    ) -> Self {
        let (fixed, volume) = match ask.what {
            What::Fixed(terms) => (
                Some(Fixed {
                    rate_bytes_per_s: terms.rate.get(),
                    start: moment(terms.from),
                    end: moment(terms.until),
                }),
                None,
            ),
            What::Volume {
                bytes,
                earliest,
                deadline,
                rate_max: wish,
            } => (
                None,
                Some(Volume {
                    bytes: bytes.get(),
                    earliest: moment(earliest.max(set_up)),
                    deadline: moment(deadline),
                    rate_bytes_per_s_max: wish.min(rate_max).get(),
                    // A single piece of one rate.
                    shape: "shortest",
                }),
            ),
        };
        Self {
            id: &ask.key,
            device: local.device.as_deref(),
            fixed,
            volume,
            flows: &local.flows,
            hold_s: HOLD_S,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Changed {
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    end: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_bytes_per_s: Option<u64>,
}

impl From<&Change> for Changed {
    fn from(change: &Change) -> Self {
        Self {
            start: change.from.map(moment),
            end: change.until.map(moment),
            rate_bytes_per_s: change.rate.map(ByteRate::get),
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Shown {
    pub id: String,
    pub device: String,
    pub state: String,
    held_until: Option<Moment>,
    start: Moment,
    end: Moment,
    pieces: Vec<Piece>,
    in_force: bool,
}

#[derive(Debug, Deserialize)]
struct Piece {
    rate_bytes_per_s: u64,
}

impl Shown {
    /// Returns the terms; `None` for a reservation without pieces. A reservation that varies over
    /// time, which is never ours, gets its lowest rate.
    pub(super) fn terms(&self) -> Option<Terms> {
        let rates = self.pieces.iter().map(|piece| piece.rate_bytes_per_s);
        Some(Terms {
            rate: ByteRate::new(rates.min()?),
            from: timestamp(self.start),
            until: timestamp(self.end),
        })
    }

    /// Returns the state; `None` if it is unknown. A reservation whose time has come may still wait
    /// for the kernel: the gateway keeps trying.
    pub(super) fn state_of(&self, now: Timestamp) -> Option<State> {
        match self.state.as_str() {
            "held" => Some(State::Held {
                expires: self.held_until.map(timestamp),
            }),
            "committed" if timestamp(self.end) <= now => Some(State::Over),
            "committed" if self.in_force => Some(State::Up),
            "committed" => Some(State::Reserved),
            _ => None,
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Listed {
    pub reservations: Vec<Shown>,
}

/// Refusal, with the terms that would be granted.
#[derive(Debug, Deserialize)]
pub(super) struct Refused {
    pub error: String,
    earliest_start: Option<Moment>,
    pub rate_bytes_per_s_most: Option<u64>,
    earliest_finish: Option<Moment>,
    bytes_most: Option<u64>,
}

impl Refused {
    /// Joins the refusal's facts in one line.
    pub(super) fn why(&self) -> String {
        let second = |at: Moment| at.strftime("%Y-%m-%dT%H:%M:%SZ");
        let mut why = line::one(&self.error);
        if let Some(at) = self.earliest_start {
            why += &format!("; it is from {} on", second(at));
        }
        if let Some(bytes) = self.bytes_most {
            why += &format!("; {} would", posthaste_types::Bytes::new(bytes));
        }
        if let Some(at) = self.earliest_finish {
            why += &format!("; all of them would by {}", second(at));
        }
        why
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_no_says_all_that_would_do() {
        let refused: Refused = serde_json::from_str(
            r#"{"error": "so many bytes\n do not fit in that time", "bytes_most": 7,
                "earliest_finish": "2026-12-01T20:00:00.5Z"}"#,
        )
        .unwrap();
        assert_eq!(
            refused.why(),
            "so many bytes do not fit in that time; 7 B would; all of them would by 2026-12-01T20:00:00Z"
        );
    }

    #[test]
    fn a_state_is_told_from_what_the_gateway_says() {
        let shown = |state: &str, in_force: bool| -> Shown {
            serde_json::from_value(serde_json::json!({
                "id": "a", "device": "eth0", "state": state, "start": "2026-12-01T20:00:00Z",
                "end": "2026-12-01T21:00:00Z", "in_force": in_force,
                "pieces": [{"rate_bytes_per_s": 9}, {"rate_bytes_per_s": 7}],
            }))
            .unwrap()
        };
        let (now, late) = (
            "2026-12-01T20:30:00Z".parse().unwrap(),
            "2026-12-01T21:00:00Z".parse().unwrap(),
        );
        let (now, late) = (timestamp(now), timestamp(late));
        assert_eq!(shown("committed", true).state_of(now), Some(State::Up));
        assert_eq!(
            shown("committed", false).state_of(now),
            Some(State::Reserved)
        );
        assert_eq!(shown("committed", true).state_of(late), Some(State::Over));
        assert_eq!(
            shown("held", false).state_of(now),
            Some(State::Held { expires: None })
        );
        assert_eq!(shown("lost", false).state_of(now), None);
        assert_eq!(shown("held", false).terms().unwrap().rate.get(), 7);
    }
}
