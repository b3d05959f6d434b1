//! `posthaste slurm install`: installs everything Slurm needs beside `slurm.conf`.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::{OpenOptionsExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use posthaste_endpoint::{Error, ErrorKind};

use super::{
    doctor,
    scripts::Script,
    site::{Site, SiteArguments, has_word, setting_in},
};
use crate::{
    config,
    failure::{Exit, Failure, Outcome},
    output,
};

/// Settings of `burst_buffer.conf`: the word of directives, the fate of a job whose data does not
/// come, and seconds.
const BURST_BUFFER_CONF: [(&str, &str); 4] = [
    ("Directive", "POSTHASTE"),
    ("Flags", "TeardownFailure"),
    ("StageInTimeout", "86400"),
    ("StageOutTimeout", "604800"),
];
/// Lines of a new file that are shown, at most.
const LINES_SHOWN_MAX: usize = 12;
/// Copies of one file that are kept, at most.
const BACKUPS_MAX: usize = 100;

/// Puts the burst buffer script, its configuration and the service's token beside slurm.conf
///
/// Writes burst_buffer.lua, burst_buffer.conf, posthaste.toml (which service to ask) and posthaste.token (a copy of the
/// service's token that only SlurmUser can read), with --job-submit job_submit.lua too, and adds to slurm.conf the lines that
/// are missing; a copy of what it changes is kept. Installed again it changes nothing. A burst_buffer.lua or
/// job_submit.lua of somebody else stays, unless --force says otherwise. Then it looks whether all is well, and `posthaste slurm
/// doctor` does once slurmctld was started again.
///
/// Examples:
///   posthaste slurm install --token-file /home/alice/.local/state/posthaste/token --dry-run
///   posthaste slurm install --server http://127.0.0.1:7420 --token-file /srv/posthaste/token --job-submit
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct InstallArguments {
    #[command(flatten)]
    site: SiteArguments,
    /// Where the service listens, as seen from the host of slurmctld
    #[arg(long, value_name = "URL", default_value = config::SERVICE_URL)]
    server: String,
    /// The service's token; needed the first time
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The program that Slurm runs [default: this one]
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Let jobs ask for data by `--comment=posthaste:…` too
    #[arg(long)]
    job_submit: bool,
    /// Show what would change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Replace scripts that are not posthaste's; a copy is kept
    #[arg(long)]
    force: bool,
}

/// File to install.
#[derive(Debug)]
struct Wanted {
    path: PathBuf,
    text: String,
    mode: u32,
    /// Owner of the file, if not the installing user.
    owner: Option<u32>,
    is_secret: bool,
}

