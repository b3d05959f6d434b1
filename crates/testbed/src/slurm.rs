mod accounts;
mod rest;

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::{
    Running, ended_within, free_port,
    install::{self, DebianProgram},
    said, wait_until_ended,
};

use accounts::Accounts;
pub use rest::SlurmRest;

/// User that submits jobs: Slurm allows root no burst buffer.
const SUBMITTER: &str = "65534";

/// Jobs of one processor that run at once, whatever the machine has.
const NODE_CPUS: u32 = 4;

/// Interval between two questions: each starts a program.
const ASK_EVERY: Duration = Duration::from_millis(100);

/// Questions until a condition counts as never true: five minutes.
const ASKS_MAX: u32 = 3_000;

/// Checks, [`crate::LOOK_EVERY`] apart, until its ending programs are killed: 30 s.
const ENDING_LOOKS_MAX: u32 = 1500;

/// A Slurm of one node, Debian's packages: `slurmctld` and `slurmd` as root, without systemd and
/// without munge, in a folder and on ports of its own.
///
/// [`Slurm::set_up`] only writes its configuration, so that a test can add to it before
/// [`Slurm::start`]. It needs root.
#[derive(Debug)]
pub struct Slurm {
    controller: Option<Running>,
    node: Option<Running>,
    accounts: Option<Accounts>,
    /// Last field, as the daemons write there until they have ended.
    folder: TempDir,
}

