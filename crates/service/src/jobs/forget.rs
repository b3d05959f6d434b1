//! Jobs that are gone: their stage-ins are cancelled, and results that can't leave are no longer
//! waited for.

use std::{sync::Arc, time::Duration};

use posthaste_endpoint::Result;
use posthaste_journal::{JobPhase, JobRecord, PhaseName};
use posthaste_types::Timestamp;
use tokio::{sync::mpsc, task::JoinSet};

use super::{read_again, remove, stage_in};
use crate::{driver::Centre, http::Desk};

/// Slurm forgets jobs that are staging in whenever its controller restarts, and registers them
/// again a moment later. Their stage-ins continue meanwhile.
const GRACE: Duration = Duration::from_secs(30);
/// Forgotten jobs whose stage-ins may still be under way.
pub(crate) const FORGOTTEN_MAX: usize = 10_000;
/// A job's stage-outs are watched for this long after its end, far longer than it takes to request
/// them.
const ENDED_MAX: Duration = Duration::from_secs(7 * 86_400);
/// Interval of looks for jobs that ended so long ago.
const LOOK_EVERY: Duration = Duration::from_secs(3600);

/// Returns whether a job that ended then is no longer waited for.
pub(super) fn is_too_old(ended: Timestamp, now: Timestamp) -> bool {
    now >= ended + ENDED_MAX
}

/// Forgets jobs that their batch system never reports as gone. Their stage-outs continue.
///
/// # Errors
/// The journal's.
pub(super) async fn forget_old(desk: Desk) -> Result<()> {
    loop {
        let store = &desk.centre.store;
        let now = desk.centre.clock.now();
        for record in store.journal(|journal| journal.jobs(None, &[PhaseName::Ended], None))? {
            if let JobPhase::Ended { at, .. } = record.phase
                && is_too_old(at, now)
            {
                remove(&desk, record)?;
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Resumes the work left at the service's end.
///
/// # Errors
/// The journal's.
pub(crate) fn resume(desk: &Desk) -> Result<()> {
    let gone = desk
        .centre
        .store
        .journal(|journal| journal.jobs(None, &[PhaseName::Gone], None))?;
    for record in gone {
        give_up_later(desk, record);
    }
    Ok(())
}

/// Queues a forgotten job so that its stage-ins are cancelled later. If the queue is full, they
/// arrive for nobody.
pub(super) fn give_up_later(desk: &Desk, record: JobRecord) {
    let _ = desk.forgotten.try_send(record);
}

/// Cancels the stage-ins of jobs that were forgotten and are not soon registered again. Data that
/// can't be cancelled arrives for nobody.
///
/// # Errors
/// None.
pub(super) async fn give_up_all(
    centre: Arc<Centre>,
    mut forgotten: mpsc::Receiver<JobRecord>,
) -> Result<()> {
    let mut waiting = JoinSet::new();
    while let Some(record) = forgotten.recv().await {
        while waiting.try_join_next().is_some() {}
        let centre = Arc::clone(&centre);
        waiting.spawn(async move {
            tokio::time::sleep(GRACE).await;
            if let Err(error) = give_up(&centre, &record).await {
                tracing::warn!(
                    job = format_args!("{} job {}", record.scheduler, record.job),
                    "{error}"
                );
            }
        });
    }
    Ok(())
}

async fn give_up(centre: &Centre, record: &JobRecord) -> Result<()> {
    let now = centre
        .store
        .journal(|journal| journal.job(&record.scheduler, &record.job))?;
    // The journal may have dropped it if many are gone.
    if now.is_some_and(|now| now.phase != JobPhase::Gone) {
        return Ok(());
    }
    for one in &read_again(record).stage_ins {
        let Some(request) = stage_in::newest(centre, record, one)? else {
            continue;
        };
        let is_live = centre
            .mind()
            .arrival(request.id)
            .is_some_and(|view| view.state.is_live());
        let is_scanned = request.scan.is_none() && request.ended.is_none();
        let is_for_nobody = (is_live || is_scanned)
            && stage_in::is_of_job(&request)
            && !stage_in::is_wanted_elsewhere(centre, record, one)?;
        if is_for_nobody {
            let request = request.id;
            centre.give_up(request).await?;
        }
    }
    Ok(())
}
