//! Recipients for whom a dataset is encrypted, and identities that open it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use clap::Args;
use posthaste_endpoint::ErrorKind;
use posthaste_engine::envelope::age::{Identity, KeyError, Recipient, read_identities};
use serde::Deserialize;

use crate::{
    config,
    failure::{Exit, Failure},
};

/// For whom to encrypt.
#[derive(Debug, Clone, Default, Args)]
pub struct RecipientArguments {
    /// Encrypt it for these: age1… as `posthaste keygen` prints them, or names in
    /// ~/.config/posthaste/recipients.toml. Depots then see nothing of it but sizes
    #[arg(long, value_name = "RECIPIENT,…", value_delimiter = ',')]
    encrypt_for: Vec<String>,
    /// Encrypt it for all in FILE, one a line, as the age command takes it
    #[arg(short = 'R', long, value_name = "FILE")]
    recipients_file: Vec<PathBuf>,
}

/// Recipients of a name in `recipients.toml`: one, or a list.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Entry {
    One(String),
    Many(Vec<String>),
}

impl RecipientArguments {
    /// Returns the recipients: empty if the dataset is not to be encrypted, and only then.
    ///
    /// # Errors
    /// Returns [`Exit::Usage`] for an invalid recipient, an unknown name, or a file without
    /// recipients.
    pub fn resolve(&self) -> Result<Vec<String>, Failure> {
        let mut recipients = Vec::new();
        for (given, number) in self.encrypt_for.iter().zip(1..) {
            // A secret given by mistake is not shown.
            let is_secret = given.to_ascii_uppercase().starts_with("AGE-SECRET-KEY-");
            if given.starts_with("age1") || given.is_empty() || is_secret {
                let recipient = parse(given).map_err(|why| {
                    Failure::usage(format!("can't encrypt for recipient {number}: {why}"))
                });
                recipients.push(recipient?);
            } else {
                recipients.extend(named(given)?);
            }
        }
        for file in &self.recipients_file {
            recipients.extend(listed(file)?);
        }
        Ok(recipients)
    }
}

fn parse(text: &str) -> Result<String, KeyError> {
    text.parse::<Recipient>()
        .map(|recipient| recipient.to_string())
}

/// Returns the recipients of a name.
fn named(name: &str) -> Result<Vec<String>, Failure> {
    let path = config::config_directory().join("recipients.toml");
    let refused = |why: String| Failure::usage(format!("can't encrypt for {name}: {why}"));
    let shown = path.display();
    let text = fs::read_to_string(&path)
        .map_err(|cause| refused(format!("it is no age1… recipient, and {shown}: {cause}")))?;
    let book: BTreeMap<String, Entry> =
        toml::from_str(&text).map_err(|cause| refused(format!("{shown}: {}", cause.message())))?;
    let entry = book.get(name).ok_or_else(|| {
        refused(format!(
            "it is no age1… recipient and no name in {shown} (write {name} = \"age1…\" there)"
        ))
    })?;
    let texts = match entry {
        Entry::One(text) => std::slice::from_ref(text),
        Entry::Many(texts) => texts,
    };
    if texts.is_empty() {
        return Err(refused(format!("its list in {shown} is empty")));
    }
    let recipients = texts.iter().map(|text| parse(text));
    recipients
        .collect::<Result<_, _>>()
        .map_err(|why| refused(format!("{shown}: {why}")))
}

/// Reads the recipients in a file of the age command's format: one a line, with comments.
fn listed(file: &Path) -> Result<Vec<String>, Failure> {
    let refused = |why: String| {
        Failure::usage(format!(
            "can't encrypt for those in {}: {why}",
            file.display()
        ))
    };
    let text = fs::read_to_string(file).map_err(|cause| refused(cause.to_string()))?;
    let mut recipients = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            let recipient = parse(line).map_err(|why| refused(format!("line {number}: {why}")))?;
            recipients.push(recipient);
        }
    }
    if recipients.is_empty() {
        return Err(refused("it names nobody".into()));
    }
    Ok(recipients)
}

/// User as whom to open.
#[derive(Debug, Clone, Default, Args)]
pub struct IdentityArguments {
    /// File with the identity that opens an encrypted dataset, as `posthaste keygen` or age-keygen
    /// writes it; may be given several times [default: ~/.config/posthaste/identity.txt]
    #[arg(short, long, value_name = "FILE")]
    identity: Vec<PathBuf>,
}

impl IdentityArguments {
    /// Names the files that are read, for people.
    pub fn shown(&self) -> String {
        let files = self.files();
        let shown = files.iter().map(|file| file.display().to_string());
        shown.collect::<Vec<_>>().join(", ")
    }

    fn files(&self) -> Vec<PathBuf> {
        if self.identity.is_empty() {
            vec![identity_file()]
        } else {
            self.identity.clone()
        }
    }

    /// Reads the identities.
    ///
    /// # Errors
    /// Returns [`Exit::Fatal`] if a file is missing, others can read it, or it holds no identity.
    pub fn load(&self) -> Result<Vec<Identity>, Failure> {
        let mut identities = Vec::new();
        for file in self.files() {
            let refused = |why: String| {
                let shown = file.display();
                Failure::new(
                    Exit::Fatal,
                    format!("can't use the identity in {shown}: {why}"),
                )
            };
            let text = posthaste_service::read_private(&file).map_err(|error| {
                if error.kind() == ErrorKind::NotFound {
                    return refused(
                        "it isn't there (make one with `posthaste keygen`, or name its file with --identity)"
                            .into(),
                    );
                }
                error.into()
            })?;
            let found = read_identities(&text)
                .map_err(|(line, why)| refused(format!("line {line}: {why}")))?;
            if found.is_empty() {
                return Err(refused("there is none in it".into()));
            }
            identities.extend(found);
        }
        Ok(identities)
    }
}

/// Returns the default path of the identity.
pub fn identity_file() -> PathBuf {
    config::config_directory().join("identity.txt")
}