impl Slurm {
    /// Writes `slurm.conf` into a new folder that every user may read.
    ///
    /// # Errors
    /// Fails if Slurm is not installed or nothing can be written.
    pub fn set_up() -> Result<Self> {
        install::find_debian_program(install::SLURM_CONTROLLER)?;
        let folder = tempfile::Builder::new()
            .prefix("posthaste-slurm-")
            .tempdir()
            .context("make a folder for Slurm")?;
        // The submitter reads the configuration and its own scripts here.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        for name in ["state", "spool"] {
            fs::create_dir(folder.path().join(name))?;
        }
        fs::write(folder.path().join("slurm.conf"), config(folder.path())?)?;
        Ok(Self {
            folder,
            controller: None,
            node: None,
            accounts: None,
        })
    }

    /// Returns the folder of `slurm.conf` and all files beside it.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Starts both daemons and waits until the node accepts jobs.
    ///
    /// # Errors
    /// Fails if one of them ends or the node never gets ready.
    pub fn start(&mut self) -> Result<()> {
        self.start_controller()?;
        let node = self.spawn(install::SLURM_NODE, &["-N", &host_name()?])?;
        self.node = Some(Running(node));
        self.wait_until("the node takes jobs", |slurm| {
            let node = slurm.ask("sinfo", &["-h", "-o", "%T"])?;
            Ok(matches!(node.trim(), "idle" | "mixed" | "allocated"))
        })
    }

    /// Starts the controller, also after a stop: it goes on from its saved state.
    ///
    /// # Errors
    /// Fails if it ends or does not answer.
    pub fn start_controller(&mut self) -> Result<()> {
        let mut controller = Running(self.spawn(install::SLURM_CONTROLLER, &["-i"])?);
        for _ in 0..ASKS_MAX {
            if self.ask("scontrol", &["ping"]).is_ok() {
                self.controller = Some(controller);
                return Ok(());
            }
            if let Some(status) = controller.0.try_wait()? {
                bail!("slurmctld ended at once: {status}\n{}", self.log());
            }
            thread::sleep(ASK_EVERY);
        }
        bail!("slurmctld does not answer\n{}", self.log())
    }

    /// Stops the controller as an operator does; running jobs go on.
    ///
    /// # Errors
    /// Fails if it does not end.
    pub fn stop_controller(&mut self) -> Result<()> {
        self.ask("scontrol", &["shutdown", "slurmctld"])?;
        let mut controller = self.controller.take().context("there is no controller")?;
        wait_until_ended(&mut controller, "slurmctld")?;
        Ok(())
    }

    /// Returns one of Slurm's commands, to run as root.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.folder.path().join("slurm.conf"));
        command
    }

    /// Returns the output of one of Slurm's commands, run as root.
    ///
    /// # Errors
    /// Fails if the command fails; the message has its output.
    pub fn ask(&self, program: &str, arguments: &[&str]) -> Result<String> {
        said(self.command(program).args(arguments))
    }

    /// Returns `sbatch` as an ordinary user, without a job script yet.
    #[must_use]
    pub fn sbatch(&self) -> Command {
        self.as_user("sbatch")
    }

    /// Returns one of Slurm's commands, to run as the submitter of jobs.
    #[must_use]
    pub fn as_user(&self, program: &str) -> Command {
        self.as_other(SUBMITTER, program)
    }

    fn as_other(&self, user: &str, program: &str) -> Command {
        let mut command = self.command("setpriv");
        command
            .args(["--reuid", user, "--regid", user, "--clear-groups"])
            .arg(program);
        command
    }

    /// Submits a job script as another user, by number, and returns the job's number.
    ///
    /// # Errors
    /// See [`Slurm::submit`].
    pub fn submit_as(&self, user: u32, script: &Path) -> Result<u32> {
        let sbatch = self.as_other(&user.to_string(), "sbatch");
        submitted(sbatch, script, &[])
    }

    /// Submits a job script by its path, discards its output and returns the job's number.
    ///
    /// # Errors
    /// Fails if it is rejected; the message has the output of `sbatch`.
    pub fn submit(&self, script: &Path) -> Result<u32> {
        self.submit_with(script, &[])
    }

    /// Submits a job script with more arguments of `sbatch`.
    ///
    /// # Errors
    /// See [`Slurm::submit`].
    pub fn submit_with(&self, script: &Path, arguments: &[&str]) -> Result<u32> {
        submitted(self.sbatch(), script, arguments)
    }

    /// Returns the state of a job and why it waits, as `squeue` and `scontrol` name them:
    /// `("PENDING", "BurstBufferStageIn")`.
    ///
    /// # Errors
    /// Fails if Slurm does not know the job (any more).
    pub fn state(&self, job: u32) -> Result<(String, String)> {
        let shown = self.ask("scontrol", &["-o", "show", "job", &job.to_string()])?;
        // The reason may have blanks; the word after it begins the next field.
        let (_, state) = shown
            .split_once("JobState=")
            .context("a job without a state")?;
        let (state, rest) = state.split_once(" Reason=").context("no reason")?;
        let reason = rest
            .split_once(" Dependency=")
            .map_or(rest, |(reason, _)| reason);
        Ok((state.to_owned(), reason.to_owned()))
    }

    /// Checks until `condition` holds.
    ///
    /// # Errors
    /// Fails if it never does (five minutes), or a check fails.
    pub fn wait_until(
        &self,
        what: &str,
        mut condition: impl FnMut(&Self) -> Result<bool>,
    ) -> Result<()> {
        for _ in 0..ASKS_MAX {
            if condition(self)? {
                return Ok(());
            }
            thread::sleep(ASK_EVERY);
        }
        bail!("never: {what}\n{}", self.log())
    }

    /// Returns the log of the controller.
    #[must_use]
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("slurmctld.log")).unwrap_or_default()
    }

    /// Starts a daemon that stays a child. Its name matters: `slurmctld` under any other crashes in
    /// `burst_buffer/lua`.
    fn spawn(&self, program: DebianProgram, arguments: &[&str]) -> Result<Child> {
        let path = install::find_debian_program(program)?;
        let output = File::create(self.folder.path().join(program.name))?;
        Command::new(&path)
            .arg("-D")
            .args(arguments)
            .arg("-f")
            .arg(self.folder.path().join("slurm.conf"))
            // Folder of its core if it crashes: slurmctld 24.11 does at times while it ends.
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .with_context(|| format!("start {}", path.display()))
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        if self.controller.is_none() {
            return;
        }
        // Steps of jobs are processes of their own, which end by Slurm's command only. All that
        // does not is killed when the fields are dropped.
        let _ = self.ask("scancel", &["--full", "--user", SUBMITTER]);
        let _ = self.ask("scontrol", &["shutdown"]);
        for daemon in [&mut self.controller, &mut self.node].into_iter().flatten() {
            let _ = ended_within(daemon, ENDING_LOOKS_MAX);
        }
    }
}

