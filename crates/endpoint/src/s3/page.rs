//! A page of a listing: read in one pass, since parsing is most of what listing costs here.

use quick_xml::{Reader, escape::resolve_predefined_entity, events::Event};

use super::wire::{decode_key, parse_iso_date};
use crate::FileTime;

/// What one request for keys brought, in the store's order.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Page {
    pub objects: Vec<Object>,
    /// Prefixes that keys were rolled up to, with their slash.
    pub prefixes: Vec<String>,
    /// Asks for the next page; nothing on the last.
    pub next: Option<String>,
}

/// An object as a listing tells of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Object {
    pub key: String,
    pub size: u64,
    pub etag: Option<Box<str>>,
    pub stored: Option<FileTime>,
}

/// Where in the document a text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Key,
    Size,
    Etag,
    Stored,
    Prefix,
    Next,
    Encoding,
    /// What nobody here reads.
    Elsewhere,
}

impl Place {
    /// The place inside `element`, itself inside `above`.
    fn of(above: &str, element: &str) -> Self {
        match (above, element) {
            ("Contents", "Key") => Self::Key,
            ("Contents", "Size") => Self::Size,
            ("Contents", "ETag") => Self::Etag,
            ("Contents", "LastModified") => Self::Stored,
            ("CommonPrefixes", "Prefix") => Self::Prefix,
            ("ListBucketResult", "NextContinuationToken") => Self::Next,
            ("ListBucketResult", "EncodingType") => Self::Encoding,
            _ => Self::Elsewhere,
        }
    }
}

impl Page {
    /// Reads a store's answer.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn parse(body: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(body).map_err(|cause| cause.to_string())?;
        let mut reader = Reader::from_str(text);
        reader.config_mut().check_end_names = false;
        let mut page = Self::default();
        let mut object = Object::default();
        let mut open: Vec<&str> = Vec::with_capacity(8);
        let mut place = Place::Elsewhere;
        let mut value = String::new();
        let (mut encoded, mut whole) = (false, false);
        loop {
            match reader.read_event().map_err(|cause| cause.to_string())? {
                Event::Start(tag) => {
                    let name = known_name(tag.local_name().as_ref());
                    place = Place::of(open.last().copied().unwrap_or_default(), name);
                    open.push(name);
                    value.clear();
                }
                Event::Text(text) if place != Place::Elsewhere => value.push_str(&text),
                Event::CData(text) if place != Place::Elsewhere => value.push_str(&text),
                Event::GeneralRef(entity) if place != Place::Elsewhere => {
                    let letter = entity.resolve_char_ref();
                    match letter.map_err(|cause| cause.to_string())? {
                        Some(letter) => value.push(letter),
                        None => value.push_str(
                            resolve_predefined_entity(&entity)
                                .ok_or_else(|| format!("unknown entity {}", &*entity))?,
                        ),
                    }
                }
                Event::End(_) => {
                    match place {
                        Place::Key => object.key = std::mem::take(&mut value),
                        Place::Size => {
                            object.size = value.parse().map_err(|_| format!("size {value}"))?;
                        }
                        Place::Etag => object.etag = Some(value.as_str().into()),
                        Place::Stored => object.stored = parse_iso_date(&value),
                        Place::Prefix => page.prefixes.push(std::mem::take(&mut value)),
                        Place::Next => page.next = Some(std::mem::take(&mut value)),
                        Place::Encoding => encoded = value == "url",
                        Place::Elsewhere => {}
                    }
                    place = Place::Elsewhere;
                    match open.pop() {
                        Some("Contents") => page.objects.push(std::mem::take(&mut object)),
                        Some("ListBucketResult") => whole = true,
                        Some(_) | None => {}
                    }
                }
                Event::Eof => break,
                Event::Text(_)
                | Event::CData(_)
                | Event::GeneralRef(_)
                | Event::Empty(_)
                | Event::Comment(_)
                | Event::Decl(_)
                | Event::PI(_)
                | Event::DocType(_) => {}
            }
        }
        if !whole || !open.is_empty() {
            return Err("no whole listing".to_owned());
        }
        if encoded {
            page.decode()?;
        }
        Ok(page)
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

/// The names that matter, free of the document they stand in.
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
        };
        assert_eq!(page.objects[0], first);
        assert_eq!(page.objects[1].key, "b+c%20d");
        assert_eq!(page.prefixes, ["c/"]);
        assert_eq!(page.next.as_deref(), Some("t"));
    }

    #[test]
    fn encoded_keys_are_decoded_wherever_the_store_says_so() {
        let text = "<ListBucketResult><Contents><Key>b+c%20d%2F</Key></Contents>\
            <CommonPrefixes><Prefix>%C3%A9/</Prefix></CommonPrefixes>\
            <EncodingType>url</EncodingType></ListBucketResult>";
        let page = Page::parse(text.as_bytes()).unwrap();
        assert_eq!(page.objects[0].key, "b c d/");
        assert_eq!(page.prefixes, ["é/"]);
        assert_eq!(page.next, None);
    }

    #[test]
    fn a_broken_page_is_no_short_page() {
        for text in [
            "<ListBucketResult><Contents><Key>a</Key>",
            "<ListBucketResult><Contents><Size>many</Size></Contents></ListBucketResult>",
            "<ListBucketResult><Contents><Key>&what;</Key></Contents></ListBucketResult>",
            "<ListBucketResult><Contents><Key>%zz</Key></Contents>\
             <EncodingType>url</EncodingType></ListBucketResult>",
            "\u{fffd}<",
            "",
            "<html></html>",
        ] {
            assert!(Page::parse(text.as_bytes()).is_err(), "{text}");
        }
    }
}
