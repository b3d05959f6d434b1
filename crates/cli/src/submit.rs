//! `posthaste submit`: submits a job held, for the service to release when its data is here.

use std::{
    ffi::OsString,
    fs,
    path::PathBuf,
    process::{Command, ExitCode, Stdio},
    time::Duration,
};

use clap::Args;
use posthaste_api as api;
use posthaste_endpoint::Error;
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
/// laptop closed. What follows the script are options of sbatch, each in one word. A job whose data can't come stays held;
/// `scontrol release` starts it all the same. Exit code 2 when a directive is wrong: then nothing is submitted. What
/// sbatch refuses ends with sbatch's exit code.
///
/// Examples:
///   posthaste submit job.sh
///   posthaste submit --wait job.sh --time=2:00:00 --partition=long
///   posthaste submit --dry-run job.sh
///   posthaste submit --json job.sh
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct SubmitArguments {
    /// Wait until the data is here, and say how far it is
    #[arg(long)]
    wait: bool,
    /// Only look at the directives, and print what sbatch would be run with
    #[arg(long, conflicts_with = "wait")]
    dry_run: bool,
    /// Print the job as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    service: ServiceArguments,
    /// The job script
    script: PathBuf,
    /// Options of sbatch, each in one word: --time=2:00:00, -t10
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
    let whole = fs::read(&arguments.script);
    let whole = whole.map_err(|cause| Error::io("read", &shown, cause))?;
    check_options(&shown, &String::from_utf8_lossy(&whole), &arguments.sbatch)?;
    if arguments.dry_run {
        return Ok(tell_command(&arguments));
    }
    let service = ServiceClient::open(&arguments.service)?;
    // Whoever can't be told of the job submits none.
    let _: Vec<api::Scratch> = service.get("/v1/scratch").await?;
    let id = match sbatch(&arguments)? {
        Ok(id) => id,
        Err(refused) => return Ok(refused),
    };
    let new = api::NewJob {
        script,
        uid: getuid().as_raw(),
        gid: getgid().as_raw(),
        held: true,
    };
    let path = format!("/v1/jobs/slurm/{id}");
    let job = match service.put::<api::Job>(&path, &new).await {
        Ok(job) => job,
        Err(failure) => return Err(failure.and(&cancel(&id))),
    };
    if arguments.json {
        output::json(&job);
    } else {
        output::line(&format!("Submitted batch job {id}"));
    }
    if arguments.wait {
        wait(&service, &path, &id).await?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Cancels a job that the service was not told of; what became of it.
fn cancel(id: &str) -> String {
    let cancelled = Command::new("scancel").arg(id).status();
    if cancelled.is_ok_and(|status| status.success()) {
        format!(" (job {id} was cancelled)")
    } else {
        format!(" (job {id} stays held: `scancel {id}` removes it)")
    }
}

/// Refuses options of sbatch, in the script or behind it, with which the service could not release the job.
fn check_options(shown: &str, script: &str, options: &[String]) -> Result<(), Failure> {
    let apart = |word: &&String| !word.starts_with('-') || matches!(word.as_str(), "-" | "--");
    if let Some(word) = options.iter().find(apart) {
        return Err(Failure::usage(format!(
            "{word} is no option of sbatch in one word (write --time=10, not --time 10; a script submitted so takes no arguments)"
        )));
    }
    let in_script = script
        .lines()
        .filter_map(|line| line.strip_prefix("#SBATCH"));
    let mut words = in_script
        .flat_map(str::split_whitespace)
        .chain(options.iter().map(String::as_str));
    let found = words.find_map(|word| forbidden(word).map(|why| (word, why)));
    found.map_or(Ok(()), |(word, why)| {
        Err(Failure::usage(format!(
            "can't submit {shown} with {word}: {why}"
        )))
    })
}

/// Why a job can't be submitted with an option.
fn forbidden(word: &str) -> Option<&'static str> {
    // sbatch takes long options also where they are cut short.
    let long = word.strip_prefix("--");
    let name = long.map(|long| long.split('=').next().unwrap_or(long));
    let short = word.strip_prefix('-').and_then(|word| word.chars().next());
    let is = |letter: char, option: &str| {
        name.map_or(short == Some(letter), |name| {
            !name.is_empty() && option.starts_with(name)
        })
    };
    if is('a', "array") {
        Some("the tasks of an array are jobs of their own (submit one job each)")
    } else if is('M', "clusters") {
        Some("the service asks its own cluster alone")
    } else if is('W', "wait") {
        Some("it would wait before the service is told of the job (put --wait before the script)")
    } else {
        None
    }
}

/// The words sbatch is run with.
fn words(arguments: &SubmitArguments) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["--parsable".into(), "--hold".into()];
    words.extend(arguments.sbatch.iter().map(OsString::from));
    words.push(arguments.script.clone().into());
    words
}

/// Says what would be run.
fn tell_command(arguments: &SubmitArguments) -> ExitCode {
    let words = words(arguments);
    let words = words.iter().map(|word| word.to_string_lossy());
    let words: Vec<String> = std::iter::once("sbatch".into())
        .chain(words)
        .map(Into::into)
        .collect();
    if arguments.json {
        output::json(&serde_json::json!({"dry_run": true, "command": words}));
    } else {
        output::line(&words.join(" "));
    }
    ExitCode::SUCCESS
}

/// Submits the script, held; its number, or the exit code of an sbatch that has said why it refuses.
fn sbatch(arguments: &SubmitArguments) -> Result<Result<String, ExitCode>, Failure> {
    let mut command = Command::new("sbatch");
    command
        .args(words(arguments))
        .env_remove("SBATCH_WAIT")
        .stderr(Stdio::inherit());
    let output = command.output().map_err(|cause| {
        Failure::new(
            Exit::Fatal,
            format!("can't run sbatch: {cause} (is Slurm installed here?)"),
        )
    })?;
    if !output.status.success() {
        let code = output
            .status
            .code()
            .and_then(|code| u8::try_from(code).ok());
        return Ok(Err(ExitCode::from(code.unwrap_or(Exit::Other as u8))));
    }
    // Behind a semicolon it names the cluster.
    let said = String::from_utf8_lossy(&output.stdout);
    let id = said.trim().split(';').next().unwrap_or_default().to_owned();
    if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_digit()) {
        let what = format!("can't read the number of the job in {said:?}");
        return Err(Failure::new(Exit::Other, what));
    }
    Ok(Ok(id))
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
    fn options_with_which_a_job_could_not_be_released_are_refused() {
        let check = |script: &str, options: &[&str]| {
            let options: Vec<String> = options.iter().map(|&option| option.into()).collect();
            check_options("job.sh", script, &options).map_err(|failure| failure.to_string())
        };
        for option in [
            "--array=1",
            "--arr=1",
            "-a0-3",
            "-Mother",
            "--wait",
            "-W",
            "10",
            "--",
        ] {
            check("", &[option]).unwrap_err();
        }
        let said = check("#!/bin/sh\n#SBATCH --time=1 -a 0-3\n", &[]).unwrap_err();
        assert!(said.contains("with -a"), "{said}");
        let others = ["--account=a", "--wait-all-nodes=1", "--wckey=a", "-t10"];
        check("#SBATCH --account=a\necho --array\n", &others).unwrap();
    }
}
