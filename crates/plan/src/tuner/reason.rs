//! Reasons for the choices of optimizers.

use core::{fmt, time::Duration};
use posthaste_types::{ByteRate, Bytes, record};

use super::{Class, Setting};

record! {
    /// A value that can be set.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Knob {
        /// Files at once.
        0 = Concurrency,
        /// Files asked for ahead.
        1 = Pipelining,
        /// Streams per file.
        2 = Parallelism,
    }
}

impl Knob {
    /// Returns its value in a setting.
    #[must_use]
    pub const fn of(self, setting: Setting) -> u16 {
        match self {
            Self::Concurrency => setting.concurrency,
            Self::Pipelining => setting.pipelining,
            Self::Parallelism => setting.parallelism,
        }
    }

    /// Returns the setting with this value instead; never zero.
    #[must_use]
    pub const fn with(self, setting: Setting, value: u16) -> Setting {
        let (mut concurrency, mut parallelism, mut pipelining) =
            (setting.concurrency, setting.parallelism, setting.pipelining);
        match self {
            Self::Concurrency => concurrency = value,
            Self::Pipelining => pipelining = value,
            Self::Parallelism => parallelism = value,
        }
        Setting::new(concurrency, parallelism, pipelining)
    }

    fn say(self, f: &mut fmt::Formatter<'_>, value: u16) -> fmt::Result {
        let noun = match (self, value) {
            (Self::Concurrency, 1) => "file at once",
            (Self::Concurrency, _) => "files at once",
            (Self::Pipelining, 1) => "file ahead",
            (Self::Pipelining, _) => "files ahead",
            (Self::Parallelism, 1) => "stream a file",
            (Self::Parallelism, _) => "streams a file",
        };
        write!(f, "{value} {noun}")
    }
}

record! {
    /// Comparison of two values of a knob.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Outcome {
        /// Knob that was changed.
        pub knob: Knob,
        /// Value that was tried.
        pub tried: u16,
        /// Best value before.
        pub against: u16,
        /// Gain in rate, in thousandths; negative for a loss.
        pub gain_permille: i64,
    }
}

record! {
    /// Reason for the settings of the next period. It is shown to people as it is.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Reason {
        /// The user asked for exactly this setting.
        0 = Asked,
        /// The last transfer on this path ended there.
        1 = History {
            /// Setting at which it ended.
            setting: Setting,
        },
        /// The path is near: a stream fills at once, and each costs a processor.
        2 = OpeningNear {
            /// Round trip.
            rtt: Duration,
            /// Opening setting.
            setting: Setting,
        },
        /// Most paths do well with this opening.
        3 = OpeningUsual {
            /// Opening setting.
            setting: Setting,
        },
        /// The path is far: many streams leave slow start sooner.
        4 = OpeningFar {
            /// Round trip.
            rtt: Duration,
            /// Opening setting.
            setting: Setting,
        },
        /// The search goes on.
        5 = Trying {
            /// Result of the last try, after the first.
            last: Option<Outcome>,
            /// Knob of which another value is tried.
            knob: Knob,
            /// New value.
            to: u16,
        },
        /// The search ended.
        6 = Settled {
            /// Result of the last try.
            last: Option<Outcome>,
            /// Final setting.
            setting: Setting,
        },
        /// The path carries all it can.
        7 = Full {
            /// Current rate.
            rate: ByteRate,
        },
        /// The rest ends before a search would pay.
        8 = NearlyDone {
            /// Time the rest takes.
            left: Duration,
        },
        /// Nothing changes.
        9 = Holding {
            /// Current rate.
            rate: ByteRate,
        },
        /// A few files at once more or fewer are tried, to detect changes.
        10 = Stepping {
            /// Result of the last step, after the first.
            last: Option<Outcome>,
            /// Files at once from now on.
            to: u16,
        },
        /// The rate has changed for good: the search starts again.
        11 = Moved {
            /// Earlier rate.
            from: ByteRate,
            /// Current rate.
            to: ByteRate,
        },
        /// The period was too short to judge.
        12 = TooShort,
        /// The rules give this for files of this size on this path.
        13 = ByRule {
            /// Class of the files.
            class: Class,
            /// Mean size of the files.
            mean: Bytes,
            /// Bandwidth-delay product of the path.
            bdp: Bytes,
        },
        /// Large files have their own channel beside the small ones.
        14 = Divided {
            /// Channels for small files.
            small: u16,
            /// Channels for large files.
            large: u16,
        },
        /// Channels are assigned by weight.
        15 = Weighed,
        /// A channel moves from the class that would finish first to the one that would finish
        /// last.
        16 = Reallocated {
            /// Class with more channels than it needs.
            from: Class,
            /// Class that needs more.
            to: Class,
        },
        /// The model needs a sample.
        17 = Sampling {
            /// Streams in all.
            streams: u32,
        },
        /// The model predicts the highest rate there.
        18 = Predicted {
            /// Streams in all.
            streams: u32,
        },
        /// No curve fits the samples, or the prediction failed.
        19 = BestSample {
            /// Streams in all of the sample with the highest rate.
            streams: u32,
        },
    }
}

