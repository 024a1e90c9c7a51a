//! The address of the service that has the settings of this environment: for a health check beside it, as in a
//! container.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::config::layers;

/// Returns the root URL of that service on this machine. Settings that were given to the service as flags are unknown
/// here.
pub(super) fn root() -> Result<String, String> {
    let settings = layers::surrounding().map_err(|error| error.to_string())?;
    if settings.listen.port() == 0 {
        return Err("it listens on any free port: the port is unknown".into());
    }
    Ok(format!("{}://{}", settings.scheme(), local(settings.listen)))
}

/// Returns the address by which this machine reaches a listener.
pub(super) fn local(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcard_listener_is_reached_on_loopback() {
        for (listen, reached) in [
            ("0.0.0.0:8888", "127.0.0.1:8888"),
            ("[::]:8888", "[::1]:8888"),
            ("10.1.2.3:80", "10.1.2.3:80"),
            ("[fd00::1]:80", "[fd00::1]:80"),
        ] {
            assert_eq!(local(listen.parse().unwrap()).to_string(), reached);
        }
    }
}
