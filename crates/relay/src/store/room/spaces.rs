//! Reservations of datasets: owner and size of each, beside the calendar.

use std::collections::BTreeMap;

use posthaste_endpoint::{
    ErrorKind,
    relay::{
        DatasetId,
        wire::{SPACE_HOLD_S_MAX, SpaceBody, SpaceGrant},
    },
};
use posthaste_plan::{
    Curve,
    reserve::{
        AHEAD_MAX, Amount, Ask, Kind, NOT_OVERBOOKED_PERMILLE, Piece, RESERVATIONS_MAX,
        Refusal as CalendarRefusal, Reservation, Reservations, State,
    },
};
use posthaste_types::{Bytes, ReservationId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::store::Refusal;

/// Resource of the calendar: the capacity alone.
const CAPACITY: &[usize] = &[0];

/// Reservation of a dataset.
#[derive(Debug, Clone)]
struct Space {
    number: ReservationId,
    /// Request, so that a repeated one gets the same answer.
    asked: SpaceBody,
    grant: SpaceGrant,
}

/// Reservations as they are stored on disk.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::store) struct KeptSpaces {
    pub(super) spaces: Vec<KeptSpace>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct KeptSpace {
    dataset: DatasetId,
    asked: SpaceBody,
    granted: SpaceGrant,
}

/// Reservations, one for a dataset at most.
#[derive(Debug, Clone)]
pub(in crate::store) struct Spaces {
    calendar: Reservations,
    by_dataset: BTreeMap<DatasetId, Space>,
}

impl Spaces {
    pub(super) fn new(capacity: u64) -> Self {
        let mut calendar = Reservations::new();
        calendar.add(Kind::Space, amount(capacity), NOT_OVERBOOKED_PERMILLE);
        Self {
            calendar,
            by_dataset: BTreeMap::new(),
        }
    }

    /// Returns the reservations as they are stored on disk.
    pub(in crate::store) fn kept(&self) -> KeptSpaces {
        let kept = |(dataset, space): (&DatasetId, &Space)| KeptSpace {
            dataset: *dataset,
            asked: space.asked,
            granted: space.grant,
        };
        KeptSpaces {
            spaces: self.by_dataset.iter().map(kept).collect(),
        }
    }

    /// Books the stored reservations unchanged, except those that are over. `None` if they make no
    /// sense.
    pub(in crate::store) fn restore(&self, kept: KeptSpaces, now_s: u64) -> Option<Self> {
        let mut restored = self.clone();
        for (number, one) in (1..).zip(kept.spaces) {
            let (number, grant) = (ReservationId::new(number), one.granted);
            let state = match grant.held_until_unix_s {
                Some(until_s) => State::Held {
                    until: Timestamp::from_secs(until_s),
                },
                None => State::Committed,
            };
            let piece = Piece {
                from: Timestamp::from_secs(grant.from_unix_s),
                to: Timestamp::from_secs(grant.until_unix_s),
                amount: amount(grant.bytes),
            };
            let reservation = Reservation {
                path: CAPACITY.to_vec(),
                pieces: vec![piece],
                state,
            };
            restored.calendar.restore(number, reservation).ok()?;
            let space = Space {
                number,
                asked: one.asked,
                grant,
            };
            if restored.by_dataset.insert(one.dataset, space).is_some() {
                return None;
            }
        }
        restored.expire(now_s);
        Some(restored)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_dataset.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&DatasetId, &SpaceGrant)> {
        let spaces = self.by_dataset.iter();
        spaces.map(|(dataset, space)| (dataset, &space.grant))
    }

    pub(super) fn get(&self, dataset: &DatasetId) -> Option<&SpaceGrant> {
        self.by_dataset.get(dataset).map(|space| &space.grant)
    }

    /// Returns the bytes of all reservations, at any time.
    pub(super) fn promised(&self) -> u64 {
        let bytes = self.by_dataset.values().map(|space| space.grant.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Removes reservations that are over.
    pub(super) fn expire(&mut self, now_s: u64) {
        if !self.calendar.expire(Timestamp::from_secs(now_s)).is_empty() {
            let calendar = &self.calendar;
            self.by_dataset
                .retain(|_, space| calendar.get(space.number).is_some());
        }
    }

    /// Returns the next moment at which a reservation begins or ends.
    pub(super) fn next_change(&self, now_s: u64) -> u64 {
        let next = self.calendar.next_change(Timestamp::from_secs(now_s));
        next.map_or(u64::MAX, seconds)
    }

    /// Returns the first moment at which one of these (from when, until when, how much) has no room
    /// beside the reservations and the use outside.
    pub(super) fn lacks(&mut self, outside: Curve, wanted: &[(u64, u64, u64)]) -> Option<u64> {
        self.calendar.set_outside(CAPACITY[0], outside);
        let lacks = |(from_s, to_s, bytes): &(u64, u64, u64)| {
            let span = (Timestamp::from_secs(*from_s), Timestamp::from_secs(*to_s));
            self.calendar.lacks(CAPACITY, amount(*bytes), span)
        };
        wanted.iter().find_map(lacks).map(seconds)
    }

    /// Makes or changes the reservation of a dataset. Also returns whether there was none.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`]; [`ErrorKind::Full`]: then nothing changes.
    pub(super) fn reserve(
        &mut self,
        dataset: &DatasetId,
        wanted: SpaceBody,
        outside: Curve,
        now_s: u64,
    ) -> Result<(bool, SpaceGrant), Refusal> {
        let before = self.by_dataset.get(dataset).cloned();
        if let Some(before) = &before
            && before.asked == wanted
        {
            return Ok((false, before.grant));
        }
        let grant = grant(before.as_ref().map(|before| &before.grant), wanted, now_s)?;
        let had = before.as_ref().map(|before| before.number);
        let had = had.and_then(|number| Some((number, self.calendar.release(number)?)));
        self.calendar.set_outside(CAPACITY[0], outside);
        let number = self.book(&grant, now_s).map_err(|refused| {
            if let Some((number, reservation)) = had {
                // Its room was there a moment ago.
                let _ = self.calendar.restore(number, reservation);
            }
            refusal(&refused, wanted.bytes)
        })?;
        let space = Space {
            number,
            asked: wanted,
            grant,
        };
        self.by_dataset.insert(*dataset, space);
        Ok((before.is_none(), grant))
    }

    fn book(&mut self, grant: &SpaceGrant, now_s: u64) -> Result<ReservationId, CalendarRefusal> {
        let ask = Ask::Fixed {
            amount: amount(grant.bytes),
            start: Timestamp::from_secs(grant.from_unix_s),
            end: Timestamp::from_secs(grant.until_unix_s),
        };
        let now = Timestamp::from_secs(now_s);
        let until = Timestamp::from_secs(grant.held_until_unix_s.unwrap_or(now_s + 1));
        let number = self.calendar.hold(CAPACITY, ask, now, until)?;
        if grant.held_until_unix_s.is_none() {
            self.calendar.commit(number, now)?;
        }
        Ok(number)
    }

    pub(super) fn release(&mut self, dataset: &DatasetId) -> bool {
        let Some(space) = self.by_dataset.remove(dataset) else {
            return false;
        };
        self.calendar.release(space.number);
        true
    }
}

/// Returns the grant for a request, if there is room.
fn grant(
    before: Option<&SpaceGrant>,
    wanted: SpaceBody,
    now_s: u64,
) -> Result<SpaceGrant, Refusal> {
    let invalid = |what: &str| Err(Refusal::new(ErrorKind::Invalid, what));
    let SpaceBody {
        bytes,
        until_unix_s,
        hold_s,
        ..
    } = wanted;
    if hold_s.is_some_and(|hold_s| !(1..=SPACE_HOLD_S_MAX).contains(&hold_s)) {
        return invalid("space is held for 1 to 3600 seconds");
    }
    let begun_s = before.map(|before| before.from_unix_s.min(now_s));
    let from_s = wanted.from_unix_s.unwrap_or(now_s);
    let from_unix_s = if from_s <= now_s {
        // A reservation that has begun keeps its start.
        begun_s.unwrap_or(now_s)
    } else {
        from_s
    };
    if bytes == 0 || until_unix_s <= now_s || until_unix_s <= from_unix_s {
        return invalid(
            "space is reserved for more than no bytes, until later than now and than from_unix_s",
        );
    }
    if until_unix_s - now_s > AHEAD_MAX.as_secs() {
        return invalid("space is reserved for 400 days ahead at most");
    }
    // A question does not take back a commitment.
    let is_committed = before.is_some_and(|before| before.held_until_unix_s.is_none());
    let held_s = hold_s.filter(|_| !is_committed);
    Ok(SpaceGrant {
        bytes,
        from_unix_s,
        until_unix_s,
        held_until_unix_s: held_s.map(|held_s| now_s + u64::from(held_s)),
    })
}

fn refusal(refused: &CalendarRefusal, wanted: u64) -> Refusal {
    match refused {
        CalendarRefusal::NoRoom { most, .. } => {
            let most = most.bytes().get();
            let message = format!("{most} bytes are free all that time, {wanted} are wanted");
            Refusal::new(ErrorKind::Full, message)
                .hint("ask for less, or for another time")
                .most_bytes(most)
        }
        CalendarRefusal::TooMany => {
            let message = format!("the relay keeps {RESERVATIONS_MAX} reservations, no more");
            Refusal::new(ErrorKind::Full, message)
        }
        CalendarRefusal::Unknown
        | CalendarRefusal::Senseless
        | CalendarRefusal::Varies
        | CalendarRefusal::NoTime { .. } => Refusal::new(ErrorKind::Invalid, refused.to_string()),
    }
}

fn amount(bytes: u64) -> Amount {
    Amount::of_space(Bytes::new(bytes))
}

fn seconds(moment: Timestamp) -> u64 {
    moment.as_micros() / 1_000_000
}
