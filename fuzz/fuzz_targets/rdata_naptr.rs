//! Fuzzes the parser of NAPTR values.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::rdata(&["NAPTR"], text));
