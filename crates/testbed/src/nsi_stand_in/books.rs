//! Granted reservations of the stand-in, and its reaction to each question.

use super::{
    Activation, Books, Connection, Criteria, Living, NsiStandIn, Reserving,
    message::{Message, Node},
    show::{Objection, PROTOCOL, SERVICE, Why, element, envelope, read_time, show_time},
};
use crate::stand_in::{Answers, Asked, Told, unix_s};

/// Time that a hold waits for its commit, in seconds.
const HOLD_S: i64 = 180;
/// Most correlations remembered.
const HEARD_MAX: usize = 10_000;

impl Connection {
    /// Returns the criteria that take capacity from others.
    pub(super) fn takes(&self) -> Vec<&Criteria> {
        match self.living {
            Living::Created | Living::Failed => {}
            Living::PassedEndTime | Living::Terminating | Living::Terminated => return Vec::new(),
        }
        let held = matches!(self.reserving, Reserving::Held | Reserving::Committing);
        let pending = self.pending.as_ref().filter(|_| held);
        self.committed.iter().chain(pending).collect()
    }

    /// Completes the operation in progress.
    fn done(&mut self, message: String) {
        self.results.push((self.asked.clone(), message));
    }
}

/// Returns whether the STP is one VLAN of a port: nobody else can have it at the same time.
fn is_exclusive(stp: &str) -> bool {
    let vlans = stp.split_once("?vlan=").map_or("", |(_, vlans)| vlans);
    !vlans.is_empty() && vlans.bytes().all(|byte| byte.is_ascii_digit())
}

impl Books {
    pub(super) fn now(&self) -> i64 {
        unix_s() + self.ahead_s
    }

    pub(super) fn expire(&mut self) {
        let now = self.now();
        for one in self.connections.values_mut() {
            if one.reserving == Reserving::Held && one.expires <= now {
                one.reserving = Reserving::Timeout;
                one.pending = None;
            }
            let over = one.committed.as_ref().is_some_and(|one| one.end <= now);
            if one.living == Living::Created && over {
                one.living = Living::PassedEndTime;
            }
        }
    }

