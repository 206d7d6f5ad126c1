//! Plain English in Markdown and in comments: lines and sentences of a bounded length, and no
//! riddles.
//!
//! The rules hold for the documents in [`KEPT`], and for comments that have a line of their own in
//! every Rust file. A document joins the list in the commit that makes it keep them, and never
//! leaves it.

use std::ops::Range;

/// Documents that keep the rules: a path, or a folder that ends in `/`.
const KEPT: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "OPERATIONS.md",
    "README.md",
    "FORMAT/",
    "SEMANTICS/",
    "docs/",
];

/// Characters of a line. Code, tables, links and headings may be longer.
const COLUMNS_MAX: usize = 100;

/// Words of a sentence.
const WORDS_MAX: usize = 35;

/// Words that stand for a thing that has a name.
const BANNED: &[&str] = &["what nobody", "whoever", "somebody", "that which", "nobody"];

/// Whether the document keeps the rules.
pub fn is_kept(name: &str) -> bool {
    name.ends_with(".md") && KEPT.iter().any(|kept| name.starts_with(kept))
}

/// Checks a document.
pub fn check(name: &str, text: &str, faults: &mut Vec<String>) {
    check_lines(name, text.lines().map(|line| Some((line.chars().count(), line))), faults);
}

/// Checks the comments of a Rust file.
pub fn check_comments(name: &str, text: &str, faults: &mut Vec<String>) {
    let lines = text.lines().map(|line| Some((line.chars().count(), comment(line)?)));
    check_lines(name, lines, faults);
}

/// The text of a comment that has the line for itself.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?;
    let text = text.strip_prefix(['/', '!']).unwrap_or(text);
    Some(text.strip_prefix(' ').unwrap_or(text))
}

/// Checks lines of prose, each with the columns that it takes. A line without prose ends the
/// passage before it.
fn check_lines<'a>(name: &str, lines: impl Iterator<Item = Option<(usize, &'a str)>>, faults: &mut Vec<String>) {
    let mut fault = |line: usize, what: String| faults.push(format!("{name}:{}: {what}", line + 1));
    let mut fenced = false;
    let mut passage = Passage::default();
    for (number, line) in lines.enumerate() {
        let Some((width, line)) = line else {
            fenced = false;
            passage.end(&mut fault);
            continue;
        };
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        if fence || fenced || is_apart(line, &passage) {
            passage.end(&mut fault);
            continue;
        }
        if line.trim().is_empty() || item(line).is_some() {
            passage.end(&mut fault);
        }
        if width > COLUMNS_MAX && !line.contains("](") {
            fault(number, format!("{width} columns; at most {COLUMNS_MAX}"));
        }
        if !line.matches('`').count().is_multiple_of(2) {
            fault(number, "a span of code ends on another line: keep it on one".to_owned());
        }
        passage.take(number, item(line).unwrap_or(line));
    }
    passage.end(&mut fault);
}

/// Whether the line is a heading, a row of a table, or code: indented by four, and no continuation
/// of a paragraph or an item.
fn is_apart(line: &str, before: &Passage) -> bool {
    line.starts_with(['#', '|']) || (line.starts_with("    ") && before.words.is_empty())
}

/// The text after the marker of a list item.
fn item(line: &str) -> Option<&str> {
    let text = line.trim_start();
    let numbered = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let after = match numbered.len() < text.len() {
        true => numbered.strip_prefix(". "),
        false => text.strip_prefix("- ").or_else(|| text.strip_prefix("* ")),
    };
    after.map(str::trim_start)
}

/// A paragraph or a list's item, word by word.
#[derive(Default)]
struct Passage {
    /// Each word with the number of its line.
    words: Vec<(usize, String)>,
}

impl Passage {
    fn take(&mut self, number: usize, line: &str) {
        let text = without_code(line);
        self.words.extend(text.split_whitespace().map(|word| (number, word.to_owned())));
    }

    /// Checks the gathered words, and starts again.
    fn end(&mut self, fault: &mut impl FnMut(usize, String)) {
        for sentence in self.sentences() {
            let words = &self.words[sentence];
            // A dash or a sign alone is not a word.
            let count = words.iter().filter(|(_, word)| word.contains(char::is_alphanumeric)).count();
            if count > WORDS_MAX {
                fault(words[0].0, format!("a sentence of {count} words; at most {WORDS_MAX}"));
            }
        }
        let plain = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
        let words: Vec<String> = self.words.iter().map(|(_, word)| plain(word)).collect();
        for (at, (number, _)) in self.words.iter().enumerate() {
            let is_here = |banned: &str| {
                banned.split(' ').enumerate().all(|(i, word)| words.get(at + i).is_some_and(|w| w == word))
            };
            if let Some(banned) = BANNED.iter().find(|banned| is_here(banned)) {
                fault(*number, format!("'{banned}' stands for a thing that has a name: name it"));
            }
        }
        self.words.clear();
    }

    fn sentences(&self) -> Vec<Range<usize>> {
        let mut sentences = Vec::new();
        let mut from = 0;
        for at in 0..self.words.len() {
            let last = at + 1 == self.words.len();
            if last || self.ends_sentence(at) {
                sentences.push(from..at + 1);
                from = at + 1;
            }
        }
        sentences
    }

    /// Whether a full stop ends a sentence, and not an abbreviation: a capital, code or a number
    /// follows.
    fn ends_sentence(&self, at: usize) -> bool {
        let word = self.words[at].1.trim_end_matches([')', '"', '*', '\'']);
        let next = self.words.get(at + 1).map(|(_, next)| next.trim_start_matches(['(', '"', '*', '\'', '[']));
        word.ends_with(['.', '!', '?']) && next.is_some_and(|next| next.starts_with(|c: char| !c.is_lowercase()))
    }
}

/// The line with each quoted span of code, and each address of a link, as one word.
fn without_code(line: &str) -> String {
    let spans = line.split('`').enumerate();
    let text: String = spans.map(|(at, span)| if at % 2 == 1 { "Code" } else { span }).collect();
    let mut parts = text.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.split_once(')').map_or("", |(_, rest)| rest))
}

#[cfg(test)]
mod tests;
