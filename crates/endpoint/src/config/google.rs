//! Configuration of Google's own tools.

use std::path::PathBuf;

use super::{home, variable};

/// Returns the key file that Google's own tools would use: the one that the environment names, or
/// else the one that `gcloud auth application-default login` left.
pub(crate) fn google_key_file() -> Option<PathBuf> {
    const LOGIN: &str = "application_default_credentials.json";
    let named = variable("GOOGLE_APPLICATION_CREDENTIALS").map(PathBuf::from);
    named.or_else(|| {
        let settings = variable("CLOUDSDK_CONFIG").map(PathBuf::from);
        let settings = settings.or_else(|| Some(home()?.join(".config/gcloud")))?;
        Some(settings.join(LOGIN)).filter(|path| path.is_file())
    })
}

/// Returns the address of an emulator of Google's service, if the environment names one.
pub(crate) fn google_emulator() -> Option<String> {
    let address = variable("STORAGE_EMULATOR_HOST")?;
    if address.contains("://") {
        return Some(address);
    }
    Some(format!("http://{address}"))
}
