//! Braids: further connections that carry one stream over the segment between two gateways.

use std::{fmt, net::IpAddr, str::FromStr};

use super::{
    Hop, Segment, connect,
    dial::exchange,
    token::{TOKEN_LIFETIME_S, mint_for_joining},
};
use crate::{Result, clock};
use tokio::net::TcpStream;

/// Most connections that carry one stream over one segment. So many at 60 ms and 0.1 % loss give
/// CUBIC some 120 Mbit/s; a stream that needs more of them needs another congestion control.
pub const CONNECTIONS_MAX: u8 = 16;
/// Header with the number of allowed connections, in request and answer.
pub const CONNECTIONS_HEADER: &str = "Posthaste-Connections";
/// Header of the answer with the name under which others join.
pub(crate) const BRAID_HEADER: &str = "Posthaste-Braid";

/// A gateway's name for a stream that several connections carry: random, so that nobody guesses it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BraidId([u8; 16]);

impl BraidId {
    /// Returns a name of these bytes, which must be random.
    #[must_use]
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for BraidId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for BraidId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BraidId(hidden)")
    }
}

/// The text names no braid: 32 hexadecimal digits in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoBraid;

impl FromStr for BraidId {
    type Err = NoBraid;

    fn from_str(text: &str) -> std::result::Result<Self, NoBraid> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'a'..=b'f');
        if text.len() != 32 || !text.bytes().all(is_digit) {
            return Err(NoBraid);
        }
        let number = u128::from_str_radix(text, 16).map_err(|_| NoBraid)?;
        Ok(Self(number.to_be_bytes()))
    }
}

/// A gateway's facts about a stream that several connections may carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Braid {
    /// Name of the braid.
    pub id: BraidId,
    /// Connections in all, including the first: 2 to [`CONNECTIONS_MAX`].
    pub connections: u8,
}

impl Braid {
    /// Returns the headers of an answer that offer the braid.
    #[must_use]
    pub fn headers(&self) -> String {
        format!(
            "{BRAID_HEADER}: {}\r\n{CONNECTIONS_HEADER}: {}\r\n",
            self.id, self.connections
        )
    }

    /// Reads the braid that the headers of an answer offer.
    pub(super) fn of(headers: &[httparse::Header<'_>]) -> Option<Self> {
        let value = |name: &str| {
            let mut all = headers.iter();
            let found = all.find(|header| header.name.eq_ignore_ascii_case(name))?;
            std::str::from_utf8(found.value).ok()
        };
        let connections = value(CONNECTIONS_HEADER)?.trim().parse().ok()?;
        let id = value(BRAID_HEADER)?.trim().parse().ok()?;
        (2..=CONNECTIONS_MAX)
            .contains(&connections)
            .then_some(Self { id, connections })
    }
}

/// Opens the connection of this number, from 1 on, of a braid: to the machine at the other end of
/// the first. Also returns the bytes behind the answer.
///
/// # Errors
/// The errors of [`connect`], and the gateway's refusal.
pub async fn join(
    hop: &Hop,
    address: IpAddr,
    segment: &Segment,
    (braid, number): (BraidId, u8),
) -> Result<(TcpStream, Vec<u8>)> {
    let stream = connect(&hop.address, &[address], segment).await?;
    let expires = clock::unix_secs() + TOKEN_LIFETIME_S;
    let token = mint_for_joining(&hop.secret, braid, number, expires);
    let head = format!(
        "POST /v1/join HTTP/1.1\r\nHost: {}\r\nProxy-Authorization: Bearer {token}\r\n",
        hop.address
    );
    let (stream, early, _) = exchange(stream, &hop.address, head).await?;
    Ok((stream, early))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "00ff456789abcdef0123456789abcdef";

    fn of(head: &str) -> Option<Braid> {
        let mut headers = [httparse::EMPTY_HEADER; 8];
        let mut response = httparse::Response::new(&mut headers);
        response.parse(head.as_bytes()).unwrap();
        Braid::of(response.headers)
    }

    #[test]
    fn what_an_answer_offers_is_read_as_it_was_written() {
        let braid = Braid {
            id: ID.parse().unwrap(),
            connections: 4,
        };
        assert_eq!(braid.id.to_string(), ID);
        let head = format!("HTTP/1.1 200 Fine\r\n{}\r\n", braid.headers());
        assert_eq!(of(&head), Some(braid));
        assert!(!format!("{braid:?}").contains("00ff"));
    }

    #[test]
    fn what_is_no_offer_is_none() {
        for (id, count) in [
            (ID, "1"),
            (ID, "17"),
            (ID, "-2"),
            (ID, ""),
            (&ID[1..], "4"),
            (&ID.to_uppercase(), "4"),
            ("+0ff456789abcdef0123456789abcdef", "4"),
        ] {
            let head = format!(
                "HTTP/1.1 200 Fine\r\nPosthaste-Braid: {id}\r\nPosthaste-Connections: {count}\r\n\r\n"
            );
            assert_eq!(of(&head), None, "{head}");
        }
        assert_eq!(of("HTTP/1.1 200 Fine\r\n\r\n"), None);
        assert_eq!(
            of("HTTP/1.1 200 Fine\r\nPosthaste-Connections: 4\r\n\r\n"),
            None
        );
    }
}
