//! FTS's routes. Clients write double slashes and a comma after the last id, so one route parses
//! all paths.

mod listing;

use std::{collections::HashMap, sync::Arc};

use axum::{
    Extension, Json, Router,
    body::Body,
    extract::{Query, Request, State},
    http::{HeaderMap, Method, StatusCode, Uri, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::any,
};
use posthaste_api as api;
use posthaste_journal::{FtsFile, FtsJob, FtsJobs, FtsState};
use serde_json::{Value, json};
use tower_service::Service as _;
use uuid::Uuid;

use super::{
    office::{self, BASE, Denial, Standing, account},
    show,
    state::Kind,
};
use crate::{http::Desk, tokens::Caller};

/// Path prefix of these routes.
pub(crate) const PREFIX: &str = "/fts3";
/// Most jobs of a listing, also by default.
const JOBS_MAX: u32 = 500;
/// Largest refusal, in bytes.
const REFUSAL_BYTES_MAX: usize = 1 << 20;
/// Ids that one call may name.
const IDS_MAX: usize = 1000;
/// FTS release of this interface.
const VERSION: [u32; 3] = [3, 13, 4];

/// Parameters of a query.
type Asked = HashMap<String, String>;
type Answer = Result<Response, Denial>;

impl IntoResponse for Denial {
    fn into_response(self) -> Response {
        let reason = self.status.canonical_reason().unwrap_or_default();
        let status = format!("{} {reason}", self.status.as_u16());
        let body = json!({ "status": status, "message": self.message });
        (self.status, Json(body)).into_response()
    }
}

/// Converts a refusal of the general API, such as for an unknown token, to FTS's form.
pub(crate) async fn shape_refusal(response: Response) -> Response {
    let kind = response.headers().get(CONTENT_TYPE);
    if kind.is_none_or(|kind| kind != api::Problem::CONTENT_TYPE) {
        return response;
    }
    let status = response.status();
    let body = axum::body::to_bytes(response.into_body(), REFUSAL_BYTES_MAX).await;
    let problem = body
        .ok()
        .and_then(|body| serde_json::from_slice::<api::Problem>(&body).ok());
    let message = problem.map(|problem| problem.detail).unwrap_or_default();
    Denial { status, message }.into_response()
}

/// Returns the routes that need a token.
pub(crate) fn routes() -> Router<Desk> {
    Router::new().route(&format!("{PREFIX}/{{*path}}"), any(answer))
}

/// Describes the server, a client's first call. Needs no token.
pub(crate) async fn root() -> Json<Value> {
    Json(versions())
}

fn versions() -> Value {
    let [major, minor, patch] = VERSION;
    json!({
        "api": { "major": major, "minor": minor, "patch": patch },
        "core": { "major": major.to_string(), "minor": minor.to_string(), "patch": patch.to_string() },
        "delegation": { "major": 1, "minor": 0, "patch": 0 },
        "schema": { "major": 9, "minor": 0, "patch": 0 },
        "posthaste": { "version": env!("CARGO_PKG_VERSION") },
    })
}

/// Returns the routes without the prefix, and nothing else: for a port of their own.
pub(crate) fn at_root(all: Router) -> Router {
    Router::new().fallback(move |mut request: Request| {
        let mut all = all.clone();
        async move {
            let path = request.uri().path_and_query();
            let path = path.map_or("/", |path| path.as_str());
            match format!("{PREFIX}{path}").parse::<Uri>() {
                Ok(uri) => *request.uri_mut() = uri,
                Err(_) => return Denial::bad("Unusable address").into_response(),
            }
            match all.call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            }
        }
    })
}

async fn answer(
    State(desk): State<Desk>,
    Extension(caller): Extension<Arc<Caller>>,
    method: Method,
    uri: Uri,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let path = uri.path().trim_start_matches(PREFIX);
    let steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
    let has_several = path.contains(',');
    // Other methods have no meaningful body.
    let held = if matches!(method, Method::POST | Method::PUT) {
        let is_job = matches!(steps[..], ["jobs"]);
        Some(desk.fts.bodies.take(is_job, &headers, body).await?)
    } else {
        None
    };
    tokio::task::block_in_place(|| {
        let mut held = held;
        let body = held.as_mut().map(|held| std::mem::take(&mut held.bytes));
        let call = Call {
            desk: &desk,
            caller: &caller,
            asked: &asked,
            has_several,
        };
        call.answer(&method, &steps, body.unwrap_or_default())
    })
}

