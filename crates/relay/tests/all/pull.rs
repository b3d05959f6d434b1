//! Datasets pulled from real relays in this process, some of them damaged, slow or dead.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use crate::support::running::{Running, later, noise};
use crate::support::scene::{Scene, Tamper, assert_same, fill, tree};
use bytes::Bytes;
use posthaste_endpoint::{ErrorKind, Locus, Unkept};
use posthaste_engine::{
    envelope::{DatasetKey, TextName},
    pull::{LeftOut, Progress, PullOptions, PullReport, Ticket, pull},
    stripe::digest_of,
};
use posthaste_testbed::odd::{Call, Deed, Files, Habits};
use posthaste_types::{Bytes as Amount, ChunkIndex, FragmentIndex};

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_comes_home_as_it_was_and_is_not_fetched_twice() {
    let scene = Scene::new("3+1", fill).await;
    let report = scene.pull().await;
    assert_eq!(report.bytes, scene.manifest.list.bytes);
    assert_eq!(report.files, 304);
    assert_eq!(
        (
            report.rebuilt_chunks,
            report.corrupt_fragments,
            report.depots_lost
        ),
        (0, 0, 0)
    );
    let blocks = fs::metadata(scene.home().join("sparse")).unwrap().blocks();
    assert!(blocks < 2000, "{blocks} blocks for a file of holes");
    let ticket = scene.ticket().await;
    let clients: Vec<_> = ticket
        .holders
        .iter()
        .map(|holder| holder.client.clone())
        .collect();
    let before: u64 = clients.iter().map(|client| client.received().get()).sum();
    let again = pull(ticket, &scene.home(), &PullOptions::default(), &|_| ())
        .await
        .unwrap();
    assert_eq!(again.skipped_chunks, scene.manifest.chunks.len() as u64);
    assert_eq!(
        clients
            .iter()
            .map(|client| client.received().get())
            .sum::<u64>(),
        before
    );
    assert_same(&scene.source(), &scene.home());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encrypted_tree_comes_home_from_what_is_left_of_it() {
    let mut scene = Scene::encrypted("3+2", fill).await;
    scene.damage(0, 3);
    let ticket = scene.ticket().await;
    scene.relays[1].take().unwrap().kill().await;
    let report = pull(ticket, &scene.home(), &PullOptions::default(), &|_| ())
        .await
        .unwrap();
    assert_same(&scene.source(), &scene.home());
    assert!(report.rebuilt_chunks > 0, "{report:?}");
    fs::remove_file(scene.home().join("deep/small7")).unwrap();
    let again = scene.pull().await;
    let fetched = scene.manifest.chunks.len() as u64 - again.skipped_chunks;
    assert!((1..=2).contains(&fetched), "{fetched} chunks were fetched");
}

#[tokio::test(flavor = "multi_thread")]
async fn depots_see_nothing_of_an_encrypted_tree() {
    let text = b"a line of text that stands in every chunk\n".repeat(10_000);
    let scene = Scene::encrypted("2+1", |root| fs::write(root.join("f"), &text).unwrap()).await;
    for n in 0..3 {
        for (name, (_, _, _, stored)) in tree(&scene.folder.path().join(format!("relay{n}"))) {
            let seen = stored.windows(8).any(|window| window == &text[10..18]);
            assert!(!seen, "{}", String::from_utf8_lossy(&name));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_chunk_does_not_open_even_if_its_fragments_are_the_manifests() {
    let forge: Tamper = |stripe| {
        let mut forged = stripe.fragments[0].to_vec();
        forged[3] ^= 1;
        stripe.digests[0] = digest_of(&forged);
        stripe.fragments[0] = forged.into();
    };
    let key = DatasetKey::random().unwrap();
    let fill = |root: &Path| fs::write(root.join("f"), noise(3, 100_000)).unwrap();
    let mut scene = Scene::with("2+1", fill, Some(key), forge).await;
    scene.relays[2].take().unwrap().kill().await;
    let ticket = scene.ticket().await;
    let error = pull(ticket, &scene.home(), &PullOptions::default(), &|_| ())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains("does not open"), "{error}");
    assert!(!scene.home().join("f").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_depot_is_made_up_for_by_parity() {
    let mut scene = Scene::new("3+1", fill).await;
    let ticket = scene.ticket().await;
    scene.relays[1].take().unwrap().kill().await;
    let report = pull(ticket, &scene.home(), &PullOptions::default(), &|_| ())
        .await
        .unwrap();
    assert_same(&scene.source(), &scene.home());
    assert_eq!(report.depots_lost, 1);
    // The number depends on how soon the depot is given up: parity that was merely faster isn't
    // counted.
    let chunks = scene.manifest.chunks.len() as u64;
    assert!(
        (1..=chunks).contains(&report.rebuilt_chunks),
        "{report:?} of {chunks}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn depots_may_die_while_they_are_pulled_from() {
    let mut scene = Scene::new("3+2", |root| {
        fs::write(root.join("f"), noise(3, 60 << 20)).unwrap()
    })
    .await;
    let ticket = scene.ticket().await;
    let home = scene.home();
    let (told, mut started) = tokio::sync::watch::channel(false);
    let killed = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&killed);
    let pulling = tokio::task::JoinSet::from_iter([async move {
        let progress = |_: &Progress| {
            if !told.send_replace(true) {
                // The first chunk is on its way; the pull stands still until two depots are killed.
                while !seen.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        };
        let options = PullOptions {
            overwrite: false,
            memory: Amount::new(100_000),
        };
        pull(ticket, &home, &options, &progress).await
    }]);
    started.wait_for(|&is| is).await.unwrap();
    for dying in [0, 3] {
        scene.relays[dying].take().unwrap().kill().await;
    }
    killed.store(true, Ordering::Relaxed);
    let report = pulling.join_all().await.remove(0).unwrap();
    assert_same(&scene.source(), &scene.home());
    // A depot that is never asked again is not known to be lost.
    assert!((1..=2).contains(&report.depots_lost), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_fragments_are_noticed_and_rebuilt() {
    let scene = Scene::new("2+1", |root| {
        fs::write(root.join("f"), noise(3, 1_000_000)).unwrap()
    })
    .await;
    scene.damage(0, 5);
    let ticket = scene.ticket().await;
    let (client, dataset) = (&ticket.holders[0].client, ticket.manifest.dataset);
    let before = client.status().await.unwrap().instance;
    let held = client.inventory(&dataset).await.unwrap().len();
    let report = scene.pull().await;
    assert!(
        report.corrupt_fragments > 0 && report.corrupt_fragments <= 5,
        "{report:?}"
    );
    // The depot was told, and tells its services.
    assert!(client.inventory(&dataset).await.unwrap().len() < held);
    assert_ne!(client.status().await.unwrap().instance, before);
    assert_eq!(report.depots_lost, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_losses_are_an_error_that_keeps_what_is_there() {
    let mut scene = Scene::new("2+1", |root| {
        fs::write(root.join("f"), noise(3, 1_000_000)).unwrap()
    })
    .await;
    let ticket = scene.ticket().await;
    let (dir, local) = (
        scene.folder.path().join("relay1"),
        scene.relays[1].as_ref().unwrap().local,
    );
    for dying in [0, 1] {
        scene.relays[dying].take().unwrap().kill().await;
    }
    let error = pull(
        ticket.clone(),
        &scene.home(),
        &PullOptions::default(),
        &|_| (),
    )
    .await
    .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(
        error.is_temporary() && error.to_string().contains("relay0, relay1"),
        "{error}"
    );
    assert!(!scene.home().join("f").exists());
    let _back = Running::start(&dir, |options| options.listen = local).await;
    pull(ticket, &scene.home(), &PullOptions::default(), &|_| ())
        .await
        .unwrap();
    assert_same(&scene.source(), &scene.home());
}

/// Pulls, once the writes that a stopped pull had under way in other threads have ended.
async fn pull_when_free(
    ticket: &Ticket,
    home: &Path,
    options: &PullOptions,
    on_progress: &(dyn Fn(&Progress) + Sync),
) -> posthaste_endpoint::Result<PullReport> {
    loop {
        match pull(ticket.clone(), home, options, on_progress).await {
            Err(error) if error.to_string().contains("another pull") => {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            ended => return ended,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_stopped_anywhere_goes_on_where_it_was() {
    let scene = Scene::new("2+1", fill).await;
    let chunks = scene.manifest.chunks.len() as u64;
    let options = PullOptions {
        overwrite: false,
        memory: Amount::new(200_000),
    };
    let home = scene.home();
    for millis in [5, 20, 40, 60, 80] {
        let ticket = scene.ticket().await;
        let stopped = pull_when_free(&ticket, &home, &options, &|_| ());
        let _ = tokio::time::timeout(Duration::from_millis(millis), stopped).await;
    }
    // The last one is stopped when something is there, however long that takes.
    let (told, mut begun) = tokio::sync::watch::channel(false);
    let on_progress = |progress: &Progress| {
        if progress.bytes_done > 0 {
            told.send_replace(true);
        }
    };
    let ticket = scene.ticket().await;
    tokio::select! {
        ended = pull_when_free(&ticket, &home, &options, &on_progress) => drop(ended.unwrap()),
        begun = begun.wait_for(|begun| *begun) => drop(begun.unwrap()),
    }
    let report = pull_when_free(&ticket, &home, &PullOptions::default(), &|_| ()).await;
    let report = report.unwrap();
    assert_same(&scene.source(), &home);
    assert!(
        report.skipped_chunks > 0 && report.skipped_chunks <= chunks,
        "{report:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_already_is_used_or_replaced() {
    let scene = Scene::new("2+1", fill).await;
    scene.pull().await;
    let home = scene.home();
    let mut changed = fs::read(home.join("large")).unwrap();
    changed[1_234_567] ^= 1;
    fs::set_permissions(home.join("large"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(home.join("large"), changed).unwrap();
    fs::remove_file(home.join("deep/small7")).unwrap();
    fs::remove_file(home.join("deep/link")).unwrap();
    symlink("elsewhere", home.join("deep/link")).unwrap();
    fs::write(home.join("zero"), b"not").unwrap();
    let report = scene.pull().await;
    let fetched = scene.manifest.chunks.len() as u64 - report.skipped_chunks;
    assert!((1..=3).contains(&fetched), "{fetched} chunks were fetched");
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_that_are_all_there_rebuild_nothing() {
    let scene = Scene::new("1+1", |root| {
        fs::write(root.join("f"), noise(3, 1_000_000)).unwrap()
    })
    .await;
    let report = scene.pull().await;
    assert_eq!((report.rebuilt_chunks, report.depots_lost), (0, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_through_links_at_the_destination() {
    let scene = Scene::new("1+0", |root| {
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/f"), b"mine").unwrap();
        fs::write(root.join("beside"), b"rest").unwrap();
    })
    .await;
    let outside = scene.folder.path().join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::create_dir(scene.home()).unwrap();
    symlink(&outside, scene.home().join("d")).unwrap();
    let options = PullOptions::default();
    let pulled = async || {
        let ticket = scene.ticket().await;
        let pulled = pull(ticket, &scene.home(), &options, &|_| ()).await;
        pulled.unwrap()
    };
    let report = pulled().await;
    let is_said = |left: &LeftOut| {
        let line = left.named.first();
        line.is_some_and(|line| line.contains("something of another kind is in the way"))
    };
    assert_eq!(report.left_out.count, 2, "{:?}", report.left_out);
    assert!(is_said(&report.left_out), "{:?}", report.left_out);
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    fs::remove_file(scene.home().join("d")).unwrap();
    fs::create_dir_all(scene.home().join("d/f")).unwrap();
    let report = pulled().await;
    assert_eq!(report.left_out.count, 1, "{:?}", report.left_out);
    assert!(is_said(&report.left_out), "{:?}", report.left_out);
    assert_eq!(fs::read(scene.home().join("beside")).unwrap(), b"rest");
    fs::remove_dir(scene.home().join("d/f")).unwrap();
    fs::write(outside.join("victim"), b"theirs").unwrap();
    symlink(outside.join("victim"), scene.home().join("d/f")).unwrap();
    let ticket = scene.ticket().await;
    pull(ticket, &scene.home(), &PullOptions::default(), &|_| ())
        .await
        .unwrap();
    assert_eq!(fs::read(outside.join("victim")).unwrap(), b"theirs");
    assert_eq!(fs::read(scene.home().join("d/f")).unwrap(), b"mine");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_destination_that_is_no_directory_is_one_clear_error() {
    let scene = Scene::new("1+0", |root| fs::write(root.join("f"), b"x").unwrap()).await;
    fs::write(scene.home(), b"a file").unwrap();
    let ticket = scene.ticket().await;
    let error = pull(ticket, &scene.home(), &PullOptions::default(), &|_| ())
        .await
        .unwrap_err();
    assert_eq!(error.locus(), Locus::Destination, "{error}");
    assert!(!error.to_string().contains('\n'));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_tree_comes_home() {
    let scene = Scene::new("4+1", |_| ()).await;
    assert_eq!(scene.pull().await.bytes, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn chunks_held_whole_are_taken_where_fragments_do_not_suffice() {
    let fill = |root: &Path| fs::write(root.join("f"), noise(3, 150_000)).unwrap();
    for scene in [
        Scene::new("2+1", fill).await,
        Scene::encrypted("2+1", fill).await,
    ] {
        take_whole_chunks(scene).await;
    }
}

async fn take_whole_chunks(scene: Scene) {
    let mut ticket = scene.ticket().await;
    let source: Bytes = fs::read(scene.source().join("f")).unwrap().into();
    let relay = scene.relays[2].as_ref().unwrap().client();
    for (chunk, digests) in scene.manifest.chunks.iter().enumerate() {
        let range = chunk * 100_000..source.len().min((chunk + 1) * 100_000);
        let chunk = ChunkIndex::new(u32::try_from(chunk).unwrap());
        let mut stored = source.slice(range).to_vec();
        if let Some(cipher) = &scene.manifest.cipher {
            cipher.encrypt(TextName::Chunk(chunk.get()), &mut stored);
        }
        let (dataset, whole) = (&scene.manifest.dataset, FragmentIndex::WHOLE);
        relay
            .put_fragment(dataset, chunk, whole, stored.into(), digests.chunk, later())
            .await
            .unwrap();
        ticket.holders[2].held.insert((chunk, whole));
    }
    ticket.holders.drain(..2);
    pull(ticket, &scene.home(), &PullOptions::default(), &|_| ())
        .await
        .unwrap();
    assert_same(&scene.source(), &scene.home());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_file_system_says_when_a_file_is_closed_ends_a_pull() {
    const EDQUOT: i32 = 122;
    let scene = Scene::new("2+1", |root| {
        fs::write(root.join("large"), noise(1, 900_000)).unwrap();
    })
    .await;
    let is_full = Arc::new(AtomicBool::new(true));
    let fails = Arc::clone(&is_full);
    let files = Files::mount(Habits::refusing(move |call| {
        let is_large = call.deed == Deed::Close && call.end > 50_000;
        (is_large && fails.load(Ordering::Relaxed)).then_some(EDQUOT)
    }));
    let home = files.path().join("home");
    let pull = async || {
        pull(
            scene.ticket().await,
            &home,
            &PullOptions::default(),
            &|_| (),
        )
        .await
    };
    let error = pull().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert_eq!(error.locus(), Locus::Destination);
    assert!(!home.join("large").exists());
    is_full.store(false, Ordering::Relaxed);
    pull().await.unwrap();
    assert!(fs::read(home.join("large")).unwrap() == noise(1, 900_000));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_comes_home_without_modes_and_times_where_none_are_kept() {
    const EPERM: i32 = 1;
    let scene = Scene::new("2+1", fill).await;
    let files = Files::mount(Habits::refusing(|call| {
        matches!(call.deed, Deed::SetMode | Deed::SetTimes).then_some(EPERM)
    }));
    let home = files.path().join("home");
    let options = PullOptions::default();
    let report = pull(scene.ticket().await, &home, &options, &|_| ());
    let unkept = report.await.unwrap().unkept;
    assert!(unkept.modes > 300 && unkept.times > 300, "{unkept:?}");
    let contents = |root: &Path| {
        let found = tree(root).into_iter();
        let contents: Vec<_> = found.map(|(name, facts)| (name, facts.3)).collect();
        contents
    };
    assert!(contents(&home) == contents(&scene.source()));
}

/// Pulls to a file system of these habits.
async fn pull_to(scene: &Scene, habits: Habits) -> (Files, PathBuf, PullReport) {
    let files = Files::mount(habits);
    let home = files.path().join("home");
    let options = PullOptions::default();
    let report = pull(scene.ticket().await, &home, &options, &|_| ());
    let report = report.await.unwrap();
    (files, home, report)
}

fn is_staging(call: &Call) -> bool {
    call.has(".posthaste-pull-")
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_is_open_is_removed() {
    let scene = Scene::new("2+1", fill).await;
    let hides_open = Habits {
        hides_open: true,
        ..Habits::default()
    };
    let (_files, home, report) = pull_to(&scene, hides_open).await;
    assert_eq!(report.unclean, None);
    assert_same(&scene.source(), &home);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_can_t_be_cleaned_costs_nothing_that_arrived() {
    const EBUSY: i32 = 16;
    let scene = Scene::new("2+1", fill).await;
    let keeps =
        Habits::refusing(|call| (call.deed == Deed::Remove && is_staging(call)).then_some(EBUSY));
    let (_files, home, report) = pull_to(&scene, keeps).await;
    let unclean = report.unclean.unwrap();
    assert!(unclean.starts_with("can't clean "), "{unclean}");
    let mut there = tree(&home);
    there.retain(|name, _| !name.starts_with(b".posthaste-pull-"));
    assert!(there.keys().eq(tree(&scene.source()).keys()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_destination_refuses_of_one_entry_leaves_the_others() {
    const EPERM: i32 = 1;
    const EIO: i32 = 5;
    const EINVAL: i32 = 22;
    let scene = Scene::new("2+1", |root| {
        fs::create_dir_all(root.join("a:b/deep")).unwrap();
        for name in ["a:b/x", "a:b/deep/y", "bad", "small", "zero"] {
            fs::write(root.join(name), name).unwrap();
        }
        fs::write(root.join("large"), noise(1, 900_000)).unwrap();
        symlink("small", root.join("link1")).unwrap();
        symlink("small", root.join("link2")).unwrap();
    })
    .await;
    let refuses = Habits::refusing(|call| {
        let refused = [
            (call.deed == Deed::MakeLink, EPERM),
            (call.deed == Deed::MakeDirectory && call.has(":"), EINVAL),
            (call.deed == Deed::Rename && call.has("bad"), EPERM),
            // Reported when the file is closed.
            (call.deed == Deed::Close && call.end > 100_000, EIO),
        ];
        let refused = refused.into_iter().find(|(is_refused, _)| *is_refused);
        refused.map(|(_, errno)| errno)
    });
    let (_files, home, report) = pull_to(&scene, refuses).await;
    let left_out = report.left_out;
    // a:b and three below it, bad, large, and two links.
    assert_eq!((left_out.count, left_out.links), (8, 2), "{left_out:?}");
    assert_eq!((report.files, left_out.files), (2, 4), "{left_out:?}");
    for line in [
        "/home/a:b: Invalid argument",
        "/home/bad: Operation not permitted",
        "/home/large: Input/output error",
        "can't make link ",
    ] {
        let named = |named: &&String| named.contains(line);
        assert_eq!(
            left_out.named.iter().filter(named).count(),
            1,
            "{line}: {left_out:?}"
        );
    }
    assert_eq!(left_out.named.len(), 4, "{left_out:?}");
    let names: Vec<_> = tree(&home).into_keys().collect();
    assert_eq!(names, [&b""[..], b"small", b"zero"]);
    // Whatever takes all gets the rest.
    let report = scene.pull().await;
    assert_eq!(report.left_out.count, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_concerns_everything_ends_a_pull() {
    const ENOSPC: i32 = 28;
    const EROFS: i32 = 30;
    let scene = Scene::new("2+1", |root| {
        fs::write(root.join("a"), noise(1, 90_000)).unwrap();
        fs::write(root.join("b"), noise(2, 90_000)).unwrap();
    })
    .await;
    for (errno, kind) in [
        (ENOSPC, ErrorKind::Full),
        (EROFS, ErrorKind::PermissionDenied),
    ] {
        let files = Files::mount(Habits::refusing(move |call| {
            (call.deed == Deed::Write && call.end > 50_000).then_some(errno)
        }));
        let home = files.path().join("home");
        let options = PullOptions::default();
        let pulled = pull(scene.ticket().await, &home, &options, &|_| ()).await;
        assert_eq!(pulled.unwrap_err().kind(), kind);
    }
}

/// Returns the habits of a file system that reports once of each file larger than `bytes` that some
/// of it was lost, when it is closed.
fn tells_once(bytes: u64) -> Habits {
    const EIO: i32 = 5;
    let told = Mutex::new(BTreeSet::new());
    Habits::refusing(move |call| {
        let is_large = call.deed == Deed::Close && call.end > bytes;
        let is_new = is_large && told.lock().unwrap().insert(call.path.to_owned());
        is_new.then_some(EIO)
    })
}

// In docs/reference/edges.md: "that a write failed is told once, by whichever descriptor is closed first"
#[tokio::test(flavor = "multi_thread")]
async fn a_loss_that_is_told_once_is_heard_whoever_closes_the_file() {
    let scene = Scene::new("2+1", |root| {
        fs::write(root.join("large"), noise(1, 2_345_678)).unwrap();
        fs::write(root.join("small"), noise(2, 50_000)).unwrap();
    })
    .await;
    // Each size is reached by another chunk, at another of its closes.
    for bytes in [1, 50_000, 100_000, 1_200_000, 2_345_677] {
        let (_files, home, report) = pull_to(&scene, tells_once(bytes)).await;
        let left_out = report.left_out;
        assert!(!home.join("large").exists(), "{bytes}");
        let line = "/home/large: Input/output error";
        let named = |named: &&String| named.contains(line);
        assert_eq!(
            left_out.named.iter().filter(named).count(),
            1,
            "{left_out:?}"
        );
        assert_eq!(home.join("small").exists(), bytes >= 50_000);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_kept_of_a_file_that_lost_some() {
    const ENOSPC: i32 = 28;
    let scene = Scene::new("2+1", |root| {
        fs::write(root.join("large"), noise(1, 900_000)).unwrap();
    })
    .await;
    // Reported once, and it ends the pull; what was written is then wrong.
    let is_told = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&is_told);
    let files = Files::mount(Habits::refusing(move |call| {
        let is_large = call.deed == Deed::Close && call.end > 500_000;
        (is_large && !told.swap(true, Ordering::Relaxed)).then_some(ENOSPC)
    }));
    let home = files.path().join("home");
    let options = PullOptions::default();
    let error = pull(scene.ticket().await, &home, &options, &|_| ()).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Full);
    assert!(is_told.load(Ordering::Relaxed) && !home.join("large").exists());
    pull(scene.ticket().await, &home, &options, &|_| ())
        .await
        .unwrap();
    assert_same(&scene.source(), &home);
}

// In docs/reference/edges.md: "a time is taken only with the other one, and else dropped without a word"
#[tokio::test(flavor = "multi_thread")]
async fn times_arrive_where_both_are_taken_or_none() {
    let scene = Scene::new("2+1", fill).await;
    let habits = Habits {
        both_times_or_none: true,
        ..Habits::default()
    };
    let (_files, home, report) = pull_to(&scene, habits).await;
    assert_eq!(report.unkept, Unkept::default());
    assert_same(&scene.source(), &home);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_taken_and_not_kept_is_counted() {
    let scene = Scene::new("2+1", |root| {
        fs::create_dir(root.join("folder")).unwrap();
        fs::write(root.join("folder/file"), "x").unwrap();
        for name in ["folder/file", "folder", ""] {
            let path = root.join(name);
            fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
            let long_ago = std::time::UNIX_EPOCH + Duration::new(1_500_000_000, 0);
            fs::File::open(path)
                .unwrap()
                .set_modified(long_ago)
                .unwrap();
        }
    })
    .await;
    let habits = Habits {
        fixed_modes: true,
        forgets_times: true,
        ..Habits::default()
    };
    let (_files, _home, report) = pull_to(&scene, habits).await;
    assert_eq!(report.unkept, Unkept { modes: 3, times: 3 });
}

// In docs/reference/edges.md: "two names are one there, or in one directory alone"
#[tokio::test(flavor = "multi_thread")]
async fn of_two_names_that_are_one_there_the_second_is_left_out() {
    let scene = Scene::new("2+1", |root| {
        for folder in ["D", "d"] {
            fs::create_dir(root.join(folder)).unwrap();
            fs::write(root.join(folder).join("f"), folder).unwrap();
        }
        for name in ["A", "a", "other"] {
            fs::write(root.join(name), noise(1, 120_000)).unwrap();
        }
        symlink("other", root.join("l")).unwrap();
        symlink("A", root.join("L")).unwrap();
    })
    .await;
    let files = Files::mount(Habits {
        folds_names: |_| true,
        ..Habits::default()
    });
    let home = files.path().join("home");
    let options = PullOptions::default();
    // The second time it is all there.
    for _ in 0..2 {
        let report = pull(scene.ticket().await, &home, &options, &|_| ())
            .await
            .unwrap();
        let left_out = report.left_out;
        assert_eq!(
            (report.files, left_out.count, left_out.files),
            (3, 4, 2),
            "{left_out:?}"
        );
        for (name, other) in [("a", "A"), ("d", "D"), ("l", "L")] {
            let line = format!("/home/{name}: \"{other}\" has a name that is the same there");
            assert!(
                left_out.named.iter().any(|named| named.contains(&line)),
                "{line}: {left_out:?}"
            );
        }
        let names: Vec<_> = tree(&home).into_keys().collect();
        assert_eq!(names, [&b""[..], b"A", b"D", b"D/f", b"L", b"other"]);
        assert_eq!(fs::read(home.join("D/f")).unwrap(), b"D");
        assert_eq!(fs::read(home.join("A")).unwrap(), noise(1, 120_000));
    }
    assert_eq!(scene.pull().await.left_out.count, 0);
    // Only one of its directories folds names.
    let scene = Scene::new("2+1", |root| {
        fs::create_dir(root.join("D")).unwrap();
        for name in ["A", "a", "D/A", "D/a"] {
            fs::write(root.join(name), name).unwrap();
        }
    })
    .await;
    let files = Files::mount(Habits {
        folds_names: |directory| directory.ends_with("D"),
        ..Habits::default()
    });
    let report = pull(scene.ticket().await, files.path(), &options, &|_| ());
    let left_out = report.await.unwrap().left_out;
    assert_eq!((left_out.count, left_out.files), (1, 1), "{left_out:?}");
    for name in ["A", "a", "D/A"] {
        assert_eq!(fs::read(files.path().join(name)).unwrap(), name.as_bytes());
    }
}
