//! Accepts an export: checks its destination, and submits it to the mind.

use std::{ffi::OsStr, sync::Arc};

use posthaste_api as api;
use posthaste_core::contract::{ArrivalSpec, Input, Outbox, StageInNews};
use posthaste_endpoint::{Endpoint, Error, ErrorKind, Location, Locus, Result, posix::DraftRules};
use posthaste_engine::dataset::{DatasetId, Lent};
use posthaste_journal::{RequestRecord, Scan, StageIn};
use posthaste_types::{ByteRate, Bytes, Code, Record, RequestId, SourceId};

use super::{
    ahead::{check_room, look_ahead},
    goes_out,
    hosts::refuse_unknown_hosts,
    listed::Listed,
    measure, onward,
    places::places,
    way::way,
};
use crate::{
    credentials::Behalf,
    driver::Centre,
    inbound::{
        look::{self, open_location},
        submit::whose,
    },
    purges, render, submit,
    submit::{REHEARSED, shown},
    wishes,
};

/// Longest address, in bytes.
const ADDRESS_BYTES_MAX: usize = 4096;

/// Returns the address that a request goes to directly; none if it goes over depots.
pub(crate) fn straight(centre: &Centre, new: &api::NewRequest) -> Option<String> {
    address(centre, new).filter(|_| new.via.is_empty())
}

/// Returns the destination address of a request, or none if it goes to a name.
pub(crate) fn address(centre: &Centre, new: &api::NewRequest) -> Option<String> {
    let is_one = |to: &&String| is_address(to) && centre.depots.named(to).is_none();
    new.to.iter().find(is_one).map(|to| address_of(to))
}

/// Returns whether a destination is written as an address rather than a name.
pub(crate) fn is_address(to: &str) -> bool {
    to.starts_with('/') || to.contains(':')
}

/// Returns the address of a destination. A path gets a form that differs from a stage-in's.
pub(crate) fn address_of(to: &str) -> String {
    if to.starts_with('/') {
        format!("file://{to}")
    } else {
        to.to_owned()
    }
}

/// Checks a request that goes to an address, with all its options.
///
/// # Errors
/// [`ErrorKind::Invalid`] for options that are invalid there, [`ErrorKind::Conflict`] if another
/// request goes to the same place.
pub(crate) fn check(
    centre: &Centre,
    new: &api::NewRequest,
    address: String,
) -> Result<RequestRecord> {
    let (source, only) = source(centre, new)?;
    check_address(&address)?;
    check_plain(new)?;
    refuse_unknown_hosts(centre, new, &address)?;
    let now = centre.clock.now();
    let moment = |what: &'static str, at: &Option<String>| {
        let at = at.as_deref().map(|at| render::parse_moment(what, at));
        at.transpose()
    };
    let deadline = moment("the deadline", &new.deadline)?;
    let deliver_by = moment("when it is wanted there", &new.deliver_by)?;
    let purge_at = submit::purge_at(new, now)?;
    let wanted = deadline.into_iter().chain(deliver_by).chain(purge_at).min();
    let Some(wanted) = wanted.filter(|_| deadline.or(deliver_by).is_some()) else {
        return Err(invalid(&new.source, "it has no deadline").hint("say when it must be there"));
    };
    if wanted <= now {
        let why = format!("the deadline {} has passed", render::moment(wanted));
        return Err(invalid(&new.source, &why).hint("give a later one"));
    }
    let wishes = wishes::read(&new.wishes, |_| None)?;
    let record = RequestRecord {
        id: RequestId::new(0),
        submission: new.submission_id.clone(),
        dataset: DatasetId::random()?.to_string(),
        source: source.clone().into_bytes(),
        only,
        named: None,
        patterns: submit::patterns(new)?,
        destination: address,
        code: Code::NONE,
        via: Vec::new(),
        pinned: Vec::new(),
        recipients: Vec::new(),
        release: new.release != api::Release::Never,
        drops_extras: new.release == api::Release::Anyway,
        best_effort: new.best_effort,
        optimizer: submit::optimizer(new.optimizer.as_deref())?,
        stage_in: Some(StageIn {
            sources: vec![source],
            profile: new.profile.clone(),
            not_before: None,
            rate_max: wishes.rate_max,
        }),
        lent: Vec::new(),
        one_file: None,
        wishes,
        created: now,
        deadline: wanted,
        purge_at,
        expires: wanted,
        scan: None,
        submitted: false,
        ended: None,
    };
    check_alone(centre, &record)?;
    Ok(record)
}

