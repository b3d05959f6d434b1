//! `posthaste submit`: submits a held job, which the service releases when its data is here.

mod options;

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
    slurm::{complaints, directives, variables},
};

/// Interval between two looks at the progress of a job's data.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Submits a job to Slurm that starts when its data is here, where Slurm has no burst buffer
///
/// Reads the script's directives, submits it with `sbatch --hold`, and tells the service of it: that brings the data, releases the
/// job, sees when it ends, and sends off what it leaves. The service remembers it all: this command may be killed and the
/// laptop closed. What follows the script are options of sbatch, each in one word. A job whose data can't come stays held, and its
/// comment says why (`squeue -o "%i %T %k"`); `scontrol release` starts it all the same. What the directives ask for is looked
/// at before, also by the service: where something is wrong nothing is submitted, and a directive that can't be read ends with
/// exit code 2. What sbatch refuses ends with sbatch's exit code.
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
    /// Only look at the directives, have the service look too, and print what sbatch would be run with
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
/// Fails for wrong directives, and with refusals of sbatch and the service.
pub async fn run(arguments: SubmitArguments) -> Outcome {
    let shown = arguments.script.display().to_string();
    let script = directives(&shown)?;
    let mut wrong = complaints(&script);
    if wrong.is_empty() {
        wrong = options::unknown_symbols(&script);
    }
    if !wrong.is_empty() {
        let lines: Vec<String> = wrong.iter().map(|one| format!("{shown}: {one}")).collect();
        return Err(Failure::usage(lines.join("; ")));
    }
    let whole = fs::read(&arguments.script);
    let whole = whole.map_err(|cause| Error::io("read", &shown, cause))?;
    options::check(&shown, &String::from_utf8_lossy(&whole), &arguments.sbatch)?;
    let service = ServiceClient::open(&arguments.service)?;
    let mut new = api::NewJob {
        script,
        uid: getuid().as_raw(),
        gid: getgid().as_raw(),
        held: true,
    };
    // If the service can't be reached or refuses the job, the job is not submitted.
    service.say("/v1/jobs/check", &new).await?;
    if arguments.dry_run {
        return Ok(tell_command(&arguments));
    }
    let id = match sbatch(&arguments, &new.script)? {
        Ok(id) => id,
        Err(refused) => return Ok(refused),
    };
    new.script = options::filled_in(&new.script, &id);
    let path = format!("/v1/jobs/slurm/{id}");
    let job = match tell(&service, &path, &new).await {
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

/// Registers a job with the service, which requests the job's inputs; returns its state.
async fn tell(service: &ServiceClient, path: &str, new: &api::NewJob) -> Result<api::Job, Failure> {
    let job: api::Job = service.put(path, new).await?;
    if job.hold != api::JobHold::Held {
        let what = format!("the service knows another job as {path} (DELETE of that forgets it)");
        return Err(Failure::new(Exit::Other, what));
    }
    match service.post(&format!("{path}/stage-in"), &()).await {
        // The service asks by itself a moment later.
        Err(failure) if failure.may_pass() => Ok(job),
        answered => answered,
    }
}

/// Cancels a job that the service does not know; returns the result for people.
fn cancel(id: &str) -> String {
    let cancelled = Command::new("scancel").arg(id).status();
    if cancelled.is_ok_and(|status| status.success()) {
        format!(" (job {id} was cancelled)")
    } else {
        format!(" (job {id} stays held: `scancel {id}` removes it)")
    }
}

/// Returns the words sbatch is run with.
fn words(arguments: &SubmitArguments) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["--parsable".into(), "--hold".into()];
    words.extend(arguments.sbatch.iter().map(OsString::from));
    words.push(arguments.script.clone().into());
    words
}

/// Prints the command that would be run.
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

/// Submits the script, held, with the places of its data in its environment. Returns the job's
/// number, or the exit code of an sbatch that has printed its refusal.
fn sbatch(arguments: &SubmitArguments, script: &str) -> Result<Result<String, ExitCode>, Failure> {
    let mut command = Command::new("sbatch");
    command
        .args(words(arguments))
        .env_remove("SBATCH_WAIT")
        .envs(variables(script))
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

/// Shows the data's progress until it is here; the service releases the job.
async fn wait(service: &ServiceClient, path: &str, id: &str) -> Result<(), Failure> {
    let mut said = String::new();
    loop {
        match look(service, path).await {
            Err(failure) if failure.may_pass() => {}
            Err(failure) => return Err(stays_held(id, &failure.to_string())),
            Ok(job) => {
                if let Some(trouble) = job.trouble {
                    return Err(stays_held(id, &trouble));
                }
                if job.ready || job.phase == api::JobPhase::Ended {
                    return Ok(());
                }
                if job.phase == api::JobPhase::Gone {
                    let what = format!("job {id} was cancelled before its data was here");
                    return Err(Failure::new(Exit::Other, what));
                }
                let states = job.stage_ins.iter();
                let states: Vec<String> = states
                    .map(|one| format!("{} {}", one.source, one.state))
                    .collect();
                let now = states.join(", ");
                if now != said {
                    output::complain(&now);
                    said = now;
                }
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Gets a job and, unless it is over, has the service request its inputs. Returns the job, with the
/// refusals of its inputs.
async fn look(service: &ServiceClient, path: &str) -> Result<api::Job, Failure> {
    let job: api::Job = service.get(path).await?;
    if matches!(job.phase.as_str(), "ended" | "gone") {
        return Ok(job);
    }
    service.post(&format!("{path}/stage-in"), &()).await
}

fn stays_held(id: &str, why: &str) -> Failure {
    let what = format!("job {id} stays held: {why} (scontrol release {id} starts it all the same)");
    Failure::new(Exit::Other, what)
}
