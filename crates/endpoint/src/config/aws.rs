//! What AWS's own tools are set up with.

use std::{collections::BTreeMap, fs, path::PathBuf};

use super::{home, variable};

/// The name of the AWS profile in force.
fn aws_profile(chosen: Option<&str>) -> String {
    chosen
        .map(str::to_owned)
        .or_else(|| variable("AWS_PROFILE"))
        .unwrap_or_else(|| "default".to_owned())
}

/// The AWS address and region in force, as AWS's own tools find them.
pub(crate) fn aws_address(chosen: Option<&str>) -> (Option<String>, String) {
    let name = aws_profile(chosen);
    let settings = aws_settings(&name);
    let setting = |key: &str| settings.as_ref().and_then(|found| found.get(key).cloned());
    let endpoint = variable("AWS_ENDPOINT_URL_S3")
        .or_else(|| variable("AWS_ENDPOINT_URL"))
        .or_else(|| setting("endpoint_url"));
    let region = variable("AWS_REGION")
        .or_else(|| variable("AWS_DEFAULT_REGION"))
        .or_else(|| setting("region"))
        .unwrap_or_else(|| "us-east-1".to_owned());
    (endpoint, region)
}

/// Certificates that AWS's own tools trust beside the system's.
pub(crate) fn aws_ca_bundle(chosen: Option<&str>) -> Option<PathBuf> {
    let settings = || aws_settings(&aws_profile(chosen))?.remove("ca_bundle");
    variable("AWS_CA_BUNDLE")
        .or_else(settings)
        .map(PathBuf::from)
}

/// Whether `~/.aws` knows the profile.
pub(crate) fn aws_knows(name: &str) -> bool {
    aws_settings(name).is_some()
}

fn aws_settings(name: &str) -> Option<BTreeMap<String, String>> {
    let file = |variable_name: &str, default: &str| {
        let path = variable(variable_name)
            .map(PathBuf::from)
            .or_else(|| Some(home()?.join(".aws").join(default)))?;
        fs::read_to_string(path).ok()
    };
    let config = file("AWS_CONFIG_FILE", "config").and_then(|text| section(&text, name));
    let credentials =
        file("AWS_SHARED_CREDENTIALS_FILE", "credentials").and_then(|text| section(&text, name));
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

/// The settings of `[name]` or `[profile name]` in an AWS configuration file.
fn section(text: &str, name: &str) -> Option<BTreeMap<String, String>> {
    let mut found: Option<BTreeMap<String, String>> = None;
    let mut inside = false;
    for line in text.lines() {
        if let Some(title) = line
            .trim()
            .strip_prefix('[')
            .and_then(|line| line.strip_suffix(']'))
        {
            let title = title.trim();
            inside = title.strip_prefix("profile ").map_or(title, str::trim) == name;
            if inside {
                found.get_or_insert_default();
            }
        } else if inside
            && !line.starts_with([' ', '\t', '#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            let settings = found.get_or_insert_default();
            settings.insert(key.trim().to_owned(), value.trim().to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aws_files_are_read_by_section() {
        let text =
            "[default]\nregion = eu-1\n[profile far]\nendpoint_url = http://x\ns3 =\n  max = 1\n";
        assert_eq!(section(text, "default").unwrap()["region"], "eu-1");
        let far = section(text, "far").unwrap();
        assert_eq!(far["endpoint_url"], "http://x");
        assert!(!far.contains_key("max"));
        assert!(section(text, "near").is_none());
    }
}
