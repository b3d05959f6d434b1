//! Results of jobs: staged out after the jobs have ended.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    path::{Component, Path, PathBuf},
    time::Duration,
};

use globset::GlobBuilder;
use posthaste_api as api;
use posthaste_batch::script::{After, Release, StageOut, Wanted};
use posthaste_endpoint::{Error, ErrorKind, Locus, Result};
use posthaste_journal::{JobPhase, JobRecord, RequestRecord, Scan};
use posthaste_types::{Bytes, Code, Timestamp};

use super::{
    deadline,
    lent::{Lent, usual_code},
    moved,
    owner::{self, LOOKED_AT_MAX},
    places, read_again,
};
use crate::{
    credentials::Behalf,
    depots::Viewer,
    http::{Answer, Desk, Refusal},
    outbound::submit::is_address,
    submit,
};

/// Default deadline for safety.
const SAFE_WITHIN: Duration = Duration::from_secs(86_400);
/// Requests that one pattern may become: one for each matched directory, and one for the matched
/// files of each directory.
const MATCHES_MAX: usize = 256;

/// Files that leave as one dataset: a directory, or files in one.
#[derive(Debug, PartialEq, Eq)]
struct Leaving {
    source: PathBuf,
    /// Named files; everything below the directory if none are.
    only: Vec<String>,
}

/// Returns the name of the request for a place that the directive of that number matched.
fn name(record: &JobRecord, number: usize, place: usize) -> String {
    let JobRecord {
        scheduler,
        job,
        round,
        ..
    } = record;
    format!("job-{scheduler}-{job}.{round}-out-{number}-{place}")
}

