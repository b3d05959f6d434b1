//! Reservations of NSI-CS: three state machines each, and criteria in versions.

use jiff::Timestamp as Moment;
use posthaste_types::{ByteRate, Timestamp};

use super::{
    MBIT,
    soap::{Message, element},
    tree::Element,
};
use crate::{Nsi, State, Terms};

/// Prefix of the descriptions of our reservations; the key and the terms follow.
const DESCRIPTION_BEGINS: &str = "posthaste ";

/// First version of a reservation's criteria.
const FIRST_VERSION: i64 = 1;

/// State of the capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reserving {
    Start,
    Checking,
    Failed,
    Aborting,
    Held,
    Committing,
    Timeout,
}

/// State of the permission to carry data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Activation {
    Released,
    Provisioning,
    Provisioned,
    Releasing,
}

/// State of the reservation's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Living {
    Created,
    Failed,
    PassedEndTime,
    Terminating,
    Terminated,
}

/// Reservation of a provider.
#[derive(Debug, Clone)]
pub(super) struct Reservation {
    pub connection: String,
    pub global: Option<String>,
    description: String,
    pub reserving: Reserving,
    pub provisioning: Activation,
    pub living: Living,
    active: bool,
    criteria: Vec<Criteria>,
}

#[derive(Debug, Clone)]
struct Criteria {
    version: i64,
    terms: Terms,
}

fn moment(text: &str) -> Option<Timestamp> {
    let at: Moment = text.parse().ok()?;
    u64::try_from(at.as_microsecond())
        .ok()
        .map(Timestamp::from_micros)
}

fn show(at: Timestamp) -> String {
    let seconds = i64::try_from(at.as_micros() / 1_000_000).unwrap_or(i64::MAX);
    Moment::from_second(seconds)
        .unwrap_or(Moment::MAX)
        .to_string()
}

/// Rounds terms outward to whole seconds, as they come back from a provider.
pub(super) fn in_seconds(terms: Terms) -> Terms {
    let micros = terms.until.as_micros();
    Terms {
        from: Timestamp::from_secs(terms.from.as_micros() / 1_000_000),
        until: Timestamp::from_secs(micros.div_ceil(1_000_000)),
        ..terms
    }
}

/// Converts to whole megabits a second.
fn mbps(rate: ByteRate) -> u64 {
    rate.get() / MBIT.get()
}

impl Reservation {
    /// Reads a reservation; `None` if it is invalid.
    pub(super) fn read(element: &Element) -> Option<Self> {
        let states = element.child("connectionStates")?;
        let reserving = match states.text_of("reservationState")? {
            "ReserveStart" => Reserving::Start,
            "ReserveChecking" => Reserving::Checking,
            "ReserveFailed" => Reserving::Failed,
            "ReserveAborting" => Reserving::Aborting,
            "ReserveHeld" => Reserving::Held,
            "ReserveCommitting" => Reserving::Committing,
            "ReserveTimeout" => Reserving::Timeout,
            _ => return None,
        };
        // Before the first commit there is none yet, and some providers leave it out.
        let provisioning = match states.text_of("provisionState") {
            None | Some("Released") => Activation::Released,
            Some("Provisioning") => Activation::Provisioning,
            Some("Provisioned") => Activation::Provisioned,
            Some("Releasing") => Activation::Releasing,
            Some(_) => return None,
        };
        let living = match states.text_of("lifecycleState")? {
            "Created" => Living::Created,
            "Failed" => Living::Failed,
            "PassedEndTime" => Living::PassedEndTime,
            "Terminating" => Living::Terminating,
            "Terminated" => Living::Terminated,
            _ => return None,
        };
        let status = states.child("dataPlaneStatus");
        let active = status.and_then(|status| status.text_of("active"));
        Some(Self {
            connection: element.text_of("connectionId")?.to_owned(),
            global: element
                .text_of("globalReservationId")
                .map(ToOwned::to_owned),
            description: element
                .text_of("description")
                .unwrap_or_default()
                .to_owned(),
            reserving,
            provisioning,
            living,
            active: matches!(active, Some("true" | "1")),
            criteria: element.all("criteria").filter_map(Criteria::read).collect(),
        })
    }

    /// Returns the key of the reservation, if it is ours.
    pub(super) fn key(&self) -> Option<&str> {
        let behind = self.description.strip_prefix(DESCRIPTION_BEGINS)?;
        behind.split(' ').next()
    }

    /// Returns the terms first requested: providers show no criteria before the commit.
    fn asked(&self) -> Option<Terms> {
        let behind = self.description.strip_prefix(DESCRIPTION_BEGINS)?;
        let mut words = behind.split(' ').skip(1);
        let mut next = || words.next()?.parse::<u64>().ok();
        let (mbps, from, until) = (next()?, next()?, next()?);
        Some(Terms {
            rate: ByteRate::new(mbps.saturating_mul(MBIT.get())),
            from: Timestamp::from_secs(from),
            until: Timestamp::from_secs(until),
        })
    }

