//! The calendar itself: what is held, committed, changed and given back.

use alloc::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};
use posthaste_types::{ByteRate, ReservationId, Timestamp, record};

use super::{
    AHEAD_MAX, Amount, Ask, Change, Gone, Kind, NOT_OVERBOOKED_PERMILLE, PATH_MAX, PIECES_MAX,
    Piece, RESERVATIONS_MAX, RESOURCES_MAX, Refusal, Reservation, Shape, State,
    find::{self, Volume, push},
};
use crate::Curve;

record! {
    #[derive(Debug, Clone, PartialEq, Eq)]
    struct Resource {
        kind: Kind,
        capacity: Amount,
        /// Of the capacity, how much is sold.
        overbooked_permille: u64,
        /// What is taken. Of the capacity it is only ever subtracted when somebody asks, so that a capacity that
        /// changes changes nothing here.
        used: Curve,
    }
}

impl Resource {
    fn sold(&self) -> Amount {
        let sold = self
            .capacity
            .rate()
            .scaled(self.overbooked_permille, NOT_OVERBOOKED_PERMILLE);
        Amount::of_link(sold)
    }

    fn free_at(&self, at: Timestamp) -> Amount {
        let free = self
            .sold()
            .rate()
            .get()
            .saturating_sub(self.used.rate_at(at).get());
        Amount::of_link(ByteRate::new(free))
    }
}

record! {
    /// What is reserved of some resources. Nothing that is granted ever exceeds what is sold of any of them.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Reservations {
        resources: Vec<Resource>,
        granted: BTreeMap<ReservationId, Reservation>,
        last: u64,
    }
}

impl Reservations {
    /// A calendar without resources.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a resource, of which `overbooked_permille` thousandths are sold: 1000 is as much as there is. Returns its
    /// place; none when there are [`RESOURCES_MAX`].
    pub fn add(&mut self, kind: Kind, capacity: Amount, overbooked_permille: u64) -> Option<usize> {
        if self.resources.len() >= RESOURCES_MAX {
            return None;
        }
        self.resources.push(Resource {
            kind,
            capacity,
            overbooked_permille,
            used: Curve::constant(ByteRate::ZERO),
        });
        Some(self.resources.len() - 1)
    }

    /// A resource has another capacity from now on. What was granted stays granted, even if it is more.
    pub fn set_capacity(&mut self, resource: usize, capacity: Amount) {
        if let Some(resource) = self.resources.get_mut(resource) {
            resource.capacity = capacity;
        }
    }

    /// How much there is of a resource; nothing of one that is unknown.
    #[must_use]
    pub fn capacity(&self, resource: usize) -> Amount {
        self.resources
            .get(resource)
            .map_or(Amount::ZERO, |resource| resource.capacity)
    }

    /// What is free all the time between two moments on all of a path.
    #[must_use]
    pub fn free(&self, path: &[usize], from: Timestamp, to: Timestamp) -> Amount {
        find::least(&self.pieces(path, from, to))
    }

