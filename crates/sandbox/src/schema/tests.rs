use super::*;

fn sharable<T: Send + Sync>() {}

#[test]
fn a_compiled_schema_is_shared_between_threads() {
    sharable::<Structural>();
}
