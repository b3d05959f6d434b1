#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| posthaste_fuzz::play("gateway_greeting", data));
