//! Expected checksums of files, compared with the destination at the end.

use futures_util::StreamExt;
use posthaste_endpoint::{Endpoint, Error, ErrorKind, Locus, Result};

/// Algorithms by the names that people write, with their digits in hexadecimal.
const ALGORITHMS: [(&str, Algorithm, usize); 5] = [
    ("adler32", Algorithm::Adler32, 8),
    ("crc32", Algorithm::Crc32, 8),
    ("crc32c", Algorithm::Crc32c, 8),
    ("md5", Algorithm::Md5, 32),
    ("sha256", Algorithm::Sha256, 64),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Adler32,
    Crc32,
    Crc32c,
    Md5,
    Sha256,
}

/// Expected checksum of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Expected {
    algorithm: Algorithm,
    name: &'static str,
    /// Hexadecimal value in lower case.
    value: String,
}

impl std::fmt::Display for Expected {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.name, self.value)
    }
}

impl Expected {
    /// Parses an algorithm's name and a hexadecimal value. Leading zeros may be missing, as in many
    /// programs' output.
    ///
    /// # Errors
    /// The reason why it is no checksum.
    pub(crate) fn read(algorithm: &str, value: &str) -> core::result::Result<Self, String> {
        let plain: String = algorithm
            .chars()
            .filter(|c| *c != '-')
            .map(|c| c.to_ascii_lowercase())
            .collect();
        let known = ALGORITHMS.iter().find(|(name, _, _)| *name == plain);
        let Some(&(name, algorithm, digits)) = known else {
            let names: Vec<&str> = ALGORITHMS.iter().map(|(name, _, _)| *name).collect();
            return Err(format!(
                "the checksum `{}` is not known: there are {}",
                algorithm.escape_debug(),
                names.join(", ")
            ));
        };
        let value = value.trim().to_ascii_lowercase();
        let is_hex = value.bytes().all(|byte| byte.is_ascii_hexdigit());
        if value.is_empty() || value.len() > digits || !is_hex {
            return Err(format!(
                "`{}` is no {name} in hexadecimal",
                value.escape_debug()
            ));
        }
        Ok(Self {
            algorithm,
            name,
            value: format!("{value:0>digits$}"),
        })
    }

    /// Parses its `Display` form.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for anything else.
    fn restore(text: &str) -> Result<Self> {
        let (algorithm, value) = text.split_once(':').unwrap_or((text, ""));
        Self::read(algorithm, value)
            .map_err(|cause| Error::new(ErrorKind::Invalid, "read", "a checksum").cause(cause))
    }

    /// Reads back a file at an endpoint and compares it.
    ///
    /// # Errors
    /// [`ErrorKind::Corrupt`] at [`Locus::Destination`] if it differs, [`ErrorKind::NotFound`] if
    /// it is missing, and the endpoint's.
    async fn compare(&self, endpoint: &dyn Endpoint) -> Result<()> {
        let at = |error: Error| error.at(Locus::Destination);
        let shown = endpoint.show(b"");
        let entry = endpoint.stat(b"", true).await.map_err(at)?;
        let entry = entry.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "verify", shown.clone()).at(Locus::Destination)
        })?;
        let mut sum = Sum::new(self.algorithm);
        if entry.size > 0 {
            let reader = endpoint.open(b"", &entry).await.map_err(at)?;
            let mut bytes = reader.read(0..entry.size).await.map_err(at)?;
            while let Some(some) = bytes.next().await {
                sum.add(&some.map_err(at)?);
            }
        }
        let found = sum.value();
        if found == self.value {
            return Ok(());
        }
        let why = format!(
            "{self} was to be there, and {}:{found} is: it was something else at its source, or was damaged",
            self.name
        );
        Err(at(
            Error::new(ErrorKind::Corrupt, "verify", shown).cause(why)
        ))
    }
}

/// Expected size and checksum of a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Wanted {
    /// Expected checksum.
    pub(crate) sum: Option<Expected>,
    /// Expected size.
    pub(crate) bytes: Option<u64>,
}

impl Wanted {
    /// Returns the text form: `adler32:0123abcd`, `3000000`, or both separated by a space. Returns
    /// none if nothing is expected.
    pub(crate) fn to_text(&self) -> Option<String> {
        let words = [
            self.sum.as_ref().map(ToString::to_string),
            self.bytes.map(|bytes| bytes.to_string()),
        ];
        let words: Vec<String> = words.into_iter().flatten().collect();
        (!words.is_empty()).then(|| words.join(" "))
    }

    /// Parses the form of [`Wanted::to_text`].
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for anything else.
    pub(super) fn restore(text: &str) -> Result<Self> {
        let mut wanted = Self::default();
        for word in text.split(' ') {
            match word.parse() {
                Ok(bytes) => wanted.bytes = Some(bytes),
                Err(_) => wanted.sum = Some(Expected::restore(word)?),
            }
        }
        Ok(wanted)
    }

