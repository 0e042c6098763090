//! The servers of `/etc/resolv.conf`. Search domains and `ndots` are not used, because names are absolute.

use std::net::{IpAddr, SocketAddr};

use crate::upstream::PORT;

/// As many as the C library uses.
pub(crate) const MOST: usize = 3;

/// The name servers in the text of a `resolv.conf`.
pub(crate) fn servers(text: &str) -> Vec<SocketAddr> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let ip = words.next().filter(|word| *word == "nameserver").and_then(|_| words.next())?;
        // A zone such as %eth0 is not supported.
        ip.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, PORT))
    };
    text.lines().filter_map(address).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_servers_are_read_and_everything_else_is_not() {
        let text = "# nameserver 192.0.2.9\nsearch demo.svc\noptions ndots:5\nnameserver 192.0.2.1\n nameserver\t2001:db8::1 \
                    # note\nnameserver x\nnameserver 192.0.2.2\nnameserver 192.0.2.3\n";
        let expected = ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.2:53"].map(|text| text.parse().unwrap());
        assert_eq!(servers(text), expected);
        assert_eq!(servers(""), []);
    }
}