/// Returns the directives that apply to a job with this end.
fn due<'w>(
    record: &JobRecord,
    wanted: &'w Wanted,
) -> impl Iterator<Item = (&'w StageOut, usize)> + use<'w> {
    let phase = record.phase;
    wanted.stage_outs.iter().zip(1..).filter(move |(one, _)| {
        let JobPhase::Ended { well, .. } = phase else {
            return false;
        };
        match one.after {
            After::Ok => well,
            After::NotOk => !well,
            After::Any => true,
        }
    })
}

/// Requests everything not yet requested.
pub(super) fn ask(desk: &Desk, record: &JobRecord) -> Answer<()> {
    let JobPhase::Ended { at, .. } = record.phase else {
        return Ok(());
    };
    let wanted = read_again(record);
    let mut left = Vec::new();
    for due in due(record, &wanted) {
        // The first match is requested last: its request shows that all were made, when the job
        // ended.
        if asked(desk, record, (due.1, 1))?.is_none() {
            left.push(due);
        }
    }
    if left.is_empty() {
        return Ok(());
    }
    let mut lent = left_of_lent(desk, record, &wanted)?;
    // A result that can't leave must not keep others here.
    let mut refused: Option<Refusal> = None;
    for due in left {
        if let Err(refusal) = ask_one(desk, record, (at, &mut lent), due) {
            // Temporary refusals are reported before permanent ones: the caller then asks again.
            let stays = |said: &Refusal| said.may_pass() || !refusal.may_pass();
            if !refused.as_ref().is_some_and(stays) {
                refused = Some(refusal);
            }
        }
    }
    refused.map_or(Ok(()), Err)
}

/// Returns the existing request for a place that a directive matched.
fn asked(
    desk: &Desk,
    record: &JobRecord,
    (number, place): (usize, usize),
) -> Result<Option<RequestRecord>> {
    let name = name(record, number, place);
    let store = &desk.centre.store;
    store.journal(|journal| journal.submission(&name))
}

/// Returns the space left on disks lent for a job, minus earlier requests.
fn left_of_lent(desk: &Desk, record: &JobRecord, wanted: &Wanted) -> Result<Lent> {
    if wanted.depots.is_empty() {
        return Ok(Lent::new(&[]));
    }
    let behalf = owner::behalf(&desk.centre, record.uid)?;
    let whose = Viewer::Owner(behalf.owner());
    let mut lent = Lent::new(&places::by_name(desk, whose, &wanted.depots));
    for (_, number) in due(record, wanted) {
        // The first is requested last: others may exist without it.
        for place in 1..=MATCHES_MAX {
            if let Some(request) = asked(desk, record, (number, place))? {
                lent.take(&request.via, request.code, size(&behalf, &request)?);
            }
        }
    }
    Ok(lent)
}

/// Returns the bytes that a request stages out, as far as is known.
fn size(behalf: &Behalf, request: &RequestRecord) -> Result<Bytes> {
    match request.scan {
        Some(Scan::Sealed { bytes, .. }) => Ok(bytes),
        Some(Scan::Failed { .. }) | None => {
            let source = Path::new(OsStr::from_bytes(&request.source));
            behalf.run(|| bytes_of(source, &request.only))
        }
    }
}

fn bytes_of(source: &Path, only: &[String]) -> Result<Bytes> {
    tokio::task::block_in_place(|| {
        if only.is_empty() {
            return owner::bytes_below(source).map(Bytes::new);
        }
        let mut bytes = 0;
        for name in only {
            bytes += owner::bytes_below(&source.join(name))?;
        }
        Ok(Bytes::new(bytes))
    })
}

fn ask_one(
    desk: &Desk,
    record: &JobRecord,
    (at, lent): (Timestamp, &mut Lent),
    (one, number): (&StageOut, usize),
) -> Answer<()> {
    let behalf = owner::behalf(&desk.centre, record.uid)?;
    let all = tokio::task::block_in_place(|| behalf.run(|| matches(&one.source)))?;
    let mut refused = None;
    // The first comes last: while it is missing all are requested again.
    for (before, leaving) in all.into_iter().enumerate().rev() {
        let place = before + 1;
        if asked(desk, record, (number, place))?.is_some() {
            continue;
        }
        let new = api::NewRequest {
            submission_id: Some(name(record, number, place)),
            deadline: Some(deadline(one.deadline, at, SAFE_WITHIN)),
            only: leaving.only,
            ..request(one)
        };
        match ask_for(desk, (one, &behalf), lent, (leaving.source.as_path(), new)) {
            Err(refusal) if refusal.may_pass() => return Err(refusal),
            Err(refusal) => {
                refused.get_or_insert(refusal);
            }
            Ok(()) => {}
        }
    }
    refused.map_or(Ok(()), Err)
}

fn ask_for(
    desk: &Desk,
    (one, behalf): (&StageOut, &Behalf),
    lent: &mut Lent,
    (source, new): (&Path, api::NewRequest),
) -> Answer<()> {
    let source = behalf.run(|| owner::on_scratch(desk, source))?;
    let permit = desk.reserve_scan(owner::of_requests(behalf).as_ref(), &source)?;
    let goes_straight = goes_straight(desk, one);
    let to = match goes_to_address(desk, one) {
        true => {
            let below = behalf.run(|| Ok(below_pattern(&one.source, Path::new(&source))))?;
            let mut to = one.destination.clone() + &below;
            owner::writes(desk, behalf, &mut to)?;
            vec![to]
        }
        false => new.to,
    };
    let (via, code) = if goes_straight {
        (Vec::new(), String::new())
    } else {
        let size = || behalf.run(|| bytes_of(Path::new(&source), &new.only));
        let (via, code) = ways(desk, (one, Viewer::Owner(behalf.owner())), lent, &size)?;
        (via, code.to_string())
    };
    let terms = lent.terms(&via);
    let new = api::NewRequest {
        source,
        to,
        via,
        code,
        wishes: api::Wishes {
            owner: owner::of_requests(behalf),
            lent: terms,
            ..new.wishes
        },
        ..new
    };
    let (request, fresh) = submit::accept(&desk.centre, &new)?;
    if fresh {
        desk.centre.traced.begin(request.id);
        permit.send(request.id);
    }
    if !lent.is_empty() && !goes_straight {
        lent.take(&request.via, request.code, size(behalf, &request)?);
    }
    Ok(())
}

/// Returns whether a directive's results go to an address.
fn goes_to_address(desk: &Desk, one: &StageOut) -> bool {
    is_address(&one.destination) && desk.centre.depots.named(&one.destination).is_none()
}

/// Returns whether they go to that address without depots.
fn goes_straight(desk: &Desk, one: &StageOut) -> bool {
    one.via.is_empty() && goes_to_address(desk, one)
}

/// Returns the path below the destination for a match: everything after the pattern's fixed
/// beginning. Empty for a pattern that matches itself alone.
fn below_pattern(pattern: &str, source: &Path) -> String {
    let components = Path::new(pattern).components();
    let is_said = |component: &Component<'_>| {
        let Component::Normal(name) = component else {
            return true;
        };
        !name.as_bytes().iter().any(|byte| b"*?[{".contains(byte))
    };
    let said: PathBuf = components.take_while(is_said).collect();
    let said = std::fs::canonicalize(&said).unwrap_or(said);
    let below = source.strip_prefix(&said).unwrap_or(Path::new(""));
    match below.as_os_str().is_empty() {
        true => String::new(),
        false => format!("/{}", below.display()),
    }
}

