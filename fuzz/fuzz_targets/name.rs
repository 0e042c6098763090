//! Fuzzes the parser of names.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::name(text));
