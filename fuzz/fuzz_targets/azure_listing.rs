#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| posthaste_endpoint::fuzzing::azure_listing(data));
