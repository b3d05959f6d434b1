//! Identifies processes of this machine uniquely, to find out whether one has ended.

use std::{fs, io};

/// Identifies this process: the boot of its machine, its process namespace, its id, and its start.
pub(super) fn own() -> Option<String> {
    of(&std::process::id().to_string())
}

/// Returns whether a process has certainly ended: it ran here since the machine started, and is
/// gone. Nothing is known of others.
pub(super) fn is_over(life: &str) -> bool {
    let mut words = life.split(' ');
    let (Some(boot), Some(names), Some(id)) = (words.next(), words.next(), words.next()) else {
        return false;
    };
    let is_from_here = here().is_some_and(|(here, ours)| here == boot && ours == names);
    let is_number = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
    is_from_here && is_number && is_gone(id, life)
}

fn of(id: &str) -> Option<String> {
    let (boot, names) = here()?;
    let began = running(id).ok()??;
    Some(format!("{boot} {names} {id} {began}"))
}

/// Identifies the machine's boot and the process namespace.
fn here() -> Option<(String, String)> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let names = fs::read_link("/proc/self/ns/pid").ok()?;
    let names = names.to_str()?.replace(' ', "_");
    Some((boot.trim().to_owned(), names))
}

/// Returns when a process began, in ticks since the machine started; none if it ended and its
/// parent has not collected it.
fn running(id: &str) -> io::Result<Option<u64>> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat"))?;
    // The process name is in parentheses, and may contain some (proc_pid_stat(5)).
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next().unwrap_or_default();
    let began = fields.nth(18).and_then(|ticks| ticks.parse().ok());
    Ok(began.filter(|_| !matches!(state, "Z" | "X")))
}

/// Returns whether the process number is unused or reused.
fn is_gone(id: &str, life: &str) -> bool {
    match running(id) {
        Ok(None) => true,
        Ok(Some(began)) => !life.ends_with(&format!(" {began}")),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_over_when_it_ended_and_not_before() {
        let own = own().unwrap();
        assert!(!is_over(&own));
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        let life = of(&child.id().to_string()).unwrap();
        assert!(!is_over(&life));
        child.kill().unwrap();
        // This includes a process whose end was not collected.
        while !is_over(&life) {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(is_over(&life));
        let (rest, began) = own.rsplit_once(' ').unwrap();
        let other = format!("{rest} {}", began.parse::<u64>().unwrap() - 1);
        assert!(is_over(&other), "its number is another's now");
        let boot = own.split(' ').next().unwrap();
        for nothing_known in [
            "",
            "x",
            &life.replace(boot, "elsewhere"),
            &life.replace("pid:", "pid:9"),
        ] {
            assert!(!is_over(nothing_known), "{nothing_known}");
        }
    }
}
