//! HTCondor's file transfer plug-in, called as HTCondor calls it, with real servers.

mod pool;

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    time::Duration,
};

use crate::support::processes::{PATIENCE, noise, now, text};
use posthaste_testbed::{S3Server, SlowLink, SshServer, install};

/// Blanks with which HTCondor fills the output file.
const BLANKS: usize = 16 * 1204;
const MIB: usize = 1 << 20;

/// Machine of a pool with a job's sandbox, an S3 server and an SSH server.
struct Machine {
    folder: tempfile::TempDir,
    s3: S3Server,
    ssh: SshServer,
}

impl Machine {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["sandbox", "far"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        let machine = Self {
            folder,
            s3: S3Server::start().unwrap(),
            ssh: SshServer::start().unwrap(),
        };
        machine.write_profiles(&machine.s3.endpoint(), S3Server::SECRET_KEY, "1G");
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write_profiles(&self, endpoint: &str, secret: &str, rate: &str) {
        let profiles = profiles(&self.ssh, endpoint, secret, rate);
        let path = self.path("home/.config/posthaste/profiles.toml");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, profiles).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    }

    fn plugin(&self) -> Command {
        let plugin = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../plugins/condor/posthaste-condor-plugin");
        let programs = Path::new(env!("CARGO_BIN_EXE_posthaste")).parent().unwrap();
        let mut command = Command::new(plugin);
        command
            .env_clear()
            .env("PATH", format!("{}:/usr/bin:/bin", programs.display()))
            .env("HOME", self.path("home"))
            .current_dir(self.path("sandbox"));
        command
    }

    /// Builds HTCondor's call of the plug-in: files and their addresses, in the sandbox.
    fn call(&self, files: &[(PathBuf, String)], more: &[&str]) -> Command {
        let ads = files.iter().map(|(local, url)| {
            let local = local.display().to_string().replace('"', "\\\"");
            format!("[ LocalFileName = \"{local}\"; PluginData = [ a = {{ 1, \"]\" }} ]; Url = \"{url}\" ]")
        });
        self.call_with(&ads.collect::<String>(), more)
    }

    fn call_with(&self, input: &str, more: &[&str]) -> Command {
        fs::write(self.path("sandbox/.plugin.in"), input).unwrap();
        fs::write(self.path("sandbox/.plugin.out"), " ".repeat(BLANKS)).unwrap();
        let mut command = self.plugin();
        command
            .args(["-infile", ".plugin.in", "-outfile", ".plugin.out"])
            .args(more);
        command
    }

    /// Returns the plug-in's report, a line for each file.
    fn report(&self) -> Vec<String> {
        let said = fs::read_to_string(self.path("sandbox/.plugin.out")).unwrap();
        assert!(said.len() >= BLANKS, "the room that HTCondor made is kept");
        let lines = said.lines().map(|line| line.trim().to_owned());
        lines.filter(|line| !line.is_empty()).collect()
    }

    /// Runs a transfer; returns its exit code and its report of each file.
    fn transfer(&self, files: &[(PathBuf, String)], more: &[&str]) -> (i32, Vec<String>) {
        let output = self.call(files, more).output().unwrap();
        (code(&output), self.report())
    }
}

/// Writes profiles of both servers, the first with that endpoint and secret, and so many bytes a
/// second at most.
fn profiles(ssh: &SshServer, endpoint: &str, secret: &str, rate: &str) -> String {
    let options = ssh.options();
    let options: Vec<String> = options.iter().map(|option| format!("{option:?}")).collect();
    format!(
        "[archive]\nendpoint = {endpoint:?}\naccess_key_id = {:?}\nsecret_access_key = {secret:?}\n\
         rate_max = {rate:?}\n\n[tape]\nssh_options = [{}]\n",
        S3Server::ACCESS_KEY,
        options.join(", "),
    )
}

fn code(output: &Output) -> i32 {
    output
        .status
        .code()
        .unwrap_or_else(|| panic!("{}", text(&output.stderr)))
}

