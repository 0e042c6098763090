//! Fuzzes the parser of LOC values.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::rdata(&["LOC"], text));
