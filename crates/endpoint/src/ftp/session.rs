//! A control connection, and the data connections it opens.

use std::{
    collections::VecDeque,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use rustls::{ClientConfig, client::Resumption};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpStream, lookup_host},
    time::timeout,
};

use super::{
    facts::Features,
    host::{ANSWERED_WITHIN, Host, Security, Wire},
    reply::{REPLY_BYTES_MAX, Reading, Reply},
};
use crate::{Error, ErrorKind, Locus, Result, clock};

/// Timeout of the second of two answers after the first, beside a round trip: a server that loses a
/// command stays silent.
const SECOND_WITHIN: Duration = Duration::from_secs(3);

/// Longest wait until a server has stored its input.
const STORED_WITHIN: Duration = Duration::from_secs(600);

/// Most TLS sessions remembered for one login: servers give two with each connection.
const TLS_SESSIONS: usize = 16;

/// Login session.
pub(super) struct Session {
    host: Arc<Host>,
    tls: Option<Arc<ClientConfig>>,
    wire: BufReader<Box<dyn Wire>>,
    peer: IpAddr,
    pub(super) features: Features,
    /// Round trip time, as measured while connecting.
    pub(super) round_trip: Duration,
    /// Pending answers: none between two commands.
    awaited: VecDeque<Vec<u8>>,
    /// True if the server hangs up.
    is_over: bool,
    /// Time of its last use.
    pub(super) used: Instant,
    knows_epsv: bool,
}

impl Session {
    /// Connects and logs in.
    ///
    /// # Errors
    /// [`ErrorKind::Unreachable`], [`ErrorKind::Unauthenticated`], [`ErrorKind::Busy`] for one
    /// session too many.
    pub(super) async fn open(host: Arc<Host>) -> Result<Self> {
        match Self::try_open(Arc::clone(&host)).await? {
            Some(session) => Ok(session),
            // Its answer may still arrive and must not count as another's: use a connection of its
            // own.
            None => Self::try_open(Arc::clone(&host)).await?.ok_or_else(|| {
                let error = host.fail(ErrorKind::TimedOut, "log in at");
                error.cause("no answer")
            }),
        }
    }

    /// Opens a session; `None` if the server turned out to lose commands that are sent ahead.
    async fn try_open(host: Arc<Host>) -> Result<Option<Self>> {
        let found = lookup_host((host.name.as_str(), host.port)).await;
        let found = found.map_err(|cause| host.broken("connect to", cause))?;
        let asked = clock::now();
        let stream = host.connect(found.collect()).await?;
        let round_trip = clock::now().saturating_duration_since(asked);
        let peer = stream.peer_addr();
        let peer = peer.map_err(|cause| host.broken("connect to", cause))?.ip();
        let tls = host.tls.as_ref().map(|config| {
            let mut config = ClientConfig::clone(config);
            config.resumption = Resumption::in_memory_sessions(TLS_SESSIONS);
            Arc::new(config)
        });
        let mut wire: Box<dyn Wire> = Box::new(stream);
        if host.security == Security::Implicit {
            wire = host.protect(wire, tls.as_ref()).await?;
        }
        let mut session = Self {
            host: Arc::clone(&host),
            tls,
            wire: BufReader::new(wire),
            peer,
            features: Features::default(),
            round_trip,
            awaited: VecDeque::new(),
            is_over: false,
            used: clock::now(),
            knows_epsv: true,
        };
        session.awaited.push_back(Vec::new());
        let greeting = session.answer(ANSWERED_WITHIN).await?;
        session.expect(greeting, "connect to")?;
        if host.security == Security::Explicit {
            session = session.protected().await?;
        }
        Ok(session.log_in().await?.then_some(session))
    }

