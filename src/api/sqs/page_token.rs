//! Tokens of listings: where the next page begins, in a form that only this service makes. A token is of one listing,
//! of one account and region.
//!
//! It has a checksum and no seal: it names a queue of its caller's own listing, so a client that makes one learns
//! nothing from it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::context::Context;
use super::fault::Fault;
use super::resolution::Part;

const NAME: &str = "NextToken";
/// The form of tokens; another one gets another number.
const VERSION: u8 = 1;
/// Bytes of the checksum.
const CHECK: usize = 8;

/// The token of the page that begins behind a queue of this name.
pub fn seal(context: &Context<'_>, after: &str) -> String {
    let check = check(&listing(context), after);
    STANDARD.encode([&[VERSION], &check[..], after.as_bytes()].concat())
}

/// The name behind which the page of a token begins.
///
/// # Errors
///
/// `InvalidParameterValue` for what is no token of this listing.
pub fn open(context: &Context<'_>, token: &str) -> Result<String, Fault> {
    let name = read(&listing(context), token);
    name.ok_or_else(|| Fault::parameter(NAME, token, "It is no token of this listing"))
}

/// What tells a listing from others.
fn listing(context: &Context<'_>) -> String {
    let subject = context.request.queue(Part::Subject).map(|queue| queue.name.as_str()).unwrap_or_default();
    format!("{}\n{}\n{subject}", context.request.operation.name(), context.request.project)
}

fn read(listing: &str, token: &str) -> Option<String> {
    let bytes = STANDARD.decode(token).ok()?;
    let (version, rest) = bytes.split_first()?;
    let (found, name) = rest.split_at_checked(CHECK)?;
    let name = str::from_utf8(name).ok()?;
    (*version == VERSION && found == check(listing, name)).then(|| name.to_owned())
}

fn check(listing: &str, name: &str) -> [u8; CHECK] {
    let digest = Sha256::digest(format!("{listing}\n{name}"));
    let mut check = [0; CHECK];
    check.copy_from_slice(&digest[..CHECK]);
    check
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_of_one_listing() {
        let token = STANDARD.encode([&[VERSION], &check("a", "orders")[..], b"orders"].concat());
        assert_eq!(read("a", &token).as_deref(), Some("orders"));
        assert_eq!(read("b", &token), None);
        for bad in ["", "orders", "!", "AQ==", &STANDARD.encode("orders-and-invoices")] {
            assert_eq!(read("a", bad), None, "{bad}");
        }
    }
}
