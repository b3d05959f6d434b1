//! Bearer tokens that expire, and their sources.

use std::{
    fmt, io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use http::HeaderValue;
use tokio::{sync::Mutex, time::timeout};

use super::{
    Web,
    oauth::{self, Account, Grant},
};
use crate::{
    Error, ErrorKind, Result, clock,
    config::{Secret, read_small_file, refuse_open_to_others},
    printer::{self, Company},
};

/// Time for which a token is used before its file or its program is asked again.
const LOOKED_AT_AFTER: Duration = Duration::from_secs(60);

/// Longest time the program may take: it may ask others.
const PRINTS_WITHIN: Duration = Duration::from_secs(60);

/// Longest token, in bytes: a longer one is no header.
const TOKEN_BYTES_MAX: usize = 64 << 10;

/// Source of a bearer token.
#[derive(Clone)]
pub(crate) enum TokenSource {
    /// A fixed token, never renewed.
    Fixed(Secret),
    /// A file that another program rewrites.
    File(PathBuf),
    /// Program with its arguments, which prints a token.
    Command(Vec<String>),
    /// A refresh token, and the service that issues tokens for it.
    Grant(Arc<Account>),
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenSource").finish_non_exhaustive()
    }
}

/// Current bearer token.
pub(crate) struct Bearer {
    source: TokenSource,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    header: Option<HeaderValue>,
    good_until: Option<Instant>,
    /// Refresh token that came with the last token, and replaces the first.
    refresh: Option<Secret>,
}

impl Bearer {
    /// Returns a name that distinguishes sources; never a secret.
    pub(crate) fn name(&self) -> String {
        match &self.source {
            TokenSource::Fixed(token) => {
                let hash = blake3::hash(token.reveal().as_bytes()).to_hex();
                format!("token {}", &hash[..12])
            }
            TokenSource::File(path) => format!("token in {}", path.display()),
            TokenSource::Command(words) => format!("token of {}", words.join(" ")),
            TokenSource::Grant(account) => account.grant.name().to_owned(),
        }
    }

    /// Returns the tokens of a source.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a fixed one that is no valid header.
    pub(crate) fn new(source: TokenSource) -> Result<Self> {
        if let TokenSource::Fixed(token) = &source {
            header_of(token)?;
        }
        Ok(Self {
            source,
            held: Mutex::default(),
        })
    }

    /// Returns the header with the present token.
    ///
    /// # Errors
    /// [`ErrorKind::Unauthenticated`] if none is available.
    pub(crate) async fn header(&self, web: &Web) -> Result<HeaderValue> {
        // Held while a token is fetched, so that one request fetches it for all.
        let mut held = self.held.lock().await;
        let is_good = held.good_until.is_none_or(|until| until > clock::now());
        if let Some(header) = held.header.as_ref().filter(|_| is_good) {
            return Ok(header.clone());
        }
        let (token, good_until) = self.fetch(web, &mut held).await?;
        let header = header_of(&token)?;
        held.header = Some(header.clone());
        held.good_until = good_until;
        Ok(header)
    }

    /// Forgets the refused token in this header. Returns whether another may be had.
    pub(crate) async fn forget(&self, shown: &HeaderValue) -> bool {
        if matches!(self.source, TokenSource::Fixed(_)) {
            return false;
        }
        let mut held = self.held.lock().await;
        // Another request may have fetched a new one meanwhile.
        if held.header.as_ref() == Some(shown) {
            held.header = None;
        }
        true
    }

    async fn fetch(&self, web: &Web, held: &mut Held) -> Result<(Secret, Option<Instant>)> {
        let soon = Some(clock::now() + LOOKED_AT_AFTER);
        match &self.source {
            TokenSource::Fixed(token) => Ok((token.clone(), None)),
            TokenSource::File(path) => {
                let shown = path.to_string_lossy();
                let fail = |cause| no_token("read the token in", &shown, cause, "token_file");
                let text = read_small_file(path).map_err(fail)?;
                let found = std::fs::metadata(path).map_err(fail)?;
                refuse_open_to_others("use the token in", path, &found)?;
                first_line(&text).map(|token| (token, soon)).ok_or_else(|| {
                    Error::new(ErrorKind::Unauthenticated, "read the token in", &*shown)
                        .cause("it holds none")
                        .hint("its first line is to be the token")
                })
            }
            TokenSource::Command(words) => printed(words).await.map(|token| (token, soon)),
            TokenSource::Grant(account) => {
                let given = oauth::fetch(web, account, held.refresh.as_ref()).await?;
                if given.refresh.is_some() {
                    held.refresh = given.refresh;
                }
                Ok((given.secret, Some(given.good_until)))
            }
        }
    }
}

/// Returns the account of a person with a refresh token.
pub(crate) fn of_refresh_token(
    refresh_token: Secret,
    client_id: String,
    client_secret: Option<Secret>,
    token_uri: String,
) -> TokenSource {
    TokenSource::Grant(Arc::new(Account {
        grant: Grant::Refreshed {
            client_id,
            client_secret,
            refresh_token,
        },
        token_uri,
    }))
}

