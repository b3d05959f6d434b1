use super::*;
use proptest::prelude::*;

const CAPACITY: u64 = 100;
const START_S: u64 = 1000;
/// End of everything in the model.
const END_S: u64 = START_S + 200;

fn dataset(n: u8) -> DatasetId {
    DatasetId::new([n; 16])
}

fn space(bytes: u64, from_unix_s: Option<u64>, until_unix_s: u64) -> SpaceBody {
    SpaceBody {
        bytes,
        from_unix_s,
        until_unix_s,
        hold_s: None,
    }
}

#[test]
fn uploads_draw_on_what_is_reserved_first_and_others_never_do() {
    let mut room = Room::new(CAPACITY, 10);
    let (mine, other, now) = (dataset(1), dataset(2), START_S);
    let (is_new, grant) = room.reserve(&mine, space(60, None, now + 50), now).unwrap();
    assert!(is_new && grant.from_unix_s == now);
    let usage = |room: &mut Room| {
        let Usage {
            used,
            reserved,
            free,
            ..
        } = room.usage(now);
        (used, reserved, free)
    };
    assert_eq!(usage(&mut room), (10, 60, 30));
    assert!(room.begin(&other, 31, now + 5, now).is_err());
    room.begin(&other, 30, now + 5, now).unwrap();
    assert!(room.begin(&other, 1, now + 5, now).is_err());
    assert!(room.change_files(10, 11, now).is_err());
    room.begin(&mine, 60, now + 50, now).unwrap();
    assert_eq!(usage(&mut room), (10, 0, 0));
    room.store(&mine, 60, now + 50);
    room.keep(&mine, now + 50);
    assert_eq!(usage(&mut room), (70, 0, 0));
    assert!(room.begin(&mine, 1, now + 50, now).is_err());
    // Deleted data stays reserved.
    room.remove(&mine);
    assert_eq!(usage(&mut room), (10, 60, 0));
    assert!(room.release(&mine, now));
    assert_eq!(usage(&mut room), (10, 0, 60));
}

#[test]
fn what_is_reserved_later_bounds_how_long_others_are_kept() {
    let mut room = Room::new(CAPACITY, 0);
    let (mine, other, now) = (dataset(1), dataset(2), START_S);
    let later = space(80, Some(now + 20), now + 30);
    room.reserve(&mine, later, now).unwrap();
    assert_eq!(room.usage(now).free, CAPACITY);
    room.begin(&other, 50, now + 20, now).unwrap();
    let refused = room.begin(&other, 1, now + 21, now).unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Full);
    let until = format!("until {}", now + 20);
    assert!(refused.message.contains(&until), "{}", refused.message);
    assert!(
        room.begin(&other, 0, now + 21, now).is_err(),
        "no longer either"
    );
    room.begin(&dataset(3), 20, now + 25, now).unwrap();
    // A dataset that stores and has reserved uses the larger of both, not the sum.
    room.begin(&mine, 30, now + 40, now).unwrap();
    let usage = room.usage(now + 20);
    assert_eq!((usage.reserved, usage.free), (50, 0));
    assert!(room.has_expired(now + 20) && !room.has_expired(now + 19));
}

#[test]
fn the_same_question_has_the_same_answer_and_a_refused_one_changes_nothing() {
    let mut room = Room::new(CAPACITY, 0);
    let (mine, other, now) = (dataset(1), dataset(2), START_S);
    let held = SpaceBody {
        hold_s: Some(10),
        ..space(40, None, now + 50)
    };
    let first = room.reserve(&mine, held, now).unwrap().1;
    assert_eq!(first.held_until_unix_s, Some(now + 10));
    assert_eq!(room.reserve(&mine, held, now + 3).unwrap(), (false, first));
    room.reserve(&other, space(50, None, now + 50), now)
        .unwrap();
    let refused = room.reserve(&mine, space(51, None, now + 50), now + 4);
    assert_eq!(refused.unwrap_err().most_bytes, Some(50));
    assert_eq!(room.reserve(&mine, held, now + 5).unwrap(), (false, first));
    assert_eq!(room.usage(now + 9).free, 10);
    assert_eq!(room.usage(now + 10).free, 50, "nobody committed it");
    room.reserve(&mine, held, now + 10).unwrap();
    let committed = room.reserve(&mine, space(40, None, now + 50), now + 11);
    let committed = committed.unwrap().1;
    assert_eq!(committed.from_unix_s, now + 10, "it began when it was held");
    assert_eq!(committed.held_until_unix_s, None);
    let again = room.reserve(&mine, held, now + 12).unwrap().1;
    assert_eq!(again.held_until_unix_s, None, "committed is committed");
    for senseless in [
        space(0, None, now + 50),
        space(1, None, now),
        space(1, Some(now + 60), now + 60),
        space(1, None, u64::MAX),
        SpaceBody {
            hold_s: Some(3601),
            ..held
        },
    ] {
        let refused = room.reserve(&mine, senseless, now + 12).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::Invalid, "{senseless:?}");
    }
}

