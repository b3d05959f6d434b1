//! Requester of NSI-CS 2.1 (OGF GFD.237), after the published WSDL and schemas.
//!
//! NSI answers later: a provider acknowledges a request at once and reports the result to the
//! address in `replyTo`. A requester may leave that address out and query instead
//! (`querySummarySync`, and `queryResultSync` for reasons). We query. That works from behind a
//! firewall, with short-lived programs and after a restart, and a lost answer is no special case.
//!
//! A provider chooses the name of a reservation. Ours carry a `globalReservationId` made from the
//! key and the circuit, by which we find them again. If a lost answer left two with the same id,
//! they are merged. The description holds the requested terms, since providers show no criteria
//! before the commit.

mod change;
mod settle;
mod soap;
mod steps;
mod tree;
mod wire;

use http::{HeaderValue, Method, StatusCode};
use posthaste_endpoint::{Boxed, Error, ErrorKind, Locus, Result};
use posthaste_types::ByteRate;

use crate::{
    Answer, Ask, Capabilities, Change, Circuit, Held, Id, Nsi, Provider, Refusal, State, Status,
    Terms, clock, line,
    web::{Answered, Question, Web},
};
use soap::{Exception, Header, Meaning, Message, element};
use tree::Element;
use wire::{Activation, Reservation, Reserving};

/// Unit of capacity: megabits a second in all existing Service Definitions.
const MBIT: ByteRate = ByteRate::new(125_000);

/// Longest name that a provider may give, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Most reservations under one key that are merged: each was a lost answer.
const TWINS_MAX: usize = 16;

/// Client of an NSI provider for one circuit.
#[derive(Debug)]
pub(crate) struct NsiClient {
    web: Web,
    circuit: Circuit,
    nsi: Nsi,
}

