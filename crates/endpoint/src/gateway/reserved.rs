//! Reservations at gateways, as streams name them.

use std::{fmt, str::FromStr};

use crate::{Error, ErrorKind};

/// Longest name of a reservation, in bytes.
const RESERVATION_BYTES_MAX: usize = 64;
/// Word behind the name if the stream may go without.
const OPTIONAL: &str = "optional";

/// Returns whether a text can name a reservation at a gateway.
#[must_use]
pub fn is_reservation(text: &str) -> bool {
    let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=RESERVATION_BYTES_MAX).contains(&text.len()) && text.bytes().all(is_sound)
}

/// Reservation of a stream at each gateway on its way that reserves. Its text is the header
/// `Posthaste-Reservation`: `night-7`, or `night-7; optional`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reserved {
    id: String,
    is_optional: bool,
}

impl Reserved {
    /// Returns a reservation that the stream needs: a gateway that reserves and does not know it
    /// refuses the stream.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it can't be the name of a reservation.
    pub fn required(id: impl Into<String>) -> Result<Self, Error> {
        Self::read(id.into(), false)
    }

    /// Returns a reservation that a gateway may ignore: if it does not know it, or can't do what it
    /// asks, it carries the stream at best effort.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it can't be the name of a reservation.
    pub fn optional(id: impl Into<String>) -> Result<Self, Error> {
        Self::read(id.into(), true)
    }

    fn read(id: String, is_optional: bool) -> Result<Self, Error> {
        if is_reservation(&id) {
            return Ok(Self { id, is_optional });
        }
        let error = Error::new(ErrorKind::Invalid, "use the reservation", id);
        Err(error.cause("an id is 1 to 64 letters, digits, dots, dashes or underlines"))
    }

    /// Returns its name.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns whether the stream goes without the reservation if it must.
    #[must_use]
    pub const fn is_optional(&self) -> bool {
        self.is_optional
    }
}

impl fmt::Display for Reserved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.id)?;
        match self.is_optional {
            true => write!(f, "; {OPTIONAL}"),
            false => Ok(()),
        }
    }
}

impl FromStr for Reserved {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text.split_once(';') {
            Some((id, rest)) if rest.trim().eq_ignore_ascii_case(OPTIONAL) => {
                Self::optional(id.trim())
            }
            Some(_) | None => Self::required(text.trim()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_is_read_as_it_is_written() {
        for (text, id, is_optional) in [
            ("night-7", "night-7", false),
            ("night-7; optional", "night-7", true),
            (" n ;Optional ", "n", true),
        ] {
            let read: Reserved = text.parse().unwrap();
            assert_eq!((read.id(), read.is_optional()), (id, is_optional), "{text}");
            assert_eq!(read.to_string().parse::<Reserved>().unwrap(), read);
        }
        let long = "n".repeat(65);
        for text in [
            "",
            ";optional",
            "a b",
            "a; needed",
            "a;optional;optional",
            "a\r\nb",
            &long,
        ] {
            assert!(text.parse::<Reserved>().is_err(), "{text} was taken");
        }
    }
}
