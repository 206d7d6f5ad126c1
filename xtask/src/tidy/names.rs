//! The names of public types: each is declared once in its crate, so that a name alone says which
//! type is meant.

use std::collections::BTreeMap;

use super::source::is_test;

/// The first declaration of each public type, by crate and name.
#[derive(Default)]
pub struct PublicTypes(BTreeMap<(String, String), String>);

impl PublicTypes {
    /// Notes the public types of a source file, and finds those whose name is taken.
    pub fn check(&mut self, name: &str, text: &str, faults: &mut Vec<String>) {
        let Some((folder, _)) = name.split_once("/src/").filter(|_| !is_test(name)) else { return };
        for (number, line) in text.lines().enumerate() {
            let Some(declared) = public_type(line) else { continue };
            let place = format!("{name}:{}", number + 1);
            let key = (folder.to_owned(), declared.to_owned());
            match self.0.get(&key) {
                Some(first) => faults.push(format!(
                    "{place}: '{declared}' is also the name of the type at {first}; a public type's name is unique in its crate"
                )),
                None => drop(self.0.insert(key, place)),
            }
        }
    }
}

/// The name of the public type that is declared in a line.
fn public_type(line: &str) -> Option<&str> {
    let (word, rest) = line.trim_start().strip_prefix("pub ")?.split_once(' ')?;
    let declares = matches!(word, "struct" | "enum" | "trait" | "type" | "union");
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    declares.then_some(&rest[..end])
}
