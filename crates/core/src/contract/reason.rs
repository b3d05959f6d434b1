mod circuit;
mod delivery;
mod hope;
mod unkept;
mod words;

use alloc::{string::String, vec::Vec};
use core::time::Duration;
use posthaste_plan::tuner;
use posthaste_types::{ByteRate, Bytes, Code, DepotId, Timestamp, record};

use crate::contract::{
    Binding, DrainReason, Fault, LentReason, NearReason, PinReason, Priority, SpaceReason, Survive,
    WayReason, WouldBuy,
};
pub use circuit::CircuitReason;
pub use delivery::DeliveryReason;
pub use hope::HopeReason;

record! {
    /// Reason of a decision of the mind. Shown to people as it stands.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Reason {
        /// The depot is among those that would store this fragment first.
        0 = FinishesFirst,
        /// The request was accepted onto these depots.
        1 = Admitted {
            /// Depots fed at once.
            fan_out: u32,
            /// p90 finish.
            finish: Timestamp,
            /// Deadline that the plan meets.
            deadline: Timestamp,
        },
        /// A direct path to the destination suffices.
        2 = DirectSuffices {
            /// p90 finish.
            finish: Timestamp,
            /// Deadline that the plan meets.
            deadline: Timestamp,
        },
        /// The direct path would miss the deadline: data goes through depots from now on.
        3 = DirectTooSlow {
            /// p90 finish of the direct path.
            finish: Timestamp,
            /// Deadline that it would miss.
            deadline: Timestamp,
        },
        /// Another depot was added because the forecast finish was after the deadline.
        4 = Behind {
            /// Depots fed now.
            fan_out: u32,
            /// p90 finish before the change.
            finish: Timestamp,
            /// The deadline.
            deadline: Timestamp,
        },
        /// A depot was dropped because the others are more than enough.
        5 = Ahead {
            /// Depots fed now.
            fan_out: u32,
            /// p90 finish after the change.
            finish: Timestamp,
            /// The deadline.
            deadline: Timestamp,
        },
        /// A depot is lost.
        6 = DepotLost { #[doc = "Why."] fault: Fault },
        /// A depot came back.
        7 = DepotBack,
        /// The rate of a depot is much lower or higher than forecast.
        8 = RateMoved {
            /// Forecast before (p50).
            from: ByteRate,
            /// Forecast now (p50).
            to: ByteRate,
        },
        /// A path became so slow that other depots would finish its queued data sooner.
        229 = Slowed { #[doc = "How long what is on its way there would take."] waits: Duration },
        /// A fragment's depot was lost, so another depot gets a fragment of that chunk.
        9 = Repair { #[doc = "The depot that was lost."] lost: DepotId },
        /// A send failed and is retried.
        10 = Retry {
            /// Reason of the failure.
            fault: Fault,
            /// Number of this try, from 2.
            attempt: u32,
        },
        /// A late fragment is sent a second time, on the fastest lane.
        11 = Endgame,
        /// Every chunk survives the loss of the configured number of depots.
        12 = AllSafe {
            /// Depots that may be lost.
            losses: u32,
        },
        /// The driver started again.
        13 = Restarted,
        /// A user asked for it.
        14 = Asked,
        /// The deadline can't be met.
        15 = Infeasible {
            /// Earliest p90 finish, if there is any.
            earliest: Option<Timestamp>,
            /// Deadline of the request.
            deadline: Timestamp,
            /// Offers that would make the deadline feasible.
            would_buy: Vec<WouldBuy>,
        },
        /// A plan over time meets the deadline, which turns by deadline would miss.
        80 = Planned {
            /// p90 finish.
            finish: Timestamp,
            /// The deadline.
            deadline: Timestamp,
            /// Other requests whose use of depots changes for it.
            others: u32,
        },
        /// A plan over time meets more deadlines than turns would.
        81 = Rearranged {
            /// Further deadlines met.
            more: u32,
        },
        /// Turns by deadline are as good again, or the plan was contradicted.
        82 = Unplanned,
        /// The request can't be on time any more, and others can if they go first.
        83 = Concedes {
            /// Further deadlines met that way.
            more: u32,
        },
        /// The request can be on time again without making another late.
        84 = Regained,
        /// The deadline had passed when the request came.
        16 = DeadlinePast {
            /// The deadline.
            deadline: Timestamp,
        },
        /// The request is accepted on hopeful assumptions.
        232 = Hoped { #[doc = "Why."] why: HopeReason },
        /// There are too few depots for one fragment each.
        17 = TooFewDepots {
            /// Code of the request.
            code: Code,
            /// Depots it needs.
            needed: u32,
            /// Depots registered and up.
            available: u32,
        },
        /// A named depot is not registered.
        18 = UnknownDepot {
            /// The depot.
            depot: DepotId,
        },
        /// The source is at fault.
        19 = Source {
            /// Fault.
            fault: Fault,
        },
        /// A file of the source is at fault.
        231 = SourceFile { #[doc = "How."] fault: Fault, #[doc = "What was found of which."] what: String },
        /// The depots have too little space left.
        20 = NoSpace {
            /// Space needed.
            needed: Bytes,
            /// Space available.
            available: Bytes,
        },
        /// The last send failed too often.
        21 = GaveUp {
            /// Reason of the last failure.
            fault: Fault,
            /// Number of tries.
            attempts: u32,
        },
        /// The depot is spare: kept in reserve while the others suffice.
        22 = Spare { #[doc = "The name of the depot."] name: String },
        /// The forecast finish is before the deadline, but by so little that it is in danger.
        23 = SlackThin {
            /// Depots fed now.
            fan_out: u32,
            /// p90 finish.
            finish: Timestamp,
            /// The deadline.
            deadline: Timestamp,
        },
        /// Somebody has pulled and verified every chunk.
        24 = Verified,
        /// An optimizer chose the number of fragments in flight to a depot.
        25 = Tuned {
            /// Reason of the optimizer.
            why: tuner::Reason,
        },
        /// The depot is outside the hours its owner lends it.
        26 = OutsideHours,
        /// Too few failure domains for one fragment each.
        27 = TooFewDomains {
            /// Code of the request.
            code: Code,
            /// Sites, providers or regions: the number of depots of which no two share one.
            available: u32,
        },
        /// A user moved the deadline.
        96 = NewDeadline {
            /// Previous value.
            from: Timestamp,
            /// New value.
            to: Timestamp,
        },
        /// The depot's level is nearer to the destination.
        104 = Nearer { #[doc = "Hops from the centre."] level: u8 },
        /// The link is idle otherwise: the fragment is forwarded while it still arrives.
        210 = GoesOnAsItComes,
        /// A fragment to be forwarded on arrival did not arrive.
        211 = DidNotArrive,
        /// A depot starts or stops draining.
        220 = Drained { #[doc = "Why."] why: DrainReason },
        /// The site's purge removes the first file of the source at this time.
        222 = Foreseen {
            /// Purge time; none for never.
            purge_at: Option<Timestamp>,
            /// First file to be purged, and the rule.
            rule: String,
        },
        /// Reason about depots near the centre, on which a stage-in may wait.
        223 = Near { #[doc = "Why."] why: NearReason },
        /// Reason about a pinned depot.
        221 = Pinned { #[doc = "Why."] why: PinReason },
        /// The destination gathers it from where it lies: the centre's egress is not used again.
        105 = HasIt,
        /// A depot encodes chunks and forwards their fragments: each chunk leaves the centre once.
        180 = CodedThere,
        /// Reason about delivery in time.
        170 = Delivery {
            /// Reason.
            why: DeliveryReason,
        },
        /// Only depots of the same failure domains had room for a fragment.
        98 = OnlyKinHaveRoom {
            /// Most fragments of a chunk that one site, provider or region may hold now.
            most: u32,
            /// The code.
            code: Code,
        },
        /// Offers for a request that was rejected for another reason than its deadline.
        97 = Offered {
            /// The offers, the least effort first.
            would_buy: Vec<WouldBuy>,
        },
        /// The cheapest code on these depots that gives the wished durability.
        112 = Redundancy {
            /// The code.
            code: Code,
            /// Chance that data is lost while depots keep it, by their history so far, in
            /// billionths.
            loss_ppb: u32,
        },
        /// No code on these depots gives the wished durability.
        113 = CannotSurvive {
            /// Wished durability.
            survive: Survive,
            /// Usable depots.
            depots: u32,
        },
        /// The budget does not pay for what the deadline needs.
        115 = OverBudget {
            /// Budget, in millionths of a dollar.
            budget: u64,
            /// Highest cost with a larger budget, in millionths of a dollar.
            needed: u64,
            /// Time of safety then; none if money alone does not help.
            finish: Option<Timestamp>,
        },
        /// The budget of a stage-in is too small, and no budget would bring it in time.
        230 = NoMoneySuffices {
            /// Budget, in millionths of a dollar.
            budget: u64,
            /// Lowest cost, in millionths of a dollar.
            needed: u64,
            /// Time of arrival (p90) with an unlimited budget; none if unknown.
            finish: Option<Timestamp>,
            /// The deadline.
            deadline: Timestamp,
        },
        /// The rest of the budget does not pay for what is missing.
        116 = BudgetSpent {
            /// Cost of what was begun, in millionths of a dollar.
            spent: u64,
            /// Budget, in millionths of a dollar.
            budget: u64,
        },
        /// Fragments lost with a depot are rebuilt only once a chunk survives just one more loss.
        117 = RepairWaits {
            /// The depot that was lost.
            lost: DepotId,
            /// Depots that may still be lost.
            losses: u32,
        },
        /// The source is to be purged before the requested deadline.
        118 = PurgeFirst {
            /// Purge time.
            purge_at: Timestamp,
            /// Requested deadline.
            deadline: Timestamp,
        },
        /// The source left after all or some of it was safe: no rebuild from here is possible.
        119 = Purged,
        /// There is no time for all of the code by the deadline: fragments for fewer losses go
        /// first.
        160 = LessFirst {
            /// Losses survived by the deadline.
            losses: u32,
            /// Losses survived in the end.
            parity: u32,
        },
        /// The dataset survives enough losses for the deadline; the rest of its code follows later.
        161 = RestFollows {
            /// Losses survived now.
            losses: u32,
            /// Losses survived in the end.
            parity: u32,
        },
        /// The user's deadline is before the purge of the source.
        134 = DeadlineFirst {
            /// The deadline.
            deadline: Timestamp,
            /// Purge time.
            purge_at: Timestamp,
        },
        /// The source could not be removed; the removal is retried.
        135 = ReleaseAgain {
            /// Reason.
            fault: Fault,
            /// Number of the next try, from 2.
            attempt: u32,
            /// Time of the next try.
            at: Timestamp,
        },
        /// Reason about reserved rate of the request.
        190 = Circuit { #[doc = "The name of the circuit."] name: String, #[doc = "Why."] why: CircuitReason },
        /// A user changed the rate limit of the request.
        114 = NewLimit {
            /// Previous limit; none for no limit.
            from: Option<ByteRate>,
            /// New limit; none for no limit.
            to: Option<ByteRate>,
        },
        /// A user gave the request another priority.
        224 = NewPriority {
            /// Previous value.
            from: Priority,
            /// New value.
            to: Priority,
        },
        /// A user paused the request.
        225 = Paused {
            /// Name of the user.
            by: String,
            /// Start of the pause.
            since: Timestamp,
        },
        /// A user resumed the request.
        226 = Resumed {
            /// Name of the user.
            by: String,
            /// Start of the pause.
            since: Timestamp,
        },
        /// The paused request would be late if it went on now.
        227 = PausedLate {
            /// User that paused it.
            by: String,
            /// Start of the pause.
            since: Timestamp,
            /// p90 finish if it went on now; none without a forecast.
            finish: Option<Timestamp>,
            /// The deadline.
            deadline: Timestamp,
        },
        /// A stage-in was accepted.
        120 = Inbound {
            /// Sources it comes from.
            sources: u32,
            /// Latest start, if it waits.
            begin_by: Option<Timestamp>,
            /// p90 finish.
            finish: Timestamp,
            /// Deadline that the plan meets.
            deadline: Timestamp,
        },
        /// A longer wait would endanger the deadline of a stage-in.
        121 = MustBegin {
            /// The deadline.
            deadline: Timestamp,
        },
        /// The stage-in is welcome now.
        122 = MayArrive {
            /// Earliest welcome time.
            not_before: Timestamp,
        },
        /// Nothing more urgent needs the free capacity.
        123 = NothingMoreUrgent,
        /// This chunk would arrive first from this source.
        124 = ArrivesFirst,
        /// A source is not used for now.
        125 = SourceLost {
            /// Name of the source.
            name: String,
            /// Reason.
            fault: Fault,
        },
        /// A source that was not used gave data again.
        126 = GaveAgain,
        /// No source is registered.
        127 = NoSourceKnown,
        /// No source is left for what is missing.
        128 = NoSourceLeft { #[doc = "How the last one failed."] fault: Fault },
        /// The destination of a stage-in refuses data.
        143 = DestinationRefuses { #[doc = "What the system said of what."] said: String },
        /// The destination of a stage-in can't store some attributes of files.
        144 = NotKeptThere { #[doc = "Without their mode."] modes: u64, #[doc = "Without their time."] times: u64 },
        /// A file is missing at the destination of a stage-in, and the rest is there.
        145 = NotThere { #[doc = "Its name and what was found."] said: String },
        /// Some files come from one source each.
        146 = FromOneSource { #[doc = "Which, why, and what would help."] said: String },
        /// Every chunk of a stage-in is here.
        129 = AllHere { #[doc = "How many those are."] chunks: u32 },
        /// The stage-in came before it was welcome: later, it might have missed its deadline.
        130 = CameEarly {
            /// Earliest welcome time.
            not_before: Timestamp,
            /// The deadline.
            deadline: Timestamp,
        },
        /// The sources would give it too late.
        131 = InboundLate {
            /// p90 finish.
            finish: Timestamp,
            /// The deadline.
            deadline: Timestamp,
        },
        /// The sources give it so shortly before the deadline that it is in danger.
        133 = InboundThin {
            /// p90 finish.
            finish: Timestamp,
            /// The deadline.
            deadline: Timestamp,
        },
        /// The sources give it in time.
        132 = InboundSuffices {
            /// p90 finish.
            finish: Timestamp,
            /// The deadline.
            deadline: Timestamp,
        },
        /// Like [`Reason::Inbound`]; the last data to arrive lies at some of the sources only.
        140 = InboundBound {
            /// Sources it comes from.
            sources: u32,
            /// Latest start, if it waits.
            begin_by: Option<Timestamp>,
            /// p90 finish.
            finish: Timestamp,
            /// Deadline that the plan meets.
            deadline: Timestamp,
            /// Data that determines the finish.
            binding: Binding,
        },
        /// Data that only some sources hold arrives too late.
        141 = OnlyThere {
            /// The data and its sources.
            binding: Binding,
            /// p90 finish; none while those sources give nothing.
            finish: Option<Timestamp>,
            /// The deadline.
            deadline: Timestamp,
            /// Offers that would make the deadline feasible.
            would_buy: Vec<WouldBuy>,
        },
        /// No source is left for some missing data, though others are there.
        142 = HeldNowhere {
            /// Bytes of that data.
            bytes: Bytes,
            /// Last fault of a source.
            fault: Fault,
        },
        /// Reason about a depot lent for this request alone.
        228 = Lent { #[doc = "Why it is used or is not."] why: LentReason },
        /// Reason about space on a depot.
        212 = Space { #[doc = "Why it is reserved, or is not."] why: SpaceReason },
        /// Reason about one of several ways to a depot.
        205 = Way { #[doc = "Why this one."] why: WayReason },
        /// A usable path was not measured for long, or never.
        64 = PathStale {
            /// Time of the last measurement; none without one.
            measured_at: Option<Timestamp>,
            /// Most bytes for a probe.
            budget: Bytes,
        },
    }
}
