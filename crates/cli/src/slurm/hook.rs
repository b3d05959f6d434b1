//! `posthaste slurm hook`: commands of the burst buffer script. They ask the service, and wait;
//! they decide nothing.

use std::{
    fmt::Write as _,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::Duration,
};

use clap::{Args, ValueEnum};
use hyper::Method;
use posthaste_api as api;
use posthaste_batch::script::{self, Complaint};
use posthaste_endpoint::Error;

use super::{config::SlurmConfig, prolog};
use crate::{
    check,
    client::ServiceClient,
    failure::{Exit, Failure, Outcome},
    output,
};

/// Interval between two looks at the progress of a job's data.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Timeout of a call during which the controller waits.
const POOLS_TIMEOUT: Duration = Duration::from_secs(3);
/// Slurm's unit of the pool: 1 MiB.
const GRANULARITY: u64 = 1 << 20;
/// Jobs shown if none is named, the newest: the controller has a few seconds for all.
const SHOWN_MAX: usize = 1000;
/// Pool that jobs ask for with `pool=scratch`.
const POOL: &str = "scratch";
/// Folders over which Slurm spreads the scripts of jobs, by the last digit of their numbers.
const SCRIPT_FOLDERS: u64 = 10;
/// Larger than any script that Slurm accepts.
const SCRIPT_BYTES_MAX: u64 = 4 << 20;

/// Answers one call of Slurm's burst buffer plug-in, a prolog or an epilog; not for people
///
/// The scripts of plugins/slurm run it with what Slurm gave. What it prints is shown by Slurm; it exits with 0 when the call
/// went well.
///
/// Examples:
///   posthaste slurm hook --config /etc/posthaste/slurm.toml pools
///   posthaste slurm hook --config /etc/posthaste/slurm.toml job_process -- job.sh
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, hide = true)]
pub struct HookArguments {
    /// Which service to ask, and with which token
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// The job by whose number Slurm keeps the script of the array that this one is of
    #[arg(long, value_name = "JOB")]
    array: Option<u64>,
    /// The plug-in's function, without slurm_bb_; comment for job_submit.lua; prolog and epilog for prolog.sh and epilog.sh
    #[arg(value_enum)]
    call: Call,
    /// Arguments that Slurm gave it
    #[arg(last = true)]
    words: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum Call {
    Pools,
    JobProcess,
    Comment,
    Setup,
    DataIn,
    TestDataIn,
    Paths,
    PreRun,
    PostRun,
    DataOut,
    TestDataOut,
    JobTeardown,
    GetStatus,
    Prolog,
    Epilog,
}

/// Runs the command.
///
/// # Errors
/// Returns the failure of the call: Slurm shows its line.
pub async fn run(arguments: HookArguments) -> Outcome {
    let words = &arguments.words;
    // These run inside the controller while it holds its locks, so they make no calls.
    match arguments.call {
        Call::JobProcess => return job_process(word(words, 0, "the script")?),
        Call::Comment => return comment(word(words, 0, "the comment")?),
        Call::Paths => {
            let script = kept_script(word(words, 1, "the script")?, arguments.array);
            return paths(&script, word(words, 2, "the file of paths")?);
        }
        Call::Prolog => return prolog::prolog(&arguments.config, word(words, 0, "the job")?).await,
        Call::Epilog => return prolog::epilog(&arguments.config, word(words, 0, "the job")?).await,
        // The next call, which may take long, requests all stage-outs.
        Call::PostRun => return Ok(ExitCode::SUCCESS),
        Call::Pools
        | Call::Setup
        | Call::DataIn
        | Call::TestDataIn
        | Call::PreRun
        | Call::DataOut
        | Call::TestDataOut
        | Call::JobTeardown
        | Call::GetStatus => {}
    }
    let service = ServiceClient::open(&SlurmConfig::read(&arguments.config)?.service())?;
    if arguments.call == Call::Pools {
        return pools(&service).await;
    }
    if arguments.call == Call::GetStatus {
        return get_status(&service, words).await;
    }
    let id = word(words, 0, "the job")?;
    let job = Job {
        service: &service,
        id,
        path: format!("/v1/jobs/slurm/{id}"),
        array: arguments.array,
    };
    match arguments.call {
        Call::Setup => job.setup(words).await,
        Call::DataIn => job.data_in(true).await,
        Call::TestDataIn => job.data_in(false).await,
        Call::PreRun => job.pre_run().await,
        Call::DataOut => job.data_out(true).await,
        Call::TestDataOut => job.data_out(false).await,
        Call::JobTeardown => job.teardown().await,
        Call::Pools
        | Call::JobProcess
        | Call::Comment
        | Call::Paths
        | Call::PostRun
        | Call::Prolog
        | Call::Epilog
        | Call::GetStatus => Ok(ExitCode::SUCCESS),
    }
}

fn word<'w>(words: &'w [String], place: usize, what: &str) -> Result<&'w str, Failure> {
    let found = words.get(place).map(String::as_str);
    found.ok_or_else(|| Failure::usage(format!("Slurm did not say {what}: give it after --")))
}

