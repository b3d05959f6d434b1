//! What of a request goes on between depots.

use super::{Push, Request};

impl Request {
    /// What of it may go on from where it lies, whatever for.
    pub(crate) fn goes_on(&self) -> impl Iterator<Item = &Push> {
        let all = self.push.iter().chain(&self.delivery);
        all.chain(&self.mend).map(|onward| &**onward)
    }

    /// The same to be changed.
    pub(crate) fn goes_on_mut(&mut self) -> impl Iterator<Item = &mut Push> {
        let all = self.push.iter_mut().chain(&mut self.delivery);
        all.chain(&mut self.mend).map(|onward| &mut **onward)
    }
}
