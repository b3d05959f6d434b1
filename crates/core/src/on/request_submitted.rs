use posthaste_types::RequestId;

use crate::{
    Mind,
    admission::Verdict,
    books::{Account, Depot, Request},
    contract::{Forecast, Happening, Outbox, Reason, RequestState},
};

impl Mind {
    /// A user submitted a stage-out: it is taken and starts within this step, or refused with the
    /// reason. A number that is known already is ignored, so that a replay does no harm.
    pub(crate) fn on_request_submitted(
        &mut self,
        id: RequestId,
        mut request: Request,
        out: &mut Outbox,
    ) {
        if self.requests.contains_key(&id) {
            return;
        }
        for lane in &request.lanes {
            self.look_at_link(lane.depot);
        }
        request.set_kin(self.kin(&request));
        self.bring_up_to_date();
        let mut left = self.left_for_newcomers();
        match self.weigh_newcomer(&mut request, &left) {
            Verdict::Refuse(reason) => {
                let (reason, would_buy) = self.bargain(&request, &left, reason);
                request.state = RequestState::Refused;
                request.close_books();
                self.requests.insert(id, request);
                self.tell(out, Some(id), None, Happening::Refused, reason);
                if !would_buy.is_empty() {
                    self.remember(id, "offered".into(), Reason::Offered { would_buy });
                }
                self.promised = Some(left);
            }
            Verdict::Admit {
                route,
                active,
                reason,
                finish,
                is_leftover,
            } => {
                let (reason, _) = self.bargain(&request, &left, reason);
                request.route = route;
                request.is_leftover = is_leftover;
                if is_leftover {
                    request.turn = self.shares.turn(&request.wishes, &self.settings);
                }
                request.finish = finish.map(|finish| Forecast {
                    p10: finish,
                    p50: finish,
                    p90: finish,
                });
                let destination = request.destination();
                for (place, lane) in request.lanes.iter_mut().enumerate() {
                    // A destination that is away is fed as soon as it is back.
                    lane.is_active = active.contains(&place) || destination == Some(place);
                    let depot = self.depots.get(&lane.depot);
                    let is_live = depot.is_some_and(Depot::is_expected);
                    request.replica.set_live(place, is_live);
                }
                if !is_leftover {
                    let load = self.promised_load(&request, &left);
                    left.promise(&load, request.spec.deadline);
                }
                self.promised = Some(left);
                request.account = Account::open(request.spec.deadline, finish);
                self.requests.insert(id, request);
                self.sort_by_level(id);
                self.admit(id, reason, is_leftover, out);
            }
        }
    }

    fn admit(&mut self, id: RequestId, reason: Reason, is_leftover: bool, out: &mut Outbox) {
        self.say_code(id, out);
        self.tell(out, Some(id), None, Happening::Admitted, reason);
        self.remember_optimizer(id);
        self.remember_spares(id);
        self.settle(id, out);
        self.bring_up_to_date();
        self.look_ahead();
        if is_leftover {
            self.say_at_risk(id, out);
        }
    }
}
