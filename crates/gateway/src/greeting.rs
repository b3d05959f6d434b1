//! How clients say where they want to go: SOCKS5 or HTTP CONNECT.

mod door;
mod http;
mod socks;

use std::io;

use posthaste_endpoint::{
    Error, ErrorKind,
    gateway::{Reserved, Target},
};
use tokio::{io::AsyncReadExt, net::TcpStream};

use crate::{carry::End, reserve::Question};

pub(crate) use self::http::{accept_several, ask_for_token, tell, turn_away};
pub use door::LocalDoor;

/// Which way a client talks, which is how it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speech {
    Socks,
    Http,
}

/// What a client wants.
pub(crate) struct Wish {
    pub speech: Speech,
    pub target: Target,
    /// What it shows, if anything.
    pub token: Option<String>,
    /// The gateways it came over.
    pub path: Vec<String>,
    /// The reservation it belongs to.
    pub reservation: Option<Reserved>,
    /// Connections that may carry it; only another gateway says more than one.
    pub connections: u8,
}

/// The reservation in the name that comes with a token: `reservation=ID`. Any other name says nothing.
fn reservation_of(name: &str) -> Option<Reserved> {
    Reserved::required(name.strip_prefix("reservation=")?).ok()
}

/// What a client came with.
pub(crate) enum Greeting {
    /// It wants a stream. It has been told nothing yet.
    Stream(Wish, End),
    /// It is a further connection of a stream, and shows this.
    Join(Option<String>, End),
    /// It asks how the gateway is, by HTTP, and shows this.
    Status(Option<String>, End),
    /// It asks about reservations, by HTTP, and shows this.
    Reservations(Option<String>, Question, End),
}

/// Reads what a client wants. `is_good` judges a token before any target is known.
///
/// # Errors
/// When it is no client of ours: it was told so as far as it understands.
pub(crate) async fn read(
    mut stream: TcpStream,
    is_good: &(dyn Fn(&str) -> bool + Sync),
) -> io::Result<Greeting> {
    let mut first = [0; 1];
    stream.read_exact(&mut first).await?;
    if first[0] == socks::VERSION {
        let (wish, stream) = socks::read(stream, is_good).await?;
        let early = Vec::new();
        return Ok(Greeting::Stream(wish, End { stream, early }));
    }
    http::read(stream, first.to_vec()).await
}

/// Tells a client that the stream is open.
pub(crate) async fn accept(speech: Speech, stream: &mut TcpStream) -> io::Result<()> {
    match speech {
        Speech::Socks => socks::answer(stream, socks::Reply::Open).await,
        Speech::Http => http::answer(stream, 200, "Connection established").await,
    }
}

/// Tells a client why there is no stream.
pub(crate) async fn refuse(
    speech: Speech,
    stream: &mut TcpStream,
    error: &Error,
) -> io::Result<()> {
    match speech {
        Speech::Socks => socks::answer(stream, socks::Reply::of(error.kind())).await,
        Speech::Http => {
            http::answer(stream, http::status_of(error.kind()), &error.to_string()).await
        }
    }
}

/// As an error of whoever broke the rules.
fn nonsense(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// The kind as the numbers of both protocols tell it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Why {
    NotAllowed,
    Unreachable,
    TimedOut,
    Busy,
    Loop,
    Unauthenticated,
    Other,
}

impl Why {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "ErrorKind may grow; new kinds are Other"
    )]
    fn of(kind: ErrorKind) -> Self {
        match kind {
            ErrorKind::PermissionDenied => Self::NotAllowed,
            ErrorKind::Unreachable => Self::Unreachable,
            ErrorKind::TimedOut => Self::TimedOut,
            ErrorKind::Busy => Self::Busy,
            ErrorKind::Conflict => Self::Loop,
            ErrorKind::Unauthenticated => Self::Unauthenticated,
            _ => Self::Other,
        }
    }
}
