use stele_server::api::pool::StandingView;

use super::render::tests::full;
use super::*;

/// A status as a running server sends it: fields that stay in the server are lost.
fn sent(status: &StatusView) -> StatusView {
    serde_json::from_value(serde_json::to_value(status).expect("JSON")).expect("a status")
}

#[test]
fn a_client_sees_that_moves_are_put_off_and_why() {
    let mut status = full();
    (status.unreadable_stripes, status.lost_stripes) = (0, 0);
    let begin = Instant::now();
    let mut standstill = Standstill::default();
    for after in [Duration::ZERO, STANDSTILL] {
        assert!(!standstill.is_seen(&sent(&status), begin + after), "nothing keeps it from its end");
    }
    status.standing.push(StandingView {
        kind: "moving-put-off".to_owned(),
        subject: "pool".to_owned(),
        since: 0,
        message: "no room for another row of 2+1".to_owned(),
        done: String::new(),
        next: String::new(),
    });
    let status = sent(&status);
    let mut standstill = Standstill::default();
    assert!(!standstill.is_seen(&status, begin));
    assert!(standstill.is_seen(&status, begin + STANDSTILL));
    assert_eq!(hindrance(&status, None), "no room for another row of 2+1");
}

#[test]
fn a_move_that_has_counted_nothing_yet_shows_no_full_bar() {
    let work = ProgressView { done: 0, total: 0, rate: 0, seconds_left: None, seconds_running: 0 };
    assert!(describe(&work).starts_with(&format!("{} 0 %", bar(0, 1))), "{}", describe(&work));
    assert!(!describe(&work).contains('#'));
}

/// It said to write the entry by hand, on the disk that was full.
#[test]
fn a_replacement_on_a_full_data_directory_is_told_to_make_room() {
    use std::io::{Error, ErrorKind};
    let told = |kind: ErrorKind| {
        let path = Path::new("/srv/stele/stele.toml");
        undone(stele_server::failure::io_failure("write", path, &Error::from(kind)), "add it there by hand")
    };
    let full = told(ErrorKind::StorageFull);
    assert!(full.next.contains("make room") && full.next.ends_with("then repeat the command"), "{full}");
    assert!(full.error.ends_with("and nothing was done") && !full.next.contains("by hand"), "{full}");
    assert_eq!(told(ErrorKind::PermissionDenied).next, "add it there by hand");
}
