//! `posthaste check`: the requests of a job script, or its mistakes.

use std::{
    fs,
    io::Write,
    process::{Command, Output, Stdio},
};

use crate::support::processes::{Relay, Service, failure, text};

fn check(script: &str, more: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.sh");
    fs::write(&path, script).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_posthaste"));
    command
        .current_dir(folder.path())
        .args(["check", "job.sh"])
        .args(more);
    command.output().unwrap()
}

const SCRIPT: &str = "#!/bin/bash
#SBATCH --time=02:00:00
#POSTHASTE stage_in source=sftp://archive/run7 destination=/scratch/run7
srun ./simulate
#POSTHASTE stage_out source=/scratch/out/*.h5 destination=home deadline=2h via=ash,birch code=1+1 release=when-safe after=ok
#InterNode node1.Site1:49665:50GB
";

#[test]
fn a_script_is_told_in_people_s_words_and_as_json() {
    let said = check(SCRIPT, &[]);
    assert_eq!(said.status.code(), Some(0), "{}", text(&said.stderr));
    let told = text(&said.stdout);
    for said in [
        "line 3  stage in   sftp://archive/run7 → /scratch/run7",
        "before the job starts",
        "within 2.0 h of the end of the job, over ash and birch, as 1+1, removed from scratch when safe, if the job ends well",
        "line 6  depot      node1.Site1:49665",
        "50.0 GiB, always",
    ] {
        assert!(told.contains(said), "{said}\n{told}");
    }
    let json: serde_json::Value =
        serde_json::from_slice(&check(SCRIPT, &["--json"]).stdout).unwrap();
    assert_eq!(json["stage_outs"][0]["deadline"]["within_s"], 7200);
    assert_eq!(json["stage_ins"][0]["line"], 3);
    assert_eq!(json["depots"][0]["space_bytes"], 50_u64 << 30);
    assert!(text(&check("#!/bin/sh\n", &[]).stdout).contains("job.sh asks for nothing"));
}

#[test]
fn every_wrong_directive_is_named_with_its_line() {
    let wrong =
        "#POSTHASTE stagein source=a\n#POSTHASTE stage_out source=a destination=b deadline=soon\n";
    let said = check(wrong, &[]);
    assert_eq!(said.status.code(), Some(2));
    assert_eq!(
        text(&said.stderr),
        "posthaste: job.sh: line 1: `stagein` is no directive (write stage_in)\n\
         posthaste: job.sh: line 2: `deadline=soon` can't be read (write deadline=2h, 1d12h, 2026-12-01T18:00 or 2026-12-01)\n"
    );
    let late = check(
        "#Stageout Output DestinationSite\n#Deadline 1/14/2007:12:00\n",
        &[],
    );
    assert_eq!(
        (
            late.status.code(),
            text(&late.stderr).contains("has passed")
        ),
        (Some(2), true)
    );
}

