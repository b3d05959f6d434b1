//! Words that programs branch on.

use core::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Defines an enum of words: each variant with the word that programs and people know it by.
macro_rules! words {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name {
            $($(#[$doc])* $variant,)+
        }

        impl $name {
            /// Every word, in order.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// Returns the word that programs and people know it by.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }

            /// Returns what `word` stands for; none where it is no word of these.
            #[must_use]
            pub fn named(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|one| one.as_str() == word)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

words! {
    /// State of a request.
    pub enum RequestState {
        /// Its source is being listed.
        Scanning = "scanning",
        /// The service did not accept it.
        Refused = "refused",
        /// Data of it moves, or waits for its turn.
        Moving = "moving",
        /// Somebody paused it.
        Paused = "paused",
        /// Every chunk survives the losses that its code promises to survive; the source may still be there.
        Safe = "safe",
        /// All of it is safe or where it was to go, and its source was removed.
        Released = "released",
        /// Every destination has all of it; or somebody pulled it, where none is waited for.
        Delivered = "delivered",
        /// A user cancelled it.
        Cancelled = "cancelled",
        /// Ended in failure; the source is untouched.
        Failed = "failed",
        /// A stage-in, or what a job needs, that is not begun yet.
        Waiting = "waiting",
        /// All chunks of a stage-in are here, and its files get their names.
        Landing = "landing",
        /// All of a stage-in is here.
        Arrived = "arrived",
    }
}

words! {
    /// State of a depot.
    pub enum DepotState {
        /// Not heard of yet.
        Unknown = "unknown",
        /// Answers.
        Up = "up",
        /// Does not answer.
        Down = "down",
    }
}

words! {
    /// State of a source of a stage-in.
    pub enum SourceState {
        /// Nothing was read from it yet.
        Unknown = "unknown",
        /// Answers.
        Up = "up",
        /// Does not answer.
        Down = "down",
        /// No longer holds what it held.
        Gone = "gone",
    }
}

words! {
    /// State of a reservation on a circuit.
    pub enum ReservationState {
        /// The provider was asked.
        Asked = "asked",
        /// The provider granted it.
        Granted = "granted",
        /// Carries data.
        Up = "up",
        /// Should be up, and is not.
        Down = "down",
        /// Is being given back.
        Returning = "returning",
    }
}

words! {
    /// Phase of a job.
    pub enum JobPhase {
        /// The service knows of it.
        Registered = "registered",
        /// Asked for: what it reads is on its way.
        StagingIn = "staging-in",
        /// Ended.
        Ended = "ended",
        /// The service forgot it.
        Gone = "gone",
    }
}

words! {
    /// Reason why a job does not start without its data.
    pub enum JobHold {
        /// Nothing of the service: its batch system does.
        None = "none",
        /// The service, until the data is here.
        Held = "held",
        /// The service held it and released it.
        Released = "released",
        /// Somebody else released it before the service did.
        Freed = "freed",
        /// Its user holds it while some of its data comes again.
        Kept = "kept",
    }
}

words! {
    /// Kind of a transfer.
    pub enum TransferKind {
        /// Fragments to a depot.
        Depot = "depot",
        /// All of it to a destination.
        Destination = "destination",
        /// Chunks from a source.
        Source = "source",
        /// Chunks from a source to a depot near the centre.
        Prestage = "prestage",
        /// Chunks from a depot near the centre.
        Near = "near",
        /// Files to an address.
        Address = "address",
    }
}

words! {
    /// Kind of a directory entry.
    pub enum EntryKind {
        /// Regular file.
        File = "file",
        /// Directory.
        Directory = "directory",
        /// Symbolic link.
        Link = "link",
        /// Pipe, socket or device.
        Special = "special",
    }
}

words! {
    /// State of a mover.
    pub enum MoverState {
        /// Takes work.
        Works = "works",
        /// Gets no new work.
        Drains = "drains",
        /// Gets none for a while, since others could do what it could not.
        Rests = "rests",
    }
}

words! {
    /// Kind of an offer: what would make a deadline possible.
    pub enum OfferKind {
        /// Depots that were not named.
        Depots = "depots",
        /// A depot that is away.
        Back = "back",
        /// A source that is away.
        SourceBack = "source-back",
        /// Hours at which a depot may be used.
        Hours = "hours",
        /// A destination that is away.
        DestinationBack = "destination-back",
        /// Fewer destinations, by one.
        Fewer = "fewer",
        /// A later delivery.
        Delivery = "delivery",
        /// A code with less redundancy.
        Code = "code",
        /// The slack of another request.
        Slack = "slack",
        /// Rate on a circuit that is offered.
        Circuit = "circuit",
        /// A reservation.
        Reservation = "reservation",
        /// A higher budget.
        Budget = "budget",
        /// A higher limit on its own rate.
        Limit = "limit",
        /// More rate.
        Rate = "rate",
        /// A later deadline.
        Deadline = "deadline",
        /// More space.
        Space = "space",
        /// More depots.
        MoreDepots = "more-depots",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_written_as_it_is_called<T: Copy + Serialize + fmt::Display>(all: &[T]) {
        for one in all {
            let text = serde_json::to_string(one).unwrap_or_default();
            assert_eq!(text, format!("\"{one}\""));
        }
    }

    #[test]
    fn words_are_written_as_they_are_called() {
        is_written_as_it_is_called(RequestState::ALL);
        is_written_as_it_is_called(DepotState::ALL);
        is_written_as_it_is_called(SourceState::ALL);
        is_written_as_it_is_called(ReservationState::ALL);
        is_written_as_it_is_called(JobPhase::ALL);
        is_written_as_it_is_called(JobHold::ALL);
        is_written_as_it_is_called(TransferKind::ALL);
        is_written_as_it_is_called(EntryKind::ALL);
        is_written_as_it_is_called(MoverState::ALL);
        is_written_as_it_is_called(OfferKind::ALL);
        assert_eq!(RequestState::named("safe"), Some(RequestState::Safe));
        assert_eq!(RequestState::named("Safe"), None);
    }
}
