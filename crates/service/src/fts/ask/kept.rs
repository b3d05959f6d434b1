//! Metadata that a client keeps with a file.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Metadata of a file as JSON text: as a tree it takes many times the memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::fts) struct Kept(String);

impl Kept {
    pub(super) fn of(value: &Value) -> Self {
        Self(value.to_string())
    }

    /// Returns the bytes of its text.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(in crate::fts) fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

impl Serialize for Kept {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Kept {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self::of(&value))
    }
}
