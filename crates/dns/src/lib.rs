//! What a name and a record are: parse, canonical form, compare, public suffix, IDNA.
