//! Authorization: roles, tokens, and the rights that a token grants. `config` reads the file of tokens, `api` reads
//! requests.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rand::RngCore;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;

use crate::maps::HashMap;
use crate::names::ProjectId;

/// The rights of a caller. A greater role includes the rights of each lesser role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads the queues of one project.
    Reader,
    /// Uses the queues of one project.
    Member,
    /// Uses the queues of every project, and changes pools and flavors.
    Admin,
}

impl Role {
    /// The role as text.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reader => "reader",
            Self::Member => "member",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Role {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "reader" => Ok(Self::Reader),
            "member" => Ok(Self::Member),
            "admin" => Ok(Self::Admin),
            _ => Err("a role is `reader`, `member` or `admin`"),
        }
    }
}

/// The rights of the holder of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The project whose queues the holder uses.
    pub project: ProjectId,
    /// The role of the holder.
    pub role: Role,
    /// The name of the token, for people; none when it has none.
    pub name: Option<Arc<str>>,
}

/// The SHA-256 of a token. A token has 256 random bits, so it cannot be found by trial and a plain hash is enough; the
/// hash may be stored in a file that others can read.
#[derive(Clone, Copy)]
pub struct TokenHash([u8; 32]);

impl TokenHash {
    /// Returns the hash of a token as its holder sends it.
    pub fn of(token: &str) -> Self {
        Self(Sha256::digest(token.as_bytes()).into())
    }

    /// The whole hash.
    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// The first 8 bytes, which are the key of the look-up table.
    fn head(&self) -> [u8; 8] {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        [a, b, c, d, e, f, g, h]
    }
}

impl fmt::Display for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for TokenHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TokenHash({self})")
    }
}

impl FromStr for TokenHash {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "a SHA-256 has 64 hexadecimal digits";
        let mut bytes = [0; 32];
        if text.len() != 2 * bytes.len() {
            return Err(WRONG);
        }
        let digit = |at: usize| text.as_bytes().get(at).and_then(|digit| char::from(*digit).to_digit(16));
        for (at, byte) in bytes.iter_mut().enumerate() {
            let (Some(high), Some(low)) = (digit(2 * at), digit(2 * at + 1)) else { return Err(WRONG) };
            *byte = u8::try_from(high << 4 | low).map_err(|_| WRONG)?;
        }
        Ok(Self(bytes))
    }
}

/// Prefix of each token that [`new_token`] makes. The service never asks Keystone about such a token.
pub const TOKEN_PREFIX: &str = "angarium_";

/// Returns a new token: 256 bits of `dice`, which must be fit for secrets, as text that needs no quoting anywhere.
/// Scanners for leaked secrets can recognise a token by the prefix.
pub fn new_token(dice: &mut dyn RngCore) -> String {
    let mut bytes = [0; 32];
    dice.fill_bytes(&mut bytes);
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{TOKEN_PREFIX}{digits}")
}

/// The secret that replicas of older programs, which have no certificates, share and show in clear text.
#[derive(Clone)]
pub struct PeerSecret(Arc<str>);

impl fmt::Debug for PeerSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PeerSecret")
    }
}

impl PeerSecret {
    /// Wraps the text of the secret.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// The secret, to be sent to another replica and to no other caller.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `shown` is the secret. The time of the comparison reveals at most its length.
    pub fn is(&self, shown: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(shown).into()
    }
}

/// All accepted tokens.
#[derive(Debug, Default)]
pub struct TokenTable(HashMap<[u8; 8], Vec<(TokenHash, Grant)>>);

impl TokenTable {
    /// Returns what a token grants; none when the token is unknown.
    ///
    /// The table finds hashes by their first bytes and then compares whole hashes in constant time, so the time of an
    /// answer reveals nothing about the known hashes.
    pub fn grant(&self, token: &str) -> Option<&Grant> {
        let hash = TokenHash::of(token);
        let alike = self.0.get(&hash.head())?;
        let known = alike.iter().find(|(known, _)| known.0.ct_eq(&hash.0).into());
        known.map(|(_, grant)| grant)
    }

    /// The projects of all tokens.
    pub fn projects(&self) -> impl Iterator<Item = &ProjectId> {
        self.0.values().flatten().map(|(_, grant)| &grant.project)
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Whether there is no token, so that no caller is let in.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(TokenHash, Grant)> for TokenTable {
    fn from_iter<I: IntoIterator<Item = (TokenHash, Grant)>>(tokens: I) -> Self {
        let mut table = Self::default();
        for (hash, grant) in tokens {
            table.0.entry(hash.head()).or_default().push((hash, grant));
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    fn grant(project: &str) -> Grant {
        Grant { project: ProjectId::new(project).unwrap(), role: Role::Member, name: None }
    }

    #[test]
    fn a_token_is_found_by_its_hash_and_no_other_is() {
        let tokens = [new_token(&mut StdRng::seed_from_u64(1)), new_token(&mut StdRng::seed_from_u64(2))];
        let hashes = tokens.each_ref().map(|token| TokenHash::of(token).to_string());
        let entries = [(hashes[0].parse().unwrap(), grant("a")), (hashes[1].parse().unwrap(), grant("b"))];
        let table: TokenTable = entries.into_iter().collect();
        assert_eq!(table.len(), 2);
        assert_eq!(table.grant(&tokens[0]), Some(&grant("a")));
        assert_eq!(table.grant(&tokens[1]), Some(&grant("b")));
        for unknown in ["", "x", &hashes[0], &tokens[0][1..], &format!("{} ", tokens[0])] {
            assert_eq!(table.grant(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn hashes_with_equal_head_differ() {
        let (mine, mut other) = (TokenHash::of("mine"), TokenHash::of("mine"));
        other.0[31] ^= 1;
        let table: TokenTable = [(other, grant("other")), (mine, grant("mine"))].into_iter().collect();
        assert_eq!(table.grant("mine"), Some(&grant("mine")));
    }

    #[test]
    fn a_hash_is_64_digits_as_other_programs_write_it() {
        // printf abc | sha256sum
        let known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(TokenHash::of("abc").to_string(), known);
        assert!(known.to_uppercase().parse::<TokenHash>().is_ok());
        for bad in ["", &known[1..], &format!("{known}0"), &known.replace('b', "g"), &"ä".repeat(32)] {
            assert!(bad.parse::<TokenHash>().is_err(), "{bad}");
        }
    }

    #[test]
    fn admin_has_the_rights_of_a_member() {
        assert!(Role::Admin > Role::Member && Role::Member > Role::Reader);
    }
}
