//! Laws for every name and every value of every type.

// A broken law stops the test from a function that is not itself a test.
#![allow(clippy::panic)]

mod values;

use std::collections::BTreeSet;
use std::fmt::Write as _;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use signpost_dns::{Fqdn, Rdata, RecordSet, RecordType, Ttl, ZoneName};
use values::{distinct, every_type, name, octets, of_type};

/// Checks a law for values of every type, so that none is left to chance.
fn for_every_type(law: impl Fn(Rdata) -> Result<(), TestCaseError>) {
    for rtype in every_type() {
        let mut runner =
            TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(128) });
        runner.run(&of_type(rtype), &law).unwrap_or_else(|error| panic!("{rtype}: {error}"));
    }
}

#[test]
fn a_printed_value_reads_back_as_the_same_value() {
    for_every_type(|value| {
        let text = value.to_string();
        prop_assert_eq!(Rdata::parse(&value.rtype(), &text), Ok(value), "{}", text);
        Ok(())
    });
}

#[test]
fn a_printed_value_is_printable_ascii_on_one_line() {
    for_every_type(|value| {
        let text = value.to_string();
        prop_assert!(text.chars().all(|c| (' '..='~').contains(&c)), "{:?}", text);
        Ok(())
    });
}

#[test]
fn blanks_around_and_between_fields_make_no_difference() {
    for_every_type(|value| {
        let text = value.to_string();
        let mut quoted = false;
        let mut escaped = false;
        let mut spaced = String::from(" \t");
        for character in text.chars() {
            spaced.push(character);
            match character {
                _ if escaped => escaped = false,
                '\\' => escaped = true,
                '"' => quoted = !quoted,
                ' ' if !quoted => spaced.push_str("\t "),
                _ => {}
            }
        }
        spaced.push(' ');
        prop_assert_eq!(Rdata::parse(&value.rtype(), &spaced), Ok(value), "{}", spaced);
        Ok(())
    });
}

