//! Tests with the Slurm 24.11 of Debian 13: tests of this file run once more there.

use posthaste_testbed::{again_in_debian_13, in_debian_13};

use crate::support::processes::text;

#[test]
fn it_is_another_slurm() {
    let mut slurm = in_debian_13("slurmctld".as_ref()).unwrap();
    let version = slurm.arg("-V").output().unwrap().stdout;
    assert!(text(&version).starts_with("slurm-wlm 24.11"));
}

#[test]
fn a_job_starts_with_its_data_and_frees_its_node() {
    again_in_debian_13(
        "slurm::a_job_starts_with_its_data_and_frees_its_node_before_what_it_leaves_is_safe",
    )
    .unwrap();
}

#[test]
fn a_job_gets_its_data_once_whoever_dies_meanwhile() {
    again_in_debian_13("slurm::faults::a_job_gets_its_data_once_whoever_dies_meanwhile").unwrap();
}

#[test]
fn a_stage_in_that_takes_too_long_holds_its_job() {
    again_in_debian_13(
        "slurm::faults::a_stage_in_that_takes_too_long_holds_its_job_until_it_is_through",
    )
    .unwrap();
}

#[test]
fn what_is_called_off_leaves_nothing_half_done() {
    again_in_debian_13("slurm::faults::what_is_called_off_leaves_nothing_half_done").unwrap();
}

#[test]
fn a_held_job_is_released_with_its_data() {
    again_in_debian_13(
        "slurm::held::a_held_job_is_released_with_its_data_and_what_it_leaves_leaves",
    )
    .unwrap();
}

#[test]
fn a_job_begins_with_its_data_or_stays_held() {
    again_in_debian_13("slurm::held::a_job_begins_with_its_data_or_stays_held_and_says_why")
        .unwrap();
}

#[test]
fn what_an_array_reads_waits() {
    again_in_debian_13("slurm::queue::what_an_array_reads_waits_until_the_first_of_it_may_start")
        .unwrap();
}

#[test]
fn a_job_that_waits_is_forecast_and_scored() {
    again_in_debian_13(
        "slurm::queue::a_job_that_waits_is_forecast_and_scored_and_that_outlives_slurm_and_the_service",
    )
    .unwrap();
}

#[test]
fn what_install_sets_up_works() {
    again_in_debian_13(
        "slurm::setup::what_install_sets_up_works_and_the_doctor_names_what_is_broken",
    )
    .unwrap();
}

#[test]
fn the_queue_and_the_accounts_are_the_same_through_slurmrestd() {
    again_in_debian_13("slurm::rest::the_queue_and_the_accounts_are_the_same_through_slurmrestd")
        .unwrap();
}
