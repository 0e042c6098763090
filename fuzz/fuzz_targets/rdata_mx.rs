//! Fuzzes the parser of MX values.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::rdata(&["MX"], text));
