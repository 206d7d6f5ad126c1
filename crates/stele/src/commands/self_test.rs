//! `stele self-test`: what must be refused, tried on canary objects.

use stele_ground::Shown;
use stele_server::api::archive as calls;
use stele_server::config::Site;
use stele_server::failure::{Failure, Kind, Outcome};

use crate::commands::archive::ask;
use crate::commands::print_json;
use crate::output::{Align, Table};

pub async fn run(site: &Site, json: bool, bucket: Option<String>) -> Outcome<()> {
    let results = ask(site, calls::SelfTest { bucket }).await?;
    if json {
        print_json(&results)?;
    } else {
        show(&results);
    }
    let tested = results.iter().filter(|result| result.skipped.is_none());
    if tested.clone().any(|result| !result.passed()) {
        return Err(Failure::new(
            Kind::Damaged,
            "the store did not refuse what it must refuse, or a canary is damaged",
        )
        .next("keep the pool as it is, and report the answers"));
    }
    match results.iter().find(|result| result.skipped.is_some()) {
        Some(result) => Err(Failure::new(
            Kind::Refused,
            format!(
                "bucket {} was not tested: {}",
                Shown(&result.bucket),
                Shown(result.skipped.as_deref().unwrap_or(""))
            ),
        )),
        None => Ok(()),
    }
}

fn show(results: &[stele_archive::SelfTest]) {
    if results.is_empty() {
        println!("No bucket has Object Lock, so nothing was tested.");
    }
    for result in results {
        println!("bucket {}", Shown(&result.bucket));
        if let Some(why) = &result.skipped {
            println!("  not tested: {}", Shown(why));
            continue;
        }
        let mut table = Table::new(&[("through", Align::Left), ("attempt", Align::Left), ("answer", Align::Left)]);
        for attempt in &result.attempts {
            let answer = if attempt.refused { "refused" } else { "ALLOWED" };
            table.row(vec![attempt.through.clone(), attempt.what.clone(), answer.into()]);
        }
        for line in table.render().lines() {
            println!("  {line}");
        }
        println!("  the canary is {}", if result.intact { "intact" } else { "NOT INTACT" });
        if let Some(record) = result.record {
            println!("  record {record} of the audit log states the result");
        }
    }
}
