//! `posthaste condor plugin`: HTCondor's protocol for plug-ins that move several files per call.

use std::{
    collections::VecDeque,
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use jiff::Timestamp;
use posthaste_endpoint::{Access, Error, ErrorKind, Locus};
use posthaste_engine::copy::Figures;
use tokio::task::{Id, JoinSet};

use super::{
    ads::{self, Ad, Meaning},
    report::{Fared, Report},
};
use crate::{
    copy::one::{self, Trouble},
    failure::{Exit, Failure, Outcome},
    output, through,
};

/// Files in transfer at once: small ones don't wait for each other, and each large one uses several
/// streams itself.
const FILES_AT_ONCE: usize = 4;
/// Larger than HTCondor's description of any job's files.
const INPUT_BYTES_MAX: u64 = 1 << 30;
/// Schemes that work in both directions and that HTCondor does not support itself: if two plug-ins
/// support one scheme, HTCondor uses the last.
const METHODS: &str = "posthaste,s3,gs,azblob,sftp,webdav,webdavs,ftps";
/// Exit code by which HTCondor learns that credentials must be renewed.
const EXIT_CREDENTIALS: u8 = 2;

/// Moves files for HTCondor; not for people
///
/// plugins/condor/posthaste-condor-plugin runs it with what HTCondor gave: -classad, or -infile FILE -outfile FILE [-upload].
///
/// Examples:
///   posthaste condor plugin -- -classad
///   posthaste condor plugin -- -infile .plugin.in -outfile .plugin.out -upload
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, hide = true)]
pub struct PluginArguments {
    /// Arguments that HTCondor gave
    #[arg(last = true)]
    words: Vec<OsString>,
}

/// Direction of the transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Download,
    Upload,
}

impl Direction {
    /// Returns HTCondor's word.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Download => "download",
            Self::Upload => "upload",
        }
    }
}

/// Invocation of the plug-in.
#[derive(Debug, PartialEq, Eq)]
enum Call {
    Describe,
    Move {
        infile: PathBuf,
        outfile: PathBuf,
        direction: Direction,
    },
}

impl Call {
    fn read(words: &[OsString]) -> Result<Self, Failure> {
        let wrong = |what: &str| {
            Failure::usage(format!(
                "can't understand HTCondor's call: {what} (-classad, or -infile FILE -outfile FILE [-upload])"
            ))
        };
        if let [word] = words
            && word == "-classad"
        {
            return Ok(Self::Describe);
        }
        let (mut infile, mut outfile, mut direction) = (None, None, Direction::Download);
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let place = match word.to_str() {
                Some("-infile") => &mut infile,
                Some("-outfile") => &mut outfile,
                Some("-upload") => {
                    direction = Direction::Upload;
                    continue;
                }
                _ => return Err(wrong(&format!("unknown word {}", word.to_string_lossy()))),
            };
            let file = words.next().map(PathBuf::from);
            *place = Some(file.ok_or_else(|| wrong("a file is missing"))?);
        }
        match (infile, outfile) {
            (Some(infile), Some(outfile)) => Ok(Self::Move {
                infile,
                outfile,
                direction,
            }),
            _ => Err(wrong("no file to read, or none to write")),
        }
    }
}

/// File with its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Address in HTCondor's spelling.
    pub(super) url: OsString,
    /// Path on this machine.
    pub(super) local: OsString,
}

impl Wanted {
    /// Reads a transfer from an ad; `None` if it concerns no file.
    ///
    /// # Errors
    /// Describes the mistake.
    fn read(ad: &Ad) -> Result<Option<Self>, String> {
        let text = |name| match ad.get(name) {
            Meaning::Text([]) => Err(format!("{name} is empty")),
            Meaning::Text(text) => Ok(Some(OsString::from_vec(text.to_vec()))),
            Meaning::Other => Err(format!("{name} is no text")),
            Meaning::Absent => Ok(None),
        };
        match (text("Url")?, text("LocalFileName")?) {
            (Some(url), Some(local)) => Ok(Some(Self { url, local })),
            (None, None) => Ok(None),
            (Some(_), None) => Err("an ad has a Url and no LocalFileName".into()),
            (None, Some(_)) => Err("an ad has a LocalFileName and no Url".into()),
        }
    }

    /// Splits the text before `://` at its last `+`, into the profile, if any, and the scheme.
    fn split(&self) -> Option<(Option<&str>, &str, &[u8])> {
        let bytes = self.url.as_bytes();
        let end = bytes.windows(3).position(|three| three == b"://")?;
        let scheme = std::str::from_utf8(&bytes[..end]).ok()?;
        let rest = &bytes[end..];
        Some(match scheme.rsplit_once('+') {
            Some((profile, scheme)) => (Some(profile), scheme, rest),
            None => (None, scheme, rest),
        })
    }

