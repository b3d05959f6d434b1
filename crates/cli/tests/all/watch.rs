//! `posthaste watch` of a whole service with a thousand requests: in a terminal, in a pipe, as JSON
//! lines.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    sync::mpsc,
    time::Duration,
};

use crate::support::processes::{PATIENCE, Relay, Service, binary, now, text};
use rustix::{
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcgetattr, tcsetwinsize},
};
use serde_json::{Value, json};

const REQUESTS: usize = 1000;
/// Last output of a program that leaves its own window.
const LEFT: &str = "\x1b[?1049l";

/// Service, and a relay too slow for its requests.
struct Centre {
    _folder: tempfile::TempDir,
    _relay: Relay,
    service: Service,
}

impl Centre {
    /// Submits a thousand requests, the later ones with earlier deadlines, and one that can't be
    /// safe in time.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let relay = Relay::start(folder.path(), "ash", "1G", "100K");
        let service = Service::start(folder.path());
        service.add(&relay);
        let source = folder.path().join("one");
        fs::write(&source, vec![7; 64 << 10]).unwrap();
        let large = folder.path().join("large/one");
        fs::create_dir(folder.path().join("large")).unwrap();
        fs::write(&large, vec![7; 8 << 20]).unwrap();
        let day = |number: usize| format!("20{:02}-06-01T00:00:00Z", 99 - number / 20);
        let line = |number: usize| {
            json!({
                "source": source, "to": "home", "via": ["ash"], "code": "1+0", "best_effort": true,
                "deadline": day(number), "submission_id": format!("line-{number}"),
            })
        };
        let mut lines: Vec<Value> = (1..REQUESTS).map(line).collect();
        let soon = moment_in(Duration::from_secs(180));
        lines.push(json!({
            "source": large, "to": "home", "via": ["ash"], "code": "1+0", "best_effort": true,
            "deadline": soon, "submission_id": "late", "wishes": {"rate_bytes_per_s_max": 10 << 10},
        }));
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        let list = folder.path().join("lines");
        fs::write(&list, lines).unwrap();
        let submitted = service.run(&["offload-many", list.to_str().unwrap()]);
        assert!(submitted.status.success(), "{}", text(&submitted.stderr));
        Self {
            _folder: folder,
            _relay: relay,
            service,
        }
    }

    fn overview(&self) -> Value {
        let path = "/v1/overview";
        self.ask(path)
    }

    fn ask(&self, path: &str) -> Value {
        let token = fs::read_to_string(self.service.state.join("token")).unwrap();
        let address = self.service.url.trim_start_matches("http://");
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let ask = format!(
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\r\n",
            token.trim()
        );
        stream.write_all(ask.as_bytes()).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{said}");
        serde_json::from_str(body).unwrap()
    }

    /// Waits until every request was examined and is running or over.
    fn wait_for_all(&self) -> Value {
        let start = now();
        loop {
            let overview = self.overview();
            let counted = overview["stage_outs"].as_object().unwrap().values();
            let counted: u64 = counted.map(|count| count.as_u64().unwrap()).sum();
            if counted == REQUESTS as u64 {
                return overview;
            }
            assert!(start.elapsed() < PATIENCE, "{overview}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn watch(&self, more: &[&str]) -> Command {
        let mut command = binary();
        command.arg("watch").args(more);
        command.args(["--service", &self.service.url, "--token-file"]);
        command.arg(self.service.state.join("token"));
        command
    }
}

/// Returns a moment from now, RFC 3339.
fn moment_in(span: Duration) -> String {
    let date = Command::new("date")
        .args(["-u", "-d", &format!("+{} seconds", span.as_secs())])
        .arg("+%Y-%m-%dT%H:%M:%SZ")
        .output();
    text(&date.unwrap().stdout).trim().to_owned()
}

/// Program in a terminal of its own.
struct Window {
    child: Child,
    /// Our end, and the program's end, kept to preserve its final state.
    ours: fs::File,
    theirs: OwnedFd,
    heard: mpsc::Receiver<Vec<u8>>,
    said: String,
}

impl Window {
    fn open(command: &Command, (columns, rows): (u16, u16)) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let open = || {
            let name = name.to_str().unwrap();
            let mut options = fs::OpenOptions::new();
            OwnedFd::from(options.read(true).write(true).open(name).unwrap())
        };
        let theirs = open();
        let mut inside = Command::new("setsid");
        inside.args(["--ctty", "--wait"]);
        inside.arg(command.get_program()).args(command.get_args());
        let child = inside
            .stdin(open())
            .stdout(open())
            .stderr(open())
            .spawn()
            .unwrap();
        let ours = fs::File::from(ours);
        let mut reader = ours.try_clone().unwrap();
        let (tell, heard) = mpsc::sync_channel(1024);
        // Ends with the terminal.
        std::thread::spawn(move || {
            let mut buffer = [0; 65536];
            while let Ok(read) = reader.read(&mut buffer) {
                if read == 0 || tell.send(buffer[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        let window = Self {
            child,
            ours,
            theirs,
            heard,
            said: String::new(),
        };
        window.resize(columns, rows);
        window
    }

    fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.theirs, size).unwrap();
    }

    /// Reads the pending output, also of a program that never falls silent.
    fn hear(&mut self) {
        let mut more = self.heard.recv_timeout(Duration::from_millis(100)).ok();
        while let Some(bytes) = more {
            self.said.push_str(&String::from_utf8_lossy(&bytes));
            more = self.heard.try_recv().ok();
        }
    }

    /// Returns the last lines shown, without their colours, once they are as wanted.
    fn wait_for(&mut self, wanted: impl Fn(&[String]) -> bool) -> Vec<String> {
        let start = now();
        loop {
            self.hear();
            let whole = self.said.rfind("\x1b[J").map(|end| &self.said[..end]);
            let frame = whole.and_then(|whole| whole.rsplit_once("\x1b[H"));
            let lines: Vec<String> = frame
                .map(|(_, frame)| frame.lines().map(plain).collect())
                .unwrap_or_default();
            if wanted(&lines) {
                return lines;
            }
            assert!(start.elapsed() < PATIENCE, "it is still {lines:#?}");
        }
    }

    /// Presses a key, and waits until the program has ended and left the window; returns its code.
    fn press(&mut self, key: &[u8]) -> Option<i32> {
        self.ours.write_all(key).unwrap();
        let start = now();
        loop {
            self.hear();
            if let Some(status) = self.child.try_wait().unwrap()
                && self.said.ends_with(LEFT)
            {
                return status.code();
            }
            assert!(start.elapsed() < PATIENCE, "it does not end");
        }
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Removes escape sequences from a text.
fn plain(line: &str) -> String {
    let mut shown = String::new();
    let mut letters = line.trim_end_matches('\r').chars();
    while let Some(letter) = letters.next() {
        if letter == '\x1b' {
            letters.by_ref().find(|letter| letter.is_ascii_alphabetic());
        } else {
            shown.push(letter);
        }
    }
    shown
}

fn slacks(list: &Value) -> Vec<f64> {
    let requests = list.as_array().unwrap().iter();
    let slacks = requests.map(|request| request["slack_s"].as_f64().unwrap_or(f64::MIN));
    slacks.collect()
}

#[test]
fn a_thousand_requests_are_watched_in_one_window_and_it_is_left_as_it_was() {
    let mut centre = Centre::new();
    let overview = centre.wait_for_all();
    // On a slow machine many are safe by now.
    let under_way = overview["under_way"].as_u64().unwrap();
    let safe = overview["stage_outs"]["safe"].as_u64().unwrap_or(0);
    let seen = under_way + safe;
    assert!(seen > REQUESTS as u64 * 3 / 4, "{overview}");

    // Some requests may have been looked at anew since the order was found.
    let list = centre.ask("/v1/requests?sort=slack&limit=40&state=open&fields=id,slack_s,source");
    let found = slacks(&list);
    assert_eq!(found.len(), 40, "{list}");
    let few = found.windows(2).filter(|pair| pair[0] > pair[1] + 60.0);
    assert!(few.count() <= 4, "{found:?}");
    assert!(
        list[0]["source"].as_str().unwrap().ends_with("large"),
        "{list}"
    );

    let before = format!("{:?}", pristine());
    for (key, code) in [(&b"q"[..], Some(0)), (&b"\x03"[..], Some(0))] {
        let mut window = Window::open(&centre.watch(&[]), (120, 24));
        let shown = window.wait_for(|lines| {
            let is_told = |line: &String| line.contains("AT RISK") || line.contains("LATE");
            lines.iter().any(|line| line.starts_with("ash")) && lines.iter().any(is_told)
        });
        assert!(shown.len() <= 24, "{shown:#?}");
        assert!(shown[0].contains(" under way, "), "{shown:#?}");
        assert!(shown[3].contains("large"), "{shown:#?}");
        let more = shown
            .iter()
            .find(|line| line.starts_with("… and "))
            .unwrap();
        assert!(more.ends_with(" moving"), "{more}");
        let of = |lines: &[String]| lines.iter().filter(|line| line.starts_with('r')).count();
        let few = of(&shown);
        window.resize(60, 50);
        let larger = window.wait_for(|lines| lines.len() > 40 && of(lines) > few);
        assert!(larger.len() <= 50, "{larger:#?}");
        assert!(larger.iter().all(|line| line.chars().count() <= 60));
        assert_eq!(window.press(key), code);
        assert!(window.said.starts_with("\x1b[?1049h\x1b[?25l"));
        assert!(
            window.said.ends_with(&format!("\x1b[?25h{LEFT}")),
            "{}",
            window.said
        );
        assert_eq!(format!("{:?}", tcgetattr(&window.theirs).unwrap()), before);
    }

    // The service goes away and comes back.
    let mut window = Window::open(&centre.watch(&[]), (120, 24));
    let is_there = |lines: &[String]| lines.iter().any(|line| line.starts_with("ash"));
    window.wait_for(is_there);
    centre.service.kill();
    window.wait_for(|lines| is_there(lines) && lines[1].contains("can't reach the service"));
    centre.service.restart();
    window.wait_for(|lines| is_there(lines) && lines[1].contains(" moving"));
    assert_eq!(window.press(b"q"), Some(0));

    in_a_pipe_it_is_lines(&centre);
}

/// Checks the output in a pipe: a line for each event, or JSON.
fn in_a_pipe_it_is_lines(centre: &Centre) {
    let mut lines = Reader::start(&mut centre.watch(&[]));
    let mut json = Reader::start(&mut centre.watch(&["--json"]));
    assert!(lines.next().contains(" under way, "));
    // Both hear of what happens before something is done that is to be heard of.
    lines.find(|line| line.contains("safe"));
    json.find(|line| line.contains("\"safe\""));
    let last = format!("r{}", REQUESTS - 1);
    centre.service.run(&["cancel", &last]);
    lines.find(|line| line.contains(&format!(" {last} ")) && line.contains("cancel"));
    let said = json.find(|line| line.contains("\"cancelled\""));
    let said: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(said["request"], last.as_str());
}

/// Returns the settings of an unchanged terminal.
fn pristine() -> rustix::termios::Termios {
    let window = Window::open(&Command::new("true"), (80, 24));
    tcgetattr(&window.theirs).unwrap()
}

#[test]
fn who_watches_a_request_that_never_began_is_told_why() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::start(folder.path());
    // There are no credentials for it.
    let into = folder.path().join("into");
    let into = into.to_str().unwrap();
    let nowhere = "s3://no-such-bucket-of-ours/run";
    service.run(&["stage-in", "--deadline", "10m", nowhere, into]);
    for json in [&[][..], &["--json"]] {
        let watched = service.run(&[&["watch", "r1"], json].concat());
        let said = String::from_utf8_lossy(&watched.stderr);
        assert_eq!(watched.status.code(), Some(7), "{json:?}: {said}");
        assert!(
            said.contains("r1 failed: can't list s3://"),
            "{json:?}: {said}"
        );
    }
}

/// Program whose lines are read; ended when dropped.
struct Reader {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Reader {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (tell, lines) = mpsc::sync_channel(1024);
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    fn next(&mut self) -> String {
        self.lines.recv_timeout(PATIENCE).unwrap()
    }

    fn find(&mut self, wanted: impl Fn(&str) -> bool) -> String {
        let start = now();
        loop {
            let line = self.next();
            if wanted(&line) {
                return line;
            }
            assert!(start.elapsed() < PATIENCE, "nothing is said of it: {line}");
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
