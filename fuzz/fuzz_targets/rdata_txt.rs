//! Fuzzes the parser of TXT values.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::rdata(&["TXT"], text));
