//! Granted reservations beside the calendar: names, devices, classes.

use std::collections::BTreeMap;

use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_plan::reserve::{Amount, Kind, Piece, Refusal, Reservation, Reservations, State};
use posthaste_types::{ReservationId, Timestamp};

use super::{
    Reserve,
    store::{Kept, KeptOne},
    tree::{CLASS_MAX, Class, Classes, RESERVABLE_PERMILLE},
    wire::{Asked, Span, held_until, timestamp},
};
use crate::clock;

#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub number: ReservationId,
    pub device: usize,
    pub class: u16,
    pub asked: Asked,
}

/// State on disk. The index of a device is that of its resource in the calendar.
#[derive(Debug, Clone, Default)]
pub(super) struct Book {
    pub calendar: Reservations,
    pub entries: BTreeMap<String, Entry>,
    last_class: u16,
}

impl Book {
    /// Restores reservations that were granted before and are not over.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if they are inconsistent, or name a device that is not among these.
    pub(super) fn restore(devices: &[Reserve], kept: Kept) -> Result<Self> {
        let mut book = Self {
            last_class: kept.last_class,
            ..Self::default()
        };
        let invalid = |id: &str, why: &str| {
            Error::new(ErrorKind::Invalid, "keep the reservation", id.to_owned())
                .cause(why.to_owned())
        };
        for one in devices {
            let added =
                book.calendar
                    .add(Kind::Link, Amount::of_link(one.rate), RESERVABLE_PERMILLE);
            added.ok_or_else(|| invalid(&one.device, "there are too many devices"))?;
        }
        for one in kept.reservations {
            let id = one.asked.id.clone();
            let Some(place) = devices
                .iter()
                .position(|device| device.device == one.device)
            else {
                if one
                    .pieces
                    .last()
                    .is_some_and(|last| Piece::from(last).to <= clock::now())
                {
                    continue;
                }
                return Err(
                    invalid(&id, "its device is not reserved any more").hint(format!(
                        "give --reserve {}=RATE as before, or release it first",
                        one.device
                    )),
                );
            };
            let state = one
                .held_until
                .map_or(State::Committed, |until| State::Held {
                    until: timestamp(until),
                });
            let pieces = one.pieces.iter().map(Piece::from).collect();
            let number = ReservationId::new(one.number);
            let restored = book.calendar.restore(
                number,
                Reservation {
                    path: vec![place],
                    pieces,
                    state,
                },
            );
            restored.map_err(|_| invalid(&id, "what it has makes no sense"))?;
            let entry = Entry {
                number,
                device: place,
                class: one.class,
                asked: one.asked,
            };
            if one.class == 0
                || one.class > CLASS_MAX
                || book.has_class(one.class)
                || book.entries.contains_key(&id)
            {
                return Err(invalid(&id, "it is there twice"));
            }
            book.entries.insert(id, entry);
        }
        book.expire(clock::now());
        Ok(book)
    }

    /// Returns the state to be written to disk.
    pub(super) fn kept(&self, devices: &[Reserve]) -> Kept {
        let kept = |entry: &Entry| {
            let granted = self.calendar.get(entry.number)?;
            Some(KeptOne {
                number: entry.number.get(),
                class: entry.class,
                device: devices[entry.device].device.clone(),
                pieces: granted.pieces.iter().map(Span::from).collect(),
                held_until: held_until(granted.state),
                asked: entry.asked.clone(),
            })
        };
        Kept {
            last_class: self.last_class,
            reservations: self.entries.values().filter_map(kept).collect(),
        }
    }

    /// Removes reservations that are over.
    pub(super) fn expire(&mut self, now: Timestamp) {
        if !self.calendar.expire(now).is_empty() {
            self.entries
                .retain(|_, entry| self.calendar.get(entry.number).is_some());
        }
    }

    /// Gives a name and a class to a new hold.
    pub(super) fn insert(&mut self, number: ReservationId, device: usize, asked: Asked) {
        let classes = (1..=CLASS_MAX)
            .cycle()
            .skip(usize::from(self.last_class))
            .take(usize::from(CLASS_MAX));
        let mut free = classes.filter(|class| !self.has_class(*class));
        // There are thirty times as many classes as reservations.
        let class = free.next().unwrap_or(CLASS_MAX);
        self.last_class = class;
        self.entries.insert(
            asked.id.clone(),
            Entry {
                number,
                device,
                class,
                asked,
            },
        );
    }

    fn has_class(&self, class: u16) -> bool {
        self.entries.values().any(|entry| entry.class == class)
    }

    pub(super) fn number(&self, id: &str) -> std::result::Result<ReservationId, Refusal> {
        self.entries
            .get(id)
            .map(|entry| entry.number)
            .ok_or(Refusal::Unknown)
    }

    /// Returns the classes that should be in force on a device now.
    pub(super) fn classes(&self, device: usize, now: Timestamp) -> Classes {
        let running = |entry: &Entry| {
            let granted = self.calendar.get(entry.number)?;
            let rate = granted.at(now).rate();
            let runs = granted.state == State::Committed && rate.get() > 0;
            let class = Class {
                rate,
                flows: entry.asked.flows.clone(),
            };
            (runs && entry.device == device).then_some((entry.class, class))
        };
        self.entries.values().filter_map(running).collect()
    }
}
