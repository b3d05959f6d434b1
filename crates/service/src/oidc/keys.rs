//! Public keys of an issuer (RFC 7517), and the check whether one of them made a signature (RFC
//! 7518, RFC 8037).

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;

/// Keys of one issuer: current, past and future ones.
const KEYS_MAX: usize = 64;

/// Signature algorithm. None has a shared secret: a service that may check such a signature could
/// make one, and one that takes a public key for the secret admits everybody. `none` is missing as
/// well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rs256,
    Rs384,
    Rs512,
    Ps256,
    Es256,
    Es384,
    EdDsa,
}

impl Algorithm {
    const ALL: [(&'static str, Self); 7] = [
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("PS256", Self::Ps256),
        ("ES256", Self::Es256),
        ("ES384", Self::Es384),
        ("EdDSA", Self::EdDsa),
    ];

    pub(super) fn read(name: &str) -> Option<Self> {
        let found = Self::ALL.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, algorithm)| algorithm)
    }
}

/// Result of checking a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Made by a key of the issuer.
    Good,
    /// The issuer has no such key.
    Unknown,
    /// Not made by the issuer's key.
    Bad,
}

/// Keys as issuers write them.
#[derive(Debug, Deserialize)]
pub(super) struct Written {
    keys: Vec<serde_json::Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WrittenKey {
    kty: String,
    kid: Option<String>,
    #[serde(rename = "use")]
    usage: Option<String>,
    alg: Option<String>,
    crv: String,
    n: String,
    e: String,
    x: String,
    y: String,
}

#[derive(Debug)]
enum Public {
    Rsa { n: Vec<u8>, e: Vec<u8> },
    P256(Vec<u8>),
    P384(Vec<u8>),
    Ed25519(Vec<u8>),
}

#[derive(Debug)]
struct Key {
    kid: Option<String>,
    /// Only algorithm of the key, if it states one.
    alg: Option<String>,
    public: Public,
}

/// Keys of an issuer.
#[derive(Debug)]
pub(super) struct Keys(Vec<Key>);

impl Keys {
    /// Returns the keys with a known algorithm.
    pub(super) fn new(written: Written) -> Self {
        let known = written.keys.into_iter().filter_map(|key| {
            let key = serde_json::from_value::<WrittenKey>(key).ok()?;
            key.understand()
        });
        Self(known.take(KEYS_MAX).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks that the named key made the signature, or any key if none is named.
    pub(super) fn check(
        &self,
        algorithm: Algorithm,
        kid: Option<&str>,
        signed: &[u8],
        signature: &[u8],
    ) -> Verdict {
        let is_meant = |key: &&Key| kid.is_none() || key.kid.as_deref() == kid;
        let mut meant = self.0.iter().filter(is_meant).peekable();
        if meant.peek().is_none() {
            return Verdict::Unknown;
        }
        if meant.any(|key| key.made(algorithm, signed, signature)) {
            Verdict::Good
        } else if kid.is_none() {
            // The key may be new.
            Verdict::Unknown
        } else {
            Verdict::Bad
        }
    }
}

impl WrittenKey {
    fn understand(self) -> Option<Key> {
        if self.usage.as_deref().is_some_and(|usage| usage != "sig") {
            return None;
        }
        let bytes = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).ok();
        let point = |bytes_each: usize| {
            let (x, y) = (bytes(&self.x)?, bytes(&self.y)?);
            let is_whole = x.len() == bytes_each && y.len() == bytes_each;
            is_whole.then(|| [&[4], &x[..], &y].concat())
        };
        let public = match (&*self.kty, &*self.crv) {
            ("RSA", _) => Public::Rsa {
                n: bytes(&self.n)?,
                e: bytes(&self.e)?,
            },
            ("EC", "P-256") => Public::P256(point(32)?),
            ("EC", "P-384") => Public::P384(point(48)?),
            ("OKP", "Ed25519") => Public::Ed25519(bytes(&self.x)?),
            _ => return None,
        };
        Some(Key {
            kid: self.kid,
            alg: self.alg,
            public,
        })
    }
}

impl Key {
    fn made(&self, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> bool {
        let says = self.alg.as_deref();
        if says.is_some_and(|alg| Algorithm::read(alg) != Some(algorithm)) {
            return false;
        }
        let checked = match (&self.public, algorithm) {
            (Public::Rsa { n, e }, Algorithm::Rs256) => {
                rsa(n, e).verify(&signature::RSA_PKCS1_2048_8192_SHA256, signed, signature)
            }
            (Public::Rsa { n, e }, Algorithm::Rs384) => {
                rsa(n, e).verify(&signature::RSA_PKCS1_2048_8192_SHA384, signed, signature)
            }
            (Public::Rsa { n, e }, Algorithm::Rs512) => {
                rsa(n, e).verify(&signature::RSA_PKCS1_2048_8192_SHA512, signed, signature)
            }
            (Public::Rsa { n, e }, Algorithm::Ps256) => {
                rsa(n, e).verify(&signature::RSA_PSS_2048_8192_SHA256, signed, signature)
            }
            (Public::P256(point), Algorithm::Es256) => {
                UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
                    .verify(signed, signature)
            }
            (Public::P384(point), Algorithm::Es384) => {
                UnparsedPublicKey::new(&signature::ECDSA_P384_SHA384_FIXED, point)
                    .verify(signed, signature)
            }
            (Public::Ed25519(point), Algorithm::EdDsa) => {
                UnparsedPublicKey::new(&signature::ED25519, point).verify(signed, signature)
            }
            (Public::Rsa { .. } | Public::P256(_) | Public::P384(_) | Public::Ed25519(_), _) => {
                return false;
            }
        };
        checked.is_ok()
    }
}

fn rsa<'a>(n: &'a [u8], e: &'a [u8]) -> RsaPublicKeyComponents<&'a [u8]> {
    RsaPublicKeyComponents { n, e }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Uses RFC 8037, appendix A.4.
    #[test]
    fn a_signature_is_good_under_its_own_key_and_algorithm_alone() {
        let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        let signed = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
        let signature = BASE64_URL_SAFE_NO_PAD
            .decode("hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg")
            .unwrap();
        let keys = |key: serde_json::Value| {
            let written = json!({ "keys": [{ "kty": "oct", "k": "AAAA" }, key] });
            Keys::new(serde_json::from_value(written).unwrap())
        };
        let key = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "one", "x": x });
        let check = |keys: &Keys, algorithm, kid, signed: &[u8]| {
            keys.check(algorithm, kid, signed, &signature)
        };
        let known = keys(key.clone());
        assert_eq!(known.0.len(), 1);
        for kid in [None, Some("one")] {
            assert_eq!(check(&known, Algorithm::EdDsa, kid, signed), Verdict::Good);
        }
        assert_eq!(
            check(&known, Algorithm::EdDsa, Some("two"), signed),
            Verdict::Unknown
        );
        let bad = [
            check(&known, Algorithm::EdDsa, Some("one"), b"another text"),
            check(&known, Algorithm::Es256, Some("one"), signed),
            check(&known, Algorithm::Rs256, Some("one"), signed),
        ];
        assert_eq!(bad, [Verdict::Bad; 3]);
        // The algorithm that a key states is binding.
        let mut other = key.clone();
        other["alg"] = "ES256".into();
        let verdict = check(&keys(other), Algorithm::EdDsa, Some("one"), signed);
        assert_eq!(verdict, Verdict::Bad);
        let mut encrypts = key;
        encrypts["use"] = "enc".into();
        assert!(keys(encrypts).is_empty());
    }

    #[test]
    fn no_algorithm_has_a_shared_secret_or_nothing_behind_it() {
        for name in ["none", "None", "HS256", "HS384", "HS512", "rs256", ""] {
            assert_eq!(Algorithm::read(name), None, "{name}");
        }
        for (name, algorithm) in Algorithm::ALL {
            assert_eq!(Algorithm::read(name), Some(algorithm));
        }
    }
}
