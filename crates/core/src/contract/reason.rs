mod circuit;
mod delivery;
mod hope;
mod words;

use alloc::{string::String, vec::Vec};
use core::time::Duration;
use posthaste_plan::tuner;
use posthaste_types::{ByteRate, Bytes, Code, DepotId, Timestamp, record};

use super::{
    Binding, DrainReason, Fault, LentReason, NearReason, PinReason, Priority, SpaceReason, Survive,
    WayReason, WouldBuy,
};
pub use circuit::CircuitReason;
pub use delivery::DeliveryReason;
pub use hope::HopeReason;

record! {
    /// Why the mind decided something. Shown to people as it stands.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub enum Reason {
        /// The depot is among those that would have this fragment stored first.
        0 = FinishesFirst,
        /// The request was admitted onto these depots.
        1 = Admitted {
            /// Depots fed at once.
            fan_out: u32,
            /// p90 finish.
            finish: Timestamp,
            /// The deadline it keeps.
            deadline: Timestamp,
        },
        /// One path straight to the destination is enough.
        2 = DirectSuffices {
            /// p90 finish.
            finish: Timestamp,
            /// The deadline it keeps.
            deadline: Timestamp,
        },
        /// The direct path would miss the deadline: through depots from now on.
        3 = DirectTooSlow {
            /// p90 finish of the direct path.
            finish: Timestamp,
            /// The deadline it would miss.
            deadline: Timestamp,
        },
        /// Another depot was added because the forecast finish lay after the deadline.
        4 = Behind {
            /// How many depots are fed now.
            fan_out: u32,
            /// p90 finish before the change.
            finish: Timestamp,
            /// The deadline.
            deadline: Timestamp,
        },
        /// A depot was dropped because the others are more than enough.
        5 = Ahead {
            /// How many depots are fed now.
            fan_out: u32,
            /// p90 finish after the change.
            finish: Timestamp,
            /// The deadline.
            deadline: Timestamp,
        },
        /// A depot is gone.
        6 = DepotLost { #[doc = "Why."] fault: Fault },
        /// A depot came back.
        7 = DepotBack,
        /// A depot takes much less, or more, than was forecast.
        8 = RateMoved {
            /// Forecast before (p50).
            from: ByteRate,
            /// Forecast now (p50).
            to: ByteRate,
        },
        /// A path became so slow that others would have sooner what waits for it.
        229 = Slowed { #[doc = "How long what is on its way there would take."] waits: Duration },
        /// A fragment's depot was lost, so another depot gets a fragment of that chunk.
        9 = Repair { #[doc = "The depot that was lost."] lost: DepotId },
        /// A send failed and is tried again.
        10 = Retry {
            /// Why it failed.
            fault: Fault,
            /// Which try this is, from 2.
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
            /// The deadline asked for.
            deadline: Timestamp,
            /// What would make it feasible.
            would_buy: Vec<WouldBuy>,
        },
        /// A plan over time keeps the deadline, where taking turns by deadline would not.
        80 = Planned {
            /// p90 finish.
            finish: Timestamp,
            /// The deadline.
            deadline: Timestamp,
            /// Other requests that use depots otherwise for it.
            others: u32,
        },
        /// A plan over time keeps more deadlines than taking turns would.
        81 = Rearranged {
            /// How many more.
            more: u32,
        },
        /// Taking turns by deadline is as good again, or the plan was contradicted.
        82 = Unplanned,
        /// It can't be on time any more, and others can if they go first.
        83 = Concedes {
            /// How many more deadlines that keeps.
            more: u32,
        },
        /// It can be on time again without making another late.
        84 = Regained,
        /// The deadline had passed when the request came.
        16 = DeadlinePast {
            /// The deadline.
            deadline: Timestamp,
        },
        /// It is taken in hope.
        232 = Hoped { #[doc = "Why."] why: HopeReason },
        /// Too few depots for one fragment each.
        17 = TooFewDepots {
            /// The code asked for.
            code: Code,
            /// Depots it needs.
            needed: u32,
            /// Depots that are there and up.
            available: u32,
        },
        /// A depot that was named is not in the books.
        18 = UnknownDepot {
            /// The depot.
            depot: DepotId,
        },
        /// The source is at fault.
        19 = Source {
            /// How.
            fault: Fault,
        },
        /// A file of the source is at fault.
        231 = SourceFile { #[doc = "How."] fault: Fault, #[doc = "What was found of which."] what: String },
        /// Depots have too little space left.
        20 = NoSpace {
            /// Space needed.
            needed: Bytes,
            /// Space there.
            available: Bytes,
        },
        /// The last send failed too often.
        21 = GaveUp {
            /// Why it failed last.
            fault: Fault,
            /// How often it was tried.
            attempts: u32,
        },
        /// The depot is spare: kept in reserve while the others suffice.
        22 = Spare { #[doc = "The name of the depot."] name: String },
        /// The forecast finish lies before the deadline, but so little that it is in danger.
        23 = SlackThin {
            /// How many depots are fed now.
            fan_out: u32,
            /// p90 finish.
            finish: Timestamp,
            /// The deadline.
            deadline: Timestamp,
        },
        /// The destination has pulled and verified every chunk.
        24 = Verified,
        /// An optimizer chose how many fragments go to a depot at once.
        25 = Tuned {
            /// Why.
            why: tuner::Reason,
        },
        /// The depot is outside the hours its owner lends it.
        26 = OutsideHours,
        /// Too few depots fail apart from each other for one fragment each.
        27 = TooFewDomains {
            /// The code asked for.
            code: Code,
            /// Sites, providers or regions there are: so many depots of which no two share one.
            available: u32,
        },
        /// A user moved the deadline.
        96 = NewDeadline {
            /// Before.
            from: Timestamp,
            /// From now on.
            to: Timestamp,
        },
        /// The depot is of a level nearer to the destination.
        104 = Nearer { #[doc = "Hops from the centre."] level: u8 },
        /// Nothing else goes that way: it goes on while it still arrives.
        210 = GoesOnAsItComes,
        /// What was to go on as it came did not arrive.
        211 = DidNotArrive,
        /// A depot is drained, or no longer.
        220 = Drained { #[doc = "Why."] why: DrainReason },
        /// The site's purge takes the first file of the source then.
        222 = Foreseen {
            /// When; none for never.
            purge_at: Option<Timestamp>,
            /// Which file, by which rule.
            rule: String,
        },
        /// It is about depots near the centre, on which a stage-in may wait.
        223 = Near { #[doc = "Why."] why: NearReason },
        /// About a depot that must hold its share of the dataset.
        221 = Pinned { #[doc = "Why."] why: PinReason },
        /// Where it lies, the destination takes it from: nothing is sent over the centre's way out again.
        105 = HasIt,
        /// A depot codes chunks and sends their fragments on: each leaves the centre once.
        180 = CodedThere,
        /// About being at the destinations in time.
        170 = Delivery {
            /// Why.
            why: DeliveryReason,
        },
        /// Only depots that fail together with others of theirs had room for a fragment.
        98 = OnlyKinHaveRoom {
            /// Fragments of a chunk that one site, provider or region may hold now.
            most: u32,
            /// The code.
            code: Code,
        },
        /// What would make a request possible that was refused for another reason than its deadline.
        97 = Offered {
            /// The offers, the least effort first.
            would_buy: Vec<WouldBuy>,
        },
        /// The cheapest code that survives what the user wished, on the depots there are.
        112 = Redundancy {
            /// The code.
            code: Code,
            /// The chance that data is lost while depots keep it, by how often they lost what they
            /// held so far, in billionths.
            loss_ppb: u32,
        },
        /// No code on these depots survives what the user wished.
        113 = CannotSurvive {
            /// The wish.
            survive: Survive,
            /// Depots that could be used.
            depots: u32,
        },
        /// The budget does not pay what the deadline needs.
        115 = OverBudget {
            /// Most that it may cost, in millionths of a dollar.
            budget: u64,
            /// What it may cost at most with more money, in millionths of a dollar.
            needed: u64,
            /// When it would be safe then; none where money alone does not help.
            finish: Option<Timestamp>,
        },
        /// The budget of a stage-in does not pay it, and no money would have it here in time.
        230 = NoMoneySuffices {
            /// Most that it may cost, in millionths of a dollar.
            budget: u64,
            /// What it costs at least, in millionths of a dollar.
            needed: u64,
            /// When it would be here (p90) for all the money its sources take; none when that can't be said.
            finish: Option<Timestamp>,
            /// The deadline.
            deadline: Timestamp,
        },
        /// What is left of the budget does not pay what is missing.
        116 = BudgetSpent {
            /// What was begun for it costs, in millionths of a dollar.
            spent: u64,
            /// Most that it may cost, in millionths of a dollar.
            budget: u64,
        },
        /// What was lost with a depot is made again only when one more loss is all that a chunk survives.
        117 = RepairWaits {
            /// The depot that was lost.
            lost: DepotId,
            /// Depots that may still be lost.
            losses: u32,
        },
        /// The source is to be purged before the deadline that was asked for.
        118 = PurgeFirst {
            /// When.
            purge_at: Timestamp,
            /// The deadline that was asked for.
            deadline: Timestamp,
        },
        /// The source went after all was safe, or some of it: nothing can be made again from here.
        119 = Purged,
        /// No time for all of the code by the deadline: fragments of all chunks for so many losses come first.
        160 = LessFirst {
            /// Losses survived by the deadline.
            losses: u32,
            /// Losses survived in the end.
            parity: u32,
        },
        /// It survives so many losses, which suffices by the deadline; the rest of its code follows, behind others.
        161 = RestFollows {
            /// Losses survived now.
            losses: u32,
            /// Losses survived in the end.
            parity: u32,
        },
        /// The deadline is that of its user, before its source is to be purged.
        134 = DeadlineFirst {
            /// The deadline.
            deadline: Timestamp,
            /// When it is to be purged.
            purge_at: Timestamp,
        },
        /// The source could not be removed, and that is tried again.
        135 = ReleaseAgain {
            /// Why.
            fault: Fault,
            /// Which try comes next, from 2.
            attempt: u32,
            /// When.
            at: Timestamp,
        },
        /// Rate is reserved for the request, or no longer.
        190 = Circuit { #[doc = "The name of the circuit."] name: String, #[doc = "Why."] why: CircuitReason },
        /// A user changed the most that may be sent for the request.
        114 = NewLimit {
            /// Before; none for no limit.
            from: Option<ByteRate>,
            /// From now on.
            to: Option<ByteRate>,
        },
        /// A user gave the request another priority.
        224 = NewPriority {
            /// Before.
            from: Priority,
            /// From now on.
            to: Priority,
        },
        /// A user lets the request wait.
        225 = Paused {
            /// Who.
            by: String,
            /// Since when.
            since: Timestamp,
        },
        /// A user lets the request go on.
        226 = Resumed {
            /// Who.
            by: String,
            /// Since when it had waited.
            since: Timestamp,
        },
        /// The request waits, and would be late if it went on now.
        227 = PausedLate {
            /// Who lets it wait.
            by: String,
            /// Since when.
            since: Timestamp,
            /// p90 finish if it went on now; none where none is in sight.
            finish: Option<Timestamp>,
            /// The deadline.
            deadline: Timestamp,
        },
        /// A stage-in was admitted.
        120 = Inbound {
            /// Sources it comes from.
            sources: u32,
            /// When it begins at the latest, where it waits.
            begin_by: Option<Timestamp>,
            /// p90 finish.
            finish: Timestamp,
            /// The deadline it keeps.
            deadline: Timestamp,
        },
        /// Waiting longer would endanger the deadline of a stage-in.
        121 = MustBegin {
            /// The deadline.
            deadline: Timestamp,
        },
        /// It is no longer in the way.
        122 = MayArrive {
            /// Since when.
            not_before: Timestamp,
        },
        /// Nothing more urgent needs what is free.
        123 = NothingMoreUrgent,
        /// This chunk would be here first if it came from this source.
        124 = ArrivesFirst,
        /// A source is left alone.
        125 = SourceLost {
            /// Its name.
            name: String,
            /// Why.
            fault: Fault,
        },
        /// A source that was left gave something.
        126 = GaveAgain,
        /// None of the sources is known.
        127 = NoSourceKnown,
        /// No source is left that could give what is missing.
        128 = NoSourceLeft { #[doc = "How the last one failed."] fault: Fault },
        /// Where a stage-in goes does not take what came.
        143 = DestinationRefuses { #[doc = "What the system said of what."] said: String },
        /// Where a stage-in goes keeps files without something.
        144 = NotKeptThere { #[doc = "Without their mode."] modes: u64, #[doc = "Without their time."] times: u64 },
        /// A file is not where its stage-in goes, and the rest is.
        145 = NotThere { #[doc = "Its name and what was found."] said: String },
        /// Some files come from one source each.
        146 = FromOneSource { #[doc = "Which, why, and what would help."] said: String },
        /// Every chunk of a stage-in is here.
        129 = AllHere { #[doc = "How many those are."] chunks: u32 },
        /// It came before it was welcome, because later it might have missed its deadline.
        130 = CameEarly {
            /// Since when it would have been welcome.
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
        /// The sources give it so little before the deadline that it is in danger.
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
        /// As [`Reason::Inbound`], and some of it lies at some of its sources only and is here last.
        140 = InboundBound {
            /// Sources it comes from.
            sources: u32,
            /// When it begins at the latest, where it waits.
            begin_by: Option<Timestamp>,
            /// p90 finish.
            finish: Timestamp,
            /// The deadline it keeps.
            deadline: Timestamp,
            /// What binds that.
            binding: Binding,
        },
        /// What lies at some sources only is here too late.
        141 = OnlyThere {
            /// What and where.
            binding: Binding,
            /// p90 finish; none while those give nothing.
            finish: Option<Timestamp>,
            /// The deadline.
            deadline: Timestamp,
            /// What would make it feasible.
            would_buy: Vec<WouldBuy>,
        },
        /// No source is left that holds some of what is missing, though others are there.
        142 = HeldNowhere {
            /// How much that is.
            bytes: Bytes,
            /// How the last one failed.
            fault: Fault,
        },
        /// Of a depot that is lent for it alone.
        228 = Lent { #[doc = "Why it is used or is not."] why: LentReason },
        /// Space on a depot.
        212 = Space { #[doc = "Why it is reserved, or is not."] why: SpaceReason },
        /// Of several ways to a depot.
        205 = Way { #[doc = "Why this one."] why: WayReason },
        /// A path that could be used was not measured for long, or never.
        64 = PathStale {
            /// When it was measured last; none when it never was.
            measured_at: Option<Timestamp>,
            /// Most that may be spent on a probe.
            budget: Bytes,
        },
    }
}