/// A gain in words.
struct Gain(i64);

impl fmt::Display for Gain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = (self.0.unsigned_abs() + 5) / 10;
        match (percent, self.0 > 0) {
            (0, _) => f.write_str("as much as"),
            (1000.., true) => f.write_str("over ten times as much as"),
            (percent, true) => write!(f, "{percent} % more than"),
            (percent, false) => write!(f, "{percent} % less than"),
        }
    }
}

/// A setting in words.
struct Spoken(Setting);

impl fmt::Display for Spoken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Knob::Concurrency.say(f, self.0.concurrency)?;
        f.write_str(", ")?;
        Knob::Parallelism.say(f, self.0.parallelism)?;
        f.write_str(", ")?;
        Knob::Pipelining.say(f, self.0.pipelining)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.knob.say(f, self.tried)?;
        write!(f, " carried {} {}", Gain(self.gain_permille), self.against)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Small => "small",
            Self::Middle => "middle",
            Self::Large => "large",
            Self::Huge => "huge",
        })
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("asked for"),
            Self::History { setting } => {
                write!(f, "the last transfer here ended with {}", Spoken(*setting))
            }
            Self::OpeningNear { rtt, setting } => write!(
                f,
                "{} us away a stream is fast at once: starting with {}",
                rtt.as_micros(),
                Spoken(*setting)
            ),
            Self::OpeningUsual { setting } => {
                write!(
                    f,
                    "most paths do well there: starting with {}",
                    Spoken(*setting)
                )
            }
            Self::OpeningFar { rtt, setting } => write!(
                f,
                "{} ms away many streams fill the path sooner: starting with {}",
                rtt.as_millis(),
                Spoken(*setting)
            ),
            Self::Full { rate } => write!(f, "{rate} is all the path carries: staying"),
            Self::NearlyDone { left } => write!(
                f,
                "the rest takes {} s, less than trying would: staying",
                left.as_secs()
            ),
            Self::Holding { rate } => write!(f, "{rate}, as before"),
            Self::Moved { from, to } => {
                write!(
                    f,
                    "throughput went from {from} to {to} and stayed: searching again"
                )
            }
            Self::TooShort => f.write_str("the last period was too short to judge"),
            Self::Trying { .. } | Self::Settled { .. } | Self::Stepping { .. } => {
                self.say_search(f)
            }
            Self::ByRule { .. }
            | Self::Divided { .. }
            | Self::Weighed
            | Self::Reallocated { .. }
            | Self::Sampling { .. }
            | Self::Predicted { .. }
            | Self::BestSample { .. } => self.say_rule(f),
        }
    }
}

/// A reason for moving fragments instead of files.
struct OfFragments<'a>(&'a Reason);

impl fmt::Display for OfFragments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = alloc::format!("{}", self.0);
        let text = text.replace("files at once", "fragments at once");
        let text = text.replace("file at once", "fragment at once");
        f.write_str(&text.replace(", 1 stream a file, 1 file ahead", ""))
    }
}

