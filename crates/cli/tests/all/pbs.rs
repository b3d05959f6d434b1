//! Front door of PBS: its hook and its staging under a stand-in for PBS, with a real service, real
//! sources and relays.

mod centre;
mod many;
mod queue;

use crate::support::processes;

use std::fs;

use posthaste_testbed::{AzureServer, FtpFace, FtpServer, GcsServer, S3Server, WebFace, WebServer};
use serde_json::Value;

use crate::support::processes::{PATIENCE, Relay, now, text};
use centre::{Centre, comment};

#[test]
fn qsub_refuses_directives_that_make_no_sense() {
    let centre = Centre::start("1G");
    for (variable, said) in [
        (
            "\"stage_in source=archive:a destination=SCRATCH/a; stage_uot source=/a destination=home\"",
            "qsub: posthaste: POSTHASTE: line 2: `stage_uot` is no directive (write stage_out)",
        ),
        (
            "'stage_in source=archive:a destination=a'",
            "line 1: a is no absolute path",
        ),
        (
            "\"stage_out source=/a destination=home via=a,b deadline=soon\"",
            "`deadline=soon` can't be read",
        ),
    ] {
        let output = centre.submit(&format!("#!/bin/sh\n#PBS -v A=1,POSTHASTE={variable}\n"));
        assert_eq!(output.status.code(), Some(1));
        let error = text(&output.stderr);
        assert!(error.contains(said), "{said}: {error}");
    }
    // Jobs that want nothing of posthaste are none of its business, even where it is not set up.
    fs::write(centre.path("pbs/hooks/posthaste.CF"), "{").unwrap();
    let job = centre.submitted("#!/bin/sh\n#PBS -v A=1\necho \"$A\"\n");
    centre.cycle_until(&job, |job| job["job_state"] == "F");
}

#[test]
fn a_job_runs_once_its_data_is_there_and_what_it_leaves_goes_home() {
    let mut centre = Centre::start("1M");
    fs::create_dir(centre.s3.bucket_folder().join("run")).unwrap();
    let content = vec![7_u8; 12 << 20];
    fs::write(centre.s3.bucket_folder().join("run/large"), &content).unwrap();
    fs::create_dir(centre.path("far/mesh")).unwrap();
    fs::write(centre.path("far/mesh/points"), "1 2 3").unwrap();
    let relays = ["a", "b"].map(|name| Relay::start(centre.folder.path(), name, "1G", "10M"));
    for relay in &relays {
        centre.service.add(relay);
    }
    centre
        .service
        .wait_for_depots(|depot| depot["state"] == "up");
    let job = centre.submitted(
        "#!/bin/sh\n\
         #PBS -v POSTHASTE=\"stage_in source=archive:run destination=SCRATCH/run; stage_in source=tape:mesh \
         destination=SCRATCH/mesh; stage_out source=SCRATCH/out destination=home via=a,b code=1+1\"\n\
         mkdir SCRATCH/out && cat SCRATCH/run/large SCRATCH/mesh/points > SCRATCH/out/result\n",
    );
    centre.ask(&["cycle"]);
    let waiting = centre.job(&job);
    assert_eq!(
        waiting["job_state"], "W",
        "the scheduler looks at others meanwhile"
    );
    assert!(
        comment(&waiting).contains("data is on its way"),
        "{waiting}"
    );
    assert!(!centre.path("scratch/run").exists());

    // The service may be away meanwhile: the job waits for it too.
    centre.service.kill();
    centre.cycle_until(&job, |job| comment(job).contains("can't ask the service"));
    centre.service.restart();
    let done = centre.cycle_until(&job, |job| job["job_state"] == "F");
    assert_eq!(done["Exit_status"], 0, "{done}\n{}", centre.log());
    let result = fs::read(centre.path("scratch/out/result")).unwrap();
    assert_eq!(result.len(), content.len() + 5);

    let leaving = centre.leaving();
    assert_eq!(leaving.len(), 1, "{leaving:?}\n{}", centre.log());
    let id = leaving[0]["id"].as_str().unwrap();
    centre
        .service
        .wait_until(id, |request| request["state"] == "safe");
    let start = now();
    while !centre.jobs_of_service().contains("\"gone\"") {
        assert!(start.elapsed() < PATIENCE, "{}", centre.log());
        centre.ask(&["periodic"]);
    }
}