#[test]
fn case_and_missing_dots_in_host_names_make_no_difference() {
    use RecordType::{Alias, Cname, Dname, Mx, Ns, Ptr, Srv};
    for rtype in [Cname, Dname, Ns, Ptr, Alias, Mx, Srv] {
        let mut runner = TestRunner::new(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() });
        let law = |value: Rdata| {
            let upper = value.to_string().to_ascii_uppercase();
            prop_assert_eq!(Rdata::parse(&rtype, &upper), Ok(value.clone()));
            if value.target().is_some() {
                // One dot: one before it may be escaped, and is part of the name.
                prop_assert_eq!(Rdata::parse(&rtype, upper.strip_suffix('.').unwrap_or(&upper)), Ok(value));
            }
            Ok(())
        };
        runner.run(&of_type(rtype), law).unwrap_or_else(|error| panic!("{rtype}: {error}"));
    }
    assert_eq!(Rdata::parse(&Alias, r"a\."), Rdata::parse(&Alias, r"a\.."), "the escaped dot is not the last one");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_printed_name_reads_back_with_and_without_its_dot(name in name()) {
        prop_assert_eq!(Fqdn::parse(&name.to_string()), Ok(name.clone()));
        prop_assert_eq!(Fqdn::parse(name.undotted()), Ok(name.clone()));
        prop_assert_eq!(Fqdn::parse(&name.to_string().to_uppercase()), Ok(name.clone()));
    }

    #[test]
    fn a_name_shown_in_unicode_reads_back_as_the_same_name(text in "[a-zäöüß漢字ñ]{1,10}\\.[a-z]{2,5}") {
        if let Ok(name) = Fqdn::parse(&text) {
            prop_assert_eq!(Fqdn::parse(&name.unicode()), Ok(name));
        }
    }

    #[test]
    fn a_name_that_parses_holds_no_separator(text in any::<String>()) {
        if let Ok(name) = Fqdn::parse(&text) {
            let safe = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_/*.".contains(c);
            prop_assert!(name.undotted().chars().all(safe));
            prop_assert!(name.undotted().len() <= 253);
            prop_assert_eq!(Fqdn::parse(&name.to_string()), Ok(name));
        }
    }

    #[test]
    fn a_name_is_within_exactly_its_ancestors(name in name(), other in name()) {
        let inside = name.is_at_or_below(&other);
        prop_assert_eq!(inside, name.ancestors().any(|ancestor| ancestor == other.undotted()));
        if let Ok(zone) = ZoneName::try_from(other) {
            prop_assert_eq!(zone.relative(&name).is_some(), inside);
            prop_assert_eq!(zone.resolve(&name.to_string()).is_ok(), inside);
            if let Some(relative) = zone.relative(&name) {
                prop_assert_eq!(zone.resolve(relative), Ok(name));
            }
        }
    }

    #[test]
    fn text_keeps_every_cut_and_loses_only_its_escapes(octets in octets(400), cuts in prop::collection::vec(0..400_usize, 0..6)) {
        let cuts: BTreeSet<usize> = cuts.into_iter().filter(|cut| *cut < octets.len()).collect();
        let mut spelled = String::from("\"");
        let mut strings = vec![Vec::new()];
        for (at, octet) in octets.iter().enumerate() {
            if cuts.contains(&at) {
                spelled.push_str("\" \"");
                strings.push(Vec::new());
            }
            strings.last_mut().unwrap().push(*octet);
            write!(spelled, "\\{octet:03}").unwrap();
        }
        spelled.push('"');
        let value = Rdata::parse(&RecordType::Txt, &spelled).unwrap();
        let Rdata::Txt(text) = &value else { panic!("{value:?}") };
        prop_assert_eq!(text.joined(), &octets[..]);
        // A string over 255 octets, of which there are 400 here at most, is two.
        let split: Vec<&[u8]> = strings.iter().flat_map(|string| {
            let (head, tail) = string.split_at(string.len().min(255));
            [Some(head), (!tail.is_empty()).then_some(tail)]
        }).flatten().collect();
        prop_assert_eq!(text.strings().collect::<Vec<_>>(), split);
        prop_assert_eq!(Rdata::parse(&RecordType::Txt, &value.to_string()), Ok(value));
    }

    #[test]
    fn addresses_are_equal_however_they_are_spelled(groups in any::<[u16; 8]>()) {
        let [a, b, c, d, e, f, g, h] = groups;
        let full = format!("{a:04X}:{b:04X}:{c:04X}:{d:04X}:{e:04X}:{f:04X}:{g:04X}:{h:04X}");
        let address = std::net::Ipv6Addr::from(groups);
        prop_assert_eq!(Rdata::parse(&RecordType::Aaaa, &full), Ok(Rdata::Aaaa(address)));
        prop_assert_eq!(Rdata::parse(&RecordType::Aaaa, &address.to_string()), Ok(Rdata::Aaaa(address)));
    }

    #[test]
    fn service_parameters_may_come_in_any_order(value in of_type(RecordType::Https)) {
        let Rdata::Https(binding) = &value else { panic!("{value:?}") };
        let mut reversed = format!("{} {}", binding.priority, binding.target);
        for (key, param) in binding.params.iter().rev() {
            let mut alone = (**binding).clone();
            alone.params = [(*key, param.clone())].into();
            let text = Rdata::Https(Box::new(alone)).to_string();
            reversed.push_str(text.strip_prefix(&format!("{} {}", binding.priority, binding.target)).unwrap());
        }
        prop_assert_eq!(Rdata::parse(&RecordType::Https, &reversed), Ok(value));
    }

    #[test]
    fn a_text_with_named_keys_reads_back_as_the_same_value(value in of_type(RecordType::Https)) {
        if let Some(named) = value.text_with_key_names() {
            prop_assert!(!["key7=", "key8=", "key9="].iter().any(|key| named.contains(&format!(" {key}"))), "{}", named);
            prop_assert_eq!(Rdata::parse(&RecordType::Https, &named), Ok(value));
        }
    }

    #[test]
    fn hexadecimal_digits_may_be_upper_case_and_spaced(value in of_type(RecordType::Ds)) {
        let text = value.to_string().to_uppercase();
        let (head, digits) = text.rsplit_once(' ').unwrap();
        let spaced: String = digits.chars().flat_map(|digit| [digit, ' ']).collect();
        prop_assert_eq!(Rdata::parse(&RecordType::Ds, &format!("{head} {spaced}")), Ok(value));
    }

    #[test]
    fn a_record_set_reads_back_from_json_in_any_order(
        owner in name(),
        seconds in 0..=2_147_483_647_u32,
        records in prop::sample::select(vec![RecordType::Txt, RecordType::Mx, RecordType::Srv, RecordType::Loc])
            .prop_flat_map(distinct),
    ) {
        let rtype = records.first().unwrap().rtype();
        let set = RecordSet::new(owner, rtype, Ttl::new(seconds).unwrap(), records).unwrap();
        let mut json = serde_json::to_value(&set).unwrap();
        json["records"].as_array_mut().unwrap().reverse();
        prop_assert_eq!(serde_json::from_value::<RecordSet>(json).unwrap(), set);
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in any::<String>(), type_text in "[A-Za-z0-9-]{0,16}") {
        let _ = (Fqdn::parse(&text), Fqdn::parse_hostname(&text), ZoneName::parse(&text), text.parse::<RecordType>());
        let zone = ZoneName::parse("example.com").unwrap();
        if let Ok(name) = zone.resolve(&text) {
            prop_assert!(name.is_within(&zone));
        }
        for rtype in every_type().into_iter().chain(type_text.parse()) {
            if let Ok(value) = Rdata::parse(&rtype, &text) {
                prop_assert_eq!(Rdata::parse(&rtype, &value.to_string()), Ok(value));
            }
        }
    }
}
