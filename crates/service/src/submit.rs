//! Accepts a stage-out: records it, scans its source, and submits it to the mind.

mod going;
mod known;
pub(crate) mod lent;
mod named;
mod scans;
mod shares;
mod times;
mod told;
mod turns;

use std::{os::unix::ffi::OsStrExt, path::PathBuf, sync::Arc};

use posthaste_api as api;
use posthaste_core::{
    Mind,
    contract::{Command, Input, Method, Outbox, ReleasePolicy, RequestSpec, Wishes},
};
use posthaste_endpoint::{Error, ErrorKind, Locus, Result, is_slip};
use posthaste_engine::{
    dataset::{self, Bounds, FileList, Root, Wanted},
    envelope::age::{RECIPIENTS_MAX, Recipient},
};
use posthaste_journal::{RequestRecord, Scan};
use posthaste_types::{RequestId, Timestamp, encrypted_sizes};

use crate::{
    depots::Viewer, driver::Centre, hands::solved, inbound, outbound, purges, render,
    tokens::OF_OWNER, wishes,
};
pub(crate) use going::{Begun, Place, Scans};
pub(crate) use known::{known, known_as, other_content};
pub(crate) use named::{check_named, rehearse_named};
use scans::sealed;
pub(crate) use scans::{check_kept, failed, listed, patterns, scan_all, settle};
pub(crate) use times::purge_at;
use times::{deadlines, expiry};
use told::{asked, ids};
pub(crate) use turns::Turns;

/// Depots and destinations one request may name: they fit the bits of one word of the mind.
const HOLDERS_MAX: usize = 64;
/// Number of a rehearsed request, beyond all others as the next one's would be: order and
/// forgetting go by it. Only the number of its export comes after.
pub(crate) const REHEARSED: RequestId = RequestId::new(u64::MAX - 1);
/// Most named files of one request: the journal has their names.
pub(crate) const ONLY_MAX: usize = 10_000;
/// Longest name that people give, in bytes.
const NAME_BYTES_MAX: usize = 200;

/// Checks a request and records it. Submitting a submission id again returns the first request.
///
/// # Errors
/// [`ErrorKind::Invalid`] for invalid options, [`ErrorKind::NotFound`] for a missing source or
/// depot.
pub(crate) fn accept(centre: &Centre, new: &api::NewRequest) -> Result<(RequestRecord, bool)> {
    let _turn = centre.turns.wait(new.submission_id.as_deref());
    if let Some(known) = known(centre, new)? {
        return Ok((known, false));
    }
    let record = match outbound::submit::straight(centre, new) {
        Some(address) => outbound::submit::check(centre, new, address)?,
        None => check(centre, new)?,
    };
    keep(centre, new, record)
}

/// Records the checked request, or returns the one submitted under its id meanwhile, and whether it
/// is new.
///
/// # Errors
/// Errors of [`write_down`].
pub(crate) fn keep(
    centre: &Centre,
    new: &api::NewRequest,
    record: RequestRecord,
) -> Result<(RequestRecord, bool)> {
    let dataset = record.dataset.clone();
    let onward = outbound::onward::of_new(centre, new, &record)?;
    match write_down(centre, record, onward) {
        Ok(record) => Ok((record, true)),
        // Another caller may have submitted the same meanwhile, or the write succeeded and only its
        // answer was lost.
        Err(error) => match known(centre, new)? {
            Some(known) => {
                let is_new = known.dataset == dataset;
                Ok((known, is_new))
            }
            None => Err(error),
        },
    }
}

/// Records a checked request, which gets its number, together with its export.
///
/// # Errors
/// [`ErrorKind::Busy`] if its owner's quota is full, [`ErrorKind::Conflict`] if another request
/// goes to its address; the journal's.
pub(crate) fn write_down(
    centre: &Centre,
    mut record: RequestRecord,
    onward: Option<RequestRecord>,
) -> Result<RequestRecord> {
    centre.store.actors.of(&record)?;
    let place = centre.quotas.reserve(centre, &record)?;
    centre.store.make_key(&record)?;
    record.id = match onward {
        Some(onward) => outbound::onward::write_down(centre, &record, &onward)?,
        None if outbound::goes_out(&record) => {
            outbound::submit::take_place(centre, &record, || {
                let id = centre.store.insert_request(record.clone())?;
                Ok((id, id))
            })?
        }
        None => centre.store.insert_request(record.clone())?,
    };
    if let Some(place) = place {
        place.keep(&record);
    }
    Ok(record)
}

