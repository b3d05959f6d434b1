//! Requests that go over depots to an address. Each is an ordinary offload, plus an export that
//! reads the dataset from the depots and writes it to the address.
//!
//! Both are recorded and scanned together, and submitted to the mind one after the other. The mind
//! answers them together.

use std::sync::Arc;

use posthaste_api as api;
use posthaste_core::contract::Input;
use posthaste_endpoint::{Error, ErrorKind, Locus, Result};
use posthaste_engine::{
    dataset::{DatasetId, FileList},
    pull::{DepotFiles, Holder, Ticket},
};
use posthaste_journal::{RequestRecord, Scan, StageIn};
use posthaste_types::{Code, RequestId, SourceId, Timestamp};

use super::{
    ahead::{check_room, look_ahead, refuse_inside},
    hosts::refuse_unknown_hosts,
    listed::Listed,
    submit::{self, address, check_address, is_address, is_far},
};
use crate::{
    depots::{Depots, Viewer},
    driver::Centre,
    render,
    store::Store,
    wishes,
};

/// Returns whether a request goes over depots to an address.
pub(crate) fn goes_on(record: &RequestRecord) -> bool {
    record.stage_in.is_none() && is_address(&record.destination)
}

/// Returns the offload from whose depots an export reads.
pub(crate) fn of(record: &RequestRecord) -> Option<RequestId> {
    // A source named by a stage-in is always an address, or several.
    super::goes_out(record).then_some(())?;
    std::str::from_utf8(&record.source).ok()?.parse().ok()
}

/// Returns the offload to depots, where the dataset must become safe, of a request that goes on to
/// an address. Returns none for other requests.
///
/// # Errors
/// [`ErrorKind::Invalid`] for options that contradict each other.
pub(crate) fn over_depots(
    centre: &Centre,
    new: &api::NewRequest,
) -> Result<Option<api::NewRequest>> {
    let Some(address) = address(centre, new) else {
        return Ok(None);
    };
    let invalid = |why: &str, hint: &str| {
        let error = Error::new(ErrorKind::Invalid, "submit", &new.source);
        Err(error.cause(why.to_owned()).hint(hint))
    };
    check_address(&address)?;
    refuse_unknown_hosts(centre, new, &address)?;
    if new.to.len() > 1 {
        let why = "an address is the only destination that it has";
        return invalid(why, "submit it once for each");
    }
    if address.contains(',') {
        let why = "there is a comma in the address";
        return invalid(why, "leave --via out, or name another place");
    }
    if is_far(&new.source) {
        let why = "depots take what lies on this machine, and the source lies elsewhere";
        return invalid(why, "leave --via out: it goes from there to there");
    }
    if !new.encrypt_for.is_empty() {
        let why = "what lies at an address is as it was, and encrypted it would not be";
        return invalid(why, "leave --encrypt-for out");
    }
    Ok(Some(api::NewRequest {
        to: vec![address],
        deadline: new.deadline.clone().or_else(|| new.deliver_by.clone()),
        deliver_by: None,
        ..new.clone()
    }))
}

/// Returns the export of a new request that goes on to an address.
///
/// # Errors
/// [`ErrorKind::Invalid`] for contradictory options, [`ErrorKind::Conflict`] if another request
/// goes to the same place.
pub(crate) fn of_new(
    centre: &Centre,
    new: &api::NewRequest,
    request: &RequestRecord,
) -> Result<Option<RequestRecord>> {
    if !goes_on(request) {
        return Ok(None);
    }
    let wanted = new.deliver_by.as_deref();
    let wanted = wanted.map(|at| render::parse_moment("when it is wanted there", at));
    let deadline = wanted.transpose()?.unwrap_or(request.deadline);
    if deadline <= request.created {
        let why = format!(
            "{}, when it is wanted there, has passed",
            render::moment(deadline)
        );
        return Err(Error::new(ErrorKind::Invalid, "submit", &new.source)
            .cause(why)
            .hint("give a later moment"));
    }
    let plain = wishes::plain(&new.wishes);
    let wishes = wishes::read(&plain, |_| None)?;
    let record = RequestRecord {
        id: RequestId::new(0),
        submission: Some(name(request)),
        dataset: DatasetId::random()?.to_string(),
        source: Vec::new(),
        code: Code::NONE,
        via: Vec::new(),
        pinned: Vec::new(),
        named: None,
        lent: Vec::new(),
        release: false,
        drops_extras: false,
        purge_at: None,
        stage_in: Some(StageIn {
            sources: Vec::new(),
            profile: new.profile.clone(),
            not_before: None,
            rate_max: wishes.rate_max,
        }),
        wishes,
        deadline,
        expires: deadline,
        ..request.clone()
    };
    submit::check_alone(centre, &record)?;
    Ok(Some(record))
}