/// Returns the source, and the named files of it if not all are meant.
fn source(centre: &Centre, new: &api::NewRequest) -> Result<(String, Vec<String>)> {
    if !is_far(&new.source) {
        let (folder, only) = submit::source(centre, new)?;
        let shown = folder.display().to_string();
        let folder = folder.into_os_string().into_string();
        let folder = folder.map_err(|_| invalid(&shown, "its name is not UTF-8"));
        return Ok((folder?, only));
    }
    check_address(&new.source)?;
    if !new.only.is_empty() {
        let why = "files can be named of a directory of this machine only";
        return Err(invalid(&new.source, why).hint("name each one's own address"));
    }
    if new.release != api::Release::Never {
        let why = "only what lies on this machine can be removed in the end";
        return Err(invalid(&new.source, why).hint("leave --release out"));
    }
    Ok((new.source.clone(), Vec::new()))
}

/// Returns whether a source is remote.
pub(crate) fn is_far(source: &str) -> bool {
    is_address(source) && !source.starts_with('/')
}

fn invalid(what: &str, why: &str) -> Error {
    Error::new(ErrorKind::Invalid, "submit", what).cause(why.to_owned())
}

/// Checks that an address can be a destination.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an unreadable address, and for a path without a name.
pub(crate) fn check_address(address: &str) -> Result<()> {
    let location = Location::parse(OsStr::new(address))?;
    if address.len() > ADDRESS_BYTES_MAX {
        return Err(invalid("the destination", "it is too long"));
    }
    if let Location::Local(path) = &location
        && (!path.is_absolute() || path.file_name().is_none())
    {
        let why = "the path is relative, or no path with a name";
        return Err(invalid(address, why).hint("give an absolute path"));
    }
    Ok(())
}

/// Checks that no option needs depots: files go directly, as they are.
fn check_plain(new: &api::NewRequest) -> Result<()> {
    let plain = wishes::plain(&new.wishes);
    let what = if new.to.len() > 1 {
        "more than one destination"
    } else if !new.code.is_empty() {
        "erasure code"
    } else if !new.encrypt_for.is_empty() {
        "encryption"
    } else if new.keep_s.is_some() {
        "a time that depots keep it"
    } else if is_far(&new.source) && !(new.include.is_empty() && new.exclude.is_empty()) {
        "a choice of files where its source lies elsewhere"
    } else if new.wishes != plain {
        "what only depots can do"
    } else {
        return Ok(());
    };
    let why = format!("it goes straight to an address, and {what} can't be had then");
    Err(invalid(&new.source, &why).hint(
        "leave that out, name depots on its way with --via, or a destination that pulls it or runs a relay",
    ))
}

/// Checks that no other request goes to the same place.
///
/// # Errors
/// Errors of [`Places::check`](super::Places::check).
pub(super) fn check_alone(centre: &Centre, new: &RequestRecord) -> Result<()> {
    let places = places(new, &behalf_of(centre, new)?);
    let free = (&*new.destination, &places[..]);
    let check = || centre.outgoing.places.check(free, is_over(centre));
    tokio::task::block_in_place(check)
}

/// Records a request with `write` and reserves its place in the same step, unless another request
/// goes there. Blocking.
///
/// # Errors
/// Errors of [`check_alone`] and of `write`.
pub(crate) fn take_place<T>(
    centre: &Centre,
    new: &RequestRecord,
    write: impl FnOnce() -> Result<(T, RequestId)>,
) -> Result<T> {
    let places = places(new, &behalf_of(centre, new)?);
    let taken = &centre.outgoing.places;
    taken.take_for((&new.destination, places), is_over(centre), write)
}

/// Returns whether a request no longer writes to its place.
fn is_over(centre: &Centre) -> impl Fn(RequestId) -> bool {
    |request| {
        let known = centre.store.request(request);
        known.is_ok_and(|known| !is_open(centre, &known))
    }
}

