//! Why a text is not the value of a record. Every message names the type, describes what is needed and quotes the input.

use thiserror::Error;

use crate::name::NameError;
use crate::rtype::RecordType;

/// Why a text is not the value of a record.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RdataError {
    /// The text does not have the shape of the type: fields missing, too many, or something else altogether.
    #[error("record type {rtype} needs {needs}, got {got}")]
    Shape {
        /// The record's type.
        rtype: RecordType,
        /// The fields that the type needs, with an example.
        needs: &'static str,
        /// The refused text, quoted.
        got: String,
    },
    /// One field is wrong.
    #[error("record type {rtype}: {field} must be {needs}, got {got}")]
    Field {
        /// The record's type.
        rtype: RecordType,
        /// The field's name.
        field: &'static str,
        /// The expected form of the field.
        needs: &'static str,
        /// The refused text, quoted.
        got: String,
    },
    /// A host name in the record is not a name.
    #[error("record type {rtype}: {field}: {source}")]
    Name {
        /// The record's type.
        rtype: RecordType,
        /// The field's name.
        field: &'static str,
        /// The error in the name.
        source: NameError,
    },
    /// Text outside double quotes.
    #[error("record type {rtype} needs its text in double quotes, such as \"\\\"v=spf1 -all\\\"\", got {got}")]
    Unquoted {
        /// The record's type.
        rtype: RecordType,
        /// The refused text, quoted.
        got: String,
    },
    /// A quote that is not closed, or a bad escape.
    #[error("record type {rtype}: {why}, got {got}")]
    Quoting {
        /// The record's type.
        rtype: RecordType,
        /// The error.
        why: &'static str,
        /// The refused text, quoted.
        got: String,
    },
    /// The value does not fit into a record.
    #[error("record type {rtype}: the value is {len} octets long; at most {max} fit")]
    TooLong {
        /// The record's type.
        rtype: RecordType,
        /// How long it is.
        len: usize,
        /// How long it may be.
        max: usize,
    },
}
