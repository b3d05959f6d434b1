//! ClassAds in HTCondor's format for plug-ins: a row of `[ Name = expression; … ]`. A requested
//! name whose expression is no text is skipped, however it is nested.

use std::fmt::Write as _;

/// Ads in one file, at most: a job names no more by URL.
const ADS_MAX: usize = 1 << 20;

/// ClassAd: its names whose expression is a text, with that text; and the names of other
/// expressions, once for each.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Ad {
    texts: Vec<(String, Vec<u8>)>,
    others: Vec<String>,
}

/// Meaning of a name in an ad.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Meaning<'a> {
    /// Text.
    Text(&'a [u8]),
    /// Expression that would need evaluation.
    Other,
    /// Missing name.
    Absent,
}

impl Ad {
    /// Returns the meaning of `name`, ignoring case.
    pub(super) fn get(&self, name: &str) -> Meaning<'_> {
        let is_it = |other: &str| other.eq_ignore_ascii_case(name);
        let found = self.texts.iter().rev().find(|(other, _)| is_it(other));
        match found {
            Some((_, text)) => Meaning::Text(text),
            None if self.others.iter().any(|other| is_it(other)) => Meaning::Other,
            None => Meaning::Absent,
        }
    }
}

/// Reads all ads of a file.
///
/// # Errors
/// Describes the mistake, with its byte offset.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Ad>, String> {
    let mut reader = Reader { bytes, at: 0 };
    let mut ads = Vec::new();
    loop {
        reader.skip_blank()?;
        match reader.peek() {
            None => return Ok(ads),
            Some(b',') if !ads.is_empty() => reader.at += 1,
            Some(b'[') if ads.len() < ADS_MAX => ads.push(reader.ad()?),
            Some(b'[') => return Err(format!("more than {ADS_MAX} ads")),
            Some(_) => return Err(reader.wrong("a ClassAd begins with `[`")),
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn wrong(&self, what: &str) -> String {
        format!("at byte {}: {what}", self.at)
    }

    /// Skips blanks and comments.
    fn skip_blank(&mut self) -> Result<(), String> {
        loop {
            let rest = &self.bytes[self.at..];
            if rest.first().is_some_and(u8::is_ascii_whitespace) || rest.first() == Some(&0) {
                self.at += 1;
            } else if rest.starts_with(b"//") {
                let end = rest.iter().position(|byte| *byte == b'\n');
                self.at += end.unwrap_or(rest.len());
            } else if rest.starts_with(b"/*") {
                let end = rest.windows(2).skip(2).position(|pair| pair == b"*/");
                let end = end.ok_or_else(|| self.wrong("a comment has no end"))?;
                self.at += end + 4;
            } else {
                return Ok(());
            }
        }
    }

    fn ad(&mut self) -> Result<Ad, String> {
        self.at += 1;
        let mut ad = Ad::default();
        loop {
            self.skip_blank()?;
            match self.peek() {
                Some(b']') => {
                    self.at += 1;
                    return Ok(ad);
                }
                Some(b';') => self.at += 1,
                Some(_) => self.attribute(&mut ad)?,
                None => return Err(self.wrong("the ad has no end")),
            }
        }
    }

    fn attribute(&mut self, ad: &mut Ad) -> Result<(), String> {
        let name = self.name()?;
        self.skip_blank()?;
        if self.peek() != Some(b'=') {
            return Err(self.wrong(&format!("`{name}` without `=`")));
        }
        self.at += 1;
        self.skip_blank()?;
        let text = match self.peek() {
            Some(b'"') => Some(self.quoted(b'"')?),
            _ => None,
        };
        self.skip_blank()?;
        match (text, self.peek()) {
            (Some(text), Some(b';' | b']')) => ad.texts.push((name, text)),
            // The expression goes on after the text, or is no text.
            _ => {
                self.skip_expression()?;
                ad.others.push(name);
            }
        }
        Ok(())
    }

    fn name(&mut self) -> Result<String, String> {
        if self.peek() == Some(b'\'') {
            let name = self.quoted(b'\'')?;
            return Ok(String::from_utf8_lossy(&name).into_owned());
        }
        let rest = &self.bytes[self.at..];
        let is_of_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let length = rest.iter().take_while(|byte| is_of_name(byte)).count();
        if length == 0 {
            return Err(self.wrong("no name of an attribute"));
        }
        self.at += length;
        Ok(String::from_utf8_lossy(&rest[..length]).into_owned())
    }

    /// Returns the text between two marks, with its escapes undone.
    fn quoted(&mut self, mark: u8) -> Result<Vec<u8>, String> {
        let begin = self.at;
        self.at += 1;
        let mut text = Vec::new();
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                b'\\' => text.push(self.escaped()?),
                byte if byte == mark => return Ok(text),
                byte => text.push(byte),
            }
        }
        self.at = begin;
        Err(self.wrong("a text has no end"))
    }

    fn escaped(&mut self) -> Result<u8, String> {
        let rest = &self.bytes[self.at..];
        let octal = rest.iter().take(3);
        let octal: Vec<u8> = octal
            .take_while(|byte| (b'0'..=b'7').contains(byte))
            .copied()
            .collect();
        if !octal.is_empty() {
            let value = octal
                .iter()
                .fold(0, |value, digit| value * 8 + u32::from(digit - b'0'));
            let byte = u8::try_from(value).ok().filter(|byte| *byte != 0);
            let byte = byte.ok_or_else(|| self.wrong("an escape is no byte"))?;
            self.at += octal.len();
            return Ok(byte);
        }
        let first = *rest
            .first()
            .ok_or_else(|| self.wrong("a text has no end"))?;
        self.at += 1;
        Ok(match first {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 8,
            b'f' => 12,
            other => other,
        })
    }

    /// Skips the rest of an expression, up to the `;` or `]` that ends it.
    fn skip_expression(&mut self) -> Result<(), String> {
        let mut depth = 0_u32;
        loop {
            self.skip_blank()?;
            match self.peek() {
                None => return Err(self.wrong("the ad has no end")),
                Some(b';' | b']') if depth == 0 => return Ok(()),
                Some(mark @ (b'"' | b'\'')) => {
                    self.quoted(mark)?;
                }
                Some(b'[' | b'{' | b'(') => {
                    depth += 1;
                    self.at += 1;
                }
                Some(b']' | b'}' | b')') => {
                    depth = depth
                        .checked_sub(1)
                        .ok_or_else(|| self.wrong("a bracket too many"))?;
                    self.at += 1;
                }
                Some(_) => self.at += 1,
            }
        }
    }
}

