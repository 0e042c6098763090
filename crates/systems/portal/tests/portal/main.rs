//! The portal system on the sandbox and on a real API server.
//!
//! | what | module |
//! |---|---|
//! | the chain of a DNS object, portals, components | `chain` |
//! | components that discovered objects ask for; states that users declare | `components` |
//! | names of objects that no system of this operator publishes | `discovery` |
//! | the seed's tables and steps, and the false verdicts of the old program, with a real PowerDNS | `seed` |
//! | DNS objects against a real PowerDNS behind the resolver | `served_names` |
//! | portals of other clusters | `remote`, `remote_limits` |
//! | the condition `Served` of record sets | `verify` |
//! | events about names that other systems published | `turns` |
//! | replicas that do not lead, and what is in no status | `followers` |
//! | crashes, replicas, an API server and resolvers that do not work | `faults` |
//! | entries that no pass can look up | `bounds` |
//! | objects of the old program | `eras` |
//! | resolvers that answer differently, and hosts with changing addresses | `horizons` |
//! | drawn worlds, compared with a computation from scratch after every step | `worlds` |
//!
//! Every row of the seed, and of the list of false verdicts (`V`), with the test that holds it. A test of `on_both!` runs on the sandbox and on the real
//! API server; those of `seed` and `served_names` have a real PowerDNS behind the resolver.
//!
//! | row | test |
//! |---|---|
//! | trigger: create, update, delete | `seed::every_step_of_the_chain_is_as_in_the_seed` |
//! | trigger: again every five minutes | `settings::tests::the_defaults_are_those_of_the_seed`, `plan::tests::a_pass_that_comes_a_tenth_early_looks_names_up` |
//! | 1 collect: type, targets, labels | `seed::every_step_of_the_chain_is_as_in_the_seed` |
//! | 2 aggregate: source manual, sorted by name | `seed::every_step_of_the_chain_is_as_in_the_seed`, `plan::tests::groups_and_names_are_sorted_and_repeated_entries_count_once` |
//! | 3 resolve: sync, notFound, error, timeout | `seed::every_step_of_the_chain_is_as_in_the_seed`, `plan::tests::seed_table_of_results`, `chain::every_result_of_the_table_is_reported` |
//! | 3 resolve: ten lookups at once, five seconds | `settings::tests::the_defaults_are_those_of_the_seed`; the limit itself in `crates/providers/resolver/tests/hostile.rs` |
//! | 3 resolve: skipped with disableDNSCheck | `seed::lookups_that_are_switched_off_leave_the_status_empty` |
//! | 3 resolve: skipped for remote groups | `remote::a_remote_portal_is_read_over_tls_with_certificates_of_secrets` |
//! | 4 status: groups, lastReconcileTime, Ready=True | `seed::every_step_of_the_chain_is_as_in_the_seed` |
//! | 4 status: Ready=False with a reason | `seed::an_error_is_a_reason_of_ready_and_never_blocks_the_names`, `chain::the_main_portal_is_created_and_a_missing_portal_is_reported` |
//! | 4 projection: source, portal, groups, status; a deletion removes it | `seed::every_step_of_the_chain_is_as_in_the_seed` |
//! | 5 component: skipped when the portal shows none | `seed::the_component_of_an_annotation_is_as_in_the_seed`, `components::a_component_is_left_as_it_is_while_the_portal_shows_none` |
//! | 5 component: created, updated, label, deleted with the annotation | `seed::the_component_of_an_annotation_is_as_in_the_seed`, `chain::a_component_follows_its_own_dns_object_only`, `components::a_discovered_object_has_the_component_that_its_annotations_ask_for` |
//! | 5 component: spec.status is never overwritten | the three above, `components::a_declared_state_that_the_watch_has_not_delivered_is_kept` |
//! | 5 component: another DNS object of the portal keeps its own | `seed::the_component_of_an_annotation_is_as_in_the_seed`, `chain::a_component_follows_its_own_dns_object_only` |
//! | at rest: nothing but times changes, nothing is written | `chain::nothing_is_written_at_rest_and_a_deletion_removes_the_names` |
//! | V every dual-stack name; V an IPv6 address in another spelling | `seed::every_false_verdict_of_the_old_program_is_right_here`, `plan::tests` |
//! | V a CNAME of two hops; V a name with text only | `seed::every_false_verdict_of_the_old_program_is_right_here`, `served_names` |
//! | V CDN, weighted and geo names | `seed::every_false_verdict_of_the_old_program_is_right_here` (`match`), `discovery::a_weighted_endpoint_is_in_sync_with_one_of_its_sets`, `horizons::a_name_behind_a_host_with_changing_addresses_stays_in_sync` |
//! | V a host as target of an address | `seed::every_false_verdict_of_the_old_program_is_right_here`, `plan::tests::a_target_host_is_compared_with_what_the_same_resolver_answers` |
//! | V search domains and split horizon | `seed::every_false_verdict_of_the_old_program_is_right_here` (a name with one label), `horizons::of_two_resolvers_that_answer_differently_the_wrong_one_is_named` |
//! | V a resolver outage turns everything red | `seed::every_false_verdict_of_the_old_program_is_right_here` (silent), `faults::a_slow_name_is_reported_alone_and_a_wrong_answer_until_it_is_right` (SERVFAIL to everything), `faults::a_resolver_that_does_not_work_keeps_every_verdict_and_is_reported` |
//! | V an entry without targets | `seed::every_false_verdict_of_the_old_program_is_right_here` |

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::needless_pass_by_value, reason = "JSON literals are handed over as they are")]
#![allow(unreachable_pub, reason = "the modules of one test binary")]

mod bed;
mod bounds;
mod chain;
mod components;
mod discovery;
mod eras;
mod faults;
mod followers;
mod horizons;
mod remote;
mod remote_limits;
mod seed;
mod served_names;
mod turns;
mod verify;
mod worlds;
