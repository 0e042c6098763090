//! Fuzzes the parser of record types.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::record_type(text));
