//! `posthaste-lab`: builds laboratories and runs commands in them.

use std::{
    ffi::OsString,
    io::{self, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::PathBuf,
    process::{Child, ExitCode, ExitStatus},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use posthaste_lab::{
    Lab, Status, Topology, control,
    control::{LinkStatus, PipeStatus},
    register::{self, Keeper, Record},
};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM},
    iterator::Signals,
};

/// Exit code for the laboratory's own failures, like that of `docker run` and `env`.
const FAILED: u8 = 125;

/// Exit codes for a command that can't be run, and for a missing one, like those of shells.
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Interval between two checks whether the emulator runs, or whether a laboratory has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Checks until a laboratory counts as stuck: more than two minutes, of which one is for the
/// processes in it.
const LOOKS_MAX: u32 = 2_500;

/// Real distance on one machine: hosts in network namespaces, joined by emulated links.
///
/// A topology in TOML says which hosts and links there are; `lab/topologies` has some to start from.
/// Needs root, /dev/net/tun and the ip command.
#[derive(Parser)]
#[command(name = "posthaste-lab", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build a laboratory and keep it until a signal comes.
    Up {
        /// Thing to build.
        topology: PathBuf,
        /// Call it so instead of as the topology says.
        #[arg(long)]
        name: Option<String>,
    },
    /// Run a command on a host; its exit code is passed on.
    Exec {
        /// The laboratory, where several are up.
        #[arg(long)]
        lab: Option<String>,
        /// The host.
        host: String,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// Build a laboratory, run one command in it, remove it; the command's exit code is passed on.
    Run {
        /// Thing to build.
        topology: PathBuf,
        /// The host the command runs on; the first if not given.
        #[arg(long)]
        on: Option<String>,
        /// Call it so instead of as the topology says.
        #[arg(long)]
        name: Option<String>,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<OsString>,
    },
    /// End a laboratory, and remove what killed ones left.
    Down {
        /// The laboratory, where several are up.
        #[arg(long)]
        lab: Option<String>,
        /// All that `up` and `run` keep.
        #[arg(long, conflicts_with = "lab")]
        all: bool,
    },
    /// Show what is up, and what its links have carried, lost and dropped.
    Status {
        /// Only this laboratory.
        #[arg(long)]
        lab: Option<String>,
        /// For programs.
        #[arg(long)]
        json: bool,
    },
    /// Change a link (rate, delay, jitter, loss, queue, burst_every, burst_length, burst_loss,
    /// reorder, state, direction) or a host's access (up, down, up_queue, down_queue).
    Change {
        /// The laboratory, where several are up.
        #[arg(long)]
        lab: Option<String>,
        /// The link or host.
        target: String,
        /// Changes of it, such as rate=100Mbit/s delay=30ms loss=0.01%.
        #[arg(required = true)]
        words: Vec<String>,
    },
    /// Say whether a topology is sound, without building it.
    Check {
        /// The file.
        topology: PathBuf,
    },
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Up { topology, name } => up(&topology, name).map(|()| ExitCode::SUCCESS),
        Command::Exec { lab, host, command } => exec(lab.as_deref(), &host, &command),
        Command::Run {
            topology,
            on,
            name,
            command,
        } => run(&topology, on, name, &command),
        Command::Down { lab, all } => down(lab.as_deref(), all).map(|()| ExitCode::SUCCESS),
        Command::Status { lab, json } => status(lab.as_deref(), json).map(|()| ExitCode::SUCCESS),
        Command::Change { lab, target, words } => {
            change(lab.as_deref(), &target, &words).map(|()| ExitCode::SUCCESS)
        }
        Command::Check { topology } => Topology::read(&topology).map(|_| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(|error| {
        eprintln!("posthaste-lab: {error:#}");
        ExitCode::from(FAILED)
    })
}

fn up(path: &std::path::Path, name: Option<String>) -> Result<()> {
    let topology = Topology::read(path)?;
    let mut signals = signals()?;
    let name = name.unwrap_or_else(|| topology.name().to_owned());
    let lab = Lab::up_as(&topology, &name, Keeper::Up)?;
    say(&greeting(&lab, &topology))?;
    while signals.pending().next().is_none() {
        if !lab.is_running() {
            bail!("the emulator of {name} has failed");
        }
        thread::sleep(LOOK_EVERY);
    }
    let status = lab.status()?;
    drop(lab);
    say(&farewell(&status))
}

/// Returns hints for its use.
fn greeting(lab: &Lab, topology: &Topology) -> String {
    let name = lab.name();
    let hosts = lab.record().hosts.iter();
    let hosts: Vec<String> = hosts
        .map(|host| format!("{} {}", host.name, host.address))
        .collect();
    let mut text = format!("{name} is up: {}\n", hosts.join(", "));
    if let [first, .., last] = topology.hosts() {
        text += &format!(
            "  posthaste-lab exec --lab {name} {} -- ping -c 3 {}\n",
            first.name, last.name
        );
    }
    if let Some(link) = topology.links().first() {
        text += &format!(
            "  posthaste-lab change --lab {name} {} loss=0.1%\n",
            link.name
        );
    }
    text + &format!("  posthaste-lab down --lab {name}    (or ^C here)\n")
}

/// Returns its resource use.
fn farewell(status: &Status) -> String {
    format!(
        "{} is down; in {:.1} s the emulator used {:.1} % of a core\n",
        status.name,
        status.uptime_s,
        100.0 * status.emulator_cpu_s / status.uptime_s
    )
}

fn exec(lab: Option<&str>, host: &str, words: &[OsString]) -> Result<ExitCode> {
    let mut command = command(&choose(lab)?, host, words)?;
    let error = command.exec();
    cannot_run(&error, words)
}

fn command(record: &Record, host: &str, words: &[OsString]) -> Result<std::process::Command> {
    let (program, arguments) = words.split_first().context("there is no command")?;
    let mut command = posthaste_lab::command(record, host, program)?;
    command.args(arguments);
    Ok(command)
}

/// Returns the exit code for a command that did not start.
fn cannot_run(error: &io::Error, words: &[OsString]) -> Result<ExitCode> {
    let program = words
        .first()
        .map(|word| word.to_string_lossy())
        .unwrap_or_default();
    eprintln!("posthaste-lab: can't run {program}: {error}");
    let code = if error.kind() == io::ErrorKind::NotFound {
        NOT_FOUND
    } else {
        NOT_EXECUTABLE
    };
    Ok(ExitCode::from(code))
}

fn run(
    path: &std::path::Path,
    host: Option<String>,
    name: Option<String>,
    words: &[OsString],
) -> Result<ExitCode> {
    let topology = Topology::read(path)?;
    let mut signals = signals()?;
    let name = name.unwrap_or_else(|| topology.name().to_owned());
    let lab = Lab::up_as(&topology, &name, Keeper::Run)?;
    let host = match host {
        Some(host) => host,
        None => topology
            .hosts()
            .first()
            .context("there is no host")?
            .name
            .clone(),
    };
    let mut child = match command(lab.record(), &host, words)?.spawn() {
        Ok(child) => child,
        Err(error) => return cannot_run(&error, words),
    };
    let handle = signals.handle();
    let pid = pid_of(&child);
    let ended = thread::scope(|scope| {
        scope.spawn(move || {
            for signal in signals.forever() {
                // The process may have ended since.
                let signal = Signal::from_named_raw(signal);
                if let (Some(pid), Some(signal)) = (pid, signal) {
                    let _ = kill_process(pid, signal);
                }
            }
        });
        let ended = child.wait();
        handle.close();
        ended
    });
    drop(lab);
    Ok(code_of(ended.context("can't wait for the command")?))
}

fn pid_of(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()).ok()?)
}

