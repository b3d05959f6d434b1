//! Plays a stage: a script of what a page needs, and its commands as they are printed.
//!
//! | a line | |
//! |---|---|
//! | `$ COMMAND` | a command of a page, which ends with code 0; `6$ COMMAND` with code 6 |
//! | `& COMMAND` | one that stays, and says a line when it is ready |
//! | `> PATTERN` | a line like it was said by the last of them |
//! | `    …` | what goes on of the command above |
//! | any other | the shell's, as it is; `stage.sh` has what all stages share |

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use posthaste_testbed::install;

use super::printed::one_line;

/// Line of a stage.
enum Line<'a> {
    Run { code: &'a str, command: String },
    Start { command: String },
    See { pattern: &'a str },
    Shell { text: &'a str },
}

/// Returns the commands of pages that a stage runs.
pub fn commands(name: &str) -> Vec<String> {
    let text = read(name);
    let commands = lines(&text).into_iter().filter_map(|(_, line)| match line {
        Line::Run { command, .. } | Line::Start { command } => Some(one_line(&command)),
        Line::See { .. } | Line::Shell { .. } => None,
    });
    commands.collect()
}

/// Plays a stage, as root, isolated from the machine.
pub fn play(name: &str) {
    let root = tempfile::tempdir().unwrap();
    let script = tempfile::NamedTempFile::new().unwrap();
    fs::write(script.path(), script_of(name)).unwrap();
    let built = Path::new(env!("CARGO_BIN_EXE_posthaste")).parent().unwrap();
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let status = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare"])
        .args(["--mount", "--propagation", "private"])
        .args(["--pid", "--fork", "--kill-child", "--net", "sh"])
        .arg(folder().join("enter.sh"))
        .arg(root.path())
        .arg(checkout.canonicalize().unwrap())
        .arg(built)
        .arg(install::find_go_program(install::VERSITYGW).unwrap())
        .arg(script.path())
        .status()
        .unwrap();
    assert!(status.success(), "{name}.stage ends with {status}");
}

/// Translates a stage into a script of bash.
fn script_of(name: &str) -> String {
    let mut script = fs::read_to_string(folder().join("stage.sh")).unwrap();
    for (number, line) in lines(&read(name)) {
        script += &match line {
            Line::Run { code, command } => {
                format!("run {number} {code} <<'END OF COMMAND'\n{command}\nEND OF COMMAND\n")
            }
            Line::Start { command } => {
                format!("start {number} <<'END OF COMMAND'\n{command}\nEND OF COMMAND\n")
            }
            Line::See { pattern } => {
                format!("see {number} <<'END OF PATTERN'\n{pattern}\nEND OF PATTERN\n")
            }
            Line::Shell { text } => format!("{text}\n"),
        };
    }
    script
}

/// Returns the lines of a stage with their numbers.
fn lines(text: &str) -> Vec<(usize, Line<'_>)> {
    let mut lines: Vec<(usize, Line<'_>)> = Vec::new();
    for (index, text) in text.lines().enumerate() {
        let last = lines.last_mut().map(|(_, line)| line);
        if let (Some(more), Some(Line::Run { command, .. } | Line::Start { command })) =
            (text.strip_prefix("    "), last)
        {
            *command += "\n";
            *command += more;
            continue;
        }
        let line = match text.split_once(' ') {
            Some(("&", command)) => Line::Start {
                command: command.to_owned(),
            },
            Some((">", pattern)) => Line::See { pattern },
            Some((mark, command)) if mark.ends_with('$') => {
                let code = mark.trim_end_matches('$');
                let code = if code.is_empty() { "0" } else { code };
                Line::Run {
                    code,
                    command: command.to_owned(),
                }
            }
            _ => Line::Shell { text },
        };
        lines.push((index + 1, line));
    }
    lines
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(format!("{name}.stage"))).unwrap()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/all/pages")
}
