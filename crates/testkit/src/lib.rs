//! Real servers and strict stand-ins for tests.
