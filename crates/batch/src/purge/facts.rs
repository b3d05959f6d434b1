//! What a purge judges a file by.

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// An ordinary file.
    #[default]
    File,
    /// A symbolic link.
    Link,
    /// A socket, a device, a pipe.
    Other,
}

/// What a purge judges a file by. Times are whole seconds since 1970, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts {
    /// What it is.
    pub kind: Kind,
    /// Its length, in bytes.
    pub size: u64,
    /// The number of its owner.
    pub owner: u32,
    /// When it was last read.
    pub accessed_s: i64,
    /// When what it holds last changed.
    pub modified_s: i64,
    /// When anything of it last changed.
    pub changed_s: i64,
    /// When it was made, where the file system knows.
    pub born_s: Option<i64>,
}

/// One of the times of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// When it was last read.
    Accessed,
    /// When what it holds last changed.
    Modified,
    /// When anything of it last changed.
    Changed,
    /// When it was made.
    Born,
}

impl Stamp {
    /// The word that policies of ours use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Accessed => "atime",
            Self::Modified => "mtime",
            Self::Changed => "ctime",
            Self::Born => "birth",
        }
    }

    /// Seconds since 1970. Where nobody knows when a file was made, the earliest of its other times: too early is
    /// better than too late.
    fn of(self, facts: &Facts) -> i64 {
        match self {
            Self::Accessed => facts.accessed_s,
            Self::Modified => facts.modified_s,
            Self::Changed => facts.changed_s,
            Self::Born => facts.born_s.unwrap_or_else(|| {
                let earliest = facts.accessed_s.min(facts.modified_s);
                earliest.min(facts.changed_s)
            }),
        }
    }
}

/// From when the age of a file counts: the latest of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clock(Vec<Stamp>);

impl Clock {
    /// The latest of these; of none there is no clock.
    #[must_use]
    pub fn latest_of(stamps: Vec<Stamp>) -> Option<Self> {
        (!stamps.is_empty()).then_some(Self(stamps))
    }

    /// From when the age of this file counts.
    #[must_use]
    pub fn of(&self, facts: &Facts) -> i64 {
        let times = self.0.iter().map(|stamp| stamp.of(facts));
        times.max().unwrap_or(i64::MAX)
    }

    /// Whether it asks when the file was made.
    #[must_use]
    pub fn asks_birth(&self) -> bool {
        self.0.contains(&Stamp::Born)
    }
}

impl From<Stamp> for Clock {
    fn from(stamp: Stamp) -> Self {
        Self(vec![stamp])
    }
}

impl std::fmt::Display for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &*self.0 {
            [one] => f.write_str(one.name()),
            several => {
                let names: Vec<&str> = several.iter().map(|stamp| stamp.name()).collect();
                write!(f, "the latest of {}", names.join(", "))
            }
        }
    }
}
