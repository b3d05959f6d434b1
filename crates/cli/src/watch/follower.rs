use std::{collections::VecDeque, time::Duration};

use posthaste_api as api;

use super::frame::EVENTS_SHOWN;
use crate::{
    client::{Events, ServiceClient},
    failure::Failure,
};

/// Follows a request and its events.
pub struct Follower {
    id: String,
    events: Events,
    recent: VecDeque<api::Event>,
    unsaid: Vec<api::Event>,
}

impl Follower {
    /// Starts to follow.
    ///
    /// # Errors
    /// The service's refusal, or that it can't be reached.
    pub async fn new(service: &ServiceClient, id: &str) -> Result<Self, Failure> {
        let _known: api::Request = service.get(&format!("/v1/requests/{id}")).await?;
        Ok(Self {
            id: id.to_owned(),
            events: service.events(Some(id), 0).await?,
            recent: VecDeque::new(),
            unsaid: Vec::new(),
        })
    }

    /// Takes up the events that came and looks at the request.
    ///
    /// # Errors
    /// The service's refusal, or that it can't be reached.
    pub async fn look(&mut self, service: &ServiceClient) -> Result<api::Request, Failure> {
        let request = service.get(&format!("/v1/requests/{}", self.id)).await?;
        // Whatever the service wrote down before it answered above is on its way already.
        while let Ok(Some(event)) =
            tokio::time::timeout(Duration::from_millis(20), self.events.next()).await
        {
            self.recent.push_back(event.clone());
            if self.recent.len() > EVENTS_SHOWN {
                self.recent.pop_front();
            }
            self.unsaid.push(event);
        }
        Ok(request)
    }

    /// The newest events.
    pub fn recent(&mut self) -> &[api::Event] {
        self.recent.make_contiguous()
    }

    /// Events not taken before.
    pub fn take_unsaid(&mut self) -> Vec<api::Event> {
        std::mem::take(&mut self.unsaid)
    }
}
