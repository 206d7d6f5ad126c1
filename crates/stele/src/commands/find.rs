//! `stele find`: prints the versions that have the given properties, page by page.

use stele_archive::FoundVersion;
use stele_ground::Shown;
use stele_server::api::find as calls;
use stele_server::api::matters::Selected;
use stele_server::config::Site;
use stele_server::connection::Connection;
use stele_server::failure::Outcome;

use crate::cli::find::Find;
use crate::commands::names::written;
use crate::commands::print_json;

const COLUMNS: &str = "bucket,key,version,size_bytes,stored,owner,blake3,content_type,retention_mode,keep_until,class,\
                       event,matters,tags";

pub async fn run(site: &Site, json: bool, find: Find) -> Outcome<()> {
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
    let tags: Vec<String> = version.tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
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
        tags.join(" "),
    ];
    fields.iter().map(|field| quoted(field)).collect::<Vec<_>>().join(",")
}

/// A field of CSV. Characters with an effect on a terminal are escaped, line breaks too. Where a
/// spreadsheet would take the text for a formula, an apostrophe comes before it.
fn quoted(field: &str) -> String {
    let guard = if field.starts_with(['=', '+', '-', '@']) { "'" } else { "" };
    let field = Shown(field).to_string();
    match guard.is_empty() && !field.contains([',', '"', '\'', ' ']) {
        true => field,
        false => format!("\"{guard}{}\"", field.replace('"', "\"\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_csv_are_quoted_where_they_must_be() {
        for (field, written) in [
            ("plain", "plain"),
            ("", ""),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("=1+2", "\"'=1+2\""),
            ("a b", "\"a b\""),
        ] {
            assert_eq!(quoted(field), written, "{field}");
        }
        assert!(!quoted("a\nb").contains('\n'));
    }
}
