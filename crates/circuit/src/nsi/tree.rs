//! XML as a tree: bounded in depth and number, without document types and the entities they
//! declare.

use quick_xml::{
    NsReader,
    escape::resolve_predefined_entity,
    events::{BytesStart, Event},
    name::ResolveResult,
};

/// Most levels of nested elements: the deepest is a chain of aggregators that each wrap the next
/// one's exception.
const DEPTH_MAX: usize = 48;

/// Most elements of one document: some thousand reservations.
const ELEMENTS_MAX: usize = 200_000;

/// Element and its content.
#[derive(Debug, Default)]
pub(super) struct Element {
    /// Name without its prefix.
    pub name: String,
    /// Namespace of the prefix; empty for the many elements without one.
    pub namespace: String,
    /// Text without surrounding spaces.
    pub text: String,
    pub version: Option<i64>,
    pub children: Vec<Element>,
}

impl Element {
    /// Returns the first child of this name.
    pub(super) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// Returns the children of this name.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// Returns the text of the first child of this name; `None` if it is empty.
    pub(super) fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name)
            .map(|child| child.text.as_str())
            .filter(|text| !text.is_empty())
    }

    /// Returns the first element of this name, at any depth, this one included.
    pub(super) fn find(&self, name: &str) -> Option<&Self> {
        if self.name == name {
            return Some(self);
        }
        self.children.iter().find_map(|child| child.find(name))
    }
}

/// Reads a document.
///
/// # Errors
/// The reason why it is invalid.
pub(super) fn read(body: &[u8]) -> Result<Element, String> {
    let text = std::str::from_utf8(body).map_err(|cause| cause.to_string())?;
    let mut reader = NsReader::from_str(text.trim_start_matches('\u{feff}'));
    reader.config_mut().expand_empty_elements = true;
    let mut open: Vec<Element> = vec![Element::default()];
    let mut count = 0;
    loop {
        let (resolved, event) = reader
            .read_resolved_event()
            .map_err(|cause| cause.to_string())?;
        let top = open.last_mut().ok_or("an end without a start")?;
        match event {
            Event::Start(tag) => {
                count += 1;
                if count > ELEMENTS_MAX || open.len() > DEPTH_MAX {
                    return Err("it has too many elements, or too deep ones".to_owned());
                }
                open.push(started(&resolved, &tag)?);
            }
            Event::End(_) => {
                let mut ended = open.pop().ok_or("an end without a start")?;
                ended.text = ended.text.trim().to_owned();
                let above = open.last_mut().ok_or("an end without a start")?;
                above.children.push(ended);
            }
            Event::Text(text) => top.text.push_str(&text),
            Event::CData(text) => top.text.push_str(&text),
            Event::GeneralRef(entity) => {
                let letter = entity.resolve_char_ref();
                match letter.map_err(|cause| cause.to_string())? {
                    Some(letter) => top.text.push(letter),
                    None => top.text.push_str(
                        resolve_predefined_entity(&entity).ok_or("it declares entities")?,
                    ),
                }
            }
            Event::DocType(_) => return Err("it has a document type".to_owned()),
            Event::Eof => break,
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
    let [mut document] = <[Element; 1]>::try_from(open).map_err(|_| "it ends early")?;
    match document.children.len() {
        1 => document
            .children
            .pop()
            .ok_or_else(|| "it is empty".to_owned()),
        0 => Err("it is empty".to_owned()),
        _ => Err("it has more than one root".to_owned()),
    }
}

fn started(resolved: &ResolveResult<'_>, tag: &BytesStart<'_>) -> Result<Element, String> {
    let namespace = match resolved {
        ResolveResult::Bound(namespace) => namespace.0.to_owned(),
        ResolveResult::Unbound => String::new(),
        ResolveResult::Unknown(_) => return Err("a prefix stands for nothing".to_owned()),
    };
    let version = tag
        .try_get_attribute("version")
        .map_err(|cause| cause.to_string())?;
    Ok(Element {
        name: tag.local_name().as_ref().to_owned(),
        namespace,
        version: version.and_then(|version| version.value.trim().parse().ok()),
        ..Element::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_with_its_namespaces() {
        let read = read(
            b"<?xml version='1.0'?><s:a xmlns:s='urn:s'><b version='7'> x &amp; &#121; </b><c/></s:a>",
        )
        .unwrap();
        assert_eq!((&*read.name, &*read.namespace), ("a", "urn:s"));
        assert_eq!(read.text_of("b"), Some("x & y"));
        assert_eq!(read.child("b").unwrap().version, Some(7));
        assert_eq!(read.child("b").unwrap().namespace, "");
        assert_eq!(read.text_of("c"), None);
        assert!(read.find("c").is_some() && read.find("d").is_none());
    }

    #[test]
    fn what_could_swell_is_refused() {
        let deep = "<a>".repeat(100);
        let many = format!("<a>{}</a>", "<b/>".repeat(ELEMENTS_MAX));
        let bomb = "<!DOCTYPE a [<!ENTITY b 'bbbb'>]><a>&b;</a>";
        for text in [
            &*deep,
            &*many,
            bomb,
            "<a>&b;</a>",
            "<p:a/>",
            "<a>",
            "",
            "<a/><b/>",
            "</a>",
            "\u{0}<}{\"",
            "<a></b>",
        ] {
            let read = read(text.as_bytes());
            assert!(read.is_err(), "{}", &text[..text.len().min(40)]);
        }
    }
}
