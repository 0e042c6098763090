//! The system on the sandbox and on a real API server, with the CRD shape that has one target, and in direct mode.
//!
//! Tests of `crd` and `requirements` are in `tests/shapes`: they run with this shape here, and with the other one in `tests/multi`.
//!
//! | requirement | test |
//! |---|---|
//! | R001 R002 R003 R004 R006 R013 R014 R015 R016 R035 R062 R071(1) | `crd::an_ingress_becomes_a_resource_with_the_whole_specification` |
//! | R005 R055 | `settings::tests::r055_crd_mode_takes_no_key`, `crd::tunnels_are_only_read` |
//! | R007 R026 R040 | `crd::an_alias_is_mapped_to_a_tunnel_or_is_its_name`; the order of R026 also `crd::annotations_override_tunnel_domain_and_subdomain` |
//! | R008 R033 R028 | `crd::an_ingress_of_another_class_has_no_resource_and_loses_it_with_its_class` |
//! | R009 R028 | `crd::the_annotation_enabled_false_deletes_the_resource` |
//! | R010 R027 R071(4) R068 | `crd::a_missing_tunnel_is_a_warning_and_creates_nothing_until_it_exists`; R027 also `requirements::r027_a_missing_tunnel_is_an_error_that_is_tried_again_with_backoff` |
//! | R011 R012 R021 R071(5) | `crd::annotations_override_tunnel_domain_and_subdomain` |
//! | R017 R079 | `crd::every_host_has_a_resource_and_the_first_alone_when_asked` |
//! | R018 R080 | `crd::a_path_that_cannot_be_routed_is_a_warning_and_the_root_is_exposed` |
//! | R019 R020 R021 R022 R023 R024 R070 | `crates/exposure/tests/hosts.rs`, `names::tests`; R070 also `requirements::an_object_of_pangolin_ingress_controller_is_adopted`; R020 and R023 also `crd::a_bad_host_is_a_warning_and_its_neighbour_is_exposed`, R022 `plan::tests::r022_an_address_is_a_warning_and_its_neighbour_is_exposed` |
//! | R025 | `crd::tunnels_are_only_read`; with a tunnel elsewhere `crd::a_tunnel_of_another_namespace_is_used_where_the_shape_names_it` |
//! | R029 R063 R071(2) | `crd::a_changed_host_creates_the_new_resource_and_deletes_the_old_one` |
//! | R030 R042 | `report::tests::r030_what_is_done_is_compared_again_after_the_resync_period`, `settings::tests`; in direct mode `direct_rest::an_hour_at_rest_costs_a_list_per_comparison_and_two_reads_per_host` |
//! | R031 R036 | `crd::drift_is_corrected_and_rest_writes_nothing`, `requirements::a_heartbeat_every_second_causes_no_pass` |
//! | R032 R064 R071(3) R086 | `crd::a_deleted_ingress_takes_its_resource_along_even_while_the_operator_is_down` |
//! | R034 R037 R066 | `crd::an_extra_of_ours_is_deleted_and_a_foreign_one_is_not`, `crd::a_foreign_object_of_the_name_is_not_changed` |
//! | R038 R060 | `crd::what_the_operator_reports_becomes_events_and_status`, `crd::the_status_of_an_ingress_that_is_no_longer_ours_is_cleared` |
//! | R039 R040 R041 | `settings::tests::r039_to_r045_every_variable_of_the_seed_is_read`, `crd::annotations_override_tunnel_domain_and_subdomain` |
//! | R043 | `crates/signpost/tests/pangolin.rs` (`r043_the_log_level_of_the_seed_counts`) |
//! | R044 | `crates/signpost/tests/rbac/namespaces.rs` (`both_modes_of_pangolin_work_with_roles_in_their_namespaces_alone`) |
//! | R045 | `requirements::r045_as_many_ingresses_as_asked_are_worked_on_at_once` |
//! | R046 R047 R069 | `crates/signpost/tests/rbac/main.rs` (`each_mode_of_pangolin_works_with_its_own_role`), `crd::tunnels_are_only_read`; the Deployment of R069 with R048 |
//! | R048 R049 R050 | `crates/signpost/tests/pangolin.rs` (`r048_the_example_is_one_replica_without_root_that_can_elect_a_leader`, `r048_r049_r050_the_example_runs_with_its_probes_metrics_and_lease`); the static binary with R074 |
//! | R051 | `requirements::r051_log_lines_have_the_fields_and_levels_of_the_seed` |
//! | R052 R053 R054 | `crd::metrics_have_the_names_of_the_seed`; R053 also `direct_faults::the_managed_resources_are_counted_while_pangolin_is_down` |
//! | R056 | `crates/signpost/tests/pangolin.rs` (`r056_an_instance_for_each_tenant_has_its_own_lease_and_marks`), `direct::two_operators_on_one_organisation_leave_each_other_alone` |
//! | R057 | `direct::paths_are_routed_as_kubernetes_does`, `direct_ingresses::every_url_of_a_random_ingress_has_the_answer_of_kubernetes`, `crates/exposure/tests/routing.rs` |
//! | R061 | `direct`, `annotations`, `owners`, `direct_turns`, `direct_late`, `direct_faults`, `direct_histories`, `direct_ingresses`, `direct_rest`, `crates/simulation` (system `pangolin`) |
//! | R065 | with a model of each build of pangolin-operator: `requirements::r065_the_pangolin_operator_of_this_shape_exposes_what_is_written` |
//! | R067 R085 | `crd::a_failing_api_server_is_tried_again`; only the sandbox fails on request |
//! | R074 | `deploy/Dockerfile`, whose facts `crates/testkit/tests/setup.rs` checks (`r074_the_image_has_a_static_binary_on_a_distroless_base_and_no_root`): two stages, musl, a check of the build that the binary is static, distroless, uid 65532. No test builds the image |
//! | R075 R076 R077 | `Makefile`, `.github/workflows/ci.yml` with `dev/image-tags` (tested in `crates/testkit/tests/setup.rs`) |
//! | R078 | `crd::an_ingress_without_rules_is_a_warning` |
//! | R081 R082 | `crd::a_missing_service_or_port_is_a_warning_and_keeps_the_last_good_resource` |
//! | R083 | `crd::a_tunnel_that_is_not_ready_is_reported_once_and_nothing_is_created`, `requirements::r083_a_tunnel_that_is_not_ready_is_asked_for_every_30_seconds` |
//! | R084 | `settings::tests::r084_every_bad_line_of_a_mapping_is_fatal_with_its_number` |
//! | R087 | The rate protects Pangolin, which computes a password hash for each call: 10 passes per second create or change something there, `direct_turns::r087_ten_passes_a_second_call_pangolin_unless_another_rate_is_set`; those that only delete or make access stricter are not limited, `direct_turns::r087_deletions_and_protections_are_not_limited`, `direct_turns::r087_stricter_access_is_not_limited`, and withdrawals come before everything that waits, `direct_turns::r087_withdrawals_do_not_wait_for_a_burst_of_new_ingresses`. Crd mode calls nothing of it, and a limit there would make 1,000 Ingresses wait for 100 seconds: `requirements::r087_a_burst_in_crd_mode_is_not_limited_unless_asked`, `requirements::r087_passes_are_limited_where_asked`. Backoff up to five minutes: `requirements::r087_pauses_after_failed_writes_grow_up_to_five_minutes_at_most`, `requirements::r027_a_missing_tunnel_is_an_error_that_is_tried_again_with_backoff`, `a_slow_retry_is_made_at_least_every_five_minutes` of the engine's queue |
//! | R088 | `crates/signpost/tests/docs.rs` (`r088_pangolin_classes_name_our_controller_and_are_not_the_default`) |
//! | R058 R059 R072 R089 | out of scope, as the seed has them |
//! | R073 | `make coverage` (`dev/coverage --gate`), a step of the hosted workflow before an image is built: the tests of this crate and of `crates/exposure` on the sandbox execute at least 80 % of the lines of the system, and all lines of its decisions (`plan`, `report`, `crates/exposure`) |
//!
//! The seed contradicts itself in places. Each contradiction or gap, how it is resolved, and the test that shows it:
//!
//! | | resolution | test |
//! |---|---|---|
//! | C01 | the older name of the default tunnel counts, a difference is fatal, neither is `default` | `settings::tests::the_older_name_of_the_default_tunnel_works_and_a_difference_is_fatal` |
//! | C02 | all hosts, rules of one host merged; `PIC_MULTI_HOST=first` with its Warning | `crd::every_host_has_a_resource_and_the_first_alone_when_asked`, `direct_ingresses::every_url_of_a_random_ingress_has_the_answer_of_kubernetes` |
//! | C03 | a path that cannot be expressed is left out with a Warning, and never the root; direct mode routes all | `crd::a_path_that_cannot_be_routed_is_a_warning_and_the_root_is_exposed`, `direct::paths_are_routed_as_kubernetes_does` |
//! | C04 | the deterministic name wins; extras are deleted when label and owner are ours | `crd::an_extra_of_ours_is_deleted_and_a_foreign_one_is_not`, `plan::tests::a_child_that_has_the_wanted_host_keeps_its_name` |
//! | C05 C06 | the roles have events and leases | `crates/signpost/tests/rbac/main.rs` (`each_mode_of_pangolin_works_with_its_own_role`), `crates/signpost/tests/pangolin.rs` (`r048_r049_r050_the_example_runs_with_its_probes_metrics_and_lease`) |
//! | C07 C24 | `pic-<namespace>-<ingress>-<hash of namespace/ingress/host>`; the host is an annotation, a label that is too long is cut, and the owner reference has the whole name | `names::tests::the_name_of_an_object_is_that_of_pangolin_ingress_controller`, `long_names_are_cut_and_stay_different_and_valid`, `crd::an_ingress_becomes_a_resource_with_the_whole_specification` |
//! | C08 | the class decides; `PIC_ANNOTATION_OPT_IN` exposes any class with `enabled: "true"` | `class::tests::a_class_is_ours_by_name_or_by_controller`, `owners::a_typing_error_in_enabled_withdraws_nothing_in_opt_in_mode` |
//! | C09 | `enabled: "false"` deletes, `paused` only switches off | `crd::the_annotation_enabled_false_deletes_the_resource`, `direct_turns::a_paused_ingress_keeps_its_resource_and_answers_nothing` |
//! | C10 | the real status fields, then those of the seed | `index::tests::c10_the_state_of_a_resource_is_read_from_the_real_fields_then_from_those_of_the_seed` |
//! | C11 | an apex is refused where the CRD cannot express it, and exposed in direct mode | `crd::a_bad_host_is_a_warning_and_its_neighbour_is_exposed`, `direct_turns::c11_a_domain_itself_is_exposed_in_direct_mode` |
//! | C12 | `spec.name` is always set | `crd::an_ingress_becomes_a_resource_with_the_whole_specification` |
//! | C13 | `namespace/name`, or beside the Ingress, then `PIC_TUNNEL_NAMESPACE`, then the only one; several are a Warning; `PIC_TUNNEL_ALLOW` | `crd::a_tunnel_of_another_namespace_is_used_where_the_shape_names_it`, `a_tunnel_in_another_namespace_is_found`, `direct_turns::a_tunnel_is_used_only_by_the_namespaces_that_may` |
//! | C14 | namespaces of tunnels are watched and have Roles of their own | `crd::a_tunnel_that_the_mapping_names_elsewhere_is_watched`, `crates/signpost/tests/rbac/namespaces.rs` (`both_modes_of_pangolin_work_with_roles_in_their_namespaces_alone`) |
//! | C15 | an error event is a Warning, an info event is Normal | `crd::a_bad_host_is_a_warning_and_its_neighbour_is_exposed`, `crd::a_tunnel_that_is_not_ready_is_reported_once_and_nothing_is_created` |
//! | C16 | a tunnel that is not ready creates and deletes nothing, is reported once and asked for every 30 seconds | `crd::a_tunnel_that_is_not_ready_is_reported_once_and_nothing_is_created`, `requirements::r083_a_tunnel_that_is_not_ready_is_asked_for_every_30_seconds` |
//! | C17 C18 | two settings, for passes at once and for passes per second; see R087 for what is limited without one | `settings::tests::r039_to_r045_every_variable_of_the_seed_is_read`, `requirements::r045_as_many_ingresses_as_asked_are_worked_on_at_once`, `direct_turns::r087_ten_passes_a_second_call_pangolin_unless_another_rate_is_set` |
//! | C19 | health and metrics on both ports | `crates/signpost/tests/pangolin.rs` (`r048_r049_r050_the_example_runs_with_its_probes_metrics_and_lease`) |
//! | C20 | another host is another object, created before the old one is deleted | `requirements::c20_the_object_of_a_new_host_is_made_before_the_old_one_is_deleted`, `direct::a_changed_host_is_served_before_the_old_one_is_deleted` |
//! | C21 C22 | Services are watched, named ports are looked up, the last good object stays | `crd::a_missing_service_or_port_is_a_warning_and_keeps_the_last_good_resource` |
//! | C23 | owner references, and a sweep at the start and at every comparison | `crd::a_deleted_ingress_takes_its_resource_along_even_while_the_operator_is_down` |
//! | C25 | the prefix stays; `PIC_ANNOTATION_PREFIX` is a second one | `annotations::tests::a_second_prefix_means_the_same_and_the_first_wins` |
//! | C26 | `PIC_ALLOW_LOCALHOST` is off without a setting | `crates/exposure/tests/hosts.rs` (`what_is_switched_on_is_accepted`), `crd::a_bad_host_is_a_warning_and_its_neighbour_is_exposed` |
//! | C27 | events; `status.loadBalancer` where asked | `crd::what_the_operator_reports_becomes_events_and_status`, `crd::the_status_of_an_ingress_that_is_no_longer_ours_is_cleared` |
//! | C28 | an event alone | `crd::a_path_that_cannot_be_routed_is_a_warning_and_the_root_is_exposed` |
//! | C29 | ours by name or by controller; a class without an object is served and logged once | `index::tests::a_class_of_another_controller_is_not_ours_and_one_of_ours_is_by_any_name`, `requirements::c29_a_class_without_an_object_is_served_and_logged_once` |
//! | C30 | `pangolin-` is a Warning and exposes nothing | `crd::an_alias_is_mapped_to_a_tunnel_or_is_its_name`, `index::tests::a_class_without_its_alias_claims_no_host` |
//! | C31 | what is fatal in a mapping, and what is a comment | `mapping::tests::every_line_that_cannot_be_read_is_reported_with_its_number` |
//! | C32 | overrides of an Ingress with several hosts are refused | `crd::annotations_override_tunnel_domain_and_subdomain` |
//! | C33 | the oldest Ingress has a host, then the smaller UID, as everywhere in Signpost | `crd::the_older_ingress_keeps_a_host_and_the_other_gets_it_after_its_end` |
//! | C34 | a default backend answers hosts that the Ingress names, and none without; other kinds of backends are a Warning; `spec.tls` has no effect | `crd::an_ingress_without_rules_is_a_warning`, `requirements::a_scheme_or_default_backend_that_cannot_be_used_is_reported`, `direct_targets::c35_the_cluster_ip_of_a_service_is_its_target` (ExternalName) |
//! | C35 | `PIC_CLUSTER_DOMAIN`; `PIC_TARGET_MODE` for cluster IPs and load balancers | `targets::c35_a_target_is_the_cluster_ip_of_its_service_and_follows_it`, `targets::c35_a_target_is_the_address_of_a_load_balancer_and_follows_it`, `direct_targets::c35_the_address_of_a_load_balancer_is_the_target_of_its_service`, `direct_targets::c35_an_ipv6_address_at_a_site_that_cannot_reach_it_is_refused`, `index::tests::c35_a_service_is_reached_by_its_name_or_by_an_address`, `plan::tests::c36_a_backend_has_the_scheme_of_annotation_port_or_settings` (domain) |
//! | C36 | the annotation, then `appProtocol`, then the setting | `plan::tests::c36_a_backend_has_the_scheme_of_annotation_port_or_settings` |
//! | C37 | see R073 | `make coverage` |
//! | C38 | models of both builds of pangolin-operator | `requirements::r065_the_pangolin_operator_of_this_shape_exposes_what_is_written`, `requirements::a_pangolin_operator_of_the_other_shape_is_reported` |
//! | C39 | see R074 | `crates/testkit/tests/setup.rs` (`r074_the_image_has_a_static_binary_on_a_distroless_base_and_no_root`) |
//! | C40 | what was reported is not reported again | `crd::a_tunnel_that_is_not_ready_is_reported_once_and_nothing_is_created`, `direct_late::every_deletion_during_an_outage_is_reported_once` |

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod annotations;
#[path = "../common/mod.rs"]
mod common;
#[path = "../shapes/crd.rs"]
mod crd;
mod direct;
mod direct_faults;
mod direct_histories;
mod direct_ingresses;
mod direct_late;
mod direct_outage;
mod direct_rest;
mod direct_targets;
mod direct_turns;
mod owners;
#[path = "../shapes/requirements.rs"]
mod requirements;
#[path = "../shapes/targets.rs"]
mod targets;

