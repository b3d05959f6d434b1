use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
};

use anyhow::{Context, Result, anyhow, bail, ensure};
use tempfile::TempDir;

use crate::{LOOK_EVERY, LOOKS_MAX, Running, certificates, free_port, install, is_root};

/// User of the server if root runs the test: PostgreSQL refuses to run as root.
const SERVER_USER: u32 = 65534;

/// Keeps a server while the other end of its standard input is open, and cleans up afterwards.
const KEEP: &str = r#"folder=$1; shift; "$@" </dev/null & server=$!; cat >/dev/null
kill -INT $server; wait $server; rm -rf "$folder""#;

/// A PostgreSQL from Debian's package: `postgres` in a temporary folder. Its socket there is open
/// to everybody on this machine. Its loopback port requires [`PostgresServer::PASSWORD`] and offers
/// TLS.
#[derive(Debug)]
pub struct PostgresServer {
    folder: PathBuf,
    /// Folder removed on drop.
    _folder: Option<TempDir>,
    programs: PathBuf,
    port: u16,
    running: Running,
}

impl PostgresServer {
    /// User of the database.
    pub const USER: &str = "posthaste";

    /// Password of [`PostgresServer::USER`], with the special characters of a password file.
    pub const PASSWORD: &str = r"a:secret\word";

    /// Makes a new one and starts it.
    ///
    /// # Errors
    /// Fails if it is not installed or does not start.
    pub fn start() -> Result<Self> {
        let folder = new_folder()?;
        let path = folder.path().to_owned();
        Self::start_in(path, Some(folder))
    }

