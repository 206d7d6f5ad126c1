//! `stele affected`: the objects, volumes and snapshots that unreadable stripes damage.

use stele_ground::Bytes;

use crate::api::affected::{Affected, AffectedView};
use crate::commands::print_json;
use crate::config::Site;
use crate::connection::Connection;
use crate::failure::{Failure, Kind, Outcome};
use crate::output::{Align, Table};

/// Number of objects shown unless `--all` is given.
const SHOWN: u64 = 20;

pub async fn run(site: &Site, json: bool, all: bool) -> Outcome<()> {
    let connection = Connection::find(site).await?;
    let limit = if all || json { u64::MAX } else { SHOWN };
    let view = connection.call(Affected { limit }).await;
    connection.leave().await?;
    let view = view?;
    if json {
        print_json(&view)?;
    } else {
        print!("{}", render(&view));
    }
    match view.unreadable_stripes {
        0 => Ok(()),
        count => Err(Failure::new(Kind::Damaged, format!("{count} stripes cannot be read"))
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
    for version in &view.objects {
        // The key is untrusted text: the client that stored the object chose it.
        let name: String = format!("{}/{}", version.bucket, version.key).escape_debug().collect();
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
