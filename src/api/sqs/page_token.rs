//! Page tokens of listings: the position of the next page, in a form of this service. A token is valid for one listing
//! of one account and region.
//!
//! A token has a checksum and no signature: it names a queue in the caller's own listing, so a client that forges a
//! token learns nothing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::context::Context;
use super::fault::Fault;
use super::resolution::Part;

const NAME: &str = "NextToken";
/// Version of the token format; another format has another number.
const VERSION: u8 = 1;
/// Bytes of the checksum.
const CHECK: usize = 8;

/// Creates the token of the page that begins after the queue with this name.
pub fn seal(context: &Context<'_>, after: &str) -> String {
    let check = check(&listing(context), after);
    STANDARD.encode([&[VERSION], &check[..], after.as_bytes()].concat())
}

/// Returns the queue name after which the page of a token begins.
///
/// # Errors
///
/// `InvalidParameterValue` if the token does not belong to this listing.
pub fn open(context: &Context<'_>, token: &str) -> Result<String, Fault> {
    let name = read(&listing(context), token);
    name.ok_or_else(|| Fault::parameter(NAME, token, "It is no token of this listing"))
}

/// Returns a text that identifies the listing.
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