/// Makes a UUID (RFC 9562, version 8) from a digest, as URN.
fn urn(digest: &blake3::Hash) -> String {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.as_bytes()[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!(
        "urn:uuid:{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}

/// Returns whether the reservation is not over.
fn is_live(found: &Reservation) -> bool {
    match found.state(clock::now()) {
        State::Held { .. } | State::Reserved | State::Up | State::Failed => true,
        State::Over => false,
    }
}

impl NsiClient {
    pub(crate) fn new(circuit: Circuit, nsi: Nsi) -> Result<Self> {
        Ok(Self {
            web: Web::open(&circuit)?,
            circuit,
            nsi,
        })
    }

    /// Returns the id of our reservation under `key` at all providers of its chain.
    fn global(&self, key: &str) -> String {
        let [a, z] = &self.nsi.ends;
        let words = [&*self.nsi.requester, &*self.nsi.provider, a, z, key];
        let mut hasher = blake3::Hasher::new();
        for word in words {
            hasher.update(word.as_bytes());
            // Separator that no address contains, so words can't run into each other.
            hasher.update(b"\n");
        }
        urn(&hasher.finalize())
    }

    /// Sends a request, and returns the answer or the provider's exception. A request that can't be
    /// repeated is sent once.
    async fn ask(
        &self,
        operation: &'static str,
        message: &Message,
        twice: bool,
    ) -> Result<std::result::Result<Element, Exception>> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(|cause| {
            let error = self.web.fail(ErrorKind::Other, operation);
            error.cause(cause.to_string()).at(Locus::Client)
        })?;
        let correlation = urn(&blake3::Hash::from_bytes(random));
        let header = Header {
            correlation: &correlation,
            requester: &self.nsi.requester,
            provider: &self.nsi.provider,
            reply_to: self.nsi.reply_to.as_deref(),
        };
        let action = HeaderValue::from_str(&message.action())
            .map_err(|cause| self.web.fail(ErrorKind::Other, operation).cause(cause))?;
        let question = Question {
            operation,
            method: Method::POST,
            path: "",
            body: Some(("text/xml; charset=utf-8", message.envelope(&header).into())),
            header: Some(("SOAPAction", action)),
        };
        let answered = if twice {
            self.web.ask(&question).await?
        } else {
            self.web.ask_once(&question).await?
        };
        let heard = self.hear(operation, &answered)?;
        if heard
            .correlation
            .is_some_and(|theirs| theirs != correlation)
        {
            let error = self.web.fail(ErrorKind::Other, operation);
            return Err(error.cause("the provider answered another question"));
        }
        Ok(heard.said)
    }

    fn hear(&self, operation: &'static str, answered: &Answered) -> Result<soap::Heard> {
        let is_soap = matches!(
            answered.status,
            StatusCode::OK | StatusCode::ACCEPTED | StatusCode::INTERNAL_SERVER_ERROR
        );
        let heard = soap::hear(&answered.body);
        match heard {
            Ok(heard) if is_soap => Ok(heard),
            Err(why) if answered.status.is_success() => {
                let error = self.web.fail(ErrorKind::Other, operation);
                Err(error.cause(format!(
                    "the provider answered what makes no sense: {}",
                    line::one(&why)
                )))
            }
            Ok(_) | Err(_) => {
                let kind = if answered.status.is_server_error() {
                    ErrorKind::Busy
                } else {
                    ErrorKind::Other
                };
                let error = self.web.fail(kind, operation);
                Err(error.cause(format!("the server answered {}", answered.status)))
            }
        }
    }

    /// Converts an exception to an error.
    fn raise(&self, operation: &'static str, exception: &Exception) -> Error {
        let kind = match exception.meaning() {
            Meaning::Broken(kind) => kind,
            Meaning::No => ErrorKind::Conflict,
        };
        let error = self.web.fail(kind, operation);
        error.cause(match &exception.id {
            Some(id) => format!("{} (NSI error {id})", exception.text),
            None => exception.text.clone(),
        })
    }

    /// Converts an exception to a refusal, or to an error if it is none.
    fn no(&self, operation: &'static str, exception: &Exception) -> Result<Refusal> {
        match exception.meaning() {
            Meaning::No => Ok(Refusal {
                why: exception.text.clone(),
                fits: exception.fits_mbps.map(|mbps| {
                    ByteRate::new(mbps.saturating_mul(MBIT.get())).min(self.circuit.rate_max)
                }),
            }),
            Meaning::Broken(_) => Err(self.raise(operation, exception)),
        }
    }

    /// Returns all our reservations that a filter selects.
    async fn query(&self, operation: &'static str, filter: String) -> Result<Vec<Reservation>> {
        let message = Message {
            operation: "querySummarySync",
            content: filter,
        };
        let answer = match self.ask(operation, &message, true).await? {
            Ok(answer) => answer,
            Err(exception) if exception.meaning() == Meaning::Broken(ErrorKind::NotFound) => {
                return Ok(Vec::new());
            }
            Err(exception) => return Err(self.raise(operation, &exception)),
        };
        let nonsense = |what: &str| {
            let error = self.web.fail(ErrorKind::Other, operation);
            error.cause(format!("the provider answered with {what}"))
        };
        if answer.name != "querySummarySyncConfirmed" {
            return Err(nonsense("another message"));
        }
        let read = |element| {
            Reservation::read(element)
                .ok_or_else(|| nonsense("a reservation in a state that nobody knows"))
        };
        answer.all("reservation").map(read).collect()
    }

    /// Returns the reservation of this name, if there is one.
    async fn look(&self, operation: &'static str, name: &str) -> Result<Option<Reservation>> {
        let found = self.query(operation, element("connectionId", name)).await?;
        Ok(found.into_iter().find(|one| one.connection == name))
    }

    /// Returns the reason of the last refusal about a connection, if the provider keeps it.
    async fn reason(&self, operation: &'static str, name: &str) -> Option<Exception> {
        let message = Message::about("queryResultSync", name);
        // Some providers lack this operation; the reason is then unknown.
        let answer = self.ask(operation, &message, true).await.ok()?.ok()?;
        let last = answer.all("result").max_by_key(|result| {
            result
                .text_of("resultId")
                .and_then(|id| id.parse::<i64>().ok())
        });
        Exception::within(last?)
    }

    /// Returns the reservation under `key`: a committed one, or else the first. Releases its
    /// duplicates and those that were refused or have expired.
    async fn kept(&self, operation: &'static str, key: &str) -> Result<Option<Reservation>> {
        let global = self.global(key);
        let filter = element("globalReservationId", &global);
        let mut found = self.query(operation, filter).await?;
        found.retain(|one| one.global.as_ref() == Some(&global) && !one.is_gone());
        found.sort_by_key(|one| (!one.is_committed(), one.connection.clone()));
        let at = found.iter().position(is_live);
        let kept = at.map(|at| found.remove(at));
        for other in found.iter().take(TWINS_MAX) {
            self.do_release(&other.connection).await?;
        }
        Ok(kept)
    }

    fn status_of(&self, found: &Reservation) -> Status {
        Status {
            id: Id::new(&*found.connection),
            key: found.key().map(ToOwned::to_owned),
            terms: found.terms(),
            state: found.state(clock::now()),
            since: None,
        }
    }

    async fn do_status(&self, name: &str) -> Result<Status> {
        const DOING: &str = "look at a reservation";
        match self.look(DOING, name).await? {
            Some(found) => Ok(self.status_of(&found)),
            None => Err(self.unknown(DOING, name)),
        }
    }

    fn unknown(&self, operation: &'static str, name: &str) -> Error {
        let error = self.web.fail(ErrorKind::NotFound, operation);
        error
            .at(Locus::Client)
            .cause(format!("there is no connection {}", line::one(name)))
    }

    async fn do_list(&self) -> Result<Vec<Status>> {
        const DOING: &str = "list reservations";
        let found = self.query(DOING, String::new()).await?;
        let ours = |one: &&Reservation| {
            let global = one.key().map(|key| self.global(key));
            global.is_some() && one.global == global && is_live(one)
        };
        let all = found.iter().filter(ours);
        Ok(all.map(|one| self.status_of(one)).collect())
    }

    fn check_name<'a>(&self, id: &'a Id) -> Result<&'a str> {
        if is_name(id.as_str()) {
            return Ok(id.as_str());
        }
        Err(self.web.no_name(id, "connection of NSI"))
    }
}