/// Runs the command.
///
/// # Errors
/// Fails if a file can't be read or written, a script is somebody else's, or a check fails
/// afterwards.
pub async fn run(arguments: InstallArguments) -> Outcome {
    let site = Site::read(&arguments.site.slurm_conf)?;
    let (files, told) = plan(&site, &arguments)?;
    let mut changed = 0;
    for file in &files {
        changed += usize::from(apply(file, arguments.dry_run)?);
    }
    for line in told {
        output::line(&line);
    }
    if changed == 0 {
        output::line("nothing is to be changed");
    }
    if arguments.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let site = Site::read(&arguments.site.slurm_conf)?;
    doctor::look_after_install(&site).await?;
    if changed > 0 {
        output::line(
            "start slurmctld again (to reconfigure is not enough), then run `posthaste slurm doctor`",
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns all files to install, and the steps left to the operator.
fn plan(site: &Site, arguments: &InstallArguments) -> Result<(Vec<Wanted>, Vec<String>), Failure> {
    let (config, token) = (
        site.beside("posthaste.toml"),
        site.beside("posthaste.token"),
    );
    let mut files = vec![secret(site, &token, arguments.token_file.as_deref())?];
    files.push(public(
        config.clone(),
        format!(
            "# Which service Slurm's hooks ask.\nserver = {:?}\ntoken_file = {:?}\n",
            arguments.server,
            token.display().to_string()
        ),
    ));
    let program = match &arguments.program {
        Some(program) => program.clone(),
        None => {
            std::env::current_exe().map_err(|cause| Error::io("find", "this program", cause))?
        }
    };
    let mut scripts = vec![Script::BurstBuffer];
    scripts.extend(arguments.job_submit.then_some(Script::JobSubmit));
    for script in scripts {
        let path = site.beside(script.name());
        check_ours(script, &path, arguments.force)?;
        files.push(public(path, script.filled_in(&program, &config)));
    }
    let path = site.beside("burst_buffer.conf");
    let text = burst_buffer_conf(&existing(&path)?.unwrap_or_default());
    files.push(public(path, text));
    let (conf, told) = slurm_conf(site, arguments.job_submit)?;
    files.push(conf);
    Ok((files, told))
}

fn public(path: PathBuf, text: String) -> Wanted {
    Wanted {
        path,
        text,
        mode: 0o644,
        owner: None,
        is_secret: false,
    }
}

/// Returns the copy of the token, which `SlurmUser` alone can read.
fn secret(site: &Site, path: &Path, given: Option<&Path>) -> Result<Wanted, Failure> {
    let from = given.unwrap_or(path);
    if given.is_none() && !path.exists() {
        return Err(Failure::usage(format!(
            "can't make {}: name the service's token with --token-file",
            path.display()
        )));
    }
    let token = posthaste_service::read_private(from)?;
    let owner = site.user_id().ok_or_else(|| {
        let what = format!("nobody is called {} (SlurmUser)", site.user());
        Failure::new(Exit::Other, what)
    })?;
    Ok(Wanted {
        path: path.to_owned(),
        text: token + "\n",
        mode: 0o600,
        owner: Some(owner),
        is_secret: true,
    })
}

fn existing(path: &Path) -> Result<Option<String>, Failure> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(Error::io("read", path.display().to_string(), cause).into()),
    }
}

/// Checks that no script of somebody else is replaced unasked.
fn check_ours(script: Script, path: &Path, force: bool) -> Result<(), Failure> {
    let is_foreign = existing(path)?.is_some_and(|text| !script.is_ours(&text));
    if !is_foreign || force {
        return Ok(());
    }
    let hint = match script {
        Script::BurstBuffer => "Slurm has one burst buffer: --force replaces it and keeps a copy",
        Script::JobSubmit => {
            "put plugins/slurm/job_submit.lua beside it under another name and call posthaste_submit from \
             yours, as its first lines say; --force replaces yours and keeps a copy"
        }
    };
    let error = Error::new(ErrorKind::Conflict, "replace", path.display().to_string());
    Err(error.cause("it is not posthaste's").hint(hint).into())
}

/// Adds the missing settings to a `burst_buffer.conf`.
fn burst_buffer_conf(text: &str) -> String {
    let missing = BURST_BUFFER_CONF
        .iter()
        .filter(|(key, _)| setting_in(text, key).is_none());
    let missing = missing.map(|(key, value)| format!("{key}={value}"));
    with_lines(text, &missing.collect::<Vec<_>>())
}

/// Adds the missing lines to `slurm.conf`. Differing lines are left to their owner.
fn slurm_conf(site: &Site, job_submit: bool) -> Result<(Wanted, Vec<String>), Failure> {
    let (mut missing, mut told) = (Vec::new(), Vec::new());
    let mut need = |key: &str, word: &str| match site.setting(key) {
        None | Some("") => missing.push(format!("{key}={word}")),
        Some(value) if has_word(value, word) => {}
        Some(value) => told.push(format!(
            "{} says {key}={value}: change it to {key}={}",
            site.conf.display(),
            if key == "JobSubmitPlugins" {
                format!("{value},{word}")
            } else {
                word.to_owned()
            }
        )),
    };
    need("BurstBufferType", "burst_buffer/lua");
    if job_submit {
        need("JobSubmitPlugins", "lua");
    }
    let text = existing(&site.conf)?.unwrap_or_default();
    let conf = public(site.conf.clone(), with_lines(&text, &missing));
    Ok((conf, told))
}

/// Appends lines to a text.
fn with_lines(text: &str, lines: &[String]) -> String {
    let mut text = text.to_owned();
    for line in lines {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Installs a file, or only reports the change in a dry run; returns whether it differs.
fn apply(wanted: &Wanted, dry_run: bool) -> Result<bool, Failure> {
    let before = existing(&wanted.path)?;
    let is_there = before.as_deref() == Some(wanted.text.as_str());
    let is_right = is_there && (!wanted.is_secret || has_rights(wanted));
    if is_right {
        return Ok(false);
    }
    account(wanted, before.as_deref(), dry_run);
    if dry_run {
        return Ok(true);
    }
    if let (Some(_), false, false) = (&before, is_there, wanted.is_secret) {
        keep_copy(&wanted.path)?;
    }
    write(wanted, before.is_some())
        .map_err(|cause| Error::io("write", wanted.path.display().to_string(), cause))?;
    Ok(true)
}

fn has_rights(wanted: &Wanted) -> bool {
    use std::os::unix::fs::MetadataExt;
    let about = fs::metadata(&wanted.path);
    about.is_ok_and(|about| {
        let has_owner = wanted.owner.is_none_or(|owner| about.uid() == owner);
        has_owner && about.mode() & 0o7777 == wanted.mode
    })
}

/// Reports the changes as a diff; never a secret.
fn account(wanted: &Wanted, before: Option<&str>, dry_run: bool) {
    let verb = match (before.is_some(), dry_run) {
        (true, true) => "would change",
        (true, false) => "changed",
        (false, true) => "would write",
        (false, false) => "wrote",
    };
    output::line(&format!(
        "{verb} {} (mode {:04o})",
        wanted.path.display(),
        wanted.mode
    ));
    if wanted.is_secret {
        return;
    }
    let before: Vec<&str> = before.unwrap_or_default().lines().collect();
    let after: Vec<&str> = wanted.text.lines().collect();
    let gone = before.iter().filter(|line| !after.contains(line));
    let new = after.iter().filter(|line| !before.contains(line));
    let lines: Vec<String> = gone
        .map(|line| format!("  - {line}"))
        .chain(new.map(|line| format!("  + {line}")))
        .collect();
    for line in lines.iter().take(LINES_SHOWN_MAX) {
        output::line(line);
    }
    if lines.len() > LINES_SHOWN_MAX {
        output::line(&format!(
            "  and {} lines more",
            lines.len() - LINES_SHOWN_MAX
        ));
    }
}

/// Keeps a copy of a file under an unused name.
fn keep_copy(path: &Path) -> Result<(), Failure> {
    let shown = path.display().to_string();
    for number in 1..=BACKUPS_MAX {
        let copy = PathBuf::from(format!("{shown}.before-posthaste-{number}"));
        if copy.exists() {
            continue;
        }
        fs::copy(path, &copy).map_err(|cause| Error::io("copy", shown.clone(), cause))?;
        output::line(&format!("  it was kept as {}", copy.display()));
        return Ok(());
    }
    Err(Failure::usage(format!(
        "can't keep a copy of {shown}: there are {BACKUPS_MAX} (remove some)"
    )))
}

/// Writes a whole file: beside its place first.
fn write(wanted: &Wanted, replaces: bool) -> std::io::Result<()> {
    let fresh = wanted.path.with_extension("posthaste-new");
    let _ = fs::remove_file(&fresh);
    let mut options = fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&fresh)?;
    file.write_all(wanted.text.as_bytes())?;
    // Files that are not ours keep their permissions.
    let about = fs::metadata(&wanted.path);
    match about {
        Ok(about) if replaces && !wanted.is_secret => {
            use std::os::unix::fs::MetadataExt;
            chown(&fresh, Some(about.uid()), Some(about.gid()))?;
            file.set_permissions(about.permissions())?;
        }
        Ok(_) | Err(_) => {
            if wanted.owner.is_some() {
                chown(&fresh, wanted.owner, None)?;
            }
            file.set_permissions(fs::Permissions::from_mode(wanted.mode))?;
        }
    }
    file.sync_all()?;
    fs::rename(&fresh, &wanted.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_added() {
        let all = "Directive=POSTHASTE\nFlags=TeardownFailure\nStageInTimeout=86400\nStageOutTimeout=604800\n";
        assert_eq!(burst_buffer_conf(""), all);
        assert_eq!(burst_buffer_conf(all), all);
        assert_eq!(
            burst_buffer_conf("StageInTimeout=60"),
            "StageInTimeout=60\nDirective=POSTHASTE\nFlags=TeardownFailure\nStageOutTimeout=604800\n"
        );
    }

    #[test]
    fn a_configuration_that_says_something_else_is_left_to_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let conf = folder.path().join("slurm.conf");
        let text = "BurstBufferType=burst_buffer/datawarp\nJobSubmitPlugins=require_timelimit\n";
        fs::write(&conf, text).unwrap();
        let (wanted, told) = slurm_conf(&Site::read(&conf).unwrap(), true).unwrap();
        assert_eq!(wanted.text, text);
        assert!(told[0].ends_with("change it to BurstBufferType=burst_buffer/lua"));
        assert!(told[1].ends_with("JobSubmitPlugins=require_timelimit,lua"));
    }
}
