//! `posthaste slurm doctor`: checks everything that can be wrong.

mod files;
mod live;

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::site::{Site, SiteArguments};
use crate::{
    failure::{Exit, Failure, Outcome},
    output,
};

/// Says what is wrong with posthaste in this Slurm, and what to do
///
/// One line for each thing that can be wrong; exit code 1 when something is. Run it on the host of slurmctld, as root or as
/// SlurmUser. It changes nothing.
///
/// Examples:
///   posthaste slurm doctor
///   posthaste slurm doctor --slurm-conf /opt/slurm/etc/slurm.conf --json
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct DoctorArguments {
    #[command(flatten)]
    site: SiteArguments,
    /// Print the checks as JSON
    #[arg(long)]
    json: bool,
}

/// Result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Good,
    Bad,
    /// Can't be determined here.
    Unknown,
}

/// Check of one possible problem.
#[derive(Debug)]
struct Check {
    name: &'static str,
    verdict: Verdict,
    what: String,
    /// Remedy for the problem.
    remedy: Option<String>,
}

impl Check {
    fn good(name: &'static str, what: impl Into<String>) -> Self {
        Self {
            name,
            verdict: Verdict::Good,
            what: what.into(),
            remedy: None,
        }
    }

    fn bad(name: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            name,
            verdict: Verdict::Bad,
            what: what.into(),
            remedy: Some(remedy.into()),
        }
    }

    fn unknown(name: &'static str, what: impl Into<String>) -> Self {
        Self {
            name,
            verdict: Verdict::Unknown,
            what: what.into(),
            remedy: None,
        }
    }

    fn line(&self) -> String {
        let word = match self.verdict {
            Verdict::Good => "ok ",
            Verdict::Bad => "bad",
            Verdict::Unknown => "?  ",
        };
        let remedy = self.remedy.as_ref();
        let remedy = remedy.map_or_else(String::new, |remedy| format!(" ({remedy})"));
        format!("{word}  {}: {}{remedy}", self.name, self.what)
    }
}

/// Runs the command.
///
/// # Errors
/// Fails if a check does.
pub async fn run(arguments: DoctorArguments) -> Outcome {
    let mut checks = Vec::new();
    match Site::read(&arguments.site.slurm_conf) {
        Err(failure) => checks.push(Check::bad(
            "configuration",
            failure.to_string(),
            "name slurm.conf with --slurm-conf",
        )),
        Ok(site) => {
            let shown = site.conf.display().to_string();
            checks.push(Check::good("configuration", shown));
            checks.extend(files::look(&site));
            checks.extend(live::look(&site).await);
        }
    }
    if arguments.json {
        output::json(&to_json(&checks));
    } else {
        for check in &checks {
            output::line(&check.line());
        }
    }
    verdict(&checks)?;
    Ok(ExitCode::SUCCESS)
}

/// Runs the checks that need no restarted controller, and shows the problems.
///
/// # Errors
/// Fails if a check does.
pub async fn look_after_install(site: &Site) -> Result<(), Failure> {
    let mut checks = files::look(site);
    checks.push(live::service(site).await);
    for check in &checks {
        if check.verdict == Verdict::Bad {
            output::line(&check.line());
        }
    }
    verdict(&checks)
}

fn verdict(checks: &[Check]) -> Result<(), Failure> {
    let bad: Vec<&str> = checks
        .iter()
        .filter(|check| check.verdict == Verdict::Bad)
        .map(|check| check.name)
        .collect();
    if bad.is_empty() {
        return Ok(());
    }
    let what = format!("not all is well with Slurm: {}", bad.join(", "));
    Err(Failure::new(Exit::Other, what))
}

fn to_json(checks: &[Check]) -> serde_json::Value {
    let shown = checks.iter().map(|check| {
        json!({
            "name": check.name,
            "ok": match check.verdict {
                Verdict::Good => Some(true),
                Verdict::Bad => Some(false),
                Verdict::Unknown => None,
            },
            "what": check.what,
            "remedy": check.remedy,
        })
    });
    json!({
        "ok": checks.iter().all(|check| check.verdict != Verdict::Bad),
        "checks": shown.collect::<Vec<_>>(),
    })
}
