//! A request's query and path, percent-decoded once.

/// The decoded pairs of a query string, in the order sent.
#[derive(Clone, Default, Debug)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Parses the raw query; `None` if a name or value is not UTF-8 once decoded.
    pub fn parse(raw: Option<&str>) -> Option<Query> {
        let mut pairs = Vec::new();
        for piece in raw.unwrap_or("").split('&').filter(|piece| !piece.is_empty()) {
            let (name, value) = piece.split_once('=').unwrap_or((piece, ""));
            pairs.push((decode(name, true)?, decode(value, true)?));
        }
        Some(Query { pairs })
    }

    /// Whether there are no pairs.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// The pairs in the order sent.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The first value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.iter().find(|(found, _)| *found == name).map(|(_, value)| value)
    }

    /// Whether the name occurs.
    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

/// Percent-decodes; a `%` without two hexadecimal digits stays as it is. Returns `None` if the
/// result is not UTF-8.
pub fn decode(text: &str, plus_is_blank: bool) -> Option<String> {
    if !text.bytes().any(|byte| byte == b'%' || (plus_is_blank && byte == b'+')) {
        return Some(text.to_owned());
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'%', [high, low, beyond @ ..]) if digit(*high).is_some() && digit(*low).is_some() => {
                out.push(digit(*high).unwrap_or(0) << 4 | digit(*low).unwrap_or(0));
                rest = beyond;
            }
            (b'+', _) if plus_is_blank => out.push(b' '),
            _ => out.push(byte),
        }
    }
    String::from_utf8(out).ok()
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}
