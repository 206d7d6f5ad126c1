//! `stele act`: lists how many people acts take, and asks for stricter rules.

use stele_archive::People;
use stele_server::api::acts as calls;
use stele_server::config::Site;
use stele_server::connection::read_officer;
use stele_server::failure::Outcome;

use crate::cli::act::{self, Act};
use crate::commands::approve::asked;
use crate::commands::archive::ask;
use crate::commands::print_json;
use crate::output::{Align, Table};

pub async fn run(site: &Site, json: bool, command: Act) -> Outcome<()> {
    match command {
        Act::List { officer } => {
            officer.officer.as_deref().map(read_officer).transpose()?;
            let rules = ask(site, calls::ActList {}).await?;
            if json {
                return print_json(&rules);
            }
            let mut table = Table::new(&[("act", Align::Left), ("people", Align::Left), ("what it is", Align::Left)]);
            for rule in rules {
                table.row(vec![rule.act.to_string(), rule.people.to_string(), rule.says]);
            }
            print!("{}", table.render());
            Ok(())
        }
        Act::Restrict { act, to, officer } => {
            let people = match to {
                act::People::Two => People::Two,
                act::People::Off => People::Off,
            };
            let officer = read_officer(&officer)?;
            asked(json, &ask(site, calls::ActRestrict { act, people, officer }).await?)
        }
    }
}
