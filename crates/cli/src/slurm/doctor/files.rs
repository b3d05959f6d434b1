//! Checks of the files beside `slurm.conf`.

use std::{
    fs,
    io::{Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
};

use super::Check;
use crate::slurm::{
    config::SlurmConfig,
    scripts::{Script, named_in},
    site::{self, Site, has_word, mode_of, setting_in},
};

/// Plug-in folders of distributions and of Slurm's own build.
const PLUGIN_FOLDERS: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu/slurm-wlm",
    "/usr/lib/aarch64-linux-gnu/slurm-wlm",
    "/usr/lib/x86_64-linux-gnu/slurm",
    "/usr/lib64/slurm",
    "/usr/lib/slurm",
    "/usr/local/lib/slurm",
];
/// Lua's compilers, by distributions' names.
const COMPILERS: [&str; 4] = ["luac", "luac5.1", "luac5.3", "luac5.4"];
/// Least useful timeout of stage-ins, in seconds: hardly any stage-in finishes in less.
const STAGE_IN_TIMEOUT_MIN: u64 = 60;
/// Slurm's largest timeout, in seconds: 24 days.
const TIMEOUT_MAX: u64 = 2_073_600;
/// Slurm's default timeout, in seconds.
const TIMEOUT_UNSAID: u64 = 86_400;
/// Bytes read from the end of a log, at most.
const LOG_BYTES_MAX: u64 = 4 << 20;

pub(super) fn look(site: &Site) -> Vec<Check> {
    let mut checks = vec![
        burst_buffer_type(site),
        user(site),
        plugin(site, "plug-in", "burst_buffer_lua.so"),
    ];
    let path = site.beside(Script::BurstBuffer.name());
    match script(Script::BurstBuffer, "script", &path) {
        Err(bad) => checks.push(bad),
        Ok((check, program, config)) => {
            checks.push(check);
            checks.push(syntax(site, &path));
            checks.push(runs(&program));
            checks.extend(hook_config(site, &config));
        }
    }
    checks.extend(burst_buffer_conf(site));
    checks.extend(job_submit(site));
    checks
}

fn burst_buffer_type(site: &Site) -> Check {
    const NAME: &str = "BurstBufferType";
    match site.setting(NAME) {
        Some(value) if has_word(value, "burst_buffer/lua") => Check::good(NAME, value),
        other => Check::bad(
            NAME,
            format!("slurm.conf says {}", other.unwrap_or("nothing")),
            "add BurstBufferType=burst_buffer/lua and start slurmctld again",
        ),
    }
}

fn user(site: &Site) -> Check {
    let user = site.user();
    match site.user_id() {
        Some(id) => Check::good("SlurmUser", format!("{user} ({id})")),
        None => Check::bad(
            "SlurmUser",
            format!("nobody is called {user}"),
            "make that user",
        ),
    }
}

fn plugin(site: &Site, name: &'static str, file: &str) -> Check {
    let said = site.setting("PluginDir").map(|value| {
        let folders = value.split(':').map(str::to_owned);
        folders.collect::<Vec<_>>()
    });
    let folders = said.unwrap_or_else(|| PLUGIN_FOLDERS.map(str::to_owned).into());
    let found = folders.iter().map(|folder| Path::new(folder).join(file));
    match found.into_iter().find(|path| path.is_file()) {
        Some(path) => Check::good(name, path.display().to_string()),
        None => Check::bad(
            name,
            format!("there is no {file} in {}", folders.join(", ")),
            "install Slurm's plug-ins (Debian: slurm-wlm-basic-plugins), built with Lua",
        ),
    }
}

