//! Driver 1: the mind with a real clock and the real world.
//!
//! [`Service::open`] opens the state directory and restores the mind from the journal. It runs
//! three things until it is told to end: the driver's loop, the watch over every depot, and the
//! REST API.

extern crate alloc;

mod actors;
mod alarms;
mod audit;
mod backup;
mod between;
mod circuits;
mod clock;
mod counts;
mod credentials;
mod depots;
mod driver;
mod enlist;
mod follow;
mod fts;
#[doc(hidden)]
pub mod fuzzing;
mod hands;
mod history;
mod http;
mod inbound;
mod invites;
mod jobs;
mod leadership;
mod lending;
mod listing;
mod members;
mod meter;
mod meters;
mod movers;
mod needed;
mod oidc;
mod omissions;
mod opened;
mod options;
mod outbound;
mod ports;
mod probe;
mod program;
mod purges;
mod queue;
mod quotas;
mod release;
mod reload;
mod render;
mod restored;
mod scatter;
mod secrets;
mod site;
mod slurmrestd;
mod spaces;
mod store;
mod submit;
mod tokens;
mod traced;
mod watch;
mod wishes;

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use posthaste_core::contract::{Fault, Input};
use posthaste_endpoint::{Error, ErrorKind, Reach, Result};
use posthaste_journal::Scan;
use posthaste_relay::Outlet;
use posthaste_types::ByteRate;
use tokio::{
    net::TcpListener,
    sync::{mpsc, oneshot},
    task::JoinSet,
};

pub use alarms::{Alarm, read_alarms, test_alarm};
pub use backup::{Backup, Whereabouts, back_up, copied_so_far, look as look_at_backup};
pub use http::openapi;
pub use lending::LendingOptions;
pub use listing::CACHE_BYTES as LISTING_CACHE_BYTES;
pub use oidc::{Discovery, Issuer, Oidc, token_ends};
pub use options::{Logs, Options};
pub use posthaste_core::contract::Encode;
pub use purges::check_purge_policy;
pub use queue::Scheduler;
pub use quotas::Quota;
pub use reload::{Reloaded, Reloader};
pub use secrets::{make_private_directory, read_private, to_hex, write_private};
pub use site::{Complaint, SITE_TABLES, Site, read_site};
pub use slurmrestd::{QueueUrl, RestOptions};
pub use store::journal_error;

/// Most depots that may be added before their watches start.
const WATCHES_MAX: usize = 64;
/// Time for pending answers once the service is told to end.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(200);
/// Interval of looks for keys that are no longer needed.
const KEYS_EVERY: Duration = Duration::from_secs(3600);

/// Service that listens, but does nothing yet.
pub struct Service {
    desk: http::Desk,
    listener: TcpListener,
    fts_listener: Option<TcpListener>,
    driver: driver::Driver,
    begun: mpsc::UnboundedReceiver<submit::Begun>,
    watches: mpsc::Receiver<Arc<depots::Depot>>,
    /// Jobs that are gone, whose stage-ins may still be under way.
    forgotten: mpsc::Receiver<posthaste_journal::JobRecord>,
    /// Requested directory listings.
    listed: mpsc::Receiver<listing::Start>,
    token_file: PathBuf,
    reloader: Reloader,
    /// Leadership, if services share a database.
    lead: Option<leadership::Lead>,
    /// Source server, and the requests to read for it.
    outlet: Option<(Outlet, mpsc::Receiver<posthaste_types::RequestId>)>,
    /// Alarms at the start, and their later replacements.
    tellers: (Vec<alarms::Teller>, mpsc::Receiver<Vec<alarms::Teller>>),
}

/// Returns the monotonic clock's time, for measuring durations.
pub(crate) fn monotonic() -> Instant {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the monotonic clock"
    )]
    Instant::now()
}

