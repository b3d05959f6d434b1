//! How many files and connections this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Counted on where the system sets no limit.
const WITHOUT_LIMIT: u64 = 1 << 20;

/// Lets this process open as many as it may: a thousand depots take more than most systems let by themselves.
pub fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if limit.current != limit.maximum {
        // Where that fails it goes on with what it has.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// Returns how many this process may have open.
#[must_use]
pub fn descriptors_max() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(WITHOUT_LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_may_be_open_as_the_system_lets() {
        raise_descriptors();
        let limit = getrlimit(Resource::Nofile);
        assert_eq!(limit.current, limit.maximum);
        assert!(descriptors_max() >= 64);
    }
}