/// Checks whether a script exists and is of this release, with the program and the configuration
/// that it names.
fn script(
    script: Script,
    name: &'static str,
    path: &Path,
) -> Result<(Check, PathBuf, PathBuf), Check> {
    const REMEDY: &str = "run `posthaste slurm install`";
    let shown = path.display();
    let bad = |what: String| Check::bad(name, what, REMEDY);
    let text = fs::read_to_string(path).map_err(|cause| bad(format!("{shown}: {cause}")))?;
    if !script.is_ours(&text) {
        return Err(bad(format!("{shown} is not posthaste's")));
    }
    let named = named_in(&text);
    let (program, config) =
        named.ok_or_else(|| bad(format!("{shown} does not say PROGRAM and CONFIG")))?;
    let (program, config) = (PathBuf::from(program), PathBuf::from(config));
    let check = if script.filled_in(&program, &config) == text {
        Check::good(name, shown.to_string())
    } else {
        bad(format!("{shown} is of another release, or was changed"))
    };
    Ok((check, program, config))
}

/// Checks whether Lua accepts the script: by its compiler if present, else by the controller's log.
fn syntax(site: &Site, path: &Path) -> Check {
    const NAME: &str = "Lua";
    for compiler in COMPILERS {
        let output = Command::new(compiler).arg("-p").arg(path).output();
        let Ok(output) = output else {
            continue;
        };
        if output.status.success() {
            return Check::good(NAME, format!("{compiler} takes the script"));
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        return Check::bad(NAME, said, "run `posthaste slurm install`");
    }
    let log = site.setting("SlurmctldLogFile").map(Path::new);
    let Some(text) = log.and_then(|log| end_of(log).ok()) else {
        return Check::unknown(NAME, "there is neither luac nor a log of slurmctld");
    };
    // Lines from before the controller's last start, or about an earlier script, don't count.
    let text = text.rsplit("slurmctld version").next().unwrap_or(&text);
    let changed = fs::metadata(path).and_then(|about| about.modified());
    let changed = changed
        .ok()
        .and_then(|at| jiff::Timestamp::try_from(at).ok());
    let is_about = |line: &&str| {
        let is_old = moment_of(line)
            .zip(changed)
            .is_some_and(|(at, changed)| at < changed);
        !is_old && line.contains("error:") && line.contains("burst_buffer.lua:")
    };
    match text.lines().rfind(is_about) {
        Some(line) => Check::bad(NAME, line.trim(), "run `posthaste slurm install`"),
        None => Check::good(NAME, "slurmctld has not complained since it started"),
    }
}

/// Returns when a line `[2026-11-24T23:03:05.179] …` was logged, by this host's clock.
fn moment_of(line: &str) -> Option<jiff::Timestamp> {
    let (stamp, _) = line.trim().strip_prefix('[')?.split_once(']')?;
    let moment: jiff::civil::DateTime = stamp.parse().ok()?;
    let moment = moment.to_zoned(jiff::tz::TimeZone::system()).ok()?;
    Some(moment.timestamp())
}

/// Reads the end of a log.
fn end_of(path: &Path) -> std::io::Result<String> {
    let mut file = fs::File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(LOG_BYTES_MAX)))?;
    let mut bytes = Vec::new();
    file.take(LOG_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn runs(program: &Path) -> Check {
    const NAME: &str = "program";
    let shown = program.display();
    if !program.is_absolute() {
        let what = format!("{shown} is no absolute path, and slurmctld has no PATH to speak of");
        return Check::bad(NAME, what, "run `posthaste slurm install --program FILE`");
    }
    match site::run(Command::new(program).arg("--version")) {
        Ok(version) => Check::good(NAME, format!("{shown}, {}", version.trim())),
        Err(why) => Check::bad(NAME, why, "run `posthaste slurm install --program FILE`"),
    }
}

/// Checks whether the hooks find their service and its token, and nobody else can read the token.
fn hook_config(site: &Site, path: &Path) -> Vec<Check> {
    const REMEDY: &str = "run `posthaste slurm install --token-file FILE`";
    let config = match SlurmConfig::read(path) {
        Err(failure) => {
            return vec![Check::bad(
                "hook configuration",
                failure.to_string(),
                REMEDY,
            )];
        }
        Ok(config) => config,
    };
    let mut checks = vec![Check::good(
        "hook configuration",
        path.display().to_string(),
    )];
    let Some(token) = config.service().token_file else {
        let what = format!("{} does not say token_file", path.display());
        checks.push(Check::bad("token", what, REMEDY));
        return checks;
    };
    let shown = token.display();
    checks.push(match (mode_of(&token), fs::metadata(&token)) {
        (Err(cause), _) | (_, Err(cause)) => {
            Check::bad("token", format!("{shown}: {cause}"), REMEDY)
        }
        (Ok(mode), Ok(_)) if mode & 0o077 != 0 => {
            let what = format!("others can read {shown} (mode {mode:04o})");
            Check::bad("token", what, format!("chmod 600 {shown}"))
        }
        // Root reads it whoever owns it.
        (Ok(_), Ok(about)) => match site.user_id() {
            Some(id) if id != 0 && id != about.uid() => {
                let what = format!("{shown} belongs to user {}", about.uid());
                Check::bad("token", what, format!("chown {} {shown}", site.user()))
            }
            Some(_) | None => Check::good("token", format!("{shown} is private")),
        },
    });
    checks
}

fn burst_buffer_conf(site: &Site) -> Vec<Check> {
    let path = site.beside("burst_buffer.conf");
    // Without the file Slurm uses its own defaults.
    let text = fs::read_to_string(&path).unwrap_or_default();
    let directive = setting_in(&text, "Directive");
    let directive = match directive.as_deref() {
        Some("POSTHASTE") => Check::good("Directive", "#POSTHASTE lines"),
        said => Check::bad(
            "Directive",
            format!("Slurm looks at #{} lines", said.unwrap_or("BB_LUA")),
            format!("write Directive=POSTHASTE into {}", path.display()),
        ),
    };
    let flags = setting_in(&text, "Flags");
    let flags = match flags.as_deref() {
        Some(said) if has_word(said, "TeardownFailure") => Check::good("Flags", said),
        said => Check::bad(
            "Flags",
            format!(
                "Slurm never stages in again what failed once: it says {}",
                said.unwrap_or("nothing")
            ),
            format!("write Flags=TeardownFailure into {}", path.display()),
        ),
    };
    let seconds = setting_in(&text, "StageInTimeout");
    let seconds = seconds.map_or(Ok(TIMEOUT_UNSAID), |text| text.parse::<u64>());
    let remedy = format!("write StageInTimeout=86400 into {}", path.display());
    let timeout = match seconds {
        Ok(seconds @ STAGE_IN_TIMEOUT_MIN..=TIMEOUT_MAX) => {
            Check::good("StageInTimeout", format!("{seconds} s"))
        }
        Ok(seconds) => {
            let what = format!("a stage-in is ended after {seconds} s");
            Check::bad("StageInTimeout", what, remedy)
        }
        Err(_) => Check::bad("StageInTimeout", "it is no number of seconds", remedy),
    };
    vec![directive, flags, timeout]
}

/// Checks the script that lets comments ask for data.
fn job_submit(site: &Site) -> Vec<Check> {
    let path = site.beside(Script::JobSubmit.name());
    let is_ours = |text: String| Script::JobSubmit.is_ours(&text);
    if !fs::read_to_string(&path).is_ok_and(is_ours) {
        return Vec::new();
    }
    let mut checks = vec![match site.setting("JobSubmitPlugins") {
        Some(value) if has_word(value, "lua") || has_word(value, "job_submit/lua") => {
            Check::good("JobSubmitPlugins", value)
        }
        other => Check::bad(
            "JobSubmitPlugins",
            format!("slurm.conf says {}", other.unwrap_or("nothing")),
            "add JobSubmitPlugins=lua, or remove job_submit.lua",
        ),
    }];
    checks.push(plugin(site, "job submit plug-in", "job_submit_lua.so"));
    checks.push(
        match script(Script::JobSubmit, "job submit script", &path) {
            Err(bad) => bad,
            Ok((check, program, _)) => match runs(&program) {
                good if good.remedy.is_none() => check,
                bad => bad,
            },
        },
    );
    checks
}
