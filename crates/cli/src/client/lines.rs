//! JSON lines in both directions, streamed.

use std::sync::{Arc, OnceLock};

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

/// Longest accepted line of an answer.
const LINE_BYTES_MAX: usize = 4 << 20;

impl ServiceClient {
    /// Sends lines, and returns an answer to each while they are sent.
    ///
    /// # Errors
    /// Fails as [`ServiceClient::get`] does.
    pub async fn post_lines(
        &self,
        path: &str,
        lines: impl Stream<Item = std::io::Result<Bytes>> + Send + 'static,
    ) -> Result<Lines, Failure> {
        Ok(Lines {
            lines: Came::of(self.send_lines(path, lines).await?),
            answered: 0,
        })
    }

    /// Lists everything below a directory, by the path `again` if the service reports that it takes
    /// long.
    ///
    /// # Errors
    /// Fails as [`ServiceClient::get`] does.
    pub async fn tree(&self, path: &str, again: &str) -> Result<TreeLines, Failure> {
        let answer = self.send_patiently(path, again).await?;
        Ok(TreeLines(Came::of(accepted(answer).await?)))
    }

    /// Sends lines, and returns one answer to all of them.
    ///
    /// # Errors
    /// Fails as [`ServiceClient::get`] does.
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
        let unread = Arc::new(OnceLock::new());
        let noted = Arc::clone(&unread);
        let lines = lines.map(move |data| {
            data.map(Frame::data).inspect_err(|cause| {
                let _ = noted.set(Failure::new(Exit::FileNotFound, cause.to_string()));
            })
        });
        let body = StreamBody::new(Box::pin(lines));
        let request = Request::post(format!("{}{path}", self.url));
        let request = self.signed(request).await?;
        let request = request
            .header(header::CONTENT_TYPE, "application/x-ndjson")
            .body(body)
            .map_err(|cause| self.no_address(&cause))?;
        let client = Client::builder(TokioExecutor::new()).build(self.connector.clone());
        let answered = self.answer(client.request(request)).await;
        // A local read error ends the call too, and is not the service's fault.
        let unread = || Arc::into_inner(unread).and_then(OnceLock::into_inner);
        match answered {
            Err(failure) => Err(unread().unwrap_or(failure)),
            Ok(response) => accepted(response).await,
        }
    }
}

/// Lines of an answer, as they arrive.
#[derive(Debug)]
struct Came {
    body: Incoming,
    came: BytesMut,
}

impl Came {
    fn of(answer: Response<Incoming>) -> Self {
        Self {
            body: answer.into_body(),
            came: BytesMut::new(),
        }
    }

    /// Returns the next line, `None` after the last. A caller may drop this and call it again.
    ///
    /// # Errors
    /// Gives the reason for which the answer ended in the middle of a line.
    async fn next(&mut self) -> Result<Option<BytesMut>, String> {
        loop {
            if let Some(end) = self.came.iter().position(|&byte| byte == b'\n') {
                return Ok(Some(self.came.split_to(end + 1)));
            }
            match self.body.frame().await {
                None if self.came.is_empty() => return Ok(None),
                Some(Ok(frame)) if self.came.len() <= LINE_BYTES_MAX => {
                    self.came
                        .extend_from_slice(&frame.into_data().unwrap_or_default());
                }
                Some(Ok(_)) | None => return Err("it can't be read".into()),
                Some(Err(cause)) => return Err(cause.to_string()),
            }
        }
    }
}

/// Answers to lines, in their order.
#[derive(Debug)]
pub struct Lines {
    lines: Came,
    answered: u64,
}

impl Lines {
    /// Returns the next answer, `None` after the last. A caller may drop this and call it again.
    ///
    /// # Errors
    /// Fails if the service stops in the middle.
    pub async fn next(&mut self) -> Result<Option<api::LineAnswer>, Failure> {
        let line = self.lines.next().await.map_err(|why| {
            let answered = self.answered;
            Failure::new(
                Exit::Temporary,
                format!(
                    "the service's answer ended after that to line {answered}: {why} (send all of it again: what has a submission_id is taken once)"
                ),
            )
        })?;
        let answer: Option<api::LineAnswer> = line.map(|line| parse(&line)).transpose()?;
        self.answered = answer.as_ref().map_or(self.answered, |answer| answer.line);
        Ok(answer)
    }
}

/// Content of a directory tree, a line for each directory.
#[derive(Debug)]
pub struct TreeLines(Came);

impl TreeLines {
    /// Returns the next line, `None` after the last.
    ///
    /// # Errors
    /// Fails if the service stops before the last line.
    pub async fn next(&mut self) -> Result<Option<api::TreeLine>, Failure> {
        let ended = |why: &str| {
            Failure::new(
                Exit::Temporary,
                format!("the service's answer ended before all was told: {why} (list it again)"),
            )
        };
        loop {
            let line = self.0.next().await.map_err(|why| ended(&why))?;
            let line = line.ok_or_else(|| ended("it stopped"))?;
            if line.as_ref() == b"\n" {
                continue;
            }
            let line: api::TreeLine = parse(&line)?;
            return Ok((!line.end).then_some(line));
        }
    }
}