/// Returns whether a request may still write to its place, or still has to remove its source here.
pub(crate) fn is_open(centre: &Centre, record: &RequestRecord) -> bool {
    match (centre.mind().arrival(record.id), &record.scan) {
        (Some(view), _) => view.state.is_live() || view.releases,
        (None, None) => true,
        // The export may wait for an answer together with its offload.
        (None, Some(Scan::Sealed { .. })) if onward::of(record).is_some() => record.ended.is_none(),
        (None, Some(Scan::Sealed { .. })) => !record.submitted && record.ended.is_none(),
        (None, Some(Scan::Failed { .. })) => false,
    }
}

/// Returns the decision that a request would get. It is asked of a copy of the mind, so nothing
/// changes.
///
/// # Errors
/// Errors of listing its source, and problems found at the address.
pub(crate) async fn rehearse(
    centre: &Arc<Centre>,
    mut record: RequestRecord,
    lent: &Arc<Lent>,
) -> Result<api::Request> {
    record.id = REHEARSED;
    let behalf = behalf_of(centre, &record)?;
    let (scan, listed, doubt) = look(centre, &record, &behalf, lent).await?;
    let measured = match &doubt {
        None => measure::before(centre, &record, &behalf, listed.bytes()).await,
        Some(_) => None,
    };
    record.scan = Some(scan);
    let look = || purges::rehearsed(centre, record, None);
    let record = tokio::task::block_in_place(look);
    let mut mind = centre.copy_of_mind()?;
    let way = way(&record);
    let known = mind.sources().find(|view| view.name == way);
    let number = known.map_or(SourceId::new(u32::MAX), |view| view.source);
    let (number, told) = measured.unwrap_or((number, Vec::new()));
    let asked = inputs(&record, (number, way), rate_max(centre, &record));
    let inputs = told.into_iter().chain(asked).collect();
    mind.step(centre.clock.now(), inputs, &mut Outbox::default());
    let mut request = shown(centre, &mind, &record);
    request
        .warnings
        .extend(doubt.map(|error| error.to_string()));
    Ok(request)
}

/// Lists the source of a request, examines its destination, and stores the list.
///
/// # Errors
/// Errors of [`rehearse`].
pub(crate) async fn scan(
    centre: &Arc<Centre>,
    record: &RequestRecord,
    lent: &Arc<Lent>,
) -> Result<Scan> {
    let behalf = behalf_of(centre, record)?;
    let (scan, listed, doubt) = look(centre, record, &behalf, lent).await?;
    let measured = match &doubt {
        None => measure::before(centre, record, &behalf, listed.bytes()).await,
        // An address that does not answer would be waited for once more.
        Some(_) => None,
    };
    for input in measured.into_iter().flat_map(|(_, told)| told) {
        centre.tell(input).await?;
    }
    let (id, store) = (record.id, &centre.store);
    if let Some(error) = doubt {
        centre.outgoing.complaints.note(id, &error);
    }
    match listed {
        Listed::Here(list) => tokio::task::block_in_place(|| {
            submit::settle(&list, centre.clock.now());
            store.keep_list(id, &list)
        })?,
        Listed::There(list) => {
            tokio::task::block_in_place(|| store.keep_stage_in_list(id, &list.to_bytes()))?;
        }
    }
    Ok(scan)
}

pub(super) fn behalf_of(centre: &Centre, record: &RequestRecord) -> Result<Behalf> {
    tokio::task::block_in_place(|| centre.store.actors.of(record))
}

async fn look(
    centre: &Arc<Centre>,
    record: &RequestRecord,
    behalf: &Behalf,
    lent: &Arc<Lent>,
) -> Result<(Scan, Listed, Option<Error>)> {
    let listed = Listed::look(record, behalf, lent).await?;
    check_one(record, &listed)?;
    if let Listed::Here(list) = &listed {
        submit::check_kept(record, list)?;
    }
    let doubt = look_ahead(record, behalf, &listed).await?;
    check_room(centre, record, (&record.source, behalf), &listed).await?;
    Ok((sealed(&listed), listed, doubt))
}

/// Returns the scan of a listed source.
pub(super) fn sealed(listed: &Listed) -> Scan {
    Scan::Sealed {
        bytes: listed.bytes(),
        files: listed.files(),
        chunk_size: chunk_size_for(listed.bytes()),
    }
}

