//! `stele approve`: lists, approves and refuses the requests that need two retention officers.

use stele_server::api::approval as calls;
use stele_server::config::Site;
use stele_server::connection::read_officer;
use stele_server::failure::Outcome;

use crate::cli::show::Approve;
use crate::commands::archive::ask;
use crate::commands::{confirm, print_json};
use crate::output::{Align, Table};

pub async fn run(site: &Site, json: bool, approve: Approve) -> Outcome<()> {
    let officer = approve.officer.as_deref().map(read_officer).transpose()?;
    let waiting = ask(site, calls::ListRequests {}).await?;
    let Some(id) = approve.request else {
        if json {
            return print_json(&waiting);
        }
        let mut table = Table::new(&[
            ("request", Align::Whole),
            ("asked by", Align::Left),
            ("void from", Align::Whole),
            ("what happens", Align::Left),
        ]);
        for request in waiting {
            table.row(vec![request.id, request.asked_by, request.expires, request.says]);
        }
        print!("{}", table.render());
        return Ok(());
    };
    if !approve.yes && !approve.refuse {
        let known = waiting.iter().find(|request| request.id == id);
        let says = known.map_or("its effect is unknown", |request| request.says.as_str());
        confirm(&format!("Request {id}: {says}. Shall it happen?"), "--yes")?;
    }
    let done = ask(site, calls::ApproveRequest { id: id.clone(), officer, refuse: approve.refuse }).await?;
    if json {
        return print_json(&done);
    }
    println!("{}", done.done);
    Ok(())
}

/// Shows an officer the request, and which officers have to agree.
pub fn asked(json: bool, asked: &stele_archive::RequestInfo) -> Outcome<()> {
    if json {
        return print_json(asked);
    }
    println!("Asked with request {}: {}", asked.id, asked.says);
    println!("Another officer, as another user of this machine: stele approve {} --officer FILE", asked.id);
    println!("It is void from {} on.", asked.expires);
    Ok(())
}
