//! The page of a retention proof for people: plain HTML in one file, without scripts.

use std::collections::VecDeque;
use std::fmt::Write;

use crate::evidence::bundle::ProvenVersion;
use crate::evidence::export::ProofSelection;
use crate::model::head::SignedHead;
use crate::record::audit::AuditRow;

/// Rows at the beginning and at the end of each table; the files of the bundle have them all.
const ROWS_MAX: usize = 500;

/// What the page shows, gathered while the files are written.
#[derive(Default)]
pub(super) struct Summary {
    versions: Ends<ProvenVersion>,
    records: Ends<(u64, AuditRow)>,
}

/// The first and the last of many.
struct Ends<T> {
    first: Vec<T>,
    last: VecDeque<T>,
}

impl<T> Default for Ends<T> {
    fn default() -> Ends<T> {
        Ends { first: Vec::new(), last: VecDeque::new() }
    }
}

impl<T> Ends<T> {
    fn add(&mut self, item: T) {
        if self.first.len() < ROWS_MAX {
            return self.first.push(item);
        }
        if self.last.len() == ROWS_MAX {
            self.last.pop_front();
        }
        self.last.push_back(item);
    }

    fn all(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.last)
    }
}

impl Summary {
    pub fn add_version(&mut self, version: ProvenVersion) {
        self.versions.add(version);
    }

    pub fn add_record(&mut self, number: u64, row: AuditRow) {
        self.records.add((number, row));
    }

    pub fn page(&self, selection: &ProofSelection, head: &SignedHead, versions: u64, records: u64) -> String {
        let mut page = String::from(HEAD);
        let place = shown(&format!("{}/{}", selection.bucket, selection.prefix));
        let matter = selection.matter.as_deref().map(|matter| format!(", under the matter {}", shown(matter)));
        let _ = write!(
            page,
            "<h1>Retention proof of {place}</h1>\n<p>Store {}{}. {versions} versions and {records} records of the audit \
             log, under the head that was signed at {} over {} records. Public key: <code>{}</code></p>\n{HOW}",
            shown(&head.store),
            matter.unwrap_or_default(),
            shown(&head.time),
            head.records,
            shown(&head.public_key)
        );
        page.push_str("<h2>Versions</h2>\n");
        begin(&mut page, &["key", "version", "stored", "bytes", "BLAKE3", "retention", "kept until", "legal hold"]);
        for version in self.versions.all() {
            let size = version.size_bytes.to_string();
            let blake3 = if version.delete_marker { "delete marker" } else { &version.blake3 };
            row(
                &mut page,
                &[
                    &version.key,
                    &version.version,
                    &version.stored,
                    &size,
                    blake3,
                    version.retention_mode.as_deref().unwrap_or("none"),
                    version.keep_until.as_deref().unwrap_or_default(),
                    if version.legal_hold { "yes" } else { "no" },
                ],
            );
        }
        end(&mut page, versions);
        page.push_str("<h2>Policy and custody: the audit log</h2>\n");
        begin(&mut page, &["record", "time", "actor", "action", "key", "version", "outcome", "detail"]);
        for (number, record) in self.records.all() {
            let outcome = match &record.refused {
                Some(reason) => format!("refused: {reason}"),
                None => "done".into(),
            };
            row(
                &mut page,
                &[
                    &number.to_string(),
                    &record.time.to_string(),
                    &record.actor.to_string(),
                    &record.action.to_string(),
                    record.key.as_deref().unwrap_or_default(),
                    record.version.as_deref().unwrap_or_default(),
                    &outcome,
                    record.detail.as_deref().unwrap_or_default(),
                ],
            );
        }
        end(&mut page, records);
        page.push_str("</body></html>\n");
        page
    }
}

const HEAD: &str = "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
<title>Retention proof</title>\n\
<style>body{font:15px sans-serif;margin:2em}table{border-collapse:collapse}\
td,th{border:1px solid #999;padding:3px 6px;text-align:left;vertical-align:top;word-break:break-all}</style>\n\
</head><body>\n";

const HOW: &str = "<p>This page is a view for people; by itself it proves nothing. The proof is in the files beside it. \
Verify them with <code>stele proof verify DIR --key FILE</code>, or with <code>verify-proof.py</code>, against a public \
key that came to you on another way. To check a copy of an object, compare its BLAKE3 with the one here.</p>\n";

fn begin(page: &mut String, names: &[&str]) {
    page.push_str("<table><tr>");
    names.iter().for_each(|name| {
        let _ = write!(page, "<th>{name}</th>");
    });
    page.push_str("</tr>\n");
}

fn row(page: &mut String, cells: &[&str]) {
    page.push_str("<tr>");
    cells.iter().for_each(|cell| {
        let _ = write!(page, "<td>{}</td>", shown(cell));
    });
    page.push_str("</tr>\n");
}

fn end(page: &mut String, count: u64) {
    page.push_str("</table>\n");
    if count > 2 * ROWS_MAX as u64 {
        let _ = writeln!(page, "<p>The first and the last {ROWS_MAX} of {count}; the files have them all.</p>");
    }
}

/// A text that clients chose, as text: it cannot become markup, and control characters are shown as
/// such.
fn shown(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            control if control.is_control() => safe.extend(control.escape_default()),
            other => safe.push(other),
        }
    }
    safe
}
