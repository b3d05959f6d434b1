//! `posthaste pbs copy`: replaces `scp` or `cp` for PBS, with their arguments.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, FileTimes},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use clap::{Args, Parser, ValueEnum};
use posthaste_endpoint::{Access, Error, Location};

use crate::{
    copy::{self, CopyArguments},
    failure::{Exit, Failure, Outcome},
};

/// Options of `scp` and `cp` that match what this command does anyway: no questions, trees, times
/// and modes kept, more or less output.
const KNOWN_OPTIONS: &[u8] = b"Brvpq";

/// Copies as PBS's staging asks; not for people
///
/// plugins/pbs/posthaste-scp and posthaste-cp run it with what pbs_mom gave them. What posthaste can't take (patterns that the
/// other host expands, devices, unknown options) is left to the program that they stand for.
///
/// Examples:
///   posthaste pbs copy --instead-of scp --program /usr/bin/scp -- -Brvp alice@archive:run7 /scratch/run7
///   posthaste pbs copy --instead-of cp --program /bin/cp -- -rp /home/alice/in /scratch/in
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, hide = true)]
pub struct StagingArguments {
    /// Whose words they are: with cp all names are paths on this host
    #[arg(long, value_enum)]
    instead_of: Known,
    /// The program itself
    #[arg(long, value_name = "PATH")]
    program: PathBuf,
    /// Arguments that pbs_mom gave
    #[arg(last = true)]
    words: Vec<OsString>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Known {
    Scp,
    Cp,
}

/// A line of `posthaste cp`.
#[derive(Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(flatten)]
    copy: CopyArguments,
}

/// Runs the command.
///
/// # Errors
/// Returns the errors of the copy, and fails if the program that it stands for can't be started.
pub fn run(arguments: StagingArguments) -> Outcome {
    let planned = plan(&arguments, &Access::new(None, Vec::new()));
    let copied = planned.and_then(|line| {
        let to = line.last().cloned().unwrap_or_default();
        let parsed = Line::try_parse_from(line).map_err(|error| error.to_string())?;
        match copy::run(parsed.copy) {
            Err(failure) if failure.is_usage() => Err(failure.to_string()),
            ended => Ok((ended, to)),
        }
    });
    match copied {
        Ok((ended, to)) => {
            let ended = ended?;
            if ended == ExitCode::SUCCESS {
                show_change(Path::new(&to))?;
            }
            Ok(ended)
        }
        Err(why) => Err(hand_over(&arguments, &why)),
    }
}

/// Returns the arguments for `posthaste cp`.
///
/// # Errors
/// Gives the reason for which posthaste can't do it.
fn plan(arguments: &StagingArguments, access: &Access) -> Result<Vec<OsString>, String> {
    let [options, source, destination] = &*arguments.words else {
        return Err("it is not called with options and two names".into());
    };
    let letters = options.as_bytes().strip_prefix(b"-").unwrap_or_default();
    if letters.is_empty() || !letters.iter().all(|letter| KNOWN_OPTIONS.contains(letter)) {
        return Err(format!("unknown options {}", options.to_string_lossy()));
    }
    let (source, destination) = match arguments.instead_of {
        Known::Cp => (local(source), local(destination)),
        Known::Scp => (named(source, access)?, named(destination, access)?),
    };
    if is_local(&source) {
        let about = fs::metadata(&source);
        if about.is_ok_and(|about| !about.is_file() && !about.is_dir()) {
            return Err("it is neither a file nor a directory".into());
        }
    }
    let links = match arguments.instead_of {
        // `scp` and `cp` do so themselves with -r.
        Known::Cp => "keep",
        Known::Scp => "follow",
    };
    let mut line: Vec<OsString> = ["--quiet", "--links", links, "--"]
        .map(OsString::from)
        .into();
    line.extend([source, destination]);
    Ok(line)
}

/// Marks a path as local, whatever colons it has.
fn local(path: &OsStr) -> OsString {
    match path.as_bytes().first() {
        Some(b'/' | b'.') => path.to_owned(),
        _ => [OsStr::new("./"), path].into_iter().collect(),
    }
}

fn is_local(address: &OsStr) -> bool {
    matches!(address.as_bytes().first(), Some(b'/' | b'.'))
}

