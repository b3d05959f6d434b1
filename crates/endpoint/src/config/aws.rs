//! Configuration of AWS's own tools.

use std::{collections::BTreeMap, fs, path::PathBuf};

use super::{home, variable};
use crate::{Error, ErrorKind, Result};

/// Settings of one section; one nested in another setting is called `setting.name`.
type Settings = BTreeMap<String, String>;

/// Returns the name of the AWS profile in force.
fn aws_profile(chosen: Option<&str>) -> String {
    chosen
        .map(str::to_owned)
        .or_else(|| variable("AWS_PROFILE"))
        .unwrap_or_else(|| "default".to_owned())
}

/// Returns the AWS address and region in force, as AWS's own tools find them.
pub(crate) fn aws_address(chosen: Option<&str>) -> (Option<String>, String) {
    let settings = aws_settings(&aws_profile(chosen)).unwrap_or_default();
    let services = |name: &String| section(&config()?, &format!("services {name}"));
    let endpoint = endpoint_of(&settings, variable, services);
    let region = variable("AWS_REGION")
        .or_else(|| variable("AWS_DEFAULT_REGION"))
        .or_else(|| settings.get("region").cloned())
        .unwrap_or_else(|| "us-east-1".to_owned());
    (endpoint, region)
}

/// Returns the address of S3 ("Service-specific endpoints" of the AWS SDKs): the setting for S3
/// before that for all services, the environment before a profile.
fn endpoint_of(
    settings: &Settings,
    variable: impl Fn(&str) -> Option<String>,
    services: impl Fn(&String) -> Option<Settings>,
) -> Option<String> {
    let setting = |name: &str| settings.get(name).cloned();
    let ignored = variable("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS")
        .or_else(|| setting("ignore_configured_endpoint_urls"));
    if ignored.is_some_and(|text| text.eq_ignore_ascii_case("true")) {
        return None;
    }
    variable("AWS_ENDPOINT_URL_S3")
        .or_else(|| variable("AWS_ENDPOINT_URL"))
        .or_else(|| services(settings.get("services")?)?.remove("s3.endpoint_url"))
        .or_else(|| setting("endpoint_url"))
        // Not AWS's own setting, but that of a common plug-in of its command line.
        .or_else(|| setting("s3.endpoint_url"))
}

/// Returns the program and arguments that print the credentials of a profile, if it names one.
///
/// # Errors
/// [`ErrorKind::Invalid`] for an unterminated quotation.
pub(crate) fn aws_credential_process(chosen: Option<&str>) -> Result<Option<Vec<String>>> {
    let name = aws_profile(chosen);
    let settings = aws_settings(&name).unwrap_or_default();
    let Some(line) = settings.get("credential_process") else {
        return Ok(None);
    };
    shlex::split(line).map(Some).ok_or_else(|| {
        Error::new(ErrorKind::Invalid, "use AWS profile", name)
            .cause("a quotation in credential_process does not end")
    })
}

/// Returns certificates that AWS's own tools trust beside the system's.
pub(crate) fn aws_ca_bundle(chosen: Option<&str>) -> Option<PathBuf> {
    let settings = || aws_settings(&aws_profile(chosen))?.remove("ca_bundle");
    variable("AWS_CA_BUNDLE")
        .or_else(settings)
        .map(PathBuf::from)
}

/// Returns whether `~/.aws` knows the profile.
pub(crate) fn aws_knows(name: &str) -> bool {
    aws_settings(name).is_some()
}

/// Returns the profile that `AWS_PROFILE` names if `~/.aws` does not know it.
pub(crate) fn aws_unknown() -> Option<String> {
    variable("AWS_PROFILE").filter(|name| !aws_knows(name))
}

fn config() -> Option<String> {
    read("AWS_CONFIG_FILE", "config")
}

fn read(variable_name: &str, default: &str) -> Option<String> {
    let path = variable(variable_name)
        .map(PathBuf::from)
        .or_else(|| Some(home()?.join(".aws").join(default)))?;
    // The file may lie below the home directory, as AWS's own tools read it.
    let path = match path.strip_prefix("~") {
        Ok(below) => home()?.join(below),
        Err(_) => path,
    };
    fs::read_to_string(path).ok()
}

