//! Key that is the relay's identity, and secret from which its owner mints tokens.

use std::{
    fs,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use posthaste_endpoint::{
    Error, ErrorKind, Result,
    relay::{
        Fingerprint, check_own_folder, check_owner, crypto_provider, fingerprint_of, read_or_make,
        read_or_make_secret,
    },
};
use rcgen::{CertificateParams, DnType, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};

/// Identity of a relay.
pub(crate) struct Identity {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) secret_file: PathBuf,
    pub(crate) secret: [u8; 32],
    pub(crate) tls: Arc<ServerConfig>,
}

impl Identity {
    /// Reads `dir/key.pem` and `dir/secret`, or makes them, readable by their owner alone.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|cause| Error::io("make", dir.display().to_string(), cause))?;
        check_own_folder(dir)?;
        let key_file = dir.join("key.pem");
        let key = read_or_make(&key_file, || {
            let key = KeyPair::generate().map_err(|cause| broken(&key_file, cause))?;
            Ok(key.serialize_pem())
        })?;
        let key = KeyPair::from_pem(&key).map_err(|cause| broken(&key_file, cause))?;
        let secret_file = dir.join("secret");
        check_owner(&key_file)?;
        let secret = read_or_make_secret(&secret_file)?;
        let (fingerprint, tls) = tls_config(&key).map_err(|cause| broken(&key_file, cause))?;
        Ok(Self {
            fingerprint,
            secret_file,
            secret,
            tls,
        })
    }
}

type Boxed = Box<dyn std::error::Error + Send + Sync>;

/// Makes the TLS configuration. Its certificate is new at each start; only its key counts.
pub(crate) fn tls_config(key: &KeyPair) -> Result<(Fingerprint, Arc<ServerConfig>), Boxed> {
    let mut params = CertificateParams::new(Vec::new())?;
    params
        .distinguished_name
        .push(DnType::CommonName, "posthaste relay");
    let certificate = params.self_signed(key)?.der().clone();
    let fingerprint = fingerprint_of(&certificate)?;
    let private = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let mut config = ServerConfig::builder_with_provider(Arc::new(crypto_provider()))
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], private)?;
    // Nobody comes back with a ticket: clients keep their connections.
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok((fingerprint, Arc::new(config)))
}

fn broken(file: &Path, cause: impl Into<Boxed>) -> Error {
    Error::new(ErrorKind::Invalid, "use", file.display().to_string())
        .cause(cause)
        .hint("restore it, or remove it to get a new identity that every client must pin again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn an_identity_stays_and_is_for_its_owner_only() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("identity");
        let (first, again) = (Identity::open(&dir).unwrap(), Identity::open(&dir).unwrap());
        assert_eq!(first.fingerprint, again.fingerprint);
        assert_eq!(first.secret, again.secret);
        for file in fs::read_dir(&dir).unwrap() {
            assert_eq!(
                file.unwrap().metadata().unwrap().permissions().mode() & 0o077,
                0
            );
        }
        fs::write(dir.join("key.pem"), "junk").unwrap();
        assert!(Identity::open(&dir).is_err());
    }
}
