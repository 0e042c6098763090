//! From each row, example and edge case of the request to the tests that show it. A test of this binary runs on the sandbox and on the real API server,
//! unless its row has "not on both".
//!
//! ## The architecture of service-router-operator (S)
//!
//! | row | what | tests |
//! |---|---|---|
//! | S01 | ClusterIdentity, fields: region, cluster, domain, environmentLetter, adoptsRegions | `triggers::a_changed_identity_changes_every_route_and_gateway_of_the_cluster`, `contract::adopted_regions_follow_the_own_one_without_duplicates` |
//! | S02 | ClusterIdentity: validated, phase and Ready | `contract::the_first_statuses_are_those_of_the_documentation`, `refusals::a_stored_identity_or_configuration_that_cannot_be_used_keeps_what_is_published` |
//! | S03 | ClusterIdentity, both examples | `roles::every_example_of_an_identity_is_used_as_it_is` |
//! | S04 | DNSConfiguration: one per cluster, list of controllers, Ready | `safety::a_second_singleton_changes_nothing_and_reports_which_one_is_used`, `contract::the_first_statuses_are_those_of_the_documentation` |
//! | S05 | DNSConfiguration: at least one controller, unique names | `refusals::the_schema_rejects_what_can_never_work`, `refusals::duplicate_controllers_are_refused_and_what_is_published_is_kept` |
//! | S06 | DNSConfiguration, the example of three zones | `roles::every_example_is_published_as_its_comments_promise` |
//! | S07 | Gateway, fields and status: GatewayCreated, loadBalancerIP | `contract::the_first_statuses_are_those_of_the_documentation`, `addresses::an_address_is_published_for_every_controller_with_both_selectors` |
//! | S08 | the pattern of a gateway's name | `addresses::an_address_is_published_for_every_controller_with_both_selectors`, `names::tests::hosts_follow_the_patterns_of_the_examples` |
//! | S09 | the generated Istio Gateway: selector, port, TLS, hosts, owner, no wildcard | `contract::an_istio_gateway_has_the_hosts_of_all_routes_sorted_and_none_is_left_without` |
//! | S10 | Gateway, both examples | `roles::every_example_is_published_as_its_comments_promise` |
//! | S11 | DNSPolicy, fields and status: phase, active, activeControllers | `contract::active_mode_publishes_in_the_own_region_only`, `contract::region_bound_elsewhere_is_inactive_and_publishes_nothing` |
//! | S12 | Active mode: the own region only, in two clusters | `contract::active_mode_publishes_in_the_own_region_only` |
//! | S13 | Active mode with adopted regions | `contract::adopted_regions_follow_the_own_one_without_duplicates`, `moves::a_region_is_handed_back_also_where_it_was_the_only_one` |
//! | S14 | RegionBound: all controllers in the source region, nothing elsewhere | `contract::region_bound_publishes_in_all_regions_from_the_source_region`, `contract::region_bound_elsewhere_is_inactive_and_publishes_nothing` |
//! | S15 | DNSPolicy, the six steps of its behaviour | `contract::a_source_cluster_filters_in_both_modes`, `triggers::a_changed_configuration_adds_and_removes_controllers`, `a_policy_selects_by_mode_region_and_cluster` |
//! | S16 | DNSPolicy, its three examples | `roles::every_example_is_published_as_its_comments_promise` |
//! | S17 | ServiceRoute, fields; gatewayNamespace has a default | `contract::the_gateway_of_another_namespace_and_the_default_one_are_both_found` |
//! | S18 | the patterns of a route's host and target | `contract::a_route_is_published_with_the_labels_annotation_and_owner_of_the_example`, `roles::manifests_with_every_field_are_accepted_unchanged_and_served` |
//! | S19 | the generated DNSEndpoint: labels, annotation, owner, one per controller | `contract::a_route_is_published_with_the_labels_annotation_and_owner_of_the_example` |
//! | S20 | no VirtualService is created | not on both, but by its permissions: `seed::nothing_writes_virtual_services` |
//! | S21 | ServiceRoute, the ten steps of its behaviour | `triggers::a_route_waits_for_each_thing_that_it_needs_in_any_order`, `contract::an_observed_generation_is_reported_on_the_route` |
//! | S22 | ServiceRoute, its examples | `roles::every_example_is_published_as_its_comments_promise` |
//! | S23 | the IngressDNS controller removes what is orphaned | `addresses::a_deleted_service_takes_its_addresses_along`, `safety::a_gateway_that_stays_away_loses_its_addresses_and_its_routes_keep_theirs` |
//! | S24 | the reconciliation loop: Pending without a policy or an identity, Failed without a Gateway | `safety::a_policy_that_is_deleted_withdraws_nothing`, `safety::an_identity_that_is_replaced_withdraws_nothing`, `safety::a_gateway_that_is_briefly_missing_withdraws_nothing` |
//! | S25 | ownership: a deleted route or Gateway takes its objects along | `contract::deleting_a_route_deletes_its_endpoints_and_nothing_else`, `moves::the_istio_gateway_of_an_orphaned_deletion_is_deleted_by_its_labels` |
//! | S26 | trigger: a ServiceRoute is created or updated | `triggers::a_changed_route_is_published_under_its_new_host_and_gateway` |
//! | S27 | trigger: a DNSEndpoint is created, updated or deleted | `triggers::an_endpoint_that_is_changed_or_deleted_is_restored`, `triggers::an_endpoint_that_is_created_for_a_route_is_judged_by_its_owner` |
//! | S28 | trigger: a DNSPolicy is updated | `triggers::a_changed_policy_changes_every_route_of_its_namespace_and_no_other` |
//! | S29 | trigger: a Gateway is updated | `triggers::a_changed_gateway_changes_the_target_of_every_route_that_uses_it` |
//! | S30 | trigger: the ClusterIdentity is updated | `triggers::a_changed_identity_changes_every_route_and_gateway_of_the_cluster` |
//! | S31 | the identity is not read again for each reconciliation | `scale::one_changed_route_costs_its_own_objects_only`, `scale::at_rest_and_after_a_restart_nothing_is_written` (both assert that nothing but generated objects is read) |
//! | S32 | the request flow: CNAME to A to address | not on both, but with the real servers: `chain::a_route_is_served_through_the_label_filter`; `crates/signpost/tests/answered.rs` (`a_route_is_answered_by_router_and_powerdns_in_one_operator`) on both |
//! | S33 | the six steps of the record creation flow | not on both, but with the real servers: `chain::a_route_is_served_through_the_annotation_filter` |
//! | S34 | resolution in two regions, Active | not on both, but with the real servers: `chain::two_regions_on_one_zone_hand_names_over_without_a_gap` |
//! | S35 | resolution in two regions, RegionBound | not on both, but with the real servers: `chain::two_regions_on_one_zone_hand_names_over_without_a_gap` |
//! | S36 | the arguments of external-dns | not on both, but with the real servers: `chain::a_route_is_served_through_the_annotation_filter` |
//! | S37 | resolution of a gateway's name: the example of a Service and its DNSEndpoint | `addresses::an_address_is_published_for_every_controller_with_both_selectors`, `addresses::a_service_is_also_found_by_its_name_beside_the_gateway` |
//! | S38 | take-over between clusters: as documented it does not work, with one registry it does | not on both, but with the real servers: `separate_prefixes_do_not_take_over`, `a_shared_registry_hands_over_without_a_gap`, `chain::two_regions_on_one_zone_hand_names_over_without_a_gap` |
//! | S39 | the comparison of both modes | `contract::active_mode_publishes_in_the_own_region_only`, `contract::region_bound_publishes_in_all_regions_from_the_source_region` |
//! | S40 | a policy changes from Active to RegionBound | `contract::the_mode_switch_extends_the_source_and_withdraws_the_others` |
//! | S41 | a zone in a region without a cluster | `contract::region_bound_publishes_in_all_regions_from_the_source_region`, `contract::adopted_regions_follow_the_own_one_without_duplicates` |
//! | S42 | a policy is inactive when sourceRegion or sourceCluster does not match | `contract::region_bound_elsewhere_is_inactive_and_publishes_nothing`, `contract::a_source_cluster_filters_in_both_modes` |
//! | S43 | Active to inactive: DNSEndpoints are deleted, the route is Pending with DNSPolicyInactive | `contract::the_mode_switch_extends_the_source_and_withdraws_the_others`, `triggers::a_changed_policy_changes_every_route_of_its_namespace_and_no_other` |
//! | S44 | case 1: a route begins under an inactive policy | `contract::a_route_that_begins_under_an_inactive_policy_waits_without_an_error` |
//! | S45 | case 2: DNSEndpoints are deleted already | `contract::withdrawing_twice_and_rapid_changes_end_as_the_last_policy_asks` |
//! | S46 | case 3: rapid changes of a policy | `contract::withdrawing_twice_and_rapid_changes_end_as_the_last_policy_asks` |
//! | S47 | the role of the platform team | not on both, because the sandbox has no authorization: `roles::each_team_can_do_its_part_of_the_examples_and_not_that_of_another` |
//! | S48 | the role of the application team | not on both: `roles::each_team_can_do_its_part_of_the_examples_and_not_that_of_another` |
//! | S49 | a Gateway of another namespace, and the permission to read it | `contract::the_gateway_of_another_namespace_and_the_default_one_are_both_found` |
//! | S50 | the operator's own permissions | not on both: `crates/signpost/tests/rbac` (`every_request_has_a_rule_of_its_system_and_every_rule_is_used`, `the_service_account_has_enough_permissions_on_a_real_cluster`) |
//! | S51 | a DNSPolicy is about its own namespace | `triggers::a_changed_policy_changes_every_route_of_its_namespace_and_no_other` |
//!
//! ## The points where names were lost before, and the behaviour that is promised instead (P)
//!
//! | row | what | tests |
//! |---|---|---|
//! | P01 | three states of a policy; only a decision withdraws | `safety::a_new_policy_without_a_status_withdraws_nothing_at_a_start`, `only_a_decision_withdraws` |
//! | P02 | a singleton conflict, and a replacement beside a surplus object | `safety::a_second_singleton_changes_nothing_and_reports_which_one_is_used`, `safety::a_used_singleton_that_is_replaced_beside_a_surplus_one_withdraws_nothing`, `safety::a_surplus_singleton_takes_over_when_the_used_one_stays_away`, `safety::a_restart_with_two_identities_keeps_the_first_one` |
//! | P03 | a DNSConfiguration or ClusterIdentity that is replaced | `safety::a_configuration_that_is_replaced_withdraws_nothing`, `safety::an_identity_that_is_replaced_withdraws_nothing`, `safety::a_singleton_that_is_deleted_while_the_operator_is_down_withdraws_nothing` |
//! | P04 | a Gateway that is briefly missing or renamed; an address that flaps | `safety::a_gateway_that_is_briefly_missing_withdraws_nothing`, `moves::a_changed_cluster_name_keeps_the_former_one_until_every_route_has_moved`, `moves::a_changed_postfix_keeps_the_former_name_until_every_route_has_moved`, `moves::a_route_waits_until_the_new_name_of_its_gateway_is_published`, `moves::a_route_waits_for_a_load_balancer_that_is_created_after_its_gateway`, `moves::an_adopted_region_begins_with_the_name_that_a_waiting_route_keeps`, `safety::an_address_that_vanishes_withdraws_nothing`, `moves::an_address_that_flaps_does_not_move_the_name_to_another_service` |
//! | P05 | one owner per host, over namespaces and Gateways | `ownership::the_older_of_two_routes_keeps_the_host_over_namespaces_and_gateways`, `ownership::gateways_of_one_postfix_and_two_controllers_do_not_share_a_name` |
//! | P06 | A, AAAA and CNAME by entry; a type changes in two steps | `addresses::changed_and_several_addresses_of_both_families_are_published`, `addresses::an_address_becomes_a_host_name_in_two_steps`, `addresses::a_record_type_that_nobody_has_read_changes_in_two_steps_too`, `addresses::another_controller_with_a_host_name_takes_over_in_two_steps` |
//! | P07 | one DNSEndpoint per controller; removed with its Gateway, controller or Service | `addresses::an_address_is_published_for_every_controller_with_both_selectors`, `triggers::a_changed_configuration_adds_and_removes_controllers`, `addresses::a_deleted_service_takes_its_addresses_along` |
//! | P08 | ownership is checked, drift is repaired | `ownership::a_foreign_endpoint_of_the_name_is_not_touched`, `ownership::a_foreign_istio_gateway_of_the_name_is_not_touched`, `ownership::drift_of_labels_annotations_and_spec_is_repaired_and_additions_are_kept`, `ownership::what_service_router_operator_left_is_taken_over` |
//! | P09 | watches by index: a change touches what depends on it | `scale::one_changed_route_costs_its_own_objects_only`, `scale::a_burst_of_routes_costs_few_writes_of_their_gateway` |
//! | P10 | the status of a route: hostname, target, each DNSEndpoint with `observed` | `contract::an_observed_generation_is_reported_on_the_route` |
//! | P11 | past the limits of Kubernetes, names are cut and stay apart | `refusals::long_names_of_objects_are_cut_and_published` |
//! | P12 | a singleton of another name works, with a notice | `contract::a_singleton_of_another_name_works_with_a_notice` |
//! | P13 | a notice where the name of the ownership record would be too long | `refusals::a_label_that_leaves_no_room_for_the_ownership_record_gets_a_notice`, `input::the_name_of_a_gateway_that_leaves_no_room_for_the_ownership_record_gets_a_notice` |
//!
//! ## Bad input (B): a reason on the object, an event, a metric, neighbours unharmed
//!
//! | row | what | tests |
//! |---|---|---|
//! | B01 | a domain that is not one | `refusals::the_schema_rejects_what_can_never_work`, `refusals::a_stored_identity_or_configuration_that_cannot_be_used_keeps_what_is_published` |
//! | B02 | a label over 63 bytes | `refusals::a_route_with_a_bad_host_is_reported_and_its_neighbour_is_served`, `input::a_gateway_whose_name_is_too_long_is_reported_and_its_neighbour_is_served` |
//! | B03 | a name over 253 with its parts | `refusals::a_name_of_more_than_253_characters_is_refused` |
//! | B04 | a Gateway in a namespace that does not exist | `refusals::a_gateway_of_a_namespace_that_does_not_exist_is_not_found` |
//! | B05 | duplicate controller names | `refusals::duplicate_controllers_are_refused_and_what_is_published_is_kept` |
//! | B06 | an empty environment | `refusals::the_schema_rejects_what_can_never_work`, `refusals::what_an_older_definition_allowed_is_reported` |
//! | B07 | two identities | `safety::a_second_singleton_changes_nothing_and_reports_which_one_is_used` |
//! | B08 | a CRD that is not installed | `input::a_kind_that_is_not_installed_is_named_by_readiness_and_followed` |
//! | B09 | a foreign object with the name that is needed | `ownership::a_foreign_endpoint_of_the_name_is_not_touched`, `ownership::a_foreign_istio_gateway_of_the_name_is_not_touched`, `input::a_foreign_endpoint_of_a_gateways_name_is_not_touched` |
//! | B10 | a hundred ingress points | `input::a_hundred_mixed_entrances_are_published_by_their_kind`, `addresses::entrances_that_are_left_out_are_reported_and_the_others_are_published` |
//! | B11 | host names with upper case or a trailing dot | `input::host_names_of_load_balancers_are_one_name_in_every_spelling` |

