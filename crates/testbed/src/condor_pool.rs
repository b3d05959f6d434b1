use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::{Running, said};

/// Account that submits jobs, in Debian 13 ([`crate::in_debian_13`]).
const SUBMITTER: u32 = 1000;

/// Home of the submitter.
const HOME: &str = "/home/alice";

/// Interval between two questions: each starts a program.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Questions until a condition counts as never true: five minutes.
const ASKS_MAX: u32 = 1_500;

/// A pool of HTCondor with one machine, from Debian's package. All of its daemons run below one
/// `condor_master` that root started, in a folder of its own, with the security that is the default
/// since 9.0.
///
/// The pool runs in Debian 13 ([`crate::in_debian_13`]) only, and needs root. Processes of its
/// master end with that Debian's first process.
#[derive(Debug)]
pub struct CondorPool {
    // Ends before its folder is removed.
    master: Option<Running>,
    folder: TempDir,
}

impl CondorPool {
    /// Writes its configuration into a new folder that every user may read, and makes the
    /// submitter's home.
    ///
    /// # Errors
    /// Fails if nothing can be written, or the accounts are not there.
    pub fn set_up() -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("posthaste-condor-")
            .tempdir()
            .context("make a folder for HTCondor")?;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        let pool = Self {
            master: None,
            folder,
        };
        for name in ["execute", "lock", "log", "run", "spool"] {
            let path = pool.folder().join(name);
            fs::create_dir(&path)?;
            said(Command::new("chown").arg("condor:condor").arg(&path))?;
        }
        for name in ["passwords.d", "tokens.d"] {
            let path = pool.folder().join(name);
            fs::create_dir(&path)?;
            fs::set_permissions(&path, Permissions::from_mode(0o700))?;
        }
        fs::write(pool.config(), config(pool.folder()))?;
        fs::create_dir_all(HOME)?;
        chown(HOME, Some(SUBMITTER), Some(SUBMITTER))?;
        Ok(pool)
    }

    /// Returns the folder of its configuration and its logs.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the configuration file, to which a test may add.
    #[must_use]
    pub fn config(&self) -> PathBuf {
        self.folder().join("condor_config")
    }

    /// Returns the home of the submitter.
    #[must_use]
    pub fn home(&self) -> &Path {
        Path::new(HOME)
    }

    /// Returns the user number of the submitter.
    #[must_use]
    pub fn submitter(&self) -> u32 {
        SUBMITTER
    }

    /// Starts it and waits until its machine accepts jobs.
    ///
    /// # Errors
    /// Fails if its master ends or the machine never gets ready.
    pub fn start(&mut self) -> Result<()> {
        let output = File::create(self.folder().join("master"))?;
        let master = self
            .command("condor_master")
            .arg("-f")
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("start condor_master")?;
        self.master = Some(Running(master));
        self.wait_until("a machine takes jobs", |pool| {
            let machines = pool.ask("condor_status", &["-af", "State"]);
            Ok(machines.is_ok_and(|said| said.contains("Unclaimed")))
        })
    }

    /// Returns one of HTCondor's commands, to run as root.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("CONDOR_CONFIG", self.config());
        command
    }

    /// Returns the output of one of its commands, run as root.
    ///
    /// # Errors
    /// Fails if the command fails; the message has its output.
    pub fn ask(&self, program: &str, arguments: &[&str]) -> Result<String> {
        said(self.command(program).args(arguments))
    }

    /// Submits the described job from the submitter's home and returns the number of its cluster.
    ///
    /// # Errors
    /// Fails if it is rejected; the message has the output of `condor_submit`.
    pub fn submit(&self, description: &str) -> Result<u32> {
        let path = self.folder().join("job.sub");
        fs::write(&path, description)?;
        let user = SUBMITTER.to_string();
        let mut command = self.command("setpriv");
        command
            .args(["--reuid", &user, "--regid", &user, "--clear-groups"])
            .args(["condor_submit", "-terse"])
            .arg(&path)
            .env("HOME", HOME)
            .current_dir(HOME);
        let answer = said(&mut command)?;
        // `1.0 - 1.0`
        let number = answer.split('.').next().unwrap_or_default();
        number
            .trim()
            .parse()
            .with_context(|| format!("read the job's number in {answer:?}"))
    }

    /// Returns attributes of a job, as `condor_q` prints them, or `condor_history` once it has left
    /// the queue. Empty for a short while in between.
    ///
    /// # Errors
    /// Fails if the command fails.
    pub fn about(&self, job: u32, attributes: &[&str]) -> Result<String> {
        let (job, format) = (job.to_string(), [&["-af"], attributes].concat());
        let queued = self.ask("condor_q", &[&["-allusers", &job][..], &format].concat())?;
        if !queued.trim().is_empty() {
            return Ok(queued.trim().to_owned());
        }
        let left = self.ask("condor_history", &[&[&*job][..], &format].concat())?;
        Ok(left.trim().to_owned())
    }

    /// Waits until a job has ended well.
    ///
    /// # Errors
    /// Fails if it is held, with the reason, fails, or never ends.
    pub fn wait_until_done(&self, job: u32) -> Result<()> {
        let ended = self.wait_until_at_rest(job)?;
        ensure!(ended == "4 0", "job {job} is {ended}\n{}", self.log());
        Ok(())
    }

    /// Waits until a job is held and returns the reason.
    ///
    /// # Errors
    /// Fails if it ends, or is never held.
    pub fn wait_until_held(&self, job: u32) -> Result<String> {
        let rest = self.wait_until_at_rest(job)?;
        let reason = rest.strip_prefix("5 ");
        let reason = reason.with_context(|| format!("job {job} is {rest}\n{}", self.log()))?;
        Ok(reason.to_owned())
    }

    /// Waits until a job is held (`5` and the reason) or completed (`4` and its exit code).
    fn wait_until_at_rest(&self, job: u32) -> Result<String> {
        let mut rest = String::new();
        self.wait_until("the job is held or ends", |pool| {
            let state = pool.about(job, &["JobStatus"])?;
            let about = match state.as_str() {
                "4" => "ExitCode",
                "5" => "HoldReason",
                _ => return Ok(false),
            };
            rest = format!("{state} {}", pool.about(job, &[about])?);
            Ok(true)
        })?;
        Ok(rest)
    }

    fn wait_until(
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

    /// Returns the logs of the daemons that run jobs.
    fn log(&self) -> String {
        let files = fs::read_dir(self.folder().join("log"));
        let files = files.into_iter().flatten().flatten();
        let mine = files.filter(|file| file.file_name().to_string_lossy().starts_with("Starter"));
        let texts = mine.filter_map(|file| fs::read_to_string(file.path()).ok());
        texts.collect()
    }
}