#[test]
fn what_was_written_down_comes_back_but_for_what_is_over() {
    let mut room = Room::new(CAPACITY, 0);
    let now = START_S;
    room.reserve(&dataset(1), space(10, None, now + 5), now)
        .unwrap();
    room.reserve(&dataset(2), space(20, None, now + 50), now)
        .unwrap();
    let held = SpaceBody {
        hold_s: Some(5),
        ..space(30, None, now + 50)
    };
    room.reserve(&dataset(3), held, now).unwrap();
    let again = Room::new(CAPACITY, 0);
    let restored = again.spaces().restore(room.spaces().kept(), now + 5);
    let restored: Vec<_> = restored.unwrap().iter().map(|(id, _)| *id).collect();
    assert_eq!(restored, [dataset(2)]);
    let mut twice = room.spaces().kept();
    twice.spaces.extend(room.spaces().kept().spaces);
    assert!(again.spaces().restore(twice, now).is_none());
}

#[derive(Debug, Clone, Default)]
struct ModelDataset {
    stored: u64,
    expires_s: u64,
    /// Bytes and expiry.
    uploads: Vec<(u64, u64)>,
    space: Option<(SpaceBody, SpaceGrant)>,
}

impl ModelDataset {
    fn bytes(&self) -> u64 {
        self.stored + self.uploads.iter().map(|(bytes, _)| bytes).sum::<u64>()
    }

    fn end_s(&self) -> u64 {
        let ends = self.uploads.iter().map(|(_, expires_s)| *expires_s);
        ends.max().unwrap_or(0).max(self.expires_s)
    }

    fn reserved(&self, at_s: u64) -> u64 {
        self.space.map_or(0, |(_, grant)| {
            let is_then = grant.from_unix_s <= at_s && at_s < grant.until_unix_s;
            if is_then { grant.bytes } else { 0 }
        })
    }

    fn takes(&self, at_s: u64) -> u64 {
        let bytes = if at_s < self.end_s() { self.bytes() } else { 0 };
        bytes.max(self.reserved(at_s))
    }
}

/// Model of the room by the words of the rule, second by second.
#[derive(Debug, Clone, Default)]
struct Model {
    now_s: u64,
    files: u64,
    datasets: [ModelDataset; 4],
}

impl Model {
    fn there(&self) -> u64 {
        self.files + self.datasets.iter().map(ModelDataset::bytes).sum::<u64>()
    }

    fn takes(&self, at_s: u64) -> u64 {
        let takes = self.datasets.iter().map(|dataset| dataset.takes(at_s));
        self.files + takes.sum::<u64>()
    }

    fn most(&self, from_s: u64, to_s: u64) -> u64 {
        (from_s..to_s)
            .map(|at_s| self.takes(at_s))
            .max()
            .unwrap_or(0)
    }

    fn is_sound(&self) -> bool {
        self.there() <= CAPACITY && self.most(self.now_s, END_S) <= CAPACITY
    }

    fn pass(&mut self, seconds: u64) {
        self.now_s += seconds;
        for dataset in &mut self.datasets {
            let is_over = |grant: SpaceGrant| {
                let held = grant
                    .held_until_unix_s
                    .is_some_and(|until| until <= self.now_s);
                held || grant.until_unix_s <= self.now_s
            };
            dataset.space = dataset.space.filter(|(_, grant)| !is_over(*grant));
        }
    }
}

