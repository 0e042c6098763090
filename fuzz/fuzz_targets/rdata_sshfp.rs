//! Fuzzes the parser of SSHFP values.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::rdata(&["SSHFP"], text));
