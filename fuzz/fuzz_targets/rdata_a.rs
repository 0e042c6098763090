//! Fuzzes the parser of A values.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::rdata(&["A"], text));
