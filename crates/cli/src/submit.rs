//! `posthaste submit`: submits a job held, for the service to release when its data is here.

use std::{
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use clap::Args;
use posthaste_api as api;
use rustix::process::{getgid, getuid};

use crate::{
    client::{ServiceArguments, ServiceClient},
    failure::{Exit, Failure, Outcome},
    output,
    slurm::{complaints, directives},
};

/// Between two looks at how far a job's data is.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Submits a job to Slurm that starts when its data is here, where Slurm has no burst buffer
///
/// Reads the script's directives, submits it with `sbatch --hold`, and tells the service of it: that brings the data, releases the
/// job, sees when it ends, and sends off what it leaves. The service remembers it all: this command may be killed and the
/// laptop closed. What follows the script goes to sbatch, before the script.
///
/// Examples:
///   posthaste submit job.sh
///   posthaste submit --wait job.sh --time=2:00:00 --partition=long
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct SubmitArguments {
    /// Wait until the data is here, and say how far it is
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    service: ServiceArguments,
    /// The job script
    script: PathBuf,
    /// Arguments of sbatch
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "SBATCH ARGUMENT"
    )]
    sbatch: Vec<String>,
}

/// Runs the command.
///
/// # Errors
/// Directives that are wrong, what sbatch refuses, and the service's.
pub async fn run(arguments: SubmitArguments) -> Outcome {
    let shown = arguments.script.display().to_string();
    let script = directives(&shown)?;
    let wrong = complaints(&script);
    if !wrong.is_empty() {
        let lines: Vec<String> = wrong.iter().map(|one| format!("{shown}: {one}")).collect();
        return Err(Failure::usage(lines.join("; ")));
    }
    if let Some(word) = array(&script, &arguments.sbatch) {
        return Err(Failure::usage(format!(
            "can't submit {shown} with {word}: the tasks of an array are jobs of their own (submit one job each)"
        )));
    }
    let service = ServiceClient::open(&arguments.service)?;
    // Whoever can't be told of the job submits none.
    let _: Vec<api::Scratch> = service.get("/v1/scratch").await?;
    let id = sbatch(&arguments)?;
    let new = api::NewJob {
        script,
        uid: getuid().as_raw(),
        gid: getgid().as_raw(),
        held: true,
    };
    let path = format!("/v1/jobs/slurm/{id}");
    if let Err(failure) = service.put::<api::Job>(&path, &new).await {
        let _ = Command::new("scancel").arg(&id).status();
        return Err(failure.and(&format!(" (job {id} was cancelled)")));
    }
    output::line(&format!("Submitted batch job {id}"));
    if arguments.wait {
        wait(&service, &path, &id).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The word that makes an array of the job, in its script or among the arguments.
fn array<'a>(script: &'a str, arguments: &'a [String]) -> Option<&'a str> {
    let options = script
        .lines()
        .filter_map(|line| line.strip_prefix("#SBATCH"));
    let mut words = options
        .flat_map(str::split_whitespace)
        .chain(arguments.iter().map(String::as_str));
    words.find(|word| {
        word.starts_with("--array") || (word.starts_with("-a") && !word.starts_with("--"))
    })
}

/// Submits the script, held; its number.
fn sbatch(arguments: &SubmitArguments) -> Result<String, Failure> {
    let mut command = Command::new("sbatch");
    command
        .args(["--parsable", "--hold"])
        .args(&arguments.sbatch)
        .arg(&arguments.script)
        .stderr(Stdio::inherit());
    let output = command.output().map_err(|cause| {
        Failure::new(
            Exit::Fatal,
            format!("can't run sbatch: {cause} (is Slurm installed here?)"),
        )
    })?;
    if !output.status.success() {
        return Err(Failure::new(Exit::Refused, "sbatch did not take the job"));
    }
    // Behind a semicolon it names the cluster.
    let said = String::from_utf8_lossy(&output.stdout);
    let id = said.trim().split(';').next().unwrap_or_default().to_owned();
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_digit()) {
        let what = format!("can't read the number of the job in {said:?}");
        return Err(Failure::new(Exit::Other, what));
    }
    Ok(id)
}

/// Says how far the data is until it is here; the service releases the job.
async fn wait(service: &ServiceClient, path: &str, id: &str) -> Result<(), Failure> {
    let mut said = String::new();
    loop {
        let job: api::Job = match service.get(path).await {
            Err(failure) if failure.may_pass() => {
                tokio::time::sleep(LOOK_EVERY).await;
                continue;
            }
            answered => answered?,
        };
        if let Some(trouble) = job.trouble {
            let what = format!(
                "job {id} stays held: {trouble} (scontrol release {id} starts it all the same)"
            );
            return Err(Failure::new(Exit::Other, what));
        }
        let states = job.stage_ins.iter();
        let states: Vec<String> = states
            .map(|one| format!("{} {}", one.source, one.state))
            .collect();
        let now = states.join(", ");
        if now != said {
            eprintln!("posthaste: {now}");
            said = now;
        }
        if job.ready || job.phase == "ended" || job.phase == "gone" {
            return Ok(());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_seen_in_the_script_and_among_the_arguments() {
        let none: [String; 0] = [];
        assert_eq!(
            array("#!/bin/sh\n#SBATCH --time=1 -a 0-3\n", &none),
            Some("-a")
        );
        assert_eq!(array("", &["--array=1".to_owned()]), Some("--array=1"));
        assert_eq!(array("#SBATCH --account=a\necho --array\n", &none), None);
    }
}
