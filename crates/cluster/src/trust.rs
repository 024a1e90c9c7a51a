//! The certificates and addresses of the replicas that are admitted: of the registry, and of replicas that left it less
//! than [`limits::PEER_LEFT`] ago. A replica that has lost its session still forwards requests for that time (P8).
//!
//! A replica without a certificate runs an older program. While one is admitted, clear text is too, with the secret
//! that such programs keep in the tree. No other request has it.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::time::Instant;

use angarium_catalogue::Component;
use angarium_core::access::PeerSecret;
use angarium_core::maps::HashMap;

use crate::identity::Fingerprint;
use crate::limits;

/// The admitted replicas. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct PeerTrust(Arc<RwLock<Members>>);

/// Each entry has the time at which its replica left the registry; none while it is there.
#[derive(Debug, Default)]
struct Members {
    fingerprints: HashMap<Fingerprint, Option<Instant>>,
    /// Addresses of replicas whose program has no certificates.
    clear: HashMap<String, Option<Instant>>,
    /// The secret of these programs, as it was last read. It stays after they have left: one that returns has it still.
    secret: Option<PeerSecret>,
    /// When the registry was first read.
    first: Option<Instant>,
}

/// How a connection shows that its peer is a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerProof {
    /// By a certificate with this fingerprint.
    Certificate(Fingerprint),
    /// By nothing: it is in clear text, and only the secret of its requests admits it.
    ClearText,
}

impl PeerTrust {
    /// Takes over the registry as it was just read.
    pub fn learn<'c>(&self, components: impl Iterator<Item = &'c Component>) {
        let now = Instant::now();
        let mut members = self.0.write();
        members.first.get_or_insert(now);
        members.fingerprints.values_mut().for_each(|left| *left = left.or(Some(now)));
        members.clear.values_mut().for_each(|left| *left = left.or(Some(now)));
        for component in components {
            let fingerprints = component.fingerprints.iter().filter_map(|text| Fingerprint::parse(text));
            members.fingerprints.extend(fingerprints.map(|fingerprint| (fingerprint, None)));
            if component.fingerprints.is_empty() {
                members.clear.insert(component.address.clone(), None);
            } else {
                // A newer program has taken the place of an older one, which has ended with its connections.
                members.clear.remove(&component.address);
            }
        }
        members.fingerprints.retain(|_, left| is_admitted(*left, now));
        members.clear.retain(|_, left| is_admitted(*left, now));
    }

    /// Returns whether a peer with this proof is a replica.
    pub fn admits(&self, proof: PeerProof) -> bool {
        let (now, members) = (Instant::now(), self.0.read());
        match proof {
            PeerProof::Certificate(fingerprint) => {
                members.fingerprints.get(&fingerprint).is_some_and(|left| is_admitted(*left, now))
            }
            PeerProof::ClearText => members.clear.values().any(|left| is_admitted(*left, now)),
        }
    }

    /// Returns whether the replica at `address` runs a program that knows no certificates.
    pub(crate) fn is_clear(&self, address: &str) -> bool {
        let now = Instant::now();
        self.0.read().clear.get(address).is_some_and(|left| is_admitted(*left, now))
    }

    /// Takes over the secret of the programs without certificates.
    pub fn learn_secret(&self, secret: PeerSecret) {
        self.0.write().secret = Some(secret);
    }

    /// Returns the last secret that was read, whether it admits a replica or not.
    pub fn last_secret(&self) -> Option<PeerSecret> {
        self.0.read().secret.clone()
    }

    /// Returns the secret of requests in clear text; none when no replica without a certificate is admitted.
    pub(crate) fn secret(&self) -> Option<PeerSecret> {
        if self.admits(PeerProof::ClearText) { self.last_secret() } else { None }
    }

    /// Returns whether a request on a connection with this proof is one of a replica: in clear text by the secret that
    /// it shows.
    pub fn admits_request(&self, proof: PeerProof, shown: Option<&[u8]>) -> bool {
        match proof {
            // The handshake has shown it, and the connection ends with it.
            PeerProof::Certificate(_) => true,
            PeerProof::ClearText => self.secret().zip(shown).is_some_and(|(secret, shown)| secret.is(shown)),
        }
    }

    /// Returns whether no replica without a certificate was registered for [`limits::PEER_LEFT`], as far as this
    /// process has seen: none forwards requests any more.
    pub fn has_outlived_clear_text(&self) -> bool {
        let first = self.0.read().first;
        first.is_some_and(|first| first.elapsed() >= limits::PEER_LEFT) && !self.admits(PeerProof::ClearText)
    }

    /// Returns when a peer with this proof is admitted no longer.
    pub async fn ended(&self, proof: PeerProof) {
        while self.admits(proof) {
            tokio::time::sleep(limits::PEER_TRUST_CHECK).await;
        }
    }
}

