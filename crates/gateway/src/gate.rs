//! Gateway: listens, authorizes and carries.

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use posthaste_endpoint::{
    Error, ErrorKind, Guest, Lobby, Result,
    gateway::{HOPS_MAX, Refusal, Reserved, Target, is_for_all, tune, verify, verify_for_joining},
    relay::{check_own_folder, read_or_make_secret},
};
use socket2::SockRef;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinSet, spawn_blocking},
    time::{sleep, timeout},
};

use crate::{
    GatewayOptions,
    braid::{Book, Several, Side, carry, greet},
    carry::{End, Pipes},
    clock,
    dial::{Found, check, open},
    greeting::{
        self, Greeting, Wish, accept, accept_several, ask_for_token, refuse, tell, turn_away,
    },
    limits,
    reserve::{self, Answer, Desk, Question},
    route::Table,
    tally::Tally,
};

/// Time for a client to send its greeting.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept: the process has too many files open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// State that all streams of a gateway share.
struct Shared {
    /// Id of the gateway on a path, by which gateways detect loops.
    id: String,
    secret: [u8; 32],
    table: Table,
    pipes: Pipes,
    /// Streams that several connections carry.
    braids: Arc<Book>,
    tally: Tally,
    permits: Arc<Semaphore>,
    /// Reservations of rates, if there are any.
    desk: Option<Arc<Desk>>,
}

/// Gateway that has its ports and is ready to run.
pub struct Gateway {
    listener: TcpListener,
    local: SocketAddr,
    forwards: Vec<(TcpListener, Target)>,
    secret_file: PathBuf,
    shared: Arc<Shared>,
}

fn make_folder(dir: &Path) -> Result<()> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir);
    made.map_err(|cause| Error::io("make", dir.display().to_string(), cause))?;
    check_own_folder(dir)
}

async fn bind(listen: SocketAddr) -> Result<(TcpListener, SocketAddr)> {
    let another = "choose another with --listen";
    let failed = |cause| Error::listening(listen, cause, another);
    let listener = TcpListener::bind(listen).await.map_err(failed)?;
    let local = listener.local_addr().map_err(failed)?;
    Ok((listener, local))
}

impl Gateway {
    /// Reads or creates the secret, and listens.
    ///
    /// # Errors
    /// If a port is in use or the folder can't be used; [`ErrorKind::Unsupported`] for a congestion
    /// control that the kernel lacks; [`ErrorKind::Invalid`] if the gateway would lead nowhere;
    /// errors of building a device's tree.
    pub async fn open(options: GatewayOptions) -> Result<Self> {
        if options.table.is_closed() && options.forwards.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "start", "the gateway")
                .cause("it may lead nowhere")
                .hint("say where with --allow, such as --allow '*.example.org:443'"));
        }
        for segment in options.table.segments() {
            check(&segment)?;
        }
        limits::make_room(options.streams_max)?;
        let secret_file = options.dir.join("secret");
        make_folder(&options.dir)?;
        let secret = read_or_make_secret(&secret_file)?;
        let (listener, local) = bind(options.listen).await?;
        let mut forwards = Vec::new();
        for forward in options.forwards {
            forwards.push((bind(forward.listen).await?.0, forward.target));
        }
        let mut id = [0; 8];
        getrandom::fill(&mut id).map_err(|cause| {
            Error::new(ErrorKind::Other, "start", "the gateway").cause(cause.to_string())
        })?;
        // Last, and undone if it fails: nothing before this line changes the machine.
        let desk = match options.reserve {
            none if none.is_empty() => None,
            some => Some(Arc::new(Desk::open(some, &options.dir).await?)),
        };
        // The operator decides where a port leads.
        let places = forwards.iter().map(|(_, target)| target.into());
        let shared = Shared {
            id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
            secret,
            table: options.table.allowing(places),
            pipes: Pipes::default(),
            braids: Arc::default(),
            tally: Tally::default(),
            permits: Arc::new(Semaphore::new(options.streams_max)),
            desk,
        };
        Ok(Self {
            listener,
            local,
            forwards,
            secret_file,
            shared: Arc::new(shared),
        })
    }

    /// Returns the address on which the gateway listens.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Returns the addresses of the ports that lead to one target each.
    #[must_use]
    pub fn forwards(&self) -> Vec<SocketAddr> {
        let all = self.forwards.iter();
        all.filter_map(|(listener, _)| listener.local_addr().ok())
            .collect()
    }

    /// Returns the file with the secret.
    #[must_use]
    pub fn secret_file(&self) -> &Path {
        &self.secret_file
    }

    /// Serves until `shutdown`; then open streams break, and devices are as they were before.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let mut doors = JoinSet::new();
        doors.spawn(admit(self.listener, Arc::clone(&self.shared)));
        for (listener, target) in self.forwards {
            doors.spawn(lead_all(listener, target, Arc::clone(&self.shared)));
        }
        let desk = self.shared.desk.clone();
        if let Some(desk) = desk.clone() {
            doors.spawn(async move { desk.keep().await });
        }
        shutdown.await;
        doors.shutdown().await;
        if let Some(desk) = desk {
            desk.close().await;
        }
    }
}