impl Service {
    /// Opens the state, restores the mind and binds the port. With the journal in a database, this
    /// waits until no other service leads.
    ///
    /// # Errors
    /// [`ErrorKind::Conflict`] if the port or the state is in use, [`ErrorKind::Invalid`] for an
    /// address beyond loopback, and the operating system's and the database's.
    pub async fn open(options: &Options) -> Result<Self> {
        ports::check(options)?;
        let actors = actors::Actors::open(options.as_owners, options.as_root)?;
        let tellers = options.alarms.iter().map(alarms::Teller::open);
        let tellers = tellers.collect::<Result<_>>()?;
        let lead = match &options.database {
            Some(address) => Some(leadership::Lead::take(address).await?),
            None => None,
        };
        let listener = ports::bind(options.listen, "--listen").await?;
        let fts_listener = match options.fts_listen {
            Some(address) => Some(ports::bind(address, "--fts-listen").await?),
            None => None,
        };
        let epoch = lead.as_ref().map(|lead| lead.epoch);
        let database = options.database.as_ref().zip(epoch);
        let store = store::Store::open(&options.state, database, options.is_new)?;
        let actors = actors.with(open_credentials(&store, options)?);
        let store = Arc::new(store.acting(actors));
        let token_file = options.state.join("token");
        let token = secrets::token(&token_file)?;
        let tokens = tokens::Tokens::new(token, &store.journal(|journal| journal.tokens())?);
        let (inputs, queue) = mpsc::channel(driver::INPUTS_MAX);
        let (listings, listed) = listing::Listings::new(options.listing_cache.get(), &store.actors);
        let (scans, begun) = submit::Scans::new();
        let centre = driver::Centre::restore(store, inputs, (&listings, scans), options)?;
        let centre = Arc::new(centre);
        let (watch_sender, watches) = mpsc::channel(WATCHES_MAX);
        let (forget, forgotten) = mpsc::channel(jobs::forget::FORGOTTEN_MAX);
        let driver = driver::Driver::new(Arc::clone(&centre), queue);
        let outlet = options.lending.as_ref();
        let outlet = outlet.map(|lending| open_outlet(&options.state, &centre, lending));
        let outlet = outlet.transpose()?;
        let slurmrestd = slurmrestd::Slurmrestd::of(options.slurmrestd.as_ref())?;
        let desk = http::Desk {
            centre,
            tokens: Arc::new(tokens),
            logins: Arc::new(oidc::Logins::open(options.site.oidc.as_ref())?),
            watches: watch_sender,
            scratch: Arc::new(reload::Current::new(jobs::owner::roots(&options.scratch)?)),
            forgotten: forget,
            asking: Arc::default(),
            looks: Arc::default(),
            fts: Arc::default(),
            outlook: options.queue.map(|queue| {
                let asked = queue::Asked::of(queue, slurmrestd.clone());
                Arc::new(queue::Outlook::new(asked, options.just_in_time))
            }),
            slurmrestd,
        };
        let (teller_sender, others) = mpsc::channel(1);
        Ok(Self {
            reloader: Reloader::new(&desk, teller_sender, options.clone()),
            desk,
            listener,
            fts_listener,
            driver,
            begun,
            watches,
            forgotten,
            listed,
            token_file,
            lead,
            outlet,
            tellers: (tellers, others),
        })
    }

    /// Returns the API's listening address.
    ///
    /// # Errors
    /// The operating system's.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener
            .local_addr()
            .map_err(|cause| Error::io("look at", "the listener", cause))
    }

    /// Returns the separate listening address of FTS's interface, if any.
    ///
    /// # Errors
    /// The operating system's.
    pub fn fts_address(&self) -> Result<Option<SocketAddr>> {
        let address = self.fts_listener.as_ref().map(TcpListener::local_addr);
        address
            .transpose()
            .map_err(|cause| Error::io("look at", "the listener", cause))
    }

    /// Returns the address by which pulls reach sources, if these are served.
    #[must_use]
    pub fn source_url(&self) -> Option<&str> {
        let lending = self.desk.centre.lending.get();
        lending.map(|lending| lending.url.as_str())
    }

    /// Returns a handle that changes its settings while it runs.
    #[must_use]
    pub fn reloader(&self) -> Reloader {
        self.reloader.clone()
    }

    /// Returns the path of the token that programs must show.
    #[must_use]
    pub fn token_file(&self) -> &std::path::Path {
        &self.token_file
    }

    /// Runs until `shutdown` completes or a fatal error occurs.
    ///
    /// # Errors
    /// The journal's: nothing unrecorded may be started.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send + 'static) -> Result<()> {
        let Self {
            desk,
            listener,
            fts_listener,
            driver,
            begun,
            watches,
            forgotten,
            listed,
            outlet,
            reloader,
            tellers: (tellers, others),
            mut lead,
            ..
        } = self;
        let centre = Arc::clone(&desk.centre);
        restored::learn(&centre).await?;
        let crew = || alarms::Crew::new(Arc::clone(&centre), tellers);
        let crew = tokio::task::block_in_place(crew)?;
        let mut running = JoinSet::new();
        let cut = decide(&mut running, driver);
        running.spawn(watch::watch_all(Arc::clone(&centre), watches));
        look_after(&mut running, &desk);
        running.spawn(Arc::clone(&centre.listings).run(listed));
        running.spawn(crew.run(others));
        jobs::look_after_all(&mut running, &desk, forgotten);
        running.spawn(purges::look_on(Arc::clone(&centre)));
        if let Some(outlook) = &desk.outlook {
            running.spawn(queue::look_on(Arc::clone(&centre), Arc::clone(outlook)));
        }
        let scanner = Arc::clone(&centre);
        running.spawn(async move {
            submit::scan_all(scanner, begun).await;
            Ok(())
        });
        if let Some(outlet) = outlet {
            hand_out(&mut running, &desk, outlet);
        }
        reloader.begin().await?;
        resume(&desk).await?;
        let clerk = fts::run(Arc::clone(&centre), Arc::clone(&desk.fts));
        running.spawn(clerk);
        let (end, ended) = tokio::sync::watch::channel(false);
        let routes = http::router(desk);
        if let Some(listener) = fts_listener {
            let routes = fts::at_root(routes.clone());
            running.spawn(ports::answer(listener, routes, ended.clone()));
        }
        running.spawn(ports::answer(listener, routes, ended));
        let outcome = tokio::select! {
            () = shutdown => Ok(()),
            Some(first) = running.join_next() => flatten(first),
            lost = lose(&mut lead) => lost,
        };
        end.send_replace(true);
        // Remaining work may be cut off at any moment: the journal allows that.
        tokio::time::sleep(SHUTDOWN_GRACE).await;
        drop(cut);
        running.shutdown().await;
        match lead {
            Some(lead) => outcome.and(lead.give_up().await),
            None => outcome,
        }
    }
}

