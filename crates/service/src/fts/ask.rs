//! A job as FTS's clients submit it. Refusals use FTS's words if clients know them.

mod given;
mod kept;

use std::time::Duration;

use posthaste_types::Timestamp;
use serde::{
    Deserialize, Deserializer as _, Serialize,
    de::{Error as _, SeqAccess, Visitor},
};
use serde_json::{Map, Value, json, value::RawValue};

use super::state::Kind;
use crate::outbound::Expected;
use given::{deadline, flag, job_metadata, lasts, metadata, number, sid, verify};
pub(super) use kept::Kept;

/// Most files of a job; each alternative source counts.
const FILES_MAX: usize = 10_000;
/// Longest metadata of a job or a file, in bytes.
const METADATA_BYTES_MAX: usize = 4096;
/// Largest text of a file of a job, and of the options of all: as a tree of values it takes up to
/// eighteen times as much memory.
const FILE_BYTES_MAX: usize = 1 << 20;
const PARAMS_BYTES_MAX: usize = 64 << 10;
/// Bytes kept of all files of a job together: one file may be named many times in few bytes.
const KEPT_BYTES_MAX: usize = 32 << 20;
/// Longest address, in bytes.
const ADDRESS_BYTES_MAX: usize = 4096;
/// Deadline of a job that names none.
const DEADLINE_DEFAULT: Duration = Duration::from_secs(7 * 86_400);
/// Most attempts after the first, and most minutes between two.
const RETRIES_MAX: u32 = 100;
const RETRY_DELAY_MIN_MAX: u64 = 24 * 60;
/// Strategies for choosing among several sources, all of which begin with the first here.
const STRATEGIES: [&str; 10] = [
    "auto",
    "orderly",
    "queue",
    "success",
    "throughput",
    "file-throughput",
    "pending-data",
    "waiting-time",
    "waiting-time-with-error",
    "duration",
];

/// Reason why a job is refused: a line for people. FTS's clients show it with this status only.
pub(super) type Refused = String;

/// Answer to a deletion job: clients recognise it by its status.
pub(super) const DELETION: &str = "Deletion jobs are no longer supported by FTS";

/// Parsed job.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) asked: Asked,
    pub(super) priority: u8,
    pub(super) files: Vec<(u32, Pair)>,
    /// Id seed of a job that may be submitted twice: the job's id follows from it.
    pub(super) sid: Option<String>,
    /// Deadline of the job.
    pub(super) deadline: Timestamp,
}

/// Options that hold for all files of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Asked {
    pub(super) kind: Kind,
    pub(super) metadata: Map<String, Value>,
    /// Comparison of the result: `n` for none; `s`, `t` or `b` for the checksums of source, target
    /// or both.
    pub(super) verify: char,
    pub(super) replaces: Replaces,
    pub(super) retries: u32,
    /// Minutes between two attempts, as FTS's clients count them.
    pub(super) retry_delay_min: u64,
    /// Seconds since 1970 after which no file begins.
    pub(super) queue_until_s: Option<u64>,
    /// Set if the job named a deadline, and is refused if that is infeasible.
    pub(super) has_deadline: bool,
    /// Most seconds without progress of a file.
    pub(super) timeout_s: Option<u64>,
}

/// Rule for replacing existing files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Replaces {
    Never,
    Always,
    /// From the second attempt on.
    OnRetry,
    /// At intermediate places.
    OnTheWay,
}

impl Replaces {
    /// Returns FTS's letter for it.
    pub(super) fn flag(self) -> Option<char> {
        match self {
            Self::Never => None,
            Self::Always => Some('Y'),
            Self::OnRetry => Some('R'),
            Self::OnTheWay => Some('M'),
        }
    }
}

/// File with one source and one destination.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pair {
    pub(super) source: String,
    pub(super) destination: String,
    /// Addresses as opened with a credential of the owner's own, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) own_source: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) own_destination: Option<String>,
    pub(super) checksum: String,
    pub(super) bytes: u64,
    pub(super) metadata: Kept,
    pub(super) activity: String,
    pub(super) strategy: String,
}

