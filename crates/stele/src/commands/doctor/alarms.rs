//! The standing alarms of a server that runs. Without one there is no finding: the pool is not
//! opened.

use std::collections::BTreeSet;
use std::time::Duration;

use stele_ground::counted;
use stele_server::api::pool::{ShowPool, StandingView};
use stele_server::config::Site;
use stele_server::connection::Connection;
use tokio::net::UnixStream;

use super::{Finding, Verdict};

const CHECK: &str = "alarms";
/// Time limit for the server's answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Alarms that are named.
const NAMED_MAX: usize = 5;

pub async fn standing(site: &Site) -> Option<Finding> {
    let socket = site.socket();
    UnixStream::connect(&socket).await.ok()?;
    let asked = async { Connection::Server(socket).call(ShowPool {}).await };
    Some(match tokio::time::timeout(PATIENCE, asked).await {
        Ok(Ok(status)) => of(&status.standing),
        Ok(Err(failure)) => Finding::new(
            CHECK,
            Verdict::Unknown,
            format!("the server does not say which alarms stand: {}", failure.error),
            "`stele pool status` as the user that the server runs as",
        ),
        Err(_) => Finding::new(
            CHECK,
            Verdict::Wrong,
            format!("the server runs, and did not say how the pool is within {} s", PATIENCE.as_secs()),
            "see the server's log: its drives may hang",
        ),
    })
}

fn of(standing: &[StandingView]) -> Finding {
    let names: BTreeSet<String> = standing.iter().map(|alarm| format!("{} ({})", alarm.kind, alarm.subject)).collect();
    if names.is_empty() {
        return Finding::good(CHECK, "no alarm stands");
    }
    let more = match names.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let first: Vec<&str> = names.iter().take(NAMED_MAX).map(String::as_str).collect();
    let count = counted(standing.len() as u64, "standing alarm");
    let next = "`stele pool status` shows each with its next step";
    Finding::new(CHECK, Verdict::Warning, format!("{count}: {}{more}", first.join(", ")), next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alarm(kind: &str, subject: &str) -> StandingView {
        StandingView {
            kind: kind.to_owned(),
            subject: subject.to_owned(),
            since: 0,
            message: String::new(),
            done: String::new(),
            next: String::new(),
        }
    }

    #[test]
    fn standing_alarms_are_a_warning_that_names_them() {
        assert_eq!(of(&[]).verdict, Verdict::Good);
        let one = of(&[alarm("drive-missing", "drive 3")]);
        assert_eq!(
            (one.verdict, one.message.as_str()),
            (Verdict::Warning, "1 standing alarm: drive-missing (drive 3)")
        );
        let many: Vec<StandingView> = (0..7).map(|number| alarm("drive-slow", &format!("drive {number}"))).collect();
        let told = of(&many).message;
        assert!(
            told.starts_with("7 standing alarms: drive-slow (drive 0), ") && told.ends_with(" and 2 more"),
            "{told}"
        );
    }
}
