//! Room of jobs on scratch.

use std::collections::BTreeMap;

use posthaste_api as api;
use posthaste_endpoint::{Error, Result};
use posthaste_journal::{PhaseName, Scan};

use super::{read_again, stage_in};
use crate::http::Desk;

/// Returns the free space of each directory of scratch, and the bytes staged in for jobs that have
/// not ended. A batch system that accounts for its jobs' requests would count those twice
/// otherwise.
///
/// # Errors
/// The operating system's, and the journal's.
pub(crate) fn scratch(desk: &Desk) -> Result<Vec<api::Scratch>> {
    let brought = brought(desk)?;
    let mut rooms = Vec::new();
    for root in desk.scratch.get().iter() {
        let path = root.display().to_string();
        let about =
            rustix::fs::statvfs(root).map_err(|cause| Error::io("look at", &path, cause.into()))?;
        let own = brought
            .iter()
            .filter(|(destination, _)| std::path::Path::new(destination).starts_with(root));
        let own: u64 = own.map(|(_, bytes)| bytes).sum();
        let size_bytes = about.f_blocks.saturating_mul(about.f_frsize);
        let free = about.f_bavail.saturating_mul(about.f_frsize);
        rooms.push(api::Scratch {
            path,
            usable_bytes: free.saturating_add(own).min(size_bytes),
            size_bytes,
        });
    }
    Ok(rooms)
}

/// Returns place and size of what was staged in for jobs that have not ended. Shared data counts
/// once.
fn brought(desk: &Desk) -> Result<BTreeMap<String, u64>> {
    let jobs = desk
        .centre
        .store
        .journal(|journal| journal.jobs(None, &[PhaseName::StagingIn], None))?;
    let mut brought = BTreeMap::new();
    for job in jobs {
        for one in &read_again(&job).stage_ins {
            let Some(request) = stage_in::newest(&desk.centre, &job, one)? else {
                continue;
            };
            if let (Some("arrived"), Some(Scan::Sealed { bytes, .. })) =
                (request.ended.as_deref(), &request.scan)
            {
                brought.insert(request.destination.clone(), bytes.get());
            }
        }
    }
    Ok(brought)
}
