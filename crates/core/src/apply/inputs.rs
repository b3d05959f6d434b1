//! Inputs of the mind, one file for each kind.

pub(crate) mod arrival_asked;
pub(crate) mod arrival_moved;
pub(crate) mod arrival_surveyed;
pub(crate) mod chunk_arrived;
pub(crate) mod chunk_missed;
pub(crate) mod circuit_offered;
pub(crate) mod circuit_withdrawn;
pub(crate) mod crossing_probe_asked;
pub(crate) mod crossing_probed;
pub(crate) mod deadline_moved;
pub(crate) mod delivered;
pub(crate) mod delivery_moved;
pub(crate) mod depot_added;
pub(crate) mod depot_down;
pub(crate) mod depot_drained;
pub(crate) mod depot_follows;
pub(crate) mod depot_inventory;
pub(crate) mod depot_levelled;
pub(crate) mod depot_owned;
pub(crate) mod depot_removed;
pub(crate) mod depot_stores;
pub(crate) mod depot_terms;
pub(crate) mod depot_up;
pub(crate) mod distance_told;
pub(crate) mod driver_started;
pub(crate) mod file_at_fault;
pub(crate) mod forget_asked;
pub(crate) mod fragment_failed;
pub(crate) mod fragment_stored;
pub(crate) mod gather_told;
pub(crate) mod inbound;
pub(crate) mod landed;
pub(crate) mod lent_told;
pub(crate) mod paused;
pub(crate) mod plan_solved;
pub(crate) mod priority_moved;
pub(crate) mod probe_asked;
pub(crate) mod probed;
pub(crate) mod rate_limited;
pub(crate) mod recalled;
pub(crate) mod request_cancelled;
pub(crate) mod request_submitted;
pub(crate) mod reservation_told;
pub(crate) mod scatter_failed;
pub(crate) mod source_found;
pub(crate) mod source_kept;
pub(crate) mod source_released;
pub(crate) mod stage_in_told;
pub(crate) mod throughput;

use alloc::vec::Vec;
use posthaste_plan::tuner::Method;
use posthaste_types::{ByteRate, Bytes};

use crate::{
    apply,
    contract::{Input, Outbox, Wishes},
    state::{Request, State},
};