/// Writer of one ad.
#[derive(Debug)]
pub(super) struct Writer(Vec<u8>);

impl Writer {
    pub(super) fn new() -> Self {
        Self(b"[ ".to_vec())
    }

    /// Writes a text, whatever bytes it has.
    pub(super) fn text(&mut self, name: &str, text: &[u8]) -> &mut Self {
        self.0.extend_from_slice(format!("{name} = \"").as_bytes());
        for byte in text {
            match byte {
                b'"' | b'\\' => self.0.extend_from_slice(&[b'\\', *byte]),
                byte if byte.is_ascii_control() => {
                    self.0.extend_from_slice(format!("\\{byte:03o}").as_bytes());
                }
                byte => self.0.push(*byte),
            }
        }
        self.0.extend_from_slice(b"\"; ");
        self
    }

    /// Writes any other expression verbatim: a number, `true`, another ad.
    pub(super) fn plain(&mut self, name: &str, value: impl std::fmt::Display) -> &mut Self {
        let mut text = String::new();
        let _ = write!(text, "{name} = {value}; ");
        self.0.extend_from_slice(text.as_bytes());
        self
    }

    /// Writes an ad inside the ad, alone or in a list.
    pub(super) fn nested(&mut self, name: &str, ad: &[u8], is_list: bool) -> &mut Self {
        let (open, close): (&[u8], &[u8]) = if is_list { (b"{ ", b" }") } else { (b"", b"") };
        self.0.extend_from_slice(format!("{name} = ").as_bytes());
        self.0.extend_from_slice(open);
        self.0.extend_from_slice(ad);
        self.0.extend_from_slice(close);
        self.0.extend_from_slice(b"; ");
        self
    }

    pub(super) fn end(mut self) -> Vec<u8> {
        self.0.push(b']');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text<'a>(ad: &'a Ad, name: &str) -> &'a str {
        let Meaning::Text(text) = ad.get(name) else {
            panic!("{name} is no text in {ad:?}");
        };
        std::str::from_utf8(text).unwrap()
    }

    #[test]
    fn what_htcondor_writes_is_read() {
        let ads = read(
            b"[ LocalFileName = \"/var/lib/condor/execute/dir_1/a b\"; Url = \"s3://b/a%20b\" ]\
              [ Url = \"sftp://h/x\"; LocalFileName = \"/e/\\\"x\\\"\\101\\n\" ]\n",
        )
        .unwrap();
        assert_eq!(text(&ads[0], "url"), "s3://b/a%20b");
        assert_eq!(
            text(&ads[0], "LOCALFILENAME"),
            "/var/lib/condor/execute/dir_1/a b"
        );
        assert_eq!(text(&ads[1], "LocalFileName"), "/e/\"x\"A\n");
        assert_eq!(read(b" \n").unwrap(), []);
    }

    #[test]
    fn the_rest_of_the_language_is_passed_over() {
        let ads = read(
            b"/* of 24.0 */ [ PluginData = [ Url = \"no\"; a = { \"]\", 1, (2 + x[3]) } ]; // ;\n\
              'odd name' = ifThenElse(a =?= undefined, \"a;b\", 3.5e-1); Url = \"a://b\"; ;\
              LocalFileName = strcat(\"/a\", \"b\"); Last = true ], [ x = \"a\" + \"b\" ]",
        )
        .unwrap();
        assert_eq!(text(&ads[0], "Url"), "a://b");
        assert_eq!(ads[0].get("LocalFileName"), Meaning::Other);
        assert_eq!(ads[0].get("a"), Meaning::Absent);
        assert_eq!(ads[1].get("x"), Meaning::Other);
        assert_eq!(ads[1].get("Url"), Meaning::Absent);
    }

    #[test]
    fn what_is_no_row_of_ads_is_refused_with_its_place() {
        for (wrong, said) in [
            ("Url = \"a\"", "at byte 0"),
            ("[ Url = \"a", "no end"),
            ("[ Url \"a\" ]", "without `=`"),
            ("[ Url = (a ]", "no end"),
            ("[ Url = a) ]", "a bracket too many"),
            ("[ = 1 ]", "no name"),
            ("[ a = 1; /* ]", "a comment has no end"),
            ("[ a = \"\\777\" ]", "no byte"),
        ] {
            let error = read(wrong.as_bytes()).unwrap_err();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let odd = b"a \"quoted\" \\path\n\xff".as_slice();
        let mut inner = Writer::new();
        inner.plain("ErrorCode", 5);
        let mut ad = Writer::new();
        ad.text("Name", odd)
            .plain("Good", true)
            .nested("Data", &inner.end(), true);
        let ads = read(&ad.end()).unwrap();
        assert_eq!(ads[0].get("Name"), Meaning::Text(odd));
        assert_eq!(ads[0].get("Data"), Meaning::Other);
    }
}
