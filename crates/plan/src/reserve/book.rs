//! The calendar of reservations: holds, commits, changes and releases.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use posthaste_types::{ByteRate, ReservationId, Timestamp, record};

use super::{
    AHEAD_MAX, Amount, Ask, Change, Gone, Kind, PATH_MAX, PIECES_MAX, Piece, RESERVATIONS_MAX,
    RESOURCES_MAX, Refusal, Reservation, Shape, State,
    find::{self, Volume, push},
    resource::Resource,
};
use crate::Curve;

record! {
    /// Reservations of several resources. Grants never exceed the part of a resource that is sold.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Reservations {
        resources: Vec<Resource>,
        granted: BTreeMap<ReservationId, Reservation>,
        last: u64,
    }
}

impl Reservations {
    /// Returns a calendar without resources.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a resource, of which `overbooked_permille` thousandths are sold: 1000 is as much as
    /// there is. Returns its place; none if there are [`RESOURCES_MAX`].
    pub fn add(&mut self, kind: Kind, capacity: Amount, overbooked_permille: u64) -> Option<usize> {
        if self.resources.len() >= RESOURCES_MAX {
            return None;
        }
        self.resources.push(Resource {
            kind,
            capacity,
            overbooked_permille,
            used: Curve::constant(ByteRate::ZERO),
            outside: Curve::constant(ByteRate::ZERO),
        });
        Some(self.resources.len() - 1)
    }

    /// Sets the capacity of a resource from now on. Grants stay granted, even if they exceed it.
    pub fn set_capacity(&mut self, resource: usize, capacity: Amount) {
        if let Some(resource) = self.resources.get_mut(resource) {
            resource.capacity = capacity;
        }
    }

    /// Sets the amount of a resource that is used over time without a reservation, from now on.
    /// Grants stay granted.
    pub fn set_outside(&mut self, resource: usize, outside: Curve) {
        if let Some(resource) = self.resources.get_mut(resource) {
            resource.outside = outside;
        }
    }

    /// Returns the capacity of a resource; zero for an unknown one.
    #[must_use]
    pub fn capacity(&self, resource: usize) -> Amount {
        self.resources
            .get(resource)
            .map_or(Amount::ZERO, |resource| resource.capacity)
    }

    /// Returns the amount that is free all the time between two moments on all of a path.
    #[must_use]
    pub fn free(&self, path: &[usize], from: Timestamp, to: Timestamp) -> Amount {
        find::least(&self.pieces(path, from, to))
    }

    /// Returns the first moment from `from` on, and before `to`, at which less than `amount` is
    /// free on all of a path.
    #[must_use]
    pub fn lacks(
        &self,
        path: &[usize],
        amount: Amount,
        (from, to): (Timestamp, Timestamp),
    ) -> Option<Timestamp> {
        let pieces = self.pieces(path, from, to);
        let lacking = pieces.iter().find(|piece| piece.amount < amount);
        lacking.map(|piece| piece.from)
    }

