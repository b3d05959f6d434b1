//! Files of sources that are at fault while they are read: reported to the mind, and left out at
//! its command.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::PathBuf, sync::Arc};

use posthaste_core::contract::{Command, Fault, FileAtFault, Input, Omission};
use posthaste_endpoint::{Error, Result, UNFINISHED, is_unfinished};
use posthaste_engine::{
    dataset::{FileFault, FileKind, FileList},
    sealed::Sealed,
};
use posthaste_journal::{ChunkRecord, RequestRecord};
use posthaste_types::{Bytes, ChunkIndex, RequestId};
use tokio::sync::mpsc;

use crate::{
    depots::fault_of_source,
    driver::{Arrival, Centre},
    hands::Leg,
    opened::Opened,
    store::Store,
};

/// Returns the input that reports a file at fault.
fn at_fault(store: &Store, sealed: &Sealed, request: RequestId, fault: FileFault) -> Input {
    let entry = sealed.list().files.get(fault.file);
    let (first, last) = sealed.chunks_of(fault.file);
    let omission = Omission {
        file: fault.file as u64,
        bytes: Bytes::new(entry.map_or(0, |entry| entry.size)),
        fault: fault_of_source(fault.kind),
        what: fault.what,
    };
    let file = FileAtFault {
        omission,
        first,
        last,
        is_restored: tokio::task::block_in_place(|| store.backup_of(request)).is_some(),
    };
    Input::FileAtFault { request, file }
}

/// Reports which files of a chunk are at fault, or that the chunk changed. Returns whether nothing
/// else kept it from being sent.
pub(crate) async fn tell_of_files(
    inputs: &mpsc::Sender<Arrival>,
    store: &Store,
    sealed: &Sealed,
    leg: Leg,
) -> bool {
    let (request, chunk) = (leg.request, leg.chunk);
    let faults = sealed.faults(chunk);
    let mut told: Vec<Input> = Vec::new();
    for fault in faults {
        told.push(at_fault(store, sealed, request, fault));
    }
    if told.is_empty() && sealed.is_renewed(chunk) {
        told.push(Input::ChunkRenewed { request, chunk });
    }
    // A file may have been left out between the failed read and this.
    let are_all = !told.is_empty() || sealed.excuses(chunk);
    for input in told {
        // The driver is gone only when the service ends, and then nobody waits for this.
        let _ = inputs.send(Arrival::bare(input)).await;
    }
    are_all
}

/// Returns the inputs that report what no chunk holds the contents of: pipes, sockets and devices in
/// a list, what may not be read, and what copies left unfinished.
pub(crate) fn of_no_files(centre: &Centre, record: &RequestRecord) -> Result<Vec<Input>> {
    let root = PathBuf::from(OsStr::from_bytes(&record.source));
    let is_ours = |name: &OsStr| is_unfinished(name.as_bytes());
    let told = tokio::task::block_in_place(|| {
        let list = FileList::from_bytes(&centre.store.list_bytes(record.id)?)?;
        let files = list.files.iter().enumerate();
        let none = files.filter(|(_, file)| file.kind == FileKind::LeftOut);
        let told = none.map(|(place, file)| {
            let path = file.below(&root);
            let found = std::fs::symlink_metadata(&path);
            let why = match found {
                _ if path.file_name().is_some_and(is_ours) => UNFINISHED,
                Ok(found) if found.is_file() => "it may not be read",
                Ok(found) if found.is_dir() => "it may not be listed",
                _ => "it is a device, a pipe or a socket",
            };
            Omission {
                file: place as u64,
                bytes: Bytes::ZERO,
                fault: Fault::SourceUnreadable,
                what: format!("{}: {why}", path.display()),
            }
        });
        Ok::<_, Error>(told.collect::<Vec<_>>())
    });
    let told = told?.into_iter().map(|omission| {
        tracing::warn!(request = %record.id, "left out: {}", omission.what.escape_debug());
        let file = FileAtFault {
            omission,
            first: ChunkIndex::new(1),
            last: ChunkIndex::new(0),
            is_restored: false,
        };
        let request = record.id;
        Input::FileAtFault { request, file }
    });
    Ok(told.collect())
}

/// Leaves out the faulty files of a chunk that is read to be served. Returns whether it can be read
/// again.
pub(crate) async fn leave_out(
    centre: &Centre,
    sealed: &Sealed,
    request: RequestId,
    chunk: ChunkIndex,
) -> Result<bool> {
    let faults = sealed.faults(chunk);
    for fault in faults {
        let file = fault.file;
        let input = at_fault(&centre.store, sealed, request, fault);
        centre.put_down(input).await?;
        let view = centre.mind().request(request);
        let omitted = view.map(|view| view.omissions).unwrap_or_default();
        if omitted.iter().all(|omitted| omitted.file != file as u64) {
            return Ok(false);
        }
        sealed.leave_out(file);
    }
    Ok(sealed.faults(chunk).is_empty() && sealed.lacks_some(chunk))
}

/// Carries out the mind's decisions about faulty files. Blocks.
pub(crate) fn carry_out(store: &Store, opened: &Opened, command: &Command) {
    let (Command::LeaveOut { request, .. } | Command::Renew { request, .. }) = *command else {
        return;
    };
    let carry_out = |sealed: Arc<Sealed>| {
        if let Command::LeaveOut { file, .. } = *command {
            sealed.leave_out(usize::try_from(file).unwrap_or(usize::MAX));
        }
        if let Command::Renew { chunk, .. } = *command
            && let Some(digests) = sealed.renew(chunk)
        {
            let record = ChunkRecord {
                request,
                chunk,
                digests,
            };
            store.journal(|journal| journal.keep_chunks(&[record]))?;
        }
        store.forget_envelope(&store.request(request)?)
    };
    let done = tokio::task::block_in_place(|| opened.get(store, request).and_then(carry_out));
    if let Err(error) = done {
        tracing::warn!(%request, "{error}");
    }
}

/// Returns the input for a stored chunk, as a recalled send if the chunk changed meanwhile: its
/// former bytes no longer count.
pub(crate) fn unless_outdated(opened: &Opened, arrival: Arrival) -> Arrival {
    let Input::FragmentStored {
        request,
        depot,
        chunk,
        fragment,
    } = arrival.input
    else {
        return arrival;
    };
    let known: Option<Arc<Sealed>> = opened.known(request);
    let known = known.and_then(|sealed| sealed.digests_of(chunk));
    let stored = arrival.chunk.as_ref().map(|record| &record.digests);
    match (known, stored) {
        (Some(known), Some(stored)) if known != *stored => Arrival {
            input: Leg::new(request, depot, chunk, fragment).recalled(),
            chunk: None,
            ..arrival
        },
        _ => arrival,
    }
}
