#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| posthaste_fuzz::play("html_index", data));
