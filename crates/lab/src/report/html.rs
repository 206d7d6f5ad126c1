//! A document as one HTML page that needs nothing else: no scripts, no requests; readable on a
//! phone, in the dark and on paper.

use std::fmt::Write as _;

use super::chart::drawing::Frame;
use super::chart::svg::{STYLE as CHARTS, escaped};
use super::document::{Block, ColumnAlign, Document, Entry, Place, Said, Sound, Table, Text, Weight, heading_id};
use crate::error::LabError;

const STYLE: &str = include_str!("style.css");

/// The page; an error where the document contradicts itself.
pub fn page(document: &Document) -> Result<String, LabError> {
    let sound = document.check()?;
    let title = escaped(&document.title);
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>{title}</title>\
         <style>{CHARTS}{STYLE}</style></head><body><main>\n<h1>{title}</h1>\n<p class=\"when\">{}</p>\n",
        escaped(&document.about)
    );
    if let Some(byline) = &document.byline {
        let _ = writeln!(page, "<p class=\"byline\">{}</p>", escaped(byline));
    }
    contents_of(document, &mut page);
    let mut headings = 0;
    for block in &document.blocks {
        block_of(&sound, block, headings, &mut page);
        headings += usize::from(matches!(block, Block::Section(_) | Block::Part(_)));
    }
    page.push_str("</main></body></html>\n");
    Ok(page)
}

fn contents_of(document: &Document, page: &mut String) {
    let all = document.contents();
    if all.is_empty() {
        return;
    }
    page.push_str("<nav aria-label=\"Contents\"><p>Contents</p>\n<ul>");
    for (number, (title, part)) in all.iter().enumerate() {
        let class = if *part { " class=\"part\"" } else { "" };
        let _ = writeln!(page, "<li{class}><a href=\"#{}\">{}</a></li>", heading_id(number), escaped(title));
    }
    page.push_str("</ul></nav>\n");
}

/// `headings` is the number of headings before it.
fn block_of(sound: &Sound<'_>, block: &Block, headings: usize, page: &mut String) {
    let id = || heading_id(headings);
    let _ = match block {
        Block::Section(title) => writeln!(page, "<h2 id=\"{}\">{}</h2>", id(), escaped(title)),
        Block::Part(title) => writeln!(page, "<h3 id=\"{}\">{}</h3>", id(), escaped(title)),
        Block::Paragraph(text) => writeln!(page, "<p>{}</p>", text_of(sound, text)),
        Block::Note(text) => writeln!(page, "<aside><p>{}</p></aside>", text_of(sound, text)),
        Block::List(lines) => {
            let lines: Vec<String> = lines.iter().map(|line| format!("<li>{}</li>\n", text_of(sound, line))).collect();
            writeln!(page, "<ul>\n{}</ul>", lines.concat())
        }
        Block::Table(table) => {
            table_of(sound, table, page);
            Ok(())
        }
        Block::Chart(chart) => match chart.svg().zip(chart.svg_slim()) {
            Some(both) => figure_of(both, page),
            None => Ok(()),
        },
        Block::Diagram(diagram) => figure_of((diagram.svg(Frame::BROAD), diagram.svg(Frame::SLIM)), page),
        Block::Code(text) => writeln!(page, "<pre><code>{}</code></pre>", escaped(text)),
    };
}

/// The same drawing for a page and for a phone, of which the style shows one.
fn figure_of((broad, slim): (String, String), page: &mut String) -> std::fmt::Result {
    writeln!(page, "<figure><div class=\"broad\">{broad}</div><div class=\"slim\">{slim}</div></figure>")
}

fn text_of(sound: &Sound<'_>, text: &Text) -> String {
    let span = |said| match said {
        Said::Plain(text) => escaped(&text),
        Said::Code(text) => format!("<code>{}</code>", escaped(&text)),
        Said::Figure(text, id) => format!("<a class=\"bound\" href=\"#{id}\">{}</a>", escaped(&text)),
    };
    sound.spans(text).into_iter().map(span).collect()
}

/// Columns that stand beside each other. Remarks, which a last column without a title holds, are
/// sentences: each stands below its row, since beside figures there is no room for them.
fn columns_of(table: &Table) -> usize {
    match table.columns.split_last() {
        Some((last, before))
            if table.has_head() && before.len() > 1 && last.title.is_empty() && last.align == ColumnAlign::Left =>
        {
            before.len()
        }
        _ => table.columns.len(),
    }
}

fn table_of(sound: &Sound<'_>, table: &Table, page: &mut String) {
    let shown = columns_of(table);
    let side = |align| if align == ColumnAlign::Left { "left" } else { "right" };
    page.push_str("<figure>");
    if !table.caption.is_empty() {
        let _ = write!(page, "<figcaption>{}</figcaption>", escaped(&table.caption));
    }
    page.push_str("<div class=\"wide\"><table>");
    if table.has_head() {
        page.push_str("<thead><tr>");
        for column in table.columns.iter().take(shown) {
            let _ = write!(page, "<th scope=\"col\" class=\"{}\">{}</th>", side(column.align), escaped(&column.title));
        }
        page.push_str("</tr></thead>");
    }
    page.push_str("<tbody>\n");
    for row in &table.rows {
        let remark = row.entries.get(shown).is_some_and(|entry| !entry.text.is_empty());
        page.push_str(if remark { "<tr class=\"above\">" } else { "<tr>" });
        for (number, (column, entry)) in table.columns.iter().zip(&row.entries).enumerate() {
            let id = Place::new(row.name.as_str(), column.name.as_str()).id();
            let class = format!("{}{}", side(column.align), weight_of(entry));
            let text = escaped(&entry.text);
            let _ = match number {
                _ if number >= shown && text.is_empty() => Ok(()),
                _ if number >= shown => write!(
                    page,
                    "</tr>\n<tr class=\"below\"><td id=\"{id}\" class=\"{class}\" colspan=\"{shown}\"><div>{text}</div></td>"
                ),
                0 => write!(page, "<th scope=\"row\" id=\"{id}\" class=\"{class}\">{text}</th>"),
                _ => write!(page, "<td id=\"{id}\" class=\"{class}\">{text}</td>"),
            };
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>");
    if let Some(remark) = &table.remark {
        let _ = write!(page, "<p class=\"remark\">{}</p>", text_of(sound, remark));
    }
    page.push_str("</figure>\n");
}

fn weight_of(entry: &Entry) -> &'static str {
    match entry.weight {
        Weight::Plain => "",
        Weight::Strong => " strong",
        Weight::Faint => " faint",
    }
}