/// Dispatches inputs: each kind has its own file.
#[expect(
    clippy::too_many_lines,
    reason = "every kind of input, in one place, and nothing else"
)]
pub(crate) fn take(state: &mut State, input: Input, out: &mut Outbox) {
    match input {
        Input::DriverStarted => apply::inputs::driver_started::on_driver_started(state, out),
        Input::DepotAdded {
            depot,
            name,
            capacity,
            rate_max,
        } => {
            apply::inputs::depot_added::on_depot_added(state, depot, name, capacity, rate_max, out);
        }
        Input::DepotLent { depot, terms } => {
            apply::inputs::depot_terms::on_depot_terms(state, depot, terms)
        }
        Input::DepotPriced { depot, prices } => {
            apply::inputs::depot_terms::on_depot_prices(state, depot, prices)
        }
        Input::DepotOwned { depot, owner } => {
            apply::inputs::depot_owned::on_depot_owned(state, depot, owner)
        }
        Input::DepotLevelled { depot, level } => {
            apply::inputs::depot_levelled::on_depot_levelled(state, depot, level)
        }
        Input::DepotFollows { depot, follows } => {
            apply::inputs::depot_follows::on_depot_follows(state, depot, follows)
        }
        Input::DepotStores { depot, stores } => {
            apply::inputs::depot_stores::on_depot_stores(state, depot, stores)
        }
        Input::DepotDrained {
            depot,
            drain,
            is_own,
        } => apply::inputs::depot_drained::on_depot_drained(state, depot, drain, is_own, out),
        Input::DepotRemoved { depot } => {
            apply::inputs::depot_removed::on_depot_removed(state, depot, out)
        }
        Input::DepotUp {
            depot,
            free,
            rate_max,
        } => {
            apply::inputs::depot_up::on_depot_up(state, depot, free, rate_max, out);
        }
        Input::DepotDown { depot, fault } => {
            apply::inputs::depot_down::on_depot_down(state, depot, fault, out)
        }
        Input::DepotInventory {
            depot,
            request,
            held,
        } => {
            apply::inputs::depot_inventory::on_depot_inventory(state, depot, request, &held, out);
        }
        Input::RequestSubmitted { request, spec } => {
            let asked = Request::new(spec, Method::Auto, Wishes::default(), Vec::new(), state.now);
            apply::inputs::request_submitted::on_request_submitted(state, request, asked, out);
        }
        Input::RequestSubmittedWith {
            request,
            spec,
            optimizer,
        } => {
            let asked = Request::new(spec, optimizer, Wishes::default(), Vec::new(), state.now);
            apply::inputs::request_submitted::on_request_submitted(state, request, asked, out);
        }
        Input::RequestAsked {
            request,
            spec,
            optimizer,
            wishes,
        } => {
            let asked = Request::new(spec, optimizer, wishes, Vec::new(), state.now);
            apply::inputs::request_submitted::on_request_submitted(state, request, asked, out);
        }
        Input::RequestAskedBy {
            request,
            spec,
            optimizer,
            wishes,
            purge_at,
        } => {
            let mut asked = Request::new(spec, optimizer, wishes, Vec::new(), state.now);
            asked.bind(asked.wished_deadline, Some(purge_at));
            apply::inputs::request_submitted::on_request_submitted(state, request, asked, out);
        }
        Input::RequestPinned {
            request,
            spec,
            optimizer,
            wishes,
            purge_at,
            pinned,
        } => {
            let mut asked = Request::new(spec, optimizer, wishes, pinned, state.now);
            asked.bind(asked.wished_deadline, purge_at);
            apply::inputs::request_submitted::on_request_submitted(state, request, asked, out);
        }
        Input::DeliveryMoved {
            request,
            deliver_by,
        } => apply::inputs::delivery_moved::on_delivery_moved(state, request, deliver_by, out),
        Input::PurgeForeseen {
            request,
            purge_at,
            rule,
        } => apply::inputs::deadline_moved::on_purge_foreseen(state, request, purge_at, rule, out),
        Input::PurgeMoved { request, purge_at } => {
            apply::inputs::deadline_moved::on_purge_moved(state, request, purge_at, out)
        }
        Input::RequestCancelled { request } => {
            apply::inputs::request_cancelled::on_request_cancelled(state, request, out)
        }
        Input::FragmentStored {
            request,
            depot,
            chunk,
            fragment,
        } => {
            apply::inputs::fragment_stored::on_fragment_stored(
                state, request, depot, chunk, fragment, out,
            );
        }
        Input::FragmentFailed {
            request,
            depot,
            chunk,
            fragment,
            fault,
        } => {
            apply::inputs::fragment_failed::on_fragment_failed(
                state, request, depot, chunk, fragment, fault, out,
            );
        }
        Input::Recalled {
            request,
            depot,
            chunk,
            fragment,
        } => apply::inputs::recalled::on_recalled(state, request, depot, chunk, fragment),
        Input::Throughput {
            depot,
            bytes,
            window,
            saturated,
        } => {
            apply::inputs::throughput::on_throughput(state, depot, bytes, window, saturated, out);
        }
        Input::SourceReleased { request } => {
            apply::inputs::source_released::on_source_released(state, request, out)
        }
        Input::SourceFileTold {
            request,
            fault,
            what,
        } => apply::source_fault::on_source_fault(state, request, fault, Some(what), out),
        Input::FileAtFault { request, file } => {
            apply::inputs::file_at_fault::on_file_at_fault(state, request, file, out)
        }
        Input::ChunkRenewed { request, chunk } => {
            apply::inputs::file_at_fault::on_chunk_renewed(state, request, chunk, out)
        }
        Input::SourceFileKept { request, what } => {
            apply::inputs::source_kept::on_file_kept(state, request, what)
        }
        Input::SourceKept { request, fault } => {
            apply::inputs::source_kept::on_source_kept(state, request, fault, out)
        }
        Input::Delivered { request } => apply::inputs::delivered::on_delivered(state, request, out),
        Input::ForgetAsked { request } => {
            apply::inputs::forget_asked::on_forget_asked(state, request, out)
        }
        Input::DeadlineMoved { request, deadline } => {
            apply::inputs::deadline_moved::on_deadline_moved(state, request, deadline, out);
        }
        Input::ArrivalMoved {
            request,
            not_before,
            deadline,
        } => apply::inputs::arrival_moved::on_arrival_moved(
            state, request, not_before, deadline, out,
        ),
        Input::RateLimited { request, rate_max } => {
            apply::inputs::rate_limited::on_rate_limited(state, request, rate_max)
        }
        Input::Paused { request, by } => apply::inputs::paused::on_paused(state, request, by, out),
        Input::Resumed { request, by } => {
            apply::inputs::paused::on_resumed(state, request, by, out)
        }
        Input::PriorityMoved { request, priority } => {
            apply::inputs::priority_moved::on_priority_moved(state, request, priority)
        }
        Input::Probed {
            depot,
            sent,
            bytes,
            window,
            is_bound,
        } => apply::inputs::probed::on_probed(state, depot, sent, bytes, window, is_bound, out),
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
            apply::inputs::crossing_probed::on_crossing_probed(
                state,
                (from, to),
                sent,
                found,
                round_trip,
                out,
            );
        }
        Input::CrossingProbeAsked { from, to } => {
            apply::inputs::crossing_probe_asked::on_crossing_probe_asked(state, from, to, out)
        }
        Input::DistanceTold { depot, round_trip } => {
            apply::inputs::distance_told::on_distance_told(state, depot, round_trip)
        }
        Input::ProbeAsked { depot } => {
            apply::inputs::probe_asked::on_probe_asked(state, depot, out)
        }
        Input::PlanSolved { number, schedule } => {
            apply::inputs::plan_solved::on_plan_solved(state, number, schedule.as_ref(), out);
        }
        Input::SourceFound {
            source,
            name,
            rate_max,
        } => apply::inputs::source_found::on_source_found(state, source, name, rate_max),
        Input::ArrivalAsked { request, spec } => {
            apply::inputs::arrival_asked::on_arrival_asked(state, request, spec, &[], out);
        }
        Input::ArrivalGathered {
            request,
            spec,
            holdings,
        } => apply::inputs::arrival_asked::on_arrival_asked(state, request, spec, &holdings, out),
        Input::LentTold { request, terms } => {
            apply::inputs::lent_told::on_lent_told(state, request, terms)
        }
        Input::LoadTold {
            depot,
            load_permille,
        } => apply::inputs::lent_told::on_load_told(state, depot, load_permille, out),
        Input::LoadBounded {
            depot,
            load_max_permille,
        } => apply::inputs::lent_told::on_load_bounded(state, depot, load_max_permille, out),
        Input::StageInTold { request, news } => {
            apply::inputs::stage_in_told::on_stage_in_told(state, request, &news, out)
        }
        Input::ChunkArrived {
            request,
            source,
            chunk,
        } => apply::inputs::chunk_arrived::on_chunk_arrived(state, request, source, chunk, out),
        Input::ChunkMissed {
            request,
            source,
            chunk,
            fault,
        } => {
            apply::inputs::chunk_missed::on_chunk_missed(state, request, source, chunk, fault, out)
        }
        Input::Inbound {
            source,
            bytes,
            window,
            saturated,
        } => apply::inputs::inbound::on_inbound(state, source, bytes, window, saturated),
        Input::GatherTold {
            request,
            depot,
            chunk,
            givers,
        } => apply::inputs::gather_told::on_gather_told(state, request, depot, chunk, &givers, out),
        Input::ScatterFailed {
            request,
            depot,
            chunk,
            fault,
        } => apply::inputs::scatter_failed::on_scatter_failed(
            state, request, depot, chunk, fault, out,
        ),
        Input::PieceTold {
            request,
            depot,
            chunk,
            span,
        } => apply::inputs::scatter_failed::on_piece_told(state, request, depot, chunk, span),
        Input::EncodeChosen { encode } => {
            apply::inputs::scatter_failed::on_encode_chosen(state, encode)
        }
        Input::EgressTold { rate } => apply::inputs::scatter_failed::on_egress_told(state, rate),
        Input::ArrivalSurveyed { request, chunks } => {
            apply::inputs::arrival_surveyed::on_arrival_surveyed(state, request, &chunks);
        }
        Input::DepotReserves { depot, reserves } => {
            apply::spaces::on_depot_reserves(state, depot, reserves)
        }
        Input::Forgotten {
            request,
            depot,
            done,
        } => apply::forget::on_forgotten(state, request, depot, done, out),
        Input::SpaceTold {
            request,
            depot,
            news,
        } => apply::spaces::on_space_told(state, request, depot, news),
        Input::CircuitOffered { circuit, terms } => {
            apply::inputs::circuit_offered::on_circuit_offered(state, circuit, terms)
        }
        Input::CircuitWithdrawn { circuit } => {
            apply::inputs::circuit_withdrawn::on_circuit_withdrawn(state, circuit)
        }
        Input::WaysFound { depot, ways } => apply::routes::on_ways_found(state, depot, ways, out),
        Input::WayTold { depot, way } => apply::routes::on_way_told(state, depot, way, out),
        Input::ReservationTold { reservation, news } => {
            apply::inputs::reservation_told::on_reservation_told(state, reservation, news, out);
        }
        Input::Landed { request } => apply::inputs::landed::on_landed(state, request, out),
        Input::LandingFailed { request, fault } => {
            apply::inputs::landed::on_landing_failed(state, request, fault, out);
        }
    }
}