impl Pair {
    /// Returns its approximate memory.
    fn len(&self) -> usize {
        let texts = [&self.checksum, &self.activity, &self.strategy];
        let texts = texts.iter().map(|text| text.len()).sum::<usize>();
        size_of::<Self>() + self.source.len() + self.destination.len() + self.metadata.len() + texts
    }

    /// Returns the expected checksum, if a value was given.
    ///
    /// # Errors
    /// The reason why it is no checksum.
    pub(super) fn expected(&self) -> Result<Option<Expected>, String> {
        match self.checksum.split_once(':') {
            None | Some((_, "")) => Ok(None),
            Some((algorithm, value)) => Expected::read(algorithm, value).map(Some),
        }
    }
}

/// Parses a job.
///
/// # Errors
/// The reason why it is invalid.
pub(super) fn read(body: &[u8], now: Timestamp) -> Result<Job, Refused> {
    let body: Body<'_> = serde_json::from_slice(body).map_err(|error| {
        match error.classify() {
            serde_json::error::Category::Data => "Expecting a dictionary",
            serde_json::error::Category::Io
            | serde_json::error::Category::Syntax
            | serde_json::error::Category::Eof => "Badly formatted JSON request",
        }
        .to_owned()
    })?;
    if body.delete.is_some() {
        return Err(DELETION.into());
    }
    let params = match body.params.map(RawValue::get) {
        None => Value::Object(Map::new()),
        Some(text) => value_of(text, "params", PARAMS_BYTES_MAX)?,
    };
    let Value::Object(params) = &params else {
        return Err("Invalid value within the request: params is no object".into());
    };
    let Some(files) = body.files else {
        return Err("No transfers operations specified".into());
    };
    let pairs = pairs(files.get())?;
    let kind = kind(params, &pairs)?;
    refuse_tape(params)?;
    let queue_until =
        lasts(params.get("max_time_in_queue")).map(|lasts| lasts.map_or(now, |lasts| now + lasts));
    let metadata = job_metadata(params.get("job_metadata"))?;
    let named = match metadata.get("deadline") {
        None | Some(Value::Null) => None,
        Some(text) => Some(deadline(text, now)?),
    };
    let deadline = named.or(queue_until);
    let verify = verify(
        params.get("verify_checksum"),
        pairs.last().map(|(_, pair)| pair),
    )?;
    for (_, pair) in &pairs {
        pair.expected()?;
    }
    let retries = number(params, "retry")?.unwrap_or(0).max(0);
    let delay = number(params, "retry_delay")?.unwrap_or(0).max(0);
    let timeout = number(params, "timeout")?.filter(|timeout| *timeout > 0);
    number(params, "nostreams")?;
    number(params, "buffer_size")?;
    let priority = number(params, "priority")?.unwrap_or(3).clamp(1, 5);
    Ok(Job {
        priority: u8::try_from(priority).unwrap_or(3),
        sid: sid(params)?,
        deadline: deadline.unwrap_or(now + DEADLINE_DEFAULT),
        asked: Asked {
            verify,
            replaces: replaces(params, kind)?,
            kind,
            metadata,
            retries: u32::try_from(retries)
                .unwrap_or(RETRIES_MAX)
                .min(RETRIES_MAX),
            retry_delay_min: delay.unsigned_abs().min(RETRY_DELAY_MIN_MAX),
            queue_until_s: queue_until.map(|at| at.as_micros() / 1_000_000),
            has_deadline: named.is_some(),
            timeout_s: timeout.map(i64::unsigned_abs),
        },
        files: pairs,
    })
}

/// Refuses tape options: there are no tapes here.
fn refuse_tape(params: &Map<String, Value>) -> Result<(), Refused> {
    for key in ["bring_online", "archive_timeout"] {
        // Clients also write invalid numbers, which mean that nothing is wanted.
        if number(params, key).is_ok_and(|value| value.is_some_and(|value| value > 0)) {
            return Err(format!(
                "Invalid value within the request: {key} is for tapes, which can't be reached from here"
            ));
        }
    }
    if flag(params, "overwrite_when_only_on_disk") {
        return Err(
            "'overwrite-when-only-on-disk' requires a tape, which can't be reached from here"
                .into(),
        );
    }
    Ok(())
}