use std::path::Path;

/// The rows of the tables, as identifier and text.
fn rows() -> Vec<(&'static str, &'static str)> {
    let rows = include_str!("seed.rs").lines().filter_map(|line| line.strip_prefix("//! | "));
    let rows = rows.filter_map(|row| row.split_once(" | "));
    rows.filter(|(id, _)| id.len() == 3 && id[1..].parse::<usize>().is_ok()).collect()
}

fn sources(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
            sources(&path, text);
        } else if path.extension().is_some_and(|ending| ending == "rs") && !path.ends_with("seed.rs") {
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn the_table_has_every_row_and_names_tests_that_exist() {
    let rows = rows();
    for (letter, count) in [('S', 51), ('P', 13), ('B', 11)] {
        let ids: Vec<&str> = rows.iter().map(|(id, _)| *id).filter(|id| id.starts_with(letter)).collect();
        assert_eq!(ids, (1..=count).map(|number| format!("{letter}{number:02}")).collect::<Vec<_>>());
    }
    let mut code = include_str!("seed.rs").split("\nuse ").nth(1).unwrap().to_owned();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../crates"), &mut code);
    for (id, row) in rows {
        let quoted = row.split('`').skip(1).step_by(2);
        let tests: Vec<&str> = quoted.filter(|name| name.matches('_').count() > 2).collect();
        let named = |name: &str| name.rsplit("::").next().unwrap_or(name).to_owned();
        for test in tests.iter().map(|test| named(test)) {
            let exists = [format!("fn {test}("), format!("    {test} =>")].iter().any(|text| code.contains(text));
            assert!(exists, "{id}: no test is named {test}");
        }
        let on_both = |test: &&str| code.contains(&format!("async fn {}(cluster)", named(test)));
        assert!(row.contains("not on both") || tests.iter().any(on_both), "{id} has no test on both clusters");
    }
}

#[test]
fn nothing_writes_virtual_services() {
    let rules = signpost_system_router::SPEC.rules;
    assert!(rules.iter().all(|rule| rule.resources.iter().all(|resource| !resource.starts_with("virtualservices"))));
}
