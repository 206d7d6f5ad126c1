//! Shares over SMB: smbd, which the server supervises, and smbclient.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::share::{files, local, mounts, run, serve};
use crate::support;
use crate::support::{Place, Server, installed};

/// A server that serves SMB, and the port.
fn served(place: &Place) -> (Server, u16) {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    place.edit_config(|text| text.replace("[smb]\n", &format!("[smb]\nlisten = \"127.0.0.1:{port}\"\n")));
    (serve(place), port)
}

/// Waits until smbd serves the share, and gives root a password.
fn ready(place: &Place, port: u16, share: &str) {
    let configuration = place.path("smb/smb.conf");
    support::wait_for("smbd to serve the share", || {
        let written = std::fs::read_to_string(&configuration).is_ok_and(|text| text.contains(&format!("[{share}]")));
        (written && std::net::TcpStream::connect(("127.0.0.1", port)).is_ok()).then_some(())
    });
    let mut password = Command::new("smbpasswd");
    password.args(["-L", "-s", "-c", &configuration, "-a", "root"]).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut password = password.spawn().unwrap();
    password.stdin.take().unwrap().write_all(b"secret\nsecret\n").unwrap();
    assert!(password.wait().unwrap().success());
}

#[test]
fn smb_clients_reach_a_share_and_commit_its_files() {
    if !mounts() || !installed(&["smbd", "--version"]) || !installed(&["smbclient", "--version"]) {
        return;
    }
    let place = Place::new("share-smb");
    place.pool(5);
    let (server, port) = served(&place);
    place.json(&["share", "create", "records", "--cache", "64MiB", "--retention", "compliance:30d"]);
    ready(&place, port, "records");
    let (ledger, bytes) = local(&place, "ledger", 5, 200_000);
    let back = place.path("back");
    let client = |commands: &str| {
        run("smbclient", &["//127.0.0.1/records", "-p", &port.to_string(), "-U", "root%secret", "-c", commands])
    };
    let done = client(&format!("put {ledger} ledger; get ledger {back}; setmode ledger +r"));
    assert!(done.status.success(), "{done:?}");
    assert!(std::fs::read(&back).unwrap() == bytes, "the file read over SMB differs");
    support::wait_for("the file to be locked", || (files(&place, "records")[0]["state"] == "locked").then_some(()));
    // Read-only first, and a date behind it: so Samba does a request with both.
    place.json(&["share", "create", "dated", "--cache", "64MiB", "--lock"]);
    let dated = |commands: &str| {
        run("smbclient", &["//127.0.0.1/dated", "-p", &port.to_string(), "-U", "root%secret", "-c", commands])
    };
    support::wait_for("smbd to serve the other share", || dated("ls").status.success().then_some(()));
    let done = dated(&format!("put {ledger} deed; setmode deed +r; utimes deed -1 2033:05:18-03:33:20 -1 -1"));
    assert!(done.status.success(), "{done:?}");
    assert_eq!(files(&place, "dated")[0]["retained_until"], "2033-05-18T03:33:20.000Z");
    // The networks of a share bind new connections of SMB, too.
    place.json(&["share", "set", "records", "--allow", "10.9.9.0/24"]);
    support::wait_for("smbd to refuse this machine", || (!client("ls").status.success()).then_some(()));
    let share = place.json(&["share", "set", "records", "--allow", "127.0.0.0/8"]);
    assert_eq!(share["smb"], format!("127.0.0.1:{port}"));
    support::wait_for("smbd to let this machine in again", || client("ls").status.success().then_some(()));
    let _ = client("del ledger");
    assert_eq!(files(&place, "records").len(), 1, "a committed file was deleted over SMB");
    server.stop();
    support::wait_for("smbd to end", || std::net::TcpStream::connect(("127.0.0.1", port)).is_err().then_some(()));
}

/// A client stays connected, and smbd goes to the share's directory by its path.
#[test]
fn what_smb_clients_send_to_a_removed_share_is_stored_nowhere() {
    if !mounts() || !installed(&["smbd", "--version"]) || !installed(&["smbclient", "--version"]) {
        return;
    }
    let place = Place::new("share-smb-removed");
    place.pool(5);
    let (server, port) = served(&place);
    place.json(&["share", "create", "scratch", "--cache", "64MiB", "--mode", "0777"]);
    ready(&place, port, "scratch");
    let (letter, _) = local(&place, "letter", 1, 1000);
    let mut client = Command::new("timeout");
    client.args(["120", "smbclient", "//127.0.0.1/scratch", "-p", &port.to_string(), "-U", "root%secret"]);
    let mut client = client.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut orders = client.stdin.take().unwrap();
    for (order, count) in [(format!("put {letter} letter"), 1), ("del letter".to_owned(), 0)] {
        writeln!(orders, "{order}").unwrap();
        support::wait_for(&order, || (files(&place, "scratch").len() == count).then_some(()));
    }
    place.json(&["share", "remove", "scratch", "--yes"]);
    let directory = place.path("smb/mounts/scratch");
    support::wait_for("the share to be unmounted", || std::fs::metadata(&directory).is_err().then_some(()));
    writeln!(orders, "put {letter} letter\nquit").unwrap();
    drop(orders);
    client.wait().unwrap();
    assert!(std::fs::metadata(&directory).is_err(), "a file of a removed share is in the data directory");
    server.stop();
}