#[test]
fn a_script_comes_from_standard_input_too_and_one_that_is_not_there_is_said() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_posthaste"))
        .args(["check", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(SCRIPT.as_bytes())
        .unwrap();
    let said = child.wait_with_output().unwrap();
    assert!(text(&said.stdout).contains("stage out"));
    let missing = Command::new(env!("CARGO_BIN_EXE_posthaste"))
        .args(["check", "/nowhere/job.sh"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(4));
    assert_eq!(text(&missing.stderr).lines().count(), 1);
}

#[test]
fn depots_on_the_way_to_an_address_are_taken_from_a_job_in_a_queue() {
    let script = "#POSTHASTE stage_out source=/b destination=s3:c via=ash,birch code=1+1 pin=ash\n";
    let output = check(script, &["--queued"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
}

#[test]
fn what_can_t_be_for_a_job_in_a_queue_is_refused_where_asked() {
    for (script, said) in [
        (
            "\n#POSTHASTE stage_in source=s3:a destination=b\n",
            "job.sh: line 2: b is no absolute path",
        ),
        (
            "#POSTHASTE stage_out source=/b destination=b/c\n",
            "line 1: b/c is neither the name of a destination nor an address",
        ),
        (
            "#POSTHASTE stage_out source=/b destination=s3:c pin=ash\n",
            "line 1: `pin=` can't be kept on the way to s3:c",
        ),
        (
            "#POSTHASTE stage_out source=/b destination=s3:c,d via=ash\n",
            "line 1: there is a comma in s3:c,d",
        ),
    ] {
        assert_eq!(check(script, &[]).status.code(), Some(0));
        let output = check(script, &["--queued"]);
        assert_eq!(output.status.code(), Some(2));
        assert!(
            text(&output.stderr).contains(said),
            "{}",
            text(&output.stderr)
        );
    }
    assert_eq!(
        check(SCRIPT.lines().next().unwrap(), &["--queued"])
            .status
            .code(),
        Some(0)
    );
}

/// Service with scratch, a relay that it knows, and a folder of inputs.
struct Site {
    folder: tempfile::TempDir,
    service: Service,
    _relay: Relay,
}

impl Site {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (scratch, archive) = (folder.path().join("scratch"), folder.path().join("archive"));
        fs::create_dir(&scratch).unwrap();
        fs::create_dir(&archive).unwrap();
        for name in ["a", "b", "c"] {
            fs::write(archive.join(name), vec![7; 1 << 20]).unwrap();
        }
        let service = Service::start_with(folder.path(), &["--scratch", scratch.to_str().unwrap()]);
        let relay = Relay::start(folder.path(), "ash", "1G", "40M");
        service.add(&relay);
        Self {
            folder,
            service,
            _relay: relay,
        }
    }

    /// Checks a script of these directives, in which `SITE` stands for the folder of everything.
    fn ask(&self, directives: &[&str], more: &[&str]) -> Output {
        let lines = directives.iter().map(|line| {
            let site = self.folder.path().to_str().unwrap();
            format!("#POSTHASTE {}\n", line.replace("SITE", site))
        });
        let script = self.folder.path().join("job.sh");
        fs::write(&script, format!("#!/bin/sh\n{}", lines.collect::<String>())).unwrap();
        let check = ["check", "--ask", script.to_str().unwrap()];
        self.service.run(&[&check, more].concat())
    }
}

#[test]
fn the_service_says_when_inputs_would_be_here() {
    let site = Site::start();
    let script = [
        "stage_in source=SITE/archive destination=SITE/scratch/in",
        "stage_in source=SITE/none destination=SITE/scratch/more optional",
        "stage_in source=SITE/archive destination=SITE/scratch/in-%j",
        "stage_out source=SITE/scratch/out destination=home via=ash pin=ash",
    ];
    let said = site.ask(&script, &[]);
    let told = text(&said.stdout);
    assert_eq!(said.status.code(), Some(0), "{told}{}", text(&said.stderr));
    for words in [
        "line 2  stage in",
        "files, here as likely as not by",
        "the job starts without it too, can't come now:",
        "symbols have no meaning before there is a job",
    ] {
        assert!(told.contains(words), "{words}\n{told}");
    }
    let wrong = [
        script[0],
        "stage_in source=SITE/none destination=SITE/scratch/more",
        "stage_in source=SITE/neither destination=SITE/scratch/less",
    ];
    let said = text(&site.ask(&wrong, &[]).stderr);
    for line in ["line 3: a job would wait", "line 4: a job would wait"] {
        assert!(said.contains(line), "{said}");
    }
    let json = site.ask(&script, &["--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let asked = |place: usize| &json["stage_ins"][place]["asked"];
    assert_eq!(asked(0)["bytes"].as_u64(), Some(3 << 20), "{json}");
    assert_eq!(asked(0)["late"], false);
    assert_eq!(asked(1)["state"], "refused");
    assert_eq!(asked(2)["state"], "not-asked");
    let scratch = fs::read_dir(site.folder.path().join("scratch")).unwrap();
    assert_eq!(scratch.count(), 0, "nothing is changed");
    let listed = site.service.json(&["list", "--json"]);
    assert_eq!(listed, serde_json::json!([]));
}

#[test]
fn what_the_service_would_not_take_is_named_with_its_line() {
    let mut site = Site::start();
    let missing = "stage_in source=SITE/none destination=SITE/scratch/in";
    let (code, line) = failure(&site.ask(&[missing], &["--json"]));
    assert!(code == 11 && line.contains("line 2"), "{code}: {line}");
    for (wrong, words) in [
        ("stage_in source=SITE/archive destination=/etc/in", "line 2"),
        (
            "stage_out source=SITE/scratch/out destination=home via=elm",
            "elm",
        ),
        (
            "stage_out source=SITE/scratch/out destination=home pin=elm",
            "elm",
        ),
        ("stage_out source=out destination=home", "absolute"),
    ] {
        let (code, line) = failure(&site.ask(&[wrong], &[]));
        assert!(code != 0 && line.contains(words), "{code}: {line}");
    }
    site.service.kill();
    let (code, line) = failure(&site.ask(&[missing], &[]));
    assert!(code == 5 && line.contains("can't reach"), "{code}: {line}");
}
