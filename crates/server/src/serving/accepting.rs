//! Listeners that get no connection, as where the process has no descriptor left.
//!
//! A listener waits a moment and tries again, for as long as it takes. All listeners together write
//! one line a minute, so that a lack that lasts does not fill the log.

use std::io::{Error, ErrorKind};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::seldom::Seldom;

const AGAIN: Duration = Duration::from_millis(50);

static FAILURES: Seldom = Seldom::new(1);

/// Notes why `accept` failed, and waits until it may be tried again.
pub async fn pause(error: &Error) {
    if let Some(line) = told(&FAILURES, error, Instant::now()) {
        tracing::warn!("{line}");
    }
    tokio::time::sleep(AGAIN).await;
}

/// The line for the log, if it is time for one.
fn told(failures: &Seldom, error: &Error, now: Instant) -> Option<String> {
    // The peer gave up first: nothing is wrong here.
    if error.kind() == ErrorKind::ConnectionAborted {
        return None;
    }
    let (true, untold) = failures.count(now) else { return None };
    let more = if untold > 0 { format!("; {untold} more attempts failed since") } else { String::new() };
    let is_short = matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE));
    let next = if is_short { "; raise LimitNOFILE of the service, or `ulimit -n`; see `stele doctor`" } else { "" };
    Some(format!("cannot accept a connection: {error}{more}{next}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::seldom::TOLD_WITHIN;

    #[test]
    fn a_lack_of_descriptors_is_one_line_a_minute() {
        let (failures, begun) = (Seldom::new(1), Instant::now());
        let error = Error::from_raw_os_error(24);
        let lines: Vec<String> =
            (0..2400).filter_map(|turn| told(&failures, &error, begun + turn * TOLD_WITHIN / 1200)).collect();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("Too many open files") && lines[0].contains("LimitNOFILE"), "{lines:?}");
        assert!(lines[1].contains("1199 more attempts"), "{lines:?}");
    }

    #[test]
    fn a_peer_that_gave_up_is_no_news() {
        let error = Error::from(ErrorKind::ConnectionAborted);
        assert_eq!(told(&Seldom::new(1), &error, Instant::now()), None);
    }
}
