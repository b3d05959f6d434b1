//! Desk of reservations: accepts requests, keeps the grants, and puts them into force.

use std::{
    os::unix::net::UnixListener,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp as Moment;
use posthaste_endpoint::{Error, ErrorKind, Result, gateway::is_reservation, kept::KeptFile};
use posthaste_plan::reserve::{HOLD_LIFETIME, Refusal, State};
use posthaste_types::Timestamp;
use serde::Serialize;
use tokio::{sync::Notify, time::timeout};

use super::{
    Reserve,
    book::Book,
    flow::Flow,
    store, tc,
    tree::{self, Classes},
    wire::{Asked, Changed, Refused, Span, held_until, moment},
};
use crate::clock;

/// Interval at which the trees are checked, and failures retried.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// Longest hold: it keeps others out, so it is short.
const HOLD_S_MAX: u64 = 3600;
/// Reason why a request fails.
#[derive(Debug)]
pub(super) enum No {
    Senseless(String),
    Unknown,
    Other(String),
    /// Refusal with its status.
    Refused(u16, Refused),
    /// Failure to write the reservation to disk.
    NotKept(String),
}

impl From<Refusal> for No {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal {
            Refusal::Unknown => return Self::Unknown,
            Refusal::Senseless => 400,
            Refusal::TooMany => 503,
            Refusal::Varies | Refusal::NoRoom { .. } | Refusal::NoTime { .. } => 409,
        };
        Self::Refused(status, refusal.into())
    }
}

/// Reservation as clients see it.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    id: String,
    device: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_until: Option<Moment>,
    start: Moment,
    end: Moment,
    pieces: Vec<Span>,
    flows: Vec<Flow>,
    /// True if its class is in the kernel now.
    in_force: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Listed {
    devices: Vec<ListedDevice>,
    reservations: Vec<Shown>,
}

#[derive(Debug, Serialize)]
struct ListedDevice {
    device: String,
    rate_bytes_per_s: u64,
    /// Rate that may be reserved on the device, in all.
    reservable_bytes_per_s: u64,
    /// Rate of that which is free now.
    free_bytes_per_s: u64,
    /// Error that keeps classes from being in force there, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    trouble: Option<String>,
}

/// Classes in the kernel for a device.
#[derive(Debug, Clone, Default)]
struct InForce {
    /// Classes; `None` if unknown, so that the tree is rebuilt.
    classes: Option<Classes>,
    trouble: Option<String>,
}

#[derive(Debug, Default)]
struct Inside {
    book: Book,
    in_force: Vec<InForce>,
}

/// Reservations of a gateway.
pub(crate) struct Desk {
    devices: Vec<Reserve>,
    file: KeptFile,
    inside: Mutex<Inside>,
    changed: Notify,
    /// Held as long as the devices are ours.
    _locks: Vec<UnixListener>,
}

