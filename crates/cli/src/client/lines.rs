//! JSON lines both ways, while they come.

use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt};
use http_body_util::{BodyExt, StreamBody};
use hyper::{
    Request, Response,
    body::{Frame, Incoming},
    header,
};
use hyper_util::{client::legacy::Client, rt::TokioExecutor};
use posthaste_api as api;
use serde::de::DeserializeOwned;

use super::{ServiceClient, accepted, parse, read};
use crate::failure::{Exit, Failure};

/// Longest line of an answer that is taken.
const LINE_BYTES_MAX: usize = 1 << 20;

impl ServiceClient {
    /// Sends lines, and takes the answer to each while they go.
    ///
    /// # Errors
    /// As [`ServiceClient::get`].
    pub async fn post_lines(
        &self,
        path: &str,
        lines: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    ) -> Result<Lines, Failure> {
        Ok(Lines {
            body: self.send_lines(path, lines).await?.into_body(),
            came: BytesMut::new(),
            answered: 0,
        })
    }

    /// Sends lines, and takes one answer to all of them.
    ///
    /// # Errors
    /// As [`ServiceClient::get`].
    pub async fn post_all_lines<T: DeserializeOwned>(
        &self,
        path: &str,
        lines: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    ) -> Result<T, Failure> {
        parse(&read(self.send_lines(path, lines).await?).await?)
    }

    async fn send_lines(
        &self,
        path: &str,
        lines: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    ) -> Result<Response<Incoming>, Failure> {
        let body = StreamBody::new(Box::pin(lines.map(|data| data.map(Frame::data))));
        let request = Request::post(format!("{}{path}", self.url));
        let request = self.signed(request).await?;
        let request = request
            .header(header::CONTENT_TYPE, "application/x-ndjson")
            .body(body)
            .map_err(|cause| {
                Failure::usage(format!("can't ask the service {}: {cause}", self.url))
            })?;
        let client = Client::builder(TokioExecutor::new()).build(self.connector.clone());
        accepted(self.answer(client.request(request)).await?).await
    }
}

/// Answers to lines, in their order.
#[derive(Debug)]
pub struct Lines {
    body: Incoming,
    came: BytesMut,
    answered: u64,
}

impl Lines {
    /// The next answer; none after the last. May be dropped and asked again.
    ///
    /// # Errors
    /// When the service stops in the middle.
    pub async fn next(&mut self) -> Result<Option<api::LineAnswer>, Failure> {
        loop {
            if let Some(end) = self.came.iter().position(|&byte| byte == b'\n') {
                let answer: api::LineAnswer = parse(&self.came.split_to(end + 1))?;
                self.answered = answer.line;
                return Ok(Some(answer));
            }
            match self.body.frame().await {
                None if self.came.is_empty() => return Ok(None),
                Some(Ok(frame)) if self.came.len() <= LINE_BYTES_MAX => {
                    self.came
                        .extend_from_slice(&frame.into_data().unwrap_or_default());
                }
                Some(Ok(_)) | None => return Err(self.broken("it can't be read")),
                Some(Err(cause)) => return Err(self.broken(&cause.to_string())),
            }
        }
    }

    fn broken(&self, why: &str) -> Failure {
        let answered = self.answered;
        Failure::new(
            Exit::Temporary,
            format!(
                "the service's answer ended after that to line {answered}: {why} (send all of it again: what has a submission_id is taken once)"
            ),
        )
    }
}