#[derive(Debug, Clone)]
enum Move {
    Upload(usize, u64, u64),
    Extend(usize, u64),
    Seal(usize),
    Abort(usize),
    Delete(usize),
    Expire,
    Files(u64),
    Reserve(usize, u64, Option<u64>, u64, Option<u32>),
    Release(usize),
    Pass(u64),
}

fn moves() -> impl Strategy<Value = Move> {
    let which = 0usize..4;
    prop_oneof![
        6 => (which.clone(), 1u64..60, 1u64..40).prop_map(|(n, b, s)| Move::Upload(n, b, s)),
        1 => (which.clone(), 1u64..40).prop_map(|(n, s)| Move::Extend(n, s)),
        3 => which.clone().prop_map(Move::Seal),
        1 => which.clone().prop_map(Move::Abort),
        1 => which.clone().prop_map(Move::Delete),
        1 => Just(Move::Expire),
        1 => (0u64..50).prop_map(Move::Files),
        5 => (
            which.clone(),
            1u64..80,
            proptest::option::of(0u64..30),
            1u64..30,
            proptest::option::of(1u32..10),
        )
            .prop_map(|(n, b, f, s, h)| Move::Reserve(n, b, f, s, h)),
        1 => which.prop_map(Move::Release),
        3 => (1u64..6).prop_map(Move::Pass),
    ]
}

/// Asks for space and compares; after a refusal it asks for as much as would be granted.
fn reserve(room: &mut Room, model: &mut Model, n: usize, wanted: SpaceBody) {
    let now_s = model.now_s;
    let answer = room.reserve(&dataset(u8::try_from(n).unwrap()), wanted, now_s);
    let had = model.datasets[n].space;
    if let Some((asked, grant)) = had
        && asked == wanted
    {
        assert_eq!(answer.unwrap(), (false, grant));
        return;
    }
    let from_s = wanted.from_unix_s.unwrap_or(now_s).max(now_s);
    let mut others = model.clone();
    others.datasets[n] = ModelDataset::default();
    let most = CAPACITY - others.most(from_s, wanted.until_unix_s);
    match answer {
        Ok((is_new, grant)) => {
            assert!(wanted.bytes <= most, "{wanted:?} is more than {most}");
            assert_eq!(is_new, had.is_none());
            assert_eq!(grant.from_unix_s.max(now_s), from_s);
            let (bytes, until_s) = (grant.bytes, grant.until_unix_s);
            assert_eq!((bytes, until_s), (wanted.bytes, wanted.until_unix_s));
            model.datasets[n].space = Some((wanted, grant));
        }
        Err(refused) => {
            assert!(wanted.bytes > most, "{refused:?}, but {most} are free");
            assert_eq!(refused.most_bytes, Some(most));
            if most > 0 {
                let less = SpaceBody {
                    bytes: most,
                    ..wanted
                };
                reserve(room, model, n, less);
            }
        }
    }
}

fn upload(room: &mut Room, model: &mut Model, n: usize, (bytes, expires_s): (u64, u64)) {
    let mut with = model.clone();
    with.datasets[n].uploads.push((bytes, expires_s));
    let is_same = bytes == 0 && with.datasets[n].end_s() == model.datasets[n].end_s();
    let begun = room.begin(
        &dataset(u8::try_from(n).unwrap()),
        bytes,
        expires_s,
        model.now_s,
    );
    assert_eq!(
        begun.is_ok(),
        is_same || with.is_sound(),
        "{begun:?} {model:?}"
    );
    if begun.is_ok() {
        *model = with;
    }
}

fn end(room: &mut Room, model: &mut Model, n: usize, is_sealed: bool) {
    let (id, known) = (dataset(u8::try_from(n).unwrap()), &mut model.datasets[n]);
    let Some((bytes, expires_s)) = known.uploads.pop() else {
        return;
    };
    if is_sealed {
        known.expires_s = known.expires_s.max(expires_s);
        known.stored += bytes;
        room.keep(&id, known.expires_s);
        room.store(&id, bytes, expires_s);
    } else {
        room.end(&id, bytes, expires_s);
    }
}

