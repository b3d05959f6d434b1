//! Retries after temporary failures, by the rules of [`posthaste_plan::patience`].

use std::{
    future::Future,
    hash::{BuildHasher, RandomState},
};

use posthaste_endpoint::{Error, ErrorKind, Result};
use posthaste_plan::patience::{Trouble, next_try};
use tokio::time::sleep;

use super::lane::Shared;

/// Returns what an error of the hands means for trying again.
pub(crate) fn trouble_of(error: &Error) -> Trouble {
    if !error.is_temporary() {
        return Trouble::Lasting;
    }
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the list is open; what is temporary and has no class of its own is like a lost connection"
    )]
    match error.kind() {
        ErrorKind::Busy => Trouble::Busy,
        ErrorKind::TimedOut => Trouble::Stalled,
        ErrorKind::Corrupt => Trouble::Corrupt,
        _ => Trouble::Unreachable,
    }
}

/// Retries a request while that can help, without counting the tries. Returns the last error.
pub(crate) async fn persisted<T, F: Future<Output = Result<T>>>(
    mut request: impl FnMut() -> F,
) -> Result<T> {
    let mut failures = 0;
    loop {
        let error = match request().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        failures += 1;
        let lot = RandomState::new().hash_one(failures);
        match next_try(trouble_of(&error), failures, error.pause(), lot) {
            Some(pause) => sleep(pause).await,
            None => return Err(error.with("tries", failures)),
        }
    }
}

/// Retries a request while that can help. Returns the last error.
pub(super) async fn retried<T, F: Future<Output = Result<T>>>(
    shared: &Shared,
    request: impl FnMut() -> F,
) -> Result<T> {
    retried_after(shared, trouble_of, request).await
}

/// Retries the first request to an end. If the end can't be reached at all, it reports that at
/// once: an address is as easily mistyped as a network lost.
pub(super) async fn reached<T, F: Future<Output = Result<T>>>(
    shared: &Shared,
    request: impl FnMut() -> F,
) -> Result<T> {
    let trouble = |error: &Error| match trouble_of(error) {
        Trouble::Unreachable | Trouble::Stalled => Trouble::Lasting,
        trouble @ (Trouble::Lasting | Trouble::Busy | Trouble::Corrupt) => trouble,
    };
    retried_after(shared, trouble, request).await
}

async fn retried_after<T, F: Future<Output = Result<T>>>(
    shared: &Shared,
    trouble_of: impl Fn(&Error) -> Trouble,
    mut request: impl FnMut() -> F,
) -> Result<T> {
    let mut failures = 0;
    loop {
        let error = match request().await {
            Ok(done) => return Ok(done),
            Err(error) => error,
        };
        failures += 1;
        let lot = RandomState::new().hash_one(failures);
        let pause = next_try(trouble_of(&error), failures, error.pause(), lot);
        let Some(pause) = pause.filter(|_| !shared.is_stopped()) else {
            return Err(error.with("tries", failures));
        };
        shared.progress.tried_again();
        sleep(pause).await;
    }
}