/// Returns the ad about the file with this name.
fn about<'a>(report: &'a [String], local: &Path) -> &'a str {
    let name = local.display().to_string().replace('"', "\\\"");
    let name = format!("TransferFileName = \"{name}\";");
    let found: Vec<&String> = report.iter().filter(|ad| ad.contains(&name)).collect();
    assert_eq!(found.len(), 1, "{name} in {report:#?}");
    found[0]
}

fn number(ad: &str, name: &str) -> f64 {
    let (_, rest) = ad.split_once(&format!(" {name} = ")).unwrap();
    rest.split(';').next().unwrap().parse().unwrap()
}

#[test]
fn it_says_what_it_can_do() {
    let machine = Machine::start();
    let output = machine.plugin().arg("-classad").output().unwrap();
    assert_eq!(code(&output), 0);
    let said = text(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    let version = format!("PluginVersion = \"{}\"", env!("CARGO_PKG_VERSION"));
    assert_eq!(
        lines,
        [
            "MultipleFileSupport = true",
            &version,
            "PluginType = \"FileTransfer\"",
            "ProtocolVersion = 2",
            "SupportedMethods = \"posthaste,s3,gs,azblob,sftp,webdav,webdavs,ftps\"",
        ]
    );
}

#[test]
fn inputs_come_from_several_places_in_one_call_and_outputs_go_there() {
    let machine = Machine::start();
    let (one, two) = (noise(1, 3 * MIB), noise(2, 80_000));
    fs::create_dir(machine.s3.bucket_folder().join("run")).unwrap();
    fs::write(machine.s3.bucket_folder().join("run/one"), &one).unwrap();
    fs::write(machine.path("far/two"), &two).unwrap();
    let tape = |name: &str| {
        let address = machine
            .ssh
            .address(&machine.path("far").display().to_string());
        format!("tape+{address}/{name}")
    };
    let inputs = [
        (
            machine.path("sandbox/one"),
            "archive+s3://testbed/run/one".to_owned(),
        ),
        (machine.path("sandbox/tw \"o\""), tape("two")),
    ];
    let (exit, report) = machine.transfer(&inputs, &[]);
    assert_eq!(exit, 0, "{report:#?}");
    assert_eq!(fs::read(machine.path("sandbox/one")).unwrap(), one);
    assert_eq!(fs::read(machine.path("sandbox/tw \"o\"")).unwrap(), two);
    let ad = about(&report, &inputs[0].0);
    for said in [
        "TransferSuccess = true;",
        "TransferProtocol = \"s3\";",
        "TransferType = \"download\";",
        "TransferUrl = \"archive+s3://testbed/run/one\";",
        "TransferFileBytes = 3145728;",
        "TransferTotalBytes = 3145728;",
    ] {
        assert!(ad.contains(said), "{said}: {ad}");
    }
    assert!(number(ad, "TransferEndTime") >= number(ad, "TransferStartTime"));
    assert!(number(ad, "ConnectionTimeSeconds") > 0.0);
    assert_eq!(
        number(about(&report, &inputs[1].0), "TransferFileBytes"),
        80_000.0
    );

    let outputs = [
        (machine.path("sandbox/one"), tape("one")),
        (
            machine.path("sandbox/tw \"o\""),
            "archive+s3://testbed/results/two".to_owned(),
        ),
    ];
    let (exit, report) = machine.transfer(&outputs, &["-upload"]);
    assert_eq!(exit, 0, "{report:#?}");
    assert!(about(&report, &outputs[0].0).contains("TransferType = \"upload\";"));
    assert_eq!(fs::read(machine.path("far/one")).unwrap(), one);
    let stored = machine.s3.bucket_folder().join("results/two");
    assert_eq!(fs::read(stored).unwrap(), two);
}

/// Runs a few lines with HTCondor's own library of ClassAds; returns their output.
fn htcondor(lines: &str, words: &[&str]) -> String {
    let python = install::find_python_program(install::CLASSADS).unwrap();
    let mut command = Command::new(python);
    let output = command.args(["-c", lines]).args(words).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn htcondor_s_own_library_and_the_plug_in_read_what_the_other_writes() {
    const WRITE: &str = "import classad2, sys
ads = [classad2.ClassAd({'LocalFileName': local, 'Url': url, 'PluginData': classad2.ClassAd({'a': [1, ']']})})
       for local, url in zip(sys.argv[1::2], sys.argv[2::2])]
print(''.join(map(str, ads)))";
    const READ: &str = "import classad2, json, sys
for ad in classad2.parseAds(open(sys.argv[1])):
    ad = {name: ad.eval(name) for name in ad}
    print(ad['TransferFileName'], type(ad['ConnectionTimeSeconds']).__name__, ad['TransferSuccess'],
          [dict(data)['ErrorType'] for data in ad.get('TransferErrorData', [])])";
    let machine = Machine::start();
    fs::write(machine.s3.bucket_folder().join("one"), "1").unwrap();
    let odd = machine.path("sandbox/ö \"d\\d\"");
    let odd = odd.to_str().unwrap();
    let absent = machine.path("sandbox/absent");
    let input = htcondor(
        WRITE,
        &[
            odd,
            "archive+s3://testbed/one",
            absent.to_str().unwrap(),
            "archive+s3://testbed/absent",
        ],
    );
    fs::write(odd, "1").unwrap();
    let output = machine.call_with(&input, &["-upload"]).output().unwrap();
    assert_eq!(code(&output), 1);
    let report = machine.path("sandbox/.plugin.out");
    let read = htcondor(READ, &[report.to_str().unwrap()]);
    let lines: Vec<&str> = read.lines().collect();
    assert!(lines.contains(&&*format!("{odd} float True []")), "{read}");
    let absent = format!("{} float False ['Specification']", absent.display());
    assert!(lines.contains(&&*absent), "{read}");
}

#[test]
fn no_other_input_is_waited_for_once_one_can_t_be_had() {
    let machine = Machine::start();
    machine.write_profiles(&machine.s3.endpoint(), S3Server::SECRET_KEY, "256K");
    let mut inputs = vec![(
        machine.path("sandbox/absent"),
        "archive+s3://testbed/absent".to_owned(),
    )];
    for number in 0..6 {
        let name = format!("large{number}");
        fs::write(machine.s3.bucket_folder().join(&name), vec![7; 16 * MIB]).unwrap();
        inputs.push((
            machine.path("sandbox").join(&name),
            format!("archive+s3://testbed/{name}"),
        ));
    }
    let (exit, report) = machine.transfer(&inputs, &[]);
    assert_eq!(exit, 1);
    assert_eq!(
        report.len(),
        inputs.len(),
        "each file has its ad: {report:#?}"
    );
    let absent = about(&report, &inputs[0].0);
    assert!(
        absent.contains("ErrorType = \"Specification\";"),
        "{absent}"
    );
    assert!(absent.contains("Retryable = -1;"), "{absent}");
    let last = report.last().map(String::as_str);
    assert_eq!(last, Some(absent), "HTCondor tells of the last");
    for (local, _) in &inputs[1..] {
        let ad = about(&report, local);
        assert!(ad.contains("TransferSuccess = false;"), "{ad}");
        assert!(ad.contains("absent could not be had"), "{ad}");
        assert!(!local.exists(), "half a file has no name");
    }
}

#[test]
fn what_a_job_leaves_is_saved_as_far_as_it_is_there() {
    let machine = Machine::start();
    let outputs = ["first", "absent", "last"].map(|name| {
        let local = machine.path("sandbox").join(name);
        if name != "absent" {
            fs::write(&local, name).unwrap();
        }
        (local, format!("archive+s3://testbed/out/{name}"))
    });
    let (exit, report) = machine.transfer(&outputs, &["-upload"]);
    assert_eq!(exit, 1);
    for (local, _) in [&outputs[0], &outputs[2]] {
        assert!(about(&report, local).contains("TransferSuccess = true;"));
    }
    let absent = about(&report, &outputs[1].0);
    assert!(absent.contains("TransferError = \"can't read "), "{absent}");
    let stored = machine.s3.bucket_folder().join("out");
    assert_eq!(fs::read(stored.join("last")).unwrap(), b"last");
}

#[test]
fn bad_credentials_ask_for_better_ones_and_no_secret_is_said() {
    let machine = Machine::start();
    machine.write_profiles(&machine.s3.endpoint(), "not-the-secret", "1G");
    fs::write(machine.s3.bucket_folder().join("one"), "1").unwrap();
    let inputs = [(
        machine.path("sandbox/one"),
        "archive+s3://testbed/one".to_owned(),
    )];
    let output = machine.call(&inputs, &[]).output().unwrap();
    let report = machine.report();
    assert_eq!(code(&output), 2, "{report:#?}");
    assert!(report[0].contains("ShouldRefresh = true;"), "{}", report[0]);
    let all = text(&output.stderr) + &text(&output.stdout) + &report[0];
    assert!(!all.contains("not-the-secret"));
}

#[test]
fn calls_and_input_that_make_no_sense_are_refused_and_said() {
    let machine = Machine::start();
    let output = machine
        .call_with("LocalFileName = \"a\"", &[])
        .output()
        .unwrap();
    assert_eq!(code(&output), 1);
    let report = machine.report();
    assert!(report[0].contains("TransferSuccess = false;"), "{report:?}");
    assert!(report[0].contains("a ClassAd begins with"), "{report:?}");

    let urls = [
        "https://example.org/a",
        "nowhere+s3://b/c",
        "gopher://a/b",
        "/a/b",
    ];
    for url in urls {
        let inputs = [(machine.path("sandbox/a"), url.to_owned())];
        let (exit, report) = machine.transfer(&inputs, &[]);
        assert_eq!(exit, 1, "{url}");
        assert!(
            report[0].contains("ErrorType = \"Parameter\";"),
            "{report:?}"
        );
    }
    for words in [&["-infile"][..], &["s3://a/b", "/c"], &[]] {
        let output = machine.plugin().args(words).output().unwrap();
        assert_eq!(code(&output), 1, "{words:?}");
    }
    // Ads about no file are of later protocols.
    let (nothing, input) = (Path::new("sandbox"), "[ PluginData = [ a = 1 ] ]");
    assert!(machine.path(nothing.to_str().unwrap()).exists());
    let output = machine.call_with(input, &[]).output().unwrap();
    assert_eq!(code(&output), 0);
}

#[test]
fn a_call_that_was_killed_goes_on_when_it_is_repeated() {
    const SIZE: usize = 128 * MIB;
    let machine = Machine::start();
    // So slow that it is not over when somebody comes to see it.
    let link = SlowLink::start(machine.s3.address(), 2 << 20).unwrap();
    let endpoint = format!("http://127.0.0.1:{}", link.port());
    machine.write_profiles(&endpoint, S3Server::SECRET_KEY, "1G");
    let wanted = noise(3, SIZE);
    fs::write(machine.path("sandbox/large"), &wanted).unwrap();
    let outputs = [(
        machine.path("sandbox/large"),
        "archive+s3://testbed/large".to_owned(),
    )];
    let mut running = machine
        .call(&outputs, &["-upload"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let start = now();
    while link.carried() < (SIZE as u64) / 2 {
        assert!(start.elapsed() < PATIENCE, "it moves nothing");
        assert!(running.try_wait().unwrap().is_none(), "it ended too early");
        std::thread::sleep(Duration::from_millis(10));
    }
    // The wrapper became the program: there is one process.
    running.kill().unwrap();
    running.wait().unwrap();
    let stored = machine.s3.bucket_folder().join("large");
    assert!(!stored.exists(), "half an object has no name");
    link.set_rate(100 << 20);

    let (exit, report) = machine.transfer(&outputs, &["-upload"]);
    assert_eq!(exit, 0, "{report:#?}");
    let ad = about(&report, &outputs[0].0);
    let (sent, resumed) = (number(ad, "TransferTotalBytes"), number(ad, "ResumedBytes"));
    assert!(resumed > 0.0, "{ad}");
    assert_eq!(sent + resumed, number(ad, "TransferFileBytes"), "{ad}");
    assert!(fs::read(stored).unwrap() == wanted);
}
