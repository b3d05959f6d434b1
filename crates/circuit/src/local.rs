//! Client of the calendar of one of our own gateways, over its `/v1/reservations`.
//!
//! A gateway accepts the name that its client gives a reservation, so the name is the key. A
//! repeated request gets the same reservation; one that differs in a moment finds the reservation
//! that is kept under the key. The gateway places a volume in its own calendar, and forgets
//! finished reservations.

mod wire;

use bytes::Bytes;
use http::{Method, StatusCode};
use posthaste_endpoint::{Boxed, Error, ErrorKind, Locus, Result, gateway::is_reservation};
use posthaste_types::ByteRate;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Answer, Ask, Capabilities, Change, Circuit, Held, Id, Local, Provider, Refusal, State, Status,
    Terms, What, clock, line,
    provider::check_key,
    web::{Answered, Question, Web},
};
use wire::{Changed, Listed, Refused, Shown, Wanted};

/// Path of a gateway's calendar.
const PATH: &str = "/v1/reservations";

/// Client of a gateway for one circuit.
#[derive(Debug)]
pub(crate) struct LocalClient {
    web: Web,
    circuit: Circuit,
    local: Local,
}

impl LocalClient {
    pub(crate) fn new(circuit: Circuit, local: Local) -> Result<Self> {
        Ok(Self {
            web: Web::open(&circuit)?,
            circuit,
            local,
        })
    }

    async fn ask(
        &self,
        operation: &'static str,
        method: Method,
        rest: &str,
        body: Option<Bytes>,
    ) -> Result<Answered> {
        let answered = self
            .web
            .ask(&Question {
                operation,
                method,
                path: &format!("{PATH}{rest}"),
                body: body.map(|body| ("application/json", body)),
                header: None,
            })
            .await?;
        if answered.status == StatusCode::NOT_IMPLEMENTED {
            let error = self.web.fail(ErrorKind::Unsupported, operation);
            return Err(error
                .cause("this gateway reserves nothing")
                .hint("start it with --reserve DEVICE=RATE"));
        }
        Ok(answered)
    }

    fn write(&self, operation: &'static str, body: &impl Serialize) -> Result<Bytes> {
        let bytes = serde_json::to_vec(body)
            .map_err(|cause| self.web.fail(ErrorKind::Other, operation).cause(cause))?;
        Ok(bytes.into())
    }

    /// Parses the body of a successful answer.
    fn read<T: DeserializeOwned>(&self, operation: &'static str, answered: &Answered) -> Result<T> {
        if !answered.status.is_success() {
            return Err(self.unexpected(operation, answered));
        }
        serde_json::from_slice(&answered.body).map_err(|cause| {
            let error = self.web.fail(ErrorKind::Other, operation);
            error.cause(format!("the gateway answered what makes no sense: {cause}"))
        })
    }

    /// Converts an answer that is no refusal to an error.
    fn unexpected(&self, operation: &'static str, answered: &Answered) -> Error {
        let kind = match answered.status {
            StatusCode::NOT_FOUND => ErrorKind::NotFound,
            StatusCode::BAD_REQUEST => ErrorKind::Invalid,
            StatusCode::CONFLICT => ErrorKind::Conflict,
            status if status.is_server_error() => ErrorKind::Busy,
            _ => ErrorKind::Other,
        };
        let said = serde_json::from_slice(&answered.body)
            .ok()
            .map(|refused: Refused| line::one(&refused.error))
            .unwrap_or_else(|| format!("the gateway answered {}", answered.status));
        self.web.fail(kind, operation).cause(said)
    }

    /// Returns the reservation of this name, if there is one.
    async fn look(&self, operation: &'static str, id: &str) -> Result<Option<Shown>> {
        let answered = self
            .ask(operation, Method::GET, &format!("/{id}"), None)
            .await?;
        if answered.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let shown: Shown = self.read(operation, &answered)?;
        if shown.id != id {
            let error = self.web.fail(ErrorKind::Other, operation);
            return Err(error.cause("the gateway answered with another reservation"));
        }
        Ok(Some(shown))
    }

    fn terms_of(&self, operation: &'static str, shown: &Shown) -> Result<Terms> {
        shown.terms().ok_or_else(|| {
            let error = self.web.fail(ErrorKind::Other, operation);
            error.cause("the gateway answered with a reservation of nothing")
        })
    }

    fn status_of(&self, operation: &'static str, shown: &Shown) -> Result<Status> {
        let state = shown.state_of(clock::now()).ok_or_else(|| {
            let error = self.web.fail(ErrorKind::Other, operation);
            let state = line::one(&shown.state);
            error.cause(format!(
                "the gateway answered with the state `{state}`, which nobody knows"
            ))
        })?;
        Ok(Status {
            id: Id::new(&*shown.id),
            key: Some(shown.id.clone()),
            terms: Some(self.terms_of(operation, shown)?),
            state,
            since: None,
        })
    }

    fn held_of(&self, operation: &'static str, shown: &Shown) -> Result<Held> {
        let status = self.status_of(operation, shown)?;
        let expires = match status.state {
            State::Held { expires } => expires,
            State::Reserved | State::Up | State::Over | State::Failed => None,
        };
        Ok(Held {
            granted: self.terms_of(operation, shown)?,
            id: status.id,
            expires,
        })
    }

    fn refusal(&self, operation: &'static str, answered: &Answered) -> Result<Refusal> {
        let refused: Refused = serde_json::from_slice(&answered.body)
            .map_err(|_| self.unexpected(operation, answered))?;
        Ok(Refusal {
            fits: refused
                .rate_bytes_per_s_most
                .map(|rate| ByteRate::new(rate).min(self.circuit.rate_max)),
            why: refused.why(),
        })
    }

