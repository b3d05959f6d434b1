//! Answers in XML, read in one pass and element by element: listings of many thousand names are
//! parsed as fast as they arrive.

use quick_xml::{Reader, escape::resolve_predefined_entity, events::Event};

/// Element that just ended.
pub(crate) struct Ended<'a> {
    /// Name of the enclosing element; empty for the outermost, and for unknown ones.
    pub above: &'static str,
    pub name: &'static str,
    /// Text in it.
    pub text: &'a mut String,
    /// Presence of the attribute `Encoded="true"`.
    pub encoded: bool,
}

/// Passes each element to `visit` when it ends. `known` returns the names that matter, independent
/// of their document's lifetime, and an empty one for others.
///
/// # Errors
/// The fault in the document, or `visit`'s own error.
pub(crate) fn walk(
    body: &[u8],
    known: fn(&str) -> &'static str,
    mut visit: impl FnMut(Ended<'_>) -> Result<(), String>,
) -> Result<(), String> {
    let text = std::str::from_utf8(body).map_err(|cause| cause.to_string())?;
    let text = text.trim_start_matches('\u{feff}');
    let mut reader = Reader::from_str(text);
    reader.config_mut().check_end_names = false;
    let mut open: Vec<&'static str> = Vec::with_capacity(8);
    let mut value = String::new();
    let mut encoded = false;
    loop {
        match reader.read_event().map_err(|cause| cause.to_string())? {
            Event::Start(tag) => {
                open.push(known(tag.local_name().as_ref()));
                encoded = tag.attributes_raw().contains("Encoded=\"true\"");
                value.clear();
            }
            Event::Text(text) => value.push_str(&text),
            Event::CData(text) => value.push_str(&text),
            Event::GeneralRef(entity) => {
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
                let name = open.pop().ok_or("an end without a start")?;
                visit(Ended {
                    above: open.last().copied().unwrap_or_default(),
                    name,
                    text: &mut value,
                    encoded,
                })?;
                value.clear();
                encoded = false;
            }
            Event::Eof => break,
            Event::Empty(_)
            | Event::Comment(_)
            | Event::Decl(_)
            | Event::PI(_)
            | Event::DocType(_) => {}
        }
    }
    match open.is_empty() {
        true => Ok(()),
        false => Err("it ends early".to_owned()),
    }
}
