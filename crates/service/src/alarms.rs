//! Notifies people by webhook, e-mail or program, before a deadline is missed and after.
//!
//! Each alarm follows the journal's events on its own, from its mark. Events not sent when the
//! service was killed are sent when it runs again. An event that was just being sent may arrive
//! twice, under the same id.

mod book;
mod crew;
mod mail;
mod mark;
mod notice;
mod webhook;

use std::{sync::Arc, time::Duration};

use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_journal::EventRecord;
use posthaste_types::Timestamp;
use tokio::process::Command;

pub use book::{Alarm, read_alarms};
pub(crate) use crew::Crew;

use crate::{clock::Clock, driver::Centre, program, render, store::Store};
use mark::Mark;
use notice::Notice;

/// Events read from the journal at once.
const BATCH: u32 = 256;
/// Longest run of a notified program.
const COMMAND_PATIENCE: Duration = Duration::from_secs(60);
/// Pause after the first failed attempt; it doubles after each further one.
const PAUSE_MIN: Duration = Duration::from_secs(5);
/// Longest pause between attempts.
const PAUSE_MAX: Duration = Duration::from_secs(900);
/// Age at which an undelivered notice is dropped.
const TRIED_FOR: Duration = Duration::from_secs(86_400);

/// Recipient of notices, and how to reach it.
pub(crate) struct Teller {
    alarm: Alarm,
    way: Way,
}

enum Way {
    Webhook(Box<webhook::Webhook>),
    Mail(Box<mail::Mail>),
    Command(Vec<String>),
}

impl Teller {
    /// Prepares an alarm. Contacts nobody yet.
    ///
    /// # Errors
    /// Errors of the files that the alarm names.
    pub(crate) fn open(alarm: &Alarm) -> Result<Self> {
        let opened = match &alarm.way {
            book::Way::Webhook(of) => {
                webhook::Webhook::open(of).map(|webhook| Way::Webhook(Box::new(webhook)))
            }
            book::Way::Mail(of) => mail::Mail::open(of).map(|mail| Way::Mail(Box::new(mail))),
            book::Way::Command(words) => Ok(Way::Command(words.clone())),
        };
        Ok(Self {
            way: opened.map_err(|error| error.with("alarm", &alarm.name))?,
            alarm: alarm.clone(),
        })
    }

    async fn tell(&self, notice: &Notice, now: Timestamp) -> Result<()> {
        match &self.way {
            Way::Webhook(webhook) => webhook.tell(notice, now).await,
            Way::Mail(mail) => mail.tell(notice).await,
            Way::Command(words) => run(words, notice).await,
        }
    }

    /// Retries until the notice is delivered or too old.
    async fn insist(&self, notice: &Notice, happened: Timestamp, clock: &Clock) {
        let mut pause = PAUSE_MIN;
        loop {
            let Err(error) = self.tell(notice, clock.now()).await else {
                return;
            };
            let (alarm, about) = (&self.alarm.name, notice.subject());
            if is_old(happened, clock) {
                tracing::error!(alarm, "{about}: not told: {error}");
                return;
            }
            let wait = pause.max(error.pause().unwrap_or_default());
            tracing::warn!(alarm, "{about}: {error}; again in {} s", wait.as_secs());
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }
}

/// Returns whether a notice is too old to be sent.
fn is_old(happened: Timestamp, clock: &Clock) -> bool {
    clock.now().since(happened) >= TRIED_FOR
}

/// Follower of the events, from the alarm's mark.
struct Follower {
    teller: Teller,
    mark: Mark,
}

impl Follower {
    /// Resumes from the mark.
    ///
    /// # Errors
    /// Errors of its mark.
    fn take_up(store: &Store, teller: Teller) -> Result<Self> {
        let mark = Mark::open(store, &teller.alarm.name)?;
        Ok(Self { teller, mark })
    }

    /// Sends a notice for each selected event as it happens.
    ///
    /// # Errors
    /// The journal's, and those of writing the mark.
    async fn follow(mut self, centre: Arc<Centre>) -> Result<()> {
        let store = &centre.store;
        let mut newest = centre.newest_event();
        loop {
            // Marked before reading, so that an event in between wakes the wait below.
            newest.borrow_and_update();
            let after = self.mark.seq();
            let read = || store.journal(|journal| journal.events(None, after, BATCH));
            let records = tokio::task::block_in_place(read)?;
            if records.is_empty() && newest.changed().await.is_err() {
                return Ok(());
            }
            self.tell_all(&centre, &records).await?;
        }
    }

    async fn tell_all(&mut self, centre: &Centre, records: &[EventRecord]) -> Result<()> {
        let mut untold = 0_u32;
        for record in records {
            let (name, happened) = (record.event.happening.name(), record.event.at);
            self.mark.pass(record.seq);
            if !self.teller.alarm.on.iter().any(|on| on == name) {
                continue;
            }
            if is_old(happened, &centre.clock) {
                untold += 1;
                continue;
            }
            let notice = notice_of(centre, &self.mark, record);
            self.teller.insist(&notice, happened, &centre.clock).await;
            tokio::task::block_in_place(|| self.mark.write(&centre.store))?;
        }
        if untold > 0 {
            let alarm = &self.teller.alarm.name;
            tracing::error!(
                alarm,
                "{untold} events are more than a day old and not told"
            );
        }
        if self.mark.is_far_ahead() {
            tokio::task::block_in_place(|| self.mark.write(&centre.store))?;
        }
        Ok(())
    }
}

fn notice_of(centre: &Centre, mark: &Mark, record: &EventRecord) -> Notice {
    let request = record.event.request;
    // The request may have been forgotten since.
    let request = request.and_then(|request| centre.store.request(request).ok());
    Notice {
        id: mark.id_of(record.seq),
        event: render::event(centre, record),
        request: request.map(|request| render::request(centre, &centre.mind(), &request)),
    }
}

/// Sends a test notice once.
///
/// # Errors
/// Errors of its files, and of sending.
pub async fn test_alarm(alarm: &Alarm) -> Result<()> {
    let now = Clock::default().now();
    let mut key = [0; 8];
    getrandom::fill(&mut key)
        .map_err(|cause| Error::new(ErrorKind::Other, "make", "an id").cause(cause.to_string()))?;
    let notice = Notice {
        id: format!("test-{}", crate::secrets::to_hex(&key)),
        event: api::Event {
            seq: 0,
            at: render::moment(now),
            request: None,
            depot: None,
            name: "test".to_owned(),
            text: format!("alarm {} is being tried", alarm.name),
            reason: "somebody wants to know whether it works".to_owned(),
        },
        request: None,
    };
    Teller::open(alarm)?.tell(&notice, now).await
}

/// Runs a program with the notice on its standard input.
async fn run(words: &[String], notice: &Notice) -> Result<()> {
    let [name, arguments @ ..] = words else {
        return Ok(());
    };
    let mut command = Command::new(name);
    command
        .args(arguments)
        .env("POSTHASTE_EVENT", &notice.event.name)
        .env(
            "POSTHASTE_REQUEST",
            notice.event.request.as_deref().unwrap_or_default(),
        )
        .env(
            "POSTHASTE_DEPOT",
            notice.event.depot.as_deref().unwrap_or_default(),
        )
        .env("POSTHASTE_TEXT", notice.subject());
    let input = notice.json().into_bytes();
    program::told(&mut command, name, input, COMMAND_PATIENCE)
        .await
        .map(drop)
}