    async fn do_hold(&self, ask: &Ask) -> Result<Answer<Held>> {
        const DOING: &str = "hold bandwidth";
        check_key(&ask.key)?;
        let rate_max = self.circuit.rate_max;
        if let What::Fixed(terms) = &ask.what
            && terms.rate > rate_max
        {
            // The gateway may have granted it when the circuit had a higher rate.
            return match self.look(DOING, &ask.key).await? {
                Some(shown) => self.held_of(DOING, &shown).map(Answer::Granted),
                None => Ok(Answer::above(rate_max)),
            };
        }
        let earliest = clock::now() + self.circuit.lead;
        let wanted = Wanted::new(ask, &self.local, rate_max, earliest);
        let body = self.write(DOING, &wanted)?;
        let answered = self.ask(DOING, Method::POST, "", Some(body)).await?;
        if answered.status != StatusCode::CONFLICT {
            let shown = self.read(DOING, &answered)?;
            return self.held_of(DOING, &shown).map(Answer::Granted);
        }
        // Either a refusal, or the request differs from the one granted under this key, as "now"
        // has moved.
        match self.look(DOING, &ask.key).await? {
            Some(shown) => self.held_of(DOING, &shown).map(Answer::Granted),
            None => self.refusal(DOING, &answered).map(Answer::Refused),
        }
    }

    async fn do_commit(&self, id: &Id) -> Result<Answer<()>> {
        const DOING: &str = "commit a reservation";
        let rest = format!("/{id}/commit");
        let answered = self.ask(DOING, Method::POST, &rest, None).await?;
        if answered.status == StatusCode::NOT_FOUND {
            return Ok(Answer::because("the hold has expired"));
        }
        self.read::<Shown>(DOING, &answered)
            .map(|_| Answer::Granted(()))
    }

    async fn do_modify(&self, id: &Id, change: &Change) -> Result<Answer<Terms>> {
        const DOING: &str = "change a reservation";
        if change.rate.is_some_and(|rate| rate > self.circuit.rate_max) {
            return Ok(Answer::above(self.circuit.rate_max));
        }
        let body = self.write(DOING, &Changed::from(change))?;
        let rest = format!("/{id}");
        let answered = self.ask(DOING, Method::PATCH, &rest, Some(body)).await?;
        if answered.status == StatusCode::CONFLICT {
            return self.refusal(DOING, &answered).map(Answer::Refused);
        }
        let shown = self.read(DOING, &answered)?;
        self.terms_of(DOING, &shown).map(Answer::Granted)
    }

    async fn do_release(&self, id: &Id) -> Result<()> {
        const DOING: &str = "release a reservation";
        let answered = self
            .ask(DOING, Method::DELETE, &format!("/{id}"), None)
            .await?;
        match answered.status {
            StatusCode::NO_CONTENT | StatusCode::NOT_FOUND => Ok(()),
            _ => Err(self.unexpected(DOING, &answered)),
        }
    }

    async fn do_status(&self, id: &Id) -> Result<Status> {
        const DOING: &str = "look at a reservation";
        let shown = self.look(DOING, id.as_str()).await?.ok_or_else(|| {
            let error = self.web.fail(ErrorKind::NotFound, DOING).at(Locus::Client);
            error.cause(format!("there is no reservation {id}, or it is over"))
        })?;
        self.status_of(DOING, &shown)
    }

    async fn do_list(&self) -> Result<Vec<Status>> {
        const DOING: &str = "list reservations";
        let answered = self.ask(DOING, Method::GET, "", None).await?;
        let listed: Listed = self.read(DOING, &answered)?;
        let device = self.local.device.as_deref();
        let ours = listed
            .reservations
            .iter()
            .filter(|shown| device.is_none_or(|device| device == shown.device));
        ours.map(|shown| self.status_of(DOING, shown)).collect()
    }

    /// Checks a name: names become paths of URLs.
    fn check_name(&self, id: &Id) -> Result<()> {
        if is_reservation(id.as_str()) {
            return Ok(());
        }
        Err(self.web.no_name(id, "reservation of a gateway"))
    }
}

impl Provider for LocalClient {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            least: self.circuit.least,
            lead: self.circuit.lead,
            rate_step: ByteRate::new(1),
            moves_end: true,
            moves_start: true,
            changes_rate: true,
        }
    }

    fn hold<'a>(&'a self, ask: &'a Ask) -> Boxed<'a, Result<Answer<Held>>> {
        Box::pin(self.do_hold(ask))
    }

    fn commit<'a>(&'a self, id: &'a Id) -> Boxed<'a, Result<Answer<()>>> {
        Box::pin(async move {
            self.check_name(id)?;
            self.do_commit(id).await
        })
    }

    fn modify<'a>(&'a self, id: &'a Id, change: &'a Change) -> Boxed<'a, Result<Answer<Terms>>> {
        Box::pin(async move {
            self.check_name(id)?;
            self.do_modify(id, change).await
        })
    }

    fn release<'a>(&'a self, id: &'a Id) -> Boxed<'a, Result<()>> {
        Box::pin(async move {
            self.check_name(id)?;
            self.do_release(id).await
        })
    }

    fn status<'a>(&'a self, id: &'a Id) -> Boxed<'a, Result<Status>> {
        Box::pin(async move {
            self.check_name(id)?;
            self.do_status(id).await
        })
    }

    fn list(&self) -> Boxed<'_, Result<Vec<Status>>> {
        Box::pin(self.do_list())
    }
}