impl Desk {
    /// Locks the devices, reads earlier grants, and puts running reservations into force.
    ///
    /// # Errors
    /// If another gateway uses a device, or it has a foreign queue; if the kernel can't or may not
    /// do it; if the file is invalid. The device is then unchanged.
    pub(crate) async fn open(devices: Vec<Reserve>, dir: &Path) -> Result<Self> {
        let mut names: Vec<&str> = devices.iter().map(|one| one.device.as_str()).collect();
        names.sort_unstable();
        if let Some(twice) = names.windows(2).find(|two| two[0] == two[1]) {
            return Err(
                Error::new(ErrorKind::Invalid, "reserve on", twice[0].to_owned())
                    .cause("it is given twice"),
            );
        }
        let locks = devices
            .iter()
            .map(|one| tc::lock(&one.device))
            .collect::<Result<Vec<_>>>()?;
        let file = store::file(dir);
        let book = Book::restore(&devices, file.read()?.unwrap_or_default())
            .map_err(|error| error.with("file", file.path.display().to_string()))?;
        let in_force = vec![InForce::default(); devices.len()];
        let desk = Self {
            devices,
            file,
            inside: Mutex::new(Inside { book, in_force }),
            changed: Notify::new(),
            _locks: locks,
        };
        for place in 0..desk.devices.len() {
            if let Err(error) = desk.put_in_force(place).await {
                desk.close().await;
                return Err(error);
            }
        }
        Ok(desk)
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the kernel's classes up to date, for as long as it is polled.
    pub(crate) async fn keep(&self) {
        loop {
            let now = clock::now();
            let next = {
                let mut inside = self.inside();
                inside.book.expire(now);
                inside.book.calendar.next_change(now)
            };
            let sleep = next.map_or(LOOK_EVERY, |next| next.since(now).min(LOOK_EVERY));
            if timeout(sleep, self.changed.notified()).await.is_err() && sleep == LOOK_EVERY {
                self.look().await;
            }
            for place in 0..self.devices.len() {
                // Clients see the error, and the next pass retries.
                let _ = self.put_in_force(place).await;
            }
        }
    }

    /// Forgets the classes of devices whose tree is gone.
    async fn look(&self) {
        for (place, one) in self.devices.iter().enumerate() {
            if !tc::is_ours(&one.device).await.unwrap_or(false) {
                self.inside().in_force[place].classes = None;
            }
        }
    }

    /// Brings the tree of a device up to date.
    async fn put_in_force(&self, place: usize) -> Result<()> {
        let Reserve { device, rate } = &self.devices[place];
        let (old, new) = {
            let mut inside = self.inside();
            let now = clock::now();
            inside.book.expire(now);
            (
                inside.in_force[place].classes.clone(),
                inside.book.classes(place, now),
            )
        };
        if old.as_ref() == Some(&new) {
            return Ok(());
        }
        let changed = match &old {
            Some(old) => tc::apply(device, &tree::change(device, *rate, old, &new)).await,
            None => tc::build(device, *rate, &new).await,
        };
        let done = match changed {
            // Another program changed the tree: rebuild it.
            Err(_) if old.is_some() => tc::build(device, *rate, &new).await,
            done => done,
        };
        let trouble = done.as_ref().err().map(ToString::to_string);
        let classes = done.is_ok().then_some(new);
        self.inside().in_force[place] = InForce { classes, trouble };
        done
    }

    /// Removes the trees. Grants stay on disk.
    pub(crate) async fn close(&self) {
        for (place, one) in self.devices.iter().enumerate() {
            let was = self.inside().in_force[place].classes.take();
            if was.is_some() {
                // A device that is gone has taken its tree along.
                let _ = tc::remove(&one.device).await;
            }
        }
    }

    /// Returns `SO_PRIORITY` for the streams of a reservation, even before it runs, so that they
    /// are in its class from its first moment. `None` if it is unknown.
    pub(crate) fn priority(&self, id: &str, now: Timestamp) -> Option<u32> {
        let mut inside = self.inside();
        inside.book.expire(now);
        inside
            .book
            .entries
            .get(id)
            .map(|entry| tree::priority(entry.class))
    }

    pub(super) fn list(&self, now: Timestamp) -> Listed {
        let mut inside = self.inside();
        inside.book.expire(now);
        let device = |(place, one): (usize, &Reserve)| ListedDevice {
            device: one.device.clone(),
            rate_bytes_per_s: one.rate.get(),
            reservable_bytes_per_s: tree::reservable(one.rate).get(),
            free_bytes_per_s: inside
                .book
                .calendar
                .free(&[place], now, now + Duration::from_micros(1))
                .rate()
                .get(),
            trouble: inside.in_force[place].trouble.clone(),
        };
        let ids = inside.book.entries.keys();
        Listed {
            devices: self.devices.iter().enumerate().map(device).collect(),
            reservations: ids.filter_map(|id| self.shown(&inside, id, now)).collect(),
        }
    }

    pub(super) fn show(&self, id: &str, now: Timestamp) -> Result<Shown, No> {
        let mut inside = self.inside();
        inside.book.expire(now);
        self.shown(&inside, id, now).ok_or(No::Unknown)
    }

    fn shown(&self, inside: &Inside, id: &str, now: Timestamp) -> Option<Shown> {
        let entry = inside.book.entries.get(id)?;
        let granted = inside.book.calendar.get(entry.number)?;
        let classes = inside.in_force[entry.device].classes.as_ref();
        let class = classes.and_then(|classes| classes.get(&entry.class));
        Some(Shown {
            id: id.to_owned(),
            device: self.devices[entry.device].device.clone(),
            state: match granted.state {
                State::Held { .. } => "held",
                State::Committed => "committed",
            },
            held_until: held_until(granted.state),
            start: moment(granted.start()),
            end: moment(granted.end()),
            pieces: granted.pieces.iter().map(Span::from).collect(),
            flows: entry.asked.flows.clone(),
            in_force: class.is_some_and(|class| class.rate == granted.at(now).rate()),
        })
    }

    /// Holds a reservation, or returns the one granted to the same request. Also returns whether it
    /// is new.
    pub(super) fn hold(&self, asked: Asked, now: Timestamp) -> Result<(bool, Shown), No> {
        if !is_reservation(&asked.id) {
            return Err(No::Senseless(
                "an id is 1 to 64 letters, digits, dots, dashes or underlines".to_owned(),
            ));
        }
        let hold = match asked.hold_s {
            None => HOLD_LIFETIME,
            Some(seconds) if (1..=HOLD_S_MAX).contains(&seconds) => Duration::from_secs(seconds),
            Some(_) => return Err(No::Senseless("hold_s is 1 to 3600".to_owned())),
        };
        let ask = asked
            .ask(now)
            .map_err(|why| No::Senseless(why.to_owned()))?;
        let device = self.device(asked.device.as_deref())?;
        let id = asked.id.clone();
        let is_new = self.alter(now, |book| {
            if let Some(known) = book.entries.get(&asked.id) {
                if known.asked == asked {
                    return Ok(false);
                }
                return Err(No::Other("another reservation has this id".to_owned()));
            }
            let number = book.calendar.hold(&[device], ask, now, now + hold)?;
            book.insert(number, device, asked);
            Ok(true)
        })?;
        Ok((is_new, self.show(&id, now)?))
    }

    /// Changes the grants and writes them to disk; undoes the change if that fails.
    fn alter<T>(
        &self,
        now: Timestamp,
        what: impl FnOnce(&mut Book) -> Result<T, No>,
    ) -> Result<T, No> {
        let mut inside = self.inside();
        inside.book.expire(now);
        let mut book = inside.book.clone();
        let done = what(&mut book)?;
        self.file
            .write(&book.kept(&self.devices))
            .map_err(|cause| No::NotKept(format!("it can't be written down: {cause}")))?;
        inside.book = book;
        drop(inside);
        self.changed.notify_one();
        Ok(done)
    }

    /// Returns the index of a device, which need not be named if there is only one.
    fn device(&self, name: Option<&str>) -> Result<usize, No> {
        let place = match name {
            Some(name) => self.devices.iter().position(|one| one.device == name),
            None => (self.devices.len() == 1).then_some(0),
        };
        place.ok_or_else(|| {
            let names: Vec<&str> = self.devices.iter().map(|one| one.device.as_str()).collect();
            No::Senseless(format!(
                "name a device of this gateway: {}",
                names.join(", ")
            ))
        })
    }

    pub(super) fn commit(&self, id: &str, now: Timestamp) -> Result<Shown, No> {
        self.alter(now, |book| {
            let number = book.number(id)?;
            book.calendar.commit(number, now)?;
            Ok(())
        })?;
        self.show(id, now)
    }

    pub(super) fn change(&self, id: &str, changed: &Changed, now: Timestamp) -> Result<Shown, No> {
        self.alter(now, |book| {
            let number = book.number(id)?;
            match &changed.volume {
                Some(volume) => book.calendar.replace(number, volume.ask(now), now)?,
                None => book.calendar.change(number, changed.change(), now)?,
            }
            Ok(())
        })?;
        self.show(id, now)
    }

    pub(super) fn release(&self, id: &str, now: Timestamp) -> Result<(), No> {
        self.alter(now, |book| {
            let number = book.number(id)?;
            book.calendar.release(number);
            book.entries.remove(id);
            Ok(())
        })
    }
}
