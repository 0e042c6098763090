//! Fuzzes the parser of zone names and names inside a zone.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::zone(text));
