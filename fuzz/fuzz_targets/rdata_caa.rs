//! Fuzzes the parser of CAA values.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::rdata(&["CAA"], text));