/// Returns the exit code as shells do: 128 and the number of the signal that ended the command.
fn code_of(status: ExitStatus) -> ExitCode {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    ExitCode::from(
        code.and_then(|code| u8::try_from(code).ok())
            .unwrap_or(FAILED),
    )
}

fn down(lab: Option<&str>, all: bool) -> Result<()> {
    for left in register::sweep()? {
        say(&format!("removed what was left of {left}\n"))?;
    }
    let records = match (lab, all) {
        (_, true) => ours(),
        (None, false) if ours().is_empty() => Vec::new(),
        (lab, false) => vec![choose(lab)?],
    };
    for record in records {
        if record.keeper == Keeper::Program {
            bail!(
                "{} belongs to a program, process {}: end that",
                record.name,
                record.pid
            );
        }
        let pid = i32::try_from(record.pid).ok().and_then(Pid::from_raw);
        let pid = pid.context("a process has a number")?;
        kill_process(pid, Signal::TERM).context("can't end the process that keeps it up")?;
        wait_until_down(&record)?;
        say(&format!("{} is down\n", record.name))?;
    }
    Ok(())
}

fn wait_until_down(record: &Record) -> Result<()> {
    for _ in 0..LOOKS_MAX {
        if !register::is_up(record) {
            return Ok(());
        }
        thread::sleep(LOOK_EVERY);
    }
    bail!("{} (process {}) does not end", record.name, record.pid)
}

