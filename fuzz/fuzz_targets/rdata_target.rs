//! Fuzzes the parser of CNAME and DNAME and PTR and ALIAS values.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| signpost_fuzz::rdata(&["CNAME", "DNAME", "PTR", "ALIAS"], text));
