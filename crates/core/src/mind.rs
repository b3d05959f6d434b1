use alloc::{collections::BTreeMap, format, string::String, vec::Vec};
use posthaste_plan::tuner::Method;
use posthaste_types::{ByteRate, Bytes, DepotId, Malformed, Record, RequestId, Timestamp, record};

use crate::{
    Settings,
    books::{
        Arrivals, Book, Circuits, Crossings, Depot, Forgets, Index, Push, Pushes, Request, Shares,
        Spaces, Transfers,
    },
    contract::{Decision, Event, Happening, Input, LentTerms, Outbox, Reason, Wishes},
    outlook::{Promised, Sweep},
    planning::Planning,
    probing::Probing,
    way_out::WayOut,
    ways::Trial,
};

/// Version of the snapshot layout, at the start of every snapshot.
const SNAPSHOT_VERSION: u32 = 60;

record! {
    /// Decision maker of one centre.
    ///
    /// Deterministic: the same inputs at the same moments give the same bytes out. A restored mind
    /// decides as the one that wrote the snapshot would have. The books are bounded by what was
    /// asked for: a byte for each chunk and depot, plus what is in flight.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Mind {
        pub(crate) settings: Settings,
        pub(crate) now: Timestamp,
        pub(crate) depots: Book<DepotId, Depot>,
        pub(crate) requests: Book<RequestId, Request>,
        pub(crate) transfers: Transfers,
        pub(crate) pushes: Pushes,
        pub(crate) crossings: Crossings,
        pub(crate) index: Index,
        pub(crate) shares: Shares,
        /// Probe in progress: one at a time for the whole centre.
        pub(crate) probing: Option<Probing>,
        /// Way being tried: one at a time for the whole centre.
        pub(crate) trial: Option<Trial>,
        /// Time of the next look at everything, while something moves.
        pub(crate) tick_at: Option<Timestamp>,
        /// Time at which time alone next changes something.
        pub(crate) alarm: Option<Timestamp>,
        /// Look at everything in progress.
        pub(crate) sweep: Option<Sweep>,
        /// Capacity that the last look left for newcomers.
        pub(crate) promised: Option<Promised>,
        pub(crate) way_out: WayOut,
        /// True if depots come and go, at the last tick or loss.
        pub(crate) is_restless: bool,
        pub(crate) planning: Planning,
        /// Stage-ins, and their sources.
        pub(crate) arrivals: Arrivals,
        /// Circuits on offer, and reservations.
        pub(crate) circuits: Circuits,
        /// Space that depots keep for requests.
        pub(crate) spaces: Spaces,
        /// Data that depots should remove, as every destination has it.
        pub(crate) forgets: Forgets,
        /// Terms on which depots are lent for requests that are submitted next.
        pub(crate) lent: BTreeMap<RequestId, Vec<LentTerms>>,
    }
}