    /// Iterates over the reservations, in order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (ReservationId, &Reservation)> {
        self.granted
            .iter()
            .map(|(id, reservation)| (*id, reservation))
    }

    /// Returns a reservation.
    #[must_use]
    pub fn get(&self, id: ReservationId) -> Option<&Reservation> {
        self.granted.get(&id)
    }

    /// Takes the requested capacity from all resources of `path`, until it is committed or `until`
    /// has come.
    ///
    /// # Errors
    /// A [`Refusal`]; then nothing is taken.
    pub fn hold(
        &mut self,
        path: &[usize],
        ask: Ask,
        now: Timestamp,
        until: Timestamp,
    ) -> Result<ReservationId, Refusal> {
        self.check_path(path, &ask)?;
        if self.granted.len() >= RESERVATIONS_MAX {
            return Err(Refusal::TooMany);
        }
        let pieces = self.place(path, ask, now)?;
        let state = State::Held { until };
        let id = ReservationId::new(self.last.saturating_add(1));
        self.put(
            id,
            Reservation {
                path: path.to_vec(),
                pieces,
                state,
            },
        );
        Ok(id)
    }

    /// Books an earlier grant as it was, whatever else there is: after a restart.
    ///
    /// # Errors
    /// [`Refusal::Senseless`] for one without pieces, or with a number in use.
    pub fn restore(&mut self, id: ReservationId, reservation: Reservation) -> Result<(), Refusal> {
        let in_order = reservation
            .pieces
            .windows(2)
            .all(|two| two[0].to <= two[1].from);
        let sound = reservation.pieces.iter().all(|piece| piece.from < piece.to);
        let is_known = |place: &usize| *place < self.resources.len();
        if self.granted.contains_key(&id)
            || reservation.pieces.is_empty()
            || reservation.pieces.len() > PIECES_MAX
            || !(in_order && sound && reservation.path.iter().all(is_known))
        {
            return Err(Refusal::Senseless);
        }
        self.put(id, reservation);
        Ok(())
    }

    /// Makes a hold last. Repeated commits change nothing.
    ///
    /// # Errors
    /// [`Refusal::Unknown`], also for a hold whose time is over.
    pub fn commit(&mut self, id: ReservationId, now: Timestamp) -> Result<(), Refusal> {
        let reservation = self.granted.get_mut(&id).ok_or(Refusal::Unknown)?;
        match reservation.state {
            State::Held { until } if until <= now => Err(Refusal::Unknown),
            State::Held { .. } | State::Committed => {
                reservation.state = State::Committed;
                Ok(())
            }
        }
    }

    /// Extends or shrinks a reservation, in time and amount. A hold stays a hold with its time.
    ///
    /// # Errors
    /// A [`Refusal`]; then it stays as it was.
    pub fn change(
        &mut self,
        id: ReservationId,
        change: Change,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let before = self.live(id, now)?.clone();
        let mut ahead = ahead(&before.pieces, now);
        let (Some(first), Some(last)) = (ahead.first().copied(), ahead.last().copied()) else {
            return Err(Refusal::Unknown);
        };
        if let Some(start) = change.start {
            if before.start() <= now && start > now {
                return Err(Refusal::Senseless);
            }
            let start = start.max(now);
            ahead.retain(|piece| piece.to > start);
            if let Some(first_left) = ahead.first_mut()
                && (start > first_left.from || first_left.from == first.from)
            {
                first_left.from = start;
            }
        }
        if let Some(end) = change.end {
            if end <= now {
                return Err(Refusal::Senseless);
            }
            ahead.retain(|piece| piece.from < end);
            if let Some(last_left) = ahead.last_mut()
                && (end < last_left.to || last_left.to == last.to)
            {
                last_left.to = end;
            }
        }
        if let Some(amount) = change.amount {
            let [only] = &mut ahead[..] else {
                return Err(Refusal::Varies);
            };
            only.amount = amount;
        }
        let is_sound = |piece: &Piece| piece.from < piece.to && piece.amount > Amount::ZERO;
        if ahead.is_empty() || !ahead.iter().all(is_sound) || last_of(&ahead) > now + AHEAD_MAX {
            return Err(Refusal::Senseless);
        }
        self.swap(id, before, |calendar, path| {
            calendar
                .check_room(path, &ahead, now)
                .map(|()| ahead.clone())
        })
    }

    /// Replaces a reservation by a new request. Its own capacity is free for that, and stays its
    /// own if the request is refused.
    ///
    /// # Errors
    /// A [`Refusal`]; then it stays as it was.
    pub fn replace(&mut self, id: ReservationId, ask: Ask, now: Timestamp) -> Result<(), Refusal> {
        let before = self.live(id, now)?.clone();
        self.check_path(&before.path, &ask)?;
        self.swap(id, before, |calendar, path| calendar.place(path, ask, now))
    }

    /// Releases a reservation and returns it.
    pub fn release(&mut self, id: ReservationId) -> Option<Reservation> {
        let reservation = self.granted.remove(&id)?;
        for &resource in &reservation.path {
            for piece in &reservation.pieces {
                // The used curve counts reserved amounts: a release takes from it.
                self.resources[resource]
                    .used
                    .take(piece.from, piece.to, piece.amount.rate());
            }
        }
        Some(reservation)
    }

    /// Releases expired holds and reservations whose end has come.
    pub fn expire(&mut self, now: Timestamp) -> Vec<(ReservationId, Gone)> {
        let gone = |(id, reservation): (&ReservationId, &Reservation)| match reservation.state {
            State::Held { until } if until <= now => Some((*id, Gone::Expired)),
            _ if reservation.end() <= now => Some((*id, Gone::Over)),
            State::Held { .. } | State::Committed => None,
        };
        let gone: Vec<_> = self.granted.iter().filter_map(gone).collect();
        for (id, _) in &gone {
            self.release(*id);
        }
        gone
    }

    /// Returns the next moment at which [`Reservations::expire`] has something to do, or an amount
    /// changes.
    #[must_use]
    pub fn next_change(&self, now: Timestamp) -> Option<Timestamp> {
        let moments = self.granted.values().flat_map(|reservation| {
            let until = match reservation.state {
                State::Held { until } => Some(until),
                State::Committed => None,
            };
            let edges = reservation
                .pieces
                .iter()
                .flat_map(|piece| [piece.from, piece.to]);
            edges.chain(until)
        });
        moments.filter(|moment| *moment > now).min()
    }

    fn live(&self, id: ReservationId, now: Timestamp) -> Result<&Reservation, Refusal> {
        let reservation = self.granted.get(&id).ok_or(Refusal::Unknown)?;
        match reservation.state {
            State::Held { until } if until <= now => Err(Refusal::Unknown),
            _ if reservation.end() <= now => Err(Refusal::Unknown),
            State::Held { .. } | State::Committed => Ok(reservation),
        }
    }

    fn check_path(&self, path: &[usize], ask: &Ask) -> Result<(), Refusal> {
        let kinds = path
            .iter()
            .map(|&place| self.resources.get(place).map(|found| found.kind));
        let of_links = match ask {
            Ask::Fixed { .. } => None,
            Ask::Volume { .. } => Some(Kind::Link),
        };
        let wanted = of_links.or(kinds.clone().next().flatten());
        let distinct: BTreeSet<usize> = path.iter().copied().collect();
        let is_sound = wanted.is_some() && kinds.clone().all(|kind| kind == wanted);
        if path.is_empty() || path.len() > PATH_MAX || distinct.len() < path.len() || !is_sound {
            return Err(Refusal::Senseless);
        }
        Ok(())
    }

    /// Returns the pieces where a request fits now.
    fn place(&self, path: &[usize], ask: Ask, now: Timestamp) -> Result<Vec<Piece>, Refusal> {
        let pieces = match ask {
            Ask::Fixed { amount, start, end } => {
                let from = start.max(now);
                if amount == Amount::ZERO || from >= end || end > now + AHEAD_MAX {
                    return Err(Refusal::Senseless);
                }
                let made = alloc::vec![Piece {
                    from,
                    to: end,
                    amount
                }];
                self.check_room(path, &made, now)?;
                made
            }
            Ask::Volume {
                bytes,
                earliest,
                deadline,
                least,
                most,
                shape,
            } => {
                let from = earliest.max(now);
                let is_empty = bytes.get() == 0 || most == ByteRate::ZERO || least > most;
                if is_empty || from >= deadline || deadline > now + AHEAD_MAX {
                    return Err(Refusal::Senseless);
                }
                let volume = Volume { bytes, least, most };
                let free = self.pieces(path, from, deadline);
                let made = match shape {
                    Shape::EarliestFinish => volume.early(&free),
                    Shape::LatestStart => volume.late(&free),
                    Shape::Shortest => volume.constant(&free),
                };
                made.ok_or_else(|| self.no_time(path, volume, shape, (from, now), &free))?
            }
        };
        if pieces.len() > PIECES_MAX {
            return Err(Refusal::TooMany);
        }
        Ok(pieces)
    }

    fn no_time(
        &self,
        path: &[usize],
        volume: Volume,
        shape: Shape,
        (from, now): (Timestamp, Timestamp),
        free: &[Piece],
    ) -> Refusal {
        let all = self.pieces(path, from, now + AHEAD_MAX);
        match shape {
            Shape::EarliestFinish | Shape::LatestStart => Refusal::NoTime {
                earliest_finish: volume
                    .early(&all)
                    .and_then(|made| made.last().map(|last| last.to)),
                volume: volume.room(free),
            },
            Shape::Shortest => Refusal::NoTime {
                earliest_finish: volume.constant_early(&all),
                volume: volume.constant_room(free),
            },
        }
    }

    /// Checks that all pieces are free; the refusal says what would fit instead.
    fn check_room(&self, path: &[usize], pieces: &[Piece], now: Timestamp) -> Result<(), Refusal> {
        let is_free = |piece: &Piece| self.free(path, piece.from, piece.to) >= piece.amount;
        if pieces.iter().all(is_free) {
            return Ok(());
        }
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else {
            return Err(Refusal::Senseless);
        };
        let amount = pieces
            .iter()
            .map(|piece| piece.amount)
            .max()
            .unwrap_or_default();
        let all = self.pieces(path, first.from, now + AHEAD_MAX);
        Err(Refusal::NoRoom {
            earliest_start: find::earliest_start(&all, amount, last.to.since(first.from)),
            most: self.free(path, first.from, last.to),
        })
    }

    /// Replaces the pieces of a reservation, if they fit.
    fn swap(
        &mut self,
        id: ReservationId,
        before: Reservation,
        place: impl Fn(&Self, &[usize]) -> Result<Vec<Piece>, Refusal>,
    ) -> Result<(), Refusal> {
        self.release(id);
        match place(self, &before.path) {
            Ok(pieces) => {
                self.put(id, Reservation { pieces, ..before });
                Ok(())
            }
            Err(refusal) => {
                self.put(id, before);
                Err(refusal)
            }
        }
    }

    fn put(&mut self, id: ReservationId, reservation: Reservation) {
        for &resource in &reservation.path {
            for piece in &reservation.pieces {
                // Giving back to a curve of free capacity is taking from one of used capacity.
                self.resources[resource]
                    .used
                    .give_back(piece.from, piece.to, piece.amount.rate());
            }
        }
        self.last = self.last.max(id.get());
        self.granted.insert(id, reservation);
    }

    /// Returns the free amounts on all of a path between two moments.
    fn pieces(&self, path: &[usize], from: Timestamp, to: Timestamp) -> Vec<Piece> {
        let resources: Vec<&Resource> = path
            .iter()
            .filter_map(|&place| self.resources.get(place))
            .collect();
        let (mut at, mut made) = (from, Vec::new());
        while at < to {
            let changes = resources
                .iter()
                .filter_map(|resource| resource.next_change(at));
            let next = changes.min().map_or(to, |next| next.min(to));
            let free = resources.iter().map(|resource| resource.free_at(at)).min();
            push(
                &mut made,
                Piece {
                    from: at,
                    to: next,
                    amount: free.unwrap_or_default(),
                },
            );
            at = next;
        }
        made
    }
}

/// Returns the pieces from now on.
fn ahead(pieces: &[Piece], now: Timestamp) -> Vec<Piece> {
    let ahead = pieces.iter().filter(|piece| piece.to > now);
    ahead
        .map(|piece| Piece {
            from: piece.from.max(now),
            ..*piece
        })
        .collect()
}

fn last_of(pieces: &[Piece]) -> Timestamp {
    pieces
        .last()
        .map_or_else(Timestamp::default, |piece| piece.to)
}

#[cfg(test)]
mod tests;
