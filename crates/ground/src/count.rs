//! Numbers of things in words: `1 volume`, `2 volumes`.

/// A number and its noun. `noun` is the singular of a regular noun.
pub fn counted(number: u64, noun: &str) -> String {
    if number == 1 {
        return format!("1 {noun}");
    }
    match noun.strip_suffix('y') {
        Some(stem) if !stem.ends_with(['a', 'e', 'o', 'u']) => format!("{number} {stem}ies"),
        _ if noun.ends_with(['s', 'x']) => format!("{number} {noun}es"),
        _ => format!("{number} {noun}s"),
    }
}

/// A number of things with its verb: `1 volume is`, `2 volumes are`.
pub fn counted_are(number: u64, noun: &str) -> String {
    format!("{} {}", counted(number, noun), are(number))
}

/// The verb behind a number of things.
pub fn are(number: u64) -> &'static str {
    if number == 1 { "is" } else { "are" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_has_a_singular() {
        for (number, noun, text) in [
            (0, "volume", "0 volumes"),
            (1, "volume", "1 volume"),
            (2, "volume", "2 volumes"),
            (1, "directory", "1 directory"),
            (3, "directory", "3 directories"),
            (3, "day", "3 days"),
            (2, "class", "2 classes"),
        ] {
            assert_eq!(counted(number, noun), text);
        }
        assert_eq!((are(0), are(1), are(2)), ("are", "is", "are"));
        assert_eq!((counted_are(1, "class"), counted_are(2, "class")), ("1 class is".into(), "2 classes are".into()));
    }
}
