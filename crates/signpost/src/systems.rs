//! The systems of this operator. Adding one is one line here; everything else comes from its spec.

use signpost_engine::{Settings, SystemSpec};

/// Every system.
pub const SYSTEMS: &[SystemSpec] = &[
    signpost_system_powerdns::SPEC,
    signpost_system_pihole::SPEC,
    signpost_system_portal::SPEC,
    signpost_system_router::SPEC,
    signpost_system_pangolin::SPEC,
];

/// The systems of a list of names (`powerdns,pihole`), and what is wrong with a name that is not one of theirs.
fn read(list: &str) -> (Vec<SystemSpec>, Option<String>) {
    let names: Vec<&str> = list.split([',', ' ']).map(str::trim).filter(|name| !name.is_empty()).collect();
    let unknown = names.iter().find(|name| !SYSTEMS.iter().any(|spec| spec.name == **name)).map(|unknown| {
        let known: Vec<&str> = SYSTEMS.iter().map(|spec| spec.name).collect();
        format!("{unknown:?} is not a system; there are {}", known.join(", "))
    });
    (SYSTEMS.iter().copied().filter(|spec| names.contains(&spec.name)).collect(), unknown)
}

/// The systems of a list of names. The error names an unknown one.
pub fn named(list: &str) -> Result<Vec<SystemSpec>, String> {
    match read(list) {
        (found, None) => Ok(found),
        (_, Some(problem)) => Err(problem),
    }
}

/// The systems to run: those that are named, or else every system that has a server configured.
pub fn enabled(list: &str, settings: &mut Settings) -> Vec<SystemSpec> {
    let (enabled, unknown) = match list.trim() {
        "" => (SYSTEMS.iter().copied().filter(|spec| spec.is_meant_by(settings)).collect(), None),
        list => read(list),
    };
    if let Some(problem) = unknown {
        settings.problem("SIGNPOST_SYSTEMS", problem);
    } else if enabled.is_empty() {
        let switches: Vec<String> = SYSTEMS
            .iter()
            .map(|spec| match spec.servers {
                [] => format!("SIGNPOST_SYSTEMS={} for {}", spec.name, spec.name),
                servers => format!("{} for {}", servers.join(" or "), spec.name),
            })
            .collect();
        settings.problem(
            "",
            format!(
                "no system is switched on: give {}; or see everything without a cluster: signpost demo",
                switches.join(", or ")
            ),
        );
    }
    check_needs(&enabled, settings);
    enabled
}

/// Reports every switch that is on without a system that it needs.
fn check_needs(enabled: &[SystemSpec], settings: &mut Settings) {
    let switches = SYSTEMS.iter().flat_map(|spec| spec.settings.iter().map(move |setting| (spec.name, setting)));
    for (own, setting) in switches.filter(|(_, setting)| !setting.needs.is_empty()) {
        let runs = |name: &&str| enabled.iter().any(|spec| spec.name == *name);
        let missing: Vec<&str> = setting.needs.iter().copied().chain([own]).filter(|name| !runs(name)).collect();
        if !enabled.is_empty() && !missing.is_empty() && settings.is_on(setting.name) {
            let missing = missing.join(" and ");
            settings.problem(
                setting.name,
                format!("it has no effect without {missing}; add {missing} to SIGNPOST_SYSTEMS"),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_chosen_by_name_or_by_their_server() {
        let names = |specs: Vec<SystemSpec>| specs.iter().map(|spec| spec.name).collect::<Vec<_>>();
        assert_eq!(names(named("pihole, powerdns").unwrap()), ["powerdns", "pihole"]);
        assert!(
            named("powerdns,pihol")
                .unwrap_err()
                .contains("\"pihol\" is not a system; there are powerdns, pihole, portal, router")
        );
        let mut settings = Settings::new([("PDNS_API_URL", "http://127.0.0.1:1")]);
        assert_eq!(names(enabled("", &mut settings)), ["powerdns"]);
        assert_eq!(names(enabled("pihole", &mut settings)), ["pihole"]);
        assert!(settings.problems().is_empty());
        assert_eq!(names(enabled("router", &mut Settings::default())), ["router"]);
        assert!(enabled(" ", &mut Settings::default()).is_empty());
    }

    #[test]
    fn the_choice_of_systems_is_judged_whatever_else_is_wrong() {
        let mut settings = Settings::default();
        settings.problem("LOG_LEVEL", "\"loud\" is not a level");
        assert!(enabled("", &mut settings).is_empty());
        let problems: Vec<String> = settings.problems().iter().map(ToString::to_string).collect();
        assert!(problems.len() == 2 && problems[1].starts_with("no system is switched on"), "{problems:?}");
        // The settings of a system are read, and judged, beside a name that is not a system.
        let mut settings = Settings::default();
        assert_eq!(enabled("powerdns,pihol", &mut settings).len(), 1);
        assert_eq!(settings.problems().len(), 1);
        assert_eq!(settings.problems()[0].setting, "SIGNPOST_SYSTEMS");
    }

    #[test]
    fn verify_without_portal_or_powerdns_is_a_problem() {
        let problems = |list: &str, verify: &str| {
            let mut settings = Settings::new([("VERIFY", verify)]);
            enabled(list, &mut settings);
            settings.problems().iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let expected = |missing: &str| {
            vec![format!("VERIFY: it has no effect without {missing}; add {missing} to SIGNPOST_SYSTEMS")]
        };
        assert_eq!(problems("powerdns", "true"), expected("portal"));
        assert_eq!(problems("portal,pihole", "yes"), expected("powerdns"));
        assert_eq!(problems("pihole", "true"), expected("powerdns and portal"));
        assert!(problems("powerdns,portal", "true").is_empty() && problems("powerdns", "false").is_empty());
    }

    #[test]
    fn names_and_settings_of_systems_are_unique() {
        let mut names: Vec<&str> = SYSTEMS.iter().flat_map(|spec| spec.settings).map(|setting| setting.name).collect();
        names.extend(SYSTEMS.iter().map(|spec| spec.name));
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        for spec in SYSTEMS {
            let known = |name: &&&str| spec.settings.iter().any(|setting| setting.name == **name);
            assert_eq!(
                spec.servers.iter().chain(spec.hints).filter(known).count(),
                spec.servers.len() + spec.hints.len()
            );
        }
    }
}
