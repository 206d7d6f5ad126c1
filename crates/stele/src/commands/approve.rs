//! `stele approve`: lists, approves and refuses the requests that need two retention officers.

use stele_archive::RequestInfo;
use stele_server::api::approval as calls;
use stele_server::config::Site;
use stele_server::connection::read_officer;
use stele_server::failure::{Failure, Outcome};

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
        print!("{}", table(&waiting));
        return Ok(());
    };
    if !approve.yes && !approve.refuse {
        let known = waiting.iter().find(|request| request.id == id).ok_or_else(|| {
            Failure::missing(format!("no request `{id}` waits for approval: it was never made, or is void"))
                .next("`stele approve` lists the requests that wait")
        })?;
        confirm(&format!("Request {id}: {}. Shall it happen?", known.says), "--yes")?;
    }
    let done = ask(site, calls::ApproveRequest { id: id.clone(), officer, refuse: approve.refuse }).await?;
    if json {
        return print_json(&done);
    }
    println!("{}", done.done);
    Ok(())
}

/// Nothing of a request is cut: an officer must read all of what is to be approved.
fn table(waiting: &[RequestInfo]) -> String {
    let heads = ["request", "asked by", "void from", "what happens"];
    let mut table = Table::new(&heads.map(|head| (head, Align::Whole)));
    for RequestInfo { id, asked_by, expires, says, .. } in waiting {
        table.row(vec![id.clone(), asked_by.clone(), expires.clone(), says.clone()]);
    }
    table.render()
}

/// Shows an officer the request, and which officers have to agree.
pub fn asked(json: bool, asked: &RequestInfo) -> Outcome<()> {
    if json {
        return print_json(asked);
    }
    println!("Asked with request {}: {}", asked.id, asked.says);
    println!("Another officer, as another user of this machine: stele approve {} --officer FILE", asked.id);
    println!("It is void from {} on.", asked.expires);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The tables of tests have 80 columns.
    #[test]
    fn what_is_to_be_approved_is_shown_whole() {
        let request = |says: &str| RequestInfo {
            id: "7k2m9xqa".into(),
            says: says.into(),
            asked_by: "key STELE7QK2M5X4R9VWB3C".into(),
            expires: "2026-11-24T02:30:00Z".into(),
            alone_from: None,
        };
        let long =
            "the version records/2026/ledger.pdf@7f3a09c2e4b1d8650193f3c2aa57e01b is deleted in spite of GOVERNANCE";
        for says in ["short", long] {
            let text = table(&[request(says)]);
            assert!(text.contains(says) && !text.contains('\u{2026}'), "{text}");
        }
    }
}
