//! How a zone is spelled in a URL until the server has reported its identifier.

use signpost_dns::ZoneName;

/// PowerDNS's own encoding: the dotted name, every byte but letters, digits, dot and hyphen as `=XX`.
pub(crate) fn zone_id(zone: &ZoneName) -> String {
    let dotted = zone.to_string();
    if dotted == "." {
        return "=2E".to_owned();
    }
    let mut id = String::with_capacity(dotted.len());
    for byte in dotted.bytes() {
        if byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-' {
            id.push(char::from(byte));
        } else {
            id.push('=');
            for nibble in [byte >> 4, byte & 15] {
                id.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0').to_ascii_uppercase());
            }
        }
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_spelled_as_the_server_spells_them() {
        for (name, id) in [
            ("example.com", "example.com."),
            ("_msdcs.example.com", "=5Fmsdcs.example.com."),
            ("0/25.2.0.192.in-addr.arpa", "0=2F25.2.0.192.in-addr.arpa."),
            (".", "=2E"),
        ] {
            assert_eq!(zone_id(&ZoneName::parse(name).unwrap()), id);
        }
    }
}
