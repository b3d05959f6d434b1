//! TLS that trusts exactly one key.

use std::{error, fmt, io, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use super::Fingerprint;
use crate::{Error, ErrorKind, Locus};

/// Returns the fingerprint of the key in `certificate`.
///
/// # Errors
/// The error of rustls if the bytes are not an X.509 certificate.
pub fn fingerprint_of(certificate: &CertificateDer<'_>) -> Result<Fingerprint, rustls::Error> {
    let parsed = ParsedCertificate::try_from(certificate)?;
    // This suite is defined with SHA-256, so its hash is the SHA-256 the TLS stack already has.
    let rustls::SupportedCipherSuite::Tls13(suite) = ring::cipher_suite::TLS13_AES_128_GCM_SHA256
    else {
        return Err(rustls::Error::General("no SHA-256".into()));
    };
    let hash = suite
        .common
        .hash_provider
        .hash(&parsed.subject_public_key_info());
    let sha256 = hash.as_ref().try_into();
    sha256
        .map(Fingerprint::new)
        .map_err(|_| rustls::Error::General("no SHA-256".into()))
}

/// Error for a relay whose key is not the pinned one.
#[derive(Debug)]
struct OtherKey {
    shown: Fingerprint,
}

impl fmt::Display for OtherKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "its key is {}", self.shown)
    }
}

impl error::Error for OtherKey {}

#[derive(Debug)]
struct Pinned {
    fingerprint: Fingerprint,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown = fingerprint_of(end_entity)?;
        if shown == self.fingerprint {
            return Ok(ServerCertVerified::assertion());
        }
        let other = CertificateError::Other(OtherError(Arc::new(OtherKey { shown })));
        Err(rustls::Error::InvalidCertificate(other))
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("only TLS 1.3 is spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let schemes = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, cert, dss, schemes)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

/// Returns the ciphers of TLS 1.3, the fastest on this machine first: AES with 128 bits if the
/// processor has AES instructions, else `ChaCha20`.
#[must_use]
pub fn crypto_provider() -> CryptoProvider {
    use ring::cipher_suite::{
        TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
    };
    #[cfg(target_arch = "x86_64")]
    let knows_aes = std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    let knows_aes = std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let knows_aes = false;
    let mut provider = ring::default_provider();
    provider.cipher_suites = if knows_aes {
        vec![
            TLS13_AES_128_GCM_SHA256,
            TLS13_AES_256_GCM_SHA384,
            TLS13_CHACHA20_POLY1305_SHA256,
        ]
    } else {
        vec![
            TLS13_CHACHA20_POLY1305_SHA256,
            TLS13_AES_128_GCM_SHA256,
            TLS13_AES_256_GCM_SHA384,
        ]
    };
    provider
}

/// Converts the error of a failed handshake. A key other than the pinned one is not a network
/// failure.
pub(crate) fn handshake_error(shown: &str, cause: io::Error) -> Error {
    let tls = cause
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    if let Some(rustls::Error::InvalidCertificate(CertificateError::Other(other))) = tls
        && let Some(other) = other.0.downcast_ref::<OtherKey>()
    {
        return Error::new(ErrorKind::Unauthenticated, "connect to", shown)
            .at(Locus::Network)
            .cause(other.to_string())
            .hint("not the pinned one: if the relay was set up anew, add it again; if not, somebody else answers there");
    }
    let error = Error::io("connect to", shown, cause).at(Locus::Network);
    if matches!(error.kind(), ErrorKind::Unreachable | ErrorKind::TimedOut) {
        return error;
    }
    Error::new(ErrorKind::Unreachable, "connect to", shown)
        .at(Locus::Network)
        .cause(error)
        .hint("what answers there speaks no TLS 1.3: is it a relay?")
}

/// Builds a TLS 1.3 configuration that accepts only the key with `fingerprint`.
pub(crate) fn client_config(fingerprint: Fingerprint) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(crypto_provider());
    let verifier = Arc::new(Pinned {
        fingerprint,
        provider: Arc::clone(&provider),
    });
    Ok(ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}
