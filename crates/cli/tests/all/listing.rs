//! A real service lists directories, with real servers and everything that goes wrong.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Output,
    time::Duration,
};

use crate::support::ask::ask;
use crate::support::processes::{PATIENCE, Service, binary, now, text};
use posthaste_endpoint::encode;
use posthaste_testbed::{
    S3Server, SshServer, StoreLooks, StoreMask, WebFace, WebServer, make_empty_files,
};
use serde_json::Value;

/// Service with profiles for its own store and SSH server.
struct World {
    folder: tempfile::TempDir,
    s3: S3Server,
    /// Counter of the calls to the store.
    mask: StoreMask,
    ssh: SshServer,
    service: Service,
}

impl World {
    fn new() -> Self {
        Self::with(&[])
    }

    fn with(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (s3, ssh) = (S3Server::start().unwrap(), SshServer::start().unwrap());
        let mask = StoreMask::start(s3.address(), StoreLooks::Same).unwrap();
        let options = ssh.options();
        let options: Vec<String> = options.iter().map(|option| format!("{option:?}")).collect();
        let keys = format!(
            "endpoint = \"{}\"\naccess_key_id = \"{}\"\nsecret_access_key = \"{}\"\n",
            mask.endpoint(),
            S3Server::ACCESS_KEY,
            S3Server::SECRET_KEY,
        );
        let bucket = S3Server::BUCKET;
        let profiles = format!(
            "[archive]\nurl = \"s3://{bucket}\"\n{keys}\n[mirror]\nurl = \"s3://{bucket}\"\n{keys}\n[tape]\nurl = \"{}\"\nssh_options = [{}]\n",
            ssh.address(folder.path().to_str().unwrap()),
            options.join(", "),
        );
        let file = folder.path().join("config/posthaste/profiles.toml");
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, profiles).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        let service = Service::start_with(folder.path(), more);
        Self {
            folder,
            s3,
            mask,
            ssh,
            service,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn at(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    fn own(&self) -> String {
        let token = fs::read_to_string(self.service.state.join("token")).unwrap();
        token.trim().to_owned()
    }

    /// Makes a token; returns the text to present.
    fn token(&self, name: &str, more: &[&str]) -> String {
        let file = self.at(&format!("{name}.token"));
        let made = ["token", "add", name, "--output", &file];
        let output = self.service.run(&[&made, more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        fs::read_to_string(file).unwrap().trim().to_owned()
    }

    /// Returns the service's answer: status and body.
    fn get(&self, path: &str, token: &str) -> (u16, Value) {
        let answer = ask(&self.service, "GET", path, Some(token), "");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (
            status,
            serde_json::from_str(&dechunked(head, body)).unwrap(),
        )
    }

    /// Gets a page, which must succeed.
    fn page(&self, path: &str) -> Value {
        let (status, said) = self.get(path, &self.own());
        assert_eq!(status, 200, "{path}: {said}\n{}", self.log());
        said
    }

    /// Returns the first page of a directory, without anything listed ahead.
    fn list(&self, address: &str, more: &str) -> Value {
        self.page(&format!("{}&depth=0{more}", asking(address)))
    }

    /// Returns the listing after it was listed ahead: its server may be asked right now.
    fn kept(&self, address: &str) -> Value {
        let start = now();
        loop {
            let page = self.list(address, "");
            if page["cached"] == true {
                return page;
            }
            assert!(start.elapsed() < PATIENCE, "{page}");
        }
    }

    /// Returns the lines about everything below a directory.
    fn tree(&self, address: &str, more: &str) -> Vec<Value> {
        let path = format!("{}{more}", asking_tree(address));
        let answer = ask(&self.service, "GET", &path, Some(&self.own()), "");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(
            head.contains("200 OK") && head.contains("ndjson"),
            "{answer}"
        );
        let whole = dechunked(head, body);
        // An empty one says that more takes a while.
        let lines = whole.lines().filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.service.state.with_extension("log")).unwrap_or_default()
    }

    fn store(&self, key: &str) {
        write(&self.s3.bucket_folder().join(key), "x");
    }

    /// Runs `posthaste ls --service`.
    fn ls(&self, arguments: &[&str]) -> Output {
        self.service.run(&[&["ls"], arguments].concat())
    }
}

/// Waits until at least so many calls were made, and no more for a while.
fn wait_until_quiet(asked: impl Fn() -> usize, least: usize) {
    let start = now();
    let (mut before, mut looks) = (0, 0);
    while before < least || looks < 10 {
        assert!(start.elapsed() < PATIENCE, "{before} of {least}");
        std::thread::sleep(Duration::from_millis(50));
        let so_far = asked();
        looks = if so_far == before { looks + 1 } else { 0 };
        before = so_far;
    }
}

/// Decodes a body that may have come in chunks.
fn dechunked(head: &str, body: &str) -> String {
    if !head.to_lowercase().contains("transfer-encoding: chunked") {
        return body.to_owned();
    }
    let mut whole = String::new();
    let mut rest = body;
    while let Some((size, behind)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&behind[..size]);
        rest = behind[size..].trim_start_matches("\r\n");
    }
    whole
}

fn asking(address: &str) -> String {
    format!("/v1/listing?address={}", encode(address.as_bytes(), false))
}

fn asking_tree(address: &str) -> String {
    asking(address).replace("listing?", "listing/tree?")
}

fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

fn names(page: &Value) -> Vec<&str> {
    let entries = page["entries"].as_array().unwrap().iter();
    entries
        .map(|entry| entry["name"].as_str().unwrap())
        .collect()
}

/// Returns the lines of a command that must succeed, in their order.
fn lines(output: &Output) -> Vec<String> {
    assert!(output.status.success(), "{}", text(&output.stderr));
    let said = text(&output.stdout);
    let mut lines: Vec<String> = said.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

#[test]
fn what_was_listed_is_told_again_and_listed_anew_when_that_is_asked_for() {
    let world = World::new();
    for key in ["run/a", "run/deep/b", "top"] {
        world.store(key);
    }
    let first = world.list("archive:", "");
    assert_eq!(names(&first), ["run", "top"]);
    assert_eq!(first["cached"], false);
    assert_eq!(first["entries"][0]["kind"], "directory");
    assert_eq!(first["entries"][1]["size"], 1);
    assert!(first["entries"][1]["stored"].is_string(), "{first}");
    let asked = world.mask.requests();
    world.store("later");
    let second = world.list("archive:", "");
    assert_eq!(second["cached"], true);
    assert_eq!(second["as_of"], first["as_of"]);
    assert_eq!(second["entries"], first["entries"]);
    assert_eq!(world.mask.requests(), asked, "its store is not asked");
    let third = world.list("archive:", "&refresh=true");
    assert_eq!(
        (names(&third), &third["cached"]),
        (vec!["later", "run", "top"], &false.into())
    );
    assert!(third["as_of"].as_str() > first["as_of"].as_str());
    assert_eq!(world.list("archive:", "")["cached"], true);
    let printed = world.ls(&["archive:"]);
    assert_eq!(
        text(&printed.stdout),
        "later\nrun/\ntop\n",
        "{}",
        text(&printed.stderr)
    );
    world.store("latest");
    assert_eq!(text(&world.ls(&["archive:"]).stdout), "later\nrun/\ntop\n");
    let anew = world.ls(&["archive:", "--refresh"]);
    assert_eq!(text(&anew.stdout), "later\nlatest\nrun/\ntop\n");
}

#[test]
fn so_many_levels_are_listed_ahead_and_then_their_server_is_left_alone() {
    let world = World::new();
    let web = WebServer::start().unwrap();
    for number in 0..40 {
        write(
            &web.files().join(format!("tree/{number}/below/deep/file")),
            "x",
        );
    }
    let tree = web.address(WebFace::Json, "tree");
    let asked = || {
        web.log()
            .lines()
            .filter(|line| line.contains("/tree/"))
            .count()
    };
    assert_eq!(names(&world.page(&asking(&tree))).len(), 40);
    // What was asked for, and each directory of the two levels below.
    wait_until_quiet(asked, 1 + 40 + 40);
    for number in 0..40 {
        for (below, entry) in [("", "below"), ("/below", "deep")] {
            let page = world.kept(&format!("{tree}/{number}{below}"));
            assert_eq!(names(&page), [entry]);
        }
    }
    assert_eq!(asked(), 81, "nothing was listed twice, nor deeper");
    let deep = world.list(&format!("{tree}/7/below/deep"), "");
    assert_eq!(deep["cached"], false);
    let whole = lines(&world.ls(&["-R", &tree]));
    assert_eq!(whole.len(), 160);
    assert!(whole.contains(&"7/below/deep/file".to_owned()), "{whole:?}");
}

#[test]
fn a_store_that_lists_trees_is_asked_for_all_below_at_once() {
    let world = World::new();
    for number in 0..40 {
        world.store(&format!("tree/{number}/below/deep/file"));
    }
    let before = world.mask.requests();
    assert_eq!(names(&world.page(&asking("archive:tree"))).len(), 40);
    let asked = || usize::try_from(world.mask.requests() - before).unwrap();
    wait_until_quiet(asked, 2);
    for number in 0..40 {
        for (below, entry) in [("", "below"), ("/below", "deep"), ("/below/deep", "file")] {
            let page = world.kept(&format!("archive:tree/{number}{below}"));
            assert_eq!(names(&page), [entry]);
        }
    }
    let listed = asked();
    assert!(listed <= 6, "{listed} requests for 121 directories");
    let whole = lines(&world.ls(&["-R", "archive:tree"]));
    assert_eq!(whole.len(), 160);
    assert!(whole.contains(&"7/below/deep/file".to_owned()), "{whole:?}");
}

#[test]
fn many_who_ask_at_once_cost_one_listing() {
    let world = World::new();
    world.store("run/a");
    world.list("archive:", "");
    let before = world.mask.requests();
    world.mask.hold_answers(true);
    std::thread::scope(|scope| {
        let asking: Vec<_> = (0..20)
            .map(|_| scope.spawn(|| world.list("archive:run", "")))
            .collect();
        wait_until_quiet(
            || usize::try_from(world.mask.requests() - before).unwrap(),
            1,
        );
        // Whoever has not asked by then will be told what is kept.
        world.mask.hold_answers(false);
        for one in asking {
            assert_eq!(names(&one.join().unwrap()), ["a"]);
        }
    });
    assert_eq!(world.mask.requests(), before + 1);
}

#[test]
fn a_service_lists_what_ls_lists() {
    use std::os::unix::ffi::OsStrExt;
    let world = World::new();
    let tree = world.path("tree");
    for name in ["a b", "deep/er/x", "100%+&?#", "\u{e9}t\u{e9}"] {
        write(&tree.join(name), name);
    }
    fs::create_dir(tree.join("empty")).unwrap();
    symlink("deep", tree.join("link")).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"caf\xe9");
    fs::write(tree.join(odd), "").unwrap();
    for name in ["a b", "deep/er/x", "100%+&?#"] {
        world.store(&format!("tree/{name}"));
    }
    let plain = |arguments: &[&str]| {
        let mut command = binary();
        command.env("XDG_CONFIG_HOME", world.path("config"));
        lines(&command.arg("ls").args(arguments).output().unwrap())
    };
    let local = world.at("tree");
    for address in [local.as_str(), "tape:tree", "archive:tree"] {
        for how in [
            &["-l"][..],
            &["-lR"],
            &["-R", "--json"],
            &["-R", "--files-only"],
        ] {
            let arguments = [how, &[address]].concat();
            assert_eq!(
                lines(&world.ls(&arguments)),
                plain(&arguments),
                "{arguments:?}"
            );
        }
    }
    // Pages of one entry go on behind any name.
    for address in [local.as_str(), "tape:tree"] {
        let mut next = format!("{}&limit=1", asking(address));
        let mut all = Vec::new();
        loop {
            let page = world.page(&next);
            all.extend(names(&page).iter().map(|name| (*name).to_owned()));
            match page["next"].as_str() {
                Some(further) => next = further.to_owned(),
                None => break,
            }
        }
        let whole = world.list(address, "");
        assert_eq!(all, names(&whole), "{address}");
        assert_eq!(all.len(), 7, "{all:?}");
        assert_eq!(whole["entries"][2]["name_encoded"], "caf%E9");
        assert_eq!(whole["entries"][1]["mode"], "0644");
    }
    let ssh = world.ssh.address(&local);
    let (status, said) = world.get(&asking(&ssh), &world.own());
    assert_ne!(
        status, 200,
        "the environment's own keys open nothing there: {said}"
    );
}

#[test]
fn what_a_request_of_ours_writes_is_seen_at_once() {
    let world = World::new();
    world.store("results/old");
    let there = |address: &str, more: &str| {
        let page = world.list(address, more);
        names(&page).join(" ")
    };
    let bucket = format!("s3://{}", S3Server::BUCKET);
    let mirror = "&profile=mirror";
    let copies = world.at("copies");
    fs::create_dir(&copies).unwrap();
    assert_eq!(there("archive:", ""), "results");
    assert_eq!(there("archive:results", ""), "old");
    assert_eq!(there(&format!("{bucket}/results"), mirror), "old");
    assert_eq!(there(&copies, ""), "");
    write(&world.path("scratch/run/deep/er"), "results");
    write(&world.path("scratch/run/out"), "results");
    let source = world.at("scratch/run");
    assert_eq!(there(&source, ""), "deep out");
    let offload = |to: &str, more: &[&str]| {
        let arguments = [
            "offload",
            &source,
            "--to",
            to,
            "--deadline",
            "10m",
            "--wait",
        ];
        let output = world.service.run(&[&arguments, more].concat());
        assert!(
            output.status.success(),
            "{}\n{}",
            text(&output.stderr),
            world.log()
        );
    };
    offload("archive:results/new", &[]);
    assert_eq!(there("archive:results", ""), "new old");
    // As another profile and another address have it.
    assert_eq!(there(&format!("{bucket}/results"), mirror), "new old");
    assert_eq!(there("archive:results/new", ""), "deep out");
    offload(&format!("{copies}/run"), &["--release", "when-safe"]);
    assert_eq!(there(&copies, ""), "run");
    let start = now();
    while world.path("scratch/run").exists() {
        assert!(start.elapsed() < PATIENCE, "{}", world.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    // It is gone a moment before the service notes that.
    let start = now();
    while world.get(&asking(&source), &world.own()).0 != 404 {
        assert!(start.elapsed() < PATIENCE, "{}", world.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn nobody_is_told_what_their_credential_does_not_open() {
    let world = World::new();
    world.store("secret/plan");
    for name in ["alice", "bob"] {
        write(&world.path(&format!("{name}/mine")), name);
    }
    let token = |name: &str, profile: &str| {
        let below = world.at(name);
        let scope = ["--scope", "read", "--owner", name, "--below", &below];
        world.token(name, &[&scope[..], &["--profile", profile]].concat())
    };
    let (alice, bob) = (token("alice", "archive"), token("bob", "mirror"));
    symlink(world.path("alice"), world.path("bob/way")).unwrap();
    let bucket = format!("s3://{}/secret", S3Server::BUCKET);
    let with = |profile: &str| format!("{}&profile={profile}", asking(&bucket));
    let (status, said) = world.get(&with("archive"), &alice);
    assert_eq!((status, &said["cached"]), (200, &false.into()), "{said}");
    let (status, said) = world.get(&with("archive"), &alice);
    assert_eq!((status, &said["cached"]), (200, &true.into()), "{said}");
    assert_eq!(world.get(&asking("archive:secret"), &alice).0, 200);
    // It is kept, and not for bob; what his own profile opens is listed for him.
    let to_bob = [
        with("archive"),
        asking(&bucket),
        asking("archive:secret"),
        asking(&world.at("alice")),
        asking(&world.at("bob/way")),
        asking(&world.at("bob/../alice")),
        asking("/"),
        asking("tape:alice"),
        asking(&world.ssh.address("/")),
    ];
    for path in to_bob {
        for more in ["", "&refresh=true", "&after=a"] {
            let (status, said) = world.get(&format!("{path}{more}"), &bob);
            assert_eq!(
                (status, &said["code"]),
                (403, &"permission-denied".into()),
                "{path}"
            );
            assert!(!said.to_string().contains("plan"), "{said}");
        }
    }
    let (status, said) = world.get(&with("mirror"), &bob);
    assert_eq!((status, &said["cached"]), (200, &false.into()), "{said}");
    assert_eq!(world.get(&asking(&world.at("alice")), &alice).0, 200);
    assert_eq!(world.get(&asking(&world.at("bob")), &bob).0, 200);
    // Without a token nobody is told anything, and with one that is gone.
    assert_eq!(world.get(&with("archive"), "pht_00").0, 401);
    let gone = world.service.run(&["token", "remove", "alice"]);
    assert!(gone.status.success(), "{}", text(&gone.stderr));
    assert_eq!(world.get(&with("archive"), &alice).0, 401);
    let log = world.log();
    assert!(
        !log.contains(S3Server::SECRET_KEY) && !log.contains("sig"),
        "{log}"
    );
}

#[test]
fn a_tree_is_told_line_by_line_and_what_can_not_be_listed_in_it_too() {
    use std::os::unix::ffi::OsStrExt;
    let world = World::new();
    let tree = world.path("tree");
    for number in 0..2500 {
        write(&tree.join(format!("many/{number:04}")), "x");
    }
    write(&tree.join("deep/er/still/x"), "xy");
    symlink("deep", tree.join("link")).unwrap();
    let odd = std::ffi::OsStr::from_bytes(b"caf\xe9");
    fs::create_dir(tree.join(odd)).unwrap();
    let local = world.at("tree");
    for is_cached in [false, true] {
        let mut told = world.tree(&local, "");
        let last = told.pop().unwrap();
        assert_eq!((&last["end"], &last["path"]), (&true.into(), &"".into()));
        let problems = told.iter().filter(|line| line["problem"].is_object());
        let problems: Vec<&Value> = problems.collect();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0]["path"], "caf\u{fffd}");
        let why = problems[0]["problem"]["detail"].as_str().unwrap();
        assert!(why.contains("not UTF-8"), "{why}");
        told.retain(|line| line["problem"].is_null());
        let of = |path: &str| -> Vec<&Value> {
            told.iter().filter(|line| line["path"] == path).collect()
        };
        assert_eq!(names(of("")[0]), ["caf\u{fffd}", "deep", "link", "many"]);
        assert_eq!(of("")[0]["entries"][0]["name_encoded"], "caf%E9");
        assert_eq!(of("")[0]["cached"], is_cached);
        let many: Vec<&str> = of("many").into_iter().flat_map(names).collect();
        assert_eq!(of("many").len(), 3, "a thousand in a line");
        let whole: Vec<String> = (0..2500).map(|number| format!("{number:04}")).collect();
        assert!(many == whole, "{} of 2500", many.len());
        assert_eq!(names(of("deep/er/still")[0]), ["x"]);
        assert_eq!(of("deep/er/still")[0]["entries"][0]["size"], 2);
        assert_eq!(told.len(), 1 + 3 + 3, "links are not followed");
    }
    let output = world.ls(&["-R", &local]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(
        said.lines().count() == 1 && said.contains("not UTF-8"),
        "{said}"
    );
    assert_eq!(text(&output.stdout).lines().count(), 4 + 2500 + 2 + 1);
}

#[test]
fn a_tree_is_listed_anew_where_that_is_asked_for_and_only_by_who_may() {
    let world = World::new();
    write(&world.path("tree/deep/er/x"), "x");
    let local = world.at("tree");
    assert_eq!(world.tree(&local, "").len(), 4);
    // What changed is seen where all is listed anew, and only there.
    write(&world.path("tree/deep/er/later"), "x");
    let er = |more: &str| {
        let told = world.tree(&local, more);
        let er = told.into_iter().find(|line| line["path"] == "deep/er");
        names(&er.unwrap()).len()
    };
    assert_eq!((er(""), er("&refresh=true"), er("")), (1, 2, 2));
    let reader = world.token(
        "reader",
        &["--scope", "read", "--below", &world.at("tree/deep")],
    );
    for (address, token, status) in [
        (local.clone(), &reader, 403),
        (world.at("tree/nowhere"), &world.own(), 404),
        (world.at("tree/deep/er/later"), &world.own(), 404),
        ("relative".to_owned(), &world.own(), 422),
    ] {
        let (found, said) = world.get(&asking_tree(&address), token);
        assert_eq!(found, status, "{said}");
    }
}

#[test]
fn what_makes_no_sense_or_can_not_be_read_is_said_in_one_line() {
    let world = World::new();
    write(&world.path("tree/file"), "x");
    world.store("run/a");
    let file = world.at("tree/file");
    let own = world.own();
    for (path, status, what) in [
        ("/v1/listing".to_owned(), 400, "address"),
        (asking(""), 422, "empty"),
        (asking("relative/path"), 422, "absolute path"),
        (asking("s3://b/../c"), 422, "without `..`"),
        (asking("gopher://h/x"), 422, "gopher"),
        (asking("s3://"), 422, "s3://"),
        (asking("/nowhere/at/all"), 404, "nowhere"),
        (asking("archive:nowhere"), 404, "check the path"),
        (asking(&file), 404, "tree/file"),
        (asking("archive:run/a"), 422, "no directory"),
        (asking("tape:nowhere"), 404, "nowhere"),
        (
            format!("{}&profile=nobody", asking("s3://b")),
            422,
            "nobody",
        ),
        (format!("{}&limit=0", asking("/")), 422, "1 to 10000"),
        (format!("{}&limit=10001", asking("/")), 422, "`next`"),
        (format!("{}&limit=many", asking("/")), 400, "limit"),
        (format!("{}&depth=9", asking("/")), 422, "8 levels"),
    ] {
        let (found, said) = world.get(&path, &own);
        let message = said["detail"].as_str().unwrap();
        assert_eq!(found, status, "{path}: {said}");
        assert!(
            message.contains(what) && !message.contains('\n'),
            "{path}: {message}"
        );
    }
    for (arguments, code, what) in [
        (&["/nowhere/at/all"][..], 3, "nowhere"),
        (&["archive:run/a"], 2, "no directory"),
        (&["--follow", "/"], 2, "--follow"),
    ] {
        let output = world.ls(arguments);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(what), "{said}");
    }
    let alone = binary().args(["ls", "--refresh", "/"]).output().unwrap();
    assert_eq!(alone.status.code(), Some(2), "{}", text(&alone.stderr));
    let nowhere = ["ls", "/", "--service", "http://127.0.0.1:1", "--token-file"];
    let token = world.service.state.join("token");
    let output = binary().args(nowhere).arg(token).output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(said.contains("can't reach the service"), "{said}");
}

#[test]
fn a_directory_that_is_closed_to_the_service_costs_one_line_and_the_others_go_on() {
    const USER: u32 = 64_999;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for name in ["tree/open/x", "tree/closed/y"] {
        write(&folder.path().join(name), "x");
    }
    let closed = folder.path().join("tree/closed");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let service = Service::start_as(USER, folder.path(), &[]);
    let tree = folder.path().join("tree");
    let output = service.run(&["ls", "-R", tree.to_str().unwrap()]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(6), "{said}");
    assert!(
        said.contains("closed") && said.lines().count() == 1,
        "{said}"
    );
    let mut shown: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
    shown.sort();
    assert_eq!(shown, ["closed/", "open/", "open/x"]);
    let output = service.run(&["ls", closed.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    // It is asked again: a failure is not kept.
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o755)).unwrap();
    let output = service.run(&["ls", closed.to_str().unwrap()]);
    assert_eq!(text(&output.stdout), "y\n", "{}", text(&output.stderr));
}

#[test]
fn a_hundred_thousand_entries_are_paged_without_loss_while_they_are_forgotten() {
    const ENTRIES: usize = 100_000;
    let mut world = World::with(&["--listing-cache", "64K"]);
    let large = world.path("large");
    fs::create_dir(&large).unwrap();
    let ranks = (0..ENTRIES).map(|number| format!("rank-{:06}", number * 7919 % ENTRIES));
    make_empty_files(&large, ranks).unwrap();
    for number in 0..10 {
        write(&world.path(&format!("small/{number}/x")), "x");
    }
    let mut next = format!("{}&limit=9999", asking(&world.at("large")));
    let mut all: Vec<String> = Vec::new();
    let mut pages = 0;
    loop {
        let page = world.page(&next);
        all.extend(names(&page).iter().map(|name| (*name).to_owned()));
        let Some(further) = page["next"].as_str() else {
            break;
        };
        next = further.to_owned();
        pages += 1;
        match pages {
            // Forgotten, because others were listed since.
            1 => {
                let small = world.list(&world.at(&format!("small/{pages}")), "");
                assert_eq!(names(&small), ["x"]);
                assert_eq!(world.page(&next)["cached"], false);
            }
            2 => assert_eq!(page["cached"], true),
            // Nothing of it outlives the service, and nothing else is lost.
            4 => {
                world.service.kill();
                world.service.restart();
                assert_eq!(world.page(&next)["cached"], false);
            }
            _ => {}
        }
    }
    let whole: Vec<String> = (0..ENTRIES)
        .map(|number| format!("rank-{number:06}"))
        .collect();
    assert!(all == whole, "{} of {ENTRIES}", all.len());
    let printed = world.ls(&[large.to_str().unwrap()]);
    assert!(
        text(&printed.stdout).lines().eq(whole.iter()),
        "{}",
        text(&printed.stderr)
    );
}

#[test]
fn a_killed_service_has_forgotten_listings_and_nothing_else() {
    let mut world = World::new();
    world.store("run/a");
    let token = world.token("reader", &["--scope", "read", "--profile", "archive"]);
    assert_eq!(world.get(&asking("archive:run"), &token).0, 200);
    assert_eq!(world.get(&asking("archive:run"), &token).1["cached"], true);
    world.service.kill();
    world.service.restart();
    let (status, said) = world.get(&asking("archive:run"), &token);
    assert_eq!((status, &said["cached"]), (200, &false.into()), "{said}");
    // A store that is away is said to be so, and listed once it is back.
    world.s3.kill();
    assert_eq!(world.get(&asking("archive:run"), &token).0, 200);
    let (status, said) = world.get(&format!("{}&refresh=true", asking("archive:run")), &token);
    assert!(matches!(status, 500..), "{said}");
    world.s3.restart().unwrap();
    let (status, said) = world.get(&asking("archive:run"), &token);
    assert_eq!(status, 200, "{said}");
}
