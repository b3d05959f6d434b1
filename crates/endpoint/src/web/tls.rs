//! Trust roots: the system's certificates and those a profile adds.

use std::{path::Path, sync::Arc};

use rustls::{
    ClientConfig, ConfigBuilder, DEFAULT_VERSIONS, RootCertStore, SupportedProtocolVersion,
    client::WantsClientCert, crypto::ring,
};
use rustls_pki_types::{CertificateDer, pem::PemObject};

use crate::{Error, ErrorKind, Result, config::read_small_file};

/// Returns TLS with the system's certificates (`SSL_CERT_FILE` and `SSL_CERT_DIR` as in OpenSSL)
/// and those of `ca_file`.
///
/// # Errors
/// [`ErrorKind::Invalid`] for a file without certificates; the system's errors.
pub(crate) fn client_config(ca_file: Option<&Path>) -> Result<ClientConfig> {
    client_config_of(DEFAULT_VERSIONS, ca_file)
}

/// Returns the client configuration for certain versions of TLS alone.
///
/// # Errors
/// See [`client_config`].
pub(crate) fn client_config_of(
    versions: &[&'static SupportedProtocolVersion],
    ca_file: Option<&Path>,
) -> Result<ClientConfig> {
    Ok(trusting(versions, trusted_roots(ca_file)?)?.with_no_client_auth())
}

fn trusting(
    versions: &[&'static SupportedProtocolVersion],
    roots: RootCertStore,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .map_err(|cause| Error::new(ErrorKind::Other, "set up", "TLS").cause(cause))?;
    Ok(config.with_root_certificates(roots))
}

/// Returns the configuration for a client of one server that is no store. It shows no certificate.
///
/// # Errors
/// See [`web_trust`].
pub fn web_tls(is_spoken: bool, ca_file: Option<&Path>) -> Result<ClientConfig> {
    Ok(web_trust(is_spoken, ca_file)?.with_no_client_auth())
}

/// Returns the configuration's builder before the client's certificate is chosen. If no TLS is
/// spoken, no certificates are needed, and there may be none.
///
/// # Errors
/// See [`trusted_roots`].
pub fn web_trust(
    is_spoken: bool,
    ca_file: Option<&Path>,
) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>> {
    let roots = if is_spoken {
        trusted_roots(ca_file)?
    } else {
        RootCertStore::empty()
    };
    trusting(DEFAULT_VERSIONS, roots)
}

/// Returns the system's certificates (`SSL_CERT_FILE` and `SSL_CERT_DIR` as in OpenSSL) and those
/// of `ca_file`.
///
/// # Errors
/// [`ErrorKind::Invalid`] for a file without certificates, and if there is none at all; the
/// system's.
pub fn trusted_roots(ca_file: Option<&Path>) -> Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let system = rustls_native_certs::load_native_certs();
    roots.add_parsable_certificates(system.certs);
    if let Some(path) = ca_file {
        let shown = path.to_string_lossy();
        let pem = read_small_file(path)
            .map_err(|cause| Error::io("read certificates from", &*shown, cause))?;
        let invalid = |cause| {
            Error::new(ErrorKind::Invalid, "read certificates from", &*shown)
                .cause(cause)
                .hint("ca_file holds certificates in PEM")
        };
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(&pem)
            .collect::<Result<_, _>>()
            .map_err(|cause| invalid(cause.to_string()))?;
        let (added, _) = roots.add_parsable_certificates(certificates);
        if added == 0 {
            return Err(invalid("it holds no certificate".to_owned()));
        }
    }
    if roots.is_empty() {
        return Err(
            Error::new(ErrorKind::Invalid, "read", "the system's certificates")
                .cause("there are none")
                .hint("install the package ca-certificates"),
        );
    }
    Ok(roots)
}
