use std::{collections::VecDeque, time::Duration};

use jiff::Timestamp;
use posthaste_api as api;

use super::frame::EVENTS_SHOWN;
use crate::{
    client::{Events, ServiceClient},
    failure::Failure,
};

/// Follower of a request and its events.
pub struct Follower {
    id: String,
    /// Time of submission. Earlier events of depots don't concern the request.
    since: Option<Timestamp>,
    /// Stream of events, `None` while the service is away.
    events: Option<Events>,
    /// Number of the newest event.
    newest: u64,
    recent: VecDeque<api::Event>,
    unsaid: Vec<api::Event>,
}

impl Follower {
    /// Starts to follow.
    ///
    /// # Errors
    /// Returns the service's refusal, or fails if it can't be reached.
    pub async fn new(service: &ServiceClient, id: &str) -> Result<Self, Failure> {
        let known: api::Request = service.get(&format!("/v1/requests/{id}")).await?;
        Ok(Self {
            id: id.to_owned(),
            since: known.submitted.parse().ok(),
            events: Some(service.events(Some(id), 0).await?),
            newest: 0,
            recent: VecDeque::new(),
            unsaid: Vec::new(),
        })
    }

    /// Reads the new events and gets the request.
    ///
    /// # Errors
    /// Returns the service's refusal, or fails if it stays away.
    pub async fn look(&mut self, service: &ServiceClient) -> Result<api::Request, Failure> {
        let path = format!("/v1/requests/{}", self.id);
        let request = service.get_again(&path).await?;
        if self.events.is_none() {
            self.events = service.events(Some(&self.id), self.newest).await.ok();
        }
        // Events that the service recorded before its answer above are already on their way.
        while let Some(events) = &mut self.events
            && let Ok(event) = tokio::time::timeout(Duration::from_millis(20), events.next()).await
        {
            let Some(event) = event else {
                self.events = None;
                break;
            };
            self.newest = event.seq;
            if is_before(&event, self.since) || is_of_others(&event, &request) {
                continue;
            }
            self.recent.push_back(event.clone());
            if self.recent.len() > EVENTS_SHOWN {
                self.recent.pop_front();
            }
            self.unsaid.push(event);
        }
        Ok(request)
    }

    /// Returns the newest events.
    pub fn recent(&mut self) -> &[api::Event] {
        self.recent.make_contiguous()
    }

    /// Returns the events not returned before.
    pub fn take_unsaid(&mut self) -> Vec<api::Event> {
        std::mem::take(&mut self.unsaid)
    }
}

/// Returns whether an event before that moment concerns no request in particular.
fn is_before(event: &api::Event, since: Option<Timestamp>) -> bool {
    let at: Option<Timestamp> = event.at.parse().ok();
    event.request.is_none() && at.zip(since).is_some_and(|(at, since)| at < since)
}

/// Returns whether an event concerns a depot that the request does not use.
fn is_of_others(event: &api::Event, request: &api::Request) -> bool {
    let sources = request
        .stage_in
        .iter()
        .flat_map(|stage_in| &stage_in.sources);
    let sources = sources.map(|source| &source.name);
    let mut used = request
        .shares
        .iter()
        .map(|share| &share.depot)
        .chain(sources);
    let depot = event.depot.as_ref().filter(|_| event.request.is_none());
    depot.is_some_and(|depot| !used.any(|used| used == depot))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(at: &str, request: Option<&str>) -> api::Event {
        api::Event {
            seq: 1,
            at: at.into(),
            request: request.map(str::to_owned),
            depot: Some("ash".into()),
            name: "depot-down".into(),
            text: "depot down".into(),
            reason: "it can't be reached".into(),
        }
    }

    #[test]
    fn what_happens_to_depots_of_other_requests_is_not_told_of_it() {
        let mut request = crate::watch::tests::request("moving", false);
        let at = "2026-11-27T14:57:46.5Z";
        assert!(is_of_others(&event(at, None), &request));
        assert!(!is_of_others(&event(at, Some("r1")), &request));
        request.shares.push(api::Share {
            depot: "ash".into(),
            state: api::DepotState::Down,
            active: false,
            stored: 0,
            stored_bytes: 0,
            in_flight: 0,
            reserved_bytes: 0,
            rate_bytes_per_s: 0,
        });
        assert!(!is_of_others(&event(at, None), &request));
    }

    #[test]
    fn what_happened_to_depots_before_a_request_is_not_told_of_it() {
        let since = "2026-11-27T14:57:46.5Z".parse().ok();
        assert!(is_before(&event("2026-11-27T14:57:46.4Z", None), since));
        for (at, request) in [
            ("2026-11-27T14:57:46.5Z", None),
            ("2026-11-27T14:57:46.4Z", Some("r9")),
        ] {
            assert!(!is_before(&event(at, request), since), "{at} {request:?}");
        }
    }
}