/// Returns the decision that a request would get. It is asked of a copy of the mind, so nothing
/// changes.
///
/// # Errors
/// Errors of [`accept`] and of the scan.
pub(crate) async fn rehearse(centre: &Arc<Centre>, new: &api::NewRequest) -> Result<api::Request> {
    let owner = new.wishes.owner.as_deref().unwrap_or_default();
    let leave = centre.scans.rehearse(owner).await;
    if let Some(address) = outbound::submit::straight(centre, new) {
        let record = outbound::submit::check(centre, new, address)?;
        drop(centre.quotas.reserve(centre, &record)?);
        return outbound::submit::rehearse(centre, record, &leave.lent).await;
    }
    let mut record = check(centre, new)?;
    drop(centre.quotas.reserve(centre, &record)?);
    record.id = REHEARSED;
    let (root, only) = source(centre, new)?;
    let actor = tokio::task::block_in_place(|| centre.store.actors.of(&record))?;
    let patterns = record.patterns.clone();
    let wanted = Wanted::default();
    let bounds = Bounds::while_wanted(&wanted).sharing(&leave.lent);
    let look = move || listed(&Root::open(&root, false)?.within(bounds), &only, &patterns);
    let list = actor.blocking(look).await?;
    check_kept(&record, &list)?;
    let onward = outbound::onward::rehearsed(centre, new, &record, &list).await?;
    decided(centre, record, &list, onward)
}

/// Returns the decision that a request about these files would get, after the mind was told of its
/// export.
fn decided(
    centre: &Centre,
    mut record: RequestRecord,
    list: &FileList,
    (onward, doubt): (Vec<Input>, Option<Error>),
) -> Result<api::Request> {
    record.scan = Some(sealed(&record, list));
    let look = || purges::rehearsed(centre, record, Some(list));
    let record = tokio::task::block_in_place(look);
    let mut mind = centre.copy_of_mind()?;
    let told = lent::told(centre, &record)?.into_iter().chain(onward);
    mind.step(centre.clock.now(), told.collect(), &mut Outbox::default());
    if let Some(spec) = specification(centre, &record)? {
        let pinned = ids(centre, &record, &record.pinned)?;
        let mut inputs = vec![asked(&record, spec, pinned)];
        while !inputs.is_empty() {
            let mut out = Outbox::default();
            mind.step(centre.clock.now(), inputs, &mut out);
            inputs =
                tokio::task::block_in_place(|| out.commands.iter().filter_map(answer).collect());
        }
    }
    let mut request = shown(centre, &mind, &record);
    request
        .warnings
        .extend(doubt.map(|error| error.to_string()));
    Ok(request)
}

/// Returns the view of a rehearsed request. It would get other numbers, which are unknown.
pub(crate) fn shown(centre: &Centre, mind: &Mind, record: &RequestRecord) -> api::Request {
    api::Request {
        id: RequestId::new(0).to_string(),
        goes_on_as: None,
        ..render::request(centre, mind, record)
    }
}

/// Returns the hands' answer to a command that changes nothing outside.
fn answer(command: &Command) -> Option<Input> {
    let Command::Solve {
        number,
        problem,
        effort,
        reason: _,
    } = command
    else {
        return None;
    };
    Some(solved(*number, problem, *effort))
}

/// Parses the recipients of an encrypted dataset, without duplicates. An invalid one may be a
/// secret given by mistake, so it is not shown.
fn recipients(texts: &[String]) -> Result<Vec<String>> {
    let invalid = |what: String| Error::new(ErrorKind::Invalid, "encrypt for", what);
    let mut recipients = Vec::new();
    for (text, number) in texts.iter().zip(1..) {
        let recipient = text.parse::<Recipient>();
        let recipient =
            recipient.map_err(|cause| invalid(format!("recipient {number}")).cause(cause))?;
        recipients.push(recipient.to_string());
    }
    recipients.sort_unstable();
    recipients.dedup();
    if recipients.len() > RECIPIENTS_MAX {
        let many = format!("{} recipients", recipients.len());
        return Err(invalid(many).cause(format!("{RECIPIENTS_MAX} at most")));
    }
    Ok(recipients)
}

/// Returns the optimizer of that name, or the default one.
pub(crate) fn optimizer(name: Option<&str>) -> Result<Method> {
    let named = name.map(str::parse::<Method>).transpose();
    let named = named
        .map_err(|cause| Error::new(ErrorKind::Invalid, "submit", "the request").cause(cause))?;
    Ok(named.unwrap_or_default())
}