impl Reason {
    /// Returns the sentence for fragments of one size: each is one file with one stream.
    #[must_use]
    pub fn of_fragments(&self) -> impl fmt::Display + '_ {
        OfFragments(self)
    }

    /// Returns whether nothing changed.
    #[must_use]
    pub const fn is_routine(&self) -> bool {
        match self {
            Self::Asked
            | Self::Holding { .. }
            | Self::NearlyDone { .. }
            | Self::TooShort
            | Self::ByRule { .. }
            | Self::Divided { .. }
            | Self::Weighed => true,
            Self::History { .. }
            | Self::OpeningNear { .. }
            | Self::OpeningUsual { .. }
            | Self::OpeningFar { .. }
            | Self::Trying { .. }
            | Self::Settled { .. }
            | Self::Full { .. }
            | Self::Stepping { .. }
            | Self::Moved { .. }
            | Self::Reallocated { .. }
            | Self::Sampling { .. }
            | Self::Predicted { .. }
            | Self::BestSample { .. } => false,
        }
    }

    fn say_search(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Trying { last, .. } | Self::Settled { last, .. } | Self::Stepping { last, .. }) =
            self
        else {
            return Ok(());
        };
        if let Some(last) = last {
            write!(f, "{last}: ")?;
        }
        if let Self::Trying { knob, to, .. } = self {
            f.write_str("trying ")?;
            knob.say(f, *to)?;
        } else if let Self::Settled { setting, .. } = self {
            write!(f, "staying with {}", Spoken(*setting))?;
        } else if let Self::Stepping { to, .. } = self {
            f.write_str("feeling for ")?;
            Knob::Concurrency.say(f, *to)?;
        }
        Ok(())
    }

    fn say_rule(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Self::ByRule { class, mean, bdp } = self {
            write!(
                f,
                "{class} files, {mean} on average, where the path holds {bdp}"
            )
        } else if let Self::Divided { small, large } = self {
            write!(
                f,
                "{large} for large files and {small} for small ones, side by side"
            )
        } else if let Self::Reallocated { from, to } = self {
            write!(
                f,
                "the {to} files would be last, the {from} ones first: one channel moves"
            )
        } else if let Self::Sampling { streams } = self {
            write!(f, "measuring {streams} streams for the model")
        } else if let Self::Predicted { streams } = self {
            write!(f, "the model promises most with {streams} streams")
        } else if let Self::BestSample { streams } = self {
            write!(
                f,
                "no curve fits: {streams} streams carried most of those measured"
            )
        } else {
            f.write_str("channels by bytes left, small files counting threefold")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    #[test]
    fn a_person_reads_why() {
        let last = Some(Outcome {
            knob: Knob::Concurrency,
            tried: 16,
            against: 8,
            gain_permille: 31,
        });
        let trying = Reason::Trying {
            last,
            knob: Knob::Concurrency,
            to: 32,
        };
        assert_eq!(
            format!("{trying}"),
            "16 files at once carried 3 % more than 8: trying 32 files at once"
        );
        let settled = Reason::Settled {
            last: None,
            setting: Setting::new(1, 2, 1),
        };
        assert_eq!(
            format!("{settled}"),
            "staying with 1 file at once, 2 streams a file, 1 file ahead"
        );
        let same = Outcome {
            knob: Knob::Parallelism,
            tried: 4,
            against: 2,
            gain_permille: -4,
        };
        assert_eq!(format!("{same}"), "4 streams a file carried as much as 2");
        let first = Reason::OpeningUsual {
            setting: Setting::new(4, 1, 1),
        };
        assert_eq!(
            format!("{}", first.of_fragments()),
            "most paths do well there: starting with 4 fragments at once"
        );
        let rule = Reason::ByRule {
            class: Class::Small,
            mean: Bytes::new(1 << 20),
            bdp: Bytes::mebi(72),
        };
        assert_eq!(
            format!("{rule}"),
            "small files, 1.0 MiB on average, where the path holds 72.0 MiB"
        );
    }
}
