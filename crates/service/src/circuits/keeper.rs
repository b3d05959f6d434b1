//! Keeps one reservation, from the command until its end.
//!
//! A call to a provider is never dropped, since the provider may have received it. Each call ends
//! within the provider's patience, and only then new wishes are read.

use std::{sync::Arc, time::Duration};

use posthaste_circuit::{Answer, Ask, Change, Id, State, Terms, What};
use posthaste_core::contract::{Input, News, Obstacle};
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_types::{ByteRate, ReservationId, Timestamp};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

use super::{Circuits, Seller};
use crate::driver::Arrival;

/// Pause after the first of some errors in a row; it doubles after each further one…
const PAUSE_FIRST: Duration = Duration::from_millis(500);
/// …up to this.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Interval of status checks while it should come up or end now,
const LOOK_SOON: Duration = Duration::from_secs(1);
/// that is up,
const LOOK_UP: Duration = Duration::from_secs(10);
/// that begins much later.
const LOOK_EARLY: Duration = Duration::from_secs(60);
/// A reservation that ends earlier than its time by this much has failed: clocks differ by less.
const EARLY: Duration = Duration::from_secs(60);
/// Attempts to release one: more than an hour of them. Then the sweep releases it, or it expires.
const RETURNS_MAX: u32 = 80;

/// State that the mind wishes of a reservation.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Wish {
    /// Other rate and end.
    to: Option<(ByteRate, Timestamp)>,
    /// Number of wished changes so far.
    changes: u32,
    is_returned: bool,
}

impl Wish {
    pub(super) fn change(&mut self, rate: ByteRate, until: Timestamp) {
        self.to = Some((rate, until));
        self.changes += 1;
    }

    pub(super) fn give_back(&mut self) {
        self.is_returned = true;
    }
}

/// Pauses that grow while something fails, which is logged once.
#[derive(Debug, Default)]
struct Pauses {
    failures: u32,
}

impl Pauses {
    fn after(&mut self, reservation: ReservationId, error: &Error) -> Duration {
        if self.failures == 0 {
            tracing::warn!(%reservation, "{error}; tried again");
        }
        let pause = PAUSE_FIRST * (1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        pause.min(PAUSE_MAX)
    }

    fn end(&mut self) {
        self.failures = 0;
    }
}

/// Returns why a retry can't help; none if it may.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "ErrorKind may grow; the rest is asked again"
)]
fn obstacle_of(error: &Error) -> Option<Obstacle> {
    match error.kind() {
        ErrorKind::Unauthenticated | ErrorKind::PermissionDenied => Some(Obstacle::NotKnown),
        ErrorKind::Invalid | ErrorKind::Unsupported | ErrorKind::Conflict => {
            Some(Obstacle::NotUnderstood)
        }
        _ => None,
    }
}

fn is_final(error: &Error) -> bool {
    obstacle_of(error).is_some()
}

/// Keeper of one reservation.
pub(super) struct Keeper {
    pub(super) reservation: ReservationId,
    pub(super) circuits: Arc<Circuits>,
    /// Provider to ask; all candidates for a reservation that is only to be released.
    pub(super) sellers: Vec<Arc<Seller>>,
    pub(super) terms: Terms,
    pub(super) wishes: watch::Receiver<Wish>,
    pub(super) inputs: mpsc::Sender<Arrival>,
}

impl Keeper {
    /// Makes the reservation, keeps it, and reports its end.
    pub(super) async fn keep(mut self) {
        let last = match self.acquire().await {
            Ok((seller, id)) => {
                self.tell(News::Granted).await;
                self.attend(&seller, &id).await
            }
            Err(news) => news,
        };
        self.tell(last).await;
    }

    async fn tell(&self, news: News) {
        let input = Input::ReservationTold {
            reservation: self.reservation,
            news,
        };
        // The driver is gone only when the service ends, and then nobody waits for this.
        let _ = self.inputs.send(Arrival::bare(input)).await;
    }