/// Job as it was written, not yet parsed.
#[derive(Deserialize)]
struct Body<'a> {
    #[serde(borrow)]
    delete: Option<&'a RawValue>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    files: Option<&'a RawValue>,
}

fn value_of(text: &str, what: &str, most: usize) -> Result<Value, Refused> {
    if text.len() > most {
        return Err(format!(
            "Invalid value within the request: {what} of more than {most} bytes"
        ));
    }
    serde_json::from_str(text).map_err(|_| "Badly formatted JSON request".to_owned())
}

/// Files of a job, parsed one by one, so that at most one of them is a tree of values at a time.
#[derive(Default)]
struct Pairs {
    read: Vec<(u32, Pair)>,
    bytes: usize,
    refused: Option<Refused>,
}

impl<'de> Visitor<'de> for &mut Pairs {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of files")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut files: A) -> Result<(), A::Error> {
        let mut place = 0;
        while let Some(file) = files.next_element::<&RawValue>()? {
            self.take(place, file.get()).map_err(|refused| {
                self.refused = Some(refused);
                A::Error::custom("refused")
            })?;
            place += 1;
        }
        Ok(())
    }
}

impl Pairs {
    /// Adds every pair of source and destination of a file.
    fn take(&mut self, place: u32, text: &str) -> Result<(), Refused> {
        let Value::Object(file) = value_of(text, "a file", FILE_BYTES_MAX)? else {
            return Err("Malformed request: a file is no object".into());
        };
        let (sources, destinations) = (
            addresses(&file, "sources")?,
            addresses(&file, "destinations")?,
        );
        for source in &sources {
            for destination in &destinations {
                let pair = pair(&file, source, destination)?;
                self.bytes += pair.len();
                if self.read.len() == FILES_MAX || self.bytes > KEPT_BYTES_MAX {
                    return Err(format!(
                        "Invalid value within the request: more than {FILES_MAX} files, or {KEPT_BYTES_MAX} bytes of them: submit several jobs"
                    ));
                }
                self.read.push((place, pair));
            }
        }
        Ok(())
    }
}

/// Returns all pairs of source and destination for each file.
fn pairs(files: &str) -> Result<Vec<(u32, Pair)>, Refused> {
    if !files.starts_with('[') {
        return Err("Malformed request: files is no list".into());
    }
    let mut pairs = Pairs::default();
    let read = serde_json::Deserializer::from_str(files).deserialize_seq(&mut pairs);
    if let Err(error) = read {
        return Err(pairs.refused.unwrap_or_else(|| error.to_string()));
    }
    if pairs.read.is_empty() {
        return Err("No valid pairs available".into());
    }
    Ok(pairs.read)
}

fn pair(file: &Map<String, Value>, source: &str, destination: &str) -> Result<Pair, Refused> {
    let text = |key: &str, default: &str| match file.get(key) {
        Some(Value::String(text)) if !text.is_empty() && text.len() <= METADATA_BYTES_MAX => {
            text.clone()
        }
        _ => default.to_owned(),
    };
    let strategy = text("selection_strategy", "auto");
    if !STRATEGIES.contains(&strategy.as_str()) {
        return Err(format!(
            "{} algorithm is not supported by Scheduler",
            strategy.escape_debug()
        ));
    }
    Ok(Pair {
        source: source.to_owned(),
        destination: destination.to_owned(),
        own_source: None,
        own_destination: None,
        checksum: text("checksum", "ADLER32"),
        bytes: size(file.get("filesize"))?,
        metadata: Kept::of(&metadata(file.get("metadata"))?.map_or(Value::Null, Value::Object)),
        activity: text("activity", "default"),
        strategy,
    })
}

