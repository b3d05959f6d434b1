//! Slurm of a centre by its configuration, which install writes and doctor reads.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use clap::Args;
use posthaste_endpoint::Error;

use crate::failure::Failure;

/// Lines of all files of a configuration together, at most; tens of thousands of nodes have fewer.
const LINES_MAX: usize = 1_000_000;
/// Files that include one another, at most.
const INCLUDES_MAX: usize = 64;

/// Which Slurm.
#[derive(Debug, Args)]
pub struct SiteArguments {
    /// The configuration of the Slurm that this is about
    #[arg(
        long,
        value_name = "FILE",
        env = "SLURM_CONF",
        default_value = "/etc/slurm/slurm.conf"
    )]
    pub slurm_conf: PathBuf,
}

/// Slurm, by its `slurm.conf`.
#[derive(Debug)]
pub struct Site {
    pub conf: PathBuf,
    settings: Vec<(String, String)>,
}

impl Site {
    /// Reads the configuration.
    ///
    /// # Errors
    /// Returns the operating system's errors.
    pub fn read(conf: &Path) -> Result<Self, Failure> {
        let mut site = Self {
            conf: conf.to_owned(),
            settings: Vec::new(),
        };
        let mut files = vec![conf.to_owned()];
        let mut count = 0;
        while let Some(file) = files.pop() {
            count += 1;
            let shown = file.display().to_string();
            if count > INCLUDES_MAX {
                return Err(Failure::usage(format!(
                    "can't read {shown}: more than {INCLUDES_MAX} files include one another"
                )));
            }
            let text =
                fs::read_to_string(&file).map_err(|cause| Error::io("read", shown, cause))?;
            for line in text.lines().take(LINES_MAX) {
                if let Some(included) = included(line) {
                    files.push(site.beside(included));
                } else {
                    site.settings.extend(setting(line));
                }
            }
        }
        Ok(site)
    }

    /// Returns the path of a file beside the configuration.
    pub fn beside(&self, name: &str) -> PathBuf {
        self.conf.parent().unwrap_or(Path::new("/")).join(name)
    }

    /// Returns the value of a key in the configuration.
    pub fn setting(&self, key: &str) -> Option<&str> {
        let found = self
            .settings
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(key));
        found.map(|(_, value)| value.as_str())
    }

    /// Returns the user as whom `slurmctld` runs.
    pub fn user(&self) -> &str {
        self.setting("SlurmUser").unwrap_or("root")
    }

    /// Returns the number of that user; `None` if the name is unknown.
    pub fn user_id(&self) -> Option<u32> {
        let said = run(Command::new("id").args(["-u", self.user()])).ok()?;
        said.trim().parse().ok()
    }

    /// Returns the output of a Slurm command.
    ///
    /// # Errors
    /// Returns its message if it fails.
    pub fn ask(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        run(Command::new(program)
            .args(arguments)
            .env("SLURM_CONF", &self.conf))
    }
}

/// Runs a program and returns its output.
///
/// # Errors
/// Returns its message in one line.
pub fn run(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output();
    let output: Output = output.map_err(|cause| format!("can't run {program}: {cause}"))?;
    let text = |bytes: &[u8]| last_lines(&String::from_utf8_lossy(bytes));
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    // Some programs report errors on standard output.
    let said = [text(&output.stderr), text(&output.stdout)];
    let said = said.into_iter().find(|said| !said.is_empty());
    Err(format!("{program}: {}", said.unwrap_or_default()))
}

/// Joins the last lines of a text: if a name can't be resolved, Slurm reports ten attempts before
/// it says so.
fn last_lines(text: &str) -> String {
    const MOST: usize = 3;
    let lines: Vec<&str> = text.trim().lines().collect();
    lines[lines.len().saturating_sub(MOST)..].join("; ")
}

/// Returns the file that a line `Include FILE` names.
fn included(line: &str) -> Option<&str> {
    let (word, file) = line.trim().split_once(char::is_whitespace)?;
    word.eq_ignore_ascii_case("include").then(|| file.trim())
}

/// Returns a line's first key with its value. Lines of nodes and partitions have more, which are
/// not needed here.
fn setting(line: &str) -> Option<(String, String)> {
    let line = line.split('#').next().unwrap_or(line);
    let (key, value) = line.split_once('=')?;
    let value = value.split_whitespace().next().unwrap_or("");
    Some((key.trim().to_owned(), value.trim_matches('"').to_owned()))
}

/// Returns a setting of `burst_buffer.conf`.
pub fn setting_in(text: &str, key: &str) -> Option<String> {
    let mut settings = text.lines().filter_map(setting);
    let found = settings.find(|(name, _)| name.eq_ignore_ascii_case(key));
    found.map(|(_, value)| value)
}

/// Returns whether a comma-separated value contains the word.
pub fn has_word(value: &str, word: &str) -> bool {
    value.split(',').any(|found| found.trim() == word)
}

/// Returns the permissions of a file.
///
/// # Errors
/// Returns the operating system's errors.
pub fn mode_of(path: &Path) -> std::io::Result<u32> {
    Ok(fs::metadata(path)?.permissions().mode() & 0o7777)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_lines_the_last_are_told() {
        assert_eq!(last_lines("a\nb\n"), "a; b");
        assert_eq!(last_lines("1\n2\n3\n4\n5"), "3; 4; 5");
        assert_eq!(last_lines(""), "");
    }

    #[test]
    fn a_configuration_is_read_with_what_it_includes() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("slurm.conf");
        let text =
            "# BurstBufferType=none\nslurmuser=slurm # who\nInclude more.conf\nNodeName=a CPUs=4\n";
        fs::write(&conf, text).unwrap();
        fs::write(
            folder.path().join("more.conf"),
            "BurstBufferType=burst_buffer/lua\n",
        )
        .unwrap();
        let site = Site::read(&conf).unwrap();
        assert_eq!(site.user(), "slurm");
        assert_eq!(site.setting("BurstBufferType"), Some("burst_buffer/lua"));
        assert_eq!(site.setting("JobSubmitPlugins"), None);
        assert_eq!(site.beside("x"), folder.path().join("x"));
        fs::write(folder.path().join("more.conf"), "Include slurm.conf\n").unwrap();
        assert!(Site::read(&conf).is_err(), "it includes itself");
    }

    #[test]
    fn a_list_has_its_words() {
        assert!(has_word("all_partitions, lua", "lua"));
        assert!(!has_word("lualike", "lua"));
    }
}
