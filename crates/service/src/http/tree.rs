//! Streams everything below a directory as it is found: a line for each directory.

use std::{collections::VecDeque, convert::Infallible, ffi::OsStr, sync::Arc, time::Duration};

use axum::{
    Extension,
    body::Body,
    extract::{Query, State},
    http::header,
    response::IntoResponse,
};
use futures_util::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, FuturesUnordered},
};
use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Location, Result, encode, join};
use serde::Deserialize;
use tokio::time::{sleep, timeout};

use super::{
    Answer, Desk, Refusal,
    directory::{ADDRESS_BYTES_MAX, entry, find},
    lines::LINES,
};
use crate::{
    listing::{self, Ask, LEVELS, Listed, Place, Seen},
    render,
    tokens::Caller,
};

/// Entries of one line at most.
const LINE_ENTRIES: usize = 1_000;
/// Bytes sent in one piece, if there are so many.
const TOLD_BYTES: usize = 64 << 10;
/// Directories requested at once: the next ones are listed ahead.
const AT_ONCE: usize = 8;
/// Directories looked up together.
const FOUND_AT_ONCE: usize = 64;
/// Interval, in cached directories, at which a directory's neighbours are examined: a fourth of the
/// number listed ahead with it.
const BESIDE_EVERY: u64 = 16;
/// Attempts to get a directory that is not listed yet, each of which waits a minute; and the pause
/// between them.
const TRIES: u32 = 30;
const PAUSE: Duration = Duration::from_secs(1);
/// Silence after which an empty line shows that the service is alive.
const QUIET: Duration = Duration::from_secs(15);

/// Listing that is asked for.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct What {
    /// The directory: an absolute path on the service's machine, or any other address that `posthaste cp` takes.
    address: String,
    /// The profile of the service's user whose credentials are used; the environment's without.
    profile: Option<String>,
    /// List all of it anew, whatever is known.
    #[serde(default)]
    refresh: bool,
}

/// Lists a directory and everything below it, a line for each directory, those that were found first before what lies beside them; links
/// are not followed. What was listed lately is told again. A directory that can't be listed has a line that says why, and the others
/// are told all the same. The last line says `end`. Empty lines say nothing.
#[utoipa::path(get, path = "/v1/listing/tree", operation_id = "list_tree", tag = "listing", security(("bearer" = ["read"])), params(What),
    responses((status = 200, content_type = "application/x-ndjson", body = api::TreeLine),
        (status = 401, body = api::Problem), (status = 403, body = api::Problem), (status = 404, body = api::Problem),
        (status = 422, body = api::Problem), (status = 502, body = api::Problem),
        (status = 503, body = api::Problem, description = "It takes long: ask again")))]
pub(crate) async fn show(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    Query(what): Query<What>,
) -> Answer<impl IntoResponse> {
    let mut walk = Walk {
        desk,
        caller,
        profile: what.profile,
        refreshes: what.refresh,
        open: Vec::new(),
        found: VecDeque::new(),
        asked: FuturesUnordered::new(),
        known: 0,
        telling: None,
        told: Vec::new(),
        is_over: false,
    };
    let root = tokio::task::block_in_place(|| walk.at(String::new(), what.address))?;
    let ask = walk.ask();
    let answer = walk.desk.centre.listings.ask(&root.place, &ask).await?;
    walk.telling = Some((root, answer, 0));
    let lines = stream::unfold(walk, |mut walk| async {
        let lines = walk.next().await?;
        Some((Ok::<_, Infallible>(lines), walk))
    });
    Ok(([(header::CONTENT_TYPE, LINES)], Body::from_stream(lines)))
}

/// Directory to be sent.
struct Found {
    /// Path below the requested directory.
    path: String,
    address: String,
    place: Place,
}

/// Directory that was sent, with its subdirectories still to be found.
struct Open {
    path: String,
    address: String,
    listed: Arc<Listed>,
    next: usize,
}

type Asked = BoxFuture<'static, (Found, Result<listing::Answer>)>;

/// Walk through a tree, deepest first, so that few directories wait.
struct Walk {
    desk: Desk,
    caller: Arc<Caller>,
    profile: Option<String>,
    refreshes: bool,
    open: Vec<Open>,
    found: VecDeque<Found>,
    asked: FuturesUnordered<Asked>,
    /// Number of cached directories.
    known: u64,
    /// Directory whose lines are being sent, with the index of the next entry.
    telling: Option<(Found, listing::Answer, usize)>,
    told: Vec<u8>,
    is_over: bool,
}

impl Walk {
    /// Returns the next lines; none after the last.
    async fn next(&mut self) -> Option<Vec<u8>> {
        while !self.is_over && self.told.len() < TOLD_BYTES {
            if let Some((found, answer, start)) = self.telling.take() {
                self.tell(found, answer, start);
                continue;
            }
            self.go_on();
            let answered = match self.asked.next().now_or_never() {
                Some(answered) => answered,
                // A reader gets what is ready rather than waiting for more.
                None if !self.told.is_empty() => break,
                None => match timeout(QUIET, self.asked.next()).await {
                    Ok(answered) => answered,
                    Err(_) => return Some(b"\n".to_vec()),
                },
            };
            match answered {
                Some((found, Ok(answer))) => self.telling = Some((found, answer, 0)),
                Some((found, Err(error))) => self.fail(found.path, error),
                None if self.found.is_empty() && self.open.is_empty() => {
                    self.is_over = true;
                    self.line(&api::TreeLine {
                        end: true,
                        ..api::TreeLine::default()
                    });
                }
                None => {}
            }
        }
        let told = std::mem::take(&mut self.told);
        (!told.is_empty()).then_some(told)
    }

