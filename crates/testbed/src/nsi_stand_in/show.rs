//! Answers of the stand-in.

use quick_xml::escape::escape;

use super::{
    Activation, Connection, Criteria, Living, NsiStandIn, Reserving,
    message::{HEADERS, P2P, SOAP, TYPES},
};

pub(super) const PROTOCOL: &str = "application/vnd.ogf.nsi.cs.v2.provider+soap";
pub(super) const SERVICE: &str = "http://services.ogf.org/nsi/2013/12/descriptions/EVTS.A-GOLE";

/// Numbers of errors (GFD.235, and the services' own).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    Payload,
    NotImplemented,
    Version,
    Transition,
    NonExistent,
    Unauthorized,
    UnknownStp,
    StpUnavailable,
    CapacityUnavailable,
    NoCommit,
}

impl Why {
    const fn id(self) -> &'static str {
        match self {
            Self::Payload => "00100",
            Self::NotImplemented => "00103",
            Self::Version => "00104",
            Self::Transition => "00201",
            Self::NonExistent => "00203",
            Self::Unauthorized => "00302",
            Self::NoCommit => "00600",
            Self::UnknownStp => "00701",
            Self::StpUnavailable => "00704",
            Self::CapacityUnavailable => "00705",
        }
    }
}

/// Objection to a question.
#[derive(Debug)]
pub(super) struct Objection {
    pub why: Why,
    pub text: String,
    /// Capacity that would be available.
    pub fits_mbps: Option<i64>,
}

impl Objection {
    pub(super) fn new(why: Why, text: impl Into<String>) -> Self {
        Self {
            why,
            text: text.into(),
            fits_mbps: None,
        }
    }

    /// Returns the content of a `serviceException`.
    fn content(&self, connection: Option<&str>) -> String {
        let connection = connection.map(|name| element("connectionId", name));
        let variables = self.fits_mbps.map(|mbps| {
            format!(
                "<variables><variable namespace=\"{P2P}\" type=\"capacity\"><feedback><lte>{mbps}</lte></feedback>\
                 </variable></variables>"
            )
        });
        [
            element("nsaId", NsiStandIn::PROVIDER),
            connection.unwrap_or_default(),
            element("serviceType", SERVICE),
            element("errorId", self.why.id()),
            element("text", &self.text),
            variables.unwrap_or_default(),
        ]
        .concat()
    }

    /// Returns the objection as a fault; queries have another element for it.
    pub(super) fn fault(&self, operation: &str) -> String {
        let content = self.content(None);
        let detail = if operation.ends_with("Sync") {
            format!(
                "<t:error xmlns:t=\"{TYPES}\"><serviceException>{content}</serviceException></t:error>"
            )
        } else {
            format!("<t:serviceException xmlns:t=\"{TYPES}\">{content}</t:serviceException>")
        };
        format!(
            "<s:Envelope xmlns:s=\"{SOAP}\"><s:Body><s:Fault><faultcode>s:Server</faultcode>{}<detail>{detail}</detail>\
             </s:Fault></s:Body></s:Envelope>",
            element("faultstring", &self.text)
        )
    }

    /// Returns the objection as the message that an operation failed.
    pub(super) fn failed(&self, operation: &str, name: &str, one: &Connection, now: i64) -> String {
        format!(
            "<t:{operation}Failed>{}{}<serviceException>{}</serviceException></t:{operation}Failed>",
            element("connectionId", name),
            one.states(now),
            self.content(Some(name))
        )
    }
}

pub(super) fn element(name: &str, text: &str) -> String {
    format!("<{name}>{}</{name}>", escape(text))
}