fn size(given: Option<&Value>) -> Result<u64, Refused> {
    let wrong = |given: &Value| {
        format!("Invalid value within the request: {given} is no size of a file in bytes")
    };
    match given {
        None | Some(Value::Null) => Ok(0),
        Some(Value::String(text)) => text
            .trim()
            .parse()
            .map_err(|_| wrong(&json!(text.escape_debug().to_string()))),
        Some(Value::Number(number)) => {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "no file is larger than what fits; less than nothing becomes nothing"
            )]
            let whole = number.as_f64().map(|size| size as u64);
            number.as_u64().or(whole).ok_or_else(|| wrong(&json!(0)))
        }
        Some(other) => Err(wrong(other)),
    }
}

fn addresses(file: &Map<String, Value>, key: &str) -> Result<Vec<String>, Refused> {
    let list = match file.get(key) {
        None => return Err(format!("Missing parameter: '{key}'")),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(format!("Malformed request: {key} is no list")),
    };
    let address = |value: &Value| match value {
        Value::String(text) => check_address(text.trim()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            Err(format!("Malformed request: {key} holds what is no address"))
        }
    };
    list.iter().map(address).collect()
}

fn check_address(address: &str) -> Result<String, Refused> {
    let wrong = |why: &str| {
        let shown: String = address.chars().take(200).collect();
        Err(format!(
            "Invalid value within the request: {why} ({})",
            shown.escape_debug()
        ))
    };
    if address.len() > ADDRESS_BYTES_MAX || address.contains(char::is_control) {
        return wrong("Unusable address");
    }
    let Some((scheme, rest)) = address.split_once("://") else {
        return wrong("Missing scheme");
    };
    if scheme == "file" {
        return wrong("Can not transfer local files");
    }
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() {
        return wrong("Missing host");
    }
    // A password in an address would be shown to all who read the job.
    if host
        .rsplit_once('@')
        .is_some_and(|(user, _)| user.contains(':'))
    {
        return Err(
            "Invalid value within the request: passwords don't belong into addresses".into(),
        );
    }
    if path.trim_matches('/').is_empty() {
        return wrong("Missing path");
    }
    Ok(address.to_owned())
}

fn kind(params: &Map<String, Value>, pairs: &[(u32, Pair)]) -> Result<Kind, Refused> {
    let (hops, reuse) = (flag(params, "multihop"), flag(params, "reuse"));
    let places = pairs.last().map_or(0, |(place, _)| *place as usize + 1);
    if pairs.len() > places {
        if places > 1 || hops || reuse {
            return Err("Multiple replica jobs must only have one unique file".into());
        }
        return Ok(Kind::Replicas);
    }
    if hops {
        return Ok(Kind::Hops);
    }
    Ok(if reuse { Kind::Reuse } else { Kind::Plain })
}

fn replaces(params: &Map<String, Value>, kind: Kind) -> Result<Replaces, Refused> {
    let (always, on_retry, on_the_way) = (
        flag(params, "overwrite"),
        flag(params, "overwrite_on_retry"),
        flag(params, "overwrite_hop"),
    );
    match (always, on_retry, on_the_way) {
        (false, false, false) => Ok(Replaces::Never),
        (true, false, false) => Ok(Replaces::Always),
        (false, true, false) => Ok(Replaces::OnRetry),
        (false, false, true) if kind == Kind::Hops => Ok(Replaces::OnTheWay),
        (false, false, true) => Err("'overwrite-hop' requires multihop job submission".into()),
        _ => Err("Incompatible overwrite flags used at the same time".into()),
    }
}

