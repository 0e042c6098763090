//! Fuzzes the parser of TLSA values.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::rdata(&["TLSA"], text));
