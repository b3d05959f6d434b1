//! Requests that no client of ours makes.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::support::running::Running;

/// Sends bytes over TCP or TLS as they are, and reads until the relay closes.
pub async fn send_raw(relay: &Running, bytes: &[u8], tls: bool) -> Vec<u8> {
    let mut answer = Vec::new();
    let stream = TcpStream::connect(relay.local).await.unwrap();
    let exchange = async {
        if tls {
            let mut stream = tls_connector()
                .connect("relay".try_into().unwrap(), stream)
                .await
                .unwrap();
            let _ = stream.write_all(bytes).await;
            let _ = stream.shutdown().await;
            let _ = stream.read_to_end(&mut answer).await;
        } else {
            let mut stream = stream;
            let _ = stream.write_all(bytes).await;
            let _ = stream.shutdown().await;
            let _ = stream.read_to_end(&mut answer).await;
        }
    };
    timeout(Duration::from_secs(120), exchange)
        .await
        .expect("the relay hung on garbage");
    answer
}

/// Accepts any key: these tests are about what comes after the handshake.
fn tls_connector() -> tokio_rustls::TlsConnector {
    use rustls::{
        DigitallySignedStruct, Error, SignatureScheme,
        client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        pki_types::{CertificateDer, ServerName, UnixTime},
    };
    #[derive(Debug)]
    struct Anybody;
    impl ServerCertVerifier for Anybody {
        fn verify_server_cert(
            &self,
            _: &CertificateDer<'_>,
            _: &[CertificateDer<'_>],
            _: &ServerName<'_>,
            _: &[u8],
            _: UnixTime,
        ) -> Result<ServerCertVerified, Error> {
            Ok(ServerCertVerified::assertion())
        }
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }
        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &CertificateDer<'_>,
            _: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, Error> {
            Ok(HandshakeSignatureValid::assertion())
        }
        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            rustls::crypto::ring::default_provider()
                .signature_verification_algorithms
                .supported_schemes()
        }
    }
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(std::sync::Arc::new(Anybody))
        .with_no_client_auth();
    tokio_rustls::TlsConnector::from(std::sync::Arc::new(config))
}
