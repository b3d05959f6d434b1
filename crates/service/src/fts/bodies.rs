//! Request bodies: limits the size of each, and the memory of all together, over all senders.

use std::time::Duration;

use axum::{
    body::Body,
    http::{HeaderMap, StatusCode, header},
};
use futures_util::StreamExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::office::Denial;

/// Largest body of a job, and of any other call, in bytes.
const JOB_BYTES_MAX: usize = 32 << 20;
const OTHER_BYTES_MAX: usize = 64 << 10;
/// Memory of all bodies together, in MiB: two of the largest. Later ones wait.
const MEBI_TOGETHER: usize = 64;
/// Jobs parsed and recorded at once: a job takes up to three times its body's memory, and the
/// journal writes one after the other anyway.
const READ_AT_ONCE: usize = 1;
/// Time limit for receiving a body: others may wait for its memory.
const COMES_WITHIN: Duration = Duration::from_secs(60);

/// Shared state of the bodies.
#[derive(Debug)]
pub(super) struct Bodies {
    memory: Semaphore,
    turns: Semaphore,
}

/// Body with its memory, which is held until this is dropped.
pub(super) struct Held<'a> {
    pub(super) bytes: Vec<u8>,
    _memory: SemaphorePermit<'a>,
    _turn: SemaphorePermit<'a>,
}

impl Default for Bodies {
    fn default() -> Self {
        Self {
            memory: Semaphore::new(MEBI_TOGETHER),
            turns: Semaphore::new(READ_AT_ONCE),
        }
    }
}

impl Bodies {
    /// Reads the body of a job or of another call once there is memory for it.
    ///
    /// # Errors
    /// The answer to the client if it is too large or does not arrive.
    pub(super) async fn take(
        &self,
        is_job: bool,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Held<'_>, Denial> {
        let most = if is_job {
            JOB_BYTES_MAX
        } else {
            OTHER_BYTES_MAX
        };
        let told = headers.get(header::CONTENT_LENGTH);
        let told = told.and_then(|told| told.to_str().ok()?.parse().ok());
        let room: usize = told.unwrap_or(most);
        if room > most {
            return Err(too_large(most));
        }
        let mebi = u32::try_from(room.div_ceil(1 << 20).max(1)).unwrap_or(u32::MAX);
        let closed = |_| Denial {
            status: StatusCode::SERVICE_UNAVAILABLE,
            message: "the service is ending".into(),
        };
        let memory = self.memory.acquire_many(mebi).await.map_err(closed)?;
        let late = |_| Denial {
            status: StatusCode::REQUEST_TIMEOUT,
            message: format!("it did not come within {} s", COMES_WITHIN.as_secs()),
        };
        let coming = collect(body, room, most);
        let bytes = tokio::time::timeout(COMES_WITHIN, coming).await;
        let bytes = bytes.map_err(late)??;
        let turn = self.turns.acquire().await.map_err(closed)?;
        Ok(Held {
            bytes,
            _memory: memory,
            _turn: turn,
        })
    }
}

async fn collect(body: Body, room: usize, most: usize) -> Result<Vec<u8>, Denial> {
    let mut bytes = Vec::with_capacity(room);
    let mut coming = body.into_data_stream();
    while let Some(some) = coming.next().await {
        let some = some.map_err(|_| Denial::bad("the body broke off"))?;
        if bytes.len() + some.len() > most {
            return Err(too_large(most));
        }
        bytes.extend_from_slice(&some);
    }
    Ok(bytes)
}

fn too_large(most: usize) -> Denial {
    Denial {
        status: StatusCode::PAYLOAD_TOO_LARGE,
        message: format!(
            "the body has more than {} KiB, which is the most (submit several jobs)",
            most >> 10
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(bytes: usize) -> HeaderMap {
        HeaderMap::from_iter([(header::CONTENT_LENGTH, bytes.into())])
    }

    #[tokio::test]
    async fn what_is_too_large_is_refused_before_it_comes_and_where_it_says_no_size() {
        let bodies = Bodies::default();
        let never =
            || Body::from_stream(futures_util::stream::pending::<std::io::Result<Vec<u8>>>());
        let told = bodies
            .take(true, &headers(JOB_BYTES_MAX + 1), never())
            .await;
        let denial = told.err().unwrap();
        assert_eq!(denial.status, StatusCode::PAYLOAD_TOO_LARGE);
        assert!(denial.message.contains("32768 KiB"), "{}", denial.message);
        let untold = Body::from(vec![0; OTHER_BYTES_MAX + 1]);
        let denial = bodies
            .take(false, &HeaderMap::new(), untold)
            .await
            .err()
            .unwrap();
        assert_eq!(denial.status, StatusCode::PAYLOAD_TOO_LARGE);
        let held = bodies
            .take(false, &headers(3), Body::from("{ }"))
            .await
            .ok()
            .unwrap();
        assert_eq!(held.bytes, b"{ }");
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_do_not_come_make_others_wait_and_not_for_ever() {
        let bodies = Bodies::default();
        let never =
            || Body::from_stream(futures_util::stream::pending::<std::io::Result<Vec<u8>>>());
        let large = headers(JOB_BYTES_MAX);
        let (first, second, third) = tokio::join!(
            bodies.take(true, &large, never()),
            bodies.take(true, &large, never()),
            async {
                let held = bodies.take(true, &headers(3), Body::from("{ }")).await;
                held.map(|held| held.bytes)
            },
        );
        for late in [first, second] {
            assert_eq!(late.err().unwrap().status, StatusCode::REQUEST_TIMEOUT);
        }
        assert_eq!(third.ok().unwrap(), b"{ }");
        assert_eq!(bodies.memory.available_permits(), MEBI_TOGETHER);
    }
}