    /// Returns the scheme of the address, without the profile.
    pub(super) fn scheme(&self) -> &str {
        self.split().map_or("", |(_, scheme, _)| scheme)
    }

    /// Returns the host or the bucket.
    pub(super) fn server(&self) -> String {
        let Some((_, _, rest)) = self.split() else {
            return String::new();
        };
        let authority = rest[3..].split(|byte| matches!(byte, b'/' | b'?')).next();
        let authority = String::from_utf8_lossy(authority.unwrap_or_default()).into_owned();
        match authority.rsplit_once('@') {
            Some((_, host)) => host.to_owned(),
            None => authority,
        }
    }

    /// Transfers the file.
    async fn go(&self, direction: Direction, access: &Access) -> Result<Figures, Trouble> {
        let wrong = |what: &str| {
            let shown = self.url.to_string_lossy();
            let shown = shown.split('?').next().unwrap_or_default();
            let error = Error::new(ErrorKind::Invalid, "use", shown).at(Locus::Client);
            Trouble::from(
                &error
                    .cause(what.to_owned())
                    .hint(format!("write one of {METHODS} before ://")),
            )
        };
        let (profile, scheme, rest) = self.split().ok_or_else(|| wrong("it is no URL"))?;
        if !METHODS.split(',').any(|method| method == scheme) {
            return Err(wrong("no such scheme"));
        }
        let address = [scheme.as_bytes(), rest].concat();
        let address = OsString::from_vec(address);
        let access = match profile {
            Some(profile) => access.with_profile(profile.to_owned()),
            None => access.clone(),
        };
        // A name with a colon is still the name of a file.
        let local = match self.local.as_bytes().first() {
            Some(b'/') => self.local.clone(),
            _ => [OsStr::new("./"), &self.local].into_iter().collect(),
        };
        match direction {
            Direction::Download => one::copy_one(&address, &local, &access).await,
            Direction::Upload => one::copy_one(&local, &address, &access).await,
        }
    }
}

/// Runs the command.
///
/// # Errors
/// Fails for a call that is not HTCondor's, and if the report can't be written.
pub async fn run(arguments: PluginArguments) -> Outcome {
    // 2 would ask for other credentials.
    let answered = answer(&arguments.words).await;
    answered.map_err(|failure| Failure::new(Exit::Other, failure.to_string()))
}

async fn answer(words: &[OsString]) -> Outcome {
    match Call::read(words)? {
        Call::Describe => {
            describe();
            Ok(ExitCode::SUCCESS)
        }
        Call::Move {
            infile,
            outfile,
            direction,
        } => {
            let mut report = Report::open(&outfile)?;
            match read(&infile) {
                Ok(wanted) => move_all(wanted, direction, &mut report).await,
                Err(why) => {
                    let why = format!("can't read {}: {why}", infile.display());
                    report.tell_of_all(&why)?;
                    Err(Failure::new(Exit::Other, why))
                }
            }
        }
    }
}

fn describe() {
    for line in [
        "MultipleFileSupport = true",
        concat!("PluginVersion = \"", env!("CARGO_PKG_VERSION"), "\""),
        "PluginType = \"FileTransfer\"",
        "ProtocolVersion = 2",
    ] {
        output::line(line);
    }
    output::line(&format!("SupportedMethods = \"{METHODS}\""));
}

fn read(infile: &Path) -> Result<VecDeque<Wanted>, String> {
    let size = fs::metadata(infile)
        .map_err(|cause| cause.to_string())?
        .len();
    if size > INPUT_BYTES_MAX {
        return Err("it is larger than any list of files".into());
    }
    let bytes = fs::read(infile).map_err(|cause| cause.to_string())?;
    let ads = ads::read(&bytes)?;
    let wanted = ads.iter().filter_map(|ad| Wanted::read(ad).transpose());
    wanted.collect()
}

/// Overall result that HTCondor expects for all files.
#[derive(Debug, Default)]
struct Verdict {
    failed: bool,
    otherwise_than_credentials: bool,
}

impl Verdict {
    fn count(&mut self, fared: &Fared) {
        if let Err(trouble) = &fared.outcome {
            self.failed = true;
            self.otherwise_than_credentials |=
                trouble.kind != ErrorKind::Unauthenticated && trouble.kind != ErrorKind::Cancelled;
        }
    }

    fn exit_code(&self) -> ExitCode {
        match (self.failed, self.otherwise_than_credentials) {
            (false, _) => ExitCode::SUCCESS,
            (true, true) => ExitCode::FAILURE,
            (true, false) => ExitCode::from(EXIT_CREDENTIALS),
        }
    }
}

