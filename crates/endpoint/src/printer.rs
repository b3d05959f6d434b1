//! Programs that print a token or credentials.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _},
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitStatus, Stdio},
    thread,
};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid},
};

/// Status and output of a program.
pub(crate) struct Printed {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

/// People whom a program may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Company {
    /// Nobody: its background processes end with it.
    Nobody,
    /// Person at the terminal, from whom it may request a code. Its background processes go on.
    Terminal,
}

/// Runs a program until it ends. It writes into memory: a pipe would have no end while a background
/// process holds it. Dropping the future kills the program.
///
/// # Errors
/// Fails if it can't be started.
pub(crate) async fn run(
    program: &str,
    arguments: &[String],
    company: Company,
) -> io::Result<Printed> {
    let (mut stdout, mut stderr) = (memory()?, memory()?);
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?);
    if company == Company::Nobody {
        command.process_group(0);
    }
    let group = Group {
        child: Some(command.spawn()?),
        company,
    };
    group.until_ended().await?;
    let status = group.end()?;
    Ok(Printed {
        status,
        stdout: contents(&mut stdout)?,
        stderr: contents(&mut stderr)?,
    })
}

/// Returns a file without a name in any file system.
fn memory() -> io::Result<File> {
    Ok(memfd_create("printed", MemfdFlags::CLOEXEC)?.into())
}

fn contents(file: &mut File) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A program, and the processes it started if they are to end with it.
struct Group {
    child: Option<Child>,
    company: Company,
}

impl Group {
    /// Waits until the program has ended. It keeps its id, so that its group can be killed and
    /// nobody else's is.
    async fn until_ended(&self) -> io::Result<()> {
        let Some(pid) = self.child.as_ref().map(Pid::from_child) else {
            return Ok(());
        };
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        let waiting = tokio::task::spawn_blocking(move || waitid(WaitId::Pid(pid), options));
        waiting.await.map_err(io::Error::other)??;
        Ok(())
    }

    fn kill(&mut self) -> Option<Child> {
        let child = self.child.take()?;
        let pid = Pid::from_child(&child);
        // The whole group may be gone already.
        let _ = match self.company {
            Company::Nobody => kill_process_group(pid, Signal::KILL),
            Company::Terminal => kill_process(pid, Signal::KILL),
        };
        Some(child)
    }

    fn end(mut self) -> io::Result<ExitStatus> {
        let child = self.kill();
        let mut child = child.ok_or_else(|| io::Error::other("it has ended before"))?;
        child.wait()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(mut child) = self.kill() {
            // A killed process ends soon, but not before a disk that it waits for has answered.
            thread::spawn(move || child.wait());
        }
    }
}