    async fn protected(mut self) -> Result<Self> {
        let reply = self.ask(b"AUTH TLS").await?;
        if !reply.is_done() {
            let error = self.host.fail(ErrorKind::Unsupported, "connect to");
            return Err(error
                .cause(format!("the server refuses TLS: \"{}\"", reply.text()))
                .hint("without it, passwords and files go in the clear: ftp://"));
        }
        // Bytes from before the handshake are not protected and must not be believed.
        let wire = self
            .host
            .protect(self.wire.into_inner(), self.tls.as_ref())
            .await?;
        self.wire = BufReader::new(wire);
        Ok(self)
    }

    /// Logs in. Returns whether the server answered every command.
    async fn log_in(&mut self) -> Result<bool> {
        let host = Arc::clone(&self.host);
        let mut reply = self.ask(format!("USER {}", host.user).as_bytes()).await?;
        if reply.code == 331 {
            let secret = format!("PASS {}", host.password.reveal());
            reply = self.ask(secret.as_bytes()).await?;
        }
        if reply.code == 332 {
            let error = host.fail(ErrorKind::Unsupported, "log in at");
            return Err(error.cause("the server wants an account (ACCT)"));
        }
        self.expect(reply, "log in at")?;
        if host.security != Security::Plain {
            for command in ["PBSZ 0", "PROT P"] {
                let reply = self.ask(command.as_bytes()).await?;
                self.expect(reply, "protect the data of")?;
            }
        }
        let (features, binary) = if self.host.ways.is_lockstep.load(Relaxed) {
            (self.ask(b"FEAT").await?, self.ask(b"TYPE I").await?)
        } else {
            self.tell(&[b"FEAT", b"TYPE I"]).await?;
            let features = self.answer(ANSWERED_WITHIN).await?;
            match self.answer(SECOND_WITHIN + self.round_trip).await {
                Ok(binary) => (features, binary),
                Err(error) if error.kind() == ErrorKind::TimedOut => {
                    self.host.ways.is_lockstep.store(true, Relaxed);
                    return Ok(false);
                }
                Err(error) => return Err(error),
            }
        };
        self.features = Features::read(&features);
        self.expect(binary, "set up")?;
        if self.features.utf8 {
            // Most servers use UTF-8 anyway.
            let _ = self.ask(b"OPTS UTF8 ON").await?;
        }
        Ok(true)
    }

    fn expect(&self, reply: Reply, operation: &'static str) -> Result<()> {
        if reply.is_done() {
            return Ok(());
        }
        Err(reply.refusal(operation, self.host.show(), Locus::Network))
    }

    /// Returns whether another command may follow.
    pub(super) fn is_clean(&self) -> bool {
        self.awaited.is_empty() && !self.is_over
    }

    /// Sends a command and reads the answer. The caller ensures that it is one line.
    pub(super) async fn ask(&mut self, command: &[u8]) -> Result<Reply> {
        self.tell(&[command]).await?;
        self.answer(ANSWERED_WITHIN).await
    }

    /// Sends independent commands and reads the answers: all at once, if the server accepts that.
    pub(super) async fn ask_all(&mut self, commands: &[Vec<u8>]) -> Result<Vec<Reply>> {
        let mut replies = Vec::with_capacity(commands.len());
        if self.is_lockstep() {
            for command in commands {
                replies.push(self.ask(command).await?);
            }
            return Ok(replies);
        }
        let commands: Vec<&[u8]> = commands.iter().map(Vec::as_slice).collect();
        self.tell(&commands).await?;
        for _ in commands {
            replies.push(self.answer(ANSWERED_WITHIN).await?);
        }
        Ok(replies)
    }

    /// Returns whether a command must wait for the answer to the last one.
    pub(super) fn is_lockstep(&self) -> bool {
        self.host.ways.is_lockstep.load(Relaxed)
    }