/// Checks a name: names go into XML, lists and logs.
fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns whether an exception means that an operation was done before or comes too late.
fn is_late(exception: &Exception) -> bool {
    matches!(
        exception.meaning(),
        Meaning::Broken(ErrorKind::Conflict | ErrorKind::NotFound)
    )
}

impl Provider for NsiClient {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            least: self.circuit.least,
            lead: self.circuit.lead,
            rate_step: MBIT,
            moves_end: true,
            moves_start: true,
            changes_rate: true,
        }
    }

    fn hold<'a>(&'a self, ask: &'a Ask) -> Boxed<'a, Result<Answer<Held>>> {
        Box::pin(self.do_hold(ask))
    }

    fn commit<'a>(&'a self, id: &'a Id) -> Boxed<'a, Result<Answer<()>>> {
        Box::pin(async move { self.do_commit(self.check_name(id)?).await })
    }

    fn modify<'a>(&'a self, id: &'a Id, change: &'a Change) -> Boxed<'a, Result<Answer<Terms>>> {
        Box::pin(async move { self.do_modify(self.check_name(id)?, change).await })
    }

    fn release<'a>(&'a self, id: &'a Id) -> Boxed<'a, Result<()>> {
        Box::pin(async move { self.do_release(self.check_name(id)?).await })
    }

    fn status<'a>(&'a self, id: &'a Id) -> Boxed<'a, Result<Status>> {
        Box::pin(async move { self.do_status(self.check_name(id)?).await })
    }

    fn list(&self) -> Boxed<'_, Result<Vec<Status>>> {
        Box::pin(self.do_list())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_one() {
        let made = urn(&blake3::hash(b"x"));
        let words: Vec<&str> = made.trim_start_matches("urn:uuid:").split('-').collect();
        let lengths: Vec<usize> = words.iter().map(|word| word.len()).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{made}");
        assert!(words[2].starts_with('8'), "{made}");
        assert!(words[3].starts_with(['8', '9', 'a', 'b']), "{made}");
    }
}
