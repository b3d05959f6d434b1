//! Depots by the names that people give.

use std::sync::Arc;

use posthaste_endpoint::{Error, ErrorKind, Result, meant};

use super::{Depot, Depots};

impl Depots {
    /// The depot of that name.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] with the name that was meant, perhaps, where there is none.
    pub(crate) fn known(&self, operation: &'static str, name: &str) -> Result<Arc<Depot>> {
        self.named(name).ok_or_else(|| {
            let all = self.all();
            let names = all.iter().map(|depot| &*depot.record.name);
            let hint = "`posthaste depot list` shows them, `posthaste depot add` adds one";
            Error::new(ErrorKind::NotFound, operation, name)
                .cause("no depot of that name is in the books")
                .hint(meant(name, names, hint))
        })
    }
}
