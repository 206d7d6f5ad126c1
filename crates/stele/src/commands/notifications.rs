//! `stele notifications`: shows how far the targets are behind, and deletes events that no target
//! takes any more.

use stele_ground::{Shown, are, counted};
use stele_server::api::notifications as calls;
use stele_server::config::Site;
use stele_server::failure::Outcome;

use crate::cli::notifications::Notifications;
use crate::commands::archive::ask;
use crate::commands::print_json;
use crate::output::{Align, Table};

pub async fn run(site: &Site, json: bool, command: Notifications) -> Outcome<()> {
    match command {
        Notifications::List => {
            let views = ask(site, calls::NotificationsList {}).await?;
            if json {
                return print_json(&views);
            }
            let mut table = Table::new(&[
                ("target", Align::Whole),
                ("configured", Align::Left),
                ("waiting", Align::Right),
                ("oldest", Align::Whole),
                ("dropped", Align::Right),
                ("last dropped", Align::Whole),
                ("buckets", Align::Left),
            ]);
            let or_none = |text: Option<String>| text.unwrap_or_else(|| "none".to_owned());
            for view in views {
                table.row(vec![
                    view.target,
                    if view.configured { "yes" } else { "no" }.to_owned(),
                    view.pending.to_string(),
                    or_none(view.oldest),
                    view.dropped.to_string(),
                    or_none(view.last_dropped),
                    view.buckets.join(", "),
                ]);
            }
            print!("{}", table.render());
        }
        Notifications::Forget { target } => {
            let view = ask(site, calls::NotificationsForget { target }).await?;
            if json {
                return print_json(&view);
            }
            let deleted = counted(view.deleted, "event");
            println!("{deleted} for {} {} deleted", Shown(&view.target), are(view.deleted));
        }
    }
    Ok(())
}
