//! Greetings in which clients name their target: SOCKS5 or HTTP CONNECT.

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

/// Protocol of a client, in which it is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Speech {
    Socks,
    Http,
}

/// Request of a client.
pub(crate) struct Wish {
    pub speech: Speech,
    pub target: Target,
    /// Token that the client shows, if any.
    pub token: Option<String>,
    /// Gateways that the stream came over.
    pub path: Vec<String>,
    /// Reservation that the stream belongs to.
    pub reservation: Option<Reserved>,
    /// Connections that may carry the stream; only another gateway requests more than one.
    pub connections: u8,
}

/// Reads the reservation from the name that comes with a token: `reservation=ID`. Any other name is
/// ignored.
fn reservation_of(name: &str) -> Option<Reserved> {
    Reserved::required(name.strip_prefix("reservation=")?).ok()
}

/// Kind of greeting.
pub(crate) enum Greeting {
    /// Request for a stream, not answered yet.
    Stream(Wish, End),
    /// Further connection of a stream, with its token.
    Join(Option<String>, End),
    /// HTTP request for the gateway's status, with its token.
    Status(Option<String>, End),
    /// HTTP request about reservations, with its token.
    Reservations(Option<String>, Question, End),
}

/// Reads the request of a client. `is_good` checks a token before any target is known.
///
/// # Errors
/// If it is no client of ours; it was told so as far as it understands.
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

/// Makes an error for a client that breaks the rules.
fn nonsense(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Reason for a refusal, as the codes of both protocols distinguish it.
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
