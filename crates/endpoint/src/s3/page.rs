//! Pages of a listing, read in one pass, since parsing is most of the local cost of a listing.

use super::wire::decode_key;
use crate::{FileTime, dates, objects::listed_size, xml::walk};

/// Result of one request for keys, in the store's order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Page {
    pub objects: Vec<Object>,
    /// Prefixes into which keys were grouped, with their slash.
    pub prefixes: Vec<String>,
    /// Token for the next page; none on the last.
    pub next: Option<String>,
}

/// Object in a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Object {
    pub key: String,
    pub size: u64,
    pub etag: Option<Box<str>>,
    pub stored: Option<FileTime>,
    /// Modification time of the file itself, if listings report it.
    pub mtime: Option<FileTime>,
    pub mode: Option<u32>,
}

impl Page {
    /// Parses a store's answer.
    ///
    /// # Errors
    /// Description of the fault.
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let mut page = Self::default();
        let (mut object, mut sized) = (Object::default(), false);
        let (mut encoded, mut whole) = (false, false);
        let mut said = Said::default();
        walk(body, known_name, |ended| {
            let text = ended.text;
            match (ended.above, ended.name) {
                ("Contents", "Key") => object.key = std::mem::take(text),
                ("Contents", "Size") => {
                    object.size = listed_size(text);
                    sized = true;
                }
                ("Contents", "ETag") => object.etag = Some(text.as_str().into()),
                ("Contents", "LastModified") => object.stored = dates::parse_rfc3339(text),
                ("CommonPrefixes", "Prefix") => page.prefixes.push(std::mem::take(text)),
                ("ListBucketResult", "NextContinuationToken") => {
                    page.next = Some(std::mem::take(text)).filter(|next| !next.is_empty());
                }
                ("ListBucketResult", "NextMarker") => said.marker |= !text.is_empty(),
                ("ListBucketResult", "IsTruncated") => said.truncated = is_truncated(text)?,
                ("ListBucketResult", "KeyCount") => said.keys = text.trim().parse().ok(),
                ("ListBucketResult", "EncodingType") => {
                    encoded = text.trim().eq_ignore_ascii_case("url");
                }
                (_, "Contents") if !std::mem::take(&mut sized) => {
                    return Err(format!("no size of {}", object.key));
                }
                (_, "Contents") => page.objects.push(std::mem::take(&mut object)),
                (_, "ListBucketResult") => whole = true,
                _ => {}
            }
            Ok(())
        })?;
        if !whole {
            return Err("no whole listing".to_owned());
        }
        page.check(&said)?;
        if encoded {
            page.decode()?;
        }
        Ok(page)
    }

    /// Checks that the page is what it says of itself.
    fn check(&self, said: &Said) -> Result<(), String> {
        let goes_on = self.next.is_some() || said.marker;
        match said.truncated {
            Some(true) if self.next.is_none() => {
                return Err("there are more keys, and it doesn't say where".to_owned());
            }
            Some(false) if goes_on => {
                return Err("it says both that no more keys follow and where".to_owned());
            }
            None if said.marker && self.next.is_none() => {
                return Err(
                    "it says where more keys follow, in the words of another list".to_owned(),
                );
            }
            Some(_) | None => {}
        }
        let (objects, all) = (self.objects.len(), self.objects.len() + self.prefixes.len());
        // Some stores count no prefixes.
        match said.keys {
            Some(keys) if keys != objects && keys != all => {
                Err(format!("it says that it has {keys} keys, and has {all}"))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn decode(&mut self) -> Result<(), String> {
        let objects = self.objects.iter_mut().map(|object| &mut object.key);
        for key in objects.chain(&mut self.prefixes) {
            if key.bytes().any(|byte| matches!(byte, b'%' | b'+')) {
                *key = decode_key(key).ok_or("an unreadable key")?;
            }
        }
        Ok(())
    }
}

/// Statements of a page about itself.
#[derive(Debug, Default)]
struct Said {
    truncated: Option<bool>,
    /// Number of its keys and prefixes.
    keys: Option<usize>,
    /// True if it says where more keys follow as the older list does.
    marker: bool,
}

fn is_truncated(text: &str) -> Result<Option<bool>, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "1" => Ok(Some(true)),
        "false" | "0" => Ok(Some(false)),
        "" => Ok(None),
        other => Err(format!("`{other}` where it says whether more follows")),
    }
}

