//! `stele approve`: lists, approves and refuses the requests that need two retention officers.

use std::path::Path;

use crate::api::approval as calls;
use crate::cli::show::Approve;
use crate::commands::archive::ask;
use crate::commands::{confirm, print_json};
use crate::config::Site;
use crate::connection::show;
use crate::failure::{Failure, Outcome, io_failure};
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

/// An officer's key, from the file that only the officer can read. It is shown with all calls that
/// follow.
pub fn read_officer(path: &Path) -> Outcome<calls::Officer> {
    let text = std::fs::read_to_string(path).map_err(|error| io_failure("read the officer's key", path, &error))?;
    // The text is a secret: the error names the file and quotes nothing of it.
    let officer = serde_json::from_str(text.trim()).map_err(|_| {
        Failure::usage(format!("{} is not an access key", path.display()))
            .next("it holds access_key and secret_key, as `stele key create --json` prints them")
    })?;
    show(&officer);
    Ok(officer)
}
