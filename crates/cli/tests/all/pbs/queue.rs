//! Queue of PBS: polled, forecast, and followed by just-in-time data.

use std::{fs, process::Child};

use serde_json::json;

use crate::{
    pbs::centre::{Centre, comment},
    support::processes::text,
};

/// Remaining wait in the far future: a job that may run for two hours has just begun, and data is
/// wanted half an hour before the next.
const FAR_S: i64 = 5000;
/// Wait further ahead: nobody knows when the job before it ends.
const UNKNOWN_S: i64 = 6 * 3600;

/// Centre whose service brings data just in time, and its first job, which runs until there is a
/// file `go`.
struct Busy {
    centre: Centre,
    first: String,
    running: Child,
}

impl Busy {
    fn start() -> Self {
        let centre = Centre::start_with("1G", &["--queue", "pbs", "--just-in-time"]);
        for (path, held) in [("run/small", "1 2 3"), ("own/0/n", "0"), ("own/1/n", "1")] {
            let path = centre.s3.bucket_folder().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, held).unwrap();
        }
        let first = centre.submitted(
            "#!/bin/sh\n#PBS -l ncpus=4,walltime=02:00:00\nwhile [ ! -e SCRATCH/go ]; do sleep 0.1; done\n",
        );
        let running = centre.command(&["cycle"]).spawn().unwrap();
        let busy = Self {
            centre,
            first,
            running,
        };
        let runs = || busy.centre.job(&busy.first)["job_state"] == "R";
        busy.centre.wait_for("it runs", runs);
        busy
    }

    /// Waits until so many stage-ins are held back for at least so long, and none of them has
    /// begun.
    fn wait_until_held_back(&self, count: usize, least_s: i64) {
        let now = jiff::Timestamp::now();
        self.centre.wait_for("its data is held back", || {
            let requests = self.centre.service.json(&["list", "--json"]);
            let asked = requests.as_array().unwrap().iter();
            let asked: Vec<_> = asked.map(|one| &one["stage_in"]).collect();
            assert!(asked.iter().all(|one| one["begun"].is_null()), "{asked:?}");
            let not_before = asked.iter().filter_map(|one| one["not_before"].as_str());
            let mut ahead_s = not_before.map(|at| {
                let at: jiff::Timestamp = at.parse().unwrap();
                at.duration_since(now).as_secs()
            });
            asked.len() == count && ahead_s.all(|ahead_s| ahead_s > least_s)
        });
    }

    /// Lets the first job end.
    fn go(&mut self) {
        fs::write(self.centre.path("scratch/go"), "").unwrap();
        assert!(self.running.wait().unwrap().success());
    }

    /// Runs the job, which must succeed.
    fn runs(&self, job: &str) {
        let done = self.centre.cycle_until(job, |job| job["job_state"] == "F");
        assert_eq!(done["Exit_status"], 0, "{done}\n{}", self.centre.log());
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.centre.path("scratch").join(name)).unwrap()
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = fs::write(self.centre.path("scratch/go"), "");
        let _ = self.running.wait();
    }
}

#[test]
fn the_queue_is_forecast_and_data_comes_shortly_before_a_job_starts() {
    let mut busy = Busy::start();
    // `part=005` makes what qstat prints no JSON.
    let second = busy.centre.submitted(
        "#!/bin/sh\n\
         #PBS -l ncpus=4,walltime=00:05:00\n\
         #PBS -v part=005,POSTHASTE=\"stage_in source=archive:run destination=SCRATCH/run\"\n\
         cp SCRATCH/run/small SCRATCH/seen\n",
    );
    busy.wait_until_held_back(1, FAR_S);
    let queue = busy.centre.service.json(&["queue", "--json"]);
    assert!(queue["trouble"].is_null(), "{queue}");
    assert_eq!(queue["jobs"][0]["job"].as_str(), Some(&*second));
    assert_eq!(
        (&queue["scheduler"], &queue["procs"]),
        (&json!("pbs"), &json!(4))
    );
    assert!(queue["history_trouble"].is_null(), "{queue}");
    let is_on_its_way = |job: &_| comment(job).contains("data is on its way");
    busy.centre.cycle_until(&second, is_on_its_way);

    busy.go();
    busy.runs(&second);
    assert_eq!(busy.read("seen"), "1 2 3");
}

#[test]
fn what_an_array_reads_waits_until_the_first_of_it_may_start_and_each_one_s_output_leaves() {
    let mut busy = Busy::start();
    // What all read, and what is each one's own.
    let all = ("run", "run", "all", "run/small");
    let own = ("own/^array_index^", "own-^array_index^", "each", "own-$i/n");
    let arrays = [all, own].map(|(source, to, out, file)| {
        let script = format!(
            "#!/bin/sh\n\
             #PBS -l ncpus=4,walltime=00:05:00\n\
             #PBS -v POSTHASTE=\"stage_in source=archive:{source} destination=SCRATCH/{to}; stage_out \
             source=SCRATCH/{out}-^array_index^ destination=archive:{out}-^array_index^ after=ok\"\n\
             i=$PBS_ARRAY_INDEX; cat SCRATCH/{file} > SCRATCH/seen-{out}-$i; mkdir SCRATCH/{out}-$i; echo $i > SCRATCH/{out}-$i/i\n"
        );
        let output = busy.centre.submit_with(&["-J", "0-1"], &script);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout).trim().to_owned()
    });
    busy.wait_until_held_back(3, FAR_S);
    // What is no job yet is not over.
    busy.centre.ask(&["periodic"]);
    let jobs = busy.centre.jobs_of_service();
    for job in [
        arrays[0].clone(),
        arrays[1].replace("[]", "[0]"),
        arrays[1].replace("[]", "[1]"),
    ] {
        assert!(jobs.contains(&format!("\"{job}\"")), "{job}: {jobs}");
    }
    assert!(!jobs.contains("\"gone\""), "{jobs}");

    busy.go();
    for array in &arrays {
        for one in ["[0]", "[1]"] {
            busy.runs(&array.replace("[]", one));
        }
        assert_eq!(busy.centre.job(array)["job_state"], "F");
    }
    for one in ["0", "1"] {
        assert_eq!(busy.read(&format!("seen-all-{one}")), "1 2 3");
        assert_eq!(busy.read(&format!("seen-each-{one}")), one);
        for out in ["all", "each"] {
            let out = format!("{out}-{one}/i");
            let out = busy.centre.s3.bucket_folder().join(out);
            busy.centre.wait_for("its output is there", || out.exists());
        }
    }
    busy.centre.wait_for("all are forgotten", || {
        busy.centre.ask(&["periodic"]);
        let jobs = busy.centre.jobs_of_service();
        jobs.matches("\"gone\"").count() == 5
    });
}

#[test]
fn what_a_job_reads_that_waits_for_another_comes_once_that_has_ended() {
    let mut busy = Busy::start();
    let depend = format!("depend=afterok:{}", busy.first);
    let script = "#!/bin/sh\n\
         #PBS -v POSTHASTE=\"stage_in source=archive:run destination=SCRATCH/run\"\n\
         cp SCRATCH/run/small SCRATCH/seen\n";
    let output = busy.centre.submit_with(&["-W", &depend], script);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let job = text(&output.stdout).trim().to_owned();
    busy.wait_until_held_back(1, UNKNOWN_S);
    assert_eq!(busy.centre.job(&job)["job_state"], "H");
    busy.go();
    busy.runs(&job);
    assert_eq!(busy.read("seen"), "1 2 3");
}