impl Mind {
    /// Returns a mind that knows nothing yet.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            now: Timestamp::default(),
            depots: Book::default(),
            requests: Book::default(),
            transfers: Transfers::default(),
            pushes: Pushes::default(),
            crossings: Crossings::default(),
            index: Index::default(),
            shares: Shares::default(),
            probing: None,
            trial: None,
            tick_at: None,
            alarm: None,
            sweep: None,
            promised: None,
            way_out: WayOut::default(),
            is_restless: false,
            planning: Planning::default(),
            arrivals: Arrivals::default(),
            circuits: Circuits::default(),
            spaces: Spaces::default(),
            forgets: Forgets::default(),
            lent: BTreeMap::new(),
        }
    }

    /// Processes inputs until `now` and appends to `out` the resulting commands and events.
    ///
    /// A stored fragment visits each depot of its request; inputs about a whole depot visit each
    /// request and each chunk it holds. Each tick begins a look at everything, which many requests
    /// spread over many steps. A `now` before an earlier one counts as that one.
    pub fn step(&mut self, now: Timestamp, inputs: Vec<Input>, out: &mut Outbox) {
        self.now = self.now.max(now);
        for input in inputs {
            self.take(input, out);
        }
        self.bring_up_to_date();
        if self.find_alarm().is_some_and(|alarm| alarm <= self.now) {
            self.on_time(out);
            self.bring_up_to_date();
        }
        self.return_unneeded(out);
        self.give_back_space(out);
        self.tell_to_forget(out);
        self.dispatch(out);
        self.push_on(out);
        self.bring_in(out);
        self.forget_oldest();
        self.forget_oldest_arrivals();
        self.set_tick();
        self.alarm = self.find_alarm();
    }

    /// Returns when the mind needs its next step, if nothing happens before.
    #[must_use]
    pub fn next_wakeup(&self) -> Option<Timestamp> {
        self.alarm
    }

    /// Returns the whole state of the mind, as bytes.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        let mut out = Vec::new();
        SNAPSHOT_VERSION.write(&mut out);
        self.write(&mut out);
        out
    }

    /// Restores the mind that wrote the snapshot.
    ///
    /// # Errors
    ///
    /// [`Malformed`] if the bytes are no snapshot of this version.
    pub fn restore(bytes: &[u8]) -> Result<Self, Malformed> {
        let malformed = Malformed {
            expected: "snapshot",
        };
        let mut rest = bytes;
        if u32::read(&mut rest)? != SNAPSHOT_VERSION {
            return Err(malformed);
        }
        let mut mind = Self::from_bytes(rest)?;
        mind.share_alike();
        let is_sound = mind.requests.values().all(|request| {
            request.lanes.len() <= Request::LANES_MAX
                && (!request.is_kept() || request.replica.chunks() == request.spec.chunks())
                && request.replica.is_sound(request.lanes.len())
                && request.is_whole_sound()
                && is_push_sound(request)
        }) && mind.sweep.as_ref().is_none_or(Sweep::is_sound)
            && mind.promised.as_ref().is_none_or(Promised::is_sound)
            && mind.planning.is_sound()
            && mind.arrivals.is_sound()
            && mind.spaces.is_sound()
            && mind.forgets.is_sound()
            && mind.depots.values().all(|depot| depot.fork.is_sound());
        if is_sound { Ok(mind) } else { Err(malformed) }
    }

    /// Returns whether this snapshot has an older, unreadable layout: replaying all inputs rebuilds
    /// it.
    #[must_use]
    pub fn is_outdated(bytes: &[u8]) -> bool {
        let mut rest = bytes;
        u32::read(&mut rest).is_ok_and(|version| version < SNAPSHOT_VERSION)
    }

    /// Returns the request's decisions with reasons, oldest first; none if it is unknown.
    #[must_use]
    pub fn explain(&self, request: RequestId) -> Option<Vec<Decision>> {
        let arrival = self.arrivals.requests.get(&request);
        let arrival = arrival.map(|arrival| arrival.decisions.to_vec());
        let request = self.requests.get(&request);
        request
            .map(|request| request.decisions.to_vec())
            .or(arrival)
    }

    /// Dispatches inputs: each kind has its own file.
    #[expect(
        clippy::too_many_lines,
        reason = "every kind of input, in one place, and nothing else"
    )]
    fn take(&mut self, input: Input, out: &mut Outbox) {
        match input {
            Input::DriverStarted => self.on_driver_started(out),
            Input::DepotAdded {
                depot,
                name,
                capacity,
                rate_max,
            } => {
                self.on_depot_added(depot, name, capacity, rate_max, out);
            }
            Input::DepotLent { depot, terms } => self.on_depot_terms(depot, terms),
            Input::DepotPriced { depot, prices } => self.on_depot_prices(depot, prices),
            Input::DepotLevelled { depot, level } => self.on_depot_levelled(depot, level),
            Input::DepotFollows { depot, follows } => self.on_depot_follows(depot, follows),
            Input::DepotStores { depot, stores } => self.on_depot_stores(depot, stores),
            Input::DepotDrained {
                depot,
                drain,
                is_own,
            } => self.on_depot_drained(depot, drain, is_own, out),
            Input::DepotRemoved { depot } => self.on_depot_removed(depot, out),
            Input::DepotUp {
                depot,
                free,
                rate_max,
            } => {
                self.on_depot_up(depot, free, rate_max, out);
            }
            Input::DepotDown { depot, fault } => self.on_depot_down(depot, fault, out),
            Input::DepotInventory {
                depot,
                request,
                held,
            } => {
                self.on_depot_inventory(depot, request, &held, out);
            }
            Input::RequestSubmitted { request, spec } => {
                let asked =
                    Request::new(spec, Method::Auto, Wishes::default(), Vec::new(), self.now);
                self.on_request_submitted(request, asked, out);
            }
            Input::RequestSubmittedWith {
                request,
                spec,
                optimizer,
            } => {
                let asked = Request::new(spec, optimizer, Wishes::default(), Vec::new(), self.now);
                self.on_request_submitted(request, asked, out);
            }
            Input::RequestAsked {
                request,
                spec,
                optimizer,
                wishes,
            } => {
                let asked = Request::new(spec, optimizer, wishes, Vec::new(), self.now);
                self.on_request_submitted(request, asked, out);
            }
            Input::RequestAskedBy {
                request,
                spec,
                optimizer,
                wishes,
                purge_at,
            } => {
                let mut asked = Request::new(spec, optimizer, wishes, Vec::new(), self.now);
                asked.bind(asked.wished_deadline, Some(purge_at));
                self.on_request_submitted(request, asked, out);
            }
            Input::RequestPinned {
                request,
                spec,
                optimizer,
                wishes,
                purge_at,
                pinned,
            } => {
                let mut asked = Request::new(spec, optimizer, wishes, pinned, self.now);
                asked.bind(asked.wished_deadline, purge_at);
                self.on_request_submitted(request, asked, out);
            }
            Input::DeliveryMoved {
                request,
                deliver_by,
            } => self.on_delivery_moved(request, deliver_by, out),
            Input::PurgeForeseen {
                request,
                purge_at,
                rule,
            } => self.on_purge_foreseen(request, purge_at, rule, out),
            Input::PurgeMoved { request, purge_at } => self.on_purge_moved(request, purge_at, out),
            Input::RequestCancelled { request } => self.on_request_cancelled(request, out),
            Input::FragmentStored {
                request,
                depot,
                chunk,
                fragment,
            } => {
                self.on_fragment_stored(request, depot, chunk, fragment, out);
            }
            Input::FragmentFailed {
                request,
                depot,
                chunk,
                fragment,
                fault,
            } => {
                self.on_fragment_failed(request, depot, chunk, fragment, fault, out);
            }
            Input::Recalled {
                request,
                depot,
                chunk,
                fragment,
            } => self.on_recalled(request, depot, chunk, fragment),
            Input::Throughput {
                depot,
                bytes,
                window,
                saturated,
            } => {
                self.on_throughput(depot, bytes, window, saturated, out);
            }
            Input::SourceReleased { request } => self.on_source_released(request, out),
            Input::SourceFileTold {
                request,
                fault,
                what,
            } => self.on_source_fault(request, fault, Some(what), out),
            Input::FileAtFault { request, file } => self.on_file_at_fault(request, file, out),
            Input::ChunkRenewed { request, chunk } => self.on_chunk_renewed(request, chunk, out),
            Input::SourceFileKept { request, what } => self.on_file_kept(request, what),
            Input::SourceKept { request, fault } => self.on_source_kept(request, fault, out),
            Input::Delivered { request } => self.on_delivered(request, out),
            Input::ForgetAsked { request } => self.on_forget_asked(request),
            Input::DeadlineMoved { request, deadline } => {
                self.on_deadline_moved(request, deadline, out);
            }
            Input::ArrivalMoved {
                request,
                not_before,
                deadline,
            } => self.on_arrival_moved(request, not_before, deadline, out),
            Input::RateLimited { request, rate_max } => self.on_rate_limited(request, rate_max),
            Input::Paused { request, by } => self.on_paused(request, by, out),
            Input::Resumed { request, by } => self.on_resumed(request, by, out),
            Input::PriorityMoved { request, priority } => self.on_priority_moved(request, priority),
            Input::Probed {
                depot,
                sent,
                bytes,
                window,
                is_bound,
            } => self.on_probed(depot, sent, bytes, window, is_bound, out),
            Input::CrossingProbed {
                from,
                to,
                sent,
                bytes,
                window,
                is_bound,
                round_trip,
            } => {
                let found = (!window.is_zero() && bytes > Bytes::ZERO)
                    .then(|| (ByteRate::over(bytes, window), is_bound));
                self.on_crossing_probed((from, to), sent, found, round_trip, out);
            }
            Input::CrossingProbeAsked { from, to } => self.on_crossing_probe_asked(from, to, out),
            Input::DistanceTold { depot, round_trip } => self.on_distance_told(depot, round_trip),
            Input::ProbeAsked { depot } => self.on_probe_asked(depot, out),
            Input::PlanSolved { number, schedule } => {
                self.on_plan_solved(number, schedule.as_ref(), out);
            }
            Input::SourceFound {
                source,
                name,
                rate_max,
            } => self.on_source_found(source, name, rate_max),
            Input::ArrivalAsked { request, spec } => {
                self.on_arrival_asked(request, spec, &[], out);
            }
            Input::ArrivalGathered {
                request,
                spec,
                holdings,
            } => self.on_arrival_asked(request, spec, &holdings, out),
            Input::LentTold { request, terms } => self.on_lent_told(request, terms),
            Input::LoadTold {
                depot,
                load_permille,
            } => self.on_load_told(depot, load_permille, out),
            Input::LoadBounded {
                depot,
                load_max_permille,
            } => self.on_load_bounded(depot, load_max_permille, out),
            Input::StageInTold { request, news } => self.on_stage_in_told(request, &news, out),
            Input::ChunkArrived {
                request,
                source,
                chunk,
            } => self.on_chunk_arrived(request, source, chunk, out),
            Input::ChunkMissed {
                request,
                source,
                chunk,
                fault,
            } => self.on_chunk_missed(request, source, chunk, fault, out),
            Input::Inbound {
                source,
                bytes,
                window,
                saturated,
            } => self.on_inbound(source, bytes, window, saturated),
            Input::GatherTold {
                request,
                depot,
                chunk,
                givers,
            } => self.on_gather_told(request, depot, chunk, &givers, out),
            Input::ScatterFailed {
                request,
                depot,
                chunk,
                fault,
            } => self.on_scatter_failed(request, depot, chunk, fault, out),
            Input::PieceTold {
                request,
                depot,
                chunk,
                span,
            } => self.on_piece_told(request, depot, chunk, span),
            Input::EncodeChosen { encode } => self.on_encode_chosen(encode),
            Input::EgressTold { rate } => self.on_egress_told(rate),
            Input::ArrivalSurveyed { request, chunks } => {
                self.on_arrival_surveyed(request, &chunks);
            }
            Input::DepotReserves { depot, reserves } => self.on_depot_reserves(depot, reserves),
            Input::Forgotten {
                request,
                depot,
                done,
            } => self.on_forgotten(request, depot, done, out),
            Input::SpaceTold {
                request,
                depot,
                news,
            } => self.on_space_told(request, depot, news),
            Input::CircuitOffered { circuit, terms } => self.on_circuit_offered(circuit, terms),
            Input::CircuitWithdrawn { circuit } => self.on_circuit_withdrawn(circuit),
            Input::WaysFound { depot, ways } => self.on_ways_found(depot, ways, out),
            Input::WayTold { depot, way } => self.on_way_told(depot, way, out),
            Input::ReservationTold { reservation, news } => {
                self.on_reservation_told(reservation, news, out);
            }
            Input::Landed { request } => self.on_landed(request, out),
            Input::LandingFailed { request, fault } => {
                self.on_landing_failed(request, fault, out);
            }
        }
    }

    /// Reports an event, and remembers it with its request.
    pub(crate) fn tell(
        &mut self,
        out: &mut Outbox,
        request: Option<RequestId>,
        depot: Option<DepotId>,
        happening: Happening,
        reason: Reason,
    ) {
        let event = Event {
            at: self.now,
            request,
            depot,
            happening,
            reason,
        };
        if let Some(request) = request {
            self.remember_event(request, &event, 0);
        }
        out.events.push(event);
    }

    /// Returns the name that people use for a depot.
    pub(crate) fn name_of(&self, depot: DepotId) -> String {
        self.depots
            .get(&depot)
            .map_or_else(|| format!("{depot}"), |depot| depot.name.clone())
    }

    /// Schedules a look at everything within this step, not at the next tick.
    pub(crate) fn look_now(&mut self) {
        self.tick_at = Some(self.now);
        if let Some(promised) = &mut self.promised {
            promised.is_stale = true;
        }
    }
}

/// Returns whether decoded bytes made usable pushes.
fn is_push_sound(request: &Request) -> bool {
    let is_sound = |push: &Push| push.is_sound(request.replica.chunks());
    request.goes_on().all(is_sound)
}
