//! Checks of the service and the controller.

use std::{fs, path::Path};

use posthaste_api as api;

use super::Check;
use crate::{
    client::ServiceClient,
    slurm::{
        config::SlurmConfig,
        scripts::{Script, named_in},
        site::Site,
    },
};

/// Known releases of Slurm, year and month.
const RELEASES: std::ops::RangeInclusive<(u32, u32)> = (22, 5)..=(26, 5);

pub(super) async fn look(site: &Site) -> Vec<Check> {
    let mut checks = vec![service(site).await, version(site)];
    let controller = controller(site);
    let answers = controller.remedy.is_none();
    checks.push(controller);
    checks.push(daemon_name(site));
    if answers {
        checks.push(pool(site));
    }
    checks
}

/// Checks whether the service answers the hooks, and has scratch.
pub(super) async fn service(site: &Site) -> Check {
    const NAME: &str = "service";
    let path = site.beside(Script::BurstBuffer.name());
    let text = fs::read_to_string(path).unwrap_or_default();
    let Some((_, config)) = named_in(&text) else {
        return Check::unknown(NAME, "no script names its configuration");
    };
    let Ok(config) = SlurmConfig::read(Path::new(&config)) else {
        return Check::unknown(NAME, "no configuration names it");
    };
    let arguments = config.service();
    let asked = match ServiceClient::open(&arguments) {
        Ok(client) => client.get::<Vec<api::Scratch>>("/v1/scratch").await,
        Err(failure) => Err(failure),
    };
    match asked {
        Err(failure) if failure.may_pass() => {
            let remedy =
                "start `posthaste serve`, or name it with `posthaste slurm install --server`";
            Check::bad(NAME, failure.to_string(), remedy)
        }
        Err(failure) => Check::bad(
            NAME,
            failure.to_string(),
            "run `posthaste slurm install --token-file FILE` with the service's token",
        ),
        Ok(rooms) if rooms.is_empty() => Check::bad(
            NAME,
            format!("{} has no scratch", arguments.url),
            "start it with `posthaste serve --scratch DIR`",
        ),
        Ok(rooms) => {
            let paths: Vec<&str> = rooms.iter().map(|room| room.path.as_str()).collect();
            Check::good(
                NAME,
                format!("{} moves data to {}", arguments.url, paths.join(", ")),
            )
        }
    }
}

fn version(site: &Site) -> Check {
    const NAME: &str = "Slurm's release";
    let said = match site.ask("scontrol", &["--version"]) {
        Err(why) => {
            return Check::bad(NAME, why, "install Slurm's commands where slurmctld runs");
        }
        Ok(said) => said.trim().to_owned(),
    };
    match release(&said) {
        Some(release) if RELEASES.contains(&release) => Check::good(NAME, said),
        Some(release) if release < *RELEASES.start() => Check::bad(
            NAME,
            said,
            "burst_buffer/lua is there from 22.05 on: update Slurm",
        ),
        Some(_) | None => Check::unknown(NAME, format!("{said} is not known")),
    }
}

/// Returns year and month of `slurm-wlm 22.05.8`.
fn release(said: &str) -> Option<(u32, u32)> {
    let number = said.split_whitespace().nth(1)?;
    let mut numbers = number.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn controller(site: &Site) -> Check {
    const NAME: &str = "slurmctld";
    match site.ask("scontrol", &["ping"]) {
        Ok(said) if said.contains("is UP") => Check::good(NAME, "it answers"),
        Ok(said) => Check::bad(NAME, said.trim(), "start slurmctld"),
        Err(why) => Check::bad(NAME, why, "start slurmctld"),
    }
}

/// Checks the daemon's name: under any name but `slurmctld` it crashes in `burst_buffer/lua`, which
/// compares names.
fn daemon_name(site: &Site) -> Check {
    const NAME: &str = "slurmctld's name";
    let file = site.setting("SlurmctldPidFile");
    let file = file.unwrap_or("/var/run/slurmctld.pid");
    let process = fs::read_to_string(file).ok();
    let line = process.and_then(|process| {
        let line = fs::read(format!("/proc/{}/cmdline", process.trim())).ok()?;
        let first = line.split(|byte| *byte == 0).next()?;
        Some(String::from_utf8_lossy(first).into_owned())
    });
    let Some(line) = line else {
        return Check::unknown(NAME, format!("{file} names no process of this host"));
    };
    let name = Path::new(&line).file_name();
    if name.is_some_and(|name| name == "slurmctld") {
        return Check::good(NAME, line);
    }
    Check::bad(
        NAME,
        format!(
            "it was started as {line}, and burst_buffer/lua crashes under any name but slurmctld"
        ),
        "start it through a link of that name",
    )
}

/// Checks whether the controller knows the pool: then it runs the script, and the script the hook.
fn pool(site: &Site) -> Check {
    const NAME: &str = "pool";
    match site.ask("scontrol", &["show", "burstbuffer"]) {
        Err(why) => Check::bad(NAME, why, "look into the log of slurmctld"),
        Ok(said) => {
            let mut lines = said.lines().map(str::trim);
            match lines
                .find(|line| line.contains("=scratch ") || line.contains("DefaultPool=scratch"))
            {
                Some(line) => Check::good(NAME, line),
                None => Check::bad(
                    NAME,
                    "Slurm knows no pool scratch",
                    "start slurmctld again, wait half a minute, and look for burst_buffer in its log",
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read() {
        assert_eq!(release("slurm-wlm 22.05.8"), Some((22, 5)));
        assert_eq!(release("slurm 24.11.0-0rc1"), Some((24, 11)));
        assert_eq!(release("slurm"), None);
        assert!(RELEASES.contains(&(23, 2)) && !RELEASES.contains(&(21, 8)));
    }
}
