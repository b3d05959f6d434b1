//! Only place of the executable that reads the environment.

use std::{ffi::OsString, net::IpAddr, path::PathBuf};

/// Default address of the service.
pub const SERVICE_URL: &str = "http://127.0.0.1:7420";

#[expect(
    clippy::disallowed_methods,
    reason = "this is the place that reads the environment"
)]
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// Returns the command line as typed.
pub fn typed() -> Vec<OsString> {
    std::env::args_os().collect()
}

/// Returns whether the command line asks for JSON. Words after `--` belong to another program.
pub fn wants_json() -> bool {
    let typed = typed();
    let mut own = typed.iter().take_while(|word| *word != "--");
    own.any(|word| word == "--json")
}

/// Returns the service's state directory: `$XDG_STATE_HOME/posthaste`, else
/// `~/.local/state/posthaste`.
pub fn state_directory() -> PathBuf {
    let state = variable("XDG_STATE_HOME")
        .or_else(|| variable("HOME").map(|home| home.join(".local").join("state")));
    state
        .unwrap_or_else(|| PathBuf::from("."))
        .join("posthaste")
}

/// Returns the directory of users' configuration: `$XDG_CONFIG_HOME/posthaste`, else
/// `~/.config/posthaste`.
pub fn config_directory() -> PathBuf {
    let config =
        variable("XDG_CONFIG_HOME").or_else(|| variable("HOME").map(|home| home.join(".config")));
    config
        .unwrap_or_else(|| PathBuf::from("."))
        .join("posthaste")
}

/// Returns this host's own name.
pub fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

fn text(name: &str) -> Option<String> {
    variable(name)?.into_os_string().into_string().ok()
}

/// Returns the user for a PostgreSQL database whose address names none, chosen like PostgreSQL's
/// own programs do.
pub fn database_user() -> Option<String> {
    ["PGUSER", "USER", "LOGNAME"]
        .iter()
        .find_map(|name| text(name))
}

/// Returns the password for a PostgreSQL database, if the environment has it.
pub fn database_password() -> Option<String> {
    text("PGPASSWORD")
}

/// Returns the file with passwords for PostgreSQL databases.
pub fn database_password_file() -> Option<PathBuf> {
    variable("PGPASSFILE").or_else(|| variable("HOME").map(|home| home.join(".pgpass")))
}

/// Returns the authorities whose certificates of PostgreSQL servers are trusted beside the
/// system's: `$PGSSLROOTCERT`, else `~/.postgresql/root.crt` if it exists.
pub fn database_authorities() -> Option<PathBuf> {
    let usual = || variable("HOME").map(|home| home.join(".postgresql").join("root.crt"));
    let usual = || usual().filter(|file| file.exists());
    variable("PGSSLROOTCERT").or_else(usual)
}

/// Returns whether colours are unwanted (<https://no-color.org>).
pub fn no_color() -> bool {
    variable("NO_COLOR").is_some()
}

/// Returns whether the environment sets this program's name in traces
/// (<https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/>).
pub fn names_service() -> bool {
    variable("OTEL_SERVICE_NAME").is_some()
}

/// Returns the first of these variables that is set, with its companion.
pub fn first_set(names: &[(&'static str, &'static str)]) -> Option<(&'static str, &'static str)> {
    let mut names = names.iter().copied();
    names.find(|(name, _)| variable(name).is_some())
}

/// Returns the address at which the SSH connection of this process came in: the third word of
/// `SSH_CONNECTION`. `None` without SSH.
pub fn ssh_server_address() -> Option<IpAddr> {
    let words = variable("SSH_CONNECTION")?;
    server_address(words.to_str()?)
}

fn server_address(words: &str) -> Option<IpAddr> {
    let address = words.split_ascii_whitespace().nth(2)?;
    // A link-local address names its interface, which only this machine knows.
    let (address, _) = address.split_once('%').unwrap_or((address, ""));
    let address: IpAddr = address.parse().ok()?;
    Some(address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_address_is_the_third_word() {
        for (words, wanted) in [
            ("10.0.0.1 5000 10.0.0.2 22", Some("10.0.0.2")),
            ("::1 5000 ::1 22", Some("::1")),
            ("fe80::1%eth0 5000 ::ffff:10.0.0.2 22", Some("10.0.0.2")),
            ("10.0.0.1 5000", None),
            ("a b c d", None),
        ] {
            let found = server_address(words).map(|address| address.to_string());
            assert_eq!(found.as_deref(), wanted, "{words}");
        }
    }
}
