//! Optimizers by name.

use alloc::string::{String, ToString};
use core::{fmt, str::FromStr};
use posthaste_types::record;

use super::Setting;

record! {
    /// Name of an optimizer.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub enum Method {
        /// A good start, a search, then a steady state: the default.
        #[default]
        0 = Auto,
        /// A constant setting, written `fixed:8,2,8`.
        1 = Fixed {
            /// The setting.
            setting: Setting,
        },
        /// Classes of files one after another, each by rule.
        2 = Scc,
        /// Large files on one channel beside small ones on the others.
        3 = Mcc,
        /// All classes at once, with channels by weight.
        4 = Promc,
        /// Streams from a model with two samples.
        5 = PartialSecondOrder,
        /// Streams from a model with three samples.
        6 = FullSecondOrder,
        /// Streams from a model with three samples and a free exponent.
        7 = COrder,
        /// Endless gradient steps on files at once.
        8 = Falcon,
    }
}

impl Method {
    /// Names without arguments; `fixed` comes with its setting.
    pub const NAMES: [(&'static str, Self); 8] = [
        ("auto", Self::Auto),
        ("scc", Self::Scc),
        ("mcc", Self::Mcc),
        ("promc", Self::Promc),
        ("partial-second-order", Self::PartialSecondOrder),
        ("full-second-order", Self::FullSecondOrder),
        ("c-order", Self::COrder),
        ("falcon", Self::Falcon),
    ];
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::Fixed { setting } = self {
            return write!(f, "fixed:{setting}");
        }
        let named = Self::NAMES.iter().find(|(_, method)| method == self);
        f.pad(named.map_or("auto", |(name, _)| name))
    }
}

/// A text that names no optimizer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodError {
    text: String,
}

impl fmt::Display for MethodError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is no optimizer: there are ", self.text)?;
        for (name, _) in Method::NAMES {
            write!(f, "{name}, ")?;
        }
        f.write_str(
            "and fixed with files at once, streams a file and files ahead, like fixed:8,2,8",
        )
    }
}

impl core::error::Error for MethodError {}

impl FromStr for Method {
    type Err = MethodError;

    fn from_str(text: &str) -> Result<Self, MethodError> {
        let named = Self::NAMES.iter().find(|(name, _)| *name == text);
        let fixed = || {
            let setting = text.strip_prefix("fixed:")?.parse().ok()?;
            Some(Self::Fixed { setting })
        };
        named
            .map(|(_, method)| *method)
            .or_else(fixed)
            .ok_or_else(|| MethodError {
                text: text.to_string(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn every_name_is_read_back_as_it_is_shown() {
        let fixed = Method::Fixed {
            setting: Setting::new(8, 2, 16),
        };
        assert_eq!(format!("{fixed}"), "fixed:8,2,16");
        for method in Method::NAMES
            .map(|(_, method)| method)
            .into_iter()
            .chain([fixed])
        {
            assert_eq!(format!("{method}").parse(), Ok(method));
        }
    }

    #[test]
    fn what_names_no_optimizer_is_refused() {
        for text in [
            "",
            "Auto",
            "fixed",
            "fixed:",
            "fixed:1,2",
            "fixed:0,1,1",
            "fixed:1,2,3,4",
            "fixed:1,2,x",
            "fixed:70000,1,1",
        ] {
            assert!(text.parse::<Method>().is_err(), "{text} was taken");
        }
    }
}
