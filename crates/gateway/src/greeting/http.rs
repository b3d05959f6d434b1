//! HTTP CONNECT (RFC 9110, section 9.3.6), and requests for the gateway's status.

use std::{io, str};

use base64::{Engine, engine::general_purpose::STANDARD};
use posthaste_endpoint::{
    ErrorKind,
    gateway::{Braid, CONNECTIONS_HEADER, HOPS_MAX, Target, read_head},
};
use tokio::{io::AsyncReadExt, net::TcpStream};

use super::{Greeting, Speech, Why, Wish, nonsense, reservation_of};
use crate::{
    braid::Stranger,
    carry::{self, End},
    reserve::{self, Answer, BODY_BYTES_MAX, PATH, Question},
};

const HEADERS_MAX: usize = 64;

pub(super) fn status_of(kind: ErrorKind) -> u16 {
    match Why::of(kind) {
        Why::NotAllowed => 403,
        // The next gateway refused this gateway's token, which the client can't change.
        Why::Unreachable | Why::Unauthenticated | Why::Other => 502,
        Why::TimedOut => 504,
        Why::Busy => 503,
        Why::Loop => 508,
    }
}

/// Answers with a status line; clients show its reason for a failed CONNECT.
pub(super) async fn answer(stream: &mut TcpStream, status: u16, reason: &str) -> io::Result<()> {
    let reason: String = reason
        .chars()
        .filter(|letter| !posthaste_types::is_obeyed(*letter))
        .collect();
    let more = match status {
        200 => "",
        407 => {
            "Proxy-Authenticate: Basic realm=\"posthaste gateway\"\r\nContent-Length: 0\r\nConnection: close\r\n"
        }
        _ => "Content-Length: 0\r\nConnection: close\r\n",
    };
    let head = format!("HTTP/1.1 {status} {reason}\r\n{more}\r\n");
    carry::answer(stream, head.as_bytes()).await
}

pub(super) async fn read(mut stream: TcpStream, first: Vec<u8>) -> io::Result<Greeting> {
    let (head, early) = read_head(&mut stream, first).await?;
    let asked = parse(&head);
    let end = End { stream, early };
    match asked {
        Some(Asked::Stream(wish)) => Ok(Greeting::Stream(wish, end)),
        Some(Asked::Join(token)) => Ok(Greeting::Join(token, end)),
        Some(Asked::Status(token)) => Ok(Greeting::Status(token, end)),
        Some(Asked::Reservations(token, mut question, length)) => {
            let mut end = end;
            if length > BODY_BYTES_MAX {
                let answer = Answer::error(413, "so much nobody has to say about a reservation");
                reserve::tell(&mut end.stream, &answer).await?;
                return Err(nonsense("it says too much"));
            }
            question.body = read_body(&mut end, length).await?;
            Ok(Greeting::Reservations(token, question, end))
        }
        None => {
            let mut stream = end.stream;
            answer(
                &mut stream,
                400,
                "this is a gateway: it takes CONNECT HOST:PORT, GET /v1/status and /v1/reservations",
            )
            .await?;
            Err(nonsense("it asks what makes no sense"))
        }
    }
}

/// Reads the body after a head.
async fn read_body(end: &mut End, length: usize) -> io::Result<Vec<u8>> {
    let mut body = std::mem::take(&mut end.early);
    let came = body.len().min(length);
    body.resize(length, 0);
    end.stream.read_exact(&mut body[came..]).await?;
    Ok(body)
}

enum Asked {
    Stream(Wish),
    Join(Option<String>),
    Status(Option<String>),
    /// Request about reservations, with the length of its body.
    Reservations(Option<String>, Question, usize),
}

fn parse(head: &[u8]) -> Option<Asked> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    if !request.parse(head).ok()?.is_complete() {
        return None;
    }
    let value = |name: &str| {
        let mut all = request.headers.iter();
        let found = all.find(|header| header.name.eq_ignore_ascii_case(name))?;
        str::from_utf8(found.value).ok()
    };
    let shown = value("proxy-authorization").or(value("authorization"));
    let (name, token) = shown.and_then(name_and_token).unzip();
    let named = value("posthaste-reservation").and_then(|named| named.parse().ok());
    let reservation = named.or_else(|| name.as_deref().and_then(reservation_of));
    let path = value("posthaste-path").unwrap_or_default();
    let path: Vec<String> = path
        .split(',')
        .map(|id| id.trim().to_owned())
        .filter(|id| !id.is_empty())
        // A path one above the limit is refused.
        .take(HOPS_MAX + 1)
        .collect();
    match (request.method?, request.path?) {
        ("CONNECT", target) => Some(Asked::Stream(Wish {
            speech: Speech::Http,
            target: target.parse::<Target>().ok()?,
            token,
            path,
            reservation,
            connections: value(CONNECTIONS_HEADER)
                .and_then(|count| count.trim().parse().ok())
                .unwrap_or(1),
        })),
        ("POST", "/v1/join") => Some(Asked::Join(token)),
        ("GET", "/v1/status") => Some(Asked::Status(token)),
        (method, asked) => {
            let rest = asked.strip_prefix(PATH)?;
            if !(rest.is_empty() || rest.starts_with('/')) {
                return None;
            }
            let question = Question {
                method: method.to_owned(),
                rest: rest.to_owned(),
                body: Vec::new(),
            };
            let length = value("content-length").map_or(Some(0), |length| length.parse().ok())?;
            Some(Asked::Reservations(token, question, length))
        }
    }
}

