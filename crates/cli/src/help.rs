//! Text of `posthaste --help`: the commands that most people need, in groups. `posthaste help all`
//! shows the others too.

use std::{ffi::OsString, fmt::Write as _};

use clap::Command;

/// Headings of the groups, and their commands.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Copy", &["cp", "ls"]),
    ("Move by a deadline", &["offload", "stage-in", "pull"]),
    ("Look", &["status", "watch", "explain"]),
    ("Run a service", &["serve", "relay"]),
    ("Administer", &["depot", "token"]),
];

const ABOVE: &str = "\
Moves data to and from an HPC centre by a deadline.

Usage: posthaste COMMAND
";

const BELOW: &str = "\
`posthaste COMMAND --help` shows what a command takes, with examples; `posthaste help all` lists every command.
`posthaste demo` shows a stage-out on this machine: four relays, one of which is killed half way.

Options:
  -h, --help     Prints help
  -V, --version  Prints version
";

/// Adds this help to the command line.
pub fn grouped(command: Command) -> Command {
    let mut text = ABOVE.to_owned();
    for (heading, names) in GROUPS {
        let _ = write!(text, "\n{heading}:\n{}", listed(&command, names));
    }
    let _ = write!(text, "\n{BELOW}");
    command.override_help(text)
}

/// Lists some commands with their summaries, as clap does.
fn listed(command: &Command, names: &[&str]) -> String {
    let found = names
        .iter()
        .filter_map(|name| command.find_subcommand(name));
    let mut alone = Command::new("posthaste")
        .subcommands(found.cloned())
        .disable_help_subcommand(true)
        .help_template("{subcommands}");
    let text = alone.render_help().to_string();
    format!("{}\n", text.trim_end())
}

/// Returns whether the words ask for every command.
pub fn wants_all(words: &[OsString]) -> bool {
    words.len() == 3 && words[1] == "help" && words[2] == "all"
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Cli;

    #[test]
    fn groups_name_commands_that_there_are() {
        let command = Cli::command();
        for (heading, names) in GROUPS {
            let shown = listed(&command, names);
            for name in names {
                let line = format!("  {name} ");
                assert!(
                    shown.lines().any(|shown| shown.starts_with(&line)),
                    "{heading}: {shown}"
                );
            }
        }
    }
}
