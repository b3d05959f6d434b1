//! Movers that are a job of Slurm, for as long as it lasts.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, chown},
};

use serde_json::Value;

use crate::{
    slurm::centre::{Centre, USER, contents, make_files},
    support::processes::text,
};

fn movers(centre: &Centre) -> Vec<Value> {
    let movers = centre.service.json(&["movers", "--json"]);
    movers.as_array().unwrap().clone()
}

#[test]
fn a_job_is_movers_for_as_long_as_it_lasts() {
    let centre = Centre::start_serving("4M", &[]);
    make_files(&centre.s3.bucket_folder().join("more"), 48);
    let scratch = centre.scratch();
    let folder = scratch.parent().unwrap().to_str().unwrap();
    let token = scratch.join("movers.token");
    let add = ["token", "add", "movers", "--scope", "move", "--output"];
    let made = centre
        .service
        .run(&[&add[..], &[token.to_str().unwrap()]].concat());
    assert!(made.status.success(), "{}", text(&made.stderr));
    chown(&token, Some(USER), Some(USER)).unwrap();
    fs::set_permissions(&token, Permissions::from_mode(0o600)).unwrap();
    let url = &centre.service.url;
    let script = centre.script(
        "movers.sh",
        &format!(
            "#!/bin/sh\n#SBATCH --ntasks=2 --time=30\nexport XDG_CONFIG_HOME={folder}/config HOME={folder}\n\
             exec srun {folder}/posthaste mover --slots 2 --server {url} --token-file SCRATCH/movers.token\n"
        ),
    );
    let job = centre.slurm.submit(&script).unwrap();
    let joined = centre
        .slurm
        .wait_until("both have joined", |_| Ok(movers(&centre).len() == 2));
    joined.unwrap_or_else(|error| panic!("{error}\n{}", centre.service_log()));

    let to = scratch.join("more");
    let words = [
        "stage-in",
        "archive:more",
        to.to_str().unwrap(),
        "--deadline",
        "10m",
        "--json",
    ];
    let request = centre.service.json(&words);
    let id = request["id"].as_str().unwrap();
    centre
        .service
        .wait_until(id, |request| request["state"] == "arrived");
    let wanted = contents(&centre.s3.bucket_folder().join("more"));
    assert_eq!(contents(&to), wanted);
    for mover in movers(&centre) {
        assert!(mover["done"].as_u64().unwrap() > 0, "{mover}");
        assert_eq!(mover["failed"], 0, "{mover}");
    }

    // When the job ends they end, and the service moves data itself again.
    centre.slurm.ask("scancel", &[&job.to_string()]).unwrap();
    let gone = centre
        .slurm
        .wait_until("they are gone", |_| Ok(movers(&centre).is_empty()));
    gone.unwrap_or_else(|error| panic!("{error}\n{}", centre.service_log()));
    let to = scratch.join("again");
    let words = [
        "stage-in",
        "archive:run",
        to.to_str().unwrap(),
        "--deadline",
        "10m",
        "--json",
    ];
    let request = centre.service.json(&words);
    let id = request["id"].as_str().unwrap();
    centre
        .service
        .wait_until(id, |request| request["state"] == "arrived");
}
