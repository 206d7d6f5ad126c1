//! `stele find`: prints the versions that have the given properties, page by page.

use std::borrow::Cow;
use std::io::IsTerminal;

use stele_archive::FoundVersion;
use stele_ground::shown::shown;
use stele_server::api::find as calls;
use stele_server::api::matters::Selected;
use stele_server::config::Site;
use stele_server::connection::{Connection, read_officer};
use stele_server::failure::Outcome;

use crate::cli::find::Find;
use crate::commands::names::written;
use crate::commands::print_json;

const COLUMNS: &str = "bucket,key,version,size_bytes,stored,owner,blake3,content_type,retention_mode,keep_until,class,\
                       event,matters,tags";

pub async fn run(site: &Site, json: bool, find: Find) -> Outcome<()> {
    find.officer.officer.as_deref().map(read_officer).transpose()?;
    let is_terminal = std::io::stdout().is_terminal();
    let mut call = calls::FindVersions {
        selection: Selected {
            bucket: find.bucket,
            prefix: find.prefix,
            tags: find.tag.into_iter().collect(),
            stored_after: find.stored_after,
            stored_before: find.stored_before,
        },
        class: find.class,
        matter: find.matter,
        size_min: find.min.map(|size| size.0),
        size_max: find.max.map(|size| size.0),
        content_type: find.content_type,
        metadata: find.meta.into_iter().collect(),
        after: None,
    };
    let connection = Connection::find(site).await?;
    if find.csv && !json {
        println!("{COLUMNS}");
    }
    loop {
        let page = connection.exact(call.clone()).await?;
        for version in &page.versions {
            match (json, find.csv) {
                (true, _) => print_json(version)?,
                (false, true) if is_terminal => println!("{}", shown(&row(version))),
                (false, true) => println!("{}", row(version)),
                (false, false) => {
                    println!("{}", written(&format!("{}/{}@{}", version.bucket, version.key, version.version)));
                }
            }
        }
        call.after = page.next;
        if call.after.is_none() {
            return connection.leave().await;
        }
    }
}

fn row(version: &FoundVersion) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let fields = [
        version.bucket.clone(),
        version.key.clone(),
        version.version.clone(),
        version.size_bytes.to_string(),
        version.stored.clone(),
        version.owner.clone(),
        version.blake3.clone(),
        text(&version.content_type),
        text(&version.retention_mode),
        text(&version.keep_until),
        text(&version.class),
        text(&version.event),
        version.matters.join(" "),
        joined(version.tags.iter()),
    ];
    fields.iter().map(|field| quoted(field)).collect::<Vec<_>>().join(",")
}

/// A field of CSV, as RFC 4180 has it: a reader gets the text exactly. Where a spreadsheet would
/// take the text for a formula, an apostrophe comes before it, and also where there is one already:
/// the text is again known exactly once one apostrophe is taken off.
fn quoted(field: &str) -> Cow<'_, str> {
    let guard = if field.starts_with(['=', '+', '-', '@', '\'', '\t', '\r']) { "'" } else { "" };
    match guard.is_empty() && !field.contains([',', '"', '\'', ' ', '\n', '\r']) {
        true => field.into(),
        false => format!("\"{guard}{}\"", field.replace('"', "\"\"")).into(),
    }
}

fn joined<'a>(tags: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    tags.map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect::<Vec<_>>().join("&")
}

/// A name or value of a tag, percent-encoded: both may have the characters that join them.
fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/:@".contains(&byte);
    text.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rows of a table, read as RFC 4180 has it.
    fn read(table: &str) -> Vec<Vec<String>> {
        let (mut rows, mut row, mut field, mut is_quoted) = (Vec::new(), Vec::new(), String::new(), false);
        let mut letters = table.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '"' if is_quoted && letters.next_if_eq(&'"').is_some() => field.push('"'),
                '"' => is_quoted = !is_quoted,
                ',' if !is_quoted => row.push(std::mem::take(&mut field)),
                '\n' if !is_quoted => {
                    row.push(std::mem::take(&mut field));
                    rows.push(std::mem::take(&mut row));
                }
                letter => field.push(letter),
            }
        }
        assert!(!is_quoted && field.is_empty() && row.is_empty(), "{table}");
        rows
    }

    #[test]
    fn a_reader_of_csv_gets_every_text_exactly() {
        let texts = [
            "plain",
            "",
            "a,b",
            "say \"x\"",
            "\"",
            "a b",
            "two\nlines",
            "two\\nlines",
            "a\r\nb\tc",
            "\ttab",
            "\r",
            "\u{1}\u{1b}[2J\u{202e}",
            "=1+2",
            "'=1+2",
            "'",
            "-x",
            "it's",
        ];
        let line = |texts: &[&str]| texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(",");
        let rows = read(&format!("{}\n{}\n", line(&texts), line(&["last"; 17])));
        let back: Vec<&str> = rows[0].iter().map(|text| text.strip_prefix('\'').unwrap_or(text)).collect();
        assert_eq!(back, texts);
        assert_eq!((rows.len(), rows[1].len()), (2, 17));
        for formula in ["=1+2", "+1", "-1", "@x", "\t=1", "\r=1"] {
            assert!(quoted(formula).starts_with("\"'"), "{formula}");
        }
    }

    #[test]
    fn tags_are_told_apart_whatever_they_hold() {
        let tags =
            [("a", "b c=d"), ("e&f", ""), ("é", "x:/@+")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(joined(tags.iter().map(|(name, value)| (name, value))), "a=b%20c%3Dd&e%26f=&%C3%A9=x:/@%2B");
    }
}
