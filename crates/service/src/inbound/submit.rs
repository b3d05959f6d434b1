//! Accepts a stage-in: records it, lists its sources, and submits it to the mind.

use std::{ffi::OsStr, path::Path, sync::Arc};

use posthaste_api as api;
use posthaste_core::contract::{
    ArrivalSpec, Input, NearDepot, Outbox, SourcePrice, StageInNews, Wishes,
};
use posthaste_endpoint::{Error, ErrorKind, Location, Locus, Prices, Result};
use posthaste_engine::{
    dataset::{DatasetId, Lent},
    draft::Draft,
};
use posthaste_journal::{Patterns, RequestRecord, Scan, StageIn};
use posthaste_types::{ByteRate, Bytes, Code, Record, RequestId, SourceId};

use super::{
    apart,
    list::List,
    look::{self, Terms},
    measure, near, room, stage, ways,
};
use crate::{
    credentials::Behalf,
    depots::{Depot, Viewer},
    driver::Centre,
    jobs::stage_in::is_of_job,
    outbound::ahead::refuse_inside_here,
    render,
    submit::{self, REHEARSED, known_as, other_content, shown},
    wishes,
};

/// Most sources of one stage-in.
pub(super) const SOURCES_MAX: usize = 16;
/// Longest address or path, in bytes.
const ADDRESS_BYTES_MAX: usize = 8192;
/// Checks a stage-in and records it. Submitting a submission id again returns the first request.
///
/// # Errors
/// [`ErrorKind::Invalid`] for invalid options, [`ErrorKind::Conflict`] if something lies at the
/// destination, and the journal's.
pub(crate) fn accept(centre: &Centre, new: &api::NewStageIn) -> Result<(RequestRecord, bool)> {
    let _turn = centre.turns.wait(new.submission_id.as_deref());
    if let Some(known) = known_as(centre, new.submission_id.as_deref(), new.owner.as_ref())? {
        let sources = known.stage_in.as_ref().map(|stage_in| &stage_in.sources);
        if sources != Some(&new.sources) || known.destination != new.to {
            return Err(other_content(&known));
        }
        return Ok((known, false));
    }
    let mut record = check(centre, new)?;
    let place = centre.quotas.reserve(centre, &record)?;
    record.id = centre.store.insert_request(record.clone())?;
    if let Some(place) = place {
        place.keep(&record);
    }
    Ok((record, true))
}

/// Returns the decision that a stage-in would get. It is asked of a copy of the mind, so nothing
/// changes.
///
/// # Errors
/// Errors of [`accept`] and of examining the sources.
pub(crate) async fn rehearse(centre: &Arc<Centre>, new: &api::NewStageIn) -> Result<api::Request> {
    let owner = new.owner.as_deref().unwrap_or_default();
    let leave = centre.scans.rehearse(owner).await;
    let mut record = check(centre, new)?;
    drop(centre.quotas.reserve(centre, &record)?);
    record.id = REHEARSED;
    let Some(wanted) = record.stage_in.clone() else {
        return Err(invalid("a stage-in", "it has no sources"));
    };
    let behalf = tokio::task::block_in_place(|| centre.store.actors.of(&record))?;
    let list = look::look(&wanted, &behalf, &leave.lent).await?;
    let terms = tokio::task::block_in_place(|| look::terms(&wanted, &behalf))?;
    check_there(centre, &record, &behalf, &list)?;
    record.scan = Some(sealed(&list));
    let measured = measure::before(centre, &record, &behalf, &list).await;
    let mut mind = centre.copy_of_mind()?;
    // Known sources keep their forecasts; others get unused numbers.
    let known: Vec<(SourceId, String)> = mind
        .sources()
        .map(|view| (view.source, view.name))
        .collect();
    let numbers = (0u32..)
        .zip(ways(&record.wishes.owner, &wanted.sources))
        .map(|(place, way)| {
            let found = measured.iter().map(|(number, name, _)| (number, name));
            let known = known.iter().map(|(number, name)| (number, name));
            let known = found.chain(known).find(|(_, name)| **name == way);
            let number = known.map_or(SourceId::new(u32::MAX - place), |(number, _)| *number);
            (number, way)
        });
    let numbers: Vec<(SourceId, String)> = numbers.collect();
    let asked = inputs(&record, &numbers, &list, &terms);
    let told = measured.into_iter().flat_map(|(_, _, told)| told);
    let mut inputs: Vec<Input> = told.chain(asked).collect();
    let near = (0u32..).zip(near(centre, &record));
    let near = near.map(|(place, depot)| (SourceId::new(u32::MAX / 2 - place), depot));
    inputs.extend(may_wait(record.id, near.collect()));
    mind.step(centre.clock.now(), inputs, &mut Outbox::default());
    Ok(shown(centre, &mind, &record))
}