    /// Sends commands without waiting for their answers.
    pub(super) async fn tell(&mut self, commands: &[&[u8]]) -> Result<()> {
        let mut lines = Vec::new();
        for command in commands {
            if command.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
                let error = self.host.fail(ErrorKind::Unsupported, "ask");
                return Err(error.cause("a line break in a name, a user or a password"));
            }
            lines.extend_from_slice(command);
            lines.extend_from_slice(b"\r\n");
        }
        let paths = commands.iter().map(|command| argument_of(command).to_vec());
        self.awaited.extend(paths);
        self.used = clock::now();
        let writing = async {
            self.wire.write_all(&lines).await?;
            self.wire.flush().await
        };
        let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
        let written = timeout(ANSWERED_WITHIN, writing).await;
        written
            .unwrap_or_else(late)
            .map_err(|cause| self.host.broken("ask", cause))
    }

    /// Reads the next answer.
    async fn answer(&mut self, within: Duration) -> Result<Reply> {
        let read = timeout(within, self.read_reply()).await;
        let late = |_| Err(io::Error::new(io::ErrorKind::TimedOut, "no answer"));
        let mut reply = read
            .unwrap_or_else(late)
            .map_err(|cause| self.host.broken("ask", cause))?;
        // 421: the server hangs up. 1xx: more is to come.
        self.is_over |= reply.code == 421;
        let about = match reply.code / 100 {
            1 => self.awaited.front().cloned(),
            _ => self.awaited.pop_front(),
        };
        reply.about = about.unwrap_or_default();
        Ok(reply)
    }

    async fn read_reply(&mut self) -> io::Result<Reply> {
        let mut reading = Reading::default();
        let nonsense = || io::Error::new(io::ErrorKind::InvalidData, "this is no FTP server");
        loop {
            let mut line = Vec::new();
            loop {
                let ready = self.wire.fill_buf().await?;
                if ready.is_empty() {
                    return Err(io::Error::new(
                        io::ErrorKind::ConnectionReset,
                        "the server closed the connection",
                    ));
                }
                let end = ready.iter().position(|&byte| byte == b'\n');
                let taken = end.map_or(ready.len(), |end| end + 1);
                line.extend_from_slice(&ready[..taken]);
                self.wire.consume(taken);
                if line.len() > REPLY_BYTES_MAX {
                    return Err(nonsense());
                }
                if end.is_some() {
                    break;
                }
            }
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            if let Some(reply) = reading.line(text).map_err(|_| nonsense())? {
                return Ok(reply);
            }
        }
    }

    /// Begins a data transfer: `before` must come right before `command` (REST, RANG). Returns
    /// `None` with the refusal if the server refuses one of them.
    pub(super) async fn transfer(
        &mut self,
        before: Option<&[u8]>,
        command: &[u8],
    ) -> Result<Result<Box<dyn Wire>, Reply>> {
        let knows_epsv = self.host.ways.knows_epsv.load(Relaxed) && self.knows_epsv;
        let data = if before.is_none() && knows_epsv && !self.is_lockstep() {
            self.connect_ahead(command).await?
        } else {
            self.connect_in_turn(before, command).await?
        };
        let data: Box<dyn Wire> = match data {
            Ok(data) => Box::new(data),
            Err(reply) => return Ok(Err(reply)),
        };
        if self.host.security == Security::Plain {
            return Ok(Ok(data));
        }
        Ok(Ok(self.host.protect(data, self.tls.as_ref()).await?))
    }

    async fn connect_in_turn(
        &mut self,
        before: Option<&[u8]>,
        command: &[u8],
    ) -> Result<Result<TcpStream, Reply>> {
        let port = match self.passive().await? {
            Ok(port) => port,
            Err(reply) => return Ok(Err(reply)),
        };
        let data = self.connect(port).await?;
        if let Some(before) = before {
            let reply = self.ask(before).await?;
            if !reply.goes_on() {
                return Ok(Err(reply));
            }
        }
        let reply = self.ask(command).await?;
        Ok(begun(reply, data))
    }

    /// Asks a server that has listened before to listen, and sends the command at once.
    async fn connect_ahead(&mut self, command: &[u8]) -> Result<Result<TcpStream, Reply>> {
        self.tell(&[b"EPSV", command]).await?;
        let listens = self.answer(ANSWERED_WITHIN).await?;
        if listens.code != 229 {
            let _ = self.answer(ANSWERED_WITHIN).await?;
            return Ok(Err(listens));
        }
        let port = extended_port(&listens.text()).ok_or_else(|| self.no_port(&listens))?;
        let connected = self.connect(port).await;
        // A server that refuses the command no longer listens: then its answer tells more.
        let reply = self.answer(ANSWERED_WITHIN).await?;
        match connected {
            Ok(data) => Ok(begun(reply, data)),
            Err(_) if reply.code / 100 != 1 => Ok(Err(reply)),
            Err(error) => Err(error),
        }
    }

    async fn connect(&mut self, port: u16) -> Result<TcpStream> {
        let address = SocketAddr::new(self.peer, port);
        self.host.connect(vec![address]).await
    }

    /// Makes the server listen, and returns its port. The address is the one we are connected to,
    /// whatever it says: behind NAT it doesn't know better, and others' addresses are an attack.
    async fn passive(&mut self) -> Result<Result<u16, Reply>> {
        if self.knows_epsv {
            let reply = self.ask(b"EPSV").await?;
            if reply.code == 229 {
                self.host.ways.knows_epsv.store(true, Relaxed);
                let port = extended_port(&reply.text());
                return port.map(Ok).ok_or_else(|| self.no_port(&reply));
            }
            self.knows_epsv = false;
        }
        let reply = self.ask(b"PASV").await?;
        if reply.code != 227 {
            return Ok(Err(reply));
        }
        let port = passive_port(&reply.text());
        port.map(Ok).ok_or_else(|| self.no_port(&reply))
    }

    fn no_port(&self, reply: &Reply) -> Error {
        let error = self
            .host
            .fail(ErrorKind::Other, "open a data connection to");
        error.cause(format!("the server names no port: \"{}\"", reply.text()))
    }

    /// Returns the answer to the last command.
    pub(super) async fn told(&mut self) -> Result<Reply> {
        self.answer(ANSWERED_WITHIN).await
    }

    /// Reads the answer at the end of a transfer.
    pub(super) async fn ended(&mut self) -> Result<Reply> {
        self.answer(STORED_WITHIN).await
    }

    /// Reads the server's answers after a data connection was closed early.
    pub(super) async fn settle(&mut self, within: Duration) -> Option<Reply> {
        self.answer(within).await.ok()
    }
}

