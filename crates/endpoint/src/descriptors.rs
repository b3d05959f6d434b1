//! Limits on the files and connections that this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Number assumed if the system sets no limit.
const WITHOUT_LIMIT: u64 = 1 << 20;

/// Raises this process's limit as far as allowed: a thousand depots need more than most systems'
/// default.
pub fn raise_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if limit.current != limit.maximum {
        // A failure leaves the present limit.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// Returns the number of descriptors that this process may have open.
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
