//! Accounts of a Slurm: slurmdbd, and the MariaDB that stores them.

use std::{
    fmt::Write as _,
    fs::{self, File, Permissions},
    os::unix::{fs::PermissionsExt, net::UnixStream},
    path::Path,
    process::{Command, Stdio},
    thread,
};

use anyhow::{Context, Result, bail, ensure};

use super::Slurm;
use crate::{LOOK_EVERY, LOOKS_MAX, Running, free_port, wait_until_ended, wait_until_listening};

/// System tables of a MariaDB, in its own scripts.
const SYSTEM: [&str; 3] = [
    "mariadb_system_tables.sql",
    "mariadb_performance_tables.sql",
    "mariadb_system_tables_data.sql",
];
/// Folder of those scripts.
const SCRIPTS: &str = "/usr/share/mariadb";
/// Databases to create. slurmdbd creates its database itself, but with Debian's libmariadb 11.8.9 a
/// connection is useless after a failed first try, such as that for a missing database.
const DATABASES: &str = "create database mysql;\ncreate database slurm;\nuse mysql;\n";

/// Daemons, ended in this order.
#[derive(Debug)]
pub(super) struct Accounts {
    _slurmdbd: Running,
    _mariadb: Running,
}

impl Slurm {
    /// Keeps accounts of its jobs. To be called before the start, in Debian 13 only, which has what
    /// that needs.
    ///
    /// # Errors
    /// Fails if slurmdbd or MariaDB do not start, or are not installed.
    pub fn keep_accounts(&mut self) -> Result<()> {
        let folder = self.folder.path();
        let mariadb = start_mariadb(folder)?;
        let port = free_port()?;
        let tokens = super::rest::tokens(folder);
        let settings = format!(
            "AuthType=auth/none\n{tokens}DbdHost=localhost\nDbdAddr=127.0.0.1\nDbdPort={port}\nSlurmUser=root\n\
             StorageType=accounting_storage/mysql\nStorageHost=localhost\nStorageUser=root\nStorageLoc=slurm\n\
             PidFile={0}/slurmdbd.pid\nLogFile={0}/slurmdbd.log\n",
            folder.display()
        );
        let file = folder.join("slurmdbd.conf");
        fs::write(&file, settings)?;
        fs::set_permissions(&file, Permissions::from_mode(0o600))?;
        let mut slurmdbd = self.command("slurmdbd");
        slurmdbd.env("MYSQL_UNIX_PORT", folder.join("mariadb.sock"));
        let mut slurmdbd = Running(quietly(&mut slurmdbd, folder, "slurmdbd", &["-D"])?);
        wait_until_listening(&mut slurmdbd, port, "slurmdbd")?;
        let mut conf = fs::read_to_string(folder.join("slurm.conf"))?;
        conf = conf.replace("AccountingStorageType=accounting_storage/none\n", "");
        write!(
            conf,
            "AccountingStorageType=accounting_storage/slurmdbd\nAccountingStorageHost=127.0.0.1\nAccountingStoragePort={port}\n"
        )?;
        fs::write(folder.join("slurm.conf"), conf)?;
        self.accounts = Some(Accounts {
            _slurmdbd: slurmdbd,
            _mariadb: mariadb,
        });
        Ok(())
    }
}

/// Starts a MariaDB that is open to everybody on its socket.
fn start_mariadb(folder: &Path) -> Result<Running> {
    let data = folder.join("mariadb");
    fs::create_dir(&data)?;
    make_databases(folder, &data)?;

    let socket = folder.join("mariadb.sock");
    let place = format!("--socket={}", socket.display());
    let more = ["--skip-networking", "--skip-grant-tables", &place];
    let mut running = Running(quietly(&mut mariadb(&data), folder, "mariadb", &more)?);
    for _ in 0..LOOKS_MAX {
        if UnixStream::connect(&socket).is_ok() {
            return Ok(running);
        }
        if let Some(status) = running.0.try_wait()? {
            bail!("mariadbd ended at once: {status}");
        }
        thread::sleep(LOOK_EVERY);
    }
    bail!("mariadbd does not listen at {}", socket.display())
}

/// Makes a MariaDB create its system tables and the databases. Its input is a file, as it may stop
/// reading.
fn make_databases(folder: &Path, data: &Path) -> Result<()> {
    let mut words = DATABASES.as_bytes().to_vec();
    for script in SYSTEM {
        let path = Path::new(SCRIPTS).join(script);
        let text = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        words.extend(text);
    }
    let told = folder.join("mariadb.told");
    fs::write(&told, words)?;
    let output = File::create(folder.join("mariadb.made"))?;
    let mut made = mariadb(data);
    made.arg("--bootstrap").stdin(File::open(told)?);
    let made = made.stdout(output.try_clone()?).stderr(output);
    let mut made = Running(made.spawn().context("start mariadbd")?);
    let said = || fs::read_to_string(folder.join("mariadb.made")).unwrap_or_default();
    let ended = wait_until_ended(&mut made, "mariadbd --bootstrap").with_context(said)?;
    ensure!(
        ended.success(),
        "mariadbd made no database: {ended}: {}",
        said()
    );
    Ok(())
}

fn mariadb(data: &Path) -> Command {
    let mut command = Command::new("mariadbd");
    command
        .args(["--no-defaults", "--user=root", "--skip-log-bin"])
        .args(["--innodb-log-file-size=8M", "--innodb-buffer-pool-size=32M"])
        .arg(format!("--datadir={}", data.display()));
    command
}

/// Starts it with its output in a file of that name.
pub(super) fn quietly(
    command: &mut Command,
    folder: &Path,
    name: &str,
    arguments: &[&str],
) -> Result<std::process::Child> {
    let output = File::create(folder.join(format!("{name}.said")))?;
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("start {name}"))
}
