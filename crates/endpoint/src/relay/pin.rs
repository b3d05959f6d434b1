//! TLS that trusts exactly one key.

use std::{error, fmt, sync::Arc};

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, OtherError, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};

use super::Fingerprint;

/// The fingerprint of the key in `certificate`.
///
/// # Errors
/// rustls's, when the bytes are no X.509 certificate.
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

/// The relay showed another key than the one pinned.
#[derive(Debug)]
pub(super) struct OtherKey {
    pub(super) shown: Fingerprint,
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

/// A TLS 1.3 configuration that accepts only the key with `fingerprint`.
pub(super) fn client_config(fingerprint: Fingerprint) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(ring::default_provider());
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