/// Lists the sources of a request and stores the list.
///
/// # Errors
/// Errors of listing and of the operating system.
pub(crate) async fn scan(
    centre: &Arc<Centre>,
    record: &RequestRecord,
    lent: &Arc<Lent>,
) -> Result<Scan> {
    let wanted = record.stage_in.as_ref();
    let wanted = wanted.ok_or_else(|| invalid("a stage-in", "it has no sources"))?;
    let behalf = tokio::task::block_in_place(|| centre.store.actors.of(record))?;
    let list = look::look(wanted, &behalf, lent).await?;
    if let Some(line) = list.left_out.first().filter(|_| is_of_job(record)) {
        return Err(
            Error::new(ErrorKind::PermissionDenied, "stage in", &record.destination)
                .cause(line.clone())
                .at(Locus::Source),
        );
    }
    check_there(centre, record, &behalf, &list)?;
    let scan = sealed(&list);
    for (_, _, told) in measure::before(centre, record, &behalf, &list).await {
        for input in told {
            centre.tell(input).await?;
        }
    }
    tokio::task::block_in_place(|| centre.store.keep_stage_in_list(record.id, &list.to_bytes()))?;
    Ok(scan)
}

/// Checks that the destination has room for the files, and that their names are valid there.
fn check_there(
    centre: &Centre,
    record: &RequestRecord,
    behalf: &Behalf,
    list: &List,
) -> Result<()> {
    room::check(centre, record.id, &record.destination, list.bytes())?;
    let files = list.files.iter().map(|file| &file.path[..]);
    let names = list.directories.iter().map(|path| &path[..]).chain(files);
    let names: Vec<&[u8]> = names.collect();
    let draft = Draft::new(Path::new(&record.destination), &record.dataset);
    let draft = draft.acting(behalf.actor().clone());
    tokio::task::block_in_place(|| draft.refuse_clash(&names))
}

fn sealed(list: &List) -> Scan {
    let bytes = list.bytes();
    Scan::Sealed {
        bytes,
        files: list.files.len() as u64,
        chunk_size: chunk_size_for(bytes),
    }
}

/// Small enough that several are on their way from a slow source, large enough that a fast one is not asked
/// a hundred times a second.
pub(super) fn chunk_size_for(bytes: Bytes) -> Bytes {
    const GIBI: u64 = 1 << 30;
    Bytes::mebi(match bytes.get() / GIBI {
        0..8 => 4,
        8..1024 => 16,
        _ => 64,
    })
}

/// Fails a stage-in, and nothing else, if its sources are no longer usable as they were when
/// listed.
fn give_up(centre: &Centre, request: RequestId, error: &Error) -> Result<()> {
    tracing::warn!(%request, "{error}");
    let scan = submit::failed(error);
    tokio::task::block_in_place(|| centre.keep_scan(request, scan, None))
}

/// Submits a listed stage-in to the mind. It fails if its profile or credentials have gone since.
///
/// # Errors
/// The journal's, and that the service is ending.
pub(crate) async fn submit(centre: &Centre, record: &RequestRecord) -> Result<()> {
    let Some(wanted) = &record.stage_in else {
        return Ok(());
    };
    let mut numbers = Vec::new();
    for way in ways(&record.wishes.owner, &wanted.sources) {
        let number = centre.store.journal(|journal| journal.source(&way))?;
        numbers.push((number, way));
    }
    let id = record.id;
    let terms = tokio::task::block_in_place(|| {
        let behalf = centre.store.actors.of(record)?;
        look::terms(wanted, &behalf)
    });
    let terms = match terms {
        Ok(terms) => terms,
        Err(error) => return give_up(centre, id, &error),
    };
    let list = tokio::task::block_in_place(|| centre.store.stage_in_list(id))?;
    let list = List::restore(&list).map_err(|cause| {
        Error::new(ErrorKind::Corrupt, "read", format!("the list of {id}")).cause(cause)
    })?;
    let mut near_by = Vec::new();
    for depot in near(centre, record) {
        let way = near::way(&depot.record.name);
        let number = centre.store.journal(|journal| journal.source(&way))?;
        near_by.push((number, depot));
    }
    let inputs = inputs(record, &numbers, &list, &terms).into_iter();
    for input in inputs.chain(may_wait(id, near_by)) {
        centre.tell(input).await?;
    }
    Ok(())
}

/// Returns the names of the depots near the centre where a requested stage-in may wait.
fn via(centre: &Centre, new: &api::NewStageIn) -> Result<Vec<String>> {
    if new.via.len() > NearDepot::MOST {
        let why = format!("a stage-in waits on {} depots at most", NearDepot::MOST);
        return Err(invalid("the depots", &why));
    }
    submit::via(centre, Viewer::new(new.owner.as_deref()), &new.via)
}

