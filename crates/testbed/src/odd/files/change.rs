//! Changes of attributes.

use std::time::{SystemTime, UNIX_EPOCH};

use fuser::{Errno, TimeOrNow};
use rustix::fs::{Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};

/// Answer to the kernel.
pub(super) type Answer<T> = Result<T, Errno>;

/// Change of a file's attributes.
pub(super) struct Change {
    pub(super) mode: Option<u32>,
    pub(super) size: Option<u64>,
    pub(super) times: Option<Timestamps>,
}

/// Returns the change of both times, if any of it is accepted.
pub(super) fn times(
    atime: Option<TimeOrNow>,
    mtime: Option<TimeOrNow>,
    both_or_none: bool,
) -> Option<Timestamps> {
    let (is_any, is_both) = (
        atime.is_some() || mtime.is_some(),
        atime.is_some() && mtime.is_some(),
    );
    (is_both || is_any && !both_or_none).then(|| Timestamps {
        last_access: timespec(atime),
        last_modification: timespec(mtime),
    })
}

/// Converts a time to the kernel's form.
fn timespec(time: Option<TimeOrNow>) -> Timespec {
    let bare = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    let time = match time {
        None => return bare(UTIME_OMIT),
        Some(TimeOrNow::Now) => return bare(UTIME_NOW),
        Some(TimeOrNow::SpecificTime(time)) => time,
    };
    let since = |time: SystemTime| time.duration_since(UNIX_EPOCH);
    match since(time) {
        Ok(since) => Timespec {
            tv_sec: since.as_secs().cast_signed(),
            tv_nsec: since.subsec_nanos().into(),
        },
        // Before 1970, seconds are counted downwards and nanoseconds upwards.
        Err(before) => {
            let nanos = before.duration().as_nanos().cast_signed();
            Timespec {
                tv_sec: i64::try_from((-nanos).div_euclid(1_000_000_000)).unwrap(),
                tv_nsec: i64::try_from((-nanos).rem_euclid(1_000_000_000)).unwrap(),
            }
        }
    }
}
