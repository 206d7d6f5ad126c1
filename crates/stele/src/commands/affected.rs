//! `stele affected`: the objects, volumes and snapshots that unreadable stripes damage.

use stele_ground::{Bytes, counted};
use stele_server::api::affected::{AffectedObject, AffectedView, ListAffected};
use stele_server::config::Site;
use stele_server::connection::Connection;
use stele_server::failure::{Failure, Kind, Outcome};

use crate::commands::print_json;
use crate::output::{Align, Table};

/// Number of objects shown unless `--all` is given.
const SHOWN: u64 = 20;

pub async fn run(site: &Site, json: bool, all: bool) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    let limit = if all || json { u64::MAX } else { SHOWN };
    let view = connection.call(ListAffected { limit }).await;
    connection.leave().await?;
    let view = view?;
    if json {
        print_json(&view)?;
    } else {
        print!("{}", render(&view));
    }
    match view.unreadable_stripes {
        0 => Ok(()),
        count => Err(Failure::new(Kind::Damaged, format!("{} cannot be read", counted(count, "stripe")))
            .next("return missing drives; restore what stays unreadable from elsewhere")),
    }
}

fn render(view: &AffectedView) -> String {
    if view.unreadable_stripes == 0 {
        return "Everything that is stored can be read.\n".to_owned();
    }
    let mut volumes = Table::new(&[
        ("volume", Align::Left),
        ("kind", Align::Left),
        ("owner", Align::Left),
        ("unreadable", Align::Right),
        ("of it lost", Align::Right),
        ("ranges", Align::Right),
    ]);
    for volume in &view.volumes {
        volumes.row(vec![
            volume.name.clone(),
            volume.kind.clone(),
            volume.owner.clone().unwrap_or_default(),
            Bytes(volume.unreadable_bytes).to_string(),
            Bytes(volume.lost_bytes).to_string(),
            volume.ranges.len().to_string(),
        ]);
    }
    let mut text = volumes.render();
    if view.objects_total == 0 {
        text.push_str("\nNo object lies there.\n");
        return text;
    }
    text.push_str(&format!("\n{} object versions lie there, in part or whole:\n\n", view.objects_total));
    let mut objects = Table::new(&[("object", Align::Left), ("version", Align::Left), ("size", Align::Right)]);
    for AffectedObject { version, path } in &view.objects {
        // The answer is safe to display already (`stele_server::said::answered`): to escape it
        // again would change names.
        let name = format!("{}/{}", version.bucket, path.as_ref().unwrap_or(&version.key));
        let size = if version.content { Bytes(version.bytes).to_string() } else { "its note only".to_owned() };
        objects.row(vec![name, version.version.clone(), size]);
    }
    text.push_str(&objects.render());
    let more = view.objects_total.saturating_sub(view.objects.len() as u64);
    if more > 0 {
        text.push_str(&format!("and {more} more: stele affected --all\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use stele_archive::Affected as Version;

    use super::*;

    #[test]
    fn names_are_escaped_once_and_files_of_shares_have_their_paths() {
        let version = |bucket: &str, key: &str| Version {
            bucket: bucket.to_owned(),
            key: key.to_owned(),
            version: "1".to_owned(),
            bytes: 1,
            content: true,
        };
        let object = |version, path: Option<&str>| AffectedObject { version, path: path.map(str::to_owned) };
        let view = AffectedView {
            unreadable_stripes: 1,
            lost_stripes: 0,
            volumes: Vec::new(),
            objects: vec![
                object(version("records", "it's \"a\\b\"\n\u{1b}[2J"), None),
                object(version("files", "0000000000000007"), Some("2026/ledger\n.pdf")),
            ],
            objects_total: 2,
        };
        let text = render(&stele_server::said::safe(view).unwrap());
        for name in [r#"records/it's "a\b"\n\u{1b}[2J  1"#, r"files/2026/ledger\n.pdf "] {
            assert!(text.contains(name), "{name}: {text}");
        }
        assert!(!text.contains("0000000000000007"), "{text}");
    }
}
