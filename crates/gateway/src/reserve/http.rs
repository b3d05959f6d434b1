//! Requests at `/v1/reservations`, and their answers.

use std::io;

use posthaste_types::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use tokio::net::TcpStream;

use super::{
    desk::{Desk, No},
    wire::{Asked, Changed, Refused},
};
use crate::carry;

/// Path of all requests.
pub(crate) const PATH: &str = "/v1/reservations";
/// Largest request: eight flows and some numbers.
pub(crate) const BODY_BYTES_MAX: usize = 16 << 10;

/// Request of a client.
pub(crate) struct Question {
    pub method: String,
    /// Rest of the path after [`PATH`]: nothing, or a slash and more.
    pub rest: String,
    pub body: Vec<u8>,
}

/// Answer to a client.
#[derive(Debug)]
pub(crate) struct Answer {
    status: u16,
    json: String,
}

impl Answer {
    pub(crate) fn of(status: u16, said: &impl Serialize) -> Self {
        // Every key of an answer is a text, so this can't fail.
        let json = serde_json::to_string(said).unwrap_or_default();
        Self { status, json }
    }

    pub(crate) fn error(status: u16, why: impl Into<String>) -> Self {
        Self::of(status, &Refused::because(why))
    }
}

impl From<No> for Answer {
    fn from(no: No) -> Self {
        match no {
            No::Senseless(why) => Self::error(400, why),
            No::Unknown => Self::error(404, "there is no such reservation"),
            No::Other(why) => Self::error(409, why),
            No::Refused(status, refused) => Self::of(status, &refused),
            No::NotKept(why) => Self::error(503, why),
        }
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, No> {
    serde_json::from_slice(body).map_err(|cause| No::Senseless(cause.to_string()))
}

impl Desk {
    /// Answers a request. Grants are on disk before the answer.
    pub(crate) fn answer(&self, question: &Question, now: Timestamp) -> Answer {
        self.try_answer(question, now).unwrap_or_else(Answer::from)
    }

    fn try_answer(&self, question: &Question, now: Timestamp) -> Result<Answer, No> {
        let words: Vec<&str> = question.rest.trim_start_matches('/').split('/').collect();
        match (question.method.as_str(), &words[..]) {
            ("GET", [""]) => Ok(Answer::of(200, &self.list(now))),
            ("POST", [""]) => {
                let asked: Asked = read(&question.body)?;
                let (is_new, shown) = self.hold(asked, now)?;
                Ok(Answer::of(if is_new { 201 } else { 200 }, &shown))
            }
            ("GET", [id]) => Ok(Answer::of(200, &self.show(id, now)?)),
            ("POST", [id, "commit"]) => Ok(Answer::of(200, &self.commit(id, now)?)),
            ("PATCH", [id]) => {
                let changed: Changed = read(&question.body)?;
                Ok(Answer::of(200, &self.change(id, &changed, now)?))
            }
            ("DELETE", [id]) => {
                self.release(id, now)?;
                Ok(Answer {
                    status: 204,
                    json: String::new(),
                })
            }
            _ => Err(No::Senseless(format!(
                "GET or POST {PATH}, GET, PATCH or DELETE {PATH}/ID, POST {PATH}/ID/commit"
            ))),
        }
    }
}

/// Sends the last answer to a client.
pub(crate) async fn tell(stream: &mut TcpStream, answer: &Answer) -> io::Result<()> {
    let reason = match answer.status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        400 => "Bad Request",
        404 => "Not Found",
        409 => "Conflict",
        413 => "Content Too Large",
        501 => "Not Implemented",
        _ => "Service Unavailable",
    };
    let (status, json) = (answer.status, &answer.json);
    // RFC 9110, section 8.6: none with 204.
    let about = match status {
        204 => String::new(),
        _ => format!(
            "Content-Type: application/json\r\nContent-Length: {}\r\n",
            json.len()
        ),
    };
    let head = format!("HTTP/1.1 {status} {reason}\r\n{about}Connection: close\r\n\r\n{json}");
    carry::answer(stream, head.as_bytes()).await
}
