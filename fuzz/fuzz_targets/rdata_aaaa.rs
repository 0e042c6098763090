//! Fuzzes the parser of AAAA values.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::rdata(&["AAAA"], text));
