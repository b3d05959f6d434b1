//! Messages to and from OSCARS, after its classes of the same names.

use posthaste_types::{ByteRate, Timestamp};
use serde::{Deserialize, Serialize};

use super::MBIT;
use crate::{Held, Id, Oscars, Refusal, State, Terms, line};

/// Checks the name of a connection (`ConnServiceGlobalConnectionValidate`); names from OSCARS's
/// generator may begin with a digit.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (2..=36).contains(&name.len()) && name.chars().all(plain)
}

/// Returns the message of an error, if the server is configured to send one.
pub(super) fn message(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Told {
        message: String,
    }
    let told: Told = serde_json::from_slice(body).ok()?;
    Some(line::one(&told.message)).filter(|text| !text.is_empty())
}

/// Moment: seconds since 1970 with decimals, or RFC 3339.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum Moment {
    Seconds(f64),
    Text(String),
}

impl Moment {
    pub(super) fn timestamp(&self) -> Option<Timestamp> {
        match self {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "in range"
            )]
            Self::Seconds(seconds) if (0.0..1e11).contains(seconds) => {
                Some(Timestamp::from_micros((seconds * 1e6).round() as u64))
            }
            Self::Seconds(_) => None,
            Self::Text(text) => {
                let at: jiff::Timestamp = text.parse().ok()?;
                u64::try_from(at.as_microsecond())
                    .ok()
                    .map(Timestamp::from_micros)
            }
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SimpleConnection {
    connection_id: String,
    begin: Option<i64>,
    end: Option<i64>,
    #[serde(rename = "connection_mtu", skip_serializing_if = "Option::is_none")]
    connection_mtu: Option<u32>,
    #[serde(skip_serializing)]
    held_until: Option<i64>,
    #[serde(skip_deserializing)]
    mode: Option<&'static str>,
    description: Option<String>,
    #[serde(default)]
    junctions: Vec<Junction>,
    #[serde(default)]
    fixtures: Vec<Fixture>,
    #[serde(default)]
    pipes: Vec<Pipe>,
    #[serde(skip_deserializing)]
    tags: [(); 0],
    #[serde(skip_serializing)]
    validity: Option<Validity>,
}

#[derive(Debug, Deserialize)]
struct Validity {
    valid: bool,
    message: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Junction {
    device: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Fixture {
    junction: String,
    port: String,
    vlan: Option<u16>,
    mbps: Option<i64>,
    #[serde(default)]
    strict: Option<bool>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pipe {
    a: String,
    z: String,
    mbps: Option<i64>,
    protect: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pce_mode: Option<String>,
}

/// Converts to whole megabits a second, in OSCARS's 31 bits.
fn mbps(rate: ByteRate) -> Option<i64> {
    let mbps = i64::try_from(rate.get() / MBIT.get()).ok()?;
    (mbps <= i64::from(i32::MAX)).then_some(mbps)
}

/// Converts to whole seconds, in OSCARS's 31 bits.
fn seconds(at: Timestamp) -> Option<i64> {
    let seconds = i64::try_from(at.as_micros() / 1_000_000).ok()?;
    (seconds <= i64::from(i32::MAX)).then_some(seconds)
}

fn moment(seconds: i64) -> Option<Timestamp> {
    u64::try_from(seconds).ok().map(Timestamp::from_secs)
}

impl SimpleConnection {
    /// Builds a request for a hold; `None` for numbers beyond OSCARS's range.
    pub(super) fn new(
        name: &str,
        description: &str,
        oscars: &Oscars,
        terms: &Terms,
    ) -> Option<Self> {
        let mbps = mbps(terms.rate)?;
        let [a, z] = &oscars.ends;
        let mut junctions = vec![Junction {
            device: a.junction.clone(),
        }];
        let mut pipes = Vec::new();
        // Two ports of one device need no path between devices.
        if a.junction != z.junction {
            junctions.push(Junction {
                device: z.junction.clone(),
            });
            pipes.push(Pipe {
                a: a.junction.clone(),
                z: z.junction.clone(),
                mbps: Some(mbps),
                protect: Some(true),
                pce_mode: Some("BEST".to_owned()),
            });
        }
        let fixtures = oscars.ends.iter().map(|end| Fixture {
            junction: end.junction.clone(),
            port: end.port.clone(),
            vlan: Some(end.vlan),
            mbps: Some(mbps),
            // OSCARS drops packets above the rate: bandwidth that others paid for is not ours.
            strict: Some(true),
        });
        Some(Self {
            connection_id: name.to_owned(),
            begin: Some(seconds(terms.from)?),
            end: Some(seconds(terms.until)?),
            connection_mtu: Some(oscars.mtu_bytes),
            held_until: None,
            mode: Some("AUTOMATIC"),
            description: Some(description.to_owned()),
            fixtures: fixtures.collect(),
            junctions,
            pipes,
            tags: [],
            validity: None,
        })
    }

    /// Returns the reason why the connection is invalid, if it is.
    pub(super) fn refusal(&self) -> Option<String> {
        let validity = self.validity.as_ref().filter(|validity| !validity.valid)?;
        let why = validity
            .message
            .as_deref()
            .map(line::one)
            .unwrap_or_default();
        Some(if why.is_empty() {
            "OSCARS calls it invalid".to_owned()
        } else {
            why
        })
    }

    /// Returns the terms that OSCARS held; it may begin a little later than `asked`.
    pub(super) fn held(&self, asked: &Terms) -> Option<Held> {
        Some(Held {
            id: Id::new(self.connection_id.clone()),
            expires: self.held_until.and_then(moment),
            granted: Terms {
                rate: asked.rate,
                from: moment(self.begin?)?,
                until: moment(self.end?)?,
            },
        })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Phase {
    Design,
    Held,
    Reserved,
    Archived,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Progress {
    Waiting,
    Active,
    Finished,
    Failed,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Connection {
    pub connection_id: String,
    phase: Phase,
    state: Option<Progress>,
    #[serde(alias = "deployment-state")]
    deployment_state: Option<String>,
    #[serde(default)]
    pub description: String,
    bandwidth: Option<i64>,
    #[serde(rename = "last_modified")]
    pub last_modified: Option<i64>,
    held: Option<Spell>,
    reserved: Option<Spell>,
    archived: Option<Spell>,
}

#[derive(Debug, Deserialize)]
struct Spell {
    schedule: Schedule,
    expiration: Option<Moment>,
}

#[derive(Debug, Deserialize)]
struct Schedule {
    beginning: Moment,
    ending: Moment,
}

impl Connection {
    /// Returns the state; `None` for a design, which reserves nothing.
    pub(super) fn state_of(&self) -> Option<State> {
        match (self.phase, self.state) {
            (Phase::Design, _) => None,
            (Phase::Held, _) => Some(State::Held {
                expires: self
                    .held
                    .as_ref()
                    .and_then(|held| held.expiration.as_ref()?.timestamp()),
            }),
            (Phase::Archived, _) | (Phase::Reserved, Some(Progress::Finished)) => Some(State::Over),
            (Phase::Reserved, Some(Progress::Failed)) => Some(State::Failed),
            (Phase::Reserved, Some(Progress::Waiting) | None) => Some(State::Reserved),
            (Phase::Reserved, Some(Progress::Active)) => {
                Some(match self.deployment_state.as_deref() {
                    Some("DEPLOY_FAILED" | "REDEPLOY_FAILED") => State::Failed,
                    Some("UNDEPLOYED" | "WAITING_TO_BE_DEPLOYED" | "BEING_DEPLOYED") => {
                        State::Reserved
                    }
                    Some(_) | None => State::Up,
                })
            }
        }
    }

    pub(super) fn terms(&self) -> Option<Terms> {
        let spell = match self.phase {
            Phase::Design => None,
            Phase::Held => self.held.as_ref(),
            Phase::Reserved => self.reserved.as_ref(),
            Phase::Archived => self.archived.as_ref(),
        }?;
        let mbps = u64::try_from(self.bandwidth?).ok()?;
        Some(Terms {
            rate: ByteRate::new(mbps.saturating_mul(MBIT.get())),
            from: spell.schedule.beginning.timestamp()?,
            until: spell.schedule.ending.timestamp()?,
        })
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ConnectionFilter {
    pub description: &'static str,
    pub phase: &'static str,
    pub page: usize,
    pub size_per_page: usize,
}

#[derive(Debug, Deserialize)]
pub(super) struct ConnectionList {
    pub connections: Vec<Connection>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CurrentlyHeld {
    pub connection_id: String,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RangeQuestion<'a> {
    pub connection_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub r#type: Option<&'static str>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RangeAnswer<T> {
    pub allowed: bool,
    pub floor: T,
    pub ceiling: T,
    explanation: Option<String>,
}

impl<T> RangeAnswer<T> {
    /// Returns OSCARS's explanation, or else ours.
    pub(super) fn why(&self, ours: &str) -> String {
        let theirs = self
            .explanation
            .as_deref()
            .map(line::one)
            .unwrap_or_default();
        if theirs.is_empty() {
            ours.to_owned()
        } else {
            theirs
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ModifyBandwidth<'a> {
    pub connection_id: &'a str,
    pub bandwidth: i64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ModifySchedule<'a> {
    pub connection_id: &'a str,
    pub r#type: &'static str,
    pub timestamp: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Modified {
    success: bool,
    explanation: Option<String>,
}

impl Modified {
    pub(super) fn refusal(&self) -> Option<Refusal> {
        (!self.success).then(|| Refusal {
            why: self
                .explanation
                .as_deref()
                .map(line::one)
                .unwrap_or_default(),
            fits: None,
        })
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PathsQuestion<'a> {
    interval: Interval,
    a: &'a str,
    z: &'a str,
    az_bw: i64,
    za_bw: i64,
    include: [(); 0],
    exclude: [(); 0],
}

#[derive(Debug, Serialize)]
struct Interval {
    beginning: i64,
    ending: i64,
}

impl<'a> PathsQuestion<'a> {
    pub(super) fn new(oscars: &'a Oscars, terms: &Terms) -> Self {
        Self {
            interval: Interval {
                beginning: seconds(terms.from).unwrap_or(i64::from(i32::MAX)),
                ending: seconds(terms.until).unwrap_or(i64::from(i32::MAX)),
            },
            a: &oscars.ends[0].junction,
            z: &oscars.ends[1].junction,
            az_bw: mbps(terms.rate).unwrap_or(i64::from(i32::MAX)),
            za_bw: mbps(terms.rate).unwrap_or(i64::from(i32::MAX)),
            include: [],
            exclude: [],
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PathsAnswer {
    widest_sum: Option<Way>,
    #[serde(rename = "widestAZ")]
    widest_az: Option<Way>,
    #[serde(rename = "widestZA")]
    widest_za: Option<Way>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Way {
    az_available: i64,
    za_available: i64,
}

impl PathsAnswer {
    /// Returns the rate of the widest path, in its narrower direction.
    pub(super) fn widest_mbps(&self) -> i64 {
        let ways = [&self.widest_sum, &self.widest_az, &self.widest_za];
        let both = |way: &Way| way.az_available.min(way.za_available);
        ways.into_iter().flatten().map(both).max().unwrap_or(0)
    }
}
