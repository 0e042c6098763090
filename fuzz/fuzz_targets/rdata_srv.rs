//! Fuzzes the parser of SRV values.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::rdata(&["SRV"], text));
