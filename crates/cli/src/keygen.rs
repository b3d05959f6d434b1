//! `posthaste keygen`: makes an identity that opens encrypted datasets.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use posthaste_engine::envelope::age::{Identity, read_identities};

use crate::{
    failure::{Exit, Failure, Outcome},
    keys, output,
};

/// Makes an identity that opens encrypted datasets, and prints its recipient
///
/// The identity is a secret: a file only you can read. The recipient is what others name to encrypt
/// for you. Both are those of the age command.
///
/// Example:
///   posthaste keygen
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub struct KeygenArguments {
    /// Where to write it [default: ~/.config/posthaste/identity.txt]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs the command.
///
/// # Errors
/// Fails if an identity exists already, or the file can't be written.
pub fn run(arguments: &KeygenArguments) -> Outcome {
    let path = arguments.output.clone();
    let path = path.unwrap_or_else(keys::identity_file);
    let refused = |why: String| {
        let shown = path.display();
        Failure::new(
            Exit::Other,
            format!("can't write an identity to {shown}: {why}"),
        )
    };
    if path.symlink_metadata().is_ok() {
        let there = posthaste_service::read_private(&path).ok();
        let there = there.and_then(|text| read_identities(&text).ok()?.into_iter().next());
        return Err(refused(match there {
            Some(identity) => format!(
                "one is there, for {} (-o names another file)",
                identity.recipient()
            ),
            None => "something is there (-o names another file)".into(),
        }));
    }
    let identity = Identity::random().map_err(|why| refused(why.to_string()))?;
    let recipient = identity.recipient().to_string();
    if let Some(directory) = path.parent().filter(|parent| !parent.exists()) {
        posthaste_service::make_private_directory(directory)?;
    }
    let secret = identity.to_secret_text();
    let text = format!("# public key: {recipient}\n{}\n", *secret);
    posthaste_service::write_private(&path, &text)?;
    if arguments.json {
        let file = path.display().to_string();
        output::json(&serde_json::json!({ "recipient": recipient, "identity_file": file }));
    } else {
        crate::output::note!(
            "posthaste: the identity is in {}; its recipient:",
            path.display()
        );
        output::line(&recipient);
    }
    Ok(ExitCode::SUCCESS)
}
