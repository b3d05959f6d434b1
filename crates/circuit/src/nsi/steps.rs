//! Steps in the life of a reservation: held, committed, provisioned, terminated.

use posthaste_endpoint::{ErrorKind, Result};

use super::{
    Activation, NsiClient, Reservation, Reserving, is_late, is_live, is_name, soap::Message,
    tree::Element, wire,
};
use crate::{
    Answer, Ask, Held, Id, Placing, Provider, State, Terms, clock, place, provider::check_key,
};

impl NsiClient {
    pub(super) async fn do_hold(&self, ask: &Ask) -> Result<Answer<Held>> {
        const DOING: &str = "hold bandwidth";
        check_key(&ask.key)?;
        if let Some(kept) = self.kept(DOING, &ask.key).await? {
            let terms = kept.terms();
            return self.held(DOING, &kept.connection, terms).await;
        }
        let rate_max = self.circuit.rate_max;
        let terms = match place(&ask.what, &self.capabilities(), rate_max, clock::now()) {
            Placing::At(terms) if terms.rate > rate_max => return Ok(Answer::above(rate_max)),
            Placing::At(terms) => wire::in_seconds(terms),
            Placing::TooMuch { .. } => return Ok(Answer::too_much()),
        };
        let global = self.global(&ask.key);
        let message = wire::reserve(&self.nsi, &global, &ask.key, &terms);
        let connection = match self.ask(DOING, &message, false).await {
            Ok(Ok(answer)) => self.name_in(DOING, &answer)?,
            Ok(Err(exception)) => return self.no(DOING, &exception).map(Answer::Refused),
            // The provider may have received it all the same.
            Err(error) if error.is_temporary() => match self.kept(DOING, &ask.key).await {
                Ok(Some(kept)) => kept.connection,
                Ok(None) | Err(_) => return Err(error),
            },
            Err(error) => return Err(error),
        };
        self.held(DOING, &connection, Some(terms)).await
    }

    /// Returns the name that the provider gave a reservation.
    fn name_in(&self, operation: &'static str, answer: &Element) -> Result<String> {
        let name = answer.text_of("connectionId").unwrap_or_default();
        if answer.name == "reserveResponse" && is_name(name) {
            return Ok(name.to_owned());
        }
        let error = self.web.fail(ErrorKind::Other, operation);
        Err(error.cause("the provider acknowledged without a name"))
    }

    /// Waits until a reservation is held or refused.
    async fn held(
        &self,
        operation: &'static str,
        name: &str,
        terms: Option<Terms>,
    ) -> Result<Answer<Held>> {
        let checked = |one: &Reservation| one.reserving != Reserving::Checking;
        let Some(found) = self.settled(operation, name, checked).await? else {
            // A provider that forgets refused reservations reports the reason only to a `replyTo`.
            return Ok(Answer::because(
                "the provider takes no such reservation, and does not keep why",
            ));
        };
        match found.state(clock::now()) {
            State::Held { .. } | State::Reserved | State::Up => {
                let granted = found.terms().or(terms).ok_or_else(|| {
                    let error = self.web.fail(ErrorKind::Other, operation);
                    error.cause("a reservation without a schedule")
                })?;
                Ok(Answer::Granted(Held {
                    id: Id::new(name),
                    // A provider reports when a hold has expired, not when it will.
                    expires: None,
                    granted,
                }))
            }
            State::Failed => Ok(Answer::because(
                "what was reserved under this key has failed",
            )),
            State::Over => {
                let reason = self.reason(operation, name).await;
                self.do_release(name).await?;
                match reason {
                    Some(exception) => self.no(operation, &exception).map(Answer::Refused),
                    None => Ok(Answer::because(
                        "the provider takes no such reservation and does not say why",
                    )),
                }
            }
        }
    }

    pub(super) async fn do_commit(&self, name: &str) -> Result<Answer<()>> {
        const DOING: &str = "commit a reservation";
        const EXPIRED: &str = "the hold has expired";
        let Some(mut found) = self.look(DOING, name).await? else {
            return Ok(Answer::because(EXPIRED));
        };
        if matches!(found.reserving, Reserving::Held | Reserving::Committing)
            && !found.is_committed()
            && !found.is_gone()
        {
            if found.reserving == Reserving::Held {
                let message = Message::about("reserveCommit", name);
                match self.ask(DOING, &message, true).await? {
                    Ok(_) => {}
                    // The commit was received before, or the hold has just expired: a query shows
                    // which.
                    Err(exception) if is_late(&exception) => {}
                    Err(exception) => return self.no(DOING, &exception).map(Answer::Refused),
                }
            }
            let committed = |one: &Reservation| {
                !matches!(one.reserving, Reserving::Held | Reserving::Committing)
            };
            let Some(now) = self.settled(DOING, name, committed).await? else {
                return Ok(Answer::because(EXPIRED));
            };
            found = now;
            if found.reserving == Reserving::Start && !found.has_criteria() {
                let reason = self.reason(DOING, name).await;
                self.do_release(name).await?;
                return match reason {
                    Some(exception) => self.no(DOING, &exception).map(Answer::Refused),
                    None => Ok(Answer::because("what is held does not fit any more")),
                };
            }
        }
        match found.state(clock::now()) {
            State::Reserved | State::Up => self.provision(DOING, &found).await,
            State::Failed => Ok(Answer::because("it has failed")),
            State::Over if found.reserving == Reserving::Timeout => Ok(Answer::because(EXPIRED)),
            State::Over => Ok(Answer::because("it is over")),
            State::Held { .. } => {
                let error = self.web.fail(ErrorKind::Busy, DOING);
                Err(error.cause("the provider is not done with it"))
            }
        }
    }

    /// Lets a committed reservation carry data from its start on.
    async fn provision(&self, operation: &'static str, found: &Reservation) -> Result<Answer<()>> {
        let name = &*found.connection;
        if found.provisioning == Activation::Released {
            let message = Message::about("provision", name);
            match self.ask(operation, &message, true).await? {
                Ok(_) => {}
                Err(exception) if is_late(&exception) => {}
                Err(exception) => return Err(self.raise(operation, &exception)),
            }
        }
        let provisioned = |one: &Reservation| {
            let goes = matches!(
                one.provisioning,
                Activation::Provisioning | Activation::Provisioned
            );
            goes || !is_live(one)
        };
        match self.settled(operation, name, provisioned).await? {
            Some(found) if is_live(&found) => Ok(Answer::Granted(())),
            Some(_) | None => Ok(Answer::because("it is over")),
        }
    }

    /// Releases a reservation in any state.
    pub(super) async fn do_release(&self, name: &str) -> Result<()> {
        const DOING: &str = "release a reservation";
        match self.look(DOING, name).await? {
            None => return Ok(()),
            Some(found) if found.is_gone() => return Ok(()),
            Some(_) => {}
        }
        let message = Message::about("terminate", name);
        match self.ask(DOING, &message, true).await? {
            Ok(_) => {}
            Err(exception) if is_late(&exception) => {}
            Err(exception) => return Err(self.raise(DOING, &exception)),
        }
        self.settled(DOING, name, Reservation::is_gone).await?;
        Ok(())
    }
}
