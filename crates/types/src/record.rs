//! Values that outlive the process, as bytes that depend on nothing but the value.
//!
//! The mind has no serde, so its inputs, commands and snapshots use this encoding: integers as
//! LEB128, lists with their length first, enums with an explicit tag that is never reused. The
//! [`record!`](crate::record!) macro declares a type and its encoding together, so that the two
//! can't drift apart.

use alloc::{
    boxed::Box, collections::BTreeMap, collections::BTreeSet, string::String, sync::Arc, vec::Vec,
};
use core::{fmt, time::Duration};

/// Longest list or string: more is rejected before memory is allocated for it. 2^28 elements are
/// more than a bitmap of 10^7 chunks over 10 fragments needs.
const LENGTH_MAX: u64 = 1 << 28;

/// Bytes that are no record of the expected type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// Name of the type that could not be read.
    pub expected: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the bytes are no {}", self.expected)
    }
}

impl core::error::Error for Malformed {}

/// A value with one deterministic byte form.
pub trait Record: Sized {
    /// Appends the value's bytes to `out`.
    fn write(&self, out: &mut Vec<u8>);

    /// Reads a value from the front of `input` and moves `input` past it.
    ///
    /// # Errors
    /// [`Malformed`] if the bytes end early or hold no such value. Never panics on outside bytes.
    fn read(input: &mut &[u8]) -> Result<Self, Malformed>;

    /// Encodes the value alone.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// Decodes a value that fills `bytes` exactly.
    ///
    /// # Errors
    /// [`Malformed`], also if bytes are left over.
    fn from_bytes(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut rest = bytes;
        let value = Self::read(&mut rest)?;
        if rest.is_empty() {
            Ok(value)
        } else {
            Err(Malformed {
                expected: "record's end",
            })
        }
    }
}

impl Record for u64 {
    fn write(&self, out: &mut Vec<u8>) {
        let mut rest = *self;
        while rest >= 0x80 {
            out.push((rest & 0x7f) as u8 | 0x80);
            rest >>= 7;
        }
        out.push((rest & 0x7f) as u8);
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = input.split_first().ok_or(Malformed {
                expected: "integer",
            })?;
            *input = rest;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                break;
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed {
            expected: "integer",
        })
    }
}

macro_rules! narrow_integer {
    ($($integer:ty),*) => {$(
        impl Record for $integer {
            fn write(&self, out: &mut Vec<u8>) {
                u64::from(*self).write(out);
            }

            fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
                <$integer>::try_from(u64::read(input)?)
                    .map_err(|_| Malformed { expected: stringify!($integer) })
            }
        }
    )*};
}
narrow_integer!(u8, u16, u32);

/// Encodes a place in a list as an integer of 64 bits, whatever the machine.
impl Record for usize {
    fn write(&self, out: &mut Vec<u8>) {
        (*self as u64).write(out);
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        Self::try_from(u64::read(input)?).map_err(|_| Malformed { expected: "place" })
    }
}

impl Record for i64 {
    fn write(&self, out: &mut Vec<u8>) {
        (((self << 1) ^ (self >> 63)).cast_unsigned()).write(out);
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        let folded = u64::read(input)?;
        Ok((folded >> 1).cast_signed() ^ -((folded & 1).cast_signed()))
    }
}

impl Record for bool {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        match u8::read(input)? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed { expected: "bool" }),
        }
    }
}

impl Record for Duration {
    fn write(&self, out: &mut Vec<u8>) {
        u64::try_from(self.as_micros())
            .unwrap_or(u64::MAX)
            .write(out);
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(Duration::from_micros(u64::read(input)?))
    }
}

fn read_length(input: &mut &[u8]) -> Result<u64, Malformed> {
    let length = u64::read(input)?;
    if length > LENGTH_MAX {
        Err(Malformed { expected: "length" })
    } else {
        Ok(length)
    }
}

impl Record for String {
    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u64).write(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        let malformed = Malformed { expected: "string" };
        let length = usize::try_from(read_length(input)?).map_err(|_| malformed)?;
        let (text, rest) = input.split_at_checked(length).ok_or(malformed)?;
        *input = rest;
        String::from_utf8(text.to_vec()).map_err(|_| malformed)
    }
}

impl Record for Box<str> {
    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u64).write(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        String::read(input).map(String::into_boxed_str)
    }
}

impl<T: Record> Record for Vec<T> {
    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u64).write(out);
        self.iter().for_each(|item| item.write(out));
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        let length = read_length(input)?;
        (0..length).map(|_| T::read(input)).collect()
    }
}

impl<T: Record> Record for Box<[T]> {
    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u64).write(out);
        self.iter().for_each(|item| item.write(out));
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        Vec::read(input).map(Vec::into_boxed_slice)
    }
}

impl<T: Record> Record for Arc<[T]> {
    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u64).write(out);
        self.iter().for_each(|item| item.write(out));
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        Vec::read(input).map(Self::from)
    }
}

impl<T: Record> Record for Box<T> {
    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        Ok(Self::new(T::read(input)?))
    }
}