/// Reads the token from `Bearer TOKEN`, or the name and the token as password from `Basic`.
fn name_and_token(value: &str) -> Option<(String, String)> {
    let (scheme, rest) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some((String::new(), rest.trim().to_owned()));
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let pair = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
    let (name, token) = pair.split_once(':')?;
    Some((name.to_owned(), token.to_owned()))
}

/// Sends the status of the gateway.
pub(crate) async fn tell(stream: &mut TcpStream, json: &str) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{json}",
        json.len()
    );
    carry::answer(stream, head.as_bytes()).await
}

/// Tells another gateway that the stream is open, and that further connections may join.
pub(crate) async fn accept_several(stream: &mut TcpStream, braid: &Braid) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 200 Connection established\r\n{}\r\n",
        braid.headers()
    );
    carry::answer(stream, head.as_bytes()).await
}

/// Tells a connection why it may not join a stream.
pub(crate) async fn turn_away(stream: &mut TcpStream, stranger: Stranger) -> io::Result<()> {
    let (status, why) = match stranger {
        Stranger::Unknown => (404, "there is no such stream, or it has ended"),
        Stranger::Late => (410, "that stream began too long ago for more connections"),
        Stranger::Taken => (409, "that connection has joined, or was never offered"),
    };
    answer(stream, status, why).await
}

/// Requests a token.
pub(crate) async fn ask_for_token(stream: &mut TcpStream, why: &str) -> io::Result<()> {
    answer(stream, 407, why).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(head: &str) -> Option<Wish> {
        match parse(head.as_bytes())? {
            Asked::Stream(wish) => Some(wish),
            Asked::Join(_) | Asked::Status(_) | Asked::Reservations(..) => None,
        }
    }

    #[test]
    fn a_wish_is_read_with_its_token_and_its_path() {
        let basic = STANDARD.encode("me:secret:with");
        let wished = wish(&format!(
            "CONNECT a.b:22 HTTP/1.1\r\nHost: a.b:22\r\nProxy-Authorization: Basic {basic}\r\n\
             posthaste-path: x, y\r\n\r\n"
        ));
        let wished = wished.unwrap();
        assert_eq!(wished.target.to_string(), "a.b:22");
        assert_eq!(wished.token.as_deref(), Some("secret:with"));
        assert_eq!(wished.path, ["x", "y"]);
        assert_eq!((wished.reservation, wished.connections), (None, 1));
        let several = wish("CONNECT a.b:22 HTTP/1.1\r\nPosthaste-Connections: 4\r\n\r\n");
        assert_eq!(several.unwrap().connections, 4);
        let named = STANDARD.encode("reservation=night-7:secret");
        for (more, is_optional) in [
            (format!("Proxy-Authorization: Basic {named}"), false),
            ("Posthaste-Reservation: night-7".to_owned(), false),
            ("posthaste-reservation: night-7; optional".to_owned(), true),
        ] {
            let wished = wish(&format!("CONNECT a.b:22 HTTP/1.1\r\n{more}\r\n\r\n"));
            let named = wished.unwrap().reservation.unwrap();
            assert_eq!((named.id(), named.is_optional()), ("night-7", is_optional));
        }
    }

    #[test]
    fn what_is_no_wish_is_none() {
        for head in [
            "GET http://a.b/ HTTP/1.1\r\n\r\n",
            "CONNECT / HTTP/1.1\r\n\r\n",
            "CONNECT a.b HTTP/1.1\r\n\r\n",
            "\x16\x03\x01\r\n\r\n",
            "CONNECT a:1 HTTP/1.1\r\nx\r\n\r\n",
            "GET /v1/reservationsx HTTP/1.1\r\n\r\n",
            "POST /v1/reservations HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        ] {
            assert!(wish(head).is_none(), "{head}");
        }
    }
}
