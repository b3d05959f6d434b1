//! Connections to a port whose clients have not authenticated yet.

use std::{
    collections::{HashMap, VecDeque},
    net::{IpAddr, Ipv4Addr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::{
    net::{TcpListener, TcpStream},
    task::AbortHandle,
    time::{Instant, sleep},
};

use crate::descriptors_max;

/// Share of the descriptors that guests may have, one in so many, within these bounds; twice as
/// many for a moment.
const GUESTS_SHARE: u64 = 8;
const GUESTS_MIN: usize = 16;
const GUESTS_MAX: usize = 512;
/// Longest time a client needs to state its request, if many come.
const GRACE: Duration = Duration::from_secs(1);
/// Pause after a failed accept, which means that the process has too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections whose clients have not authenticated yet. They are few: if too many come, the oldest
/// of the host that has the most is closed, so that nobody without a token keeps others out.
#[derive(Debug)]
pub struct Lobby {
    waiting: VecDeque<Waiting>,
    most: usize,
}

#[derive(Debug)]
struct Waiting {
    guest: Guest,
    serving: AbortHandle,
    since: Instant,
}

/// A connection in the lobby. Its server reports when it leaves.
#[derive(Debug, Clone)]
pub struct Guest {
    host: IpAddr,
    is_in: Arc<AtomicBool>,
}

impl Guest {
    /// Counts it as a guest no longer: its client has authenticated.
    pub fn let_in(&self) {
        self.is_in.store(true, Relaxed);
    }

    /// Returns whether it was let in.
    #[must_use]
    pub fn is_in(&self) -> bool {
        self.is_in.load(Relaxed)
    }
}

impl Default for Lobby {
    fn default() -> Self {
        let share = usize::try_from(descriptors_max() / GUESTS_SHARE).unwrap_or(GUESTS_MAX);
        Self {
            waiting: VecDeque::new(),
            most: share.clamp(GUESTS_MIN, GUESTS_MAX),
        }
    }
}

impl Lobby {
    /// Most descriptors that guests of any lobby use.
    pub const DESCRIPTORS_MAX: usize = 2 * GUESTS_MAX;

    /// Accepts the next connection, to be given to [`Self::add`] with its server. Dropping the
    /// future loses no connection.
    pub async fn accept(&mut self, listener: &TcpListener) -> (TcpStream, Guest) {
        loop {
            if let Ok((stream, from)) = listener.accept().await {
                let is_in = Arc::default();
                let host = from.ip().to_canonical();
                return (stream, Guest { host, is_in });
            }
            // Perhaps no descriptor is left.
            self.close_one();
            sleep(ACCEPT_PAUSE).await;
        }
    }

    /// Keeps `guest`, which `serving` serves, here until it is let in, and closes others if there
    /// are too many.
    pub fn add(&mut self, guest: Guest, serving: AbortHandle) {
        let waits = |one: &Waiting| !one.guest.is_in() && !one.serving.is_finished();
        self.waiting.retain(waits);
        let since = Instant::now();
        self.waiting.push_back(Waiting {
            guest,
            serving,
            since,
        });
        // Many may come at once, and each has a moment to state its request.
        while self.waiting.len() > self.most {
            let oldest = self.waiting.front().map(|one| one.since);
            let is_old = oldest.is_some_and(|oldest| since.duration_since(oldest) > GRACE);
            if !is_old && self.waiting.len() <= 2 * self.most {
                break;
            }
            self.close_one();
        }
    }

    /// Closes the oldest guest of the host that has the most.
    fn close_one(&mut self) {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for one in &self.waiting {
            *counts.entry(one.guest.host).or_default() += 1;
        }
        let nobody = (IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);
        let (host, _) = counts
            .into_iter()
            .max_by_key(|&(host, count)| (count, host))
            .unwrap_or(nobody);
        let place = self.waiting.iter().position(|one| one.guest.host == host);
        if let Some(one) = place.and_then(|place| self.waiting.remove(place)) {
            one.serving.abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::task::JoinSet;

    use super::*;

    fn guest(host: u8) -> Guest {
        Guest {
            host: Ipv4Addr::new(127, 0, 0, host).into(),
            is_in: Arc::default(),
        }
    }

    /// Returns a lobby for four, and the set that serves its guests.
    fn lobby() -> (Lobby, JoinSet<()>) {
        let lobby = Lobby {
            waiting: VecDeque::new(),
            most: 4,
        };
        (lobby, JoinSet::new())
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_floods_closes_its_own_connections() {
        let (mut lobby, mut serving) = lobby();
        let quiet = serving.spawn(pending());
        lobby.add(guest(1), quiet.clone());
        for _ in 0..100 {
            lobby.add(guest(2), serving.spawn(pending()));
        }
        assert_eq!(lobby.waiting.len(), 8);
        sleep(GRACE + GRACE).await;
        lobby.add(guest(2), serving.spawn(pending()));
        tokio::task::yield_now().await;
        assert_eq!(lobby.waiting.len(), 4);
        assert!(!quiet.is_finished(), "somebody else's was closed");
    }

    #[tokio::test(start_paused = true)]
    async fn who_was_let_in_stays() {
        let (mut lobby, mut serving) = lobby();
        let known = guest(1);
        let handle = serving.spawn(pending());
        lobby.add(known.clone(), handle.clone());
        known.let_in();
        for _ in 0..100 {
            lobby.add(guest(1), serving.spawn(pending()));
        }
        tokio::task::yield_now().await;
        assert!(!handle.is_finished());
    }
}