use common::crds::Kind;

/// The shape of PangolinResource in this binary. The tests of a binary share one API server, and so one CRD.
pub(crate) const KIND: Kind = Kind::Single;

/// The tables above have every requirement and every contradiction, and every test that they name exists.
#[test]
fn the_table_has_every_requirement_and_names_tests_that_exist() {
    fn sources(folder: &std::path::Path, text: &mut String) {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
                sources(&path, text);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                text.push_str(&std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    let is_row = |line: &&str| line.starts_with("//! | R") || line.starts_with("//! | C");
    let table = include_str!("main.rs").lines().filter(is_row).collect::<Vec<_>>().join("\n");
    let named = (1..=89).map(|number| format!("R{number:03}")).chain((1..=40).map(|number| format!("C{number:02}")));
    let missing: Vec<String> = named.filter(|name| !table.contains(name)).collect();
    assert_eq!(missing, Vec::<String>::new());
    let mut code = String::new();
    sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), &mut code);
    let named = table.split('`').skip(1).step_by(2).filter_map(|name| name.rsplit("::").next());
    let tests: Vec<&str> = named.filter(|name| name.matches('_').count() > 2 && !name.starts_with("PIC_")).collect();
    assert!(tests.len() > 40, "{tests:?}");
    for test in tests {
        assert!(code.contains(&format!("fn {test}(")), "no test is named {test}");
    }
}