    /// Returns the criteria of others over the time of `wish`.
    fn others<'a>(&'a self, name: &'a str, wish: &'a Criteria) -> Vec<&'a Criteria> {
        let others = self
            .connections
            .iter()
            .filter(move |(other, _)| *other != name);
        let all = others.flat_map(|(_, one)| one.takes());
        all.filter(|one| one.begin < wish.end && wish.begin < one.end)
            .collect()
    }

    /// Checks whether there is room.
    fn check(&self, name: &str, wish: &Criteria) -> Result<(), Objection> {
        if self.habits.forgets && !wish.whole {
            return Err(Objection::new(Why::Payload, "missing p2ps for reserve"));
        }
        if let Some(stp) = wish
            .stps
            .iter()
            .find(|stp| !stp.starts_with(NsiStandIn::NETWORK))
        {
            return Err(Objection::new(
                Why::UnknownStp,
                format!("unknown STP {stp}"),
            ));
        }
        if wish.end <= wish.begin.max(self.now()) {
            let text = format!("it ends at {}", show_time(wish.end));
            return Err(Objection::new(Why::Payload, text));
        }
        let others = self.others(name, wish);
        let shared = wish.stps.iter().filter(|stp| is_exclusive(stp));
        for stp in shared {
            if others.iter().any(|one| one.stps.contains(stp)) {
                return Err(Objection::new(
                    Why::StpUnavailable,
                    format!("STP {stp} is in use"),
                ));
            }
        }
        let starts = others.iter().map(|one| one.begin.max(wish.begin));
        let taken = |at: i64| -> i64 {
            let at_once = others.iter().filter(|one| one.begin <= at && at < one.end);
            at_once.map(|one| one.mbps).sum()
        };
        let most = starts.chain([wish.begin]).map(taken).max().unwrap_or(0);
        let free = self.capacity_mbps - most;
        if wish.mbps > free {
            let mut objection = Objection::new(Why::CapacityUnavailable, "no such capacity");
            objection.fits_mbps = Some(free);
            return Err(objection);
        }
        Ok(())
    }

    /// Completes the operation in progress of a connection; a rejected new one may be forgotten.
    fn go_on(&mut self, name: &str) {
        let now = self.now();
        let room = self.connections.get(name).and_then(|one| {
            let checking = one.reserving == Reserving::Checking;
            let pending = one.pending.as_ref().filter(|_| checking)?;
            Some(self.check(name, pending))
        });
        let habits = self.habits;
        let Some(one) = self.connections.get_mut(name) else {
            return;
        };
        let plain = |operation: &str| {
            let name = element("connectionId", name);
            format!("<t:{operation}Confirmed>{name}</t:{operation}Confirmed>")
        };
        match (one.reserving, room) {
            (Reserving::Checking, Some(Ok(()))) => {
                (one.reserving, one.expires) = (Reserving::Held, now + HOLD_S);
                let criteria = one.pending.as_ref().map(Criteria::show).unwrap_or_default();
                let name = element("connectionId", name);
                one.done(format!(
                    "<t:reserveConfirmed>{name}{criteria}</t:reserveConfirmed>"
                ));
            }
            (Reserving::Checking, Some(Err(objection))) => {
                (one.reserving, one.pending) = (Reserving::Failed, None);
                one.done(objection.failed("reserve", name, one, now));
                if habits.forgets && one.committed.is_none() {
                    self.connections.remove(name);
                    return;
                }
            }
            (Reserving::Committing, _) if habits.spoils_commits => {
                (one.reserving, one.pending) = (Reserving::Start, None);
                let objection = Objection::new(Why::NoCommit, "a switch is gone");
                one.done(objection.failed("reserveCommit", name, one, now));
            }
            (Reserving::Committing, _) => {
                one.reserving = Reserving::Start;
                one.committed = one.pending.take();
                one.done(plain("reserveCommit"));
            }
            (Reserving::Aborting, _) => {
                (one.reserving, one.pending) = (Reserving::Start, None);
                one.done(plain("reserveAbort"));
            }
            (
                Reserving::Start
                | Reserving::Checking
                | Reserving::Failed
                | Reserving::Held
                | Reserving::Timeout,
                _,
            ) => {}
        }
        match one.provisioning {
            Activation::Provisioning => {
                one.provisioning = Activation::Provisioned;
                one.done(plain("provision"));
            }
            Activation::Releasing => {
                one.provisioning = Activation::Released;
                one.done(plain("release"));
            }
            Activation::Released | Activation::Provisioned => {}
        }
        if one.living == Living::Terminating {
            one.living = Living::Terminated;
            one.done(plain("terminate"));
        }
    }

    fn criteria(node: &Node, before: Option<&Criteria>) -> Option<Criteria> {
        let schedule = node.child("schedule");
        let time = |name: &str| schedule?.text_of(name).map(read_time);
        let service = node.child("p2ps");
        let said = |name: &str| service?.text_of(name);
        let capacity = said("capacity").or_else(|| node.text_of("capacity"));
        let stps = match (said("sourceSTP"), said("destSTP")) {
            (Some(a), Some(z)) => [a.to_owned(), z.to_owned()],
            _ => before?.stps.clone(),
        };
        Some(Criteria {
            version: node.version.unwrap_or(1),
            begin: time("startTime").unwrap_or_else(|| before.map(|one| one.begin))?,
            end: time("endTime").unwrap_or_else(|| before.map(|one| one.end))?,
            mbps: match capacity {
                Some(capacity) => capacity.parse().ok()?,
                None => before?.mbps,
            },
            stps,
            whole: service.is_some(),
        })
    }

    fn reserve(&mut self, asked: &Message) -> Result<String, Objection> {
        let wish = asked.body.child("criteria");
        let payload = |text: &str| Objection::new(Why::Payload, text);
        let wish = wish.ok_or_else(|| payload("no criteria"))?;
        if let Some(name) = asked.body.text_of("connectionId") {
            let one = self.find(name)?;
            if one.reserving != Reserving::Start || one.living != Living::Created {
                return Err(Objection::new(Why::Transition, "it is under way or over"));
            }
            let criteria = Self::criteria(wish, one.committed.as_ref());
            let criteria = criteria.ok_or_else(|| payload("criteria that say nothing"))?;
            if one
                .committed
                .as_ref()
                .is_none_or(|before| criteria.version <= before.version)
            {
                return Err(payload("versions only grow"));
            }
            one.reserving = Reserving::Checking;
            one.pending = Some(criteria);
            one.asked.clone_from(&asked.correlation);
            return Ok(response(name));
        }
        let criteria = Self::criteria(wish, None);
        let criteria = criteria.ok_or_else(|| payload("criteria that say too little"))?;
        if wish.text_of("serviceType") != Some(SERVICE) {
            return Err(payload("another service"));
        }
        self.reserves += 1;
        let name = format!("c-{:04}", self.reserves);
        let said = |name: &str| asked.body.text_of(name).map(ToOwned::to_owned);
        let one = Connection {
            global: said("globalReservationId"),
            description: said("description"),
            requester: asked.requester.clone(),
            reserving: Reserving::Checking,
            provisioning: Activation::Released,
            living: Living::Created,
            committed: None,
            pending: Some(criteria),
            expires: 0,
            asked: asked.correlation.clone(),
            results: Vec::new(),
        };
        self.connections.insert(name.clone(), one);
        Ok(response(&name))
    }

    fn find(&mut self, name: &str) -> Result<&mut Connection, Objection> {
        let one = self.connections.get_mut(name);
        one.ok_or_else(|| Objection::new(Why::NonExistent, format!("no connection {name}")))
    }

    /// Begins a step, if the state machines allow it.
    fn begin(&mut self, asked: &Message) -> Result<String, Objection> {
        let name = asked.body.text_of("connectionId").unwrap_or_default();
        let one = self.find(name)?;
        let created = one.living == Living::Created;
        match &*asked.operation {
            "reserveCommit" if created && one.reserving == Reserving::Held => {
                one.reserving = Reserving::Committing;
            }
            "reserveAbort"
                if created
                    && matches!(
                        one.reserving,
                        Reserving::Held | Reserving::Failed | Reserving::Timeout
                    ) =>
            {
                one.reserving = Reserving::Aborting;
            }
            "provision"
                if created
                    && one.committed.is_some()
                    && one.provisioning == Activation::Released =>
            {
                one.provisioning = Activation::Provisioning;
            }
            "release" if created && one.provisioning == Activation::Provisioned => {
                one.provisioning = Activation::Releasing;
            }
            "terminate" if !matches!(one.living, Living::Terminating | Living::Terminated) => {
                one.living = Living::Terminating;
            }
            operation => {
                let text = format!("no {operation} in {:?}, {:?}", one.reserving, one.living);
                return Err(Objection::new(Why::Transition, text));
            }
        }
        one.asked.clone_from(&asked.correlation);
        Ok("<t:acknowledgment/>".to_owned())
    }

    fn summary(&mut self, asked: &Message) -> String {
        let wanted = |name: &str, one: &Connection| {
            let mut filters = asked.body.children.iter().peekable();
            one.requester == asked.requester
                && (filters.peek().is_none()
                    || filters.any(|filter| match &*filter.name {
                        "connectionId" => filter.text == name,
                        "globalReservationId" => one.global.as_ref() == Some(&filter.text),
                        _ => true,
                    }))
        };
        let (now, habits) = (self.now(), self.habits);
        let shown: Vec<(String, String)> = self
            .connections
            .iter()
            .filter(|(name, one)| wanted(name, one))
            .map(|(name, one)| (name.clone(), one.summary(name, habits.shows_held, now)))
            .collect();
        if !habits.stalls {
            shown.iter().for_each(|(name, _)| self.go_on(name));
        }
        let all: String = shown.into_iter().map(|(_, one)| one).collect();
        format!("<t:querySummarySyncConfirmed>{all}</t:querySummarySyncConfirmed>")
    }

    fn results(&mut self, asked: &Message) -> Result<String, Objection> {
        if self.habits.forgets {
            return Err(Objection::new(Why::NotImplemented, "not implemented"));
        }
        let now = self.now();
        let one = self.find(asked.body.text_of("connectionId").unwrap_or_default())?;
        let result = |(number, (correlation, message)): (usize, &(String, String))| {
            let head = [
                element("resultId", &(number + 1).to_string()),
                element("correlationId", correlation),
                element("timeStamp", &show_time(now)),
            ];
            format!("<result>{}{message}</result>", head.concat())
        };
        let all: String = one.results.iter().enumerate().map(result).collect();
        Ok(format!(
            "<t:queryResultSyncConfirmed>{all}</t:queryResultSyncConfirmed>"
        ))
    }

    fn do_as_asked(&mut self, asked: &Message) -> Result<String, Objection> {
        if asked.protocol != PROTOCOL {
            return Err(Objection::new(Why::Version, "another protocol"));
        }
        if asked.provider != NsiStandIn::PROVIDER || asked.requester != NsiStandIn::REQUESTER {
            return Err(Objection::new(Why::Unauthorized, "somebody else"));
        }
        match &*asked.operation {
            "querySummarySync" => return Ok(self.summary(asked)),
            "queryResultSync" => return self.results(asked),
            _ => {}
        }
        // The same correlation again is the same message again.
        if let Some((operation, answer)) = self.heard.get(&asked.correlation) {
            return if *operation == asked.operation {
                Ok(answer.clone())
            } else {
                Err(Objection::new(
                    Why::Payload,
                    "a correlation of something else",
                ))
            };
        }
        let answer = match &*asked.operation {
            "reserve" => self.reserve(asked)?,
            _ => self.begin(asked)?,
        };
        if self.heard.len() < HEARD_MAX {
            let kept = (asked.operation.clone(), answer.clone());
            self.heard.insert(asked.correlation.clone(), kept);
        }
        Ok(answer)
    }
}

fn response(name: &str) -> String {
    format!(
        "<t:reserveResponse>{}</t:reserveResponse>",
        element("connectionId", name)
    )
}

impl Answers for Books {
    fn answer(&mut self, asked: &Asked) -> Told {
        const XML: &str = "text/xml; charset=utf-8";
        self.expire();
        if self.token.is_some() && asked.bearer != self.token {
            return (401, "text/plain", String::new());
        }
        if asked.path != "/services/provider" || asked.method != hyper::Method::POST {
            return (404, "text/plain", String::new());
        }
        let message = Message::read(&asked.body, asked.action.as_deref());
        let message = match message {
            Ok(message) => message,
            Err(text) => return (500, XML, Objection::new(Why::Payload, text).fault("")),
        };
        match self.do_as_asked(&message) {
            Ok(answer) => {
                let whole = envelope(&message.correlation, &message.requester, &answer);
                (200, XML, whole)
            }
            Err(objection) => (500, XML, objection.fault(&message.operation)),
        }
    }
}