fn remove(room: &mut Room, model: &mut Model, n: usize) {
    let known = &mut model.datasets[n];
    (known.stored, known.expires_s) = (0, 0);
    room.remove(&dataset(u8::try_from(n).unwrap()));
}

fn carry_out(room: &mut Room, model: &mut Model, what: Move) {
    let now_s = model.now_s;
    match what {
        Move::Upload(n, bytes, seconds) => upload(room, model, n, (bytes, now_s + seconds)),
        Move::Extend(n, seconds) => {
            let before = model.datasets[n].uploads.len();
            upload(room, model, n, (0, now_s + seconds));
            if model.datasets[n].uploads.len() > before && model.datasets[n].stored > 0 {
                end(room, model, n, true);
            }
        }
        Move::Seal(n) => end(room, model, n, true),
        Move::Abort(n) => end(room, model, n, false),
        Move::Delete(n) => remove(room, model, n),
        Move::Expire => (0..4)
            .filter(|n| model.datasets[*n].expires_s <= now_s)
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|n| remove(room, model, n)),
        Move::Files(files) => {
            let mut with = model.clone();
            with.files = files;
            let changed = room.change_files(model.files, files, now_s);
            let is_allowed = files <= model.files || with.is_sound();
            assert_eq!(changed.is_ok(), is_allowed, "{changed:?} {model:?}");
            if is_allowed {
                *model = with;
            }
        }
        Move::Reserve(n, bytes, from, seconds, hold_s) => {
            let from_unix_s = from.map(|from| now_s + from);
            let until_unix_s = from_unix_s.unwrap_or(now_s) + seconds;
            let wanted = SpaceBody {
                hold_s,
                ..space(bytes, from_unix_s, until_unix_s)
            };
            reserve(room, model, n, wanted);
        }
        Move::Release(n) => {
            let was = room.release(&dataset(u8::try_from(n).unwrap()), now_s);
            assert_eq!(was, model.datasets[n].space.take().is_some());
        }
        Move::Pass(seconds) => model.pass(seconds),
    }
}

proptest! {
    /// Checks that exactly what the rule allows is granted, that use never exceeds the capacity,
    /// and that in the end all is free.
    #[test]
    fn room_is_given_by_the_rule(moves in proptest::collection::vec(moves(), 1..60)) {
        let mut room = Room::new(CAPACITY, 0);
        let mut model = Model { now_s: START_S, ..Model::default() };
        for what in moves {
            if model.now_s + 80 > END_S {
                break;
            }
            carry_out(&mut room, &mut model, what);
            prop_assert!(model.is_sound());
            let stored: u64 = model.datasets.iter().map(|dataset| dataset.stored).sum();
            let unfilled = |dataset: &ModelDataset| {
                dataset.reserved(model.now_s).saturating_sub(dataset.bytes())
            };
            let reserved: u64 = model.datasets.iter().map(unfilled).sum();
            let usage = Usage {
                capacity: CAPACITY,
                used: stored + model.files,
                reserved,
                free: CAPACITY.saturating_sub(model.there() + reserved),
            };
            prop_assert_eq!(room.usage(model.now_s), usage);
            let held: Vec<_> = room.held(model.now_s).iter().map(|held| held.grant).collect();
            let known: Vec<_> = model.datasets.iter().filter_map(|known| known.space).collect();
            prop_assert_eq!(held, known.iter().map(|(_, grant)| *grant).collect::<Vec<_>>());
        }
        for n in 0..4 {
            while !model.datasets[n].uploads.is_empty() {
                end(&mut room, &mut model, n, false);
            }
            remove(&mut room, &mut model, n);
            room.release(&dataset(u8::try_from(n).unwrap()), model.now_s);
        }
        room.change_files(model.files, 0, model.now_s).unwrap();
        let nothing = Usage { capacity: CAPACITY, used: 0, reserved: 0, free: CAPACITY };
        prop_assert_eq!(room.usage(model.now_s), nothing);
        prop_assert!(room.accounts.is_empty() && room.ends.is_empty());
    }
}
