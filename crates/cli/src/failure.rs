//! Failures of commands: one line for people, one exit code for programs.

use std::{fmt, process::ExitCode};

use posthaste_api as api;
use posthaste_endpoint::{Error, ErrorKind, Locus};
use serde::Serialize;

/// Result of a command.
pub type Outcome = Result<ExitCode, Failure>;

/// Exit codes, rclone's if rclone has one. `docs/reference/exit-codes.md` explains them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Failure not covered below.
    Other = 1,
    /// Invalid command line.
    Usage = 2,
    /// Missing directory.
    DirectoryNotFound = 3,
    /// Missing file or request.
    FileNotFound = 4,
    /// Temporary failure: a retry may succeed.
    Temporary = 5,
    /// Some files were left out; the rest was done.
    LessSerious = 6,
    /// Permanent failure: credentials, permissions, no space.
    Fatal = 7,
    /// Stop by the time limit.
    TimeLimit = 10,
    /// Refusal by the service: infeasible deadline, too few depots, no space.
    Refused = 11,
    /// Stream that could not reach its destination: all of it is kept, some of it elsewhere.
    Parked = 12,
}

/// Failed end of a command.
#[derive(Debug)]
pub struct Failure {
    exit: Exit,
    message: String,
    /// Page under `docs/errors/` that explains the failure, if it is known better than by the exit
    /// code.
    code: Option<String>,
}

/// Failure of a command for programs.
#[derive(Debug, Serialize)]
pub struct Line<'a> {
    /// Page under `docs/errors/` that explains the failure.
    code: &'a str,
    message: &'a str,
}

impl Failure {
    /// Builds a failure with this code and this one line.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: message.into(),
            code: None,
        }
    }

    /// Builds a failure from the service's problem.
    pub fn told(problem: api::Problem) -> Self {
        let mut failure = Self::new(exit_for_code(&problem.code), problem.detail);
        failure.code = Some(problem.code);
        failure
    }

    /// Builds the failure of a refused or failed request.
    pub fn of_request(request: &api::Request, doing: &str) -> Self {
        let reason = request.reason.as_deref().unwrap_or("no reason was given");
        let message = format!("{doing}: {reason}");
        match &request.error_code {
            _ if request.state == api::RequestState::Refused => Self::new(Exit::Refused, message),
            None => Self::new(Exit::Other, message),
            Some(code) => {
                let mut failure = Self::new(exit_for_code(code), message);
                failure.code = Some(code.clone());
                failure
            }
        }
    }

    /// Returns the last line of standard output with `--json`.
    pub fn line(&self) -> Line<'_> {
        let code = self.code.as_deref().unwrap_or(match self.exit {
            Exit::Usage => "invalid",
            Exit::DirectoryNotFound | Exit::FileNotFound => "not-found",
            Exit::Temporary => "unreachable",
            Exit::Other
            | Exit::LessSerious
            | Exit::Fatal
            | Exit::TimeLimit
            | Exit::Refused
            | Exit::Parked => "other",
        });
        Line {
            code,
            message: &self.message,
        }
    }

    /// Builds a failure for bad arguments: the line should show the correct form.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Sets the page under `docs/errors/` that explains it.
    pub fn explained_by(mut self, code: &str) -> Self {
        self.code = Some(code.to_owned());
        self
    }

    /// Appends text to the failure's line.
    pub fn and(mut self, more: &str) -> Self {
        self.message.push_str(more);
        self
    }

    /// Returns whether retrying may succeed.
    pub fn may_pass(&self) -> bool {
        self.exit == Exit::Temporary
    }

    /// Returns whether the request itself is invalid.
    pub fn is_usage(&self) -> bool {
        self.exit == Exit::Usage
    }

    /// Returns whether the subject does not exist.
    pub fn is_not_found(&self) -> bool {
        self.exit == Exit::FileNotFound
    }

    /// Returns the exit code for programs.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.exit as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let mut failure = Self::new(exit_for(&error), error.to_string());
        failure.code = Some(error.code().to_owned());
        failure
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<Error>() {
            Ok(error) => error.into(),
            Err(error) => Self::new(Exit::Other, format!("{error:#}")),
        }
    }
}

/// Condenses a refusal of the command-line parser into one line, with its suggestions.
pub fn said_by_parser(error: &clap::Error) -> (String, Vec<String>) {
    let said = error.render().to_string();
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut blocks = said.split("\n\n");
    let what = blocks.next().unwrap_or_default();
    let what = one_line(what.trim_start_matches("error: "));
    let tips = blocks.filter_map(|block| block.trim().strip_prefix("tip: "));
    (what, tips.map(one_line).collect())
}

/// Returns the exit code for a page under `docs/errors/`.
fn exit_for_code(code: &str) -> Exit {
    match code {
        "not-found" => Exit::FileNotFound,
        "invalid" => Exit::Usage,
        "permission-denied" | "unauthenticated" | "full" => Exit::Fatal,
        "unreachable" | "timed-out" | "busy" => Exit::Temporary,
        "changed" => Exit::LessSerious,
        _ => Exit::Other,
    }
}

/// Returns the exit code for this kind of error.
pub fn exit_for(error: &Error) -> Exit {
    if error.is_temporary() {
        return Exit::Temporary;
    }
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "ErrorKind may grow; new kinds are Other"
    )]
    match error.kind() {
        ErrorKind::NotFound if error.locus() == Locus::Destination => Exit::DirectoryNotFound,
        ErrorKind::NotFound => Exit::FileNotFound,
        ErrorKind::Invalid => Exit::Usage,
        ErrorKind::PermissionDenied | ErrorKind::Unauthenticated | ErrorKind::Full => Exit::Fatal,
        ErrorKind::Changed => Exit::LessSerious,
        _ => Exit::Other,
    }
}
