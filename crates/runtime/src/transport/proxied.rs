//! Who a client is whose connection a proxy passes on: PROXY protocol, version 2 (HAProxy, "The PROXY protocol", 2.2).
//!
//! A proxy that the operator has named writes a header in front of each connection. Nobody else's header is read: who is not named is the
//! peer that it seems to be.

use std::io::{Error as IoError, ErrorKind, Result as IoResult};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::io::{AsyncRead, AsyncReadExt};

/// What a header begins with.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family, length.
const FIXED: usize = 16;
/// Bytes of addresses and what may follow them at most.
const MOST: usize = 2048;

/// Reads the header of a connection that a proxy passes on; the client's address. `None` where the proxy speaks for itself, as when it looks whether
/// the server is there.
///
/// # Errors
/// [`ErrorKind::InvalidData`] when the connection begins in another way.
pub(super) async fn client(stream: &mut (impl AsyncRead + Unpin)) -> IoResult<Option<SocketAddr>> {
    let wrong = || IoError::from(ErrorKind::InvalidData);
    let mut fixed = [0; FIXED];
    stream.read_exact(&mut fixed).await?;
    let length = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
    if fixed[..12] != SIGNATURE || fixed[12] >> 4 != 2 || length > MOST {
        return Err(wrong());
    }
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await?;
    let port = |at: usize| rest.get(at..at + 2).map(|p| u16::from_be_bytes([p[0], p[1]]));
    match (fixed[12] & 0xf, fixed[13]) {
        (0, _) => Ok(None),
        // TCP over IPv4: both addresses, both ports.
        (1, 0x11) => {
            let ip = rest.first_chunk::<4>().map(|b| IpAddr::V4(Ipv4Addr::from(*b)));
            Ok(Some((ip.ok_or_else(wrong)?, port(8).ok_or_else(wrong)?).into()))
        }
        (1, 0x21) => {
            let ip = rest.first_chunk::<16>().map(|b| IpAddr::V6(Ipv6Addr::from(*b)));
            Ok(Some((ip.ok_or_else(wrong)?, port(32).ok_or_else(wrong)?).into()))
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
        let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
        [&SIGNATURE[..], &[0x20 | command, family], &length, rest, b"HN"].concat()
    }

    async fn read(bytes: &[u8]) -> (IoResult<Option<SocketAddr>>, usize) {
        let mut left = bytes;
        (client(&mut left).await, left.len())
    }

    #[tokio::test]
    async fn headers_say_who_the_client_is() {
        let v4 = [&[10, 1, 2, 3, 127, 0, 0, 1][..], &[0x30, 0x39, 0x22, 0x3d]].concat();
        let (got, left) = read(&header(1, 0x11, &v4)).await;
        assert_eq!((got.unwrap(), left), (Some("10.1.2.3:12345".parse().unwrap()), 2));
        // What a proxy says besides is passed over.
        let (got, left) = read(&header(1, 0x11, &[&v4[..], &[4, 0, 1, 7]].concat())).await;
        assert_eq!((got.unwrap(), left), (Some("10.1.2.3:12345".parse().unwrap()), 2));
        let v6 = [&[0x20, 1, 0xd, 0xb8][..], &[0; 11], &[9], &[0; 16], &[1, 2, 3, 4]].concat();
        let (got, left) = read(&header(1, 0x21, &v6)).await;
        assert_eq!((got.unwrap(), left), (Some("[2001:db8::9]:258".parse().unwrap()), 2));
        assert_eq!(read(&header(0, 0, &[])).await.0.unwrap(), None);
    }

    #[tokio::test]
    async fn anything_else_is_refused() {
        let v4 = [10, 1, 2, 3, 127, 0, 0, 1, 0, 1, 0, 2];
        let mut other = header(1, 0x11, &v4);
        other[12] = 0x11;
        let mut long = header(1, 0x11, &v4);
        long[14..16].copy_from_slice(&[0xff, 0xff]);
        for bytes in [
            b"HN\x01\x01 a frame of a client".to_vec(),
            b"PROXY TCP4 10.1.2.3 127.0.0.1 1 2\r\n".to_vec(),
            other,
            long,
            header(1, 0x11, &v4[..7]),
            header(1, 0x21, &v4),
            header(1, 0x31, &v4),
            header(1, 0x11, &v4)[..20].to_vec(),
            Vec::new(),
        ] {
            assert!(read(&bytes).await.0.is_err(), "{bytes:?}");
        }
    }
}
