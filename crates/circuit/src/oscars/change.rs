//! Changes of a connection: its rate, and its end.

use posthaste_endpoint::{ErrorKind, Locus, Result};
use posthaste_types::{ByteRate, Timestamp};

use super::{
    MBIT, OscarsClient,
    wire::{Modified, ModifyBandwidth, ModifySchedule, Moment, RangeAnswer, RangeQuestion},
};
use crate::{Answer, Change, Id, Refusal, State, Terms, place};

impl OscarsClient {
    pub(super) async fn do_modify(&self, id: &Id, change: &Change) -> Result<Answer<Terms>> {
        const DOING: &str = "change a reservation";
        let name = id.as_str();
        if change.from.is_some() {
            let error = self.web.fail(ErrorKind::Unsupported, DOING);
            return Err(error.cause("OSCARS moves the end of a reservation only"));
        }
        let now = self.committed(DOING, name).await?;
        if let Some(rate) = change.rate
            && let Some(refusal) = self.change_rate(name, rate, &now).await?
        {
            return Ok(Answer::Refused(refusal));
        }
        if let Some(until) = change.until
            && let Some(refusal) = self.change_end(name, until, &now).await?
        {
            // All or nothing: the rate goes back to its old value.
            if change.rate.is_some() {
                self.change_rate(name, now.rate, &now).await?;
            }
            return Ok(Answer::Refused(refusal));
        }
        self.committed(DOING, name).await.map(Answer::Granted)
    }

    async fn committed(&self, operation: &'static str, name: &str) -> Result<Terms> {
        let found = self.look(operation, name).await?.ok_or_else(|| {
            let error = self
                .web
                .fail(ErrorKind::NotFound, operation)
                .at(Locus::Client);
            error.cause(format!("there is no connection {name}"))
        })?;
        match (self.status_of(&found)?.state, found.terms()) {
            (State::Reserved | State::Up, Some(terms)) => Ok(terms),
            (state, _) => {
                let error = self.web.fail(ErrorKind::Conflict, operation);
                Err(error.cause(format!("connection {name} is {}", state.name())))
            }
        }
    }

    async fn change_rate(
        &self,
        name: &str,
        rate: ByteRate,
        now: &Terms,
    ) -> Result<Option<Refusal>> {
        const DOING: &str = "change the rate of a reservation";
        let rate = place::in_steps(rate, MBIT);
        if rate == now.rate {
            // An earlier request did this and its answer was lost, or this restores the old rate.
            let there = self.committed(DOING, name).await?;
            if there.rate == rate {
                return Ok(None);
            }
        }
        if rate > self.circuit.rate_max {
            return Ok(Some(Refusal::above(self.circuit.rate_max)));
        }
        let question = RangeQuestion {
            connection_id: name,
            r#type: None,
        };
        let answered = self.post(DOING, "/api/valid/bandwidth", &question).await?;
        let range: RangeAnswer<i64> = self.read(DOING, &answered)?;
        let ceiling = u64::try_from(range.ceiling)
            .unwrap_or(0)
            .saturating_mul(MBIT.get());
        let ceiling = ByteRate::new(ceiling).min(self.circuit.rate_max);
        if !range.allowed || rate > ceiling {
            return Ok(Some(Refusal {
                why: range.why("there is not so much left"),
                fits: range.allowed.then_some(ceiling),
            }));
        }
        let bandwidth = i64::try_from(rate.get() / MBIT.get()).unwrap_or(i64::MAX);
        let wish = ModifyBandwidth {
            connection_id: name,
            bandwidth,
        };
        let answered = self
            .post(DOING, "/protected/modify/bandwidth", &wish)
            .await?;
        let modified: Modified = self.read(DOING, &answered)?;
        Ok(modified.refusal())
    }

    async fn change_end(
        &self,
        name: &str,
        until: Timestamp,
        now: &Terms,
    ) -> Result<Option<Refusal>> {
        const DOING: &str = "change the end of a reservation";
        // OSCARS counts in seconds.
        let until_s = until.as_micros() / 1_000_000;
        if until_s == now.until.as_micros() / 1_000_000 {
            return Ok(None);
        }
        let question = RangeQuestion {
            connection_id: name,
            r#type: Some("END"),
        };
        let answered = self.post(DOING, "/api/valid/schedule", &question).await?;
        let range: RangeAnswer<Moment> = self.read(DOING, &answered)?;
        let before = range.floor.timestamp().is_some_and(|floor| until < floor);
        let after = range
            .ceiling
            .timestamp()
            .is_some_and(|ceiling| until > ceiling);
        // An allowed range that excludes this end means a refusal. A range that is not allowed says
        // nothing about a nearer end.
        if range.allowed && (before || after) {
            return Ok(Some(Refusal {
                why: range.why("it can't end then"),
                fits: None,
            }));
        }
        let wish = ModifySchedule {
            connection_id: name,
            r#type: "END",
            timestamp: until_s,
        };
        let answered = self
            .post(DOING, "/protected/modify/schedule", &wish)
            .await?;
        let modified: Modified = self.read(DOING, &answered)?;
        if let Some(refusal) = modified.refusal() {
            return Ok(Some(refusal));
        }
        let there = self.committed(DOING, name).await?;
        // OSCARS replaces an end in the past by the next minute.
        let sooner = until < now.until && there.until < now.until;
        if there.until.as_micros() / 1_000_000 == until_s || sooner {
            return Ok(None);
        }
        let why = "OSCARS did not change the end: somebody else has what comes behind".to_owned();
        Ok(Some(Refusal { why, fits: None }))
    }
}