struct Call<'a> {
    desk: &'a Desk,
    caller: &'a Caller,
    asked: &'a Asked,
    /// Set if the answer is a list, also of one.
    has_several: bool,
}

/// Result for one of several ids.
enum Each {
    Job(Box<Standing>, Option<&'static str>),
    Not(String, StatusCode, String),
}

impl Call<'_> {
    fn answer(&self, method: &Method, steps: &[&str], body: Vec<u8>) -> Answer {
        let is = |known: &Method| method == known;
        match steps {
            [] if is(&Method::GET) => Ok(Json(versions()).into_response()),
            ["whoami"] if is(&Method::GET) => Ok(Json(self.who()).into_response()),
            ["jobs"] if is(&Method::GET) => self.list(),
            ["jobs"] if is(&Method::POST) || is(&Method::PUT) => self.submit(body),
            ["jobs", "all"] | ["jobs", "vo", _] if is(&Method::DELETE) => self.cancel_all(steps),
            ["jobs", ids] if is(&Method::GET) => self.show(ids),
            ["jobs", ids] if is(&Method::DELETE) => self.each(ids, |job| self.cancel(job)),
            ["jobs", ids] if is(&Method::POST) => self.modify(ids, &body),
            ["jobs", id, "files"] if is(&Method::GET) => self.files(id),
            ["jobs", id, "dm"] if is(&Method::GET) => {
                self.find(id)?;
                Ok(Json(json!([])).into_response())
            }
            ["jobs", id, "files", file, "retries"] if is(&Method::GET) => self.retries(id, file),
            ["jobs", id, "files", files] if is(&Method::DELETE) => self.cancel_files(id, files),
            ["jobs", id, field] if is(&Method::GET) => self.field(id, field),
            ["files"] if is(&Method::GET) => self.open_files(),
            ["delegation", _] if is(&Method::GET) => Ok(self.delegation()),
            ["status", "hosts"] if is(&Method::GET) => self.hosts(),
            ["optimizer"] if is(&Method::GET) => Ok(Json(json!(true)).into_response()),
            ["ban", "se" | "dn"] if is(&Method::GET) => Ok(Json(json!([])).into_response()),
            [
                "whoami" | "jobs" | "files" | "delegation" | "status" | "ban",
                ..,
            ] => Err(Denial {
                status: StatusCode::METHOD_NOT_ALLOWED,
                message: format!("posthaste does not do that: {method} {}", steps.join("/")),
            }),
            _ => Err(Denial {
                status: StatusCode::NOT_FOUND,
                message: format!(
                    "posthaste has nothing at {}",
                    steps.join("/").escape_debug()
                ),
            }),
        }
    }

    /// Returns owner and project of the caller.
    fn names(&self) -> (String, String) {
        let (mut owner, mut project) = (None, None);
        self.caller.claim(&mut owner, &mut project);
        (owner.unwrap_or_default(), project.unwrap_or_default())
    }

    fn who(&self) -> Value {
        let (owner, project) = self.names();
        let account = account(&project);
        let level = if self.caller.operates() { "all" } else { "vo" };
        json!({
            "user_dn": show::name_of(&owner),
            "dn": [show::name_of(&owner)],
            "base_id": BASE.to_string(),
            "voms_cred": [],
            "vos": [account],
            "vos_id": [Uuid::new_v5(&BASE, account.as_bytes()).to_string()],
            "roles": [],
            "level": { "transfer": level },
            "delegation_id": show::delegation_of(&owner),
            "method": "oauth2",
            "is_root": self.caller.operates(),
        })
    }

    /// Answers delegation calls. No credentials are delegated: storage is opened by profiles.
    /// Clients that ask get a success.
    fn delegation(&self) -> Response {
        let until = self.desk.centre.clock.now() + std::time::Duration::from_secs(86_400);
        Json(json!({ "termination_time": show::moment(until), "voms_attrs": [""] })).into_response()
    }