/// Returns laboratories that people keep up, without those of programs.
fn ours() -> Vec<Record> {
    let mut all = register::running();
    all.retain(|record| record.keeper != Keeper::Program);
    all
}

/// Returns the laboratory of that name, or the only one.
fn choose(name: Option<&str>) -> Result<Record> {
    if let Some(name) = name {
        let mut all = register::running().into_iter();
        return all
            .find(|record| record.name == name)
            .with_context(|| format!("no laboratory called {name} is up"));
    }
    let mut all = ours();
    match (all.pop(), all.pop()) {
        (None, _) => bail!("no laboratory is up: start one with posthaste-lab up TOPOLOGY"),
        (Some(only), None) => Ok(only),
        (Some(last), Some(other)) => bail!(
            "several are up: say --lab {}, --lab {} or another",
            other.name,
            last.name
        ),
    }
}

fn status(lab: Option<&str>, json: bool) -> Result<()> {
    let records = match lab {
        Some(_) => vec![choose(lab)?],
        None => register::running(),
    };
    // A laboratory that ends meanwhile is not up.
    let all: Vec<Status> = records
        .iter()
        .filter_map(|record| control::status(record).ok())
        .collect();
    if json {
        return say(&format!("{}\n", serde_json::to_string_pretty(&all)?));
    }
    if all.is_empty() {
        return say("no laboratory is up\n");
    }
    all.iter().try_for_each(|status| say(&shown(status)))
}

fn shown(status: &Status) -> String {
    let mut text = format!(
        "{} is up for {:.0} s, kept by process {}; the emulator uses {:.1} % of a core\n",
        status.name,
        status.uptime_s,
        status.pid,
        100.0 * status.emulator_cpu_s / status.uptime_s
    );
    for host in &status.hosts {
        text += &format!(
            "  host {} {} up {} down {}\n",
            host.record.name, host.record.address, host.up, host.down
        );
    }
    for LinkStatus {
        name,
        ends,
        forth,
        back,
    } in &status.links
    {
        for (from, to, pipe) in [(&ends[0], &ends[1], forth), (&ends[1], &ends[0], back)] {
            text += &format!("  link {name} {from} to {to}: {}\n", shown_pipe(pipe));
        }
    }
    text
}

fn shown_pipe(pipe: &PipeStatus) -> String {
    let count = pipe.segments;
    let state = if pipe.is_up { "" } else { "DOWN, " };
    format!(
        "{state}{}, {} one way, loss {}; {} of {} segments arrived, {} lost, {} dropped by queues, \
         {} cut off",
        pipe.rate,
        pipe.delay,
        pipe.loss,
        count.delivered,
        count.entered,
        count.lost,
        count.dropped,
        count.cut_off
    )
}

fn change(lab: Option<&str>, target: &str, words: &[String]) -> Result<()> {
    control::change(&choose(lab)?, target, words)
}

fn signals() -> Result<Signals> {
    Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT]).context("can't listen for signals")
}

fn say(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}