/// Returns the submission id of a request's export, which nobody can know before.
fn name(request: &RequestRecord) -> String {
    format!("onward-{}", request.dataset)
}

/// Records both requests together, which get their numbers. Blocking.
///
/// # Errors
/// [`ErrorKind::Conflict`] if another request goes there too; the journal's.
pub(crate) fn write_down(
    centre: &Centre,
    request: &RequestRecord,
    onward: &RequestRecord,
) -> Result<RequestId> {
    let store = &centre.store;
    submit::take_place(centre, onward, || {
        store.journal(|journal| journal.insert_with_onward(request, onward))
    })
}

/// Finds the export of a request.
fn find(centre: &Centre, request: &RequestRecord) -> Result<RequestRecord> {
    let store = &centre.store;
    let found = store.journal(|journal| journal.submission(&name(request)))?;
    found.ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            "find",
            format!("as what {} goes on", request.id),
        )
    })
}

/// Examines the destination address of a request and records how much will go there.
///
/// # Errors
/// Problems found at the address.
pub(crate) async fn look(
    centre: &Arc<Centre>,
    request: &RequestRecord,
    list: Option<&[u8]>,
) -> Result<()> {
    let (onward, list) = tokio::task::block_in_place(|| {
        let list = match list {
            Some(list) => FileList::from_bytes(list)?,
            None => centre.store.list(request.id)?,
        };
        Ok::<_, Error>((find(centre, request)?, list))
    })?;
    let (scan, doubt) = scan(centre, &onward, &request.source, list).await?;
    if let Some(error) = doubt {
        // Both requests report the problem.
        centre.outgoing.complaints.note(request.id, &error);
        centre.outgoing.complaints.note(onward.id, &error);
    }
    tokio::task::block_in_place(|| centre.keep_scan(onward.id, scan, None))
}

/// Returns the scan of what goes to an address, and a temporary problem found there. `source` is
/// what the depots get.
///
/// # Errors
/// Problems found there.
async fn scan(
    centre: &Arc<Centre>,
    onward: &RequestRecord,
    source: &[u8],
    list: FileList,
) -> Result<(Scan, Option<Error>)> {
    let listed = Listed::Here(list);
    let behalf = submit::behalf_of(centre, onward)?;
    refuse_inside(source, &onward.destination, &behalf).await?;
    let doubt = look_ahead(onward, &behalf, &listed).await?;
    check_room(centre, onward, (source, &behalf), &listed).await?;
    Ok((submit::sealed(&listed), doubt))
}

/// Fails the export of a request whose source could not be scanned. Blocking.
///
/// # Errors
/// The journal's.
pub(crate) fn fail(centre: &Centre, request: &RequestRecord, scan: Scan) -> Result<()> {
    let onward = find(centre, request)?;
    centre.outgoing.places.give_back(onward.id);
    centre.keep_scan(onward.id, scan, None)
}

/// Tells the mind of a request's export. The mind receives the request itself next.
///
/// # Errors
/// The journal's, and that the service is ending.
pub(crate) async fn tell(centre: &Centre, request: &RequestRecord) -> Result<()> {
    let onward = tokio::task::block_in_place(|| find(centre, request))?;
    submit::submit(centre, &onward).await
}