    /// Waits that long, or until the wish changes.
    async fn wait(&mut self, span: Duration) {
        tokio::select! {
            Ok(()) = self.wishes.changed() => {}
            () = sleep(span) => {}
        }
    }

    /// Asks until there is an answer or the reservation is to be released. Without a reservation,
    /// returns the news for the mind.
    async fn acquire(&mut self) -> Result<(Arc<Seller>, Id), News> {
        let mut pauses = Pauses::default();
        loop {
            let wish = *self.wishes.borrow_and_update();
            let seller = match &self.sellers[..] {
                [seller] if !wish.is_returned => Arc::clone(seller),
                _ => return Err(self.give_back(None).await),
            };
            match self.ask(&seller).await {
                Ok(Answer::Granted(id)) => return Ok((seller, id)),
                Ok(Answer::Refused(_)) if self.circuits.clock.now() >= self.terms.until => {
                    return Err(News::Over);
                }
                Ok(Answer::Refused(refusal)) => {
                    let (name, why) = (&seller.circuit.name, &refusal.why);
                    tracing::warn!(reservation = %self.reservation, "{name} refuses it: {why}");
                    let fits = refusal.fits;
                    return Err(News::Refused { fits });
                }
                Err(error) => {
                    if let Some(why) = obstacle_of(&error) {
                        tracing::warn!(reservation = %self.reservation, "{error}");
                        return Err(News::Unobtainable { why });
                    }
                    let pause = pauses.after(self.reservation, &error);
                    self.wait(pause).await;
                }
            }
        }
    }

    /// Holds and commits it, or adopts the reservation under its key.
    async fn ask(&self, seller: &Seller) -> Result<Answer<Id>> {
        let ask = Ask {
            key: self.circuits.key(self.reservation),
            what: What::Fixed(self.terms),
        };
        let held = match seller.provider.hold(&ask).await? {
            Answer::Granted(held) => held,
            Answer::Refused(refusal) => return Ok(Answer::Refused(refusal)),
        };
        let answer = seller.provider.commit(&held.id).await;
        let is_lost = match &answer {
            Ok(Answer::Granted(())) => return Ok(Answer::Granted(held.id)),
            Ok(Answer::Refused(_)) => true,
            Err(error) => is_final(error),
        };
        if is_lost {
            // If this fails too, the hold expires and the sweep finds it.
            let _ = seller.provider.release(&held.id).await;
        }
        Ok(match answer? {
            Answer::Granted(()) => Answer::Granted(held.id),
            Answer::Refused(refusal) => Answer::Refused(refusal),
        })
    }

    /// Watches the reservation and changes it as wished until it ends. Returns the last news for
    /// the mind.
    async fn attend(&mut self, seller: &Seller, id: &Id) -> News {
        let (mut pauses, mut changed) = (Pauses::default(), 0);
        let mut was_up = None;
        loop {
            let wish = *self.wishes.borrow_and_update();
            if wish.is_returned {
                return self.give_back(Some((seller, id))).await;
            }
            let change = match wish.to.filter(|_| wish.changes != changed) {
                Some(to) => self.change(seller, id, to).await,
                None => Ok(None),
            };
            let looked = match change {
                Ok(news) => {
                    if let Some(news) = news {
                        changed = wish.changes;
                        self.tell(news).await;
                    }
                    self.look(seller, id).await
                }
                Err(error) => Err(error),
            };
            let pause = match looked {
                Ok(Stand::Ended(news)) => {
                    if news == News::Failed {
                        // The reservation carries nothing: a lost call does no harm.
                        let _ = seller.provider.release(id).await;
                    }
                    return news;
                }
                Ok(Stand::Waits) if self.circuits.clock.now() < self.terms.from => {
                    pauses.end();
                    self.next_look(false)
                }
                Ok(stand @ (Stand::Waits | Stand::Up)) => {
                    pauses.end();
                    let is_up = matches!(stand, Stand::Up);
                    if was_up.replace(is_up) != Some(is_up) {
                        self.tell(if is_up { News::Up } else { News::Down }).await;
                    }
                    self.next_look(is_up)
                }
                Err(error) => pauses.after(self.reservation, &error),
            };
            self.wait(pause).await;
        }
    }

