//! Fuzzes the parser of SVCB and HTTPS values.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::rdata(&["SVCB", "HTTPS"], text));
