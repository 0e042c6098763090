//! Fuzzes the parser of SOA values.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::rdata(&["SOA"], text));