/// File in transfer.
struct UnderWay {
    id: Id,
    wanted: Wanted,
    begun: Timestamp,
}

impl UnderWay {
    fn fared(&self, outcome: Result<Figures, Trouble>) -> Fared {
        Fared {
            begun: self.begun,
            ended: Timestamp::now(),
            outcome,
        }
    }
}

/// Transfers several files at once. If an input fails, the job can't run: no other transfer is
/// started or waited for. Outputs are saved as far as possible. The failed input is reported last,
/// because HTCondor holds the job for the last reason that it reads.
async fn move_all(
    mut waiting: VecDeque<Wanted>,
    direction: Direction,
    report: &mut Report,
) -> Outcome {
    let access = Access::new(None, Vec::new()).with_gateways(through::known(None)?);
    let mut verdict = Verdict::default();
    let mut moving = JoinSet::new();
    let mut under_way: Vec<UnderWay> = Vec::new();
    let mut stopped_by: Option<String> = None;
    let mut last: Option<(Wanted, Fared)> = None;
    loop {
        while stopped_by.is_none() && moving.len() < FILES_AT_ONCE {
            let Some(wanted) = waiting.pop_front() else {
                break;
            };
            let (access, going) = (access.clone(), wanted.clone());
            let started = moving.spawn(async move { going.go(direction, &access).await });
            under_way.push(UnderWay {
                id: started.id(),
                wanted,
                begun: Timestamp::now(),
            });
        }
        let Some(joined) = moving.join_next_with_id().await else {
            break;
        };
        let (id, outcome) = match joined {
            Ok((id, outcome)) => (id, outcome),
            Err(error) => (error.id(), Err(given_up(stopped_by.as_deref()))),
        };
        let Some(place) = under_way.iter().position(|one| one.id == id) else {
            continue;
        };
        let one = under_way.swap_remove(place);
        let stops = outcome.is_err() && direction == Direction::Download && stopped_by.is_none();
        let fared = one.fared(outcome);
        verdict.count(&fared);
        if stops {
            stopped_by = Some(one.wanted.local.to_string_lossy().into_owned());
            moving.abort_all();
            last = Some((one.wanted, fared));
        } else {
            report.tell(&one.wanted, direction, &fared)?;
        }
    }
    for wanted in waiting {
        let now = Timestamp::now();
        let fared = Fared {
            begun: now,
            ended: now,
            outcome: Err(given_up(stopped_by.as_deref())),
        };
        verdict.count(&fared);
        report.tell(&wanted, direction, &fared)?;
    }
    if let Some((wanted, fared)) = last {
        report.tell(&wanted, direction, &fared)?;
    }
    Ok(verdict.exit_code())
}

fn given_up(by: Option<&str>) -> Trouble {
    let Some(by) = by else {
        return Trouble::from(
            &Error::new(ErrorKind::Other, "move", "it").cause("the plug-in failed"),
        );
    };
    let error = Error::new(ErrorKind::Cancelled, "go on with", "it");
    Trouble::from(&error.cause(format!(
        "{by} could not be had, and the job can't run without it"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn calls_are_htcondor_s_and_no_others() {
        assert_eq!(Call::read(&words("-classad")).unwrap(), Call::Describe);
        for line in [
            "-infile a -outfile b -upload",
            "-upload -outfile b -infile a",
        ] {
            let call = Call::read(&words(line)).unwrap();
            let wanted = Call::Move {
                infile: "a".into(),
                outfile: "b".into(),
                direction: Direction::Upload,
            };
            assert_eq!(call, wanted);
        }
        for line in [
            "",
            "-infile a",
            "-infile a -outfile",
            "-classad x",
            "s3://a/b c",
        ] {
            assert!(Call::read(&words(line)).is_err(), "{line}");
        }
    }

    #[test]
    fn a_profile_stands_before_the_scheme() {
        let wanted = |url: &str| Wanted {
            url: url.into(),
            local: "x".into(),
        };
        let tape = wanted("tape+sftp://me@host:2222/a");
        assert_eq!(tape.split().unwrap().0, Some("tape"));
        assert_eq!(tape.scheme(), "sftp");
        assert_eq!(tape.server(), "host:2222");
        assert_eq!(wanted("s3://bucket/a?x").server(), "bucket");
        assert_eq!(wanted("/a/b").split(), None);
    }

    #[test]
    fn every_method_is_a_scheme_that_is_built_in() {
        for method in METHODS.split(',') {
            let address = format!("{method}://there/path");
            let location = posthaste_endpoint::Location::parse(address.as_ref()).unwrap();
            let found = posthaste_endpoint::BuiltIn::of(&location);
            assert!(found.is_some(), "{method}");
        }
    }
}