fn wishes(centre: &Centre, new: &api::NewRequest, keep_until: Option<Timestamp>) -> Result<Wishes> {
    let whose = Viewer::new(new.wishes.owner.as_deref());
    for name in &new.wishes.without {
        centre.depots.known(whose, "do without", name)?;
    }
    let depot_of = |name: &str| {
        let depot = centre.depots.known(whose, "do without", name).ok()?;
        Some(depot.record.id)
    };
    Ok(Wishes {
        keep_until,
        ..wishes::read(&new.wishes, depot_of)?
    })
}

/// Returns the depots that may hold it, without duplicates, in order of preference.
pub(crate) fn via(centre: &Centre, whose: Viewer<'_>, names: &[String]) -> Result<Vec<String>> {
    let known = |name: &String| centre.depots.known(whose, "send via", name);
    let via = names
        .iter()
        .map(|name| Ok(known(name)?.record.name.clone()));
    let mut via: Vec<String> = via.collect::<Result<_>>()?;
    let mut seen = std::collections::BTreeSet::new();
    via.retain(|name| seen.insert(name.clone()));
    Ok(via)
}

/// Returns the destinations without duplicates: one name that may be any, or several registered
/// ones.
fn destinations(centre: &Centre, whose: Viewer<'_>, names: &[String]) -> Result<String> {
    let names = each_once(names);
    let unknown = names
        .iter()
        .find(|name| centre.depots.named_for(whose, name).is_none());
    if let Some(unknown) = unknown {
        if names.len() > 1 || unknown.contains(',') {
            centre.depots.known(whose, "deliver to", unknown)?;
        }
        destination(centre, whose, unknown)?;
    }
    Ok(names.join(","))
}

/// Returns the names without duplicates, in order of their first use.
fn each_once(names: &[String]) -> Vec<&str> {
    let mut seen = std::collections::BTreeSet::new();
    let names = names.iter().map(String::as_str);
    names.filter(|name| seen.insert(*name)).collect()
}

/// Checks that a destination is a depot's name, or that of an unregistered puller and no typo of a
/// depot's.
///
/// # Errors
/// [`ErrorKind::NotFound`] with the name that was probably meant.
pub(crate) fn destination(centre: &Centre, whose: Viewer<'_>, name: &str) -> Result<()> {
    let all = centre.depots.seen_by(whose);
    let is_known = all.iter().any(|depot| depot.record.name == name);
    if !is_known && all.iter().any(|depot| is_slip(name, &depot.record.name)) {
        centre.depots.known(whose, "deliver to", name)?;
    }
    Ok(())
}

/// Returns the directory of a request, and the named files in it if not all are meant: for a single
/// file, that one.
pub(crate) fn source(centre: &Centre, new: &api::NewRequest) -> Result<(PathBuf, Vec<String>)> {
    let invalid = |why: String, hint: &str| {
        let error = Error::new(ErrorKind::Invalid, "submit", &new.source);
        error.cause(why).hint(hint)
    };
    let source = PathBuf::from(&new.source);
    if !source.is_absolute() {
        return Err(invalid(
            "the source path is relative".into(),
            "give an absolute path",
        ));
    }
    let owner = new.wishes.owner.as_deref().unwrap_or_default();
    let found = centre.store.actors.owner(owner)?.run(|| {
        std::fs::symlink_metadata(&source).map_err(|cause| {
            let error = Error::io("offload", &new.source, cause).at(Locus::Source);
            error.hint("check the path: it is one of the service's machine")
        })
    })?;
    let name = source.file_name().and_then(|name| name.to_str());
    let is_one = found.is_file() && new.only.is_empty();
    if let (true, Some(name), Some(folder)) = (is_one, name, source.parent()) {
        return Ok((folder.to_owned(), vec![name.to_owned()]));
    }
    if new.only.len() > ONLY_MAX {
        let why = format!(
            "{} files are named, {ONLY_MAX} are the most",
            new.only.len()
        );
        return Err(invalid(why, "name the directory that holds them"));
    }
    let is_plain = |name: &String| !name.contains('/') && dataset::is_path_below(name.as_bytes());
    if let Some(name) = new.only.iter().find(|name| !is_plain(name)) {
        let why = format!("`{}` is no name of a file in it", name.escape_debug());
        return Err(invalid(why, "give names without slashes"));
    }
    let only: std::collections::BTreeSet<&String> = new.only.iter().collect();
    Ok((source, only.into_iter().cloned().collect()))
}

