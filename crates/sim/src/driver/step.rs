//! Step of the mind, and what its commands and events bring.

use posthaste_core::contract::{DeliveryReason, Event, Happening, Input, Outbox, Reason};

use posthaste_types::Record;

use super::Run;
use crate::report::What;

impl Run<'_> {
    /// Runs one step of the mind, records it in the journal, checks it and executes its commands.
    pub(super) fn step(&mut self, inputs: Vec<Input>) {
        let Some(mut mind) = self.mind.take() else {
            self.ask_again(inputs);
            return;
        };
        let mut out = Outbox::default();
        let told = inputs.len();
        self.journal.append(self.now, &inputs);
        mind.step(self.now, inputs, &mut out);
        self.heed_codes(&out.events);
        for event in &out.events {
            let spec = event
                .request
                .and_then(|request| self.world.specs.get(&request));
            let arrival = event
                .request
                .and_then(|request| self.checkers.arrivals.deadline(request));
            let deadline = spec.map(|spec| spec.deadline).or(arrival);
            self.fates.hear(event, &mind, deadline);
        }
        let wakeup = mind.next_wakeup();
        // A mind that asks to be woken may be as busy as it likes.
        let is_busy = wakeup.is_none() && self.fates.is_any_moving(&mind);
        let found = self
            .checkers
            .progress
            .on_step(self.now, told, wakeup, is_busy);
        self.checkers.note(self.now, found);
        if self.journal.is_due(self.scenario.snapshot_every) {
            mind = mind.through(|mind| self.round_trip(mind));
        }
        self.mind = Some(mind);
        self.fold(&out);
        for event in &out.events {
            self.on_event(event);
        }
        if !out.events.is_empty() {
            self.note_fan_out();
        }
        for command in out.commands {
            self.execute(command);
        }
    }

    /// Folds the mind's output into the fingerprint (FNV-1a).
    fn fold(&mut self, out: &Outbox) {
        let mut bytes = Vec::new();
        out.events.iter().for_each(|event| event.write(&mut bytes));
        out.commands
            .iter()
            .for_each(|command| command.write(&mut bytes));
        self.now.write(&mut bytes);
        for byte in bytes {
            self.fingerprint = (self.fingerprint ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    fn on_event(&mut self, event: &Event) {
        self.checkers.deadlines.on_event(event);
        self.checkers.pauses.on_event(event);
        let found = self.checkers.dues.on_event(event);
        self.checkers.note(self.now, found);
        let found = (self.checkers.ways).on_said(event.depot, &event.happening);
        self.checkers.note(self.now, found);
        let found = self.checkers.arrivals.on_event(event);
        self.checkers.note(self.now, found);
        self.checkers.onward.on_event(event);
        self.checkers.domains.on_event(event);
        if let (Happening::Safe { .. }, Some(request)) = (&event.happening, event.request) {
            let losses = if let Reason::AllSafe { losses } | Reason::RestFollows { losses, .. } =
                event.reason
            {
                u8::try_from(losses).unwrap_or(u8::MAX)
            } else {
                u8::MAX
            };
            self.check_claim(request, losses, false);
        }
        self.check_release(event);
        if let (
            Reason::Delivery {
                why: DeliveryReason::WholeThere { .. },
            }
            | Reason::Delivery {
                why: DeliveryReason::InTime { .. },
            }
            | Reason::Delivery {
                why: DeliveryReason::Late { .. },
            },
            Some(request),
        ) = (&event.reason, event.request)
        {
            let found = crate::checkers::on_delivered(request, self.world.undelivered(request));
            self.checkers.note(self.now, found);
        }
        let what = What::Said {
            happening: event.happening.clone(),
            reason: event.reason.clone(),
        };
        self.log(event.request, event.depot, what);
    }
}