/// Returns the depots near the centre where it may wait.
fn near(centre: &Centre, record: &RequestRecord) -> Vec<Arc<Depot>> {
    let named = record.via.iter();
    named
        .filter_map(|name| centre.depots.named_for(Viewer::of(record), name))
        .collect()
}

/// Returns the inputs that report depots near the centre for which the stage-in may wait.
fn may_wait(request: RequestId, depots: Vec<(SourceId, Arc<Depot>)>) -> Vec<Input> {
    if depots.is_empty() {
        return Vec::new();
    }
    let found = depots.iter().map(|(source, depot)| Input::SourceFound {
        source: *source,
        name: depot.record.name.clone(),
        rate_max: None,
    });
    let near = depots.iter().map(|(source, depot)| NearDepot {
        depot: depot.record.id,
        source: *source,
    });
    let near = near.collect();
    let news = StageInNews::MayWait { near };
    found
        .chain([Input::StageInTold { request, news }])
        .collect()
}

/// Returns the inputs for the mind that submit a stage-in.
fn inputs(
    record: &RequestRecord,
    numbers: &[(SourceId, String)],
    list: &List,
    terms: &[Terms],
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
    let spec = ArrivalSpec {
        bytes: *bytes,
        files: *files,
        chunk_size: *chunk_size,
        deadline: record.deadline,
        not_before: wanted.not_before,
        sources: numbers.iter().map(|(source, _)| *source).collect(),
        priority: record.wishes.priority,
        rate_max: wanted.rate_max,
        best_effort: record.best_effort,
    };
    let found = numbers
        .iter()
        .zip(terms)
        .map(|((source, name), terms)| Input::SourceFound {
            source: *source,
            name: name.clone(),
            rate_max: terms.rate_max,
        });
    let request = record.id;
    let holdings = list.holdings(&spec.sources);
    let asked = if holdings.is_empty() {
        Input::ArrivalAsked { request, spec }
    } else {
        Input::ArrivalGathered {
            request,
            spec,
            holdings,
        }
    };
    let from_one = apart::said(list).map(|said| {
        let news = StageInNews::FromOne { said };
        Input::StageInTold { request, news }
    });
    let left_out = list.left_out();
    let left_out = (left_out.files > 0).then(|| {
        let news = StageInNews::LeftOut { left_out };
        Input::StageInTold { request, news }
    });
    let prices = terms.iter().map(|terms| &terms.prices);
    let sources = numbers.iter().map(|(source, _)| *source).zip(prices);
    found
        .chain(costs(request, record.wishes.budget_micro_usd, sources))
        .chain([asked])
        .chain(whose(request, &record.wishes))
        .chain(from_one)
        .chain(left_out)
        .collect()
}

/// Returns the inputs for the mind about the request's budget and its sources' costs, if there are
/// any.
fn costs<'a>(
    request: RequestId,
    budget: Option<u64>,
    sources: impl Iterator<Item = (SourceId, &'a Prices)>,
) -> Option<Input> {
    let priced = sources.filter(|(_, prices)| **prices != Prices::default());
    let prices: Vec<SourcePrice> = priced
        .map(|(source, prices)| SourcePrice {
            source,
            get_micro_usd: prices.get_micro_usd,
            egress_micro_usd: prices.egress_micro_usd,
        })
        .collect();
    let is_said = budget.is_some() || !prices.is_empty();
    let news = StageInNews::Costs { budget, prices };
    is_said.then_some(Input::StageInTold { request, news })
}

/// Returns the input that reports owner and project, if either is given.
pub(crate) fn whose(request: RequestId, wishes: &Wishes) -> Option<Input> {
    let (owner, project) = (wishes.owner.clone(), wishes.project.clone());
    let is_said = !owner.is_empty() || !project.is_empty();
    let news = StageInNews::IsFor { owner, project };
    is_said.then_some(Input::StageInTold { request, news })
}

fn invalid(what: &str, why: &str) -> Error {
    Error::new(ErrorKind::Invalid, "submit", what).cause(why.to_owned())
}

/// Checks that an address can be a source.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an unreadable address, and for a relative path.
pub(crate) fn check_source(address: &str) -> Result<()> {
    let location = Location::parse(OsStr::new(address))?;
    let is_relative = matches!(&location, Location::Local(path) if !path.is_absolute());
    if is_relative || address.len() > ADDRESS_BYTES_MAX {
        let why = "the path is relative, or too long";
        return Err(invalid(address, why).hint("give an absolute path"));
    }
    Ok(())
}