    /// Returns its state.
    async fn look(&self, seller: &Seller, id: &Id) -> Result<Stand> {
        let is_due = self.circuits.clock.now() + EARLY >= self.terms.until;
        let gone = match is_due {
            true => Stand::Ended(News::Over),
            false => Stand::Ended(News::Failed),
        };
        let status = match seller.provider.status(id).await {
            Ok(status) => status,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(gone),
            Err(error) => return Err(error),
        };
        Ok(match status.state {
            State::Up => Stand::Up,
            State::Reserved => Stand::Waits,
            State::Over => gone,
            State::Failed => Stand::Ended(News::Failed),
            State::Held { .. } => match seller.provider.commit(id).await? {
                Answer::Granted(()) => Stand::Waits,
                Answer::Refused(_) => Stand::Ended(News::Failed),
            },
        })
    }

    /// Returns the pause until the next look.
    fn next_look(&self, is_up: bool) -> Duration {
        let now = self.circuits.clock.now();
        let (event, most) = match is_up {
            true => (self.terms.until, LOOK_UP),
            false => (self.terms.from, LOOK_EARLY),
        };
        event.since(now).clamp(LOOK_SOON, most)
    }

    /// Asks for another rate or end, and returns the news for the mind.
    async fn change(
        &mut self,
        seller: &Seller,
        id: &Id,
        (rate, until): (ByteRate, Timestamp),
    ) -> Result<Option<News>> {
        let change = Change {
            rate: Some(rate).filter(|rate| *rate != self.terms.rate),
            from: None,
            until: Some(until).filter(|until| *until != self.terms.until),
        };
        let is_done = match seller.provider.modify(id, &change).await {
            Ok(Answer::Granted(terms)) => terms.rate >= rate && terms.until >= until,
            Ok(Answer::Refused(refusal)) => {
                tracing::warn!(reservation = %self.reservation, "{}", refusal.why);
                false
            }
            Err(error) if is_final(&error) => {
                tracing::warn!(reservation = %self.reservation, "{error}");
                false
            }
            // The next look shows its end.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        if !is_done {
            return Ok(Some(News::Unchanged));
        }
        (self.terms.rate, self.terms.until) = (rate, until);
        Ok(Some(News::Changed))
    }

    /// Releases the reservation, with as many attempts as needed; if its id is unknown, the one
    /// under its key.
    async fn give_back(&self, known: Option<(&Seller, &Id)>) -> News {
        let mut pauses = Pauses::default();
        for _ in 0..RETURNS_MAX {
            let returned = match known {
                Some((seller, id)) => seller.provider.release(id).await,
                None => self.return_by_key().await,
            };
            match returned {
                Ok(()) => return News::Over,
                Err(error) if error.kind() == ErrorKind::NotFound => return News::Over,
                Err(error) => sleep(pauses.after(self.reservation, &error)).await,
            }
        }
        tracing::warn!(reservation = %self.reservation, "it can't be given back now; see posthaste reserve list");
        News::Over
    }

    async fn return_by_key(&self) -> Result<()> {
        let key = self.circuits.key(self.reservation);
        for seller in &self.sellers {
            for status in seller.provider.list().await? {
                if status.key.as_deref() == Some(key.as_str()) {
                    seller.provider.release(&status.id).await?;
                }
            }
        }
        Ok(())
    }
}

/// State of a reservation at its provider.
#[derive(Debug, Clone, Copy)]
enum Stand {
    /// Not carrying data.
    Waits,
    Up,
    Ended(News),
}