/// Wraps an answer around the outermost element of a message, whose prefix is `t`.
pub(super) fn envelope(correlation: &str, requester: &str, message: &str) -> String {
    let header = [
        element("protocolVersion", PROTOCOL),
        element("correlationId", correlation),
        element("requesterNSA", requester),
        element("providerNSA", NsiStandIn::PROVIDER),
    ];
    format!(
        "<s:Envelope xmlns:s=\"{SOAP}\"><s:Header><h:nsiHeader xmlns:h=\"{HEADERS}\">{}</h:nsiHeader></s:Header>\
         <s:Body xmlns:t=\"{TYPES}\" xmlns:p=\"{P2P}\">{message}</s:Body></s:Envelope>",
        header.concat()
    )
}

/// Formats seconds since 1970 as a moment with an offset, which clients must read as well as `Z`.
pub(super) fn show_time(at: i64) -> String {
    let at = jiff::Timestamp::from_second(at).unwrap_or(jiff::Timestamp::MAX);
    at.display_with_offset(jiff::tz::Offset::UTC).to_string()
}

/// Parses such a moment; fractions of a second do not count.
pub(super) fn read_time(text: &str) -> Option<i64> {
    let at: jiff::Timestamp = text.parse().ok()?;
    Some(at.as_second())
}

impl Criteria {
    pub(super) fn show(&self) -> String {
        let [a, z] = &self.stps;
        let service = [
            element("capacity", &self.mbps.to_string()),
            element("directionality", "Bidirectional"),
            element("sourceSTP", a),
            element("destSTP", z),
        ];
        format!(
            "<criteria version=\"{}\"><schedule>{}{}</schedule>{}<p:p2ps>{}</p:p2ps></criteria>",
            self.version,
            element("startTime", &show_time(self.begin)),
            element("endTime", &show_time(self.end)),
            element("serviceType", SERVICE),
            service.concat()
        )
    }
}

impl Connection {
    fn states(&self, now: i64) -> String {
        let reserving = match self.reserving {
            Reserving::Start => "ReserveStart",
            Reserving::Checking => "ReserveChecking",
            Reserving::Failed => "ReserveFailed",
            Reserving::Aborting => "ReserveAborting",
            Reserving::Held => "ReserveHeld",
            Reserving::Committing => "ReserveCommitting",
            Reserving::Timeout => "ReserveTimeout",
        };
        let provisioning = match self.provisioning {
            Activation::Released => "Released",
            Activation::Provisioning => "Provisioning",
            Activation::Provisioned => "Provisioned",
            Activation::Releasing => "Releasing",
        };
        let living = match self.living {
            Living::Created => "Created",
            Living::Failed => "Failed",
            Living::PassedEndTime => "PassedEndTime",
            Living::Terminating => "Terminating",
            Living::Terminated => "Terminated",
        };
        let active = self.living == Living::Created
            && self.provisioning == Activation::Provisioned
            && self
                .committed
                .as_ref()
                .is_some_and(|one| one.begin <= now && now < one.end);
        let version = self.committed.as_ref().map_or(0, |one| one.version);
        let status = [
            element("active", if active { "true" } else { "false" }),
            element("version", &version.to_string()),
            element("versionConsistent", "true"),
        ];
        format!(
            "<connectionStates>{}{}{}<dataPlaneStatus>{}</dataPlaneStatus></connectionStates>",
            element("reservationState", reserving),
            element("provisionState", provisioning),
            element("lifecycleState", living),
            status.concat()
        )
    }

    /// Returns the connection as `querySummarySync` shows it.
    pub(super) fn summary(&self, name: &str, shows_held: bool, now: i64) -> String {
        let optional = |tag: &str, text: &Option<String>| {
            text.as_ref()
                .map(|text| element(tag, text))
                .unwrap_or_default()
        };
        let held = self.pending.as_ref().filter(|_| shows_held);
        let criteria = self.committed.iter().chain(held);
        let criteria: String = criteria.map(Criteria::show).collect();
        let all = [
            element("connectionId", name),
            optional("globalReservationId", &self.global),
            optional("description", &self.description),
            criteria,
            element("requesterNSA", &self.requester),
            self.states(now),
        ];
        format!("<reservation>{}</reservation>", all.concat())
    }
}