    fn submit(&self, body: Vec<u8>) -> Answer {
        let id = office::submit(self.desk, self.caller, body)?;
        Ok(Json(json!({ "job_id": id })).into_response())
    }

    fn find(&self, id: &str) -> Result<Standing, Denial> {
        let found = office::find(&self.desk.centre, id)?;
        found.ok_or_else(|| Denial {
            status: StatusCode::NOT_FOUND,
            message: unknown(id),
        })
    }

    /// Applies an action to each of the named jobs.
    fn each(&self, ids: &str, work: impl Fn(FtsJob) -> Result<Each, Denial>) -> Answer {
        let ids: Vec<&str> = ids.split(',').filter(|id| !id.is_empty()).collect();
        if ids.len() > IDS_MAX {
            return Err(Denial::bad(format!("more than {IDS_MAX} ids")));
        }
        let mut answers = Vec::with_capacity(ids.len());
        for id in &ids {
            let store = &self.desk.centre.store;
            let job = store.journal(|journal| journal.fts_job(id))?;
            answers.push(match job {
                None => Each::Not((*id).to_owned(), StatusCode::NOT_FOUND, unknown(id)),
                Some(job) => work(job)?,
            });
        }
        let all_went = answers.iter().all(|each| matches!(each, Each::Job(..)));
        let status = match &answers[..] {
            [Each::Not(_, status, _)] if !self.has_several => *status,
            _ if all_went => StatusCode::OK,
            _ => StatusCode::MULTI_STATUS,
        };
        let mut shown: Vec<Value> = answers.iter().map(|each| self.shown(each)).collect();
        if !self.has_several && shown.len() == 1 {
            return Ok((status, Json(shown.remove(0))).into_response());
        }
        Ok((status, Json(shown)).into_response())
    }

    fn shown(&self, each: &Each) -> Value {
        match each {
            Each::Not(id, status, why) => {
                let reason = status.canonical_reason().unwrap_or_default();
                json!({
                    "job_id": id,
                    "http_status": format!("{} {reason}", status.as_u16()),
                    "http_message": why,
                })
            }
            Each::Job(standing, said) => {
                let mut shown = show::job(standing);
                if let Some(fields) = self.asked.get("files") {
                    let files = standing.files.iter().map(|seen| {
                        Value::Object(show::pick(show::file(standing, seen), Some(fields)))
                    });
                    shown.insert("files".into(), files.collect());
                }
                let status = said.map_or("200 Ok", |_| "304 Not Modified");
                shown.insert("http_status".into(), status.into());
                shown.insert("http_message".into(), json!(said));
                Value::Object(shown)
            }
        }
    }

    fn show(&self, ids: &str) -> Answer {
        self.each(ids, |job| {
            let standing = office::look(&self.desk.centre, job)?;
            Ok(Each::Job(Box::new(standing), None))
        })
    }

    /// Returns the refusal if the caller may not change a job.
    fn is_denied(&self, job: &FtsJob) -> Option<Each> {
        let may = self
            .caller
            .stands_for(&job.owner, || format!("job {}", job.id));
        let error = may.err()?;
        Some(Each::Not(
            job.id.clone(),
            StatusCode::FORBIDDEN,
            error.to_string(),
        ))
    }

    fn cancel(&self, job: FtsJob) -> Result<Each, Denial> {
        if let Some(denied) = self.is_denied(&job) {
            return Ok(denied);
        }
        let was_over = job.ended.is_some();
        let standing = office::cancel(self.desk, job, |_| true)?;
        let said = was_over.then_some("The job is in a terminal state");
        Ok(Each::Job(Box::new(standing), said))
    }

