//! Chunks of a request that go on between depots.

use crate::state::request::{Push, Request};

impl Request {
    /// Returns what may go on from where it lies, for any purpose.
    pub(crate) fn goes_on(&self) -> impl Iterator<Item = &Push> {
        let all = self.push.iter().chain(&self.delivery);
        all.chain(&self.mend).map(|onward| &**onward)
    }

    /// Returns the same pushes, to be changed.
    pub(crate) fn goes_on_mut(&mut self) -> impl Iterator<Item = &mut Push> {
        let all = self.push.iter_mut().chain(&mut self.delivery);
        all.chain(&mut self.mend).map(|onward| &mut **onward)
    }
}
