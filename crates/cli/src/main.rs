//! The `posthaste` executable: parses the command line and calls one file per command.

use std::{ffi::OsString, process::ExitCode};

use clap::{
    CommandFactory, FromArgMatches, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};
use posthaste_endpoint::posix::{keep_private, outlive_size_limit};

mod answer;
mod arenas;
mod backup;
mod check;
mod check_config;
mod client;
mod condor;
mod config;
mod copy;
mod credential;
mod database;
mod datasets;
mod demo;
mod depot;
mod endpoints;
mod failure;
mod gateway;
mod generate;
mod help;
mod history;
mod input;
mod keygen;
mod keys;
mod login;
mod logs;
mod ls;
mod migrate;
mod moment;
mod mover;
mod movers;
mod offload;
mod offload_many;
mod output;
mod parked;
mod paths;
mod pause;
mod pbs;
mod peer;
mod plan;
mod ports;
mod positional;
mod pull;
mod purge_report;
mod queue;
mod relay;
mod request;
mod reserve;
mod screen;
mod serve;
mod settings;
mod shutdown;
mod simulate;
mod slurm;
mod stage_in;
mod submit;
mod test_alarms;
mod through;
mod token;
mod traces;
mod watch;
mod whoami;
mod wishes;

use failure::{Failure, Outcome};

/// Moves data to and from an HPC centre by a deadline.
///
/// First steps: `posthaste demo` shows everything on this machine; `posthaste cp` copies files
/// without any server; `posthaste serve`, `relay`, `depot add` and `offload` bring a dataset off
/// scratch by a deadline, and `pull` brings it home; `stage-in` brings data to scratch in time.
#[derive(Parser)]
#[command(name = "posthaste", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(name = "cp")]
    Copy(copy::CopyArguments),
    #[command(name = "ls")]
    Show(ls::ShowArguments),
    Endpoints(endpoints::EndpointsArguments),
    Demo(demo::DemoArguments),
    Serve(serve::ServeArguments),
    Migrate(migrate::MigrateArguments),
    Backup(backup::BackupArguments),
    TestAlarms(test_alarms::TestArguments),
    Relay(relay::RelayArguments),
    Mover(mover::MoverArguments),
    Movers(movers::MoversArguments),
    Gateway(gateway::GatewayArguments),
    Through(through::ThroughArguments),
    #[command(hide = true)]
    Peer(peer::PeerArguments),
    Depot(depot::DepotArguments),
    Token(token::TokenArguments),
    Credential(credential::CredentialArguments),
    Login(login::LoginArguments),
    Logout(login::LogoutArguments),
    Whoami(whoami::WhoamiArguments),
    Paths(paths::PathsArguments),
    History(history::HistoryArguments),
    Queue(queue::QueueArguments),
    Reserve(reserve::ReserveArguments),
    Offload(offload::OffloadArguments),
    OffloadMany(offload_many::ManyArguments),
    StageIn(stage_in::StageInArguments),
    Plan(plan::PlanArguments),
    Check(check::CheckArguments),
    CheckConfig(check_config::CheckConfigArguments),
    PurgeReport(purge_report::ReportArguments),
    List(request::ListArguments),
    Datasets(datasets::DatasetsArguments),
    Status(request::StatusArguments),
    Watch(watch::WatchArguments),
    Explain(request::ExplainArguments),
    Cancel(request::CancelArguments),
    Forget(request::ForgetArguments),
    Deadline(request::DeadlineArguments),
    Modify(request::ModifyArguments),
    Pause(pause::PauseArguments),
    Resume(pause::ResumeArguments),
    Pull(pull::PullArguments),
    Parked(parked::ParkedArguments),
    Keygen(keygen::KeygenArguments),
    Slurm(slurm::SlurmArguments),
    Pbs(pbs::PbsArguments),
    Condor(condor::CondorArguments),
    Submit(submit::SubmitArguments),
    Simulate(simulate::SimulateArguments),
    Generate(generate::GenerateArguments),
}

impl Command {
    /// Returns the log options of the command, and the destination of its traces with its name
    /// there.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the others are over soon, and say little"
    )]
    fn seen(&self) -> Seen {
        match self {
            Self::Serve(arguments) => {
                let traces = (arguments.traces.clone(), "posthaste-service");
                (arguments.logs.clone(), Some(traces))
            }
            Self::Relay(arguments) => {
                let traces = (arguments.traces.clone(), "posthaste-relay");
                (arguments.logs.clone(), Some(traces))
            }
            Self::Mover(arguments) => {
                let traces = (arguments.traces.clone(), "posthaste-mover");
                (arguments.logs.clone(), Some(traces))
            }
            Self::Gateway(arguments) => (arguments.logs.clone(), None),
            _ => (logs::LogArguments::default(), None),
        }
    }
}

/// Log options, and the destination of traces with the program's name there.
type Seen = (
    logs::LogArguments,
    Option<(traces::TraceArguments, &'static str)>,
);

fn main() -> ExitCode {
    outlive_size_limit();
    let outcome = settings::expanded(Cli::command, config::typed()).and_then(run);
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            // With JSON the caller gets a document even for a failure.
            if config::wants_json() && !output::has_told_json() {
                output::json(&failure.line());
            }
            output::complain(&failure);
            failure.exit_code()
        }
    }
}