    fn modify(&self, ids: &str, body: &[u8]) -> Answer {
        let body: Value = serde_json::from_slice(body)
            .map_err(|_| Denial::bad("Badly formatted JSON request"))?;
        let wanted = &body["params"]["priority"];
        let priority = match wanted {
            Value::Null => None,
            Value::Number(_) | Value::String(_) => {
                let text = wanted
                    .as_str()
                    .map_or_else(|| wanted.to_string(), str::to_owned);
                let number = text.parse::<i64>();
                let number = number.map_err(|_| Denial::bad("Invalid priority value"))?;
                Some(u8::try_from(number.clamp(1, 5)).unwrap_or(3))
            }
            Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
                return Err(Denial::bad("Invalid priority value"));
            }
        };
        self.each(ids, |job| {
            if let Some(denied) = self.is_denied(&job) {
                return Ok(denied);
            }
            let was_over = job.ended.is_some();
            let standing = match priority {
                Some(priority) => office::set_priority(self.desk, job, priority)?,
                None => office::look(&self.desk.centre, job)?,
            };
            let said = was_over.then_some("The job is in a terminal state");
            Ok(Each::Job(Box::new(standing), said))
        })
    }

    fn cancel_files(&self, id: &str, files: &str) -> Answer {
        let standing = self.find(id)?;
        self.caller
            .stands_for(&standing.job.owner, || format!("job {id}"))?;
        if standing.asked.kind != Kind::Plain {
            let letter = standing.asked.kind.letter();
            return Err(Denial::bad(format!(
                "Multihop or reuse jobs must be cancelled at once ({letter})"
            )));
        }
        let names: Vec<&str> = files.split(',').filter(|name| !name.is_empty()).collect();
        let is_meant = |file: &FtsFile| {
            let id = file.id.to_string();
            names.contains(&id.as_str())
        };
        let standing = office::cancel(self.desk, standing.job, is_meant)?;
        let word = |name: &&str| {
            let mut files = standing.files.iter();
            let found = files.find(|seen| seen.file.id.to_string() == **name);
            found.map_or("File does not belong to the job", show::word)
        };
        let words: Vec<&str> = names.iter().map(word).collect();
        match &words[..] {
            [word] if !self.has_several => Ok(Json(json!(word)).into_response()),
            _ => Ok(Json(json!(words)).into_response()),
        }
    }

    /// Ends all jobs that the caller may end; of one account if given.
    fn cancel_all(&self, steps: &[&str]) -> Answer {
        if !self.caller.operates() {
            return Err(Denial {
                status: StatusCode::FORBIDDEN,
                message: "User does not have root privileges".into(),
            });
        }
        let (mut files, mut jobs) = (0, 0);
        loop {
            let open = FtsJobs {
                most: JOBS_MAX,
                ..FtsJobs::default()
            };
            let store = &self.desk.centre.store;
            let open = store.journal(|journal| journal.fts_jobs(open))?;
            let is_meant = |job: &FtsJob| {
                let named = steps.get(2);
                named.is_none_or(|name| account(&job.project) == *name)
            };
            let meant: Vec<FtsJob> = open.into_iter().filter(is_meant).collect();
            if meant.is_empty() {
                break;
            }
            for job in meant {
                let standing = office::cancel(self.desk, job, |_| true)?;
                let cancelled = standing.files.iter();
                let cancelled = cancelled.filter(|seen| seen.file.state == FtsState::Cancelled);
                files += cancelled.count();
                jobs += 1;
            }
        }
        let shown = json!({ "affected_files": files, "affected_dm": 0, "affected_jobs": jobs });
        Ok(Json(shown).into_response())
    }

    fn files(&self, id: &str) -> Answer {
        let standing = self.find(id)?;
        let fields = self.asked.get("files").map(String::as_str);
        let shown = standing.files.iter();
        let shown: Vec<_> = shown
            .map(|seen| show::pick(show::file(&standing, seen), fields))
            .collect();
        Ok(Json(shown).into_response())
    }

    fn retries(&self, id: &str, file: &str) -> Answer {
        let standing = self.find(id)?;
        let mut files = standing.files.iter();
        let found = files.find(|seen| seen.file.id.to_string() == file);
        let found = found.ok_or_else(|| Denial {
            status: StatusCode::NOT_FOUND,
            message: "No such file".into(),
        })?;
        Ok(Json(show::tried(&found.file)).into_response())
    }

    fn field(&self, id: &str, field: &str) -> Answer {
        let shown = show::job(&self.find(id)?);
        let value = shown.get(field).cloned().ok_or_else(|| Denial {
            status: StatusCode::NOT_FOUND,
            message: "No such field".into(),
        })?;
        Ok(Json(value).into_response())
    }
}

fn unknown(id: &str) -> String {
    let shown: String = id.chars().take(100).collect();
    format!(
        "No job with the id \"{}\" has been found",
        shown.escape_debug()
    )
}
