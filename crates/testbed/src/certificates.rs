use std::{fs, path::Path};

use anyhow::{Context, Result};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// Names of the files [`write`] makes.
pub(crate) const AUTHORITY: &str = "ca.pem";
pub(crate) const CERTIFICATE: &str = "server.pem";
pub(crate) const KEY: &str = "server.key";

/// Makes an authority and a certificate of 127.0.0.1 and localhost signed by it, in `folder`.
pub(crate) fn write(folder: &Path) -> Result<()> {
    let mut params = CertificateParams::new(Vec::new()).context("describe an authority")?;
    // OpenSSL takes a certificate of the same name as its issuer for a self-signed one.
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, "posthaste testbed authority");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(names)?.signed_by(&key, &authority)?;
    fs::write(folder.join(AUTHORITY), authority.pem())?;
    fs::write(folder.join(CERTIFICATE), certificate.pem())?;
    fs::write(folder.join(KEY), key.serialize_pem())?;
    Ok(())
}