    /// Returns the newest criteria, or the terms first requested.
    pub(super) fn terms(&self) -> Option<Terms> {
        let newest = self.criteria.iter().max_by_key(|one| one.version);
        newest.map(|one| one.terms).or_else(|| self.asked())
    }

    /// Returns the version of the next change.
    pub(super) fn next_version(&self) -> i64 {
        let versions = self.criteria.iter().map(|one| one.version);
        versions
            .max()
            .unwrap_or(FIRST_VERSION)
            .saturating_add(1)
            .max(FIRST_VERSION + 1)
    }

    /// Returns whether the provider shows criteria, so that some version was committed.
    pub(super) fn has_criteria(&self) -> bool {
        !self.criteria.is_empty()
    }

    /// Returns whether the reservation has ended or is ending.
    pub(super) fn is_gone(&self) -> bool {
        match self.living {
            Living::PassedEndTime | Living::Terminating | Living::Terminated => true,
            Living::Created | Living::Failed => false,
        }
    }

    /// Returns whether the reservation lasts until its end: it may carry data, or no operation on
    /// it is pending. A pending change leaves the committed terms as they are.
    pub(super) fn is_committed(&self) -> bool {
        self.reserving == Reserving::Start || self.provisioning != Activation::Released
    }

    /// Returns the state of the reservation.
    pub(super) fn state(&self, now: Timestamp) -> State {
        let has_ended = || self.terms().is_some_and(|terms| terms.until <= now);
        match (self.living, self.reserving) {
            (Living::Failed, _) => State::Failed,
            (Living::PassedEndTime | Living::Terminating | Living::Terminated, _) => State::Over,
            (Living::Created, _) if self.is_committed() => match has_ended() {
                true => State::Over,
                false if self.active => State::Up,
                false => State::Reserved,
            },
            (
                Living::Created,
                Reserving::Start | Reserving::Checking | Reserving::Held | Reserving::Committing,
            ) => State::Held { expires: None },
            (Living::Created, Reserving::Failed | Reserving::Aborting | Reserving::Timeout) => {
                State::Over
            }
        }
    }
}

impl Criteria {
    fn read(element: &Element) -> Option<Self> {
        let schedule = element.child("schedule")?;
        let capacity = element.find("capacity")?.text.parse::<u64>().ok()?;
        Some(Self {
            version: element.version?,
            terms: Terms {
                rate: ByteRate::new(capacity.saturating_mul(MBIT.get())),
                from: moment(schedule.text_of("startTime")?)?,
                until: moment(schedule.text_of("endTime")?)?,
            },
        })
    }
}

fn schedule(terms: &Terms) -> String {
    format!(
        "<schedule>{}{}</schedule>",
        element("startTime", &show(terms.from)),
        element("endTime", &show(terms.until))
    )
}

fn whole_service(nsi: &Nsi, terms: &Terms) -> String {
    let [a, z] = &nsi.ends;
    let service = [
        element("capacity", &mbps(terms.rate).to_string()),
        element("directionality", "Bidirectional"),
        element("sourceSTP", a),
        element("destSTP", z),
    ];
    format!("<p2p:p2ps>{}</p2p:p2ps>", service.concat())
}

/// Builds the first request for a reservation.
pub(super) fn reserve(nsi: &Nsi, global: &str, key: &str, terms: &Terms) -> Message {
    let mbps = mbps(terms.rate);
    let second = |at: Timestamp| at.as_micros() / 1_000_000;
    let description = format!(
        "{DESCRIPTION_BEGINS}{key} {mbps} {} {}",
        second(terms.from),
        second(terms.until)
    );
    let content = [
        element("globalReservationId", global),
        element("description", &description),
        format!(
            "<criteria version=\"{FIRST_VERSION}\">{}{}{}</criteria>",
            schedule(terms),
            element("serviceType", &nsi.service_type),
            whole_service(nsi, terms)
        ),
    ];
    Message {
        operation: "reserve",
        content: content.concat(),
    }
}

/// Form in which a change describes the service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Service {
    /// Only the fields that can change, as in the schema of the service.
    Capacity,
    /// All fields: OSCARS accepts nothing else.
    Whole,
}

/// Builds the request for other terms.
pub(super) fn reserve_again(
    nsi: &Nsi,
    found: &Reservation,
    terms: &Terms,
    service: Service,
) -> Message {
    let version = found.next_version();
    let service = match service {
        Service::Capacity => element("p2p:capacity", &mbps(terms.rate).to_string()),
        Service::Whole => whole_service(nsi, terms),
    };
    let content = format!(
        "{}<criteria version=\"{version}\">{}{service}</criteria>",
        element("connectionId", &found.connection),
        schedule(terms)
    );
    Message {
        operation: "reserve",
        content,
    }
}
