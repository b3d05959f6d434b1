//! Lets several services share a database: one leads, by the lease there, and the others wait.

mod life;

use std::{fs, time::Duration};

use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_journal::{
    DatabaseUrl, Epoch, JournalError, LEASE_LASTS, LEASE_RENEWED_EVERY, Lease, TroubleKind,
};
use tokio::{sync::oneshot, task::JoinSet};
use tracing::Instrument;

use crate::{flatten, monotonic, store::journal_error, traced};

/// Interval of checks whether the lease is free. A leader that gives it up wakes the waiting
/// services; this is for leaders that died.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Leadership: its lease is renewed from the creation of this value.
pub(crate) struct Lead {
    pub(crate) epoch: Epoch,
    keeping: JoinSet<Result<()>>,
    /// Ends the renewal.
    end: oneshot::Sender<()>,
}

impl Lead {
    /// Waits until the lease is ours.
    ///
    /// # Errors
    /// The database's if it can't be reached at first or refuses us. If it goes away later, this
    /// waits for it.
    pub(crate) async fn take(address: &DatabaseUrl) -> Result<Self> {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let holder = format!("process {} of {}", std::process::id(), name.trim());
        let lease = Lease::want(address, &holder, LEASE_LASTS).map_err(journal_error)?;
        let lease = lease.living(life::own().unwrap_or_default());
        let span = traced::of_lead(&holder);
        let waited = wait_for(lease).instrument(span.clone()).await;
        posthaste_trace::ended(&span, &waited);
        drop(span);
        let (lease, epoch) = waited?;
        let (end, ended) = oneshot::channel();
        let mut keeping = JoinSet::new();
        keeping.spawn(keep(lease, ended));
        Ok(Self {
            epoch,
            keeping,
            end,
        })
    }

    /// Waits until leadership is lost.
    ///
    /// # Errors
    /// Always: the loss, or that the database was away for the duration of a lease.
    pub(crate) async fn lost(&mut self) -> Result<()> {
        match self.keeping.join_next().await {
            Some(ended) => flatten(ended),
            None => std::future::pending().await,
        }
    }

    /// Gives leadership to a waiting service.
    ///
    /// # Errors
    /// The database's: then the lease expires.
    pub(crate) async fn give_up(mut self) -> Result<()> {
        // Nobody listens if leadership is already lost.
        let _ = self.end.send(());
        match self.keeping.join_next().await {
            Some(ended) => flatten(ended),
            None => Ok(()),
        }
    }
}

async fn wait_for(mut lease: Lease) -> Result<(Lease, Epoch)> {
    let mut said = None;
    loop {
        let (back, looked) = aside(lease, look).await?;
        lease = back;
        match looked {
            Ok(Ok(Some(epoch))) => return Ok((lease, epoch)),
            Ok(Ok(None)) => {}
            Err(leader) => say(&mut said, format!("waits while {leader} leads")),
            Ok(Err(error)) if may_pass(&error) => say(&mut said, format!("waits: {error}")),
            Ok(Err(error)) => return Err(journal_error(error)),
        }
        (lease, ()) = aside(lease, |lease| lease.wait(LOOK_EVERY)).await?;
    }
}

/// Takes the lease if it is free, or if its holder was a process of this machine that has ended.
/// Otherwise returns the holder.
fn look(lease: &mut Lease) -> Result<Result<Option<Epoch>, JournalError>, String> {
    let taken = lease.acquire();
    if !matches!(taken, Ok(None)) {
        return Ok(taken);
    }
    let (leader, life) = lease.holder().ok().flatten().unwrap_or_default();
    if !life::is_over(&life) {
        return Err(leader);
    }
    match lease.acquire_after(&life) {
        Ok(None) => Err(leader),
        taken => Ok(taken),
    }
}

/// Asks the database on a separate thread, since it may take seconds to answer.
async fn aside<T: Send + 'static>(
    mut lease: Lease,
    ask: impl FnOnce(&mut Lease) -> T + Send + 'static,
) -> Result<(Lease, T)> {
    let asked = tokio::task::spawn_blocking(move || {
        let answer = ask(&mut lease);
        (lease, answer)
    });
    asked.await.map_err(|cause| {
        Error::new(ErrorKind::Other, "ask", "the database of its lease").cause(cause.to_string())
    })
}

/// Logs a line unless it repeats the last.
fn say(said: &mut Option<String>, line: String) {
    if said.as_ref() != Some(&line) {
        tracing::warn!("{line}");
        *said = Some(line);
    }
}

/// Renews the lease until another service has it, or it is to be given up.
async fn keep(mut lease: Lease, mut ended: oneshot::Receiver<()>) -> Result<()> {
    let mut renewed = monotonic();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LEASE_RENEWED_EVERY) => {}
            _ = &mut ended => {
                let (_, released) = aside(lease, Lease::release).await?;
                return released.map_err(journal_error);
            }
        }
        let asked = monotonic();
        let (back, renewal) = aside(lease, |lease| lease.renew()).await?;
        lease = back;
        match renewal {
            Ok(()) => renewed = asked,
            Err(error) if may_pass(&error) && renewed.elapsed() < LEASE_LASTS => {
                tracing::warn!("{error}");
            }
            Err(error) => return Err(journal_error(error)),
        }
    }
}

fn may_pass(error: &JournalError) -> bool {
    match error {
        JournalError::Database { cause, .. } => match cause.kind() {
            TroubleKind::Unreachable | TroubleKind::InUse => true,
            TroubleKind::Full | TroubleKind::Denied | TroubleKind::Damaged | TroubleKind::Other => {
                false
            }
        },
        JournalError::Lost { .. } | JournalError::Newer { .. } | JournalError::Malformed { .. } => {
            false
        }
    }
}