#[test]
fn jobs_leave_results_on_servers_of_every_kind_and_read_them_from_there() {
    let centre = Centre::start("1G");
    let azure = AzureServer::start().unwrap();
    let gcs = GcsServer::start().unwrap();
    let web = WebServer::start().unwrap();
    let ftp = FtpServer::start(FtpFace::Plain).unwrap();
    let kinds = [
        (
            "azure",
            azure.profile(),
            format!("azblob://{}", AzureServer::CONTAINER),
        ),
        ("gcs", gcs.profile(), format!("gs://{}", GcsServer::BUCKET)),
        ("web", web.profile(), web.address(WebFace::Dav, "")),
        ("ftp", ftp.profile(), ftp.address_below("")),
    ];
    let profiles = centre.path("config/posthaste/profiles.toml");
    let mut text = fs::read_to_string(&profiles).unwrap();
    for (_, profile, url) in &kinds {
        text += &format!("\n{profile}url = \"{}\"\n", url.trim_end_matches('/'));
    }
    fs::write(&profiles, text).unwrap();
    let directives = |of: &dyn Fn(&str) -> String| {
        let lines: Vec<String> = kinds.iter().map(|(name, ..)| of(name)).collect();
        format!("#!/bin/sh\n#PBS -v POSTHASTE=\"{}\"\n", lines.join("; "))
    };
    let leave = |name: &str| format!("stage_out source=SCRATCH/out destination={name}:run/deep");
    let make = "mkdir -p SCRATCH/out/sub && head -c 9M /dev/urandom > SCRATCH/out/large && echo 1 > SCRATCH/out/sub/one\n";
    let job = centre.submitted(&(directives(&leave) + make));
    centre.cycle_until(&job, |job| job["job_state"] == "F");
    let have_left = || {
        let requests = centre.service.json(&["list", "--json"]);
        let requests = requests.as_array().unwrap().iter();
        let states: Vec<_> = requests.map(|one| one["state"].clone()).collect();
        assert!(
            !states.iter().any(|state| state == "failed"),
            "{}",
            centre.log()
        );
        states.len() == kinds.len() && states.iter().all(|state| state == "arrived")
    };
    centre.wait_for("its results are there", have_left);
    let read = |name: &str| format!("stage_in source={name}:run/deep destination=SCRATCH/{name}");
    let compare =
        "for name in azure gcs web ftp; do diff -r SCRATCH/out SCRATCH/$name || exit 1; done\n";
    let job = centre.submitted(&(directives(&read) + compare));
    let done = centre.cycle_until(&job, |job| job["job_state"] == "F");
    assert_eq!(done["Exit_status"], 0, "{done}\n{}", centre.log());
}

#[test]
fn the_sites_purge_binds_what_a_job_leaves() {
    let site = tempfile::tempdir().unwrap();
    let policy = site.path().join("purge.toml");
    let rule = |name: &str, days: f64| {
        let rule = format!("[[rule]]\nname = \"{name}\"\nclock = \"mtime\"\ndays = {days}\n");
        fs::write(&policy, rule).unwrap();
    };
    rule("an hour", 1.0 / 24.0);
    let centre = Centre::start_with("1G", &["--purge-policy", policy.to_str().unwrap()]);
    let relay = Relay::start(centre.folder.path(), "a", "1G", "10K");
    centre.service.add(&relay);
    let is_up = |depot: &Value| depot["state"] == "up";
    centre.service.wait_for_depots(is_up);
    let job = centre.submitted(
        "#!/bin/sh\n#PBS -v POSTHASTE=\"stage_out source=SCRATCH/out destination=home deadline=5h code=1+0\"\n\
         mkdir -p SCRATCH/out && head -c 4M /dev/urandom > SCRATCH/out/result.h5\n",
    );
    centre.cycle_until(&job, |job| job["job_state"] == "F");
    let leaving = centre.leaving();
    let id = leaving[0]["id"].as_str().unwrap();
    let due = |request: &Value| {
        let due = request["deadline"].as_str().unwrap();
        let due: jiff::Timestamp = due.parse().unwrap();
        due.duration_since(jiff::Timestamp::now()).as_secs() / 60
    };
    let is_bound = |request: &Value| request["state"] == "moving";
    let request = centre.service.wait_until(id, is_bound);
    assert!((50..=60).contains(&due(&request)), "{request}");
    let told = |words: &[&str]| {
        centre.wait_for("the rule is told", || {
            let story = centre.service.run(&["explain", id]);
            let story = text(&story.stdout);
            words.iter().all(|word| story.contains(word))
        });
    };
    told(&["result.h5", "`an hour` (line 1)", "purge.toml"]);

    // Other rules move it soon.
    rule("two hours", 2.0 / 24.0);
    let is_moved = |request: &Value| due(request) > 100;
    centre.service.wait_until(id, is_moved);
    told(&["`two hours` (line 1)"]);

    fs::write(&policy, "[[rule]]\nnonsense = 1\n").unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0", "--state"];
    let output = processes::binary()
        .args(serve)
        .arg(site.path().join("state"))
        .arg("--purge-policy")
        .arg(&policy)
        .output()
        .unwrap();
    let (code, line) = processes::failure(&output);
    assert!(code == 2 && line.contains("nonsense"), "{code}: {line}");
}