fn check(centre: &Centre, new: &api::NewRequest) -> Result<RequestRecord> {
    let invalid = |what: &str, why: &str, hint: &str| {
        Error::new(ErrorKind::Invalid, "submit", what)
            .cause(why.to_owned())
            .hint(hint)
    };
    let over_depots = outbound::onward::over_depots(centre, new)?;
    let new = over_depots.as_ref().unwrap_or(new);
    let (source, only) = source(centre, new)?;
    let code: posthaste_types::Code = new.code.parse().map_err(|cause| {
        Error::new(ErrorKind::Invalid, "read", format!("code {}", new.code)).cause(cause)
    })?;
    let now = centre.clock.now();
    let whose = Viewer::new(new.wishes.owner.as_deref());
    let (deadline, deliver_by) = deadlines(centre, new, now)?;
    let length_ok = |name: &str| {
        let is_plain = !name.contains(posthaste_types::is_obeyed);
        is_plain && !name.is_empty() && name.len() <= NAME_BYTES_MAX
    };
    if new.via.len() + new.wishes.pin.len() + new.to.len() > HOLDERS_MAX
        || new.to.is_empty()
        || !(new.to.iter()).all(|name| length_ok(name) || over_depots.is_some())
        || !new
            .submission_id
            .iter()
            .all(|id| id.split(OF_OWNER).all(length_ok))
    {
        return Err(invalid(
            &new.source,
            "a name or the list of depots is empty, too long, or has control characters",
            "give another",
        ));
    }
    let expires = expiry(new, now, deliver_by.map_or(deadline, |by| by.max(deadline)))?;
    Ok(RequestRecord {
        id: RequestId::new(0),
        submission: new.submission_id.clone(),
        dataset: dataset::DatasetId::random()?.to_string(),
        source: source.as_os_str().as_bytes().to_vec(),
        only,
        named: None,
        patterns: patterns(new)?,
        destination: destinations(centre, whose, &new.to)?,
        code,
        via: via(centre, whose, &new.via)?,
        pinned: via(centre, whose, &new.wishes.pin)?,
        recipients: recipients(&new.encrypt_for)?,
        release: new.release != api::Release::Never,
        drops_extras: new.release == api::Release::Anyway,
        best_effort: new.best_effort,
        optimizer: optimizer(new.optimizer.as_deref())?,
        wishes: Wishes {
            deliver_by,
            // Unless the user asked to keep it, depots remove the dataset at delivery.
            ..wishes(centre, new, new.keep_s.map(|_| expires))?
        },
        stage_in: None,
        lent: lent::read(centre, whose, &new.wishes.lent)?,
        one_file: None,
        created: now,
        deadline,
        purge_at: purge_at(new, now)?,
        expires,
        scan: None,
        submitted: false,
        ended: None,
    })
}

/// Submits a sealed request to the mind.
///
/// # Errors
/// [`ErrorKind::NotFound`] if a depot was removed meanwhile.
pub(crate) async fn submit(centre: &Centre, request: RequestId) -> Result<()> {
    let record = centre.store.request(request)?;
    if outbound::goes_out(&record) {
        return outbound::submit::submit(centre, &record).await;
    }
    if record.stage_in.is_some() {
        return inbound::submit::submit(centre, &record).await;
    }
    let record = tokio::task::block_in_place(|| purges::bound(centre, record))?;
    for input in lent::told(centre, &record)? {
        centre.tell(input).await?;
    }
    if outbound::onward::goes_on(&record) {
        outbound::onward::tell(centre, &record).await?;
    }
    match specification(centre, &record)? {
        Some(spec) => {
            let pinned = ids(centre, &record, &record.pinned)?;
            let left_out = crate::omissions::of_no_files(centre, &record)?;
            let asked = asked(&record, spec, pinned);
            centre.tell_together(asked, left_out).await
        }
        None => Ok(()),
    }
}

/// Returns the request as the mind sees it, once its source is scanned.
fn specification(centre: &Centre, record: &RequestRecord) -> Result<Option<RequestSpec>> {
    let Some(Scan::Sealed {
        bytes,
        files,
        chunk_size,
    }) = record.scan
    else {
        return Ok(None);
    };
    let via = ids(centre, record, &record.via)?;
    // The mind counts the bytes that depots store.
    let (bytes, chunk_size) = if record.recipients.is_empty() {
        (bytes, chunk_size)
    } else {
        encrypted_sizes(bytes, chunk_size)
    };
    Ok(Some(RequestSpec {
        bytes,
        files,
        chunk_size,
        deadline: record.deadline,
        code: record.code,
        via,
        destinations: record
            .destinations()
            .filter_map(|name| centre.depots.named_for(Viewer::of(record), name))
            .map(|depot| depot.record.id)
            .collect(),
        release: if record.release {
            ReleasePolicy::WhenSafe
        } else {
            ReleasePolicy::Never
        },
        best_effort: record.best_effort,
    }))
}
