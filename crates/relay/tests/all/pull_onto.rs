//! Pulls to a destination that has something already: planted by others, or files that lost
//! attributes.

use std::{
    fs,
    os::unix::fs::{MetadataExt, chown},
    path::Path,
};

use crate::support::running::noise;
use crate::support::scene::Scene;
use posthaste_endpoint::ErrorKind;
use posthaste_engine::pull::{PullOptions, pull};
use posthaste_testbed::odd::{Deed, Files, Habits};
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};

const ENOSPC: i32 = 28;
const OTHER: u32 = 1234;

async fn scene_of(fill: impl FnOnce(&Path)) -> Scene {
    Scene::new("2+1", |root| {
        fs::write(root.join("file"), noise(1, 120_000)).unwrap();
        fill(root);
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_user_planted_as_unfinished_is_not_gone_on_with() {
    let scene = scene_of(|_| ()).await;
    // A remainder of a full disk has the name.
    let files = Files::mount(Habits::refusing(|call| {
        (call.deed == Deed::Write).then_some(ENOSPC)
    }));
    let options = PullOptions::default();
    let full = pull(scene.ticket().await, files.path(), &options, &|_| ()).await;
    assert_eq!(full.unwrap_err().kind(), ErrorKind::Full);
    let left = fs::read_dir(files.behind()).unwrap();
    let left = left.map(|entry| entry.unwrap().file_name());
    let is_it = |name: &std::ffi::OsString| name.to_string_lossy().starts_with(".posthaste-pull-");
    let name = left.into_iter().find(is_it).unwrap();
    let planted = scene.home().join(name);
    fs::create_dir_all(&planted).unwrap();
    fs::write(planted.join("0"), b"theirs").unwrap();
    chown(&planted, Some(OTHER), None).expect("this test is run by root");
    let pulled = pull(scene.ticket().await, &scene.home(), &options, &|_| ()).await;
    let error = pulled.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
    assert!(
        error.to_string().contains("somebody else made it"),
        "{error}"
    );
    assert_eq!(fs::read(planted.join("0")).unwrap(), b"theirs");
    assert_eq!(fs::read_dir(scene.home()).unwrap().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_there_get_their_owners_attributes_and_lists_back() {
    let name = "user.kind";
    let scene = scene_of(|root| {
        let file = root.join("file");
        setxattr(&file, name, b"raw", XattrFlags::empty()).unwrap();
        chown(&file, Some(OTHER), None).expect("this test is run by root");
    })
    .await;
    let options = PullOptions::default();
    let file = scene.home().join("file");
    for is_again in [false, true] {
        if is_again {
            removexattr(&file, name).unwrap();
            chown(&file, Some(0), None).unwrap();
        }
        let report = pull(scene.ticket().await, &scene.home(), &options, &|_| ()).await;
        let report = report.unwrap();
        assert_eq!(report.skipped_chunks > 0, is_again, "{report:?}");
        let mut value = [0; 10];
        let len = getxattr(&file, name, &mut value[..]).unwrap();
        assert_eq!(&value[..len], b"raw");
        assert_eq!(fs::metadata(&file).unwrap().uid(), OTHER);
    }
}