fn run(words: Vec<OsString>) -> Outcome {
    if help::wants_all(&words) {
        output::line(&Cli::command().render_long_help().to_string());
        return Ok(ExitCode::SUCCESS);
    }
    let read = help::grouped(Cli::command()).try_get_matches_from(&words);
    let command = match read.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(line) => line.command,
        Err(error) => return misread(&words, &error),
    };
    let (logs, traced) = command.seen();
    let traces = traced.map(|(traces, name)| traces.begin(name));
    let traces = traces.transpose()?.flatten();
    logs.begin(traces.as_ref())?;
    let outcome = execute(command);
    // Spans that wait are sent now.
    drop(traces);
    outcome
}

/// Reports the refusal of a command line in one line; shows help if it was asked for.
fn misread(words: &[OsString], error: &clap::Error) -> Outcome {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        error.exit();
    }
    let mut named = Cli::command();
    let mut name = "posthaste".to_owned();
    for word in words.iter().skip(1) {
        let Some(found) = named.find_subcommand(word) else {
            break;
        };
        (name, named) = (format!("{name} {}", found.get_name()), found.clone());
    }
    let (what, mut tips) = failure::said_by_parser(error);
    if let (Some(ContextValue::String(option)), "posthaste cp") =
        (error.get(ContextKind::InvalidArg), &*name)
        && let Some(instead) = copy::instead_of(option)
    {
        tips = vec![instead.to_owned()];
    }
    let help = format!("`{name} --help` shows what there is");
    let tips = tips
        .into_iter()
        .chain([help])
        .collect::<Vec<_>>()
        .join("; ");
    Err(Failure::usage(format!(
        "can't understand `{name}`: {what} ({tips})"
    )))
}

fn execute(command: Command) -> Outcome {
    if matches!(
        command,
        Command::Serve(_) | Command::Relay(_) | Command::Mover(_) | Command::Gateway(_)
    ) {
        keep_private();
    }
    match command {
        Command::Copy(arguments) => copy::run(arguments),
        Command::Show(arguments) => ls::run(arguments),
        Command::Endpoints(arguments) => wait_for(endpoints::run(arguments)),
        Command::Demo(arguments) => wait_for(demo::run(arguments)),
        Command::Serve(arguments) => {
            arenas::share();
            wait_for(serve::run(arguments))
        }
        Command::Migrate(arguments) => migrate::run(&arguments),
        Command::Backup(arguments) => backup::run(&arguments),
        Command::TestAlarms(arguments) => wait_for(test_alarms::run(arguments)),
        Command::Relay(arguments) => wait_for(relay::run(arguments)),
        Command::Mover(arguments) => wait_for(mover::run(arguments)),
        Command::Movers(arguments) => wait_for(movers::run(arguments)),
        Command::Gateway(arguments) => wait_for(gateway::run(arguments)),
        Command::Through(arguments) => wait_for(through::run(arguments)),
        Command::Peer(arguments) => peer::run(arguments),
        Command::Depot(arguments) => wait_for(depot::run(arguments)),
        Command::Credential(arguments) => wait_for(credential::run(arguments)),
        Command::Token(arguments) => wait_for(token::run(arguments)),
        Command::Login(arguments) => wait_for(login::run(arguments)),
        Command::Logout(arguments) => wait_for(login::end(arguments)),
        Command::Whoami(arguments) => wait_for(whoami::run(arguments)),
        Command::History(arguments) => wait_for(history::run(arguments)),
        Command::Paths(arguments) => wait_for(paths::run(arguments)),
        Command::Queue(arguments) => wait_for(queue::run(arguments)),
        Command::Reserve(arguments) => wait_for(reserve::run(arguments)),
        Command::Offload(arguments) => wait_for(offload::run(arguments)),
        Command::OffloadMany(arguments) => wait_for(offload_many::run(arguments)),
        Command::StageIn(arguments) => wait_for(stage_in::run(arguments)),
        Command::Plan(arguments) => wait_for(plan::run(arguments)),
        Command::Check(arguments) => wait_for(check::run(arguments)),
        Command::CheckConfig(arguments) => check_config::run(&arguments, &Cli::command()),
        Command::PurgeReport(arguments) => purge_report::run(&arguments),
        Command::Datasets(arguments) => wait_for(datasets::run(arguments)),
        Command::List(arguments) => wait_for(request::list(arguments)),
        Command::Status(arguments) => wait_for(request::status(arguments)),
        Command::Watch(arguments) => wait_for(watch::run(arguments)),
        Command::Explain(arguments) => wait_for(request::explain(arguments)),
        Command::Cancel(arguments) => wait_for(request::cancel(arguments)),
        Command::Forget(arguments) => wait_for(request::forget(arguments)),
        Command::Deadline(arguments) => wait_for(request::move_deadline(arguments)),
        Command::Modify(arguments) => wait_for(request::modify(arguments)),
        Command::Pause(arguments) => wait_for(pause::pause(arguments)),
        Command::Resume(arguments) => wait_for(pause::resume(arguments)),
        Command::Parked(arguments) => wait_for(parked::run(arguments)),
        Command::Pull(arguments) => wait_for(pull::run(arguments)),
        Command::Keygen(arguments) => keygen::run(&arguments),
        Command::Slurm(arguments) => wait_for(slurm::run(arguments)),
        Command::Pbs(arguments) => pbs::run(arguments),
        Command::Condor(arguments) => wait_for(condor::run(arguments)),
        Command::Submit(arguments) => wait_for(submit::run(arguments)),
        Command::Simulate(arguments) => simulate::run(&arguments),
        Command::Generate(arguments) => generate::run(&arguments, Cli::command()),
    }
}

/// Runs a command that waits for the network.
fn wait_for(command: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|cause| {
        Failure::new(
            failure::Exit::Other,
            format!("can't start the runtime: {cause}"),
        )
    })?;
    runtime.block_on(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }
}
