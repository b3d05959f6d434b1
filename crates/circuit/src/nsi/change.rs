//! Changes of a committed reservation: a next version of its terms, beside the one that lasts
//! meanwhile.

use posthaste_endpoint::{ErrorKind, Result};

use super::{
    Exception, Meaning, NsiClient, Reservation, Reserving, is_late,
    soap::Message,
    wire::{self, Service},
};
use crate::{Answer, Change, State, Terms, clock, place};

/// Result of a change, in one way of requesting it.
enum Tried {
    Answered(Answer<Terms>),
    /// Change that the provider does not understand, or refuses for an unknown reason.
    NotUnderstood(Option<Exception>),
}

impl NsiClient {
    pub(super) async fn do_modify(&self, name: &str, change: &Change) -> Result<Answer<Terms>> {
        const DOING: &str = "change a reservation";
        let found = self.committed(DOING, name).await?;
        let now = found.terms().ok_or_else(|| {
            let error = self.web.fail(ErrorKind::Other, DOING);
            error.cause("a reservation without a schedule")
        })?;
        let wish = wire::in_seconds(Terms {
            rate: change
                .rate
                .map_or(now.rate, |rate| place::in_steps(rate, super::MBIT)),
            from: change.from.unwrap_or(now.from),
            until: change.until.unwrap_or(now.until),
        });
        if wish.rate > self.circuit.rate_max {
            return Ok(Answer::above(self.circuit.rate_max));
        }
        // An earlier request did this, and its answer was lost.
        if wish == wire::in_seconds(now) {
            return Ok(Answer::Granted(now));
        }
        let mut why = None;
        for service in [Service::Capacity, Service::Whole] {
            match self.try_change(DOING, &found, &wish, service).await? {
                Tried::Answered(answer) => return Ok(answer),
                Tried::NotUnderstood(exception) => why = exception.or(why),
            }
        }
        match why {
            Some(exception) => Err(self.raise(DOING, &exception)),
            None => Ok(Answer::because(
                "the provider takes no such change and does not say why",
            )),
        }
    }

    /// Requests other terms in one of the ways there are.
    async fn try_change(
        &self,
        operation: &'static str,
        found: &Reservation,
        wish: &Terms,
        service: Service,
    ) -> Result<Tried> {
        let name = &*found.connection;
        let message = wire::reserve_again(&self.nsi, found, wish, service);
        // A repeated request would make a second version: a caller that loses the answer requests
        // the change again.
        if let Err(exception) = self.ask(operation, &message, false).await? {
            return self.tried(operation, Some(exception));
        }
        let checked = |one: &Reservation| one.reserving != Reserving::Checking;
        let held = self.settled(operation, name, checked).await?;
        match held.map(|one| one.reserving) {
            None => return Err(self.unknown(operation, name)),
            Some(Reserving::Held) => {}
            Some(_) => return self.refused(operation, name).await,
        }
        if let Err(exception) = self
            .ask(operation, &Message::about("reserveCommit", name), true)
            .await?
            && !is_late(&exception)
        {
            self.clear(operation, name).await?;
            return self.tried(operation, Some(exception));
        }
        let done =
            |one: &Reservation| !matches!(one.reserving, Reserving::Held | Reserving::Committing);
        let after = self.settled(operation, name, done).await?;
        match after.as_ref().and_then(Reservation::terms) {
            None => Err(self.unknown(operation, name)),
            Some(terms) if wire::in_seconds(terms) == *wish => {
                Ok(Tried::Answered(Answer::Granted(terms)))
            }
            Some(_) => self.refused(operation, name).await,
        }
    }

    /// Interprets an exception to a change.
    fn tried(&self, operation: &'static str, exception: Option<Exception>) -> Result<Tried> {
        match exception {
            Some(exception) if exception.meaning() != Meaning::Broken(ErrorKind::Invalid) => {
                let refusal = self.no(operation, &exception)?;
                Ok(Tried::Answered(Answer::Refused(refusal)))
            }
            not_understood => Ok(Tried::NotUnderstood(not_understood)),
        }
    }

    /// Returns the committed reservation with no change pending, after undoing a change that its
    /// caller abandoned.
    async fn committed(&self, operation: &'static str, name: &str) -> Result<Reservation> {
        let found = self.look(operation, name).await?;
        let found = found.ok_or_else(|| self.unknown(operation, name))?;
        let found = match (found.state(clock::now()), found.reserving) {
            (State::Reserved | State::Up, Reserving::Start) => return Ok(found),
            (State::Reserved | State::Up, _) => self.clear(operation, name).await?,
            (State::Held { .. } | State::Over | State::Failed, _) => found,
        };
        match found.state(clock::now()) {
            State::Reserved | State::Up => Ok(found),
            state @ (State::Held { .. } | State::Over | State::Failed) => {
                let error = self.web.fail(ErrorKind::Conflict, operation);
                Err(error.cause(format!("connection {name} is {}", state.name())))
            }
        }
    }

    /// Undoes a change that is not committed.
    async fn clear(&self, operation: &'static str, name: &str) -> Result<Reservation> {
        let still = |one: &Reservation| {
            !matches!(
                one.reserving,
                Reserving::Checking | Reserving::Committing | Reserving::Aborting
            )
        };
        let settled = self.settled(operation, name, still).await?;
        let found = settled.ok_or_else(|| self.unknown(operation, name))?;
        if found.reserving == Reserving::Start {
            return Ok(found);
        }
        let message = Message::about("reserveAbort", name);
        if let Err(exception) = self.ask(operation, &message, true).await?
            && !is_late(&exception)
        {
            return Err(self.raise(operation, &exception));
        }
        let cleared = |one: &Reservation| one.reserving == Reserving::Start || one.is_gone();
        let settled = self.settled(operation, name, cleared).await?;
        settled.ok_or_else(|| self.unknown(operation, name))
    }

    /// Undoes a refused change, and returns the reason.
    async fn refused(&self, operation: &'static str, name: &str) -> Result<Tried> {
        let reason = self.reason(operation, name).await;
        self.clear(operation, name).await?;
        self.tried(operation, reason)
    }
}