/// Parses a job, for [`crate::fuzzing`].
pub(crate) fn try_job(data: &[u8]) {
    match read(data, Timestamp::from_secs(1_000_000)) {
        Ok(job) => {
            assert!((1..=FILES_MAX).contains(&job.files.len()));
            let bytes = job.files.iter().map(|(_, pair)| pair.len()).sum::<usize>();
            assert!(bytes <= KEPT_BYTES_MAX, "more is kept than may be");
        }
        Err(refused) => {
            assert!(
                !refused.contains(char::is_control),
                "it is more than a line"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000_000);

    fn job(params: Value, files: Value) -> Result<Job, Refused> {
        read(
            json!({"params": params, "files": files})
                .to_string()
                .as_bytes(),
            NOW,
        )
    }

    fn file(source: &str, destination: &str) -> Value {
        json!({"sources": [source], "destinations": [destination]})
    }

    #[test]
    fn a_job_is_read_as_the_clients_write_it() {
        // Format of FTS's own command line, including its nulls.
        let params = json!({"overwrite": false, "reuse": false, "job_metadata": null, "verify_checksum": "n",
            "copy_pin_lifetime": -1, "bring_online": -1, "archive_timeout": -1, "timeout": null, "retry": 0,
            "priority": null, "multihop": false, "nostreams": "4", "buffer_size": null, "unmanaged_tokens": false});
        let files = json!([{"sources": ["https://a:443/p/f1 "], "destinations": ["davs://b/p/f1"],
            "checksum": "ADLER32", "filesize": null, "activity": null, "metadata": "mine",
            "source_tokens": ["secret"], "destination_tokens": ["secret"]}]);
        let read = job(params, files).unwrap();
        assert_eq!((read.priority, read.asked.verify), (3, 'n'));
        assert_eq!(read.deadline, NOW + DEADLINE_DEFAULT);
        assert_eq!(read.asked.kind, Kind::Plain);
        let (_, pair) = &read.files[0];
        assert_eq!(pair.source, "https://a:443/p/f1");
        assert_eq!(pair.metadata.value(), json!({"label": "mine"}));
        assert!(
            !format!("{read:?}").contains("secret"),
            "tokens are not kept"
        );
        // Format that Rucio writes.
        let params = json!({"account": "root", "verify_checksum": "both", "copy_pin_lifetime": 172_800,
            "job_metadata": {"issuer": "rucio", "multi_sources": false}, "overwrite": true, "priority": 4,
            "max_time_in_queue": "36h", "id_generator": "deterministic", "sid": "abc", "retry": 2});
        let read = job(params, json!([file("davs://a/f", "davs://b/f")])).unwrap();
        assert_eq!(read.sid.as_deref(), Some("abc"));
        assert_eq!((read.asked.verify, read.priority), ('b', 4));
        assert_eq!(read.asked.replaces, Replaces::Always);
        assert_eq!(read.deadline, NOW + Duration::from_secs(36 * 3600));
        assert!(!read.asked.has_deadline);
        assert_eq!(read.asked.metadata["issuer"], "rucio");
    }

    #[test]
    fn what_waits_no_longer_is_written_in_hours_or_with_a_unit() {
        let hours = |given: Value| lasts(Some(&given)).flatten().map(|lasts| lasts.as_secs());
        assert_eq!(hours(json!(2)), Some(7200));
        assert_eq!(hours(json!("90m")), Some(5400));
        assert_eq!(hours(json!("1D")), Some(86_400));
        for none in [
            json!(0),
            json!("5"),
            json!("x"),
            json!(""),
            json!("é"),
            json!(1.5),
            json!(null),
        ] {
            assert_eq!(lasts(Some(&none)), None, "{none}");
        }
        assert_eq!(lasts(Some(&json!(-1))), Some(None), "over at once");
    }

    #[test]
    fn a_deadline_is_a_moment_to_come() {
        let with = |deadline: Value| {
            let params = json!({"job_metadata": {"deadline": deadline}, "max_time_in_queue": 1});
            job(params, json!([file("https://a/f", "https://b/f")]))
        };
        let read = with(json!("2030-01-01T00:00:00Z")).unwrap();
        assert!(read.asked.has_deadline);
        assert_eq!(read.deadline, Timestamp::from_secs(1_893_456_000));
        for wrong in [json!("tomorrow"), json!(5), json!("1970-01-01T00:00:00Z")] {
            with(wrong).unwrap_err();
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_the_words_that_clients_know() {
        let good = || json!([file("https://a/f", "https://b/f")]);
        let two = json!([{"sources": ["https://a/f", "https://c/f"], "destinations": ["https://b/f"]},
            {"sources": ["https://a/g"], "destinations": ["https://b/g"]}]);
        let cases = [
            (json!({}), json!(null), "No transfers operations specified"),
            (json!({}), json!([]), "No valid pairs available"),
            (
                json!({}),
                json!([{"sources": ["https://a/f"]}]),
                "Missing parameter: 'destinations'",
            ),
            (
                json!({}),
                json!([file("a/f", "https://b/f")]),
                "Missing scheme",
            ),
            (
                json!({}),
                json!([file("https:///f", "https://b/f")]),
                "Missing host",
            ),
            (
                json!({}),
                json!([file("https://a/", "https://b/f")]),
                "Missing path",
            ),
            (
                json!({}),
                json!([file("file:///etc/passwd", "https://b/f")]),
                "local files",
            ),
            (
                json!({}),
                json!([file("https://u:p@a/f", "https://b/f")]),
                "passwords",
            ),
            (json!({}), two, "one unique file"),
            (
                json!({"priority": "x"}),
                good(),
                "priority is no whole number",
            ),
            (json!({"bring_online": 60}), good(), "tapes"),
            (json!({"job_metadata": [1]}), good(), "Metadata neither"),
            (
                json!({"job_metadata": "x".repeat(5000)}),
                good(),
                "size limit",
            ),
            (
                json!({"overwrite": true, "overwrite_on_retry": true}),
                good(),
                "Incompatible",
            ),
            (json!({"overwrite_hop": true}), good(), "requires multihop"),
            (json!({"id_generator": "deterministic"}), good(), "Need sid"),
            (
                json!({"verify_checksum": "perhaps"}),
                good(),
                "verify_checksum",
            ),
            (json!([]), good(), "params"),
        ];
        for (params, files, said) in cases {
            let refused = job(params, files).map(|_| ()).unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
    }

    #[test]
    fn what_would_take_much_memory_is_refused() {
        let many = vec![0; FILE_BYTES_MAX / 2];
        let mut file = file("https://a/f", "https://b/f");
        file["metadata"] = json!(many);
        let long = format!("https://a/{}", "x".repeat(4000));
        let sources = vec![&long; 100];
        let crossed = json!([{"sources": sources, "destinations": sources}]);
        let files = json!([{"sources": ["https://a/f"], "destinations": ["https://b/f"]}]);
        for (params, files, said) in [
            (
                json!({}),
                json!([file]),
                "a file of more than 1048576 bytes",
            ),
            (
                json!({"job_metadata": many}),
                files,
                "params of more than 65536 bytes",
            ),
            (json!({}), crossed, "submit several jobs"),
        ] {
            let refused = job(params, files).map(|_| ()).unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
    }

    #[test]
    fn checksums_and_bodies_that_are_none_are_refused() {
        for (checksum, is_good) in [
            ("md5:zz", false),
            ("FOO:12", false),
            ("ADLER32:0a0b0c0d", true),
        ] {
            let files = json!([{"sources": ["https://a/f"], "destinations": ["https://b/f"], "checksum": checksum}]);
            assert_eq!(job(json!({}), files).is_ok(), is_good, "{checksum}");
        }
        read(b"{", NOW).unwrap_err();
        read(b"[]", NOW).unwrap_err();
    }

    #[test]
    fn several_ways_to_a_file_share_its_place() {
        let files = json!([{"sources": ["https://a/f", "https://c/f"], "destinations": ["https://b/f"],
            "selection_strategy": "orderly"}]);
        let read = job(json!({}), files).unwrap();
        assert_eq!(read.asked.kind, Kind::Replicas);
        let places: Vec<u32> = read.files.iter().map(|(place, _)| *place).collect();
        assert_eq!(places, [0, 0]);
        let hops = json!([
            file("https://a/f", "https://b/f"),
            file("https://b/f", "https://c/f")
        ]);
        let read = job(json!({"multihop": true, "overwrite_hop": true}), hops).unwrap();
        assert_eq!(read.asked.kind, Kind::Hops);
        assert_eq!(read.asked.replaces, Replaces::OnTheWay);
    }
}