fn aws_settings(name: &str) -> Option<Settings> {
    let config = config().and_then(|text| section(&text, name));
    let credentials =
        read("AWS_SHARED_CREDENTIALS_FILE", "credentials").and_then(|text| section(&text, name));
    match (config, credentials) {
        (None, None) => None,
        (config, credentials) => Some(
            credentials
                .unwrap_or_default()
                .into_iter()
                .chain(config.unwrap_or_default())
                .collect(),
        ),
    }
}

/// Returns the settings of `[name]` or `[profile name]` in an AWS configuration file. Empty ones
/// count as unset.
fn section(text: &str, name: &str) -> Option<Settings> {
    let mut found: Option<Settings> = None;
    let (mut inside, mut above) = (false, String::new());
    for line in text.lines() {
        if let Some(title) = line
            .trim()
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            inside = is_titled(title, name);
            if inside {
                found.get_or_insert_default();
            }
        } else if inside
            && !line.trim_start().starts_with(['#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            let (mut key, value) = (key.trim().to_owned(), value.trim().to_owned());
            if line.starts_with([' ', '\t']) {
                key = format!("{above}.{key}");
            } else {
                above.clone_from(&key);
            }
            if !value.is_empty() {
                found.get_or_insert_default().insert(key, value);
            }
        }
    }
    found
}

/// Returns whether a title is that of the profile `name`, or equals `name` word by word.
fn is_titled(title: &str, name: &str) -> bool {
    let words = |text: &str| -> Vec<String> {
        let words = text.split_whitespace();
        words
            .map(|word| word.trim_matches('"').to_owned())
            .collect()
    };
    let title = words(title);
    title == words(name)
        || title
            .split_first()
            .is_some_and(|(first, rest)| first == "profile" && rest == words(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "[default]\nregion = eu-1\nca_bundle =\n\
        [profile far]\nendpoint_url = http://all\nservices = lab\ns3 =\n  max = 1\n\
        [profile \"near\"]\n# services = lab\ns3 =\n\tendpoint_url = http://plug-in\n  # max = 1\n\
        [services  lab]\ndynamodb =\n  endpoint_url = http://tables\ns3 =\n  endpoint_url = http://objects\n\
        [services far]\ns3 =\n  endpoint_url = http://other\n";

    #[test]
    fn aws_files_are_read_by_section() {
        let default = section(CONFIG, "default").unwrap();
        assert_eq!(default["region"], "eu-1");
        assert!(!default.contains_key("ca_bundle"), "empty is unset");
        let far = section(CONFIG, "far").unwrap();
        assert_eq!(far["endpoint_url"], "http://all");
        assert_eq!(far["s3.max"], "1");
        assert!(!far.contains_key("max"));
        assert!(section(CONFIG, "lab").is_none());
    }

    #[test]
    fn the_address_is_found_where_aws_looks_for_it() {
        let find = |profile: &str, set: &[(&str, &str)]| {
            let variable = |name: &str| {
                let found = set.iter().find(|(known, _)| *known == name)?;
                Some(found.1.to_owned())
            };
            let services = |name: &String| section(CONFIG, &format!("services {name}"));
            endpoint_of(&section(CONFIG, profile).unwrap(), variable, services)
        };
        let is = |found: Option<String>, wanted| assert_eq!(found.as_deref(), wanted);
        is(find("default", &[]), None);
        is(find("far", &[]), Some("http://objects"));
        is(find("near", &[]), Some("http://plug-in"));
        let all = ("AWS_ENDPOINT_URL", "http://x");
        is(find("far", &[all]), Some("http://x"));
        is(
            find("far", &[all, ("AWS_ENDPOINT_URL_S3", "http://y")]),
            Some("http://y"),
        );
        let ignored = ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "True");
        is(find("far", &[all, ignored]), None);
    }
}
