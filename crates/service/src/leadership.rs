//! Several services on one database: one of them leads, by the lease in it, and the others wait.

use std::{fs, time::Duration};

use posthaste_endpoint::Result;
use posthaste_journal::{
    DatabaseUrl, Epoch, JournalError, LEASE_LASTS, LEASE_RENEWED_EVERY, Lease, TroubleKind,
};
use tokio::{sync::oneshot, task::JoinSet};

use crate::{flatten, monotonic, store::journal_error};

/// Between two looks whether the lease is free. Whoever gives it back wakes those who wait; this is for leaders that died.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// The lead: its lease is renewed from the moment this is made.
pub(crate) struct Lead {
    pub(crate) epoch: Epoch,
    keeping: JoinSet<Result<()>>,
    /// Ends that.
    end: oneshot::Sender<()>,
}

impl Lead {
    /// Waits until the lease is ours.
    ///
    /// # Errors
    /// The database's when it can't be reached at first or does not let us in. One that goes away later is waited for.
    pub(crate) async fn take(address: &DatabaseUrl) -> Result<Self> {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let holder = format!("process {} of {}", std::process::id(), name.trim());
        let mut lease = Lease::want(address, &holder, LEASE_LASTS).map_err(journal_error)?;
        let epoch = wait_for(&mut lease).await?;
        let (end, ended) = oneshot::channel();
        let mut keeping = JoinSet::new();
        keeping.spawn(keep(lease, ended));
        Ok(Self {
            epoch,
            keeping,
            end,
        })
    }

    /// Waits until the lead is lost.
    ///
    /// # Errors
    /// That it is, or that the database was away for as long as a lease lasts.
    pub(crate) async fn lost(&mut self) -> Result<()> {
        match self.keeping.join_next().await {
            Some(ended) => flatten(ended),
            None => std::future::pending().await,
        }
    }

    /// Gives the lead to whoever waits for it.
    ///
    /// # Errors
    /// The database's: then the lease expires.
    pub(crate) async fn give_up(mut self) -> Result<()> {
        // Nobody listens where it is lost already.
        let _ = self.end.send(());
        match self.keeping.join_next().await {
            Some(ended) => flatten(ended),
            None => Ok(()),
        }
    }
}

async fn wait_for(lease: &mut Lease) -> Result<Epoch> {
    let mut said = None;
    loop {
        match lease.acquire() {
            Ok(Some(epoch)) => return Ok(epoch),
            Ok(None) => {
                let leader = lease.holder().ok().flatten().unwrap_or_default();
                say(&mut said, format!("waits while {leader} leads"));
            }
            Err(error) if may_pass(&error) => say(&mut said, format!("waits: {error}")),
            Err(error) => return Err(journal_error(error)),
        }
        lease.wait(LOOK_EVERY);
        // Whoever wants this service to end is heard here.
        tokio::task::yield_now().await;
    }
}

/// Says what is new to say.
fn say(said: &mut Option<String>, line: String) {
    if said.as_ref() != Some(&line) {
        eprintln!("posthaste: {line}");
        *said = Some(line);
    }
}

/// Renews the lease until it is another's, or is to be given back.
async fn keep(mut lease: Lease, mut ended: oneshot::Receiver<()>) -> Result<()> {
    let mut renewed = monotonic();
    loop {
        tokio::select! {
            () = tokio::time::sleep(LEASE_RENEWED_EVERY) => {}
            _ = &mut ended => return lease.release().map_err(journal_error),
        }
        let asked = monotonic();
        match lease.renew() {
            Ok(()) => renewed = asked,
            Err(error) if may_pass(&error) && renewed.elapsed() < LEASE_LASTS => {
                eprintln!("posthaste: {error}");
            }
            Err(error) => return Err(journal_error(error)),
        }
    }
}

fn may_pass(error: &JournalError) -> bool {
    match error {
        JournalError::Database { cause, .. } => match cause.kind() {
            TroubleKind::Unreachable | TroubleKind::InUse => true,
            TroubleKind::Full | TroubleKind::Denied | TroubleKind::Other => false,
        },
        JournalError::Lost { .. } | JournalError::Newer { .. } | JournalError::Malformed { .. } => {
            false
        }
    }
}