fn is_admitted(left: Option<Instant>, now: Instant) -> bool {
    left.is_none_or(|left| now.duration_since(left) < limits::PEER_LEFT)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use angarium_catalogue::ComponentState;
    use angarium_core::time::Timestamp;
    use uuid::Uuid;

    use super::*;
    use crate::identity::PeerIdentity;
    use crate::replicas::Replica;

    fn component(address: &str, certificate: Option<Fingerprint>) -> Component {
        let replica = Replica::new(Uuid::nil(), "host", address);
        Replica { certificate, ..replica }.component(ComponentState::Running, Timestamp::from_millis(0))
    }

    fn fingerprint() -> Fingerprint {
        PeerIdentity::generate().unwrap().fingerprint()
    }

    #[tokio::test(start_paused = true)]
    async fn certificate_is_admitted_ten_minutes_after_its_replica_left() {
        let (trust, one, other) = (PeerTrust::default(), fingerprint(), fingerprint());
        let admits = |fingerprint| trust.admits(PeerProof::Certificate(fingerprint));
        assert!(!admits(one), "no registry was read");
        trust.learn([&component("a:1", Some(one)), &component("b:1", Some(other))].into_iter());
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert!(admits(one) && admits(other));
        trust.learn([&component("a:1", Some(one))].into_iter());
        tokio::time::advance(Duration::from_secs(9 * 60 + 59)).await;
        trust.learn([&component("a:1", Some(one))].into_iter());
        assert!(admits(other), "another reading of the registry does not prolong or shorten it");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(admits(one) && !admits(other));
        trust.learn([&component("b:1", Some(other))].into_iter());
        assert!(admits(other), "it is back");
    }

    #[tokio::test(start_paused = true)]
    async fn clear_text_ends_with_the_last_older_program() {
        let (trust, one) = (PeerTrust::default(), fingerprint());
        assert!(!trust.admits(PeerProof::ClearText));
        trust.learn([&component("a:1", Some(one)), &component("old:1", None)].into_iter());
        assert!(trust.admits(PeerProof::ClearText) && trust.is_clear("old:1") && !trust.is_clear("a:1"));
        trust.learn([&component("a:1", Some(one))].into_iter());
        tokio::time::advance(limits::PEER_LEFT - Duration::from_secs(1)).await;
        assert!(trust.admits(PeerProof::ClearText));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!trust.admits(PeerProof::ClearText) && !trust.is_clear("old:1"));
    }

    #[tokio::test(start_paused = true)]
    async fn secret_counts_while_a_program_without_certificates_is_there() {
        let (trust, certificate) = (PeerTrust::default(), fingerprint());
        let is_admitted = |proof: PeerProof, shown: &str| trust.admits_request(proof, Some(shown.as_bytes()));
        trust.learn([&component("a:1", Some(certificate))].into_iter());
        trust.learn_secret(PeerSecret::new("secret"));
        assert!(!is_admitted(PeerProof::ClearText, "secret") && trust.secret().is_none());
        assert!(trust.admits_request(PeerProof::Certificate(certificate), None), "it needs no secret");
        trust.learn([&component("a:1", Some(certificate)), &component("old:1", None)].into_iter());
        assert!(is_admitted(PeerProof::ClearText, "secret") && trust.secret().is_some());
        assert!(!is_admitted(PeerProof::ClearText, "wrong") && !is_admitted(PeerProof::ClearText, ""));
        assert!(!trust.admits_request(PeerProof::ClearText, None));
        trust.learn([&component("a:1", Some(certificate))].into_iter());
        tokio::time::advance(limits::PEER_LEFT).await;
        assert!(!is_admitted(PeerProof::ClearText, "secret") && trust.secret().is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn clear_text_is_outlived_ten_minutes_after_its_last_program() {
        let (trust, one) = (PeerTrust::default(), fingerprint());
        tokio::time::advance(2 * limits::PEER_LEFT).await;
        assert!(!trust.has_outlived_clear_text(), "no registry was read");
        trust.learn([&component("a:1", Some(one))].into_iter());
        tokio::time::advance(limits::PEER_LEFT - Duration::from_secs(1)).await;
        assert!(!trust.has_outlived_clear_text(), "one may have left before this process began");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(trust.has_outlived_clear_text());
        trust.learn([&component("a:1", Some(one)), &component("old:1", None)].into_iter());
        tokio::time::advance(2 * limits::PEER_LEFT).await;
        assert!(!trust.has_outlived_clear_text(), "it is registered");
        trust.learn([&component("a:1", Some(one))].into_iter());
        tokio::time::advance(limits::PEER_LEFT - Duration::from_secs(1)).await;
        assert!(!trust.has_outlived_clear_text());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(trust.has_outlived_clear_text());
    }

    /// Its address is that of the older program, which was upgraded.
    #[tokio::test(start_paused = true)]
    async fn upgraded_replica_is_met_in_tls_at_once() {
        let trust = PeerTrust::default();
        trust.learn([&component("a:1", None), &component("b:1", None)].into_iter());
        trust.learn([&component("a:1", Some(fingerprint())), &component("b:1", None)].into_iter());
        assert!(!trust.is_clear("a:1") && trust.is_clear("b:1") && trust.admits(PeerProof::ClearText));
        trust.learn([&component("b:1", Some(fingerprint()))].into_iter());
        assert!(!trust.is_clear("b:1") && !trust.admits(PeerProof::ClearText));
        // And back.
        trust.learn([&component("b:1", None)].into_iter());
        assert!(trust.is_clear("b:1") && trust.admits(PeerProof::ClearText));
    }

    #[tokio::test(start_paused = true)]
    async fn connection_ends_soon_after_its_proof() {
        let (trust, one) = (PeerTrust::default(), fingerprint());
        trust.learn([&component("a:1", Some(one))].into_iter());
        let proof = PeerProof::Certificate(one);
        assert!(tokio::time::timeout(2 * limits::PEER_LEFT, trust.ended(proof)).await.is_err());
        trust.learn(std::iter::empty());
        let begun = Instant::now();
        trust.ended(proof).await;
        assert!(begun.elapsed() <= limits::PEER_LEFT + limits::PEER_TRUST_CHECK);
    }
}