    /// Requests as many directories as allowed at once.
    fn go_on(&mut self) {
        while self.asked.len() < AT_ONCE {
            if self.found.is_empty() {
                self.find();
            }
            let Some(found) = self.found.pop_front() else {
                return;
            };
            let (desk, mut ask) = (self.desk.clone(), self.ask());
            let asked = async move {
                let mut tries = 1;
                loop {
                    let answer = desk.centre.listings.ask(&found.place, &ask).await;
                    match answer {
                        Err(error) if error.kind() == ErrorKind::Busy && tries < TRIES => {}
                        answer => return (found, answer),
                    }
                    // The directory is already being listed anew.
                    ask.refresh = false;
                    tries += 1;
                    sleep(PAUSE).await;
                }
            };
            self.asked.push(asked.boxed());
        }
    }

    fn ask(&self) -> Ask {
        Ask {
            after: None,
            refresh: self.refreshes,
            levels: LEVELS,
            looks_beside: self.known.is_multiple_of(BESIDE_EVERY),
        }
    }

    /// Looks up some subdirectories of those that were sent.
    fn find(&mut self) {
        let mut below = Vec::new();
        while below.len() < FOUND_AT_ONCE {
            let Some(open) = self.open.last_mut() else {
                break;
            };
            let Some((at, name)) = open.listed.next_directory(open.next) else {
                self.open.pop();
                continue;
            };
            let path = join(open.path.as_bytes(), name);
            let path = String::from_utf8_lossy(&path).into_owned();
            let address = std::str::from_utf8(name).map(|name| below_it(&open.address, name));
            below.push((path, address.ok()));
            open.next = at + 1;
        }
        let found = tokio::task::block_in_place(|| {
            let found = below.into_iter().map(|(path, address)| {
                let address = address.ok_or_else(|| not_text(&path));
                let found = address.and_then(|address| self.at(path.clone(), address));
                (path, found)
            });
            found.collect::<Vec<_>>()
        });
        for (path, found) in found {
            match found {
                Ok(found) => self.found.push_back(found),
                Err(error) => self.fail(path, error),
            }
        }
    }

    /// Returns the directory at an address after checking that the caller may read there. Blocking.
    fn at(&self, path: String, mut address: String) -> Result<Found> {
        if address.len() > ADDRESS_BYTES_MAX {
            let shown: String = path.chars().take(100).collect();
            let error = Error::new(ErrorKind::Invalid, "list", shown);
            return Err(error.cause(format!(
                "its address has more than {ADDRESS_BYTES_MAX} bytes"
            )));
        }
        let actors = &self.desk.centre.store.actors;
        let profile = self.profile.as_deref();
        let place = find(actors, &self.caller, &mut address, profile)?;
        Ok(Found {
            path,
            address,
            place,
        })
    }

    /// Appends a line of a directory.
    fn tell(&mut self, found: Found, answer: listing::Answer, start: usize) {
        let (page, has_more) = answer.listed.page(start, LINE_ENTRIES);
        let page: Vec<Seen<'_>> = page.collect();
        self.line(&api::TreeLine {
            path: found.path.clone(),
            entries: page.iter().map(entry).collect(),
            as_of: Some(render::moment(answer.as_of)),
            cached: answer.is_cached,
            ..api::TreeLine::default()
        });
        let next = start + page.len();
        if has_more {
            self.telling = Some((found, answer, next));
            return;
        }
        self.known += u64::from(answer.is_cached);
        self.open.push(Open {
            path: found.path,
            address: found.address,
            listed: answer.listed,
            next: 0,
        });
    }

    fn fail(&mut self, path: String, error: Error) {
        self.line(&api::TreeLine {
            path,
            problem: Some(Refusal::from(error).problem()),
            ..api::TreeLine::default()
        });
    }

    fn line(&mut self, line: &api::TreeLine) {
        // Every value in it can be written.
        let _ = serde_json::to_writer(&mut self.told, line);
        self.told.push(b'\n');
    }
}

fn not_text(path: &str) -> Error {
    let error = Error::new(ErrorKind::Invalid, "list", path).cause("its name is not UTF-8");
    error.hint("list it without the service")
}

/// Returns the address of an entry of a directory.
fn below_it(address: &str, name: &str) -> String {
    let is_escaped = matches!(
        Location::parse(OsStr::new(address)),
        Ok(Location::Server(_))
    );
    let name = if is_escaped {
        encode(name.as_bytes(), false)
    } else {
        name.to_owned()
    };
    let (path, query) = match address.split_once('?') {
        Some((path, query)) if is_escaped => (path, format!("?{query}")),
        _ => (address, String::new()),
    };
    let slash = if path.ends_with(['/', ':']) { "" } else { "/" };
    format!("{path}{slash}{name}{query}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_go_on_as_their_scheme_writes_them() {
        for (address, name, below) in [
            ("s3://b", "run 7", "s3://b/run 7"),
            ("archive:", "x", "archive:x"),
            ("archive:a", "x", "archive:a/x"),
            ("/", "tmp", "/tmp"),
            ("sftp://h/~", "x?y", "sftp://h/~/x?y"),
            ("https://h/a?sig=1", "x y", "https://h/a/x%20y?sig=1"),
            ("webdav://h", "100%", "webdav://h/100%25"),
        ] {
            assert_eq!(below_it(address, name), below);
        }
    }
}