/// Checks both ends of a stage-in.
fn check_ends(centre: &Centre, new: &api::NewStageIn) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for address in &new.sources {
        check_source(address)?;
        if !seen.insert(address) {
            return Err(invalid(address, "it is named twice"));
        }
    }
    if new.to.len() > ADDRESS_BYTES_MAX {
        return Err(invalid("the destination", "it is too long"));
    }
    let owner = new.owner.as_deref().unwrap_or_default();
    let behalf = centre.store.actors.owner(owner)?;
    for address in &new.sources {
        look::refuse_unknown_host(address, new.profile.as_ref(), &behalf)?;
    }
    behalf.run(|| {
        stage::check_destination(&new.to)?;
        new.sources
            .iter()
            .try_for_each(|source| refuse_inside(source, &new.to))
    })
}

/// Refuses to stage a directory of this machine into itself.
fn refuse_inside(source: &str, to: &str) -> Result<()> {
    let Location::Local(source) = Location::parse(OsStr::new(source))? else {
        return Ok(());
    };
    refuse_inside_here("stage in to", &source, to, Path::new(to))
}

fn check(centre: &Centre, new: &api::NewStageIn) -> Result<RequestRecord> {
    if new.sources.is_empty() || new.sources.len() > SOURCES_MAX {
        let why = format!("a stage-in has 1 to {SOURCES_MAX} sources");
        return Err(invalid(&new.to, &why));
    }
    check_ends(centre, new)?;
    let now = centre.clock.now();
    let deadline = render::parse_moment("the deadline", &new.deadline)?;
    if deadline <= now {
        let why = format!("the deadline {} has passed", render::moment(deadline));
        return Err(invalid(&new.to, &why).hint("give a later one"));
    }
    let not_before = new.not_before.as_deref();
    let not_before = not_before
        .map(|text| render::parse_moment("not-before", text))
        .transpose()?;
    if not_before.is_some_and(|at| at >= deadline) {
        let why = "it is welcome only when its deadline has passed";
        return Err(invalid(&new.to, why).hint("let --not-before be earlier than --deadline"));
    }
    if new.rate_bytes_per_s_max == Some(0) {
        return Err(invalid("the rate", "at no rate nothing ever comes"));
    }
    let wished = api::Wishes {
        priority: new.priority.clone(),
        owner: new.owner.clone(),
        project: new.project.clone(),
        budget_usd: new.budget_usd,
        ..api::Wishes::default()
    };
    Ok(RequestRecord {
        id: RequestId::new(0),
        submission: new.submission_id.clone(),
        dataset: DatasetId::random()?.to_string(),
        source: new.sources.join(" ").into_bytes(),
        only: Vec::new(),
        named: None,
        patterns: Patterns::default(),
        destination: new.to.clone(),
        code: Code::NONE,
        via: via(centre, new)?,
        pinned: Vec::new(),
        recipients: Vec::new(),
        release: false,
        drops_extras: false,
        best_effort: new.best_effort,
        optimizer: posthaste_core::contract::Method::default(),
        wishes: Wishes {
            ..wishes::read(&wished, |_| None)?
        },
        stage_in: Some(StageIn {
            sources: new.sources.clone(),
            profile: new.profile.clone(),
            not_before,
            rate_max: new.rate_bytes_per_s_max.map(ByteRate::new),
        }),
        lent: Vec::new(),
        one_file: None,
        created: now,
        deadline,
        purge_at: None,
        expires: deadline,
        scan: None,
        submitted: false,
        ended: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mind_is_told_of_sources_that_cost_something_and_of_a_budget() {
        let request = RequestId::new(7);
        let (free, dear) = (SourceId::new(1), SourceId::new(2));
        let prices = Prices {
            egress_micro_usd: 90_000,
            get_micro_usd: 400,
        };
        let all = [(free, &Prices::default()), (dear, &prices)];
        let told = |budget, sources: &[(SourceId, &Prices)]| {
            costs(request, budget, sources.iter().copied())
        };
        assert_eq!(told(None, &all[..1]), None);
        let news = |budget, prices: &[SourcePrice]| {
            let prices = prices.to_vec();
            let news = StageInNews::Costs { budget, prices };
            Some(Input::StageInTold { request, news })
        };
        assert_eq!(told(Some(5), &all[..1]), news(Some(5), &[]));
        let price = SourcePrice {
            source: dear,
            get_micro_usd: 400,
            egress_micro_usd: 90_000,
        };
        assert_eq!(told(None, &all), news(None, &[price]));
    }

    #[test]
    fn the_mind_is_told_whose_a_stage_in_is_where_that_was_said() {
        let request = RequestId::new(7);
        assert_eq!(whose(request, &Wishes::default()), None);
        let (owner, project) = (String::new(), "climate".to_owned());
        let wishes = Wishes {
            project: project.clone(),
            ..Wishes::default()
        };
        let news = StageInNews::IsFor { owner, project };
        let told = Input::StageInTold { request, news };
        assert_eq!(whose(request, &wishes), Some(told));
    }
}
