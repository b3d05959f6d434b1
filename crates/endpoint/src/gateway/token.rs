//! Tokens that open a gateway: `pg1.EXPIRY.PLACE.MAC`. MAC is the BLAKE3 keyed hash, under the
//! gateway's secret, of everything before it. PLACE is `*` or the hash of the one target that the
//! token is good for.
//!
//! Streams bring their own protection, so tokens can be seen on their way. Tokens that our own
//! programs and gateways show are good for one target and two minutes: a reader of one can go where
//! its owner just went.
//!
//! A further connection of a braid shows `pj1.EXPIRY.BRAID.NUMBER.MAC`: good for that one
//! connection of that one stream, so that a reader of it can join nothing.

use super::{BraidId, Target};

/// Lifetime of a token made for one stream, in seconds. Clocks may differ by a minute.
pub const TOKEN_LIFETIME_S: u64 = 120;

/// Hexadecimal digits of a place: a collision of 64 bits would only let a holder through to where
/// the token's owner may go.
const PLACE_DIGITS: usize = 16;

/// Reason for which a token is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The text is no token, or was made with another secret.
    Forged,
    /// The token was good until a time that has passed.
    Expired,
    /// The token is good, but for another place.
    Elsewhere,
}

fn place_of(target: &Target) -> String {
    blake3::hash(target.to_string().as_bytes()).to_hex()[..PLACE_DIGITS].to_owned()
}

/// Makes a token that is valid until `expires_unix_s`, for one target or for all that its gateway
/// allows.
#[must_use]
pub fn mint(secret: &[u8; 32], target: Option<&Target>, expires_unix_s: u64) -> String {
    let place = target.map_or_else(|| "*".to_owned(), place_of);
    let claims = format!("pg1.{expires_unix_s}.{place}");
    let mac = blake3::keyed_hash(secret, claims.as_bytes());
    format!("{claims}.{}", mac.to_hex())
}

/// Makes a token that is valid until `expires_unix_s` for the connection of this number of a braid.
#[must_use]
pub fn mint_for_joining(
    secret: &[u8; 32],
    braid: BraidId,
    number: u8,
    expires_unix_s: u64,
) -> String {
    let claims = format!("pj1.{expires_unix_s}.{braid}.{number}");
    let mac = blake3::keyed_hash(secret, claims.as_bytes());
    format!("{claims}.{}", mac.to_hex())
}

/// Returns the braid and the number of the connection that a token permits to join. Compares in
/// constant time, as [`verify`] does.
///
/// # Errors
/// The reason for not accepting it.
pub fn verify_for_joining(
    secret: &[u8; 32],
    token: &str,
    now_unix_s: u64,
) -> Result<(BraidId, u8), Refusal> {
    let claims = claims_of(secret, token)?;
    let fields: Vec<&str> = claims.split('.').collect();
    let ["pj1", expires, braid, number] = fields[..] else {
        return Err(Refusal::Forged);
    };
    if expires.parse::<u64>().map_err(|_| Refusal::Forged)? < now_unix_s {
        return Err(Refusal::Expired);
    }
    let braid = braid.parse().map_err(|_| Refusal::Forged)?;
    Ok((braid, number.parse().map_err(|_| Refusal::Forged)?))
}

/// Returns the claims of a token, if it was made with this secret.
fn claims_of<'a>(secret: &[u8; 32], token: &'a str) -> Result<&'a str, Refusal> {
    let (claims, mac) = token.rsplit_once('.').ok_or(Refusal::Forged)?;
    let mac = blake3::Hash::from_hex(mac).map_err(|_| Refusal::Forged)?;
    // `blake3::Hash` compares in constant time.
    if blake3::keyed_hash(secret, claims.as_bytes()) != mac {
        return Err(Refusal::Forged);
    }
    Ok(claims)
}

/// Checks that a token opens the way to `target`; without one, that it is valid at all. The time
/// this takes does not depend on how much of a forged code is right.
///
/// # Errors
/// The reason for not accepting it.
pub fn verify(
    secret: &[u8; 32],
    token: &str,
    target: Option<&Target>,
    now_unix_s: u64,
) -> Result<(), Refusal> {
    let claims = claims_of(secret, token)?;
    let fields: Vec<&str> = claims.split('.').collect();
    let ["pg1", expires, place] = fields[..] else {
        return Err(Refusal::Forged);
    };
    if expires.parse::<u64>().map_err(|_| Refusal::Forged)? < now_unix_s {
        return Err(Refusal::Expired);
    }
    match target {
        Some(target) if place != "*" && place != place_of(target) => Err(Refusal::Elsewhere),
        Some(_) | None => Ok(()),
    }
}

/// Returns whether a valid token is good for all places. A token of a single stream is seen on its
/// way and may decide nothing.
#[must_use]
pub fn is_for_all(token: &str) -> bool {
    token.split('.').nth(2) == Some("*")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = [7; 32];

    #[test]
    fn a_token_opens_its_place_until_it_expires() {
        let (mine, other): (Target, Target) = ("a:1".parse().unwrap(), "a:2".parse().unwrap());
        let token = mint(&SECRET, Some(&mine), 100);
        assert_eq!(verify(&SECRET, &token, Some(&mine), 100), Ok(()));
        assert_eq!(
            verify(&SECRET, &token, Some(&mine), 101),
            Err(Refusal::Expired)
        );
        assert_eq!(
            verify(&SECRET, &token, Some(&other), 5),
            Err(Refusal::Elsewhere)
        );
        assert_eq!(
            verify(&[8; 32], &token, Some(&mine), 5),
            Err(Refusal::Forged)
        );
        let any = mint(&SECRET, None, 100);
        assert_eq!(verify(&SECRET, &any, Some(&other), 5), Ok(()));
        assert!(is_for_all(&any) && !is_for_all(&token));
    }

    #[test]
    fn what_lets_a_connection_join_is_for_that_one_alone_and_opens_nothing() {
        let braid: BraidId = "0123456789abcdef0123456789abcdef".parse().unwrap();
        let token = mint_for_joining(&SECRET, braid, 3, 100);
        assert_eq!(verify_for_joining(&SECRET, &token, 100), Ok((braid, 3)));
        assert_eq!(
            verify_for_joining(&SECRET, &token, 101),
            Err(Refusal::Expired)
        );
        assert_eq!(
            verify_for_joining(&[8; 32], &token, 5),
            Err(Refusal::Forged)
        );
        let other = token.replace(".3.", ".4.");
        assert_eq!(verify_for_joining(&SECRET, &other, 5), Err(Refusal::Forged));
        let target: Target = "a:1".parse().unwrap();
        assert_eq!(
            verify(&SECRET, &token, Some(&target), 5),
            Err(Refusal::Forged)
        );
        let opens = mint(&SECRET, None, 100);
        assert_eq!(verify_for_joining(&SECRET, &opens, 5), Err(Refusal::Forged));
    }

    #[test]
    fn no_changed_token_is_taken() {
        let token = mint(&SECRET, None, 100);
        for at in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[at] ^= 1;
            let forged = String::from_utf8(bytes).unwrap();
            assert!(verify(&SECRET, &forged, None, 5).is_err(), "{forged}");
        }
        for junk in ["", ".", "pg1", "pg1.9.*", "pg1.9.*.", "ü.ü.ü.ü"] {
            assert_eq!(verify(&SECRET, junk, None, 5), Err(Refusal::Forged));
        }
    }
}