    /// What is granted, in order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (ReservationId, &Reservation)> {
        self.granted
            .iter()
            .map(|(id, reservation)| (*id, reservation))
    }

    /// One of them.
    #[must_use]
    pub fn get(&self, id: ReservationId) -> Option<&Reservation> {
        self.granted.get(&id)
    }

    /// Takes what is asked for out of all resources of `path`, until it is committed or `until` has come.
    ///
    /// # Errors
    /// A [`Refusal`], and nothing is taken.
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

    /// Books what was granted before, as it was, whatever else there is: after a restart.
    ///
    /// # Errors
    /// [`Refusal::Senseless`] for one without pieces, or with a number that is taken.
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

    /// A hold lasts from now on. Once is as good as twice.
    ///
    /// # Errors
    /// [`Refusal::Unknown`] also for a hold whose time is over.
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

    /// Extends or shrinks it, in time and amount. A hold stays a hold with its time.
    ///
    /// # Errors
    /// A [`Refusal`], and it stays as it was.
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

    /// Asks anew for what a reservation has: what it had is free for that, and stays its own when it is refused.
    ///
    /// # Errors
    /// A [`Refusal`], and it stays as it was.
    pub fn replace(&mut self, id: ReservationId, ask: Ask, now: Timestamp) -> Result<(), Refusal> {
        let before = self.live(id, now)?.clone();
        self.check_path(&before.path, &ask)?;
        self.swap(id, before, |calendar, path| calendar.place(path, ask, now))
    }

    /// Gives one back, as if it had never been, and returns it.
    pub fn release(&mut self, id: ReservationId) -> Option<Reservation> {
        let reservation = self.granted.remove(&id)?;
        for &resource in &reservation.path {
            for piece in &reservation.pieces {
                // What was taken of nothing is taken from what is used.
                self.resources[resource]
                    .used
                    .take(piece.from, piece.to, piece.amount.rate());
            }
        }
        Some(reservation)
    }

    /// Gives back all that is over: holds nobody committed, and reservations whose end has come.
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

    /// The next moment at which [`Reservations::expire`] has something to do, or what somebody has changes.
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

    /// Where on a path something fits now.
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

    /// Whether all pieces are free; else what would be instead of them.
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

    /// Gives a reservation other pieces, or those it had.
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
                // What a curve of free things gets back, one of used things takes.
                self.resources[resource]
                    .used
                    .give_back(piece.from, piece.to, piece.amount.rate());
            }
        }
        self.last = self.last.max(id.get());
        self.granted.insert(id, reservation);
    }

    /// What is free on all of a path at each moment between two.
    fn pieces(&self, path: &[usize], from: Timestamp, to: Timestamp) -> Vec<Piece> {
        let resources: Vec<&Resource> = path
            .iter()
            .filter_map(|&place| self.resources.get(place))
            .collect();
        let (mut at, mut made) = (from, Vec::new());
        while at < to {
            let changes = resources
                .iter()
                .filter_map(|resource| resource.used.next_change(at));
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

/// The pieces from now on.
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
mod tests {
    use super::*;
    use crate::reserve::HOLD_LIFETIME;
    use alloc::vec;
    use core::time::Duration;
    use posthaste_types::{Bytes, Record};
    use proptest::prelude::*;

    const LINK: &[usize] = &[0];

    fn at(secs: u64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn rate(bytes_per_s: u64) -> Amount {
        Amount::of_link(ByteRate::new(bytes_per_s))
    }

    fn link(capacity: u64) -> Reservations {
        let mut calendar = Reservations::new();
        calendar.add(Kind::Link, rate(capacity), NOT_OVERBOOKED_PERMILLE);
        calendar
    }

    fn fixed(amount: u64, start: u64, end: u64) -> Ask {
        Ask::Fixed {
            amount: rate(amount),
            start: at(start),
            end: at(end),
        }
    }

    fn volume(
        bytes: u64,
        (earliest, deadline): (u64, u64),
        (least, most): (u64, u64),
        shape: Shape,
    ) -> Ask {
        Ask::Volume {
            bytes: Bytes::new(bytes),
            earliest: at(earliest),
            deadline: at(deadline),
            least: ByteRate::new(least),
            most: ByteRate::new(most),
            shape,
        }
    }

    fn hold(calendar: &mut Reservations, ask: Ask) -> Result<ReservationId, Refusal> {
        calendar.hold(LINK, ask, at(0), at(0) + HOLD_LIFETIME)
    }

    /// A link of 100 with 60 taken from 10 to 20 and 90 from 30 to 40.
    fn busy() -> Reservations {
        let mut calendar = link(100);
        hold(&mut calendar, fixed(60, 10, 20)).unwrap();
        hold(&mut calendar, fixed(90, 30, 40)).unwrap();
        calendar
    }

    fn shown(calendar: &Reservations, id: ReservationId) -> Vec<(u64, u64, u64)> {
        let plain = |piece: &Piece| {
            let secs = |moment: Timestamp| moment.as_micros() / 1_000_000;
            (secs(piece.from), secs(piece.to), piece.amount.rate().get())
        };
        calendar.get(id).unwrap().pieces.iter().map(plain).collect()
    }

    #[test]
    fn a_refusal_says_what_would_fit() {
        let mut calendar = busy();
        let before = calendar.clone();
        assert_eq!(
            hold(&mut calendar, fixed(50, 5, 13)),
            Err(Refusal::NoRoom {
                earliest_start: Some(at(20)),
                most: rate(40)
            })
        );
        assert_eq!(
            hold(&mut calendar, fixed(50, 5, 20)),
            Err(Refusal::NoRoom {
                earliest_start: Some(at(40)),
                most: rate(40)
            })
        );
        assert_eq!(
            hold(&mut calendar, fixed(101, 5, 20)),
            Err(Refusal::NoRoom {
                earliest_start: None,
                most: rate(40)
            })
        );
        assert_eq!(calendar, before);
        assert!(hold(&mut calendar, fixed(50, 20, 28)).is_ok());
        assert!(hold(&mut calendar, fixed(40, 5, 20)).is_ok());
    }

    #[test]
    fn a_volume_goes_early_late_or_at_one_rate() {
        let mut calendar = busy();
        let id = hold(
            &mut calendar,
            volume(1500, (5, 50), (0, 100), Shape::EarliestFinish),
        )
        .unwrap();
        assert_eq!(
            shown(&calendar, id),
            [(5, 10, 100), (10, 20, 40), (20, 26, 100)]
        );
        calendar.release(id);
        let id = hold(
            &mut calendar,
            volume(1500, (5, 50), (50, 80), Shape::EarliestFinish),
        )
        .unwrap();
        assert_eq!(
            shown(&calendar, id),
            [(5, 10, 80), (20, 30, 80), (40, 43, 80)]
        );
        calendar.release(id);
        let id = hold(
            &mut calendar,
            volume(1500, (5, 50), (0, 100), Shape::LatestStart),
        )
        .unwrap();
        assert_eq!(
            shown(&calendar, id),
            [(26, 30, 100), (30, 40, 10), (40, 50, 100)]
        );
        calendar.release(id);
        let id = hold(
            &mut calendar,
            volume(1000, (5, 50), (0, 100), Shape::Shortest),
        )
        .unwrap();
        assert_eq!(shown(&calendar, id), [(20, 30, 100)]);
        calendar.release(id);
        let id = hold(
            &mut calendar,
            volume(1000, (0, 30), (0, 90), Shape::Shortest),
        )
        .unwrap();
        assert_eq!(
            shown(&calendar, id),
            [(0, 25, 40)],
            "90 is free for ten seconds only"
        );
        calendar.release(id);
        assert_eq!(
            hold(
                &mut calendar,
                volume(1500, (5, 19), (50, 100), Shape::EarliestFinish)
            ),
            Err(Refusal::NoTime {
                earliest_finish: Some(at(30)),
                volume: Bytes::new(500)
            })
        );
        assert_eq!(
            hold(
                &mut calendar,
                volume(1000, (5, 19), (50, 100), Shape::Shortest)
            ),
            Err(Refusal::NoTime {
                earliest_finish: Some(at(30)),
                volume: Bytes::new(500)
            })
        );
    }

    #[test]
    fn a_path_has_what_its_narrowest_has_and_a_space_is_no_link() {
        let mut calendar = link(100);
        let other = calendar
            .add(Kind::Link, rate(40), NOT_OVERBOOKED_PERMILLE)
            .unwrap();
        let space = Amount::of_space(Bytes::new(1000));
        let depot = calendar
            .add(Kind::Space, space, NOT_OVERBOOKED_PERMILLE)
            .unwrap();
        let until = at(30);
        let mut hold = |path: &[usize], ask| calendar.hold(path, ask, at(0), until);
        assert!(
            matches!(hold(&[0, other], fixed(50, 1, 2)), Err(Refusal::NoRoom { most, .. }) if most == rate(40))
        );
        hold(&[0, other], fixed(30, 1, 2)).unwrap();
        hold(&[0], fixed(70, 1, 2)).unwrap();
        assert!(hold(&[0], fixed(1, 1, 2)).is_err());
        hold(
            &[depot],
            Ask::Fixed {
                amount: space,
                start: at(1),
                end: at(5),
            },
        )
        .unwrap();
        assert!(hold(&[depot], fixed(1, 4, 6)).is_err());
        for (path, ask) in [
            (&[depot][..], volume(1, (1, 2), (0, 1), Shape::Shortest)),
            (&[0, depot], fixed(1, 6, 7)),
            (&[0, 0], fixed(1, 6, 7)),
            (&[9], fixed(1, 6, 7)),
            (&[], fixed(1, 6, 7)),
            (&[0], fixed(0, 6, 7)),
            (&[0], fixed(1, 7, 7)),
            (
                &[0],
                Ask::Fixed {
                    amount: rate(1),
                    start: at(1),
                    end: at(2) + AHEAD_MAX,
                },
            ),
            (&[0], volume(1, (1, 2), (3, 2), Shape::Shortest)),
        ] {
            assert_eq!(hold(path, ask), Err(Refusal::Senseless), "{path:?} {ask:?}");
        }
    }

    #[test]
    fn what_is_sold_twice_is_granted_twice_and_a_smaller_link_breaks_no_word() {
        let mut calendar = Reservations::new();
        calendar.add(Kind::Link, rate(100), 1100);
        let id = hold(&mut calendar, fixed(110, 0, 10)).unwrap();
        assert!(hold(&mut calendar, fixed(1, 0, 10)).is_err());
        calendar.set_capacity(0, rate(50));
        assert_eq!(shown(&calendar, id), [(0, 10, 110)]);
        calendar.release(id);
        assert_eq!(calendar.free(LINK, at(0), at(10)), rate(55));
    }

    #[test]
    fn a_reservation_is_extended_and_shrunk_or_stays_as_it_was() {
        let mut calendar = busy();
        let id = hold(&mut calendar, fixed(40, 5, 15)).unwrap();
        calendar.commit(id, at(1)).unwrap();
        let change = |start, end, amount: Option<u64>| Change {
            start: Option::map(start, at),
            end: Option::map(end, at),
            amount: amount.map(rate),
        };
        calendar
            .change(id, change(Some(3), Some(25), None), at(2))
            .unwrap();
        assert_eq!(shown(&calendar, id), [(3, 25, 40)]);
        let before = calendar.clone();
        assert!(matches!(
            calendar.change(id, change(None, Some(31), None), at(2)),
            Err(Refusal::NoRoom { most, .. }) if most == rate(10)
        ));
        assert!(matches!(
            calendar.change(id, change(None, None, Some(41)), at(2)),
            Err(Refusal::NoRoom { .. })
        ));
        assert_eq!(calendar, before);
        // What has passed counts no more.
        calendar
            .change(id, change(None, None, Some(80)), at(20))
            .unwrap();
        assert_eq!(shown(&calendar, id), [(20, 25, 80)]);
        assert_eq!(
            calendar.change(id, change(Some(22), None, None), at(21)),
            Err(Refusal::Senseless)
        );
        assert_eq!(
            calendar.change(id, change(None, Some(21), None), at(21)),
            Err(Refusal::Senseless)
        );
        calendar
            .change(id, change(None, Some(23), Some(10)), at(21))
            .unwrap();
        assert_eq!(calendar.free(LINK, at(23), at(30)), rate(100));
        assert_eq!(
            calendar.change(id, Change::default(), at(23)),
            Err(Refusal::Unknown)
        );
        let id = hold(
            &mut calendar,
            volume(1500, (5, 27), (0, 100), Shape::EarliestFinish),
        )
        .unwrap();
        assert_eq!(
            calendar.change(id, change(None, None, Some(1)), at(0)),
            Err(Refusal::Varies)
        );
        calendar
            .replace(
                id,
                volume(500, (5, 26), (0, 50), Shape::EarliestFinish),
                at(0),
            )
            .unwrap();
        assert_eq!(calendar.get(id).unwrap().volume(), Bytes::new(500));
    }

    #[test]
    fn a_hold_ends_by_itself_and_a_commit_makes_it_last() {
        let mut calendar = link(100);
        let (kept, lost) = (
            hold(&mut calendar, fixed(10, 5, 60)).unwrap(),
            hold(&mut calendar, fixed(20, 5, 60)).unwrap(),
        );
        calendar.commit(kept, at(29)).unwrap();
        calendar.commit(kept, at(31)).unwrap();
        assert_eq!(calendar.next_change(at(5)), Some(at(30)));
        assert_eq!(calendar.commit(lost, at(30)), Err(Refusal::Unknown));
        assert_eq!(calendar.expire(at(29)), []);
        assert_eq!(calendar.expire(at(30)), [(lost, Gone::Expired)]);
        assert_eq!(calendar.free(LINK, at(30), at(60)), rate(90));
        assert_eq!(calendar.next_change(at(30)), Some(at(60)));
        assert_eq!(calendar.expire(at(60)), [(kept, Gone::Over)]);
        let mut fresh = link(100);
        fresh.last = calendar.last;
        assert_eq!(calendar, fresh);
    }

    #[test]
    fn what_was_granted_is_restored_and_nonsense_is_not() {
        let calendar = busy();
        let mut again = link(100);
        for (id, reservation) in calendar.iter() {
            again.restore(id, reservation.clone()).unwrap();
            assert_eq!(
                again.restore(id, reservation.clone()),
                Err(Refusal::Senseless)
            );
        }
        assert_eq!(again, calendar);
        let (_, sound) = calendar.iter().next().unwrap();
        let piece = sound.pieces[0];
        for pieces in [
            vec![],
            vec![piece, piece],
            vec![Piece {
                to: piece.from,
                ..piece
            }],
        ] {
            let broken = Reservation {
                pieces,
                ..sound.clone()
            };
            assert_eq!(
                again.restore(ReservationId::new(99), broken),
                Err(Refusal::Senseless)
            );
        }
    }

    #[test]
    fn there_are_only_so_many() {
        let mut calendar = link(u64::MAX);
        for _ in 0..RESERVATIONS_MAX {
            hold(&mut calendar, fixed(1, 0, 10)).unwrap();
        }
        assert_eq!(hold(&mut calendar, fixed(1, 0, 10)), Err(Refusal::TooMany));
        let mut calendar = link(100);
        for turn in 0..40 {
            hold(&mut calendar, fixed(100, 2 * turn + 1, 2 * turn + 2)).unwrap();
        }
        let wish = volume(3500, (0, 100), (0, 100), Shape::EarliestFinish);
        assert_eq!(hold(&mut calendar, wish), Err(Refusal::TooMany));
    }

    /// What is asked of a link by one of the operations, all in whole seconds.
    #[derive(Debug, Clone)]
    enum Move {
        Fixed(u64, u64, u64),
        Volume(u64, u64, u64, u64, u64, Shape),
        Commit(usize),
        Change(usize, u64, u64),
        Release(usize),
        Pass(u64),
    }

    fn shape() -> impl Strategy<Value = Shape> {
        prop_oneof![
            Just(Shape::EarliestFinish),
            Just(Shape::LatestStart),
            Just(Shape::Shortest)
        ]
    }

    fn moves() -> impl Strategy<Value = Vec<Move>> {
        let one = prop_oneof![
            (1u64..120, 0u64..60, 1u64..20)
                .prop_map(|(amount, start, span)| Move::Fixed(amount, start, span)),
            (1u64..900, 0u64..60, 1u64..40, 0u64..60, 1u64..120, shape()).prop_map(
                |(bytes, start, span, least, most, shape)| Move::Volume(
                    bytes, start, span, least, most, shape
                )
            ),
            (0usize..8).prop_map(Move::Commit),
            (0usize..8, 1u64..120, 0u64..70)
                .prop_map(|(which, amount, end)| Move::Change(which, amount, end)),
            (0usize..8).prop_map(Move::Release),
            (0u64..12).prop_map(Move::Pass),
        ];
        proptest::collection::vec(one, 0..30)
    }

    proptest! {
        #[test]
        fn nothing_exceeds_capacity_and_in_the_end_all_is_as_it_was(moves in moves()) {
            let mut calendar = link(100);
            let mut now = 0;
            for one in moves {
                let ids: Vec<ReservationId> = calendar.iter().map(|(id, _)| id).collect();
                let id = |which: usize| ids.get(which).copied().unwrap_or_default();
                let before = calendar.clone();
                let refused = match one {
                    Move::Fixed(amount, start, span) => {
                        let ask = fixed(amount, now + start, now + start + span);
                        calendar.hold(LINK, ask, at(now), at(now + 30)).is_err()
                    }
                    Move::Volume(bytes, start, span, least, most, shape) => {
                        let ask = volume(bytes, (now + start, now + start + span), (least, most), shape);
                        let made = calendar.hold(LINK, ask, at(now), at(now + 30));
                        if let Ok(id) = made {
                            let made = calendar.get(id).unwrap();
                            prop_assert!(made.start() >= at(now + start) && made.end() <= at(now + start + span));
                            let in_bounds = |piece: &Piece| (rate(least)..=rate(most)).contains(&piece.amount);
                            prop_assert!(made.pieces.iter().all(in_bounds));
                            prop_assert!(made.volume() >= Bytes::new(bytes));
                        }
                        made.is_err()
                    }
                    Move::Commit(which) => calendar.commit(id(which), at(now)).is_err(),
                    Move::Change(which, amount, end) => {
                        let change = Change { start: None, end: Some(at(now + end)), amount: Some(rate(amount)) };
                        calendar.change(id(which), change, at(now)).is_err()
                    }
                    Move::Release(which) => calendar.release(id(which)).is_none(),
                    Move::Pass(secs) => {
                        now += secs;
                        calendar.expire(at(now));
                        false
                    }
                };
                if refused {
                    prop_assert_eq!(&calendar, &before, "a refusal changes nothing");
                }
                let bytes = calendar.to_bytes();
                let read = Reservations::from_bytes(&bytes);
                prop_assert_eq!(read.as_ref(), Ok(&calendar));
                let edges: Vec<Timestamp> = calendar.iter()
                    .flat_map(|(_, held)| held.pieces.iter().map(|piece| piece.from)).collect();
                for edge in edges {
                    let used: u64 = calendar.iter().map(|(_, held)| held.at(edge).rate().get()).sum();
                    prop_assert!(used <= 100);
                    prop_assert_eq!(calendar.free(LINK, edge, edge + Duration::from_micros(1)), rate(100 - used));
                }
            }
            let ids: Vec<ReservationId> = calendar.iter().map(|(id, _)| id).collect();
            for id in ids {
                calendar.release(id);
            }
            prop_assert_eq!(calendar.resources, link(100).resources);
        }

        #[test]
        fn a_hold_that_expires_never_was(
            taken in proptest::collection::vec((1u64..60, 0u64..40, 1u64..20), 0..6),
            asked in (1u64..100, 0u64..40, 1u64..20),
        ) {
            let mut calendar = link(100);
            for (amount, start, span) in taken {
                if let Ok(id) = hold(&mut calendar, fixed(amount, start, start + span)) {
                    calendar.commit(id, at(0)).unwrap();
                }
            }
            let before = calendar.clone();
            let (amount, start, span) = asked;
            let made = calendar.hold(LINK, fixed(amount, start, start + span), at(0), at(1));
            let mut expected = before;
            if let Ok(id) = made {
                expected.last = calendar.last;
                prop_assert!(calendar.expire(at(1)).contains(&(id, Gone::Expired)));
            } else {
                calendar.expire(at(1));
            }
            expected.expire(at(1));
            prop_assert_eq!(calendar, expected);
        }

        #[test]
        fn volumes_are_placed_as_brute_force_would(
            used in proptest::collection::vec(0u64..=10, 1..=12),
            bytes in 1u64..80, least in 0u64..6, most in 1u64..12,
        ) {
            prop_assume!(least <= most);
            let mut calendar = link(10);
            for (second, &used) in (0u64..).zip(&used) {
                let _ = hold(&mut calendar, fixed(used, second, second + 1));
            }
            let end = used.len() as u64;
            let rates: Vec<u64> = used.iter()
                .map(|used| (10 - used).min(most)).map(|rate| if rate < least { 0 } else { rate }).collect();
            let place = |shape| {
                let mut calendar = calendar.clone();
                let id = hold(&mut calendar, volume(bytes, (0, end), (least, most), shape)).ok()?;
                calendar.get(id).cloned()
            };
            // In thousandths of a second: the first by which enough has passed.
            let first = |rates: &[u64]| (1..=1000 * end).find(|tick| {
                let whole = usize::try_from(tick / 1000).unwrap();
                let passed: u64 = rates[..whole].iter().sum::<u64>() * 1000;
                passed + rates.get(whole).map_or(0, |rate| rate * (tick % 1000)) >= bytes * 1000
            });
            let milli = |moment: Timestamp| moment.as_micros().div_ceil(1000);
            prop_assert_eq!(place(Shape::EarliestFinish).map(|made| milli(made.end())), first(&rates));
            let mirrored: Vec<u64> = rates.iter().rev().copied().collect();
            let late = place(Shape::LatestStart).map(|made| end * 1000 - made.start().as_micros() / 1000);
            prop_assert_eq!(late, first(&mirrored));
            // All runs of whole seconds, each with what is free in all of it.
            let mut shortest = None;
            for from in 0..used.len() {
                for to in from + 1..=used.len() {
                    let rate = used[from..to].iter().map(|used| 10 - used).min().unwrap().min(most);
                    if rate >= least.max(1) && rate * (to - from) as u64 >= bytes {
                        let micros = (bytes * 1_000_000).div_ceil(rate);
                        shortest = Some(shortest.unwrap_or(micros).min(micros));
                    }
                }
            }
            let made = place(Shape::Shortest).map(|made| made.end().as_micros() - made.start().as_micros());
            prop_assert_eq!(made, shortest);
        }
    }
}