fn header_of(token: &Secret) -> Result<HeaderValue> {
    let text = format!("Bearer {}", token.reveal().trim());
    let mut header = HeaderValue::try_from(text).map_err(|_| {
        Error::new(ErrorKind::Invalid, "use", "the token")
            .cause("it has characters no header can carry")
    })?;
    header.set_sensitive(true);
    Ok(header)
}

fn first_line(text: &[u8]) -> Option<Secret> {
    let text = std::str::from_utf8(text).ok()?;
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    (line.len() <= TOKEN_BYTES_MAX).then(|| Secret::new(line))
}

/// Returns the error for a token whose file or program can't be used. A missing file here is no
/// file that is copied.
fn no_token(operation: &'static str, what: &str, cause: io::Error, setting: &str) -> Error {
    let error = match cause.kind() == io::ErrorKind::NotFound {
        true => Error::new(ErrorKind::Unauthenticated, operation, what).cause(cause),
        false => Error::io(operation, what, cause),
    };
    error.hint(format!("check {setting} in the profile"))
}

/// Returns the token that a program prints.
async fn printed(words: &[String]) -> Result<Secret> {
    let (program, arguments) = words
        .split_first()
        .map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    let fail = |kind| Error::new(kind, "get a token from", program);
    let running = printer::run(program, arguments, Company::Nobody);
    let output = match timeout(PRINTS_WITHIN, running).await {
        Ok(output) => output.map_err(|cause| no_token("run", program, cause, "token_command"))?,
        Err(_) => return Err(fail(ErrorKind::TimedOut).cause("it prints none for a minute")),
    };
    if output.status.success()
        && let Some(token) = first_line(&output.stdout)
    {
        return Ok(token);
    }
    // Don't show the output: it may be a token.
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().map(str::trim).rfind(|line| !line.is_empty());
    Err(fail(ErrorKind::Unauthenticated)
        .cause(said.unwrap_or("it prints none").to_owned())
        .hint("run it by hand"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reach::Reach;

    async fn token(bearer: &Bearer) -> String {
        let header = bearer.header(&web()).await.unwrap();
        header.to_str().unwrap().to_owned()
    }

    fn web() -> Web {
        Web::reaching(Reach::default(), None).unwrap()
    }

    #[tokio::test]
    async fn a_file_that_is_written_anew_is_read_anew_once_its_token_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bt_u1000");
        std::fs::write(&path, "\none\n").unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&path, private).unwrap();
        let bearer = Bearer::new(TokenSource::File(path.clone())).unwrap();
        assert_eq!(token(&bearer).await, "Bearer one");
        std::fs::write(&path, "two").unwrap();
        assert_eq!(token(&bearer).await, "Bearer one");
        let shown = HeaderValue::from_static("Bearer one");
        assert!(bearer.forget(&shown).await);
        assert_eq!(token(&bearer).await, "Bearer two");
        // Refused before the other existed.
        assert!(bearer.forget(&shown).await);
        assert_eq!(token(&bearer).await, "Bearer two");
        std::fs::write(&path, " \n").unwrap();
        let shown = HeaderValue::from_static("Bearer two");
        assert!(bearer.forget(&shown).await);
        let error = bearer.header(&web()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    }

    #[tokio::test]
    async fn a_program_s_complaint_is_shown_and_what_it_prints_is_not() {
        let command = |script: &str| {
            let words = ["sh", "-c", script].map(str::to_owned);
            Bearer::new(TokenSource::Command(words.to_vec())).unwrap()
        };
        assert_eq!(token(&command("echo t")).await, "Bearer t");
        let failing = command("echo hidden; echo 'no agent runs' >&2; exit 1");
        let error = failing.header(&web()).await.unwrap_err();
        assert!(error.to_string().contains("no agent runs"), "{error}");
        assert!(!error.to_string().contains("hidden"), "{error}");
    }

    #[tokio::test]
    async fn what_a_program_leaves_running_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let number = folder.path().join("number");
        let script = format!("sleep 3600 & echo $! > {}; echo t", number.display());
        let words = ["sh", "-c", &*script].map(str::to_owned);
        let bearer = Bearer::new(TokenSource::Command(words.to_vec())).unwrap();
        assert_eq!(token(&bearer).await, "Bearer t");
        let number = std::fs::read_to_string(number).unwrap();
        let stat = format!("/proc/{}/stat", number.trim());
        let is_running = || {
            let stat = std::fs::read_to_string(&stat).unwrap_or_default();
            // A process that starts nothing more than tests may never ask how it ended.
            !stat.is_empty() && !stat.contains(") Z ")
        };
        while is_running() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    #[tokio::test]
    async fn a_token_that_is_nowhere_is_a_matter_of_credentials() {
        for source in [
            TokenSource::File("/nowhere/token".into()),
            TokenSource::Command(vec!["/nowhere/program".to_owned()]),
        ] {
            let bearer = Bearer::new(source).unwrap();
            let error = bearer.header(&web()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unauthenticated);
            assert!(error.to_string().contains("in the profile"), "{error}");
        }
    }

    #[tokio::test]
    async fn a_fixed_token_is_never_renewed() {
        let bearer = Bearer::new(TokenSource::Fixed(Secret::new("t"))).unwrap();
        assert_eq!(token(&bearer).await, "Bearer t");
        assert!(!bearer.forget(&HeaderValue::from_static("Bearer t")).await);
    }
}
