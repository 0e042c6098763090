//! Fuzzes the parser of NS values.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::rdata(&["NS"], text));