/// Returns the depots that a result may use, and its code: the directive's depots, else those lent
/// for the job, else all. Of the lent ones, only those with room.
///
/// # Errors
/// [`ErrorKind::Full`] if none of them has room.
fn ways(
    desk: &Desk,
    (one, whose): (&StageOut, Viewer<'_>),
    lent: &Lent,
    size: &dyn Fn() -> Result<Bytes>,
) -> Result<(Vec<String>, Code)> {
    let all = || -> Vec<String> {
        let depots = desk.centre.depots.seen_by(whose);
        let names = depots.iter().map(|depot| depot.record.name.clone());
        names.collect()
    };
    let mut via: Vec<String> = match (one.via.is_empty(), lent.is_empty()) {
        (false, _) => submit::via(&desk.centre, whose, &one.via)?,
        (true, false) => lent.names(),
        (true, true) => all(),
    };
    if one.via.is_empty() {
        via.retain(|name| *name != one.destination);
    }
    if lent.is_empty() || via.is_empty() {
        let code = one.code.unwrap_or_else(|| usual_code(via.len()));
        return Ok((via, code));
    }
    let bytes = size()?;
    let (via, code) = lent.choose(via, one.code, bytes);
    if via.is_empty() {
        let why = format!(
            "what is lent for the job has no room for its {} bytes",
            bytes.get()
        );
        return Err(Error::new(ErrorKind::Full, "stage out", &one.source)
            .cause(why)
            .hint("it stays where it is: `posthaste offload` takes it over other depots"));
    }
    Ok((via, code))
}

/// Returns the request that a directive makes for all that it matches.
fn request(one: &StageOut) -> api::NewRequest {
    api::NewRequest {
        source: String::new(),
        only: Vec::new(),
        include: Vec::new(),
        exclude: Vec::new(),
        to: vec![one.destination.clone()],
        profile: None,
        deadline: None,
        deliver_by: None,
        purge_at: None,
        via: Vec::new(),
        code: String::new(),
        encrypt_for: Vec::new(),
        release: match one.release {
            Release::WhenSafe => api::Release::WhenSafe,
            Release::Never => api::Release::Never,
        },
        // The job has run: its results go as fast as possible.
        best_effort: true,
        keep_s: None,
        submission_id: None,
        optimizer: None,
        wishes: api::Wishes {
            pin: one.pin.clone(),
            ..api::Wishes::default()
        },
    }
}

/// Returns the current matches of a pattern: directories in order, then the files of each
/// directory. A path without any of `*?[{` matches itself.
fn matches(pattern: &str) -> Result<Vec<Leaving>> {
    let wrong = |kind, why: String| {
        Error::new(kind, "stage out", pattern)
            .cause(why)
            .at(Locus::Source)
    };
    let mut found = vec![PathBuf::from("/")];
    for component in Path::new(pattern).components() {
        match component {
            Component::RootDir => {}
            Component::Normal(name) => {
                let name = name.to_string_lossy();
                if name.contains(['*', '?', '[', '{']) {
                    let glob = GlobBuilder::new(&name).build();
                    let glob =
                        glob.map_err(|cause| wrong(ErrorKind::Invalid, cause.kind().to_string()))?;
                    found = below(&found, &glob.compile_matcher(), LOOKED_AT_MAX)?;
                } else {
                    for path in &mut found {
                        path.push(&*name);
                    }
                }
            }
            Component::Prefix(_) | Component::CurDir | Component::ParentDir => {
                return Err(wrong(ErrorKind::Invalid, "it goes up with `..`".into()));
            }
        }
    }
    if !pattern.starts_with('/') {
        return Err(wrong(ErrorKind::Invalid, "it is no absolute path".into()));
    }
    found.retain(|path| fs::symlink_metadata(path).is_ok());
    let leaving = gathered(found).map_err(|why| wrong(ErrorKind::Invalid, why))?;
    match leaving.len() {
        0 => Err(wrong(ErrorKind::NotFound, "nothing is there".into())),
        1..=MATCHES_MAX => Ok(leaving),
        many => {
            let why = format!("it matches in {many} places, {MATCHES_MAX} are the most");
            Err(wrong(ErrorKind::Invalid, why).hint("put them into one directory and name that"))
        }
    }
}

/// Returns the directories among these paths, and the files by their directory; or the path that
/// can't leave.
fn gathered(paths: Vec<PathBuf>) -> Result<Vec<Leaving>, String> {
    let (directories, files): (Vec<PathBuf>, Vec<PathBuf>) =
        paths.into_iter().partition(|path| path.is_dir());
    let mut by_folder: BTreeMap<PathBuf, Vec<String>> = BTreeMap::new();
    for path in files {
        // A link would be copied as a link, without its target.
        if !fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) {
            return Err(format!("{} is neither file nor directory", path.display()));
        }
        let name = path.file_name().and_then(OsStr::to_str);
        let (Some(folder), Some(name)) = (path.parent(), name) else {
            return Err(format!("the name {} is no UTF-8", path.display()));
        };
        let names = by_folder.entry(folder.to_owned()).or_default();
        names.push(name.to_owned());
        if names.len() > submit::ONLY_MAX {
            let most = submit::ONLY_MAX;
            return Err(format!(
                "more than {most} files of {} match",
                folder.display()
            ));
        }
    }
    let whole = directories.into_iter().map(|source| Leaving {
        source,
        only: Vec::new(),
    });
    let files = by_folder
        .into_iter()
        .map(|(source, only)| Leaving { source, only });
    Ok(whole.chain(files).collect())
}

