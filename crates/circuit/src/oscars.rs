//! Client of OSCARS 1.2 over its REST interface, after its source at esnet/oscars@7a40199b.
//!
//! OSCARS accepts the name that its client gives a connection, so the name is made from the key of
//! the request. A caller that loses an answer looks for the connection, and holds it again under
//! the same name if it is missing. (OSCARS's own generator, `/protected/conn/generateId`, would
//! give a lost hold no name to be found by.)
//!
//! OSCARS gives few reasons: a hold that does not fit ends with status 500 without a text, like a
//! fault. We then query `/api/pce/paths`, which shows whether the calendar was full and what would
//! fit. OSCARS reports a change of the end that does not fit as a success, so we read back each
//! change.

mod change;
mod wire;

use bytes::Bytes;
use http::{Method, StatusCode};
use posthaste_endpoint::{Boxed, ErrorKind, Locus, Result};
use posthaste_types::{ByteRate, Timestamp};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    Answer, Ask, Capabilities, Change, Circuit, Held, Id, Oscars, Placing, Provider, Refusal,
    State, Status, Terms, clock, place,
    provider::check_key,
    web::{Answered, Question, Web},
};
use wire::{
    Connection, ConnectionFilter, ConnectionList, CurrentlyHeld, Moment, PathsAnswer,
    PathsQuestion, SimpleConnection,
};

/// Unit of OSCARS: megabits a second.
pub(crate) const MBIT: ByteRate = ByteRate::new(125_000);

/// Connections on a page of the list.
const PAGE_CONNECTIONS: usize = 200;

/// Most pages of the list read: more than a site could ever have at once.
const PAGES_MAX: usize = 50;

/// Most of our holds that a list looks at.
const HOLDS_MAX: usize = 256;

/// Prefix of the names of our connections.
const NAME_BEGINS: &str = "ph";

/// Prefix of the descriptions of our connections; the key follows.
const DESCRIPTION_BEGINS: &str = "posthaste ";

/// Client of an OSCARS server for one circuit.
#[derive(Debug)]
pub(crate) struct OscarsClient {
    web: Web,
    circuit: Circuit,
    oscars: Oscars,
}

/// Makes the name of the connection for `key`: twelve letters and digits at most, as OSCARS
/// requires, which leaves 50 bits.
fn name_for(key: &str) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let digest = blake3::hash(key.as_bytes());
    let letters = digest.as_bytes().iter().take(10);
    let letters = letters.map(|byte| char::from(LETTERS[usize::from(byte % 32)]));
    NAME_BEGINS.chars().chain(letters).collect()
}

impl OscarsClient {
    pub(crate) fn new(circuit: Circuit, oscars: Oscars) -> Result<Self> {
        Ok(Self {
            web: Web::open(&circuit)?,
            circuit,
            oscars,
        })
    }

    async fn get(&self, operation: &'static str, path: &str) -> Result<Answered> {
        self.web
            .ask(&Question {
                operation,
                method: Method::GET,
                path,
                body: None,
                header: None,
            })
            .await
    }

    async fn post_text(&self, operation: &'static str, path: &str, text: &str) -> Result<Answered> {
        self.post_bytes(operation, path, ("text/plain", text.to_owned().into()))
            .await
    }

    async fn post(
        &self,
        operation: &'static str,
        path: &str,
        body: &impl Serialize,
    ) -> Result<Answered> {
        let bytes = serde_json::to_vec(body)
            .map_err(|cause| self.web.fail(ErrorKind::Other, operation).cause(cause))?;
        self.post_bytes(operation, path, ("application/json", bytes.into()))
            .await
    }

