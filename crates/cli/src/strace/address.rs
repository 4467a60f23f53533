//! Addresses of sockets, as a program gave them or the kernel tells them.

use super::flags::{AF, SOCK_TYPE, one};
use super::quoted;
use std::net::{Ipv4Addr, Ipv6Addr};

const AF_UNIX: u16 = 1;
const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// Formats an address: `127.0.0.1:80`, `[::1]:80`, `"/run/x"`, or `@name` in the abstract
/// namespace; None for any other.
pub fn address(bytes: &[u8]) -> Option<String> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = || Some(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?));
    match family {
        AF_INET => {
            let ip: [u8; 4] = bytes.get(4..8)?.try_into().ok()?;
            Some(format!("{}:{}", Ipv4Addr::from(ip), port()?))
        }
        AF_INET6 => {
            let ip: [u8; 16] = bytes.get(8..24)?.try_into().ok()?;
            Some(format!("[{}]:{}", Ipv6Addr::from(ip), port()?))
        }
        AF_UNIX => match bytes.get(2..)? {
            [] => None,
            [0, name @ ..] => Some(format!("@{}", quoted(name))),
            path => Some(quoted(path.split(|b| *b == 0).next()?)),
        },
        _ => None,
    }
}

/// Formats the argument of CONNECT and BIND.
pub fn argument(bytes: &[u8]) -> String {
    let family = bytes.first_chunk().map_or(0, |b| u16::from_ne_bytes(*b));
    let family = one(u32::from(family), AF);
    match address(bytes) {
        Some(address) => format!("{{{family}, {address}}}"),
        None => format!("{{{family}}}"),
    }
}

/// Formats what is known of a socket: `TCP:[127.0.0.1:9->127.0.0.1:80]`, as `strace -yy` does.
pub fn socket(kind: u8, local: &[u8], peer: &[u8]) -> Option<String> {
    let family = u16::from_ne_bytes(*local.first_chunk()?);
    let v6 = if family == AF_INET6 { "v6" } else { "" };
    let name = match (family, kind) {
        (AF_INET | AF_INET6, 1) => format!("TCP{v6}"),
        (AF_INET | AF_INET6, 2) => format!("UDP{v6}"),
        (AF_UNIX, _) => "UNIX".to_owned(),
        _ => one(u32::from(kind), SOCK_TYPE),
    };
    let ends = match (address(local), address(peer)) {
        (Some(local), Some(peer)) => format!("{local}->{peer}"),
        (Some(local), None) => local,
        (None, Some(peer)) => format!("->{peer}"),
        (None, None) => return None,
    };
    Some(format!("{name}:[{ends}]"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inet(port: u16, last: u8) -> Vec<u8> {
        let [high, low] = port.to_be_bytes();
        [&AF_INET.to_ne_bytes()[..], &[high, low, 127, 0, 0, last], &[0; 8]].concat()
    }

    #[test]
    fn addresses_are_read() {
        assert_eq!(address(&inet(80, 1)).unwrap(), "127.0.0.1:80");
        assert_eq!(argument(&inet(80, 1)), "{AF_INET, 127.0.0.1:80}");
        let unix = |name: &[u8]| [&AF_UNIX.to_ne_bytes()[..], name].concat();
        assert_eq!(address(&unix(b"/run/x\0yy")).unwrap(), "\"/run/x\"");
        assert_eq!(address(&unix(b"\0a\nb")).unwrap(), "@\"a\\nb\"");
        assert_eq!((address(&unix(b"")), address(b"x"), address(&[2, 0, 1])), (None, None, None));
        assert_eq!(argument(&unix(b"")), "{AF_UNIX}");
        let both = socket(1, &inet(9, 1), &inet(80, 2)).unwrap();
        assert_eq!(both, "TCP:[127.0.0.1:9->127.0.0.2:80]");
        assert_eq!(socket(2, &inet(9, 1), b"").unwrap(), "UDP:[127.0.0.1:9]");
        assert_eq!(socket(1, &unix(b""), b""), None);
    }
}
