//! Fuzzes the parser of DS values.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::rdata(&["DS"], text));
