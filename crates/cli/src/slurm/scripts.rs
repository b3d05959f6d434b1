//! Scripts that Slurm runs, as they are installed.

use std::path::Path;

/// Script of the burst buffer.
const BURST_BUFFER: &str = include_str!("../../../../plugins/slurm/burst_buffer.lua");
/// Plug-in that sees jobs at their submission.
const JOB_SUBMIT: &str = include_str!("../../../../plugins/slurm/job_submit.lua");

/// Script that Slurm runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    BurstBuffer,
    JobSubmit,
}

impl Script {
    /// Returns the file name that Slurm expects beside its configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::BurstBuffer => "burst_buffer.lua",
            Self::JobSubmit => "job_submit.lua",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::BurstBuffer => BURST_BUFFER,
            Self::JobSubmit => JOB_SUBMIT,
        }
    }

    /// Returns the script with the paths of the program and the configuration.
    pub fn filled_in(self, program: &Path, config: &Path) -> String {
        let mut lines = Vec::new();
        for line in self.text().lines() {
            lines.push(match line.split_once(" = ") {
                Some(("local PROGRAM", _)) => format!("local PROGRAM = {}", quoted(program)),
                Some(("local CONFIG", _)) => format!("local CONFIG = {}", quoted(config)),
                _ => line.to_owned(),
            });
        }
        lines.join("\n") + "\n"
    }

    /// Returns whether a text is a script of ours, of any release.
    pub fn is_ours(self, text: &str) -> bool {
        let first = self.text().lines().next();
        let words = |line: &str| line.split(" for Slurm").next().map(str::to_owned);
        text.lines().next().and_then(words) == first.and_then(words)
    }
}

/// Returns the program and the configuration that an installed script names.
pub fn named_in(text: &str) -> Option<(String, String)> {
    let value = |name: &str| {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(&format!("local {name} = ")))?;
        let value = line.strip_prefix('"')?.strip_suffix('"')?;
        Some(value.replace("\\\"", "\"").replace("\\\\", "\\"))
    };
    Some((value("PROGRAM")?, value("CONFIG")?))
}

/// Quotes a path as a Lua string.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_script_names_its_program_and_its_configuration() {
        for script in [Script::BurstBuffer, Script::JobSubmit] {
            let text = script.filled_in(Path::new("/opt/a \"b\""), Path::new("/etc/c"));
            let named = named_in(&text).unwrap();
            assert_eq!(named, ("/opt/a \"b\"".to_owned(), "/etc/c".to_owned()));
            assert!(script.is_ours(&text));
            assert!(!script.is_ours("-- somebody else's\n"));
            let again = script.filled_in(
                Path::new("posthaste"),
                Path::new("/etc/posthaste/slurm.toml"),
            );
            assert_eq!(again, script.text(), "as it is in the repository");
        }
    }
}