/// Returns the chunk size: a chunk is the unit of allowance and of progress, so a request has some
/// hundreds.
fn chunk_size_for(bytes: Bytes) -> Bytes {
    Bytes::mebi((bytes.get() >> 30).clamp(4, 1024))
}

/// Checks that a source requested as one file is a file.
fn check_one(record: &RequestRecord, listed: &Listed) -> Result<()> {
    if record.one_file.is_none() || listed.is_single() {
        return Ok(());
    }
    let source = String::from_utf8_lossy(&record.source).into_owned();
    Err(Error::new(ErrorKind::Invalid, "copy", source)
        .cause("it is a directory, and one file was asked for")
        .at(Locus::Source))
}

/// Returns the profile that opens the destination, if one was named.
pub(super) fn profile_there(record: &RequestRecord) -> Option<&String> {
    match (&record.one_file, &record.stage_in) {
        (Some(one), _) => one.profile.as_ref(),
        (None, stage) => stage.as_ref().and_then(|stage| stage.profile.as_ref()),
    }
}

/// Opens the destination of a request.
///
/// # Errors
/// Errors of opening it.
pub(super) async fn open(record: &RequestRecord, behalf: &Behalf) -> Result<Arc<dyn Endpoint>> {
    let given = behalf.given(&record.destination)?;
    let location = Location::parse(given.as_ref())?;
    let opened = open_location(location, profile_there(record), behalf, rules(record)).await;
    opened.map_err(|error| error.at(Locus::Destination))
}

/// Returns how its files are written: no file replaces another unless that was requested, and each
/// is on the disk before it counts, since its source, or what depots hold of it, may go then.
pub(super) fn rules(record: &RequestRecord) -> DraftRules {
    DraftRules {
        replaces: record.one_file.as_ref().is_some_and(|one| one.replaces),
        fsync: true,
        ..DraftRules::default()
    }
}

/// Submits a listed request to the mind.
///
/// # Errors
/// The journal's, and that the service is ending.
pub(crate) async fn submit(centre: &Centre, record: &RequestRecord) -> Result<()> {
    if !goes_out(record) {
        return Ok(());
    }
    let record = &tokio::task::block_in_place(|| purges::bound(centre, record.clone()))?;
    let way = way(record);
    let number = centre.store.journal(|journal| journal.source(&way))?;
    for input in inputs(record, (number, way), rate_max(centre, record)) {
        centre.tell(input).await?;
    }
    Ok(())
}

/// Returns the destination's rate limit from its current profile. An unreadable profile shows when
/// it is used.
pub(super) fn rate_max(centre: &Centre, record: &RequestRecord) -> Option<ByteRate> {
    let behalf = behalf_of(centre, record).ok()?;
    look::rate_max(&record.destination, profile_there(record), &behalf).ok()?
}

/// Returns the inputs for the mind, with the path that the request takes.
pub(super) fn inputs(
    record: &RequestRecord,
    (source, name): (SourceId, String),
    rate_max: Option<ByteRate>,
) -> Vec<Input> {
    let (
        Some(wanted),
        Some(Scan::Sealed {
            bytes,
            files,
            chunk_size,
        }),
    ) = (&record.stage_in, &record.scan)
    else {
        return Vec::new();
    };
    let request = record.id;
    let news = match onward::of(record) {
        Some(of) => StageInNews::GoesOn { of },
        None => StageInNews::GoesOut {
            release: record.release,
        },
    };
    let spec = ArrivalSpec {
        bytes: *bytes,
        files: *files,
        chunk_size: *chunk_size,
        deadline: record.purge_at.into_iter().fold(record.deadline, Ord::min),
        not_before: None,
        sources: vec![source],
        priority: record.wishes.priority,
        rate_max: wanted.rate_max,
        best_effort: record.best_effort,
    };
    let inputs = [
        Input::SourceFound {
            source,
            name,
            rate_max,
        },
        Input::StageInTold { request, news },
        Input::ArrivalAsked { request, spec },
    ];
    inputs
        .into_iter()
        .chain(whose(request, &record.wishes))
        .collect()
}
