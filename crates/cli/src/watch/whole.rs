//! View of the whole service: polled every few seconds, with events as they happen.

use std::{collections::VecDeque, process::ExitCode, time::Duration};

use posthaste_api as api;
use serde::Deserialize;
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{Interval, MissedTickBehavior, interval},
};

use super::{board, terminal::Terminal};
use crate::{
    client::{Events, ServiceClient, ride_out, say_away},
    failure::{Failure, Outcome},
    moment, output,
    shutdown::Shutdown,
};

/// Interval between two looks at the state of all requests.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Looks per refresh of depots, paths and movers, which change less.
const LOOKS_PER_ROUND: u32 = 3;
/// Interval at which keys are read and changes are drawn.
const FRAME_EVERY: Duration = Duration::from_millis(100);
/// Requests of one look, at most: more fit in no window.
const REQUESTS_MAX: usize = 200;
/// Events kept for the window.
const EVENTS_MAX: usize = 200;
/// Events that wait to be drawn, at most; more wait at the service.
const WAITING_MAX: usize = 256;

/// Fields fetched for each request.
const FIELDS: &str = "id,source,to,state,at_risk,missed,slack_s,finish,bytes,chunks,chunks_safe,out_of_reach,keep_ended,stage_in";

/// Request as the window shows it.
#[derive(Debug, Clone, Deserialize)]
pub struct Row {
    pub id: String,
    pub source: String,
    pub to: String,
    pub state: String,
    pub at_risk: bool,
    pub missed: bool,
    pub slack_s: Option<f64>,
    pub finish: Option<api::Finish>,
    pub bytes: u64,
    pub chunks: u32,
    pub chunks_safe: u32,
    #[serde(default)]
    pub out_of_reach: bool,
    #[serde(default)]
    pub keep_ended: bool,
    #[serde(default)]
    pub stage_in: Option<api::StageIn>,
}

/// State of the service, as far as known.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub overview: api::Overview,
    pub requests: Vec<Row>,
    pub depots: Vec<api::Depot>,
    pub paths: Vec<api::Path>,
    pub movers: Vec<api::Mover>,
    /// Events, the newest last.
    pub events: VecDeque<api::Event>,
    /// Reason for which the last look failed, if it did.
    pub trouble: Option<String>,
}

/// Shows the service until the user ends that.
///
/// # Errors
/// Returns the service's refusal, or fails if it can't be reached at first. Without a terminal it
/// also fails if the service stays away.
pub async fn run(service: &ServiceClient, json: bool) -> Outcome {
    let overview: api::Overview = service.get("/v1/overview").await?;
    let newest = overview.newest_event;
    if json {
        let mut events = Following::new(service, newest).await?;
        loop {
            output::json(&events.next().await?);
        }
    }
    let events = Following::new(service, newest).await?;
    // Before the window opens, so that a signal restores the terminal.
    let shutdown = Shutdown::watch(false)?;
    match Terminal::take() {
        Some(terminal) => live(service, (terminal, shutdown), overview, events).await,
        None => tokio::select! {
            () = shutdown.told() => Ok(ExitCode::SUCCESS),
            printed = print(&overview, events) => printed,
        },
    }
}

/// Prints a line for each event.
async fn print(overview: &api::Overview, mut events: Following) -> Outcome {
    output::line(&board::summary(overview));
    loop {
        let event = events.next().await?;
        let request = event.request.as_deref().unwrap_or("-");
        let depot = event.depot.as_deref().map(|depot| format!(" {depot}"));
        output::line(&format!(
            "{} {request}{} {}: {}",
            moment::time_of_day(&event.at),
            depot.unwrap_or_default(),
            event.text,
            event.reason
        ));
    }
}

/// News while the window is shown.
enum News {
    Event(Box<api::Event>),
    Look(Box<Result<Look, Failure>>),
}

/// Result of one look; depots and the like only once in a while.
struct Look {
    overview: api::Overview,
    requests: Vec<Row>,
    rest: Option<(Vec<api::Depot>, Vec<api::Path>, Vec<api::Mover>)>,
}