/// Returns the path of a job's script. Slurm names `hash.3/job.13/script` for each job of an array,
/// but from 24.11 on, if not before, only the script of the array's own number exists.
fn kept_script(named: &str, array: Option<u64>) -> PathBuf {
    let named = PathBuf::from(named);
    let state = named.ancestors().nth(3);
    let (Some(array), Some(state), false) = (array, state, named.exists()) else {
        return named;
    };
    let kept = format!("hash.{}/job.{array}/script", array % SCRIPT_FOLDERS);
    let kept = state.join(kept);
    if kept.exists() { kept } else { named }
}

/// Returns only the lines of a script that may be directives: the rest does not concern the
/// service.
pub fn directives(path: impl AsRef<Path>) -> Result<String, Failure> {
    let path = path.as_ref();
    let shown = path.display();
    let failed = |cause| Error::io("read", shown.to_string(), cause);
    let size = fs::metadata(path).map_err(failed)?.len();
    if size > SCRIPT_BYTES_MAX {
        return Err(Failure::usage(format!(
            "can't read {shown}: it is larger than any job script"
        )));
    }
    let text = fs::read(path).map_err(failed)?;
    Ok(only_directives(&String::from_utf8_lossy(&text)))
}

/// Keeps only the directives of a text. Lines keep their numbers.
pub fn only_directives(text: &str) -> String {
    let kept = text
        .lines()
        .map(|line| if line.starts_with('#') { line } else { "" });
    kept.collect::<Vec<_>>().join("\n")
}

/// Refuses invalid directives at submission.
fn job_process(path: &str) -> Outcome {
    let directives = directives(path)?;
    let mut complaints = complaints(&directives);
    complaints.extend(script::hidden_by_symbols(&directives));
    if complaints.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let lines: Vec<String> = complaints.iter().map(ToString::to_string).collect();
    Err(Failure::usage(lines.join("; ")))
}

/// Prints the directives that a comment stands for, or refuses them.
fn comment(text: &str) -> Outcome {
    let (lines, complaints) = match script::from_comment(text) {
        Ok(lines) => {
            let complaints = complaints(&lines);
            (lines, complaints)
        }
        Err(complaint) => (String::new(), vec![complaint]),
    };
    if complaints.is_empty() {
        output::line(&lines);
        return Ok(ExitCode::SUCCESS);
    }
    let said = complaints.iter().map(|one| {
        let meant = one.meant.as_ref();
        let meant = meant.map_or_else(String::new, |meant| format!(" (write {meant})"));
        format!("part {} of the comment: {}{meant}", one.line, one.what)
    });
    Err(Failure::usage(said.collect::<Vec<_>>().join("; ")))
}

/// Returns mistakes in directives, and directives that are not supported for jobs in the queue.
pub fn complaints(text: &str) -> Vec<Complaint> {
    match script::read(text) {
        Ok(wanted) => check::of_a_job(&wanted),
        Err(complaints) => complaints,
    }
}

/// Writes the places of a job's data for the job.
fn paths(script: &Path, into: &str) -> Outcome {
    let mut text = String::new();
    for (name, path) in variables(&directives(script)?) {
        let _ = writeln!(text, "{name}={path}");
    }
    // Slurm creates no folder for a job of an array, but removes it with the job.
    let folder = Path::new(into).parent().unwrap_or(Path::new("."));
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(cause) if cause.kind() != io::ErrorKind::AlreadyExists => {
            return Err(Error::io("make", folder.display().to_string(), cause).into());
        }
        Ok(()) | Err(_) => {}
    }
    let file = OpenOptions::new().append(true).create(true).open(into);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|cause| Error::io("write", into.to_owned(), cause))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the variables that name the places of a job's data. Paths with one of Slurm's symbols
/// (`%j`) are left out: the values of symbols are unknown before the job exists, or not reported.
pub fn variables(directives: &str) -> Vec<(String, String)> {
    let wanted = script::read(directives).unwrap_or_default();
    let ins = wanted.stage_ins.into_iter().zip(1..);
    let ins = ins.map(|(one, number)| (format!("POSTHASTE_STAGE_IN_{number}"), one.destination));
    let outs = wanted.stage_outs.into_iter().zip(1..);
    let outs = outs.map(|(one, number)| (format!("POSTHASTE_STAGE_OUT_{number}"), one.source));
    ins.chain(outs)
        .filter(|(_, path)| !path.contains('%'))
        .collect()
}

