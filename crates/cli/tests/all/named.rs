//! Offloads of files named in a list, with a real service and a real relay.

use crate::support::processes;

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
};

use crate::support::processes::{PATIENCE, Relay, Service, failure, now, picture, text};

/// Directories of the tree, and files in each.
const FOLDERS: usize = 50;
const FILES: usize = 40;

struct Centre {
    folder: tempfile::TempDir,
    _relay: Relay,
    service: Service,
}

impl Centre {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let relay = Relay::start(folder.path(), "ash", "1G", "60M");
        let service = Service::start(folder.path());
        service.add(&relay);
        for number in 0..FOLDERS {
            let below = folder.path().join(format!("run/d{number}/out"));
            fs::create_dir_all(&below).unwrap();
            for file in 0..FILES {
                fs::write(below.join(format!("f{file}")), format!("{number} {file}")).unwrap();
            }
        }
        fs::write(folder.path().join("run/#odd"), "odd").unwrap();
        std::os::unix::fs::symlink("/etc", folder.path().join("run/etc")).unwrap();
        Self {
            folder,
            _relay: relay,
            service,
        }
    }

    fn run(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    /// Returns every second file.
    fn half(&self) -> Vec<String> {
        let all = (0..FOLDERS).flat_map(|folder| {
            (0..FILES)
                .step_by(2)
                .map(move |file| format!("d{folder}/out/f{file}"))
        });
        all.collect()
    }

    fn write(&self, names: &[String]) -> String {
        let path = self.folder.path().join("list");
        fs::write(&path, names.join("\n")).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Offloads the files of a list.
    fn offload(&self, list: &str, more: &[&str]) -> std::process::Output {
        let run = self.run();
        let words = ["offload", run.to_str().unwrap(), "--files-from", list];
        let rest = [
            "--to",
            "home",
            "--via",
            "ash",
            "--code",
            "1+0",
            "--deadline",
            "1h",
        ];
        let more: Vec<&str> = words.iter().chain(&rest).chain(more).copied().collect();
        self.service.run(&more)
    }

    fn count(&self) -> usize {
        let all = self.service.json(&["list", "--json"]);
        all.as_array().unwrap().len()
    }

    /// Waits until the service keeps no list of names any more.
    fn wait_until_none_is_kept(&self) {
        let start = now();
        while !self.kept().is_empty() {
            assert!(start.elapsed() < PATIENCE, "{:?}", self.kept());
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// Returns the lists of names that the service keeps.
    fn kept(&self) -> Vec<String> {
        let entries = fs::read_dir(self.service.state.join("datasets")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.contains(".names")).collect()
    }
}

fn files(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_symlink() || path.is_file() {
                let below = path.strip_prefix(root).unwrap();
                found.insert(below.to_str().unwrap().to_owned());
            } else {
                waiting.push(path);
            }
        }
    }
    found
}

#[test]
fn what_a_list_names_goes_and_comes_back_and_nothing_else_is_touched() {
    let centre = Centre::new();
    let before = files(&centre.run());
    let mut names = centre.half();
    let run = centre.run().display().to_string();
    names[0] = format!("./{}", names[0]);
    names[1] = format!("{run}/{}", names[1]);
    let (again, mut lines) = (names[5].clone(), names);
    lines.extend([
        "# a comment".into(),
        String::new(),
        "; one more".into(),
        "./#odd".into(),
        again,
    ]);
    let mut named: BTreeSet<String> = centre.half().into_iter().collect();
    named.insert("#odd".to_owned());
    let list = centre.write(&lines);

    let rehearsed = centre.offload(&list, &["--dry-run", "--json"]);
    assert!(rehearsed.status.success(), "{}", text(&rehearsed.stderr));
    assert_eq!((centre.count(), centre.kept().len()), (0, 0));

    let release = ["--release", "when-safe", "--wait", "--json"];
    let output = centre.offload(&list, &release);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let request: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(request["state"], "released", "{request}");
    let left: BTreeSet<String> = before.difference(&named).cloned().collect();
    assert_eq!(files(&centre.run()), left);
    centre.wait_until_none_is_kept();

    let back = centre.folder.path().join("back");
    let id = request["id"].as_str().unwrap();
    let pulled = centre.service.run(&["pull", id, back.to_str().unwrap()]);
    assert!(pulled.status.success(), "{}", text(&pulled.stderr));
    assert_eq!(files(&back), named);
    assert_eq!(fs::read(back.join("d7/out/f8")).unwrap(), b"7 8");
}

#[test]
fn what_can_not_be_named_is_refused_and_leaves_nothing() {
    let centre = Centre::new();
    let picture_before = picture(&centre.run());
    let refused = |name: &str, code: i32, words: &str| {
        let list = centre.write(&["d0/out/f0".to_owned(), name.to_owned()]);
        let (found, said) = failure(&centre.offload(&list, &[]));
        assert_eq!(found, code, "{name}: {said}");
        assert!(said.contains(words), "{name}: {said}");
    };
    for name in ["../list", "/etc/passwd", "d0//out/f1", "d0/out/"] {
        refused(name, 2, "file 2 below");
        assert_eq!(centre.count(), 0, "{name}");
    }
    // What is there is known once it is looked at.
    refused("d0/out/none", 4, "d0/out/none");
    refused("etc/passwd", 2, "it is no directory");
    refused("d0/out", 2, "it is a directory");
    let list = centre.write(&["# nothing".to_owned()]);
    assert!(
        failure(&centre.offload(&list, &[]))
            .1
            .contains("no file is named")
    );
    assert_eq!(failure(&centre.offload("/nowhere/list", &[])).0, 4);
    let list = centre.write(&["d0/out/f0".to_owned()]);
    let run = centre.run();
    let straight = [
        "offload",
        run.to_str().unwrap(),
        "--to",
        "/archive/x",
        "--deadline",
        "1h",
    ];
    let output = centre
        .service
        .run(&[&straight[..], &["--files-from", &list]].concat());
    assert!(failure(&output).1.contains("through depots"));
    // Over depots it goes there.
    let there = centre.folder.path().join("there");
    let to = there.to_str().unwrap();
    let over = ["offload", run.to_str().unwrap(), "--to", to, "--via", "ash"];
    let over = [&over[..], &["--deadline", "1h", "--files-from", &list]].concat();
    let rehearsed = centre.service.run(&[&over[..], &["--dry-run"]].concat());
    assert!(
        text(&rehearsed.stdout).contains("arrives"),
        "{}",
        text(&rehearsed.stdout)
    );
    let output = centre.service.run(&[&over[..], &["--wait"]].concat());
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(picture(&there).len(), 3, "the file and its directories");
    assert_eq!(fs::read(there.join("d0/out/f0")).unwrap(), b"0 0");
    fs::write(&list, b"d0/out/f0\nd0/out/\xff\n").unwrap();
    let said = failure(&centre.offload(&list, &[])).1;
    assert!(
        said.contains("line 2") && said.contains("no UTF-8"),
        "{said}"
    );
    centre.wait_until_none_is_kept();
    assert_eq!(picture(&centre.run()), picture_before);
}

#[test]
fn half_a_list_is_none_and_a_kill_loses_no_list_that_was_taken() {
    let mut centre = Centre::new();
    let address = centre.service.url.trim_start_matches("http://").to_owned();
    let token = fs::read_to_string(centre.service.state.join("token")).unwrap();
    let wanted = serde_json::json!({
        "source": centre.run(), "to": "home", "via": ["ash"], "code": "1+0", "deadline": "2099-01-01T00:00:00Z",
    });
    let body = format!("{wanted}\n\"d0/out/f0\"\n\"d0/out/f1\"\n\"d0/ou");
    let send = || {
        let mut stream = TcpStream::connect(&address).unwrap();
        let head = format!(
            "POST /v1/requests/named HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\
             Content-Type: application/x-ndjson\r\nContent-Length: {}\r\n\r\n",
            token.trim(),
            body.len() + 1000
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        stream
    };
    let stream = send();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut said = String::new();
    let _ = (&stream).read_to_string(&mut said);
    assert!(!said.contains("HTTP/1.1 20"), "{said}");
    centre.wait_until_none_is_kept();
    assert_eq!(centre.count(), 0);

    // Killed while one comes: its half is swept away.
    let stream = send();
    while centre.kept().is_empty() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    centre.service.kill();
    drop(stream);
    assert_eq!(centre.kept().len(), 1);
    centre.service.restart();
    assert_eq!((centre.count(), centre.kept().len()), (0, 0));

    // Killed right after one was taken: those files go, and no others.
    let list = centre.write(&centre.half());
    let service = centre.service.url.clone();
    let token_file = centre.service.state.join("token");
    let run = centre.run();
    let mut taking = processes::binary();
    taking.args(["offload", run.to_str().unwrap(), "--files-from", &list]);
    taking.args([
        "--to",
        "home",
        "--via",
        "ash",
        "--code",
        "1+0",
        "--deadline",
        "1h",
    ]);
    taking
        .args(["--service", &service, "--token-file"])
        .arg(token_file);
    let mut taking = taking.spawn().unwrap();
    while centre.count() == 0 {
        std::thread::yield_now();
    }
    centre.service.kill();
    centre.service.restart();
    // It waits for a service that went away.
    let _ = taking.wait();
    let request = centre
        .service
        .wait_until("r1", |request| request["state"] == "safe");
    // The root, the directories on the way, and the files.
    assert_eq!(request["files"], FOLDERS * FILES / 2, "{request}");
    centre.wait_until_none_is_kept();
}
