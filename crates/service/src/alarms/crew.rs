//! Running alarms, which may be replaced while the service runs.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use posthaste_endpoint::Result;
use tokio::{
    sync::mpsc,
    task::{AbortHandle, Id, JoinError, JoinSet},
};

use super::{Alarm, Follower, Teller, Way};
use crate::{driver::Centre, flatten};

/// Runs all alarms, each by itself.
pub(crate) struct Crew {
    centre: Arc<Centre>,
    following: JoinSet<Result<()>>,
    by_name: HashMap<String, (Alarm, AbortHandle)>,
}

type Ended = std::result::Result<(Id, Result<()>), JoinError>;

impl Crew {
    /// Starts these alarms from their marks.
    ///
    /// # Errors
    /// Errors of their marks.
    pub(crate) fn new(centre: Arc<Centre>, tellers: Vec<Teller>) -> Result<Self> {
        let mut crew = Self {
            centre,
            following: JoinSet::new(),
            by_name: HashMap::new(),
        };
        tellers
            .into_iter()
            .try_for_each(|teller| crew.take(teller))?;
        Ok(crew)
    }

    fn take(&mut self, teller: Teller) -> Result<()> {
        let alarm = teller.alarm.clone();
        let follower = Follower::take_up(&self.centre.store, teller)?;
        let centre = Arc::clone(&self.centre);
        let handle = self.following.spawn(follower.follow(centre));
        self.by_name.insert(alarm.name.clone(), (alarm, handle));
        Ok(())
    }

    /// Runs until the service ends, replacing alarms as they change.
    ///
    /// # Errors
    /// The journal's, and those of marks.
    pub(crate) async fn run(mut self, mut others: mpsc::Receiver<Vec<Teller>>) -> Result<()> {
        loop {
            tokio::select! {
                Some(ended) = self.following.join_next_with_id() => flat(ended)?,
                others = others.recv() => match others {
                    Some(tellers) => self.become_others(tellers).await?,
                    None => return Ok(()),
                },
            }
        }
    }

    /// Ends alarms that changed or are no longer wanted. A notice that was being sent is sent again
    /// under the same id if it is still wanted.
    async fn become_others(&mut self, tellers: Vec<Teller>) -> Result<()> {
        let is_same = |known: &Alarm, teller: &Teller| {
            // Alarms of other kinds have secrets that may be new, though in the same files.
            *known == teller.alarm && matches!(teller.way, Way::Command(_))
        };
        let (same, new): (Vec<_>, Vec<_>) = tellers.into_iter().partition(|teller| {
            let known = self.by_name.get(&teller.alarm.name);
            known.is_some_and(|(known, _)| is_same(known, teller))
        });
        let same: HashSet<_> = same.iter().map(|teller| &*teller.alarm.name).collect();
        let mut ending = HashSet::new();
        self.by_name.retain(|name, (_, handle)| {
            let stays = same.contains(&**name);
            if !stays {
                handle.abort();
                ending.insert(handle.id());
            }
            stays
        });
        // An ending alarm still uses its mark.
        while !ending.is_empty() {
            let Some(ended) = self.following.join_next_with_id().await else {
                break;
            };
            ending.remove(&match &ended {
                Ok((id, _)) => *id,
                Err(ended) => ended.id(),
            });
            flat(ended)?;
        }
        tokio::task::block_in_place(|| new.into_iter().try_for_each(|teller| self.take(teller)))
    }
}

/// Flattens the result: an alarm that was ended did not fail.
fn flat(ended: Ended) -> Result<()> {
    match ended {
        Err(ended) if ended.is_cancelled() => Ok(()),
        ended => flatten(ended.map(|(_, outcome)| outcome)),
    }
}