    /// Returns the server of this process: made on first use, gone with the process.
    ///
    /// # Errors
    /// Fails if it is not installed or did not start.
    pub fn shared() -> Result<&'static Self> {
        static SHARED: OnceLock<Result<PostgresServer, String>> = OnceLock::new();
        let shared = SHARED.get_or_init(|| {
            let start = || Self::start_in(new_folder()?.keep(), None);
            start().map_err(|error| format!("{error:#}"))
        });
        shared.as_ref().map_err(|error| anyhow!("{error}"))
    }

    fn start_in(folder: PathBuf, owned: Option<TempDir>) -> Result<Self> {
        let programs = install::find_postgres()?;
        let secret = folder.join("password");
        fs::write(&secret, Self::PASSWORD)?;
        fs::set_permissions(&secret, Permissions::from_mode(0o644))?;
        let made = as_server_user(&programs.join("initdb"))?
            .args(["--no-sync", "--no-locale", "--encoding=UTF8"])
            .args(["--auth-local=trust", "--auth-host=scram-sha-256"])
            .args(["--username", Self::USER, "--pwfile"])
            .arg(&secret)
            .arg("--pgdata")
            .arg(folder.join("data"))
            .current_dir(&folder)
            .stdin(Stdio::null())
            .output()
            .context("run initdb")?;
        let said = String::from_utf8_lossy(&made.stderr);
        ensure!(made.status.success(), "initdb: {}", said.trim());
        certificates::write(&folder)?;
        let key = folder.join(certificates::KEY);
        fs::set_permissions(&key, Permissions::from_mode(0o600))?;
        give_to_server(&key)?;
        let port = free_port()?;
        let running = run(&programs, &folder, port, owned.is_none())?;
        let mut server = Self {
            folder,
            _folder: owned,
            programs,
            port,
            running,
        };
        ensure!(server.gets_ready()?, "{}", server.log());
        Ok(server)
    }

    /// Kills all of it at once, as the end of its machine would; durable data stays.
    ///
    /// # Errors
    /// Errors of the operating system.
    pub fn kill(&mut self) -> Result<()> {
        let server = self.running.0.id();
        // Processes that serve a connection would notice late that the server is gone.
        let children = fs::read_to_string(format!("/proc/{server}/task/{server}/children"))?;
        self.running.0.kill()?;
        self.running.0.wait()?;
        let children: Vec<&str> = children.split_whitespace().collect();
        // Some may have ended by themselves.
        let killed = Command::new("kill").arg("-KILL").args(&children).output();
        killed.context("run kill")?;
        for child in children {
            let is_gone = |_| {
                thread::sleep(LOOK_EVERY);
                fs::read(format!("/proc/{child}/cmdline")).map_or(true, |line| line.is_empty())
            };
            ensure!((0..LOOKS_MAX).any(is_gone), "{child} does not end");
        }
        Ok(())
    }

    /// Starts it again after a kill.
    ///
    /// # Errors
    /// Fails if it does not start.
    pub fn restart(&mut self) -> Result<()> {
        // Remains of a connection may exist for another moment, and a new server does not start
        // beside them.
        for _ in 0..LOOKS_MAX {
            self.running = run(&self.programs, &self.folder, self.port, false)?;
            if self.gets_ready()? {
                return Ok(());
            }
            thread::sleep(LOOK_EVERY);
        }
        bail!("it does not start again\n{}", self.log())
    }

    /// Creates an empty database and returns its name.
    ///
    /// # Errors
    /// Fails if the server does not create it.
    pub fn new_database(&self) -> Result<String> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("journal{}", NEXT.fetch_add(1, Relaxed));
        self.said("createdb", &[&name])?;
        Ok(name)
    }

    /// Returns the address of a database, by the socket.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        let (user, folder, port) = (Self::USER, self.folder.display(), self.port);
        format!("postgres://{user}@/{database}?host={folder}&port={port}")
    }

    /// Returns the URL of a database by the port, which requires a password.
    #[must_use]
    pub fn loopback_url(&self, database: &str) -> String {
        format!(
            "postgres://{}@127.0.0.1:{}/{database}",
            Self::USER,
            self.port
        )
    }

    /// Returns the authority that signed its certificate, which is one of 127.0.0.1 and localhost.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.folder.join(certificates::AUTHORITY)
    }

    /// Returns the port on the loopback.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Runs SQL in a database and returns the answer, one line a row.
    ///
    /// # Errors
    /// Fails if the server rejects it; the message has its answer.
    pub fn ask(&self, database: &str, sql: &str) -> Result<String> {
        self.said(
            "psql",
            &["-qAtX", "-v", "ON_ERROR_STOP=1", "-d", database, "-c", sql],
        )
    }

    /// Returns the output of one of PostgreSQL's programs.
    ///
    /// # Errors
    /// Fails if the program fails; the message has its output.
    pub fn said(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let output = Command::new(self.programs.join(program))
            .env("PGHOST", &self.folder)
            .env("PGPORT", self.port.to_string())
            .env("PGUSER", Self::USER)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("run {program}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{program}: {}", said.trim());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Waits until it accepts connections; false if it ended before.
    fn gets_ready(&mut self) -> Result<bool> {
        for _ in 0..LOOKS_MAX {
            if self.said("pg_isready", &["-q"]).is_ok() {
                return Ok(true);
            }
            if self.running.0.try_wait()?.is_some() {
                return Ok(false);
            }
            thread::sleep(LOOK_EVERY);
        }
        bail!("PostgreSQL does not get ready\n{}", self.log())
    }

    /// Returns its log.
    fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

/// Creates a folder owned by the server.
fn new_folder() -> Result<TempDir> {
    let folder = tempfile::Builder::new()
        .prefix("posthaste-postgres-")
        .tempdir()
        .context("make a folder for PostgreSQL")?;
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    give_to_server(folder.path())?;
    Ok(folder)
}

/// Makes the server's user the owner.
fn give_to_server(path: &Path) -> Result<()> {
    if is_root()? {
        chown(path, Some(SERVER_USER), Some(SERVER_USER))?;
    }
    Ok(())
}

/// Starts the server. Without an owner, it ends with this process, which holds its standard input.
fn run(programs: &Path, folder: &Path, port: u16, is_kept: bool) -> Result<Running> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(folder.join("log"))?;
    let mut server = as_server_user(&programs.join("postgres"))?;
    server.arg("-D").arg(folder.join("data"));
    server.arg("-k").arg(folder);
    server.args(["-h", "127.0.0.1", "-p", &port.to_string()]);
    server.args(["-c", "ssl=on"]);
    for (setting, name) in [
        ("ssl_cert_file", certificates::CERTIFICATE),
        ("ssl_key_file", certificates::KEY),
    ] {
        let path = folder.join(name);
        server
            .arg("-c")
            .arg(format!("{setting}={}", path.display()));
    }
    // A killed process loses nothing by this, only a machine without power does.
    server.args(["-c", "fsync=off", "-c", "shared_buffers=16MB"]);
    let mut command = if is_kept {
        let mut keeper = Command::new("sh");
        keeper.args(["-c", KEEP, "sh"]).arg(folder);
        keeper.arg(server.get_program()).args(server.get_args());
        keeper.stdin(Stdio::piped());
        keeper
    } else {
        server.stdin(Stdio::null());
        server
    };
    let child = command
        .current_dir(folder)
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .context("start PostgreSQL")?;
    Ok(Running(child))
}

/// Returns a program to run as the server's user.
fn as_server_user(program: &Path) -> Result<Command> {
    if !is_root()? {
        return Ok(Command::new(program));
    }
    let user = SERVER_USER.to_string();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &user, "--regid", &user, "--clear-groups"])
        .arg(program);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_committed_is_there_after_it_was_killed() -> Result<()> {
        let mut server = PostgresServer::start()?;
        let name = server.new_database()?;
        server.ask(&name, "CREATE TABLE kept (number BIGINT)")?;
        server.ask(&name, "INSERT INTO kept VALUES (7)")?;
        assert!(server.ask(&name, "SELECT * FROM absent").is_err());
        server.kill()?;
        assert!(server.ask(&name, "SELECT * FROM kept").is_err());
        server.restart()?;
        assert_eq!(server.ask(&name, "SELECT * FROM kept")?, "7\n");
        Ok(())
    }
}
