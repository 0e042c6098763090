//! A small fuzzer that runs everywhere: valid texts of every type, damaged in thousands of reproducible ways, go through
//! each parser. Every value that is read must print to a text that reads back the same; nothing may panic.

mod values;

use signpost_dns::{Fqdn, Rdata, RecordType, ZoneName};
use values::{Dice, every_type};

const ROUNDS: usize = 4_000;

const NAMES: &[&str] = &[
    ".",
    "example.com",
    "*.example.com.",
    "www.bücher.example",
    "xn--bcher-kva.example",
    "1.0/25.2.0.192.in-addr.arpa",
    "_dmarc.Example.ORG",
    "a.b.c.d.e.f.g",
    "例子.公司.cn",
    "xn--a",
    "straße.de",
    "-a-.b",
    "My\\032Printer._ipp._tcp.example.org.",
    "a\\.b\\\\c.example",
];

fn seeds(rtype: RecordType) -> &'static [&'static str] {
    match rtype {
        RecordType::A => &["192.0.2.1", "255.255.255.255"],
        RecordType::Aaaa => &["2001:db8::1", "::ffff:1.2.3.4", "1:2:3:4:5:6:7:8"],
        RecordType::Cname | RecordType::Dname | RecordType::Ns | RecordType::Ptr | RecordType::Alias => NAMES,
        RecordType::Mx => &["10 mail.example.com.", "0 ."],
        RecordType::Txt => &[r#""v=spf1 -all""#, r#""a" "b""#, r#""\195\188\"\\;""#, r#""""#],
        RecordType::Srv => &["1 2 443 www.example.com."],
        RecordType::Soa => &[
            "ns1.example.com. hostmaster.example.com. 2026111501 10800 3600 604800 3600",
            "ns1.example.com. john\\.doe.example.com. 1 2 3 4 5",
            "ns1.example.com. john.doe@example.com 1 2 3 4 5",
        ],
        RecordType::Caa => &[r#"0 issue "letsencrypt.org""#, "128 iodef mailto:a@b.c"],
        RecordType::Tlsa => &["3 1 1 0123456789abcdef", "3 1 1 01 23 45"],
        RecordType::Sshfp => &["4 2 aabbccdd"],
        RecordType::Naptr => &[r#"100 50 "s" "SIP+D2U" "!^.*$!sip:\\1@b.c!" _sip._udp.example.com."#],
        RecordType::Https | RecordType::Svcb => &[
            "1 . alpn=h2,h3 port=443 ipv4hint=1.2.3.4 ech=\"aGVsbG8=\" ipv6hint=2001:db8::1 key667=\"a\\210b\"",
            r#"1 foo.example. mandatory=alpn,port alpn="f\\\\oo\\,bar,h2" no-default-alpn port=1"#,
            "1 a\\032b.example. mandatory=dohpath dohpath=/dns-query{?dns} ohttp tls-supported-groups=29,23",
            "1 . key0=\\000\\001 key1=\\002h2 key3=\\001\\187 key4=\\001\\002\\003\\004",
        ],
        RecordType::Loc => &["51 30 12.748 N 0 7 39.611 W -24.50m 1.00m 10000.00m 10.00m", "51 N 4 E 0m"],
        RecordType::Ds => &["60485 5 1 2bb183af5f22588179a53b0a98631fad1a292118"],
        RecordType::Other(_) => &["\\# 4 0a000001", "\\# 0 ", "A \"ifportup(443, {'192.0.2.1'})\""],
    }
}

#[test]
fn damaged_names_are_refused_or_read_safely() {
    let mut dice = Dice(1);
    let zone = ZoneName::parse("example.com").unwrap();
    let mut read = 0_usize;
    for round in 0..ROUNDS * 5 {
        let text = dice.mutate(NAMES[round % NAMES.len()]);
        if let Ok(name) = Fqdn::parse(&text) {
            read += 1;
            assert_eq!(Fqdn::parse(&name.to_string()), Ok(name.clone()), "{text:?}");
            let _ = (name.unicode(), name.public_suffix_split(), name.parent(), name.ancestors().count());
        }
        if let Ok(name) = Fqdn::parse_hostname(&text) {
            assert!(name.undotted().bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.')), "{text:?}");
        }
        if let Ok(name) = zone.resolve(&text) {
            assert!(name.is_within(&zone), "{text:?}");
        }
    }
    assert!(read > ROUNDS / 10, "the mutations are too wild to test anything: {read} names read");
}

#[test]
fn damaged_values_of_every_type_are_refused_or_read_safely() {
    let mut types = every_type();
    types.push("LUA".parse().unwrap());
    for rtype in types {
        let mut dice = Dice(2);
        let mut read = 0_usize;
        for round in 0..ROUNDS {
            let text = dice.mutate(seeds(rtype)[round % seeds(rtype).len()]);
            if let Ok(value) = Rdata::parse(&rtype, &text) {
                read += 1;
                let printed = value.to_string();
                assert!(!printed.chars().any(char::is_control), "{rtype} {text:?} printed {printed:?}");
                assert_eq!(Rdata::parse(&rtype, &printed), Ok(value), "{rtype} {text:?} printed {printed:?}");
            }
        }
        assert!(read > ROUNDS / 100, "the mutations are too wild to test {rtype}: {read} values read");
    }
}

#[test]
fn a_text_meant_for_one_type_is_read_safely_as_any_other() {
    for rtype in every_type() {
        for other in every_type() {
            for text in seeds(other) {
                if let Ok(value) = Rdata::parse(&rtype, text) {
                    assert_eq!(Rdata::parse(&rtype, &value.to_string()), Ok(value), "{rtype} {text:?}");
                }
            }
        }
    }
}

#[test]
fn every_type_has_a_fuzz_target() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/fuzz_targets");
    let targets: String = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    for rtype in RecordType::KNOWN {
        assert!(targets.contains(&format!("\"{rtype}\"")), "{rtype} has no fuzz target in {folder}");
    }
}
