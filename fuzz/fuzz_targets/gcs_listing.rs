#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| posthaste_endpoint::fuzzing::gcs_listing(data));
