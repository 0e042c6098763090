//! Fuzzes the parser of TYPE65280 and LUA values.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::rdata(&["TYPE65280", "LUA"], text));
