//! Facts of a file that purges consider.

/// Kind of file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Kind {
    /// Ordinary file.
    #[default]
    File,
    /// Symbolic link.
    Link,
    /// Socket, device or pipe.
    Other,
}

/// Facts of a file that purges consider. Times are whole seconds since 1970, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts {
    /// Kind of file.
    pub kind: Kind,
    /// Length in bytes.
    pub size: u64,
    /// Number of the owner.
    pub owner: u32,
    /// Time of the last access.
    pub accessed_s: i64,
    /// Time of the last change of the content.
    pub modified_s: i64,
    /// Time of the last change of content or metadata.
    pub changed_s: i64,
    /// Creation time, if the file system has it.
    pub born_s: Option<i64>,
}

/// Time stamp of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stamp {
    /// Time of the last access.
    Accessed,
    /// Time of the last change of the content.
    Modified,
    /// Time of the last change of content or metadata.
    Changed,
    /// Creation time.
    Born,
}

impl Stamp {
    /// Returns the word for it in our policies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Accessed => "atime",
            Self::Modified => "mtime",
            Self::Changed => "ctime",
            Self::Born => "birth",
        }
    }

    /// Returns the time in seconds since 1970. An unknown creation time is replaced by the earliest
    /// of the other times: too early is better than too late.
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

/// Start of a file's age: the latest of these times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clock(Vec<Stamp>);

impl Clock {
    /// Returns the clock that shows the latest of these times; `None` for an empty list.
    #[must_use]
    pub fn latest_of(stamps: Vec<Stamp>) -> Option<Self> {
        (!stamps.is_empty()).then_some(Self(stamps))
    }

    /// Returns the start of this file's age.
    #[must_use]
    pub fn of(&self, facts: &Facts) -> i64 {
        let times = self.0.iter().map(|stamp| stamp.of(facts));
        times.max().unwrap_or(i64::MAX)
    }

    /// Returns whether the clock needs the creation time.
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