/// Runs periodic work.
fn look_after(running: &mut JoinSet<Result<()>>, desk: &http::Desk) {
    let centre = &desk.centre;
    running.spawn(meters::read_all(Arc::clone(centre)));
    running.spawn(history::keep_all(Arc::clone(centre)));
    running.spawn(Arc::clone(&centre.movers).look_after());
    running.spawn(circuits::sweep_all(Arc::clone(centre)));
    running.spawn(Arc::clone(&desk.logins).keep_fresh());
    running.spawn(retire_keys(Arc::clone(centre)));
}

/// Removes keys that are no longer needed, repeatedly.
async fn retire_keys(centre: Arc<driver::Centre>) -> Result<()> {
    loop {
        tokio::time::sleep(KEYS_EVERY).await;
        let now = centre.clock.now();
        let kept_until = |request| centre.mind().kept_until(request);
        let retire = || centre.store.retire_expired(now, kept_until);
        let retired = tokio::task::block_in_place(retire);
        let _ = retired.inspect_err(|error| tracing::warn!("{error}"));
    }
}

/// Runs the driver on its own thread until the returned sender is dropped.
fn decide(running: &mut JoinSet<Result<()>>, driver: driver::Driver) -> oneshot::Sender<()> {
    let (cut, is_cut) = oneshot::channel();
    let runtime = tokio::runtime::Handle::current();
    running.spawn_blocking(move || runtime.block_on(driver.run_until(is_cut)));
    cut
}

/// Starts serving sources, and reading their unread chunks.
fn hand_out(
    running: &mut JoinSet<Result<()>>,
    desk: &http::Desk,
    (outlet, reads): (Outlet, mpsc::Receiver<posthaste_types::RequestId>),
) {
    let sources = Arc::new(lending::Sources {
        centre: Arc::clone(&desk.centre),
        members: members::Members::new(Arc::clone(&desk.centre), desk.watches.clone()),
    });
    running.spawn(async move {
        outlet.run(sources).await;
        Ok(())
    });
    let reader = Arc::clone(&desk.centre);
    running.spawn(async move {
        lending::read_all(reader, reads).await;
        Ok(())
    });
}

/// Waits until leadership is lost, if there is any.
async fn lose(lead: &mut Option<leadership::Lead>) -> Result<()> {
    match lead {
        Some(lead) => lead.lost().await,
        None => std::future::pending().await,
    }
}

/// Opens users' credentials.
fn open_credentials(store: &store::Store, options: &Options) -> Result<credentials::Credentials> {
    let usual = || options.state.join(credentials::KEY_FILE);
    let key_file = options.credentials_key.clone().unwrap_or_else(usual);
    let known = store.journal(|journal| journal.credentials())?;
    let address_key_file = options.state.join(credentials::ADDRESS_KEY_FILE);
    let credentials = credentials::Credentials::open(&key_file, &address_key_file, &known)?;
    Ok(credentials.reaching(Reach::beyond(&options.allow_address)?))
}

