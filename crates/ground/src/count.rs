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

/// Names of a message that shows all.
const NAMES_SHOWN: usize = 20;

/// Names in a row, for a message. Of many it shows the first ones, their number, and the command
/// that lists all.
pub fn names_in_row<T: AsRef<str>>(names: &[T], listed_by: &str) -> String {
    let row = names.iter().take(NAMES_SHOWN).map(AsRef::as_ref).collect::<Vec<&str>>().join(", ");
    match names.len().checked_sub(NAMES_SHOWN) {
        None | Some(0) => row,
        Some(more) => format!("{row}, and {more} more, which `{listed_by}` lists"),
    }
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

    #[test]
    fn a_message_shows_twenty_names_and_the_number_of_others() {
        let names: Vec<String> = (1..=300).map(|number| format!("v{number}")).collect();
        assert_eq!(names_in_row(&names[..2], "stele volume list"), "v1, v2");
        assert!(names_in_row(&names[..20], "stele volume list").ends_with("v19, v20"));
        let many = names_in_row(&names, "stele volume list");
        assert!(many.ends_with("v20, and 280 more, which `stele volume list` lists"), "{many}");
        assert_eq!(names_in_row::<&str>(&[], "stele volume list"), "");
    }
}