/// Returns the matches in any of these directories, up to the given number of names. An unreadable
/// directory has no matches.
fn below(
    directories: &[PathBuf],
    glob: &globset::GlobMatcher,
    most: usize,
) -> Result<Vec<PathBuf>> {
    let (mut found, mut looked_at) = (Vec::new(), 0);
    for directory in directories {
        let names = fs::read_dir(directory).into_iter().flatten();
        for entry in names.filter_map(std::result::Result::ok) {
            looked_at += 1;
            if looked_at > most {
                return Err(owner::too_many(directory, most).at(Locus::Source));
            }
            if glob.is_match(Path::new(&entry.file_name())) {
                found.push(entry.path());
            }
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns the progress of all stage-outs that apply to how the job ended.
pub(super) fn show(desk: &Desk, record: &JobRecord, wanted: &Wanted) -> Result<Vec<api::Moved>> {
    let mut shown = Vec::new();
    for (one, number) in due(record, wanted) {
        let ways = (one.source.as_str(), one.destination.as_str());
        for place in 1..=MATCHES_MAX {
            let request = asked(desk, record, (number, place))?;
            if request.is_none() && place > 1 {
                break;
            }
            let moved = moved(desk, one.line, ways, request.as_ref());
            let whole = request.filter(|request| request.only.is_empty());
            let source = whole.map(|request| String::from_utf8_lossy(&request.source).into_owned());
            shown.push(api::Moved {
                source: source.unwrap_or_else(|| one.source.clone()),
                ..moved
            });
        }
    }
    Ok(shown)
}

/// Returns whether scratch no longer holds the only copy.
pub(super) const fn is_safe(state: api::RequestState) -> bool {
    use api::RequestState::{Arrived, Delivered, Released, Safe};

    matches!(state, Safe | Released | Delivered | Arrived)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_pattern_matches_keeps_its_path_below_what_all_have() {
        let folder = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(folder.path()).unwrap();
        fs::create_dir_all(root.join("run1/out")).unwrap();
        let below = |pattern: &str, source: &str| {
            let pattern = root.join(pattern).display().to_string();
            below_pattern(&pattern, &root.join(source))
        };
        assert_eq!(below("run1/out", "run1/out"), "");
        assert_eq!(below("run1/*.h5", "run1"), "");
        assert_eq!(below("run?/out", "run1/out"), "/run1/out");
        assert_eq!(below("*/o*", "run1/out"), "/run1/out");
    }

    #[test]
    fn patterns_match_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["run1/out", "run2/out", "run2/log"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        for name in ["run1/file", "run1/fist", "run2/file"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        std::os::unix::fs::symlink("file", folder.path().join("run2/link")).unwrap();
        let root = folder.path().display();
        let shown = |leaving: &Leaving| {
            let source = leaving.source.strip_prefix(folder.path()).unwrap();
            let names = leaving.only.iter().map(|name| format!(" {name}"));
            source.display().to_string() + &names.collect::<String>()
        };
        let below = |pattern: &str| {
            matches(&format!("{root}/{pattern}"))
                .map(|found| found.iter().map(shown).collect::<Vec<_>>())
        };
        assert_eq!(below("*/out").unwrap(), ["run1/out", "run2/out"]);
        assert_eq!(below("run2/log").unwrap(), ["run2/log"]);
        assert_eq!(below("run[12]").unwrap(), ["run1", "run2"]);
        assert_eq!(below("run2/{log,none}").unwrap(), ["run2/log"]);
        let files = ["run1 file fist", "run2 file"];
        assert_eq!(below("run*/f*").unwrap(), files);
        assert_eq!(below("run1/*").unwrap(), ["run1/out", "run1 file fist"]);
        for (pattern, kind) in [
            ("*.nc", ErrorKind::NotFound),
            ("absent", ErrorKind::NotFound),
            ("run1/../run2", ErrorKind::Invalid),
            ("[", ErrorKind::Invalid),
            ("run2/link", ErrorKind::Invalid),
        ] {
            assert_eq!(below(pattern).unwrap_err().kind(), kind, "{pattern}");
        }
        assert_eq!(matches("a/b").unwrap_err().kind(), ErrorKind::Invalid);
        let runs = ["run1", "run2"].map(|name| folder.path().join(name));
        let all = GlobBuilder::new("f*").build().unwrap().compile_matcher();
        assert_eq!(super::below(&runs, &all, 7).unwrap().len(), 3);
        let error = super::below(&runs, &all, 6).unwrap_err().to_string();
        assert!(error.contains("more than 6 files"), "{error}");
    }
}