/// Accepts clients. `streams_max` bounds those that have shown a token.
async fn admit(listener: TcpListener, shared: Arc<Shared>) {
    let (mut lobby, mut streams) = (Lobby::default(), JoinSet::new());
    loop {
        let (stream, guest) = lobby.accept(&listener).await;
        while streams.try_join_next().is_some() {}
        let (shared, asks) = (Arc::clone(&shared), guest.clone());
        // A client that breaks the rules or the connection has been told, as far as possible.
        let serving = async move { drop(shared.serve(stream, &asks).await) };
        lobby.add(guest, streams.spawn(serving));
    }
}

/// Connects clients of a port to its one target, up to the limit at once.
async fn lead_all(listener: TcpListener, target: Target, shared: Arc<Shared>) {
    let mut streams = JoinSet::new();
    loop {
        while streams.try_join_next().is_some() {}
        let permit = Arc::clone(&shared.permits).acquire_owned().await;
        let (Ok((stream, _)), Ok(permit)) = (listener.accept().await, permit) else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (shared, target) = (Arc::clone(&shared), target.clone());
        streams.spawn(async move {
            let _permit = permit;
            let _ = shared.lead_to(stream, &target).await;
        });
    }
}

fn why(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::Forged => "this is no token of this gateway",
        Refusal::Expired => "the token has expired",
        Refusal::Elsewhere => "the token is for another place",
    }
}

