//! SOCKS5 (RFC 1928) with a name and a password (RFC 1929); the password is the token.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use posthaste_endpoint::{
    ErrorKind,
    gateway::{Host, Target},
};
use tokio::{io::AsyncReadExt, net::TcpStream};

use super::{Speech, Why, Wish, nonsense, reservation_of};
use crate::carry;

pub(super) const VERSION: u8 = 5;
const PASSWORD_VERSION: u8 = 1;
/// Method of RFC 1929.
const BY_PASSWORD: u8 = 2;
const NO_METHOD: u8 = 0xFF;
const CONNECT: u8 = 1;

/// Replies of RFC 1928, section 6, that the gateway uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    Open = 0,
    Failure = 1,
    NotAllowed = 2,
    HostUnreachable = 4,
    Expired = 6,
    CommandUnknown = 7,
    AddressUnknown = 8,
}

impl Reply {
    pub(super) fn of(kind: ErrorKind) -> Self {
        match Why::of(kind) {
            Why::NotAllowed | Why::Unauthenticated => Self::NotAllowed,
            Why::Unreachable => Self::HostUnreachable,
            Why::TimedOut => Self::Expired,
            Why::Busy | Why::Loop | Why::Other => Self::Failure,
        }
    }
}

pub(super) async fn answer(stream: &mut TcpStream, reply: Reply) -> io::Result<()> {
    // Clients need not know our bound address.
    let bytes = [VERSION, reply as u8, 0, 1, 0, 0, 0, 0, 0, 0];
    carry::answer(stream, &bytes).await
}

async fn take<const LENGTH: usize>(stream: &mut TcpStream) -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// Reads a length byte, and so many more bytes.
async fn take_counted(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let [count] = take(stream).await?;
    let mut bytes = vec![0; usize::from(count)];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// Reads the rest of a greeting after the version.
pub(super) async fn read(
    mut stream: TcpStream,
    is_good: &(dyn Fn(&str) -> bool + Sync),
) -> io::Result<(Wish, TcpStream)> {
    let methods = take_counted(&mut stream).await?;
    if !methods.contains(&BY_PASSWORD) {
        carry::answer(&mut stream, &[VERSION, NO_METHOD]).await?;
        return Err(nonsense("it shows no token"));
    }
    carry::answer(&mut stream, &[VERSION, BY_PASSWORD]).await?;
    let [version] = take(&mut stream).await?;
    if version != PASSWORD_VERSION {
        return Err(nonsense("it speaks another version of passwords"));
    }
    let name = take_counted(&mut stream).await?;
    let token = String::from_utf8(take_counted(&mut stream).await?).unwrap_or_default();
    if !is_good(&token) {
        carry::answer(&mut stream, &[PASSWORD_VERSION, 1]).await?;
        return Err(nonsense("its token is not good"));
    }
    carry::answer(&mut stream, &[PASSWORD_VERSION, 0]).await?;
    let target = read_target(&mut stream).await?;
    let wish = Wish {
        speech: Speech::Socks,
        target,
        token: Some(token),
        path: Vec::new(),
        reservation: str::from_utf8(&name).ok().and_then(reservation_of),
        connections: 1,
    };
    Ok((wish, stream))
}

async fn read_target(stream: &mut TcpStream) -> io::Result<Target> {
    let [version, command, _, kind] = take(stream).await?;
    if version != VERSION {
        return Err(nonsense("it changed its version"));
    }
    let host = match kind {
        1 => Some(Host::Address(
            Ipv4Addr::from(take::<4>(stream).await?).into(),
        )),
        3 => String::from_utf8(take_counted(stream).await?)
            .ok()
            .and_then(|name| Host::read(&name)),
        4 => {
            let address = IpAddr::from(Ipv6Addr::from(take::<16>(stream).await?));
            Some(Host::Address(address.to_canonical()))
        }
        _ => None,
    };
    let Some(host) = host else {
        answer(stream, Reply::AddressUnknown).await?;
        return Err(nonsense("it names no host"));
    };
    let port = u16::from_be_bytes(take(stream).await?);
    if command != CONNECT || port == 0 {
        answer(stream, Reply::CommandUnknown).await?;
        return Err(nonsense("it wants something else than a stream"));
    }
    Ok(Target { host, port })
}