    async fn post_bytes(
        &self,
        operation: &'static str,
        path: &str,
        body: (&'static str, Bytes),
    ) -> Result<Answered> {
        self.web
            .ask(&Question {
                operation,
                method: Method::POST,
                path,
                body: Some(body),
                header: None,
            })
            .await
    }

    /// Parses the body of a successful answer.
    fn read<T: DeserializeOwned>(&self, operation: &'static str, answered: &Answered) -> Result<T> {
        if !answered.status.is_success() {
            return Err(self.unexpected(operation, answered));
        }
        serde_json::from_slice(&answered.body).map_err(|cause| {
            let error = self.web.fail(ErrorKind::Other, operation);
            error.cause(format!("OSCARS answered what makes no sense: {cause}"))
        })
    }

    /// Converts an unexpected answer to an error.
    fn unexpected(
        &self,
        operation: &'static str,
        answered: &Answered,
    ) -> posthaste_endpoint::Error {
        let kind = match answered.status {
            StatusCode::NOT_FOUND => ErrorKind::NotFound,
            StatusCode::BAD_REQUEST => ErrorKind::Invalid,
            status if status.is_server_error() => ErrorKind::Busy,
            _ => ErrorKind::Other,
        };
        let said = wire::message(&answered.body)
            .unwrap_or_else(|| format!("the server answered {}", answered.status));
        self.web.fail(kind, operation).cause(said)
    }

    /// Returns the connection of this name, if there is one.
    async fn look(&self, operation: &'static str, name: &str) -> Result<Option<Connection>> {
        let path = format!("/api/conn/info/{name}");
        let answered = self.get(operation, &path).await?;
        if answered.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let found: Connection = self.read(operation, &answered)?;
        if found.connection_id != name {
            let error = self.web.fail(ErrorKind::Other, operation);
            return Err(error.cause("OSCARS answered with another connection"));
        }
        Ok(Some(found))
    }

    fn status_of(&self, found: &Connection) -> Result<Status> {
        let state = found.state_of().ok_or_else(|| {
            let error = self.web.fail(ErrorKind::Other, "read a connection");
            error.cause("it is a design")
        })?;
        Ok(Status {
            id: Id::new(found.connection_id.clone()),
            key: found
                .description
                .strip_prefix(DESCRIPTION_BEGINS)
                .map(ToOwned::to_owned),
            terms: found.terms(),
            state,
            since: found
                .last_modified
                .and_then(|s| u64::try_from(s).ok())
                .map(Timestamp::from_secs),
        })
    }

    /// Returns the reservation under `key`, if there is one.
    async fn kept(&self, key: &str, name: &str) -> Result<Option<Answer<Held>>> {
        const DOING: &str = "hold bandwidth";
        let Some(found) = self.look(DOING, name).await? else {
            return Ok(None);
        };
        let status = self.status_of(&found)?;
        if status.key.as_deref() != Some(key) {
            let error = self.web.fail(ErrorKind::Conflict, DOING);
            return Err(error.cause(format!("connection {name} is somebody else's")));
        }
        let over = |why: &str| Some(Answer::because(why));
        let granted = status.terms.ok_or_else(|| {
            self.web
                .fail(ErrorKind::Other, DOING)
                .cause("a connection without a schedule")
        })?;
        Ok(match status.state {
            State::Held { expires } => {
                let path = format!("/protected/extend_hold/{name}");
                let answered = self.get(DOING, &path).await?;
                // The hold may have just expired; then nothing is left under the key.
                if answered.status == StatusCode::NOT_FOUND {
                    return Ok(None);
                }
                let until: Moment = self.read(DOING, &answered)?;
                Some(Answer::Granted(Held {
                    id: status.id,
                    expires: until.timestamp().or(expires),
                    granted,
                }))
            }
            State::Reserved | State::Up => Some(Answer::Granted(Held {
                id: status.id,
                expires: None,
                granted,
            })),
            State::Over => over("what was reserved under this key is over"),
            State::Failed => over("what was reserved under this key has failed"),
        })
    }

    async fn do_hold(&self, ask: &Ask) -> Result<Answer<Held>> {
        const DOING: &str = "hold bandwidth";
        check_key(&ask.key)?;
        let rate_max = self.circuit.rate_max;
        let placing = place(&ask.what, &self.capabilities(), rate_max, clock::now());
        let terms = match placing {
            Placing::At(terms) => terms,
            Placing::TooMuch { .. } => return Ok(Answer::too_much()),
        };
        let name = name_for(&ask.key);
        if let Some(kept) = self.kept(&ask.key, &name).await? {
            return Ok(kept);
        }
        if terms.rate > rate_max {
            return Ok(Answer::above(rate_max));
        }
        let description = format!("{DESCRIPTION_BEGINS}{}", ask.key);
        let wanted = SimpleConnection::new(&name, &description, &self.oscars, &terms);
        let wanted = wanted.ok_or_else(|| {
            let error = self.web.fail(ErrorKind::Invalid, DOING);
            error.cause("a rate or a time beyond what OSCARS can count")
        })?;
        let answered = self.post(DOING, "/protected/hold", &wanted).await?;
        let refused = match answered.status.as_u16() {
            400 | 500 => true,
            _ => {
                let held: SimpleConnection = self.read(DOING, &answered)?;
                match held.refusal() {
                    Some(why) => {
                        // OSCARS keeps a connection that it calls invalid all the same.
                        self.do_release(&Id::new(&*name)).await?;
                        return Ok(Answer::Refused(Refusal {
                            why,
                            fits: self.fits(&terms).await.ok(),
                        }));
                    }
                    None => match held.held(&terms) {
                        Some(held) => return Ok(Answer::Granted(held)),
                        None => false,
                    },
                }
            }
        };
        if !refused {
            let error = self.web.fail(ErrorKind::Other, DOING);
            return Err(error.cause("OSCARS answered without a schedule"));
        }
        // If OSCARS can't answer this query either, the server has a fault.
        let Ok(fits) = self.fits(&terms).await else {
            return Err(self.unexpected(DOING, &answered));
        };
        let why = wire::message(&answered.body)
            .unwrap_or_else(|| "OSCARS takes no such reservation and does not say why".to_owned());
        let fits = Some(fits).filter(|fits| *fits < terms.rate);
        Ok(Answer::Refused(Refusal { why, fits }))
    }

    /// Queries the rate that is available between the two devices over the time of `terms`.
    async fn fits(&self, terms: &Terms) -> Result<ByteRate> {
        const DOING: &str = "ask what would fit";
        let question = PathsQuestion::new(&self.oscars, terms);
        let answered = self.post(DOING, "/api/pce/paths", &question).await?;
        let paths: PathsAnswer = self.read(DOING, &answered)?;
        let mbps = u64::try_from(paths.widest_mbps()).unwrap_or(0);
        Ok(ByteRate::new(mbps.saturating_mul(MBIT.get())).min(self.circuit.rate_max))
    }

    async fn do_commit(&self, id: &Id) -> Result<Answer<()>> {
        const DOING: &str = "commit a reservation";
        let answered = self
            .post_text(DOING, "/protected/conn/commit", id.as_str())
            .await?;
        if answered.status.is_success() {
            return Ok(Answer::Granted(()));
        }
        let refused = |why: &str| Ok(Answer::because(why));
        match self.look(DOING, id.as_str()).await? {
            None => refused("the hold has expired"),
            Some(found) => match self.status_of(&found)?.state {
                State::Reserved | State::Up => Ok(Answer::Granted(())),
                State::Over => refused("it is over"),
                State::Failed => refused("it has failed"),
                State::Held { .. } if answered.status == StatusCode::BAD_REQUEST => {
                    refused("what is held does not fit any more")
                }
                State::Held { .. } => Err(self.unexpected(DOING, &answered)),
            },
        }
    }

    async fn do_release(&self, id: &Id) -> Result<()> {
        const DOING: &str = "release a reservation";
        let answered = self
            .post_text(DOING, "/protected/conn/release", id.as_str())
            .await?;
        if answered.status.is_success() || answered.status == StatusCode::NOT_FOUND {
            return Ok(());
        }
        // OSCARS refuses to release a connection that is over, which is what the caller wanted.
        match self.look(DOING, id.as_str()).await? {
            None => Ok(()),
            Some(found) if self.status_of(&found)?.state == State::Over => Ok(()),
            Some(_) => Err(self.unexpected(DOING, &answered)),
        }
    }

    async fn do_status(&self, id: &Id) -> Result<Status> {
        const DOING: &str = "look at a reservation";
        match self.look(DOING, id.as_str()).await? {
            Some(found) => self.status_of(&found),
            None => {
                let error = self.web.fail(ErrorKind::NotFound, DOING).at(Locus::Client);
                Err(error.cause(format!("there is no connection {id}")))
            }
        }
    }

    async fn do_list(&self) -> Result<Vec<Status>> {
        const DOING: &str = "list reservations";
        let mut all = Vec::new();
        for page in 1..=PAGES_MAX {
            let filter = ConnectionFilter {
                description: DESCRIPTION_BEGINS.trim_end(),
                phase: "RESERVED",
                page,
                size_per_page: PAGE_CONNECTIONS,
            };
            let answered = self.post(DOING, "/api/conn/list", &filter).await?;
            let list: ConnectionList = self.read(DOING, &answered)?;
            let count = list.connections.len();
            for found in list.connections {
                let status = self.status_of(&found)?;
                if self.is_ours(&status) && status.state != State::Over {
                    all.push(status);
                }
            }
            if count < PAGE_CONNECTIONS {
                break;
            }
        }
        let answered = self.get(DOING, "/protected/held/current").await?;
        let held: Vec<CurrentlyHeld> = self.read(DOING, &answered)?;
        let ours = held
            .iter()
            .filter(|held| held.connection_id.starts_with(NAME_BEGINS));
        for held in ours.take(HOLDS_MAX) {
            if !wire::is_name(&held.connection_id) {
                continue;
            }
            if let Some(found) = self.look(DOING, &held.connection_id).await? {
                let status = self.status_of(&found)?;
                if self.is_ours(&status) && !all.iter().any(|other| other.id == status.id) {
                    all.push(status);
                }
            }
        }
        Ok(all)
    }

    /// Returns whether the name was made from the key.
    fn is_ours(&self, status: &Status) -> bool {
        let key = status.key.as_deref();
        key.is_some_and(|key| name_for(key) == status.id.as_str())
    }
}

impl Provider for OscarsClient {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            least: self.circuit.least,
            lead: self.circuit.lead,
            rate_step: MBIT,
            moves_end: true,
            moves_start: false,
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

impl OscarsClient {
    /// Checks a name: names become paths of URLs.
    fn check_name(&self, id: &Id) -> Result<()> {
        if wire::is_name(id.as_str()) {
            return Ok(());
        }
        Err(self.web.no_name(id, "connection of OSCARS"))
    }
}