impl Drop for CondorPool {
    fn drop(&mut self) {
        if self.master.is_some() {
            // No caller is left for the error; the master is killed when the fields are dropped.
            let _ = self.ask("condor_off", &["-fast", "-master"]);
        }
    }
}

/// Returns the configuration of a pool. Its only plug-in is the one for the web: those of clouds are
/// programs in Python that are asked what they can do at each transfer, for 20 s of a core.
fn config(folder: &Path) -> String {
    let folder = folder.display();
    format!(
        "RELEASE_DIR = /usr\n\
         LOCAL_DIR = {folder}\n\
         EXECUTE = {folder}/execute\n\
         LOCK = {folder}/lock\n\
         LOG = {folder}/log\n\
         RUN = {folder}/run\n\
         SPOOL = {folder}/spool\n\
         BIN = /usr/bin\n\
         SBIN = /usr/sbin\n\
         LIB = /usr/lib/condor\n\
         LIBEXEC = /usr/libexec/condor\n\
         SHARE = /usr/share/condor\n\
         use ROLE:Personal\n\
         use SECURITY:recommended_v9_0\n\
         SEC_PASSWORD_DIRECTORY = {folder}/passwords.d\n\
         SEC_TOKEN_SYSTEM_DIRECTORY = {folder}/tokens.d\n\
         SEC_TOKEN_POOL_SIGNING_KEY_FILE = {folder}/passwords.d/POOL\n\
         CONDOR_HOST = 127.0.0.1\n\
         NETWORK_INTERFACE = 127.0.0.1\n\
         NUM_CPUS = 4\n\
         FILETRANSFER_PLUGINS = $(LIBEXEC)/curl_plugin\n\
         RUNBENCHMARKS = false\n\
         NEGOTIATOR_INTERVAL = 1\n\
         NEGOTIATOR_MIN_INTERVAL = 1\n\
         NEGOTIATOR_CYCLE_DELAY = 1\n\
         SCHEDD_INTERVAL = 1\n\
         SCHEDD_MIN_INTERVAL = 1\n\
         UPDATE_INTERVAL = 2\n"
    )
}
