//! The header of the PROXY protocol, version 2, which a proxy sends in binary form at the begin of a connection, before
//! TLS.
//!
//! ```text
//! 12 signature │ version and command │ family │ 2 length │ addresses │ fields: type, 2 length, value │ what the client sends
//! ```
//!
//! Only connections of trusted proxies are examined. The header is peeked first; a connection that begins with other
//! bytes is left unchanged. A header with the signature must be completely valid.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::limits;

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of the signature, the command, the family and the length.
const FIXED: usize = 16;

/// Version and command: the proxy's own connection, and a forwarded one.
const LOCAL: u8 = 0x20;
const PASSED_ON: u8 = 0x21;
/// Address families with their protocol; only these carry HTTP.
const TCP_V4: u8 = 0x11;
const TCP_V6: u8 = 0x21;
/// The field about TLS, and the bit of its first byte which states that the client uses TLS.
const FIELD_TLS: u8 = 0x20;
const CLIENT_TLS: u8 = 0x01;
/// Bytes of that flag byte and the result of the certificate check; more fields follow.
const TLS_BYTES: usize = 5;

/// The information of a proxy about a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProxyInfo {
    /// The address of the client; none when the connection is the proxy's own.
    pub address: Option<IpAddr>,
    /// Whether the client uses TLS; none when the proxy does not state it.
    pub is_secure: Option<bool>,
}

/// Removes the header from a connection; none when the connection begins with other bytes.
///
/// # Errors
///
/// The header is invalid, or incomplete after `max_wait`.
pub async fn take(stream: &TcpStream, max_wait: Duration) -> io::Result<Option<ProxyInfo>> {
    let late = |_| io::Error::new(io::ErrorKind::TimedOut, format!("no PROXY header within {max_wait:?}"));
    timeout(max_wait, taken(stream)).await.map_err(late)?
}

async fn taken(stream: &TcpStream) -> io::Result<Option<ProxyInfo>> {
    let mut fixed = [0; FIXED];
    loop {
        let seen = stream.peek(&mut fixed).await?;
        let known = seen.min(SIGNATURE.len());
        if seen == 0 || fixed[..known] != SIGNATURE[..known] {
            return Ok(None);
        }
        if seen == FIXED {
            break;
        }
        // The peeked bytes keep the socket readable, so waiting for readiness would not help.
        sleep(limits::PROXY_HEADER_LOOK).await;
    }
    fill(stream, &mut fixed).await?;
    let wrong = |why| io::Error::new(io::ErrorKind::InvalidData, why);
    let [.., high, low] = fixed;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > limits::PROXY_HEADER_BYTES {
        return Err(wrong("the PROXY header is too long"));
    }
    let mut rest = vec![0; length];
    fill(stream, &mut rest).await?;
    parse(fixed[12], fixed[13], &rest).map(Some).map_err(wrong)
}

/// Reads bytes until the buffer is full.
async fn fill(stream: &TcpStream, mut buffer: &mut [u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        stream.readable().await?;
        match stream.try_read(buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(bytes) => buffer = &mut buffer[bytes..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Parses the rest of a header by its command and its family.
fn parse(command: u8, family: u8, rest: &[u8]) -> Result<ProxyInfo, &'static str> {
    match command {
        LOCAL => return Ok(ProxyInfo::default()),
        PASSED_ON => {}
        _ => return Err("the PROXY header is of another version or command"),
    }
    // The source address is followed by the destination address and both ports.
    let (address, fields): (IpAddr, &[u8]) = match family {
        TCP_V4 => {
            let (addresses, fields) = rest.split_first_chunk::<12>().ok_or(SHORT)?;
            let [a, b, c, d, ..] = *addresses;
            (Ipv4Addr::new(a, b, c, d).into(), fields)
        }
        TCP_V6 => {
            let (addresses, fields) = rest.split_first_chunk::<36>().ok_or(SHORT)?;
            let (source, _) = addresses.split_first_chunk::<16>().ok_or(SHORT)?;
            (Ipv6Addr::from(*source).into(), fields)
        }
        _ => return Err("the PROXY header is of another family than TCP over IP"),
    };
    Ok(ProxyInfo { address: Some(address), is_secure: tls(fields)? })
}

const SHORT: &str = "the PROXY header is shorter than it announces";

/// Returns the TLS state of the fields, all of which must be complete.
fn tls(mut fields: &[u8]) -> Result<Option<bool>, &'static str> {
    let mut is_secure = None;
    while let Some((&[kind, high, low], rest)) = fields.split_first_chunk::<3>() {
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (value, others) = rest.split_at_checked(length).ok_or(SHORT)?;
        if kind == FIELD_TLS {
            let (&[client, ..], _) = value.split_first_chunk::<TLS_BYTES>().ok_or(SHORT)?;
            if is_secure.replace(client & CLIENT_TLS != 0).is_some() {
                return Err("the PROXY header speaks of TLS twice");
            }
        }
        fields = others;
    }
    if fields.is_empty() { Ok(is_secure) } else { Err(SHORT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: [u8; 12] = [203, 0, 113, 9, 10, 0, 0, 1, 0x12, 0x67, 0x01, 0xbb];

    fn v4(fields: &[u8]) -> Result<ProxyInfo, &'static str> {
        parse(PASSED_ON, TCP_V4, &[&V4, fields].concat())
    }

    #[test]
    fn header_names_the_client() {
        let told =
            |address: &str, is_secure| Ok(ProxyInfo { address: Some(address.parse().unwrap()), is_secure });
        assert_eq!(v4(&[]), told("203.0.113.9", None));
        assert_eq!(v4(&[0x20, 0, 5, 1, 0, 0, 0, 0]), told("203.0.113.9", Some(true)));
        assert_eq!(
            v4(&[0x04, 0, 1, 9, 0x20, 0, 8, 0, 0, 0, 0, 0, 0x21, 0, 0]),
            told("203.0.113.9", Some(false))
        );
        let mut v6 = [0; 36];
        v6[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        v6[15] = 1;
        assert_eq!(parse(PASSED_ON, TCP_V6, &v6), told("2001:db8::1", None));
        for (family, rest) in [(0, &[][..]), (TCP_V4, &V4), (TCP_V4, &[1, 2])] {
            assert_eq!(parse(LOCAL, family, rest), Ok(ProxyInfo::default()));
        }
    }

    #[test]
    fn malformed_header_is_refused() {
        for (command, family) in
            [(0x11, TCP_V4), (0x22, TCP_V4), (0x31, TCP_V4), (PASSED_ON, 0), (PASSED_ON, 0x12)]
        {
            assert!(parse(command, family, &V4).is_err(), "{command} {family}");
        }
        for length in 0..V4.len() {
            assert!(parse(PASSED_ON, TCP_V4, &V4[..length]).is_err());
        }
        assert!(parse(PASSED_ON, TCP_V6, &[0; 35]).is_err());
        let wrong: [&[u8]; 6] = [
            &[0x20],
            &[0x20, 0],
            &[4, 0, 2, 1],
            &[0x20, 0, 4, 1, 0, 0, 0],
            &[4, 0xff, 0xff],
            &[0x20, 0, 5, 1, 0, 0, 0, 0, 0x20, 0, 5, 1, 0, 0, 0, 0],
        ];
        for fields in wrong {
            assert!(v4(fields).is_err(), "{fields:?}");
        }
    }
}