async fn pools(service: &ServiceClient) -> Outcome {
    let asked = tokio::time::timeout(POOLS_TIMEOUT, service.get("/v1/scratch")).await;
    let rooms: Vec<api::Scratch> = asked.map_err(|_| {
        Failure::new(
            Exit::Temporary,
            "the service does not say what room there is",
        )
    })??;
    let usable = rooms.iter().map(|room| room.usable_bytes).max();
    if let Some(usable) = usable {
        // Slurm multiplies both.
        let count = usable / GRANULARITY;
        output::line(&format!("{POOL} {count} {GRANULARITY}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows the named jobs, or all.
async fn get_status(service: &ServiceClient, words: &[String]) -> Outcome {
    // From 23.02 on the caller's user and group come first.
    let asked = words.iter().position(|word| word == "job");
    let named = asked.map(|place| words.get(place + 1..).unwrap_or_default());
    let jobs: Vec<api::Job> = match named {
        None => {
            let all = format!("/v1/jobs?scheduler=slurm&limit={SHOWN_MAX}");
            service.get(&all).await?
        }
        Some(named) => some(service, named).await?,
    };
    for job in &jobs {
        output::line(&format!("job {} {}", job.job, job.phase));
        for one in job.stage_ins.iter().chain(&job.stage_outs) {
            let request = one.request.as_deref().unwrap_or("-");
            let why = one
                .reason
                .as_ref()
                .map_or_else(String::new, |why| format!(": {why}"));
            output::line(&format!(
                "  line {} {request} {} → {} {}{why}",
                one.line, one.source, one.destination, one.state
            ));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns those of the numbered jobs that the service knows.
async fn some(service: &ServiceClient, named: &[String]) -> Result<Vec<api::Job>, Failure> {
    let mut jobs = Vec::new();
    let is_number = |word: &&String| word.bytes().all(|letter| letter.is_ascii_digit());
    for job in named.iter().filter(is_number).take(SHOWN_MAX) {
        match service.get(&format!("/v1/jobs/slurm/{job}")).await {
            Ok(job) => jobs.push(job),
            Err(failure) if failure.is_not_found() => {}
            Err(failure) => return Err(failure),
        }
    }
    Ok(jobs)
}

/// Job of Slurm.
struct Job<'s> {
    service: &'s ServiceClient,
    id: &'s str,
    path: String,
    array: Option<u64>,
}

impl Job<'_> {
    /// Registers the job with the service: job, user, group, pool, size, script.
    async fn setup(&self, words: &[String]) -> Outcome {
        let number = |place, what: &str| {
            let text = word(words, place, what)?;
            let read = text.parse::<u32>();
            read.map_err(|_| Failure::usage(format!("can't read {what} {text}: it is no number")))
        };
        let new = api::NewJob {
            uid: number(1, "the user")?,
            gid: number(2, "the group")?,
            script: directives(kept_script(word(words, 5, "the script")?, self.array))?,
            held: false,
        };
        loop {
            match self.service.put::<api::Job>(&self.path, &new).await {
                Err(failure) if failure.may_pass() => tokio::time::sleep(LOOK_EVERY).await,
                answered => return answered.map(|_| ExitCode::SUCCESS),
            }
        }
    }

    /// Reports to the service until it answers: it may be restarting, and then resumes its work.
    async fn told(&self, what: &str, body: &impl serde::Serialize) -> Result<api::Job, Failure> {
        loop {
            match self
                .service
                .post(&format!("{}/{what}", self.path), body)
                .await
            {
                Err(failure) if failure.may_pass() => tokio::time::sleep(LOOK_EVERY).await,
                answered => return answered,
            }
        }
    }

    /// Waits until all of the job's inputs are here.
    async fn data_in(&self, waits: bool) -> Outcome {
        loop {
            let job = self.told("stage-in", &()).await?;
            if job.ready {
                return Ok(ExitCode::SUCCESS);
            }
            if let Some(trouble) = job.trouble {
                return Err(Failure::new(Exit::Other, trouble));
            }
            if !waits {
                output::line("BUSY");
                return Ok(ExitCode::SUCCESS);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Checks again that all of the job's inputs are here: they may have been removed while the job
    /// waited for nodes, and Slurm 22.05 starts jobs whose stage-in it ended.
    async fn pre_run(&self) -> Outcome {
        let job = self.told("stage-in", &()).await?;
        if job.ready {
            return Ok(ExitCode::SUCCESS);
        }
        let why = job
            .trouble
            .unwrap_or_else(|| "not all of its data is there".into());
        Err(Failure::new(Exit::Other, why))
    }

    /// Waits until all of the job's output is safe; the nodes are free meanwhile.
    async fn data_out(&self, waits: bool) -> Outcome {
        let end = api::JobEnd {
            well: self.ended_well().await?,
        };
        loop {
            let job = self.told("ended", &end).await?;
            if job.safe {
                return Ok(ExitCode::SUCCESS);
            }
            if let Some(trouble) = job.trouble {
                return Err(Failure::new(Exit::Other, trouble));
            }
            if !waits {
                output::line("BUSY");
                return Ok(ExitCode::SUCCESS);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Returns whether the job succeeded. The exit of a cancelled job's script and the release of
    /// its node reach Slurm in either order. Slurm may report `0:0` for a moment, so this asks
    /// twice.
    async fn ended_well(&self) -> Result<bool, Failure> {
        if !self.seems_well()? {
            return Ok(false);
        }
        tokio::time::sleep(LOOK_EVERY).await;
        self.seems_well()
    }

    /// Returns whether Slurm reports now that the job succeeded.
    fn seems_well(&self) -> Result<bool, Failure> {
        let mut scontrol = Command::new("scontrol");
        let shown = scontrol.args(["-o", "show", "job", self.id]).output();
        let shown = shown.ok().filter(|shown| shown.status.success());
        let shown = shown.ok_or_else(|| {
            let what = format!(
                "can't tell how job {} ended: `scontrol show job` fails",
                self.id
            );
            Failure::new(Exit::Other, what)
        })?;
        let shown = String::from_utf8_lossy(&shown.stdout);
        // An array's number shows its other jobs as well.
        let own = format!("JobId={} ", self.id);
        let line = shown.lines().find(|line| line.starts_with(&own));
        let shown = line.unwrap_or(&shown);
        let has = |word: &str| shown.split_ascii_whitespace().any(|found| found == word);
        Ok(has("ExitCode=0:0") && !has("Reason=TimeLimit") && !has("Reason=NodeDown"))
    }

    /// Reports the job's end to the service; Slurm kills this call after its `OtherTimeout`.
    async fn teardown(&self) -> Outcome {
        loop {
            match self.service.tell(Method::DELETE, &self.path).await {
                Err(failure) if failure.may_pass() => tokio::time::sleep(LOOK_EVERY).await,
                Err(failure) if failure.is_not_found() => return Ok(ExitCode::SUCCESS),
                answered => return answered.map(|()| ExitCode::SUCCESS),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_of_an_array_is_where_that_of_its_own_number_is() {
        let folder = tempfile::tempdir().unwrap();
        let place = |name: &str| folder.path().join(name);
        let named = place("hash.3/job.13/script");
        let named_text = named.to_str().unwrap();
        fs::create_dir_all(place("hash.2/job.12")).unwrap();
        assert_eq!(kept_script(named_text, Some(12)), named);
        fs::write(place("hash.2/job.12/script"), "#!/bin/sh\n").unwrap();
        let kept = kept_script(named_text, Some(12));
        assert_eq!(kept, place("hash.2/job.12/script"));
        assert_eq!(kept_script(named_text, None), named);
        fs::create_dir_all(place("hash.3/job.13")).unwrap();
        fs::write(&named, "#!/bin/sh\n").unwrap();
        assert_eq!(kept_script(named_text, Some(12)), named);
        assert_eq!(kept_script("script", Some(12)), Path::new("script"));
    }

    #[test]
    fn lines_that_are_no_directives_keep_their_place_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.sh");
        fs::write(
            &path,
            "#!/bin/sh\nsecret=1\n#POSTHASTE stage_in source=s3:a destination=/b\n",
        )
        .unwrap();
        let kept = directives(path.to_str().unwrap()).unwrap();
        assert_eq!(
            kept,
            "#!/bin/sh\n\n#POSTHASTE stage_in source=s3:a destination=/b"
        );
        assert!(job_process(path.to_str().unwrap()).is_ok());
        for (wrong, said) in [
            ("#POSTHASTE stagein source=a destination=/b\n", "stage_in"),
            (
                "\n#POSTHASTE stage_in source=s3:a destination=b\n",
                "line 2: b is no absolute path",
            ),
            (
                "#POSTHASTE stage_out source=/b destination=b/c\n",
                "line 1: b/c is neither the name",
            ),
            (
                "#POSTHASTE stage_out source=/b destination=s3:c code=2+1\n",
                "line 1: `code=` can't be kept on the way to s3:c",
            ),
            (
                "#POSTHASTE stage_out source=/b/%j destination=home\n#Deadline 2h\n",
                "line 2: `#Deadline` would be lost",
            ),
        ] {
            fs::write(&path, wrong).unwrap();
            let failure = job_process(path.to_str().unwrap()).unwrap_err();
            assert!(failure.to_string().contains(said), "{failure}");
        }
    }
}