/// Returns the inputs that the mind would get for the export, if the request were submitted. They
/// use an unused number.
///
/// # Errors
/// Problems found at the address.
pub(crate) async fn rehearsed(
    centre: &Arc<Centre>,
    new: &api::NewRequest,
    request: &RequestRecord,
    list: &FileList,
) -> Result<(Vec<Input>, Option<Error>)> {
    let Some(onward) = of_new(centre, new, request)? else {
        return Ok((Vec::new(), None));
    };
    let (scan, doubt) = scan(centre, &onward, &request.source, list.clone()).await?;
    let onward = RequestRecord {
        id: RequestId::new(u64::MAX),
        source: request.id.to_string().into_bytes(),
        scan: Some(scan),
        ..onward
    };
    let way = super::way::way(&onward);
    let mind = centre.mind();
    let known = mind.sources().find(|view| view.name == way);
    let number = known.map_or(SourceId::new(u32::MAX), |view| view.source);
    drop(mind);
    let rate_max = submit::rate_max(centre, &onward);
    Ok((submit::inputs(&onward, (number, way), rate_max), doubt))
}

/// Applies the user's changes of a request to its export, which has the same limit and priority. It
/// has the same deadline too until it gets another. Does nothing for a request without an export.
///
/// # Errors
/// The journal's.
pub(crate) fn changed(
    centre: &Centre,
    request: &RequestRecord,
    inputs: &[Input],
    deliver_by: Option<Timestamp>,
) -> Result<Vec<Input>> {
    if !goes_on(request) {
        return Ok(Vec::new());
    }
    let onward = tokio::task::block_in_place(|| find(centre, request))?;
    let mind = centre.mind();
    let by = |id| mind.arrival(id).map(|view| view.spec.deadline);
    let so_far = mind.request(request.id).map(|view| view.spec.deadline);
    let is_same = by(onward.id).is_some_and(|by| Some(by) == so_far);
    let id = onward.id;
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "nothing else is changed of both"
    )]
    let same = inputs.iter().filter_map(|input| match *input {
        Input::DeadlineMoved { deadline, .. } if is_same && deliver_by.is_none() => {
            Some(Input::DeadlineMoved {
                request: id,
                deadline,
            })
        }
        Input::RateLimited { rate_max, .. } => Some(Input::RateLimited {
            request: id,
            rate_max,
        }),
        Input::PriorityMoved { priority, .. } => Some(Input::PriorityMoved {
            request: id,
            priority,
        }),
        _ => None,
    });
    let moved = deliver_by.map(|deadline| Input::DeadlineMoved {
        request: id,
        deadline,
    });
    Ok(same.chain(moved).collect())
}

/// Opens the dataset on a request's depots for reading.
///
/// # Errors
/// At [`Locus::Source`]: the journal's, and that the dataset is not complete yet.
pub(super) async fn open(
    store: &Arc<Store>,
    depots: &Depots,
    request: RequestId,
) -> Result<DepotFiles> {
    let opened = tokio::task::block_in_place(|| {
        let record = store.request(request)?;
        let manifest = store.manifest(&record, None)?;
        Ok((record, manifest))
    });
    let (record, manifest) = opened.map_err(|error: Error| error.at(Locus::Source))?;
    let dataset = manifest.dataset;
    let named = record
        .holders()
        .filter_map(|name| depots.named_for(Viewer::of(&record), name));
    let holders = named.map(|depot| async move {
        // A depot that does not answer now is asked again when needed.
        let held = depot.client.inventory(&dataset).await.unwrap_or_default();
        let held = held.into_iter().map(|(chunk, index, _)| (chunk, index));
        Holder {
            name: depot.record.name.clone(),
            client: depot.client.clone(),
            held: held.collect(),
        }
    });
    let holders = futures_util::future::join_all(holders).await;
    let ticket = Ticket {
        manifest: Arc::new(manifest),
        holders,
    };
    Ok(DepotFiles::new(ticket, format!("{request} on depots")))
}