#[test]
fn an_end_that_the_service_did_not_hear_of_is_told_later_and_a_rerun_is_no_end() {
    let mut centre = Centre::start("1G");
    let relay = Relay::start(centre.folder.path(), "a", "1G", "10M");
    centre.service.add(&relay);
    centre
        .service
        .wait_for_depots(|depot| depot["state"] == "up");
    let job = centre.submitted(
        "#!/bin/sh\n#PBS -v POSTHASTE=\"stage_out source=SCRATCH/out destination=home code=1+0\"\n\
         mkdir -p SCRATCH/out && echo 1 > SCRATCH/out/result\n",
    );
    centre.ask(&["qrerun", &job]);
    assert_eq!(centre.job(&job)["job_state"], "Q");
    assert!(centre.leaving().is_empty(), "it will run again");

    // It runs while the service is there, and ends when it is not.
    let script = centre.job(&job)["script"].as_str().unwrap().to_owned();
    assert!(script.contains("mkdir"));
    let path = centre.path(&format!("pbs/jobs/{job}.json"));
    let mut changed = centre.job(&job);
    let pid = centre.service_pid();
    changed["script"] = format!("{script}kill -9 {pid}\n").into();
    fs::write(&path, changed.to_string()).unwrap();
    centre.cycle_until(&job, |job| job["job_state"] == "F");
    assert_eq!(fs::read_dir(centre.path("pbs/notes")).unwrap().count(), 1);
    assert!(
        centre.log().contains("told later that it ended"),
        "{}",
        centre.log()
    );
    centre.service.kill();
    centre.service.restart();
    // Notes that nobody can read keep none back, and stay for who looks after PBS.
    fs::write(centre.path("pbs/notes/broken"), "{\"job\": ").unwrap();
    fs::write(centre.path("pbs/notes/other"), "[]").unwrap();
    centre.ask(&["periodic"]);
    assert_eq!(fs::read_dir(centre.path("pbs/notes")).unwrap().count(), 2);
    assert_eq!(centre.leaving().len(), 1);
    let broken = format!("can't read {}", centre.path("pbs/notes/broken").display());
    assert!(centre.log().contains(&broken), "{}", centre.log());
}

#[test]
fn a_job_whose_output_can_t_leave_is_forgotten() {
    let centre = Centre::start("1G");
    // The only depot that it may go over is not in the books, so it was refused for good.
    let job = centre.submitted(
        "#!/bin/sh\n#PBS -v POSTHASTE=\"stage_out source=SCRATCH/out destination=home via=nowhere\"\n\
         mkdir -p SCRATCH/out && echo 1 > SCRATCH/out/result\n",
    );
    centre.cycle_until(&job, |job| job["job_state"] == "F");
    assert!(centre.jobs_of_service().contains("\"ended\""));
    centre.ask(&["periodic"]);
    assert!(
        centre.jobs_of_service().contains("\"gone\""),
        "{}",
        centre.jobs_of_service()
    );
}

