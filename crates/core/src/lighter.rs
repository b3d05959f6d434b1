//! Less redundancy first, if the user said what suffices by the deadline
//! (`docs/algorithms/wishes.md`). Fragments for so many losses of all chunks come before more of
//! any.

use alloc::string::String;
use posthaste_types::{Code, RequestId};

use crate::{
    Mind,
    admission::Verdict,
    books::Request,
    contract::{Happening, Outbox, Reason, RequestState},
    outlook::Promised,
};

impl Mind {
    /// Weighs a request; if all of its code can't be stored by its deadline, with the losses that
    /// suffice. If it can't be stored at all, that is no question of time: the rest would never
    /// follow.
    pub(crate) fn weigh_lighter(&self, request: &mut Request, left: &Promised) -> Verdict {
        let all = self.weigh_within(request, left);
        let is_taken = matches!(
            &all,
            Verdict::Admit {
                is_leftover: false,
                ..
            }
        );
        let is_late = !is_taken && self.find_flaw(request).is_none();
        let Some(light) = request.light().filter(|_| is_late) else {
            return all;
        };
        let mut lighter = request.clone();
        lighter.spec.code = light;
        lighter.set_kin(self.kin(&lighter));
        match self.weigh_within(&mut lighter, left) {
            verdict @ Verdict::Admit {
                is_leftover: false, ..
            } => {
                request.replica.set_enough(Some(u32::from(light.total())));
                request.set_kin(self.kin(&lighter));
                request.uncommon.dear = lighter.uncommon.dear;
                verdict
            }
            Verdict::Admit { .. } | Verdict::Refuse(_) => all,
        }
    }

    /// Puts what suffices first for a request at risk. Returns whether that is new.
    pub(crate) fn lighten(&mut self, id: RequestId) -> bool {
        let Some(request) = self.requests.get_mut(&id) else {
            return false;
        };
        let may = request.is_moving() && request.safe_at.is_none();
        let Some(light) = request.light().filter(|_| may) else {
            return false;
        };
        if request.replica.enough().is_some() {
            return false;
        }
        request.replica.set_enough(Some(u32::from(light.total())));
        self.keep_apart(id);
        self.refresh_stripes(id);
        self.say_lighter(id);
        true
    }

    /// Bounds fragments in a failure domain by what the present code survives.
    fn keep_apart(&mut self, id: RequestId) {
        let kin = self.requests.get(&id).map(|request| self.kin(request));
        if let Some((request, kin)) = self.requests.get_mut(&id).zip(kin) {
            request.set_kin(kin);
        }
    }

    /// Records that less comes first, if it does.
    pub(crate) fn say_lighter(&mut self, id: RequestId) {
        let Some(request) = self.requests.get(&id) else {
            return;
        };
        if let Some(losses) = request.losses_first() {
            let parity = u32::from(request.spec.code.parity());
            let reason = Reason::LessFirst { losses, parity };
            self.remember(id, String::from("less redundancy first"), reason);
        }
    }

    /// Handles a request whose sufficient part is complete: its deadline is kept, and the rest of
    /// its code follows, behind others. Returns whether it was so.
    pub(crate) fn follow_up(&mut self, id: RequestId, out: &mut Outbox) -> bool {
        let now = self.now;
        let Some(request) = self.requests.get_mut(&id) else {
            return false;
        };
        let losses = request.losses_first().filter(|_| request.is_moving());
        let Some(losses) = losses else { return false };
        request.replica.set_enough(None);
        if request.replica.is_safe() {
            self.keep_apart(id);
            return false;
        }
        if request.safe_at.is_none() {
            request.account.close(now);
        }
        request.safe_at.get_or_insert(now);
        (request.at_risk, request.finish) = (false, None);
        request.go_last(self.shares.turn(request.wishes.claim(), &self.settings));
        let (bytes, parity) = (request.spec.bytes, u32::from(request.spec.code.parity()));
        self.keep_apart(id);
        self.refresh_stripes(id);
        let reason = Reason::RestFollows { losses, parity };
        self.tell(out, Some(id), None, Happening::Safe { bytes }, reason);
        true
    }
}

impl Request {
    /// Returns the code that suffices by the deadline, if that is less than all.
    fn light(&self) -> Option<Code> {
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
