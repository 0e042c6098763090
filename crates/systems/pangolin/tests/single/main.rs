//! The system on the sandbox and on a real API server, with the CRD shape that has one target, and in direct mode.
//!
//! | requirement | test |
//! |---|---|
//! | R001 R002 R003 R004 R006 R013 R014 R015 R016 R035 R062 R071(1) | `an_ingress_becomes_a_resource_with_the_whole_specification` |
//! | R007 R026 R040 | `an_alias_is_mapped_to_a_tunnel_or_is_its_name` |
//! | R008 R033 R028 | `an_ingress_of_another_class_has_no_resource_and_loses_it_with_its_class` |
//! | R009 R028 | `the_annotation_enabled_false_deletes_the_resource` |
//! | R010 R027 R071(4) R068 | `a_missing_tunnel_is_a_warning_and_creates_nothing_until_it_exists` |
//! | R011 R012 R021 R071(5) | `annotations_override_tunnel_domain_and_subdomain` |
//! | R017 R079 | `every_host_has_a_resource_and_the_first_alone_when_asked` |
//! | R018 R080 | `a_path_that_cannot_be_routed_is_a_warning_and_the_root_is_exposed` |
//! | R019 R020 R022 R023 R024 R070 | `crates/exposure/tests/hosts.rs`; R020 also `a_bad_host_is_a_warning_and_its_neighbour_is_exposed` |
//! | R025 | `tunnels_are_only_read` |
//! | R029 R063 R071(2) | `a_changed_host_creates_the_new_resource_and_deletes_the_old_one` |
//! | R030 R042 | `settings::tests`, `report::tests` |
//! | R031 R036 | `drift_is_corrected_and_rest_writes_nothing` |
//! | R032 R064 R071(3) R086 | `a_deleted_ingress_takes_its_resource_along_even_while_the_operator_is_down` |
//! | R034 R037 R066 | `an_extra_of_ours_is_deleted_and_a_foreign_one_is_not` |
//! | R038 R060 | `what_the_operator_reports_becomes_events_and_status`, `the_status_of_an_ingress_that_is_no_longer_ours_is_cleared` |
//! | R039 to R045 R084 | `settings::tests` |
//! | R046 R047 R069 | `crates/signpost/tests/rbac.rs` (`each_mode_of_pangolin_works_with_its_own_role`), `tunnels_are_only_read` |
//! | R048 R049 R050 R074 R075 R076 R077 | `deploy/`, `Makefile`, `crates/signpost/tests/one_line.rs` |
//! | R051 R052 R053 R054 | `metrics_have_the_names_of_the_seed` |
//! | R055 R061 | `direct`, `direct_faults`, `crates/simulation` (system `pangolin`) |
//! | R056 | `two_operators_on_one_organisation_leave_each_other_alone` |
//! | R057 | `direct::paths_are_routed_as_kubernetes_does` |
//! | R065 R067 R085 | `a_failing_api_server_is_tried_again` |
//! | R078 | `an_ingress_without_rules_is_a_warning` |
//! | R081 R082 | `a_missing_service_or_port_is_a_warning_and_keeps_the_last_good_resource` |
//! | R083 | `a_tunnel_that_is_not_ready_is_reported_once_and_nothing_is_created` |
//! | R087 | the engine's queue; `PIC_RECONCILE_RATE` in `settings::tests` |
//! | R088 | `examples/pangolin/ingressclass.yaml` |
//! | R005 R058 R059 R072 R089 | out of scope, as the seed has them |
//! | R073 | decisions are pure and have their tests beside them |

// Helpers of tests fail a test as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../common/mod.rs"]
mod common;
mod crd;
mod direct;
mod direct_faults;
