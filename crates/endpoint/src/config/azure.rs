//! Configuration of Azure's own tools.

use super::{login::token_source, profiles::Profile, profiles::Secret, variable};
use crate::{Error, ErrorKind, Result, web::bearer::TokenSource};

/// Storage account and the credentials for it, as far as configured.
#[derive(Debug, Clone, Default)]
pub(crate) struct AzureSettings {
    pub account: Option<String>,
    /// Address of the account's blobs, without the container.
    pub endpoint: Option<String>,
    pub key: Option<Secret>,
    /// Shared access signature: the query without its `?`.
    pub sas: Option<Secret>,
    /// Bearer token.
    pub token: Option<TokenSource>,
    pub anonymous: bool,
}

impl AzureSettings {
    /// Reads the settings of a profile of this name.
    ///
    /// # Errors
    /// Errors of [`token_source`].
    pub(crate) fn of_profile(profile: &Profile, name: &str) -> Result<Self> {
        Ok(Self {
            account: profile.account.clone(),
            endpoint: profile.endpoint.clone(),
            key: profile.account_key.clone(),
            sas: profile.sas_token.clone(),
            token: token_source(profile, name)?,
            anonymous: profile.anonymous,
        })
    }

    /// Reads the settings of the environment, under the names that Azure's command line reads. A
    /// connection string wins over single variables.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an unreadable connection string.
    pub(crate) fn of_environment() -> Result<Self> {
        let single = Self {
            account: variable("AZURE_STORAGE_ACCOUNT"),
            endpoint: variable("AZURE_STORAGE_SERVICE_ENDPOINT"),
            key: variable("AZURE_STORAGE_KEY").map(Secret::new),
            sas: variable("AZURE_STORAGE_SAS_TOKEN").map(Secret::new),
            token: None,
            anonymous: false,
        };
        let Some(text) = variable("AZURE_STORAGE_CONNECTION_STRING") else {
            return Ok(single);
        };
        let said = parse_connection_string(&text).ok_or_else(|| {
            Error::new(
                ErrorKind::Invalid,
                "read",
                "AZURE_STORAGE_CONNECTION_STRING",
            )
            .cause("it is not made of NAME=VALUE;")
            .hint("take it from the portal or `az storage account show-connection-string`")
        })?;
        let has_secret = said.key.is_some() || said.sas.is_some();
        Ok(Self {
            account: said.account.or(single.account),
            endpoint: said.endpoint.or(single.endpoint),
            key: said.key.or(single.key.filter(|_| !has_secret)),
            sas: said.sas.or(single.sas.filter(|_| !has_secret)),
            ..said
        })
    }
}

/// Parses `DefaultEndpointsProtocol=https;AccountName=…;AccountKey=…;EndpointSuffix=…` and similar
/// texts.
fn parse_connection_string(text: &str) -> Option<AzureSettings> {
    let mut settings = AzureSettings::default();
    let (mut protocol, mut suffix) = ("https", None);
    for field in text.split(';').map(str::trim) {
        if field.is_empty() {
            continue;
        }
        let (name, value) = field.split_once('=')?;
        match name {
            "AccountName" => settings.account = Some(value.to_owned()),
            "AccountKey" => settings.key = Some(Secret::new(value)),
            "SharedAccessSignature" => settings.sas = Some(Secret::new(value)),
            "BlobEndpoint" => settings.endpoint = Some(value.to_owned()),
            "DefaultEndpointsProtocol" => protocol = value,
            "EndpointSuffix" => suffix = Some(value),
            // Settings of queues, tables and files.
            _ => {}
        }
    }
    if let (None, Some(account), Some(suffix)) = (&settings.endpoint, &settings.account, suffix) {
        settings.endpoint = Some(format!("{protocol}://{account}.blob.{suffix}"));
    }
    Some(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connection_strings_are_taken_apart() {
        let text = "DefaultEndpointsProtocol=https;AccountName=me;AccountKey=aGk=;\
            EndpointSuffix=core.windows.net";
        let found = parse_connection_string(text).unwrap();
        assert_eq!(found.account.as_deref(), Some("me"));
        assert_eq!(
            found.key.map(|key| key.reveal().to_owned()).as_deref(),
            Some("aGk=")
        );
        assert_eq!(
            found.endpoint.as_deref(),
            Some("https://me.blob.core.windows.net")
        );
        let text = "BlobEndpoint=http://h:1/me;QueueEndpoint=x;SharedAccessSignature=sv=1&sig=a%3D";
        let found = parse_connection_string(text).unwrap();
        assert_eq!(found.endpoint.as_deref(), Some("http://h:1/me"));
        assert_eq!(
            found.sas.map(|sas| sas.reveal().to_owned()).as_deref(),
            Some("sv=1&sig=a%3D")
        );
        assert!(parse_connection_string("nonsense").is_none());
    }
}