/// Translates a name of `scp`: a path on this host, `user@host:path`, or, if a profile has the
/// host's name, a place below that profile's address.
///
/// # Errors
/// Gives the reason for which only `scp` can copy it.
fn named(name: &OsStr, access: &Access) -> Result<OsString, String> {
    let bytes = name.as_bytes();
    let colon = bytes.iter().position(|byte| *byte == b':');
    let slash = bytes.iter().position(|byte| *byte == b'/');
    let Some(colon) = colon.filter(|colon| slash.is_none_or(|slash| *colon < slash)) else {
        return Ok(local(name));
    };
    let (owner_host, path) = (&bytes[..colon], unescaped(&bytes[colon + 1..]));
    let host = owner_host.rsplit(|byte| *byte == b'@').next();
    let place = OsString::from_vec([host.unwrap_or_default(), b":", &path].concat());
    let written = Location::parse(&place).map_err(|error| error.to_string())?;
    let stands_for = access.resolve(written.clone());
    if stands_for.map_err(|error| error.to_string())? != written {
        return Ok(place);
    }
    if path.iter().any(|byte| b"*?[".contains(byte)) {
        return Err("the other host expands patterns".into());
    }
    Ok(OsString::from_vec([owner_host, b":", &path].concat()))
}

/// Removes the backslashes that keep the other host's shell from splitting a path.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut bytes = path.iter();
    let mut plain = Vec::with_capacity(path.len());
    while let Some(byte) = bytes.next() {
        plain.extend(match byte {
            b'\\' => bytes.next(),
            byte => Some(byte),
        });
    }
    plain
}

/// Sets the destination's change time to now, and nothing else. PBS considers a copy failed if the
/// destination did not change, as when all of it was there already.
fn show_change(path: &Path) -> Result<(), Failure> {
    if !is_local(path.as_os_str()) {
        return Ok(());
    }
    let failed = |cause| Error::io("mark", path.display().to_string(), cause);
    let about = fs::metadata(path).map_err(failed)?;
    let times = about.modified().and_then(|modified| {
        let accessed = about.accessed()?;
        Ok(FileTimes::new()
            .set_modified(modified)
            .set_accessed(accessed))
    });
    let file = File::open(path).map_err(failed)?;
    file.set_times(times.map_err(failed)?).map_err(failed)?;
    Ok(())
}

/// Replaces this process by the program itself; returns only if it can't be started.
fn hand_over(arguments: &StagingArguments, why: &str) -> Failure {
    let program = arguments.program.display();
    crate::output::note!("posthaste: {why}; {program} does it");
    let cause = Command::new(&arguments.program)
        .args(&arguments.words)
        .exec();
    Failure::new(Exit::Other, format!("can't start {program}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(
        instead_of: Known,
        words: &[&str],
        profiles: Option<&str>,
    ) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("profiles.toml");
        fs::write(&file, profiles.unwrap_or_default()).unwrap();
        fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let arguments = StagingArguments {
            instead_of,
            program: "/bin/false".into(),
            words: words.iter().map(OsString::from).collect(),
        };
        let line = plan(
            &arguments,
            &Access::new(None, Vec::new()).with_profiles(file),
        )?;
        let line: Vec<_> = line.iter().map(|word| word.to_str().unwrap()).collect();
        Ok(line.join("|"))
    }

    #[test]
    fn the_words_of_pbs_become_a_line_of_cp() {
        let archive = Some("[archive]\nurl = \"s3://bucket\"\n");
        for (instead_of, words, wanted) in [
            (
                Known::Scp,
                ["-Brvp", "alice@dtn:/data/in\\ put", "/scratch/in"],
                "--quiet|--links|follow|--|alice@dtn:/data/in put|/scratch/in",
            ),
            (
                Known::Scp,
                ["-rp", "alice@archive:run/7", "in"],
                "--quiet|--links|follow|--|archive:run/7|./in",
            ),
            (
                Known::Cp,
                ["-rp", "a:b", "/scratch/c"],
                "--quiet|--links|keep|--|./a:b|/scratch/c",
            ),
        ] {
            assert_eq!(planned(instead_of, &words, archive).unwrap(), wanted);
        }
    }

    #[test]
    fn what_is_nothing_for_posthaste_is_left_alone() {
        for (words, why) in [
            (
                &["-Brvp", "alice@dtn:/data/*.nc", "/scratch"][..],
                "patterns",
            ),
            (&["-oPort=22", "alice@dtn:/a", "/b"], "unknown options"),
            (&["-Brvp", "/dev/zero", "alice@dtn:/b"], "neither a file"),
            (&["a", "/b"], "not called"),
            (&["alice@dtn:/a", "/b", "/c"], "unknown options"),
        ] {
            let said = planned(Known::Scp, words, None).unwrap_err();
            assert!(said.contains(why), "{words:?}: {said}");
        }
    }

    #[test]
    fn a_destination_that_was_whole_already_looks_changed() {
        use std::os::unix::fs::MetadataExt;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "1").unwrap();
        let before = fs::metadata(&path).unwrap();
        show_change(&path).unwrap();
        let after = fs::metadata(&path).unwrap();
        assert_eq!(after.modified().unwrap(), before.modified().unwrap());
        let changed = |about: &fs::Metadata| (about.ctime(), about.ctime_nsec());
        assert!(changed(&after) > changed(&before));
    }
}