/// Returns the names that matter, independent of their document's lifetime.
fn known_name(name: &str) -> &'static str {
    match name {
        "Key" => "Key",
        "Size" => "Size",
        "ETag" => "ETag",
        "LastModified" => "LastModified",
        "Contents" => "Contents",
        "Prefix" => "Prefix",
        "CommonPrefixes" => "CommonPrefixes",
        "NextContinuationToken" => "NextContinuationToken",
        "EncodingType" => "EncodingType",
        "NextMarker" => "NextMarker",
        "KeyCount" => "KeyCount",
        "IsTruncated" => "IsTruncated",
        "ListBucketResult" => "ListBucketResult",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read() {
        let text = "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://x/\"><Name>b</Name>\
            <Prefix>not/this</Prefix><IsTruncated>true</IsTruncated>\
            <Contents><Key>a&amp;b&#x21;</Key><Size>3</Size><ETag>&quot;e&quot;</ETag>\
            <Owner><ID>me</ID><Key>not this</Key></Owner>\
            <LastModified>2009-10-12T17:50:30.250Z</LastModified></Contents>\
            <Contents><Key>b+c%20d</Key><Size>0</Size></Contents>\
            <CommonPrefixes><Prefix>c/</Prefix></CommonPrefixes>\
            <NextContinuationToken>t</NextContinuationToken></ListBucketResult>";
        let page = Page::parse(text.as_bytes()).unwrap();
        let stored = FileTime {
            secs: 1_255_369_830,
            nanos: 250_000_000,
        };
        let first = Object {
            key: "a&b!".to_owned(),
            size: 3,
            etag: Some("\"e\"".into()),
            stored: Some(stored),
            mtime: None,
            mode: None,
        };
        assert_eq!(page.objects[0], first);
        assert_eq!(page.objects[1].key, "b+c%20d");
        assert_eq!(page.prefixes, ["c/"]);
        assert_eq!(page.next.as_deref(), Some("t"));
    }

    #[test]
    fn encoded_keys_are_decoded_wherever_the_store_says_so() {
        let text = "<ListBucketResult><Contents><Key>b+c%20d%2F</Key><Size>0</Size></Contents>\
            <CommonPrefixes><Prefix>%C3%A9/</Prefix></CommonPrefixes>\
            <EncodingType>url</EncodingType></ListBucketResult>";
        let page = Page::parse(text.as_bytes()).unwrap();
        assert_eq!(page.objects[0].key, "b c d/");
        assert_eq!(page.prefixes, ["é/"]);
        assert_eq!(page.next, None);
    }

    #[test]
    fn keys_are_counted_with_or_without_prefixes() {
        for count in ["", "1", "2", "many"] {
            let text = format!(
                "<ListBucketResult><KeyCount>{count}</KeyCount>\
                 <Contents><Key>a&#x1;\u{2}</Key><Size>1</Size></Contents>\
                 <CommonPrefixes><Prefix>c/</Prefix></CommonPrefixes></ListBucketResult>"
            );
            let page = Page::parse(text.as_bytes()).unwrap();
            assert_eq!(page.objects[0].key, "a\u{1}\u{2}");
            assert_eq!((page.objects.len(), page.prefixes.len()), (1, 1));
        }
    }

    #[test]
    fn a_broken_page_is_no_short_page() {
        for text in [
            "<ListBucketResult><Contents><Key>a</Key>",
            "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
            "<ListBucketResult><Contents><Key>&what;</Key></Contents></ListBucketResult>",
            "<ListBucketResult><Contents><Key>%zz</Key></Contents>\
             <EncodingType>url</EncodingType></ListBucketResult>",
            "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
            "<ListBucketResult><IsTruncated>true</IsTruncated>\
             <NextContinuationToken></NextContinuationToken></ListBucketResult>",
            "<ListBucketResult><IsTruncated>True</IsTruncated></ListBucketResult>",
            "<ListBucketResult><IsTruncated>maybe</IsTruncated></ListBucketResult>",
            "<ListBucketResult><IsTruncated>false</IsTruncated>\
             <NextContinuationToken>t</NextContinuationToken></ListBucketResult>",
            "<ListBucketResult><IsTruncated>false</IsTruncated>\
             <NextMarker>a</NextMarker></ListBucketResult>",
            "<ListBucketResult><NextMarker>a</NextMarker></ListBucketResult>",
            "<ListBucketResult><KeyCount>2</KeyCount><Contents><Key>a</Key><Size>1</Size></Contents>\
             </ListBucketResult>",
            "<ListBucketResult><KeyCount>0</KeyCount><Contents><Key>a</Key><Size>1</Size></Contents>\
             </ListBucketResult>",
            "\u{fffd}<",
            "",
            "<html></html>",
        ] {
            assert!(Page::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
