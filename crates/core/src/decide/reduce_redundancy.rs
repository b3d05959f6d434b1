//! Less redundancy first, if the user said what suffices by the deadline
//! (`docs/algorithms/wishes.md`). Fragments for so many losses of all chunks come before more of
//! any.

use posthaste_types::Code;

use crate::{
    contract::{Reason, RequestState},
    decide,
    decide::verdict::Verdict,
    state,
    state::completion::Promised,
    state::{Release, Request, State},
};

/// Weighs a request; if all of its code can't be stored by its deadline, with the losses that
/// suffice. If it can't be stored at all, that is no question of time: the rest would never
/// follow.
pub(crate) fn weigh_lighter(state: &State, request: &mut Request, left: &Promised) -> Verdict {
    let all = decide::budget::weigh_within(state, request, left);
    let is_taken = matches!(
        &all,
        Verdict::Admit {
            is_leftover: false,
            ..
        }
    );
    let is_late = !is_taken && decide::admission::find_flaw(state, request).is_none();
    let Some(light) = request.light().filter(|_| is_late) else {
        return all;
    };
    let mut lighter = request.clone();
    lighter.spec.code = light;
    lighter.set_kin(state::failure_domain::kin(state, &lighter));
    match decide::budget::weigh_within(state, &mut lighter, left) {
        verdict @ Verdict::Admit {
            is_leftover: false, ..
        } => {
            request.replica.set_enough(Some(u32::from(light.total())));
            request.set_kin(state::failure_domain::kin(state, &lighter));
            request.uncommon.dear = lighter.uncommon.dear;
            verdict
        }
        Verdict::Admit { .. } | Verdict::Refuse(_) => all,
    }
}

impl Request {
    /// Returns the code that suffices by the deadline, if that is less than all.
    pub(crate) fn light(&self) -> Option<Code> {
        let (data, parity) = (self.spec.code.data(), self.spec.code.parity());
        let losses = u8::try_from(self.wishes.safe_with?).ok()?;
        (losses < parity).then(|| Code::new(data, losses).ok())?
    }

    /// Returns the losses that chunks must survive first, if that is less than all.
    pub(crate) fn losses_first(&self) -> Option<u32> {
        let data = u32::from(self.spec.code.data());
        Some(self.replica.enough()?.saturating_sub(data))
    }

    /// Accepts what suffices as the whole, as nothing more can be sent.
    pub(crate) fn suffice(&mut self) {
        let light = self.light();
        self.replica
            .set_enough(light.map(|light| u32::from(light.total())));
    }

    /// Returns whether all of a chunk at one destination is safe there, as no loss must be
    /// survived. Otherwise that destination counts as one holder more.
    pub(crate) fn is_safe_whole(&self) -> bool {
        self.code_now().parity() == 0
    }

    /// Returns why its source may go: how many losses all of it survives, or that every recipient
    /// has it.
    pub(crate) fn reason_safe(&self) -> Reason {
        if self.state == RequestState::Delivered {
            return Reason::Verified;
        }
        let parity = u32::from(self.spec.code.parity());
        Reason::AllSafe {
            losses: match self.replica.is_thinned() {
                true => self.replica.survives().unwrap_or(0),
                // If the source went before the rest of the code was there, only what suffices is
                // promised.
                false => self.losses_first().unwrap_or(parity),
            },
        }
    }

    /// Returns why a depot is asked for what it holds: if the source is removed by its answer, that
    /// everything is safe, and otherwise the given reason.
    pub(crate) fn reason_to_ask(&self, reason: Reason) -> Reason {
        match self.uncommon.has_asked_all && self.release == Release::Pending {
            true => self.reason_safe(),
            false => reason,
        }
    }

    /// Returns whether all of it survives what had to suffice by its deadline, if that is less than
    /// all of its code. Visits every chunk then.
    pub(crate) fn survives_what_suffices(&self) -> bool {
        let losses = self.light().map(|light| u32::from(light.parity()));
        losses.is_some_and(|losses| self.replica.survives() >= Some(losses))
    }

    /// Returns the code that counts now.
    pub(crate) fn code_now(&self) -> Code {
        let light = self.replica.enough().and_then(|_| self.light());
        light.unwrap_or(self.spec.code)
    }
}