#[test]
fn a_job_whose_data_can_t_come_is_held_and_tried_again_when_released() {
    let centre = Centre::start("1G");
    let job = centre.submitted(
        "#!/bin/sh\n#PBS -v POSTHASTE=\"stage_in source=tape:late destination=SCRATCH/late\"\ntest -e SCRATCH/late/x\n",
    );
    let held = centre.cycle_until(&job, |job| job["job_state"] == "H");
    assert_eq!(held["Hold_Types"], "u");
    assert!(
        comment(&held).contains(&format!("(qrls {job} tries again)")),
        "{held}"
    );
    fs::create_dir(centre.path("far/late")).unwrap();
    fs::write(centre.path("far/late/x"), "x").unwrap();
    centre.ask(&["qrls", &job]);
    let done = centre.cycle_until(&job, |job| job["job_state"] == "F");
    assert_eq!(done["Exit_status"], 0, "{done}");
}

#[test]
fn what_is_on_its_way_to_a_job_that_was_deleted_is_given_up() {
    let centre = Centre::start("1M");
    let run = centre.s3.bucket_folder().join("run");
    fs::create_dir(&run).unwrap();
    fs::write(run.join("large"), vec![7_u8; 100 << 20]).unwrap();
    let job = centre.submitted(
        "#!/bin/sh\n#PBS -v POSTHASTE=\"stage_in source=archive:run destination=SCRATCH/run\"\n",
    );
    centre.ask(&["cycle"]);
    assert!(centre.jobs_of_service().contains("\"staging-in\""));
    centre.ask(&["periodic"]);
    assert!(
        centre.jobs_of_service().contains("\"staging-in\""),
        "it is still there"
    );
    centre.ask(&["qdel", &job]);
    centre.ask(&["periodic"]);
    assert!(centre.jobs_of_service().contains("\"gone\""));
}

#[test]
fn plain_staging_goes_through_posthaste() {
    let centre = Centre::start("1G");
    fs::create_dir(centre.s3.bucket_folder().join("run")).unwrap();
    fs::write(
        centre.s3.bucket_folder().join("run/in put"),
        "from the archive",
    )
    .unwrap();
    fs::write(centre.path("far/local"), "from this host").unwrap();
    let job = centre.submitted(
        "#!/bin/sh\n\
         #PBS -W stagein=\"SCRATCH/one@archive:run/in put,SCRATCH/two@localhost:FAR/local\"\n\
         #PBS -W stageout=\"SCRATCH/three@tape:three\"\n\
         cat SCRATCH/one SCRATCH/two > SCRATCH/three\n",
    );
    centre.ask(&["cycle"]);
    let done = centre.job(&job);
    assert_eq!(done["Exit_status"], 0, "{done}\n{}", centre.log());
    let wanted = "from the archivefrom this host";
    assert_eq!(
        fs::read_to_string(centre.path("far/three")).unwrap(),
        wanted
    );
    assert!(!centre.log().contains("scp got"), "{}", centre.log());
    assert!(!centre.log().contains(S3Server::SECRET_KEY));

    // All of it is there already: PBS must not take that for a failure.
    let again = centre.submitted("#!/bin/sh\n#PBS -W stagein=\"SCRATCH/one@archive:run/in put\"\n");
    centre.ask(&["cycle"]);
    assert_eq!(centre.job(&again)["Exit_status"], 0, "{}", centre.log());
    assert_eq!(
        centre.log().matches("in\\ put").count(),
        2,
        "one try each: {}",
        centre.log()
    );
    drop(centre.ssh);
}

#[test]
fn what_only_scp_can_do_is_left_to_scp() {
    let centre = Centre::start("1G");
    let job = centre.submitted("#!/bin/sh\n#PBS -W stagein=\"SCRATCH/all@dtn:FAR/*.nc\"\n");
    centre.ask(&["cycle"]);
    assert_eq!(centre.job(&job)["Exit_status"], 0, "{}", centre.log());
    let log = centre.log();
    assert!(log.contains("the other host expands patterns"), "{log}");
    assert!(log.contains("scp got -Brvp "), "{log}");
}