    /// Reads back the file at an endpoint if a checksum is given, and compares it.
    ///
    /// # Errors
    /// Errors of [`Expected::compare`].
    pub(super) async fn compare(&self, endpoint: &dyn Endpoint) -> Result<()> {
        if let Some(bytes) = self.bytes {
            let at = |error: Error| error.at(Locus::Destination);
            let shown = endpoint.show(b"");
            let entry = endpoint.stat(b"", true).await.map_err(at)?;
            let entry =
                entry.ok_or_else(|| at(Error::new(ErrorKind::NotFound, "verify", &*shown)))?;
            if entry.size != bytes {
                let why = format!(
                    "{bytes} bytes were to be there, and {} are: it was something else at its source, or was damaged",
                    entry.size
                );
                return Err(at(
                    Error::new(ErrorKind::Corrupt, "verify", shown).cause(why)
                ));
            }
        }
        match &self.sum {
            Some(sum) => sum.compare(endpoint).await,
            None => Ok(()),
        }
    }
}

/// Incremental checksum.
enum Sum {
    Adler32(adler2::Adler32),
    Crc(crc_fast::Digest),
    Md5(md5::Md5),
    Sha256(ring::digest::Context),
}

impl Sum {
    fn new(algorithm: Algorithm) -> Self {
        use md5::Digest as _;
        match algorithm {
            Algorithm::Adler32 => Self::Adler32(adler2::Adler32::new()),
            Algorithm::Crc32 => {
                Self::Crc(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32IsoHdlc))
            }
            Algorithm::Crc32c => {
                Self::Crc(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
            }
            Algorithm::Md5 => Self::Md5(md5::Md5::new()),
            Algorithm::Sha256 => Self::Sha256(ring::digest::Context::new(&ring::digest::SHA256)),
        }
    }

    fn add(&mut self, bytes: &[u8]) {
        use md5::Digest as _;
        match self {
            Self::Adler32(sum) => sum.write_slice(bytes),
            Self::Crc(sum) => sum.update(bytes),
            Self::Md5(sum) => sum.update(bytes),
            Self::Sha256(sum) => sum.update(bytes),
        }
    }

    /// Returns the value in lower-case hexadecimal.
    fn value(self) -> String {
        use md5::Digest as _;
        match self {
            Self::Adler32(sum) => format!("{:08x}", sum.checksum()),
            Self::Crc(sum) => format!("{:08x}", sum.finalize()),
            Self::Md5(sum) => crate::secrets::to_hex(&sum.finalize()),
            Self::Sha256(sum) => crate::secrets::to_hex(sum.finish().as_ref()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checksums of the digits 1 to 9, from the specifications and other programs.
    const NINE: [(&str, &str); 5] = [
        ("adler32", "091e01de"),
        ("crc32", "cbf43926"),
        ("crc32c", "e3069283"),
        ("md5", "25f9e794323b453885f5181f1b624d0b"),
        (
            "sha256",
            "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225",
        ),
    ];

    #[test]
    fn sums_are_those_of_other_programs() {
        for (name, value) in NINE {
            let (_, algorithm, _) = ALGORITHMS
                .iter()
                .find(|(known, _, _)| *known == name)
                .unwrap();
            let mut sum = Sum::new(*algorithm);
            sum.add(b"1234");
            sum.add(b"56789");
            assert_eq!(sum.value(), value, "{name}");
        }
    }

    #[test]
    fn what_is_wanted_is_restored_as_it_was_written_down() {
        let sum = Expected::read("adler32", "91e01de").unwrap();
        for (sum, bytes, text) in [
            (None, None, None),
            (Some(&sum), None, Some("adler32:091e01de")),
            (None, Some(9), Some("9")),
            (Some(&sum), Some(9), Some("adler32:091e01de 9")),
        ] {
            let sum = sum.cloned();
            let wanted = Wanted { sum, bytes };
            assert_eq!(wanted.to_text().as_deref(), text);
            if let Some(text) = text {
                assert_eq!(Wanted::restore(text).unwrap(), wanted);
            }
        }
        assert!(Wanted::restore("nine").is_err());
    }

    #[tokio::test]
    async fn a_file_of_another_size_is_not_what_was_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"123456789").unwrap();
        let location = posthaste_endpoint::Location::Local(path);
        let rules = posthaste_endpoint::posix::DraftRules::default();
        let access = posthaste_endpoint::Access::default();
        let endpoint = access.open(location, rules).await.unwrap();
        let sum = Expected::read("adler32", "91e01de").ok();
        for (bytes, is_it) in [(9, true), (10, false), (8, false)] {
            let wanted = Wanted {
                sum: sum.clone(),
                bytes: Some(bytes),
            };
            let compared = wanted.compare(&*endpoint).await;
            match is_it {
                true => compared.unwrap(),
                false => {
                    let error = compared.unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Corrupt);
                    assert!(error.to_string().contains("and 9 are"), "{error}");
                }
            }
        }
    }

    #[test]
    fn checksums_are_read_as_people_write_them() {
        let read = |algorithm, value| Expected::read(algorithm, value).map(|sum| sum.to_string());
        assert_eq!(read("ADLER32", "91E01DE").unwrap(), "adler32:091e01de");
        assert_eq!(
            read("SHA-256", NINE[4].1).unwrap(),
            format!("sha256:{}", NINE[4].1)
        );
        for (algorithm, value) in [
            ("adler32", ""),
            ("adler32", "xyz"),
            ("md5", "0"),
            ("sha1", "00"),
        ] {
            let is_short_md5 = algorithm == "md5";
            assert_eq!(
                read(algorithm, value).is_err(),
                !is_short_md5,
                "{algorithm}:{value}"
            );
        }
        assert!(read("crc32", "123456789").is_err());
    }
}