fn submitted(mut sbatch: Command, script: &Path, arguments: &[&str]) -> Result<u32> {
    let answer = said(
        sbatch
            .args(["--parsable", "--output=/dev/null"])
            .args(arguments)
            .current_dir(script.parent().context("a script without a folder")?)
            .arg(script),
    )?;
    answer
        .trim()
        .parse()
        .with_context(|| format!("read the job's number in {answer:?}"))
}

/// Returns the machine's name, which Slurm looks up, as the node's name.
fn host_name() -> Result<String> {
    Ok(said(Command::new("hostname").arg("-s"))?.trim().to_owned())
}

fn config(folder: &Path) -> Result<String> {
    let host = host_name()?;
    let (controller, node) = (free_port()?, free_port()?);
    let folder = folder.display();
    // Slow daemons on a busy machine get time.
    Ok(format!(
        "ClusterName=testbed\n\
         SlurmctldHost={host}(127.0.0.1)\n\
         SlurmctldPort={controller}\n\
         SlurmdPort={node}\n\
         SlurmUser=root\n\
         AuthType=auth/none\n\
         CredType=cred/none\n\
         ProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\n\
         JobAcctGatherType=jobacct_gather/none\n\
         AccountingStorageType=accounting_storage/none\n\
         MpiDefault=none\n\
         SwitchType=switch/none\n\
         SelectType=select/cons_tres\n\
         SchedulerType=sched/backfill\n\
         SchedulerParameters=bf_interval=1,bf_max_time=30,bf_continue,sched_interval=1\n\
         SlurmdParameters=config_overrides\n\
         ReturnToService=2\n\
         MessageTimeout=60\n\
         BatchStartTimeout=60\n\
         MinJobAge=3600\n\
         StateSaveLocation={folder}/state\n\
         SlurmdSpoolDir={folder}/spool\n\
         SlurmctldPidFile={folder}/slurmctld.pid\n\
         SlurmdPidFile={folder}/slurmd.pid\n\
         SlurmctldLogFile={folder}/slurmctld.log\n\
         SlurmdLogFile={folder}/slurmd.log\n\
         NodeName={host} NodeAddr=127.0.0.1 CPUs={NODE_CPUS} State=UNKNOWN\n\
         PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_runs_and_its_controller_may_restart_meanwhile() -> Result<()> {
        let mut slurm = Slurm::set_up()?;
        slurm.start()?;
        let place = slurm.folder().join("jobs");
        fs::create_dir(&place)?;
        fs::set_permissions(&place, Permissions::from_mode(0o777))?;
        let script = place.join("job.sh");
        fs::write(
            &script,
            "#!/bin/sh\nwhile [ ! -e go ]; do sleep 0.1; done\nid -u > ran\n",
        )?;
        let refused = slurm.submit(&place.join("absent.sh"));
        assert!(refused.is_err_and(|error| error.to_string().contains("absent.sh")));

        let job = slurm.submit(&script)?;
        slurm.wait_until("the job runs", |slurm| Ok(slurm.state(job)?.0 == "RUNNING"))?;
        slurm.stop_controller()?;
        slurm.start_controller()?;
        fs::write(place.join("go"), "")?;
        slurm.wait_until("the job ends", |slurm| {
            Ok(slurm.state(job)?.0 == "COMPLETED")
        })?;
        assert_eq!(fs::read_to_string(place.join("ran"))?, "65534\n");
        Ok(())
    }
}
