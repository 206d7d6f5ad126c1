//! Text of logins and text requests: `key=value`, each ended by a zero byte (RFC 7143, 6.1).

/// Largest number of keys in one request; more are refused.
const KEYS_MAX: usize = 64;

/// Parses the pairs. `None` if the text has another form.
pub fn parse(bytes: &[u8]) -> Option<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    for item in bytes.split(|byte| *byte == 0).filter(|item| !item.is_empty()) {
        let (key, value) = std::str::from_utf8(item).ok()?.split_once('=')?;
        if key.is_empty() || key.len() > 63 || pairs.len() == KEYS_MAX {
            return None;
        }
        pairs.push((key.to_owned(), value.to_owned()));
    }
    Some(pairs)
}

#[derive(Default)]
pub struct Pairs(pub Vec<u8>);

impl Pairs {
    pub fn add(&mut self, key: &str, value: impl AsRef<str>) {
        self.0.extend_from_slice(key.as_bytes());
        self.0.push(b'=');
        self.0.extend_from_slice(value.as_ref().as_bytes());
        self.0.push(0);
    }
}

/// A number: decimal, or hexadecimal after `0x`.
pub fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// A binary value: hexadecimal after `0x`, base64 after `0b`.
pub fn binary(text: &str) -> Option<Vec<u8>> {
    if let Some(digits) = text.strip_prefix("0b").or_else(|| text.strip_prefix("0B")) {
        return base64_simd::STANDARD.decode_to_vec(digits).ok();
    }
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"))?;
    let digits: Option<Vec<u8>> = digits.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits?;
    // An odd number of digits counts as if a zero came first.
    let (head, pairs) = digits.split_at(digits.len() % 2);
    let rest = pairs.chunks_exact(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit));
    Some(head.iter().copied().chain(rest).collect())
}

pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |text, byte| text + &format!("{byte:02x}"))
}
