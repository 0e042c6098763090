//! The PowerDNS system on the sandbox and on a real API server, with a real `pdns_server` behind a proxy that counts.
//!
//! One binary, so that all of it shares one API server and one PowerDNS; a test is alone with its namespace and zone.
//!
//! # What users of PowerDNS-Operator do, and where it is tested
//!
//! | what | test |
//! |---|---|
//! | a zone is made, with status, finalizer and one series | `zones::a_zone_is_created_with_its_status_finalizer_and_one_series` |
//! | its name servers, kind, catalog, serial mode change | `zones::changed_name_servers_are_served_and_the_serial_rises`, `a_zone_changes_its_kind_through_all_kinds`, `a_changed_catalog_is_sent`, `a_changed_soa_edit_api_is_sent` |
//! | the server has it already, or has lost it | `zones::a_zone_that_is_on_the_server_already_is_adopted`, `a_zone_deleted_on_the_server_is_made_again_when_its_object_changes`, `a_zone_object_goes_although_its_zone_is_gone_from_the_server` |
//! | it is deleted | `zones::a_zone_goes_from_the_server_with_its_object` |
//! | it is retained, handed over, created again | `departures` |
//! | two objects want one zone | `zones::a_second_zone_of_that_name_in_another_namespace_fails`, `a_cluster_zone_with_the_name_of_a_zone_fails`, `a_zone_with_the_name_of_a_cluster_zone_fails_and_takes_over_when_that_one_goes` |
//! | a cluster zone is made and deleted | `zones::a_cluster_zone_is_created` |
//! | a record set is made, with status, finalizer, comment and series | `records::an_address_is_created_with_its_comment_ttl_finalizer_and_series` |
//! | its records, TTL, comment change; it is deleted | `records::changed_records_ttl_and_comment_are_served_and_the_serial_rises_each_time`, `a_record_set_is_created_updated_and_deleted` |
//! | the server has it already, or has lost it | `records::a_record_set_that_is_on_the_server_already_is_taken_over`, `a_record_set_deleted_on_the_server_comes_back_when_its_object_changes`, `a_record_set_can_be_deleted_after_its_zone_was_deleted_on_the_server` |
//! | every type | `records::an_ipv6_address_lives`, `an_alias_lives`, `a_wildcard_lives`, `a_mail_exchange_lives`, `a_delegation_lives`, `a_text_lives`, `a_service_lives`, `a_certificate_authority_lives`, `a_pointer_lives` |
//! | an unknown type; text without quotes; SRV without its dot | `records::an_unknown_type_fails_in_the_words_of_the_server_and_blocks_nobody`, `text_without_quotes_fails_and_says_why`, `a_service_without_its_final_dot_is_absolute_and_served` |
//! | two objects want one record set | `records::a_duplicate_fails_and_names_the_holder`, `a_cluster_record_set_that_duplicates_a_record_set_fails`, `a_record_set_that_duplicates_a_cluster_record_set_fails_until_that_one_goes` |
//! | there is no zone | `records::a_record_set_without_its_zone_waits_and_is_woken_by_it` |
//! | a cluster record set is made and deleted | `records::a_cluster_record_set_is_created_and_deleted` |
//! | all of it one after the other | `walkthrough::a_walk_through_everything` |
//! | they switch to this operator | `switch::what_powerdns_operator_left_is_taken_up_without_a_write_to_the_server`, `what_powerdns_operator_gave_up_is_served`, `a_zone_of_powerdns_operator_goes_with_all_that_it_owns` |
//!
//! DNSEndpoints as a source: `endpoints`, and beside a real external-dns: `external_dns`.
//!
//! # What such an operator must not do, in `regressions` unless noted otherwise
//!
//! | flaw | test |
//! |---|---|
//! | a duplicate that is deleted takes the record of its holder along | `deleting_a_duplicate_keeps_the_winner`, `deleting_a_duplicate_zone_keeps_the_winner` |
//! | a failure is final | `a_server_error_is_only_for_a_while` |
//! | a zone and its record sets cannot be applied together | `a_zone_and_its_record_sets_can_be_applied_together` |
//! | a zone that is fixed leaves its record sets failed | `a_zone_that_failed_and_was_fixed_wakes_its_record_sets` |
//! | an object of a wrong type cannot be deleted | `a_record_set_of_an_invalid_type_can_be_deleted` |
//! | a changed type leaves the old one, or a gap | `an_address_becomes_an_alias_in_one_patch` |
//! | a comment or a catalog cannot be removed | `a_removed_comment_is_removed`, `a_removed_catalog_is_removed` |
//! | comments of others are lost | `comments_of_others_stay_when_ours_is_written_or_removed` |
//! | spelling and order are written again and again | `reordered_records_are_not_written`, `an_expanded_ipv6_address_is_written_once`, `an_undotted_alias_is_written_once` |
//! | the serial decreases | `the_serial_never_goes_down_when_a_start_of_authority_is_written`, `settings::a_start_of_authority_in_the_spec_never_takes_the_serial_back` |
//! | Consumer and Slave zones are impossible or useless | `a_consumer_zone_is_created`, `a_slave_zone_has_its_masters` |
//! | a wiped server stays empty | `a_wiped_server_gets_every_record_back` |
//! | one hung call stops everything | `a_hung_request_of_one_zone_does_not_block_another`, `outages::a_server_that_hangs_for_a_minute_holds_up_nobody_else_and_ends_right` |
//! | a series of an old status stays | `the_series_of_an_object_moves_with_its_status` |
//! | another namespace takes a record over | `another_namespace_cannot_take_a_record_over` |
//! | a new key needs a restart | `a_key_is_rotated_without_a_restart`, `outages::a_rotated_key_is_taken_up_and_readiness_comes_back` |
//! | a serial above 2^31 does not fit | `a_serial_above_two_to_the_31_is_in_the_status` |

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(unreachable_pub, reason = "the modules of one test binary")]

mod crash;
mod departures;
mod endpoints;
mod external_dns;
mod faults;
mod fence;
mod https;
mod late;
mod ledger;
mod missed;
mod outages;
mod ownership;
mod races;
mod records;
mod refusals;
mod regressions;
mod rig;
mod room;
mod scale;
#[cfg(not(debug_assertions))]
mod scale_endpoints;
mod scene;
mod schema;
mod settings;
mod switch;
mod walkthrough;
mod zones;
