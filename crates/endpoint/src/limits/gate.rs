//! Number of streams open at once, which may change while streams are open.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Semaphore with a changing number of permits, first come, first served.
#[derive(Debug)]
pub struct Gate {
    permits: Arc<Semaphore>,
    limit: Mutex<usize>,
    /// Permits to withhold when they return.
    debt: AtomicUsize,
}

/// Permit for one stream.
#[derive(Debug)]
pub struct Pass {
    gate: Arc<Gate>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Gate {
    /// Returns a gate that lets `limit` through at once.
    #[must_use]
    pub fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            permits: Arc::new(Semaphore::new(limit)),
            limit: Mutex::new(limit),
            debt: AtomicUsize::new(0),
        })
    }

    /// Returns how many may be out at once.
    #[must_use]
    pub fn limit(&self) -> usize {
        *self.limit.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes how many may be out at once. Streams that are out are not called back.
    pub fn set(&self, wanted: usize) {
        let mut limit = self.limit.lock().unwrap_or_else(PoisonError::into_inner);
        if wanted >= *limit {
            let more = wanted - *limit;
            let mut forgiven = 0;
            while forgiven < more && self.take_debt() {
                forgiven += 1;
            }
            self.permits.add_permits(more - forgiven);
        } else {
            let fewer = *limit - wanted;
            let forgotten = self.permits.forget_permits(fewer);
            self.debt.fetch_add(fewer - forgotten, Relaxed);
        }
        *limit = wanted;
    }

    fn take_debt(&self) -> bool {
        let less = |debt: usize| debt.checked_sub(1);
        self.debt.fetch_update(Relaxed, Relaxed, less).is_ok()
    }

    /// Waits for a permit.
    pub async fn pass(self: &Arc<Self>) -> Pass {
        Pass {
            gate: Arc::clone(self),
            // The semaphore is never closed.
            permit: Arc::clone(&self.permits).acquire_owned().await.ok(),
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take()
            && self.gate.take_debt()
        {
            permit.forget();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_limit_holds_whatever_is_out_when_it_changes() {
        let gate = Gate::new(4);
        let mut out = Vec::new();
        for _ in 0..4 {
            out.push(gate.pass().await);
        }
        gate.set(2);
        out.pop();
        assert_eq!(gate.permits.available_permits(), 0);
        gate.set(3);
        out.pop();
        out.pop();
        assert_eq!(gate.permits.available_permits(), 2);
        out.clear();
        assert_eq!(gate.permits.available_permits(), 3);
        gate.set(1);
        assert_eq!(gate.permits.available_permits(), 1);
    }
}