/// Binds the port of the source server.
fn open_outlet(
    state: &std::path::Path,
    centre: &driver::Centre,
    options: &LendingOptions,
) -> Result<(Outlet, mpsc::Receiver<posthaste_types::RequestId>)> {
    let outlet = Outlet::open(&state.join("source"), options.listen, options.rate)?;
    let (sender, reads) = mpsc::channel(lending::READS_MAX);
    let lending = lending::Lending::new(&outlet, options.url.clone(), sender)?;
    let _ = centre.lending.set(lending);
    Ok((outlet, reads))
}

fn flatten(ended: Result<Result<()>, tokio::task::JoinError>) -> Result<()> {
    ended.unwrap_or_else(|cause| {
        Err(Error::new(ErrorKind::Other, "run", "the service").cause(cause.to_string()))
    })
}

/// Reports to the mind where chunks are coded and the uplink's rate, if they changed.
async fn choose_encoding(
    centre: &driver::Centre,
    (encode, rate): (Encode, Option<ByteRate>),
) -> Result<()> {
    let (encode_so_far, rate_so_far) = centre.mind().encoding();
    if encode != encode_so_far {
        centre.tell(Input::EncodeChosen { encode }).await?;
    }
    if rate != rate_so_far {
        centre.tell(Input::EgressTold { rate }).await?;
    }
    Ok(())
}

/// Reports the start to the mind, and resumes work that a crash interrupted.
async fn resume(desk: &http::Desk) -> Result<()> {
    let centre = &desk.centre;
    tokio::task::block_in_place(|| centre.store.retire_keys(centre.clock.now()))?;
    inbound::Inbound::sweep(&centre.store).await?;
    let mut twins = Vec::new();
    for record in centre.store.journal(|journal| journal.depots())? {
        let path = depots::secret_path(centre.store.directory(), &record.name);
        let secret = depots::parse_secret(&secrets::read_private(&path)?, &record.name)?;
        let depot = Arc::new(depots::open(record, secret, centre.network(), monotonic())?);
        let twin = centre.depots.twin(&depot.record);
        centre.depots.insert(Arc::clone(&depot));
        // The mind still knows its terms, and gets them again when the relay reports its hours.
        enlist::tell_facts(centre, &depot.record).await?;
        tell_ways(centre, &depot).await?;
        match twin {
            None => {
                let _ = desk.watches.send(depot).await;
            }
            Some(twin) => twins.push((depot, twin)),
        }
    }
    circuits::offer(centre).await?;
    centre.tell(Input::DriverStarted).await?;
    for (depot, twin) in twins {
        let (name, known) = (&depot.record.name, &twin.record.name);
        tracing::warn!(
            "depot {name} is not used: it is the relay that is called {known} too; `posthaste depot remove {name}`"
        );
        let (depot, fault) = (depot.record.id, Fault::Unreachable);
        centre.tell(Input::DepotDown { depot, fault }).await?;
    }
    let straight = centre.store.journal(|journal| journal.stage_ins())?;
    for record in straight.iter().filter(|record| outbound::goes_out(record)) {
        if outbound::submit::is_open(centre, record) {
            let behalf = tokio::task::block_in_place(|| centre.store.actors.of(record));
            let places = outbound::places_as_written(record, behalf.as_ref().ok());
            centre.outgoing.places.take(record.id, places);
            // The links' targets are resolved by a task that may wait for them.
            let (centre, record) = (Arc::clone(centre), record.clone());
            drop(tokio::task::spawn_blocking(move || {
                let places = outbound::places(&record, &behalf?);
                centre.outgoing.places.take(record.id, places);
                Ok::<_, Error>(())
            }));
        }
    }
    let untold = centre.store.journal(|journal| journal.untold_requests())?;
    let waiting = untold.iter().filter(|record| record.scan.is_none());
    let waiting = waiting.map(|record| record.dataset.clone()).collect();
    tokio::task::block_in_place(|| centre.store.sweep_names(&waiting))?;
    for record in &untold {
        match record.scan {
            None => centre.scans.begin(record.id, None),
            Some(Scan::Sealed { .. }) => submit::submit(centre, record.id).await?,
            Some(Scan::Failed { .. }) => {}
        }
    }
    jobs::forget::resume(desk)
}

/// Tells the mind which ways lead to a depot, if there are several or were at an earlier run.
pub(crate) async fn tell_ways(centre: &driver::Centre, depot: &depots::Depot) -> Result<()> {
    let knows_several = centre.mind().has_ways(depot.record.id);
    match depot.ways_found(knows_several) {
        Some(input) => centre.tell(input).await,
        None => Ok(()),
    }
}