async fn live(
    service: &ServiceClient,
    (terminal, shutdown): (Terminal, Shutdown),
    overview: api::Overview,
    events: Following,
) -> Outcome {
    let (news, mut heard) = mpsc::channel(WAITING_MAX);
    let mut running = JoinSet::new();
    running.spawn(follow(events, news.clone()));
    running.spawn(look_on(service.clone(), news));
    let mut seen = Seen {
        overview,
        ..Seen::default()
    };
    let mut told = std::pin::pin!(shutdown.told());
    let mut frames = frames();
    let (mut shown, mut is_new) = ((0, 0), true);
    loop {
        tokio::select! {
            () = &mut told => break,
            news = heard.recv() => {
                let Some(news) = news else { break };
                take(&mut seen, news);
                is_new = true;
            }
            _ = frames.tick() => {
                if terminal.is_quit() {
                    break;
                }
                let size = terminal.size();
                if is_new || size != shown {
                    terminal.draw(&board::frame(&seen, size));
                    (shown, is_new) = (size, false);
                }
            }
        }
    }
    drop(terminal);
    running.shutdown().await;
    Ok(ExitCode::SUCCESS)
}

fn frames() -> Interval {
    let mut frames = interval(FRAME_EVERY);
    frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
    frames
}

fn take(seen: &mut Seen, news: News) {
    match news {
        News::Event(event) => {
            seen.events.push_back(*event);
            if seen.events.len() > EVENTS_MAX {
                seen.events.pop_front();
            }
        }
        News::Look(look) => match *look {
            Ok(look) => {
                (seen.overview, seen.requests) = (look.overview, look.requests);
                if let Some(rest) = look.rest {
                    (seen.depots, seen.paths, seen.movers) = rest;
                }
                seen.trouble = None;
            }
            Err(failure) => seen.trouble = Some(failure.to_string()),
        },
    }
}

/// Stream of events that resumes after the last one when the service comes back.
struct Following {
    service: ServiceClient,
    events: Events,
    newest: u64,
    /// True if a window reports by itself that the service is away.
    is_window: bool,
}

impl Following {
    async fn new(service: &ServiceClient, newest: u64) -> Result<Self, Failure> {
        Ok(Self {
            service: service.clone(),
            events: service.events(None, newest).await?,
            newest,
            is_window: false,
        })
    }

    /// Returns the next event.
    ///
    /// # Errors
    /// Fails if the service stays away.
    async fn next(&mut self) -> Result<api::Event, Failure> {
        loop {
            if let Some(event) = self.events.next().await {
                self.newest = event.seq;
                return Ok(event);
            }
            tokio::time::sleep(FRAME_EVERY).await;
            self.events = ride_out(
                || self.service.events(None, self.newest),
                |failure| {
                    if !self.is_window {
                        say_away(failure);
                    }
                },
            )
            .await?;
        }
    }
}

/// Sends events to the window.
async fn follow(mut events: Following, news: mpsc::Sender<News>) {
    events.is_window = true;
    loop {
        if let Ok(event) = events.next().await
            && news.send(News::Event(Box::new(event))).await.is_err()
        {
            return;
        }
    }
}

/// Polls everything repeatedly.
async fn look_on(service: ServiceClient, news: mpsc::Sender<News>) {
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut number = 0u32;
    loop {
        looks.tick().await;
        let look = look(&service, number.is_multiple_of(LOOKS_PER_ROUND)).await;
        if look.is_ok() {
            number = number.wrapping_add(1);
        }
        if news.send(News::Look(Box::new(look))).await.is_err() {
            return;
        }
    }
}

async fn look(service: &ServiceClient, is_round: bool) -> Result<Look, Failure> {
    let list = format!("/v1/requests?sort=slack&limit={REQUESTS_MAX}&fields={FIELDS}");
    Ok(Look {
        requests: service.get(&list).await?,
        rest: match is_round {
            true => Some((
                service.get("/v1/depots").await?,
                service.get("/v1/paths").await?,
                service.get("/v1/movers").await?,
            )),
            false => None,
        },
        overview: service.get("/v1/overview").await?,
    })
}
