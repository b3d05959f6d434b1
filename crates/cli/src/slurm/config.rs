//! File that names the service for Slurm's hooks.

use std::path::{Path, PathBuf};

use posthaste_endpoint::Error;
use serde::Deserialize;

use crate::{client::ServiceArguments, config, failure::Failure};

/// Content of the file. An empty one suffices for a service of the same user.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SlurmConfig {
    /// Address of the service.
    server: Option<String>,
    /// File with the service's token, which only `SlurmUser` can read.
    token_file: Option<PathBuf>,
}

impl SlurmConfig {
    /// Reads the file.
    ///
    /// # Errors
    /// Fails if it can't be read or contains an unknown line, which the message names.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|cause| Error::io("read", shown.clone(), cause))?;
        toml::from_str(&text).map_err(|cause| {
            let why = cause.to_string();
            Failure::usage(format!(
                "can't read {shown}: {}",
                why.trim_end().replace('\n', " ")
            ))
        })
    }

    /// Returns the service that the file names.
    pub fn service(&self) -> ServiceArguments {
        ServiceArguments {
            url: self
                .server
                .clone()
                .unwrap_or_else(|| config::SERVICE_URL.to_owned()),
            token_file: self.token_file.clone(),
        }
    }
}
