//! Tokens: what shows that a client may ask. The server knows hashes of them; no log and no error has one.

use crate::error::TransportError;
use sha2::{Digest, Sha256};
use std::hint::black_box;
use std::io::Read;
use std::path::Path;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Bytes of the shortest token.
const SHORTEST: usize = 16;
/// Bytes of the longest token.
const LONGEST: usize = 512;
/// Bytes of the largest file of tokens.
const FILE_BYTES: u64 = 1 << 20;

/// A client's token. It is wiped when it is dropped, and cannot be printed.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct AccessToken(String);

impl AccessToken {
    /// Takes a token as the server's operator gave it; blanks around it are no part of it.
    ///
    /// # Errors
    /// [`TransportError::Tokens`] when it is shorter than 16 or longer than 512 visible ASCII characters, or has others.
    pub fn new(text: &str) -> Result<Self, TransportError> {
        let text = text.trim();
        match wrong(text) {
            Some(why) => Err(TransportError::Tokens(format!("the token cannot be used: {why}"))),
            None => Ok(Self(text.to_owned())),
        }
    }

    /// The token itself, for the greeting.
    pub(super) fn expose(&self) -> &str {
        &self.0
    }
}

/// Why a text is no token.
fn wrong(text: &str) -> Option<String> {
    if !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Some(
            "it has characters other than visible ASCII; make one with `openssl rand -hex 32`".into(),
        );
    }
    let length = text.len();
    (!(SHORTEST..=LONGEST).contains(&length)).then(|| {
        format!("it has {length} characters, and a token has {SHORTEST} to {LONGEST}; make one with `openssl rand -hex 32`")
    })
}

/// The tokens that a server knows, as hashes with the names of their owners.
#[derive(Default)]
pub(super) struct Tokens(Vec<(String, [u8; 32])>);

impl Tokens {
    /// Reads a file of lines `name token` or `name sha256:HEX`; empty lines and those that begin with `#` say nothing.
    ///
    /// # Errors
    /// [`TransportError::Tokens`] with the line (and never what stands in it) and what to do, also when others may read a file that holds
    /// tokens as they are.
    pub(super) fn read(path: &Path) -> Result<Self, TransportError> {
        let fail =
            |why: String| TransportError::Tokens(format!("the file of tokens {}: {why}", path.display()));
        let about = std::fs::metadata(path).map_err(|e| fail(e.to_string()))?;
        let mut text = Zeroizing::new(String::new());
        let file = std::fs::File::open(path).map_err(|e| fail(e.to_string()))?;
        file.take(FILE_BYTES + 1).read_to_string(&mut text).map_err(|e| fail(e.to_string()))?;
        if text.len() as u64 > FILE_BYTES {
            return Err(fail(format!("it has more than the {FILE_BYTES} bytes that it may have")));
        }
        let mut out: Vec<(String, [u8; 32])> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let at = |why: &str| fail(format!("line {number}: {why}"));
            let mut words = line.split_whitespace();
            let Some(name) = words.next().filter(|n| !n.starts_with('#')) else { continue };
            let (Some(token), None) = (words.next(), words.next()) else {
                return Err(at("a line is a name, a blank and a token"));
            };
            if !super::models::is_name(name) {
                return Err(at("a name has 1 to 64 letters, digits, '.', '_' and '-', and begins with a letter or a digit"));
            }
            if out.iter().any(|(known, _)| known == name) {
                return Err(at("the name stands in a line above; give each token a name of its own"));
            }
            let hash = match token.strip_prefix("sha256:") {
                Some(hex) => digest(hex).ok_or_else(|| at("behind `sha256:` stand 64 hexadecimal digits"))?,
                None => {
                    if let Some(why) = wrong(token) {
                        return Err(at(&format!("the token cannot be used: {why}")));
                    }
                    if readable_by_others(&about) {
                        return Err(at("the token stands there as it is, and others may read the file; `chmod 600` it, or write sha256:HEX"));
                    }
                    Sha256::digest(token).into()
                }
            };
            out.push((name.to_owned(), hash));
        }
        if out.is_empty() {
            return Err(fail(
                "there is no token in it, and nobody could be served; write a line `name token`".into(),
            ));
        }
        Ok(Self(out))
    }

    /// The owner of a token. All hashes are compared, each to its end, whatever comes.
    pub(super) fn owner(&self, token: &str) -> Option<&str> {
        let hash: [u8; 32] = Sha256::digest(token).into();
        let mut found = None;
        for (name, known) in &self.0 {
            let differ = known.iter().zip(&hash).fold(0, |d, (a, b)| d | black_box(a ^ b));
            if black_box(differ) == 0 {
                found = Some(name.as_str());
            }
        }
        found
    }
}

#[cfg(unix)]
fn readable_by_others(about: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    about.permissions().mode() & 0o077 != 0
}

#[cfg(not(unix))]
fn readable_by_others(_: &std::fs::Metadata) -> bool {
    false
}

/// 32 bytes of 64 hexadecimal digits.
fn digest(hex: &str) -> Option<[u8; 32]> {
    let mut out = [0; 32];
    if hex.len() != 64 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).ok()?;
    }
    Some(out)
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn read(text: &str, mode: u32) -> Result<Tokens, String> {
        let name = format!("hushnet-tokens-{}-{:?}", std::process::id(), std::thread::current().id());
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let read = Tokens::read(&path).map_err(|e| e.to_string());
        std::fs::remove_file(path).unwrap();
        read
    }

    #[test]
    fn owners_are_found_by_tokens_and_by_hashes() {
        // SHA-256 of "abc" is a published vector; here of a token made of it.
        let hash: String =
            Sha256::digest("bobs-token-of-24-letters").iter().map(|b| format!("{b:02x}")).collect();
        let tokens = read(&format!("# owners\n\nann 0123456789abcdef\nbob sha256:{hash}\n"), 0o600).unwrap();
        assert_eq!(tokens.owner("0123456789abcdef"), Some("ann"));
        assert_eq!(tokens.owner("bobs-token-of-24-letters"), Some("bob"));
        for other in
            ["", "0123456789abcdee", "0123456789abcde", "0123456789abcdef0", &hash, &format!("sha256:{hash}")]
        {
            assert_eq!(tokens.owner(other), None, "{other}");
        }
    }

    #[test]
    fn files_that_cannot_be_used_are_refused_without_their_tokens() {
        let vector = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(read(&format!("a sha256:{vector}"), 0o644).unwrap().owner("abc"), Some("a"));
        for (text, mode, said) in [
            ("ann 0123456789abcdef", 0o640, "chmod 600"),
            ("ann 0123456789abcdef\nann 0123456789abcdeg", 0o600, "line 2: the name stands in a line above"),
            ("ann 0123456789abcde", 0o600, "has 15 characters"),
            ("ann 0123456789abcdef more", 0o600, "a name, a blank and a token"),
            ("0123456789abcdef", 0o600, "a name, a blank and a token"),
            ("../ann 0123456789abcdef", 0o600, "letters, digits"),
            ("ann 0123456789abcdéf", 0o600, "visible ASCII"),
            ("ann sha256:12", 0o600, "64 hexadecimal digits"),
            ("# nothing\n", 0o600, "no token in it"),
        ] {
            let error = read(text, mode).err().unwrap();
            assert!(error.contains(said) && !error.contains("0123456789abcd"), "{text}: {error}");
        }
        assert!(Tokens::read(Path::new("/nowhere/at-all")).is_err());
        assert!(AccessToken::new("short").is_err() && AccessToken::new(" 0123456789abcdef\n").is_ok());
    }
}