impl<T: Record> Record for Option<T> {
    fn write(&self, out: &mut Vec<u8>) {
        self.is_some().write(out);
        if let Some(value) = self {
            value.write(out);
        }
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        if bool::read(input)? {
            T::read(input).map(Some)
        } else {
            Ok(None)
        }
    }
}

impl<A: Record, B: Record> Record for (A, B) {
    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        Ok((A::read(input)?, B::read(input)?))
    }
}

impl<K: Record + Ord, V: Record> Record for BTreeMap<K, V> {
    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u64).write(out);
        for (key, value) in self {
            key.write(out);
            value.write(out);
        }
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        let length = read_length(input)?;
        (0..length)
            .map(|_| Ok((K::read(input)?, V::read(input)?)))
            .collect()
    }
}

impl<K: Record + Ord> Record for BTreeSet<K> {
    fn write(&self, out: &mut Vec<u8>) {
        (self.len() as u64).write(out);
        self.iter().for_each(|key| key.write(out));
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        let length = read_length(input)?;
        (0..length).map(|_| K::read(input)).collect()
    }
}

impl<T: Record, const N: usize> Record for [T; N] {
    fn write(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|item| item.write(out));
    }

    fn read(input: &mut &[u8]) -> Result<Self, Malformed> {
        let items: Vec<T> = (0..N).map(|_| T::read(input)).collect::<Result<_, _>>()?;
        items
            .try_into()
            .map_err(|_| Malformed { expected: "array" })
    }
}

/// Declares a struct or an enum together with its [`Record`] encoding.
///
/// Struct fields are written in order. Enum variants carry a tag (`0 = Name { .. }`) that belongs
/// to the variant forever: a tag never gets another meaning, or old journals would change theirs.
#[macro_export]
macro_rules! record {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $( $(#[$field_meta:meta])* $field_vis:vis $field:ident : $type:ty ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        $vis struct $name { $( $(#[$field_meta])* $field_vis $field: $type ),* }

        impl $crate::Record for $name {
            fn write(&self, out: &mut ::alloc::vec::Vec<u8>) {
                let _ = &out;
                $( $crate::Record::write(&self.$field, out); )*
            }

            fn read(input: &mut &[u8]) -> ::core::result::Result<Self, $crate::Malformed> {
                let _ = &input;
                Ok($name { $( $field: $crate::Record::read(input)? ),* })
            }
        }
    };
    (
        $(#[$meta:meta])*
        $vis:vis enum $name:ident {
            $(
                $(#[$variant_meta:meta])*
                $tag:literal = $variant:ident
                $( { $( $(#[$field_meta:meta])* $field:ident : $type:ty ),* $(,)? } )?
            ),* $(,)?
        }
    ) => {
        $(#[$meta])*
        $vis enum $name {
            $( $(#[$variant_meta])* $variant $( { $( $(#[$field_meta])* $field: $type ),* } )? ),*
        }

        impl $crate::Record for $name {
            fn write(&self, out: &mut ::alloc::vec::Vec<u8>) {
                match self {
                    $( $name::$variant $( { $( $field ),* } )? => {
                        out.push($tag);
                        $( $( $crate::Record::write($field, out); )* )?
                    } )*
                }
            }

            fn read(input: &mut &[u8]) -> ::core::result::Result<Self, $crate::Malformed> {
                let malformed = $crate::Malformed { expected: stringify!($name) };
                let (&tag, rest) = input.split_first().ok_or(malformed)?;
                *input = rest;
                match tag {
                    $( $tag => Ok($name::$variant $( { $( $field: $crate::Record::read(input)? ),* } )?), )*
                    _ => Err(malformed),
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    record! {
        #[derive(Debug, Clone, PartialEq)]
        enum Shape {
            0 = Point,
            3 = Circle { radius: u32, name: Option<String> },
        }
    }

    #[test]
    fn every_shape_comes_back_as_it_was_written() {
        for shape in [
            Shape::Point,
            Shape::Circle {
                radius: 300,
                name: Some(String::from("ø")),
            },
            Shape::Circle {
                radius: 0,
                name: None,
            },
        ] {
            assert_eq!(Shape::from_bytes(&shape.to_bytes()), Ok(shape));
        }
    }

    #[test]
    fn integers_at_their_edges_come_back() {
        for value in [0, 1, 127, 128, u64::MAX - 1, u64::MAX] {
            assert_eq!(u64::from_bytes(&value.to_bytes()), Ok(value));
        }
        for value in [0, -1, 1, i64::MIN, i64::MAX] {
            assert_eq!(i64::from_bytes(&value.to_bytes()), Ok(value));
        }
    }

    #[test]
    fn truncated_unknown_or_overlong_bytes_are_refused() {
        let bytes = Shape::Circle {
            radius: 300,
            name: Some(String::from("abc")),
        }
        .to_bytes();
        for end in 0..bytes.len() {
            assert!(
                Shape::from_bytes(&bytes[..end]).is_err(),
                "{end} bytes were taken"
            );
        }
        assert!(Shape::from_bytes(&[1]).is_err());
        assert!(Shape::from_bytes(&[0, 0]).is_err());
        assert!(u64::from_bytes(&[0xff; 10]).is_err());
        assert!(Vec::<u8>::from_bytes(&[0xff, 0xff, 0xff, 0xff, 0x7f]).is_err());
    }
}
