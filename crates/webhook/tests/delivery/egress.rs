//! Addresses that may be reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use angarium_core::network::Network;
use angarium_webhook::egress::is_public;
use angarium_webhook::{DeliveryError, EgressRules, WebhookUrl};
use proptest::prelude::*;

use crate::sink::{Names, Sink, client_with, delivery, limits};

const CLOSE: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// First and last address of ranges that are not public.
const SPECIAL: &[(&str, &str)] = &[
    ("0.0.0.0", "0.255.255.255"),
    ("10.0.0.0", "10.255.255.255"),
    ("100.64.0.0", "100.127.255.255"),
    ("127.0.0.0", "127.255.255.255"),
    ("168.63.129.16", "168.63.129.16"),
    ("169.254.0.0", "169.254.255.255"),
    ("172.16.0.0", "172.31.255.255"),
    ("192.0.0.0", "192.0.0.255"),
    ("192.0.2.0", "192.0.2.255"),
    ("192.88.99.0", "192.88.99.255"),
    ("192.168.0.0", "192.168.255.255"),
    ("198.18.0.0", "198.19.255.255"),
    ("198.51.100.0", "198.51.100.255"),
    ("203.0.113.0", "203.0.113.255"),
    ("224.0.0.0", "255.255.255.255"),
    ("::", "::ffff"),
    ("::ffff:127.0.0.0", "::ffff:127.255.255.255"),
    ("::ffff:169.254.169.254", "::ffff:169.254.169.254"),
    ("64:ff9b::127.0.0.0", "64:ff9b::127.255.255.255"),
    ("64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff"),
    ("100::", "100::ffff:ffff:ffff:ffff"),
    ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2002:7f00::", "2002:7fff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2002:c0a8::", "2002:c0a8:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("4000::", "fbff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("fd00:ec2::254", "fd00:ec2::254"),
    ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
];

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// A naive list of the ranges of IPv4, written once more.
fn is_special_v4(address: Ipv4Addr) -> bool {
    let within = |(first, last): &(&str, &str)| match (ip(first), ip(last)) {
        (IpAddr::V4(first), IpAddr::V4(last)) => (first..=last).contains(&address),
        _ => false,
    };
    SPECIAL.iter().any(within)
}

#[test]
fn special_ranges_are_not_public_and_their_neighbours_are() {
    for (first, last) in SPECIAL {
        assert!(!is_public(ip(first)), "{first}");
        assert!(!is_public(ip(last)), "{last}");
    }
    for address in [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "168.63.129.15",
        "168.63.129.17",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "192.0.1.0",
        "192.0.3.0",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "2001:200::",
        "2001:4860:4860::8888",
        "2606:4700::1111",
        "2a00:1450::1",
        "::ffff:1.1.1.1",
        "64:ff9b::1.1.1.1",
        "2002:101:101::1",
        "3ffe::1",
    ] {
        assert!(is_public(ip(address)), "{address}");
    }
}

proptest! {
    #[test]
    fn public_addresses_agree_with_a_naive_list(bits in any::<u32>(), head in 0_usize..15, low in any::<u16>()) {
        // Half of the addresses are near the ends of a range.
        let IpAddr::V4(last) = ip(SPECIAL[head].1) else { panic!("the first rows are IPv4") };
        let near = Ipv4Addr::from_bits(last.to_bits().wrapping_add(u32::from(low)).wrapping_sub(0x8000));
        for address in [Ipv4Addr::from_bits(bits), near] {
            let is_special = is_special_v4(address);
            let [a, b, c, d] = address.octets().map(u16::from);
            let (high, low) = (a << 8 | b, c << 8 | d);
            for form in [
                IpAddr::V4(address),
                IpAddr::V6(address.to_ipv6_mapped()),
                IpAddr::V6(Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low)),
                IpAddr::V6(Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1)),
            ] {
                prop_assert_eq!(is_public(form), !is_special, "{}", form);
            }
        }
    }

    #[test]
    fn ipv6_outside_of_global_unicast_is_not_public(bits in any::<u128>()) {
        let address = Ipv6Addr::from_bits(bits);
        if address.segments()[0] & 0xe000 != 0x2000 {
            prop_assert!(!is_public(IpAddr::V6(address)));
        }
    }
}

#[tokio::test]
async fn literals_of_special_ranges_are_forbidden() {
    let client = client_with(EgressRules::default(), Names::default(), limits());
    for (first, _) in SPECIAL {
        let host = if first.contains(':') { format!("[{first}]") } else { (*first).to_owned() };
        for scheme in ["http", "https"] {
            let url = format!("{scheme}://{host}:9/");
            assert!(client.rules().check_literal(&WebhookUrl::parse(&url).unwrap()).is_err(), "{url}");
            let error = client.deliver(&delivery(&url)).await.unwrap_err();
            assert_eq!(error, DeliveryError::Forbidden { address: SocketAddr::new(ip(first), 9) });
        }
    }
}

#[tokio::test]
async fn name_with_one_forbidden_address_is_not_reached() {
    let sink = Sink::start("127.0.0.2", async |_| ()).await;
    let names = Names::answering(&[&["127.0.0.2", "127.0.0.1"]]);
    let client = client_with(EgressRules::new(vec![host("127.0.0.2")], Vec::new()), names, limits());
    let url = format!("http://mixed.test:{}/", sink.address.port());
    let error = client.deliver(&delivery(&url)).await.unwrap_err();
    assert_eq!(
        error,
        DeliveryError::Forbidden { address: SocketAddr::new(ip("127.0.0.1"), sink.address.port()) }
    );
    assert_eq!(sink.connections(), 0);
}

#[tokio::test]
async fn name_is_checked_again_at_each_connection() {
    let sink = Sink::start("127.0.0.2", async |mut stream| {
        use tokio::io::AsyncWriteExt as _;
        crate::sink::read_request(&mut stream).await;
        stream.write_all(CLOSE.as_bytes()).await.unwrap();
    })
    .await;
    let names = Names::answering(&[&["127.0.0.2"], &["127.0.0.1"]]);
    let client = client_with(EgressRules::new(vec![host("127.0.0.2")], Vec::new()), names, limits());
    let delivery = delivery(&format!("http://rebound.test:{}/", sink.address.port()));
    client.deliver(&delivery).await.unwrap();
    let error = client.deliver(&delivery).await.unwrap_err();
    assert!(matches!(error, DeliveryError::Forbidden { .. }), "{error}");
    assert_eq!(sink.connections(), 1);
}

#[test]
fn listeners_are_refused_although_their_network_is_allowed() {
    let all: Vec<Network> = vec!["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()];
    let listeners = ["10.0.0.5:8890", "0.0.0.0:8888", "8.8.8.8:8890"].map(|text| text.parse().unwrap());
    let rules = EgressRules::new(all, listeners.to_vec());
    for address in [
        "10.0.0.5:8890",
        "[::ffff:10.0.0.5]:8890",
        "[64:ff9b::10.0.0.5]:8890",
        "8.8.8.8:8890",
        "127.0.0.1:8888",
        "[::1]:8888",
        "[::ffff:127.0.0.1]:8888",
        "0.0.0.0:8888",
    ] {
        assert!(rules.check(address.parse().unwrap()).is_err(), "{address}");
    }
    for address in ["10.0.0.5:8891", "10.0.0.6:8890", "127.0.0.1:8889", "[::1]:8889"] {
        assert!(rules.check(address.parse().unwrap()).is_ok(), "{address}");
    }
}

fn host(text: &str) -> Network {
    text.parse().unwrap()
}