impl Shared {
    fn judge(
        &self,
        token: Option<&str>,
        target: Option<&Target>,
    ) -> std::result::Result<(), &'static str> {
        let token =
            token.ok_or("a token is needed: its name is anything, its password the token")?;
        verify(&self.secret, token, target, clock::unix_s()).map_err(why)
    }

    /// Accepts a client with a good token, once there is space for one more.
    async fn let_in(&self, guest: &Guest) -> io::Result<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.permits).acquire_owned().await;
        guest.let_in();
        permit.map_err(io::Error::other)
    }

    /// Serves a client that names its target.
    async fn serve(&self, stream: TcpStream, guest: &Guest) -> io::Result<()> {
        tune(SockRef::from(&stream), self.table.segment())?;
        let is_good = |token: &str| self.judge(Some(token), None).is_ok();
        let greeted = timeout(GREETING_TIMEOUT, greeting::read(stream, &is_good)).await;
        let greeted = greeted
            .map_err(io::Error::from)
            .and_then(|greeting| greeting);
        if greeted.is_err() {
            self.tally.refused.fetch_add(1, Relaxed);
        }
        match greeted? {
            Greeting::Stream(wish, client) => self.lead(wish, client, guest).await,
            Greeting::Join(token, client) => self.join(token.as_deref(), client, guest).await,
            Greeting::Status(token, mut client) => {
                if let Err(why) = self.judge(token.as_deref(), None) {
                    self.tally.refused.fetch_add(1, Relaxed);
                    return ask_for_token(&mut client.stream, why).await;
                }
                let _permit = self.let_in(guest).await?;
                let json = serde_json::to_string(&self.tally.counts())?;
                tell(&mut client.stream, &json).await
            }
            Greeting::Reservations(token, question, mut client) => {
                let judged = self.judge(token.as_deref(), None).and_then(|()| {
                    let is_for_all = token.as_deref().is_some_and(is_for_all);
                    is_for_all
                        .then_some(())
                        .ok_or("the token is for one place only")
                });
                if let Err(why) = judged {
                    self.tally.refused.fetch_add(1, Relaxed);
                    return ask_for_token(&mut client.stream, why).await;
                }
                let _permit = self.let_in(guest).await?;
                let answer = self.ask_desk(question).await;
                reserve::tell(&mut client.stream, &answer).await
            }
        }
    }

    /// Asks the desk on a blocking thread, as it writes to disk.
    async fn ask_desk(&self, question: Question) -> Answer {
        let Some(desk) = self.desk.clone() else {
            return Answer::error(
                501,
                "nothing is reserved here: the gateway runs without --reserve",
            );
        };
        let answer = spawn_blocking(move || desk.answer(&question, clock::now())).await;
        answer.unwrap_or_else(|_| Answer::error(503, "the desk broke"))
    }

    /// Returns the class of a reservation's stream. `None` without a reservation, and for an
    /// unknown one that is optional. A gateway without reservations of its own ignores those of
    /// others.
    fn class_of(&self, wish: &Wish) -> Result<Option<u32>> {
        let (Some(reserved), Some(desk)) = (&wish.reservation, &self.desk) else {
            return Ok(None);
        };
        let class = desk.priority(reserved.id(), clock::now());
        if class.is_some() || reserved.is_optional() {
            return Ok(class);
        }
        let id = reserved.id().to_owned();
        let error = Error::new(ErrorKind::PermissionDenied, "use the reservation", id);
        Err(error.cause("there is none of that name here"))
    }

    /// Authorizes a request, connects it, and carries the stream.
    async fn lead(&self, wish: Wish, mut client: End, guest: &Guest) -> io::Result<()> {
        if let Err(why) = self.judge(wish.token.as_deref(), Some(&wish.target)) {
            self.tally.refused.fetch_add(1, Relaxed);
            let error =
                Error::new(ErrorKind::PermissionDenied, "open", wish.target.to_string()).cause(why);
            return match wish.speech {
                greeting::Speech::Http => ask_for_token(&mut client.stream, why).await,
                greeting::Speech::Socks => refuse(wish.speech, &mut client.stream, &error).await,
            };
        }
        let _permit = self.let_in(guest).await?;
        match self.open(&wish, &client).await {
            Ok((target, class)) => {
                let client = self.accept(&wish, client, class).await?;
                self.carry(client, target).await
            }
            Err(error) => {
                self.tally.count(&error);
                refuse(wish.speech, &mut client.stream, &error).await
            }
        }
    }

    /// Tells a client that its stream is open, over several connections if it wants them and there
    /// is space.
    async fn accept(&self, wish: &Wish, mut client: End, class: Option<u32>) -> io::Result<Side> {
        let permit = (wish.connections > 1)
            .then(|| self.braids.permit())
            .flatten();
        let Some(permit) = permit else {
            accept(wish.speech, &mut client.stream).await?;
            return Ok(Side::One(client));
        };
        let now = clock::unix_s();
        let (braid, listed, more) = self.braids.list(wish.connections, class, permit, now)?;
        accept_several(&mut client.stream, &braid).await?;
        self.tally.braids.fetch_add(1, Relaxed);
        Ok(Side::Several(Box::new(Several::listed(
            client, listed, more,
        ))))
    }

    /// Accepts a further connection of a stream.
    async fn join(&self, token: Option<&str>, mut client: End, guest: &Guest) -> io::Result<()> {
        let now = clock::unix_s();
        let judged = token
            .ok_or("a token is needed")
            .and_then(|token| verify_for_joining(&self.secret, token, now).map_err(why));
        let (id, number) = match judged {
            Ok(judged) => judged,
            Err(why) => {
                self.tally.refused.fetch_add(1, Relaxed);
                return ask_for_token(&mut client.stream, why).await;
            }
        };
        let _permit = self.let_in(guest).await?;
        let place = match self.braids.claim(id, number, now) {
            Ok(place) => place,
            Err(stranger) => {
                self.tally.refused.fetch_add(1, Relaxed);
                return turn_away(&mut client.stream, stranger).await;
            }
        };
        if let Some(class) = place.class {
            SockRef::from(&client.stream).set_priority(class)?;
        }
        accept(greeting::Speech::Http, &mut client.stream).await?;
        greet(&mut client).await?;
        self.tally.joined.fetch_add(1, Relaxed);
        // Fails once the stream has ended.
        let _ = place.joins.send(client).await;
        Ok(())
    }

    /// Returns the onward side of a stream.
    fn side_of(&self, found: Found, class: Option<u32>) -> Side {
        let Some(offer) = found.offer else {
            return Side::One(found.end);
        };
        self.tally.braids.fetch_add(1, Relaxed);
        let several = Several::opened(found.end, offer, class);
        Side::Several(Box::new(several))
    }

    /// Connects a request, with both ends in the class of its reservation.
    async fn open(&self, wish: &Wish, client: &End) -> Result<(Side, Option<u32>)> {
        let path = self.path_on(&wish.path)?;
        let mut class = self.class_of(wish)?;
        let reservation = wish.reservation.as_ref();
        let found = open(&self.table, &wish.target, &path, reservation, &self.braids).await?;
        if let Some(of_both) = class {
            let both = [&client.stream, &found.end.stream];
            let mut set = both
                .iter()
                .map(|stream| SockRef::from(*stream).set_priority(of_both));
            let set = set.try_for_each(|set| set).map_err(|cause| {
                let subject = wish.target.to_string();
                Error::io("reserve for the stream to", subject, cause)
                    .hint("give the gateway CAP_NET_ADMIN")
            });
            match set {
                Err(_) if reservation.is_some_and(Reserved::is_optional) => class = None,
                set => set?,
            }
        }
        Ok((self.side_of(found, class), class))
    }

    /// Connects a client of a port with one target to it.
    async fn lead_to(&self, stream: TcpStream, target: &Target) -> io::Result<()> {
        tune(SockRef::from(&stream), self.table.segment())?;
        let path = [self.id.clone()];
        match open(&self.table, target, &path, None, &self.braids).await {
            Ok(found) => {
                let early = Vec::new();
                let client = Side::One(End { stream, early });
                self.carry(client, self.side_of(found, None)).await
            }
            Err(error) => {
                self.tally.count(&error);
                SockRef::from(&stream).set_linger(Some(Duration::ZERO))
            }
        }
    }

    /// Returns the path of a stream, with this gateway at its end.
    fn path_on(&self, path: &[String]) -> Result<Vec<String>> {
        let why = if path.contains(&self.id) {
            "the way leads back here: routes of gateways make a loop"
        } else if path.len() >= HOPS_MAX {
            "the way leads over more than eight gateways"
        } else {
            return Ok(path.iter().chain([&self.id]).cloned().collect());
        };
        Err(Error::new(ErrorKind::Conflict, "lead on", "a stream").cause(why))
    }

    async fn carry(&self, client: Side, target: Side) -> io::Result<()> {
        let _open = self.tally.open();
        let carried = carry(client, target, &self.pipes, &self.tally.carried).await;
        if carried.is_err() {
            self.tally.broken.fetch_add(1, Relaxed);
        }
        carried
    }
}
