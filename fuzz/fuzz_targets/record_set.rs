//! Fuzzes the parser of record sets in JSON.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::record_set(text));