/// Returns the data connection, if the server goes on.
fn begun(reply: Reply, data: TcpStream) -> Result<TcpStream, Reply> {
    match reply.code / 100 {
        1 => Ok(data),
        _ => Err(reply),
    }
}

/// Returns the port of `Entering Extended Passive Mode (|||6446|)` (RFC 2428).
fn extended_port(text: &str) -> Option<u16> {
    let (_, inner) = text.rsplit_once('(')?;
    let inner = inner.split(')').next()?;
    let mark = inner.chars().next()?;
    let mut fields = inner.split(mark);
    fields.nth(3)?.parse().ok().filter(|&port| port > 0)
}

/// Returns the port of `Entering Passive Mode (h1,h2,h3,h4,p1,p2)`; some servers leave out the
/// brackets.
fn passive_port(text: &str) -> Option<u16> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let numbers: Vec<u8> = text[start..]
        .split(|c: char| !c.is_ascii_digit())
        .take(6)
        .map_while(|number| number.parse().ok())
        .collect();
    match numbers[..] {
        [_, _, _, _, high, low] => Some(u16::from_be_bytes([high, low])).filter(|&port| port > 0),
        _ => None,
    }
}

/// Reads lines as every possible kind, for [`crate::fuzzing`].
pub(crate) fn try_lines(data: &[u8]) {
    let mut reading = super::reply::Reading::default();
    for line in data.split(|byte| *byte == b'\n') {
        if let Some(told) = super::facts::told_of(line) {
            let is_file = told.entry.kind == crate::endpoint::Kind::File;
            assert!(
                is_file || told.entry.size == 0,
                "what is no file has a size"
            );
        }
        match reading.line(line) {
            Ok(Some(reply)) => {
                let _ = (Features::read(&reply), reply.text());
                for port in [extended_port(&reply.text()), passive_port(&reply.text())] {
                    assert_ne!(port, Some(0), "nobody listens there");
                }
            }
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

/// Returns the argument of a command, if it is no secret.
fn argument_of(command: &[u8]) -> &[u8] {
    if [&b"PASS"[..], b"ACCT"]
        .iter()
        .any(|secret| command.starts_with(secret))
    {
        return b"";
    }
    let cut = command.iter().position(|&byte| byte == b' ');
    cut.map_or(b"", |cut| &command[cut + 1..])
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::AsyncReadExt,
        net::{
            TcpListener,
            tcp::{OwnedReadHalf, OwnedWriteHalf},
        },
    };

    use super::{super::host::Ways, *};
    use crate::{config::Secret, reach::Reach};

    /// Answers the first command of each packet and loses the rest of it.
    async fn answer_first(mut from: OwnedReadHalf, mut to: OwnedWriteHalf) -> io::Result<()> {
        to.write_all(b"220 hello\r\n").await?;
        let mut packet = [0; 1024];
        loop {
            let len = from.read(&mut packet).await?;
            if len == 0 {
                return Ok(());
            }
            let reply: &[u8] = match &packet[..4] {
                b"USER" => b"331 and?\r\n",
                b"PASS" => b"230 in\r\n",
                b"FEAT" => b"211-all\r\n MLST size*;\r\n211 end\r\n",
                _ => b"200 done\r\n",
            };
            to.write_all(reply).await?;
        }
    }

    #[tokio::test]
    async fn a_server_that_loses_commands_is_told_one_at_a_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = async {
            let mut sessions = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (from, to) = stream.into_split();
                sessions.spawn(answer_first(from, to));
            }
        };
        let asking = async {
            let host = Arc::new(Host {
                scheme: "ftp",
                name: "127.0.0.1".to_owned(),
                port,
                shows_port: true,
                security: Security::Plain,
                tls: None,
                user: "me".to_owned(),
                password: Secret::new("secret"),
                ways: Ways::default(),
                reach: Reach::default(),
            });
            let mut session = Session::open(host).await.unwrap();
            assert!(session.features.facts && session.is_lockstep());
            let commands = [b"NOOP".to_vec(), b"NOOP".to_vec()];
            let replies = session.ask_all(&commands).await.unwrap();
            assert!(replies.len() == 2 && replies.iter().all(Reply::is_done));
            assert!(session.is_clean());
        };
        tokio::select! {
            () = asking => {}
            () = serving => {}
        }
    }

    #[test]
    fn ports_are_found_in_what_servers_say() {
        assert_eq!(
            extended_port("Entering Extended Passive Mode (|||6446|)"),
            Some(6446)
        );
        assert_eq!(extended_port("ok (!!!80!)."), Some(80));
        for text in [
            "",
            "(",
            "()",
            "(||||)",
            "(|||99999|)",
            "(|||0|)",
            "|||6446|",
        ] {
            assert_eq!(extended_port(text), None, "{text}");
        }
        assert_eq!(
            passive_port("Entering Passive Mode (10,0,0,1,25,46)."),
            Some(6446)
        );
        assert_eq!(passive_port("=127,0,0,1,0,80"), Some(80));
        for text in ["", "1,2,3", "(10,0,0,1,300,4)", "(10,0,0,1,0,0)", "(a)"] {
            assert_eq!(passive_port(text), None, "{text}");
        }
    }
}
