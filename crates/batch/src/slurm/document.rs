//! A document of Slurm with a list in it, read while it comes: each item on its own, so that one that makes no sense costs only
//! itself, and all of them together no more memory than what is kept of them.

use std::{
    fmt,
    io::{BufReader, Read},
};

use serde::{
    Deserialize, Deserializer,
    de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::queue::Unreadable;

/// Bytes that are read at once.
const READ_BYTES: usize = 128 << 10;

/// What is read, for errors, and what its list is called.
#[derive(Debug, Clone, Copy)]
pub(super) struct What {
    pub(super) name: &'static str,
    pub(super) list: &'static str,
}

/// Reads a document, and hands on each item of its list; none for one that makes no sense.
///
/// # Errors
/// [`Unreadable`] when it is no JSON, breaks off, or has no list; and with what Slurm says where it has errors and an empty list.
pub(super) fn read<T: DeserializeOwned>(
    what: What,
    from: impl Read,
    mut take: impl FnMut(Option<T>),
) -> Result<(), Unreadable> {
    let unreadable = |why: &str| Unreadable::new(what.name, why);
    let mut found = 0u64;
    let mut take = |item: &RawValue| {
        found += 1;
        take(serde_json::from_str(item.get()).ok());
    };
    let reading = Document {
        list: what.list,
        take: &mut take,
    };
    let from = BufReader::with_capacity(READ_BYTES, Legible(from));
    let mut json = serde_json::Deserializer::from_reader(from);
    let rest = reading.deserialize(&mut json);
    let rest = rest.and_then(|rest| json.end().map(|()| rest));
    let rest = rest.map_err(|cause| unreadable(&cause.to_string()))?;
    match rest.complaint() {
        Some(complaint) if found == 0 => Err(unreadable(&complaint)),
        None if !rest.has_list => Err(unreadable(&format!("it has no list of {}", what.list))),
        Some(_) | None => Ok(()),
    }
}

/// Slurm hands on what users write as they wrote it, and that may be no text: what is not ASCII is read as `?`.
struct Legible<R>(R);

impl<R: Read> Read for Legible<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let read = self.0.read(into)?;
        for byte in &mut into[..read] {
            if !byte.is_ascii() {
                *byte = b'?';
            }
        }
        Ok(read)
    }
}

/// What a document says beside its list.
#[derive(Default)]
struct Rest {
    has_list: bool,
    errors: Vec<Trouble>,
    meta: Meta,
}

impl Rest {
    /// What Slurm complains of first, and what of Slurm does.
    fn complaint(&self) -> Option<String> {
        let told = self.errors.iter().find_map(|trouble| match trouble {
            Trouble::Told { error, description } => error.as_ref().or(description.as_ref()),
            Trouble::Other(_) => None,
        })?;
        let plugin = &self.meta.plugin;
        let by = plugin.data_parser.as_ref().or(plugin.r#type.as_ref());
        Some(match by {
            Some(by) => format!("{told} (by {by})"),
            None => told.clone(),
        })
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Trouble {
    Told {
        error: Option<String>,
        description: Option<String>,
    },
    Other(IgnoredAny),
}

#[derive(Deserialize, Default)]
struct Meta {
    #[serde(default)]
    plugin: Plugin,
}

/// Until 23.02 `type` has the version, from then on `data_parser`.
#[derive(Deserialize, Default)]
struct Plugin {
    r#type: Option<String>,
    data_parser: Option<String>,
}

/// What Slurm complains of in the answer to a question that it refused; none where it is no such answer.
#[must_use]
pub fn complaint(answer: &[u8]) -> Option<String> {
    let mut ignore = |_: &RawValue| {};
    let reading = Document {
        list: "",
        take: &mut ignore,
    };
    let mut json = serde_json::Deserializer::from_slice(answer);
    let told = reading.deserialize(&mut json).ok()?.complaint()?;
    Some(told.escape_debug().to_string())
}

/// Reads the document.
struct Document<'t> {
    list: &'static str,
    take: &'t mut dyn FnMut(&RawValue),
}

impl<'de> DeserializeSeed<'de> for Document<'_> {
    type Value = Rest;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<Rest, D::Error> {
        input.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Document<'_> {
    type Value = Rest;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Rest, M::Error> {
        let mut rest = Rest::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "errors" => rest.errors = map.next_value()?,
                "meta" => rest.meta = map.next_value()?,
                key if key == self.list => {
                    rest.has_list = map.next_value_seed(List(&mut *self.take))?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(rest)
    }
}

/// Reads the list; whether there is one.
struct List<'t>(&'t mut dyn FnMut(&RawValue));

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<bool, D::Error> {
        input.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<bool, S::Error> {
        while let Some(item) = list.next_element::<Box<RawValue>>()? {
            (self.0)(&item);
        }
        Ok(true)
    }

    fn visit_unit<E>(self) -> Result<bool, E> {
        Ok(false)
    }
}
