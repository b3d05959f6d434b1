//! Choice between direct connections and the SSH channel for a peer started over SSH.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{Notices, connection::Target, pool::Pool};
use crate::{Error, line};

/// Time without a connection after which ports count as closed.
const CONNECTED_WITHIN: Duration = Duration::from_secs(2);

/// Head start of the address from which SSH came in before the host's name.
const HEAD_START: Duration = Duration::from_millis(300);

/// Path that data takes.
#[derive(Clone)]
pub(super) enum Direct {
    /// Undecided: a connection is being tried.
    Trying,
    /// Direct connections.
    Open(Arc<Pool>),
    /// SSH channel.
    Closed,
}

/// Notices about the path that data takes.
pub(super) struct Telling {
    pub(super) notices: Notices,
    /// Host name for messages.
    pub(super) host: String,
    /// True if closed ports were already reported.
    pub(super) told_closed: Arc<AtomicBool>,
}

impl Telling {
    fn closed(&self) {
        if !self.told_closed.swap(true, Relaxed) {
            self.notices.warn(&format!(
                "ports to {} are closed: going through ssh, which is slower",
                self.host
            ));
        }
    }

    fn open(&self, pool: &Pool) {
        self.notices.detail(&format!(
            "up to {} connections to {}{}, {:.1} ms there and back, {}",
            pool.connections(),
            self.host,
            pool.through()
                .map_or_else(String::new, |gateways| format!(" through {gateways}")),
            pool.rtt().as_secs_f64() * 1e3,
            if line::has_bbr() {
                "with BBR where packets are lost"
            } else {
                "without BBR, which this kernel does not offer"
            }
        ));
    }
}

/// Returns the first target that opens, each with a head start before the next.
async fn first_of(targets: Vec<Target>) -> Option<Arc<Pool>> {
    let mut trying = JoinSet::new();
    for (place, target) in (0..).zip(targets) {
        trying.spawn(async move {
            sleep(HEAD_START * place).await;
            let pool = Pool::new(target);
            pool.lease(true).await?.give_back();
            Ok::<_, Error>(pool)
        });
    }
    while let Some(tried) = trying.join_next().await {
        if let Ok(Ok(pool)) = tried {
            return Some(pool);
        }
    }
    None
}

/// Tries the targets and announces the result. Targets behind gateways come first, however near the
/// others are. Others are tried only if none of these opens by any route, not even directly.
pub(super) async fn choose(targets: Vec<Target>, decide: watch::Sender<Direct>, telling: Telling) {
    let (led, others): (Vec<_>, Vec<_>) = targets
        .into_iter()
        .partition(|target| target.ways.has_gateways());
    let first = async {
        match first_of(led).await {
            Some(pool) => Some(pool),
            None => first_of(others).await,
        }
    };
    tokio::pin!(first);
    let in_time = timeout(CONNECTED_WITHIN, &mut first).await;
    let opened = match in_time {
        Ok(opened) => opened,
        Err(_) => {
            telling.closed();
            decide.send_replace(Direct::Closed);
            // A late connection is better than none.
            first.await
        }
    };
    match opened {
        Some(pool) => {
            telling.open(&pool);
            decide.send_replace(Direct::Open(pool));
        }
        None => {
            telling.closed();
            decide.send_replace(Direct::Closed);
        }
    }
}
