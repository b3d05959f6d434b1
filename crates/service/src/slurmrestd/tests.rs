use std::{
    fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    sync::{Mutex, PoisonError, atomic::AtomicBool},
};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Uri},
};
use futures_util::{StreamExt, stream};
use tokio::{net::UnixListener, sync::Notify, task::JoinSet};

use super::*;

const TOKEN: &str = "SLURM_JWT=eyJhbGciOiJIUzI1NiJ9.eyJzdW4iOiJhbGljZSJ9.c2ln";

/// Behaviour of a stand-in for slurmrestd.
#[derive(Default)]
struct Stand {
    /// API version that it knows.
    version: AtomicU32,
    /// Calls received, except for unknown forms.
    asked: Mutex<Vec<String>>,
    /// Accepted token; all callers are accepted without.
    token: Mutex<Option<String>>,
    /// Refusal of all calls, except for its form.
    refusal: Mutex<Option<(StatusCode, &'static str)>>,
    /// Set if it stops in the middle of its answers.
    stalls: AtomicBool,
}

fn locked<T>(of: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stand {
    /// Returns the answer as sent: if it stalls, never more than one letter.
    fn body(&self, uri: &Uri, headers: &HeaderMap) -> (StatusCode, Body) {
        let (status, text) = self.answer(uri, headers);
        if !self.stalls.load(Relaxed) || uri.path().ends_with("/ping") {
            return (status, Body::from(text));
        }
        let first = stream::iter([Ok::<_, io::Error>(&text[..1])]);
        (status, Body::from_stream(first.chain(stream::pending())))
    }

    fn answer(&self, uri: &Uri, headers: &HeaderMap) -> (StatusCode, &'static str) {
        let shown = |name: &str| {
            headers
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        let token = locked(&self.token).clone();
        if token.is_some() && shown("x-slurm-user-token") != token {
            return (StatusCode::UNAUTHORIZED, "Authentication failure");
        }
        assert_eq!(shown("x-slurm-user-name").is_some(), token.is_some());
        let version = format!("v0.0.{}", self.version.load(Relaxed));
        let path = uri.path().trim_start_matches('/').to_owned();
        let Some((plugin, of)) = path.split_once(&format!("/{version}/")) else {
            return (StatusCode::NOT_FOUND, "Unable find requested URL.");
        };
        locked(&self.asked).push(uri.to_string());
        let refusal = *locked(&self.refusal);
        match (plugin, of, refusal) {
            ("slurm", "ping", _) => (StatusCode::INTERNAL_SERVER_ERROR, "{}"),
            (_, _, Some(refusal)) => refusal,
            ("slurm", "nodes", _) => (
                StatusCode::OK,
                r#"{"nodes": [{"cpus": 4, "state": ["IDLE"], "partitions": ["all"]}]}"#,
            ),
            (_, "jobs", _) => (
                StatusCode::OK,
                r#"{"jobs": [{"job_id": 7, "user_name": "alice", "user": "alice", "cpus": 2, "required": {"CPUs": 2},
                    "job_state": ["PENDING"], "priority": 1}]}"#,
            ),
            _ => (StatusCode::NOT_FOUND, "no"),
        }
    }
}

/// Starts one that listens in a folder, until the returned set is dropped.
fn stand(folder: &Path) -> (Arc<Stand>, JoinSet<()>) {
    let stand = Arc::new(Stand::default());
    stand.version.store(42, Relaxed);
    let listener = UnixListener::bind(folder.join("sock")).unwrap();
    let answers = Arc::clone(&stand);
    let routes = Router::new().fallback(move |uri: Uri, headers: HeaderMap| {
        let answer = answers.body(&uri, &headers);
        std::future::ready(answer)
    });
    let mut serving = JoinSet::new();
    serving.spawn(async move { axum::serve(listener, routes).await.unwrap() });
    (stand, serving)
}

fn open(folder: &Path, token_file: Option<PathBuf>) -> Slurmrestd {
    let url = format!("unix://{}/sock", folder.display());
    let options = RestOptions {
        url: url.parse().unwrap(),
        token_file,
        ca_file: None,
    };
    Slurmrestd::open(&options).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_form_that_both_know_is_asked_for_and_found_again_where_it_went() {
    let folder = tempfile::tempdir().unwrap();
    let (stand, _serving) = stand(folder.path());
    let rest = open(folder.path(), None);
    let (queue, procs) = rest.queue().await.unwrap();
    assert_eq!((queue.jobs.len(), procs), (1, 4));
    rest.queue().await.unwrap();
    let paths = ["ping", "jobs", "nodes", "jobs", "nodes"].map(|of| format!("/slurm/v0.0.42/{of}"));
    assert_eq!(std::mem::take(&mut *locked(&stand.asked)), paths);

    stand.version.store(39, Relaxed);
    assert_eq!(rest.history().await.unwrap().jobs.len(), 1);
    let history = "jobs?start_time=now-14days&skip_steps=true";
    let paths = [
        "/slurm/v0.0.39/ping".to_owned(),
        format!("/slurmdb/v0.0.39/{history}"),
    ];
    assert_eq!(std::mem::take(&mut *locked(&stand.asked)), paths);
    stand.version.store(46, Relaxed);
    let states = rest.states().await.unwrap();
    assert_eq!(states, BTreeMap::from([(7, JobState::Waiting)]));
    rest.history().await.unwrap();
    let asked = locked(&stand.asked).pop().unwrap();
    let history = format!("/slurmdb/v0.0.46/{history}&disable_truncate_usage_time=true");
    assert_eq!(asked, history);
    stand.version.store(47, Relaxed);
    let error = rest.queue().await.unwrap_err().to_string();
    assert!(
        error.contains("it knows none of v0.0.36 to v0.0.46"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_was_written_meanwhile_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    let (stand, _serving) = stand(folder.path());
    let file = folder.path().join("token");
    let rest = open(folder.path(), Some(file.clone()));
    let asked = rest.queue().await.unwrap_err();
    assert_eq!(asked.kind(), ErrorKind::NotFound, "there is none yet");
    fs::write(&file, TOKEN).unwrap();
    let asked = rest.queue().await.unwrap_err();
    assert_eq!(
        asked.kind(),
        ErrorKind::PermissionDenied,
        "others can read it"
    );
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    *locked(&stand.token) = Some("another".to_owned());
    let error = rest.queue().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    let told = format!(
        "can't ask slurmrestd at unix://{0}/sock: it answered 401 Unauthorized to /slurm/v0.0.46/ping (is the token in {0}/token still good?)",
        folder.path().display()
    );
    assert_eq!(error.to_string(), told);
    let token = TOKEN.trim_start_matches("SLURM_JWT=");
    *locked(&stand.token) = Some(token.to_owned());
    rest.queue().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_is_told_in_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let rest = open(folder.path(), None);
    let error = rest.queue().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable, "nobody listens");
    let (stand, _serving) = stand(folder.path());
    for (status, body, why) in [
        (
            500,
            r#"{"jobs": [], "errors": [{"error": "Unable to contact slurm controller\nnow"}]}"#,
            r"it answered 500 Internal Server Error to /slurm/v0.0.42/jobs: Unable to contact slurm controller\nnow",
        ),
        (
            502,
            "<html>",
            "it answered 502 Bad Gateway to /slurm/v0.0.42/jobs",
        ),
        (
            200,
            "<html>",
            "can't read Slurm's queue: expected value at line 1 column 1",
        ),
        (
            200,
            r#"{"jobs": [{"job_id": 7"#,
            "can't read Slurm's queue: EOF while parsing an object at line 1 column 22",
        ),
        (
            200,
            r#"{"jobs": [], "errors": [{"error": "Invalid user id"}]}"#,
            "can't read Slurm's queue: Invalid user id",
        ),
    ] {
        *locked(&stand.refusal) = Some((StatusCode::from_u16(status).unwrap(), body));
        let error = rest.queue().await.unwrap_err();
        let place = folder.path().display();
        assert_eq!(
            error.to_string(),
            format!("can't ask slurmrestd at unix://{place}/sock: {why}")
        );
        assert!(error.is_temporary());
    }
    *locked(&stand.refusal) = Some((StatusCode::NOT_FOUND, ""));
    for (error, of) in [
        (rest.history().await.unwrap_err(), ("slurmdb", "slurmdbd")),
        (rest.queue().await.unwrap_err(), ("slurm", "slurmctld")),
    ] {
        let (path, plugin) = of;
        let told =
            format!("to /{path}/v0.0.42/jobs (is it started with the plug-in openapi/{plugin}?)");
        assert!(error.to_string().contains(&told), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_stops_does_not_wait_for_an_answer_that_stays_away() {
    let folder = tempfile::tempdir().unwrap();
    let (stand, _serving) = stand(folder.path());
    stand.stalls.store(true, Relaxed);
    let rest = open(folder.path(), None);
    let begun = Arc::new(Notify::new());
    let has_begun = Arc::clone(&begun);
    let read = move |mut answer: Answer| {
        answer.read_exact(&mut [0]).unwrap();
        has_begun.notify_one();
        slurm::queue(answer)
    };
    let mut asking = JoinSet::new();
    asking.spawn(async move {
        rest.ask(|_| "slurm/{}/jobs", QUEUE_TIMEOUT, read)
            .await
            .map(|_| ())
    });
    begun.notified().await;
    asking.abort_all();
    let ended = asking.join_next().await.unwrap();
    assert!(ended.unwrap_err().is_cancelled(), "it waited for the rest");
}
