//! `stele backup` as a user meets it: into a directory, and into a bucket of a running server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use crate::support::{Place, Server, content, installed, wait_for};
use rustix::fs::SeekFrom;
use serde_json::Value;

/// A place with a password and some files.
pub fn place(name: &str) -> Place {
    let place = Place::new(name);
    std::fs::write(place.path("password"), "correct horse\n").unwrap();
    for (number, length) in [0, 1, 5000, 300_000, 3_000_000].into_iter().enumerate() {
        let path = place.path(&format!("files/{}/file {number}", number % 2));
        std::fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
        std::fs::write(path, content(number as u64, length)).unwrap();
    }
    symlink("0/file 0", place.path("files/link")).unwrap();
    std::fs::hard_link(place.path("files/0/file 2"), place.path("files/1/again")).unwrap();
    place
}

/// Adds a file of every kind, and all metadata that rsync compares. What this user or file system
/// cannot have is said.
pub fn every_kind(place: &Place) {
    let kinds = place.path("files/kinds");
    std::fs::create_dir_all(format!("{kinds}/empty")).unwrap();
    let path = |name: &str| format!("{kinds}/{name}");
    for name in ["new\nline", "tab\t \u{1f}", "\u{e4}\u{f6}\u{fc}", "-rf", "*"] {
        std::fs::write(path(name), name).unwrap();
    }
    let not_unicode: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"no\xffunicode");
    std::fs::write(std::path::Path::new(&kinds).join(not_unicode), b"x").unwrap();
    symlink("/nonexistent", path("dangling")).unwrap();
    drop(std::os::unix::net::UnixListener::bind(path("socket")).unwrap());
    let sparse = std::fs::File::create(path("sparse")).unwrap();
    sparse.set_len(10 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"in the middle", 5 << 20).unwrap();
    for name in ["modes", "attributes", "access", "owned"] {
        std::fs::write(path(name), name).unwrap();
    }
    // The owner may read and write, user 1234 and the group read.
    let entries = [(1_u16, 6_u16, u32::MAX), (2, 4, 1234), (4, 4, u32::MAX), (16, 6, u32::MAX), (32, 0, u32::MAX)];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        list.extend([&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat());
    }
    for (name, attribute, value) in [
        ("attributes", "user.origin", &b"scanner"[..]),
        ("access", "system.posix_acl_access", &list),
        ("empty", "system.posix_acl_default", &list),
    ] {
        if rustix::fs::setxattr(path(name), attribute, value, rustix::fs::XattrFlags::empty()).is_err() {
            println!("left out: {attribute}");
        }
    }
    for (name, arguments) in [
        ("a pipe", &["mkfifo", "-m", "620", "pipe"][..]),
        ("set-user and sticky bits", &["chmod", "6751", "modes"]),
        ("a sticky directory", &["chmod", "1733", "empty"]),
        ("other owners", &["chown", "-h", "1234:4321", "owned", "dangling"]),
        ("character devices", &["mknod", "-m", "600", "null", "c", "1", "3"]),
        ("block devices", &["mknod", "block", "b", "7", "200"]),
        ("old times", &["touch", "-h", "-d", "1999-12-31 23:59:59.123456789", "dangling", "owned", "pipe"]),
    ] {
        let done = Command::new(arguments[0]).args(&arguments[1..]).current_dir(&kinds).output();
        if !done.is_ok_and(|output| output.status.success()) {
            println!("left out: {name}");
        }
    }
}

#[test]
fn every_kind_of_file_comes_back_as_it_was() {
    let place = place("backup-kinds");
    every_kind(&place);
    let (repository, data, to) = (place.path("repository"), place.path("files"), place.path("restored"));
    let run = |arguments: &[&str]| backup(&place, &repository, None, arguments);
    code(&run(&["init"]), 0);
    let saved = code(&run(&["run", &data, "--json"]), 0);
    assert_eq!(saved["problems"], 0, "{saved}");
    let restored = code(&run(&["restore", &format!("latest:{data}"), "--to", &to, "--verify", "--json"]), 0);
    assert_eq!(restored["problems"], 0, "{restored}");
    same(&data, &to);
    // Holes are holes again.
    let blocks = |root: &str| {
        let sparse = std::fs::metadata(format!("{root}/kinds/sparse")).unwrap();
        std::os::unix::fs::MetadataExt::blocks(&sparse)
    };
    assert!(blocks(&to) <= blocks(&data).max(64), "{} {}", blocks(&to), blocks(&data));
    // Nothing changed, so no content is read or restored again.
    assert_eq!(code(&run(&["run", &data, "--json"]), 0)["files_read"], 0);
    let again = code(&run(&["restore", &format!("latest:{data}"), "--to", &to, "--json"]), 0);
    assert_eq!((&again["bytes"], &again["problems"]), (&0.into(), &0.into()), "{again}");
    // The target itself was there, and keeps the time of its change.
    same(&format!("{data}/kinds"), &format!("{to}/kinds"));
}

pub fn backup(place: &Place, repository: &str, keys: Option<(String, String)>, arguments: &[&str]) -> Output {
    let mut command: Command = place.command(&[&["backup"], arguments].concat());
    command.env("STELE_BACKUP_REPOSITORY", repository).env("STELE_BACKUP_PASSWORD_FILE", place.path("password"));
    command.env("XDG_CACHE_HOME", place.path("cache"));
    if let Some((access, secret)) = keys {
        command.env("AWS_ACCESS_KEY_ID", access).env("AWS_SECRET_ACCESS_KEY", secret);
    }
    command.stdin(Stdio::null()).output().unwrap()
}

#[track_caller]
fn code(output: &Output, expected: i32) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert_eq!(output.status.code(), Some(expected), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout).lines().next().map_or(Value::Null, |line| serde_json::from_str(line).unwrap_or(Value::Null))
}

/// Nothing that rsync would bring over differs: content, modes, owners, times, links, attributes.
pub fn same(first: &str, second: &str) {
    if !installed(&["rsync", "--version"]) {
        return;
    }
    let options = ["-aHAXn", "--specials", "--devices", "--checksum", "--delete", "--itemize-changes"];
    let output =
        Command::new("rsync").args(options).args([format!("{first}/"), format!("{second}/")]).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn a_directory_from_the_first_backup_to_the_last_prune() {
    let place = place("backup");
    let (repository, data) = (place.path("repository"), place.path("files"));
    let run = |arguments: &[&str]| backup(&place, &repository, None, arguments);
    assert_eq!(code(&run(&["run", &data, "--json"]), 10)["kind"], "no-repository");
    code(&run(&["init"]), 0);
    code(&run(&["init"]), 9);
    std::fs::write(place.path("wrong"), "another\n").unwrap();
    assert_eq!(
        code(&run(&["snapshots", "--json", "--password-file", &place.path("wrong")]), 12)["kind"],
        "wrong-password"
    );
    let first = code(&run(&["run", &data, "--json"]), 0);
    assert_eq!((first["files"].as_u64(), first["problems"].as_u64()), (Some(6), Some(0)));
    let second = code(&run(&["run", &data, "--json", "--tag", "second"]), 0);
    assert_eq!((second["files_read"].as_u64(), &second["parent"]), (Some(0), &first["snapshot"]));
    let to = place.path("restored");
    code(&run(&["restore", &format!("latest:{data}"), "--to", &to, "--verify"]), 0);
    same(&data, &to);
    let listed = run(&["ls", &format!("latest:{data}/1"), "--json"]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout).lines().count(), 4);
    code(&run(&["ls", "latest:/nothing"]), 4);
    code(&run(&["ls", "ffff"]), 4);
    let found = run(&["find", "file [13]"]);
    assert_eq!(String::from_utf8_lossy(&found.stdout).lines().count(), 4);
    // A second password, an escrow, and the removal of the first.
    std::fs::write(place.path("new"), "battery staple\n").unwrap();
    code(&run(&["key", "add", "--new-password-file", &place.path("new")]), 0);
    // The command line goes before the environment, which names the file of the first one.
    code(&run(&["snapshots", "--password-command", &format!("cat {}", place.path("new"))]), 0);
    code(&run(&["snapshots", "--password-command", "echo wrong"]), 12);
    code(&run(&["snapshots", "--password-command", "false", "--password-file", &place.path("new")]), 2);
    code(&run(&["key", "export", "--to", &place.path("escrow")]), 0);
    code(&run(&["key", "verify", &place.path("escrow")]), 0);
    // Rules, and removal.
    code(&run(&["forget"]), 2);
    let judged = code(&run(&["forget", "--keep-last", "1", "--json"]), 0);
    assert_eq!(judged.as_array().map(Vec::len), Some(2));
    (0..3).for_each(|_| drop(code(&run(&["prune", "--json"]), 0)));
    code(&run(&["verify", "--data"]), 0);
    // Damage is found, and the next backup repairs it.
    let mut segments = Vec::new();
    for folder in std::fs::read_dir(place.path("repository/segments")).unwrap().flatten() {
        segments.extend(std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.path()));
    }
    for path in &segments {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[60] ^= 1;
        std::fs::write(path, bytes).unwrap();
    }
    code(&run(&["verify", "--without-password"]), 5);
    code(&run(&["verify", "--data"]), 5);
    code(&run(&["run", &data]), 0);
    code(&run(&["restore", &format!("latest:{data}"), "--to", &place.path("again"), "--verify"]), 0);
    same(&data, &place.path("again"));
}

#[test]
fn a_damaged_snapshot_goes_by_its_name_and_prune_goes_on() {
    let place = place("backup-damaged");
    let (repository, data) = (place.path("repository"), place.path("files"));
    let run = |arguments: &[&str]| backup(&place, &repository, None, arguments);
    code(&run(&["init"]), 0);
    let saved = code(&run(&["run", &data, "--json"]), 0);
    let name = saved["snapshot"].as_str().unwrap();
    let path = place.path(&format!("repository/snapshots/{name}"));
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[60] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    code(&run(&["prune"]), 5);
    // Rules leave it alone; its name does not.
    code(&run(&["forget", "--keep-last", "1"]), 0);
    code(&run(&["forget", name, "--dry-run"]), 0);
    assert!(std::fs::exists(&path).unwrap());
    code(&run(&["forget", name]), 0);
    assert!(!std::fs::exists(&path).unwrap());
    code(&run(&["forget", name]), 4);
    code(&run(&["prune"]), 0);
}

#[test]
fn hooks_streams_and_patterns_do_what_the_help_says() {
    let place = place("backup-options");
    let (repository, data) = (place.path("repository"), place.path("files"));
    let run = |arguments: &[&str]| backup(&place, &repository, None, arguments);
    code(&run(&["init"]), 0);
    code(&run(&["run", &data, "--before", "false"]), 1);
    let after = format!("echo $STELE_BACKUP_EXIT > {}", place.path("after"));
    code(&run(&["run", &place.path("nowhere"), "--after", &after]), 4);
    assert_eq!(std::fs::read_to_string(place.path("after")).unwrap(), "4\n");
    // Also if the command before failed, which may have stopped a part of what it should.
    code(&run(&["run", &data, "--before", "false", "--after", &after]), 1);
    assert_eq!(std::fs::read_to_string(place.path("after")).unwrap(), "1\n");
    let some = code(&run(&["run", &data, "--exclude", "file [1-9]", "--json"]), 0);
    assert_eq!(some["files"], 2);
    // Standard input is empty here.
    let stream = code(&run(&["run", "--stdin-name", "dump.sql", "--json"]), 0);
    assert_eq!((stream["files"].as_u64(), stream["bytes"].as_u64()), (Some(1), Some(0)));
    code(&run(&["run", "--stdin-name", "a/b"]), 2);
}

#[test]
fn a_file_of_a_snapshot_goes_to_standard_output() {
    let place = place("backup-dump");
    every_kind(&place);
    let (repository, data) = (place.path("repository"), place.path("files"));
    let run = |arguments: &[&str]| backup(&place, &repository, None, arguments);
    code(&run(&["init"]), 0);
    code(&run(&["run", &data]), 0);
    let dump = |path: &str| run(&["dump", &format!("latest:{data}/{path}")]);
    for path in ["0/file 0", "1/file 1", "1/file 3", "0/file 4", "1/again", "kinds/sparse", "kinds/-rf"] {
        let output = dump(path);
        code(&output, 0);
        assert!(output.stdout == std::fs::read(format!("{data}/{path}")).unwrap(), "{path}");
    }
    for (path, exit, told) in [
        ("0", 2, "is a directory"),
        ("link", 2, "is a symbolic link to 0/file 0"),
        ("nothing", 4, "has no"),
        ("0/file 0/below", 4, "has no"),
    ] {
        let output = dump(path);
        assert!(String::from_utf8_lossy(&output.stderr).contains(told), "{output:?}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(exit), 0), "{path}");
    }
    assert_eq!(run(&["dump", "latest"]).status.code(), Some(2));
    assert_eq!(run(&["dump", &format!("latest:{data}/0/file 0"), "--json"]).status.code(), Some(2));
    // What is lost ends the output, with a code that says so.
    std::fs::remove_dir_all(format!("{repository}/segments")).unwrap();
    let output = dump("0/file 4");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(5), 0), "{output:?}");
}

#[test]
fn a_bucket_and_a_key_that_cannot_delete() {
    let place = place("backup-bucket");
    let server: Server = place.up();
    code(&place.stele(&["bucket", "create", "backups"]), 0);
    let granted = ["key", "create", "--name", "agent", "--bucket", "backups", "--access", "read,write,list"];
    let key = place.json(&granted);
    let text = |name: &str| key[name].as_str().unwrap().to_owned();
    let (agent, owner) = ((text("access_key"), text("secret_key")), server.keys());
    let (repository, data) = (format!("s3+http://{}/backups/laptop", server.address), place.path("files"));
    let run = |keys: &(String, String), arguments: &[&str]| backup(&place, &repository, Some(keys.clone()), arguments);
    code(&run(&agent, &["snapshots"]), 10);
    code(&run(&agent, &["init"]), 0);
    let first = code(&run(&agent, &["run", &data, "--json"]), 0);
    let second = code(&run(&agent, &["run", &data, "--json"]), 0);
    assert_eq!((second["files_read"].as_u64(), &second["parent"]), (Some(0), &first["snapshot"]));
    let to = place.path("restored");
    code(&run(&agent, &["restore", &format!("latest:{data}"), "--to", &to, "--verify"]), 0);
    same(&data, &to);
    // The agent's key removes neither snapshots nor content.
    let name = first["snapshot"].as_str().unwrap();
    assert_eq!(code(&run(&agent, &["forget", name, "--json"]), 3)["kind"], "refused");
    assert_eq!(code(&run(&agent, &["snapshots", "--json"]), 0).as_array().map(Vec::len), Some(2));
    code(&run(&owner, &["forget", name]), 0);
    (0..3).for_each(|_| drop(code(&run(&owner, &["prune"]), 0)));
    code(&run(&agent, &["verify", "--data"]), 0);
    // A cache that is damaged or lost changes nothing.
    std::fs::remove_dir_all(place.path("cache")).unwrap();
    assert_eq!(code(&run(&agent, &["run", &data, "--json"]), 0)["files_read"], 0);
    server.stop();
}

#[test]
fn a_locked_snapshot_outlasts_every_credential() {
    let place = place("backup-lock");
    let server: Server = place.up();
    code(&place.stele(&["bucket", "create", "vault", "--lock"]), 0);
    code(&place.stele(&["bucket", "create", "plain"]), 0);
    let key = |access: &str| {
        let key = place.json(&["key", "create", "--name", "agent", "--bucket", "vault", "--access", access]);
        let text = |name: &str| key[name].as_str().unwrap().to_owned();
        (text("access_key"), text("secret_key"))
    };
    let (agent, less, owner) = (key("read,write,list,retain"), key("read,write,list"), server.keys());
    let (repository, data) = (format!("s3+http://{}/vault/laptop", server.address), place.path("files"));
    let run = |keys: &(String, String), arguments: &[&str]| {
        next_second();
        backup(&place, &repository, Some(keys.clone()), arguments)
    };
    code(&run(&agent, &["init", "--keep-for", "30d"]), 0);
    // A snapshot without a lock, whose segments the next one needs.
    let first = code(&run(&agent, &["run", &data, "--json", "--keep-until", "none"]), 0);
    assert_eq!(first["locked_until"], Value::Null);
    std::fs::write(place.path("files/0/more"), content(9, 100_000)).unwrap();
    let second = code(&run(&agent, &["run", &data, "--json"]), 0);
    let until = second["locked_until"].as_str().unwrap().to_owned();
    let listed = code(&run(&agent, &["snapshots", "--json"]), 0);
    // Both may be of one second, so that their order is open.
    let locks: Vec<Option<&str>> = listed.as_array().unwrap().iter().map(|one| one["locked_until"].as_str()).collect();
    assert!(locks.len() == 2 && locks.contains(&None) && locks.contains(&Some(until.as_str())), "{listed}");
    // A key that may not set retention is refused before it reads a file, and so is a date that is
    // past.
    let refused = run(&less, &["run", &data]);
    // Exit code 3 would say that the snapshot was made.
    code(&refused, 1);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("retain"));
    code(&run(&agent, &["run", &data, "--keep-until", "2020-01-01"]), 2);
    // Rules and names let a locked snapshot be, and say so. What is not locked goes.
    code(&run(&owner, &["forget", "--keep-tag", "nothing"]), 3);
    assert_eq!(code(&run(&owner, &["snapshots", "--json"]), 0).as_array().map(Vec::len), Some(2));
    let judged = code(&run(&owner, &["forget", "--keep-tag", "nothing", "--remove-series", "--json"]), 0);
    let removed: Vec<bool> = judged.as_array().unwrap().iter().map(|row| row["removed"].as_bool().unwrap()).collect();
    assert_eq!((removed.iter().filter(|removed| **removed).count(), removed.len()), (1, 2), "{judged}");
    code(&run(&owner, &["forget", second["snapshot"].as_str().unwrap()]), 3);
    for _ in 0..3 {
        assert_eq!(code(&run(&owner, &["prune", "--json"]), 0)["refused"], 0);
    }
    // Everything that the snapshot needs refuses the administrator, version by version.
    let versions = server.get("/vault?prefix=laptop%2F&versions=").text();
    let part =
        |part: &str, name: &str| part.split(&format!("<{name}>")).nth(1).unwrap().split('<').next().unwrap().to_owned();
    let mut kept = 0;
    for version in versions.split("<Version>").skip(1) {
        let (key, id) = (part(version, "Key"), part(version, "VersionId"));
        let status = server.delete(&format!("/vault/{key}?versionId={id}")).status;
        let needed =
            ["/segments/", "/snapshots/", "/keys/", "/repository", "/defaults"].iter().any(|name| key.contains(name));
        assert!(!needed || status == 403, "{key} was removed: {status}");
        kept += usize::from(needed);
    }
    assert!(kept >= 6, "{versions}");
    let to = place.path("restored");
    code(&run(&agent, &["restore", &format!("latest:{data}"), "--to", &to, "--verify"]), 0);
    same(&data, &to);
    // The keys are locked too: a former password goes when the locks have ended.
    let (former, new) = (code(&run(&owner, &["key", "list", "--json"]), 0), place.path("new"));
    std::fs::write(&new, "battery staple\n").unwrap();
    code(&run(&owner, &["key", "add", "--new-password-file", &new]), 0);
    let former = former[0]["key"].as_str().unwrap();
    let removed = code(&run(&owner, &["key", "remove", former, "--password-file", &new, "--json"]), 3);
    assert!(removed["error"].as_str().unwrap().contains("retained in COMPLIANCE mode"), "{removed}");
    // Where there are no locks, a backup does not pretend.
    let plain = format!("s3+http://{}/plain", server.address);
    code(&backup(&place, &plain, Some(owner.clone()), &["init", "--keep-for", "30d"]), 2);
    code(&backup(&place, &plain, Some(owner.clone()), &["init"]), 0);
    code(&backup(&place, &plain, Some(owner), &["run", &data, "--keep-until", "30d"]), 2);
    let directory = place.path("repository");
    code(&backup(&place, &directory, None, &["init"]), 0);
    code(&backup(&place, &directory, None, &["run", &data, "--keep-until", "30d"]), 2);
    server.stop();
}

/// Stores date what they hold in whole seconds, and snapshots of one second have no order.
fn next_second() {
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let before = now();
    wait_for("the next second", || (now() > before).then_some(()));
}

/// The head and the body of one message of HTTP/1.1 with a stated length.
fn message(from: &mut BufReader<TcpStream>, bodiless: bool) -> std::io::Result<(String, Vec<u8>)> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if from.read_line(&mut head)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok()).unwrap_or(0);
    let mut body = vec![0; if bodiless { 0 } else { length }];
    from.read_exact(&mut body)?;
    Ok((head, body))
}

/// Passes requests on, and loses the first answer to a conditional PUT in each folder.
fn relay(client: TcpStream, server: SocketAddr, lost: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let (mut upstream, mut client) = (BufReader::new(TcpStream::connect(server)?), BufReader::new(client));
    loop {
        let (head, body) = message(&mut client, false)?;
        upstream.get_mut().write_all(&[head.as_bytes(), &body].concat())?;
        let (answer, content) = message(&mut upstream, head.starts_with("HEAD "))?;
        if head.starts_with("PUT ") && head.contains("if-none-match") {
            let folder = head.split(['/', ' ']).nth(4).unwrap_or_default().to_owned();
            let mut lost = lost.lock().unwrap();
            if !lost.contains(&folder) {
                lost.push(folder);
                return Ok(());
            }
        }
        client.get_mut().write_all(&[answer.as_bytes(), &content].concat())?;
    }
}

/// Passes requests on. Another prune is always faster: it has stored each new epoch before.
fn outrun(client: TcpStream, server: SocketAddr) -> std::io::Result<()> {
    let (mut upstream, mut client) = (BufReader::new(TcpStream::connect(server)?), BufReader::new(client));
    loop {
        let (head, body) = message(&mut client, false)?;
        let is_epoch = head.starts_with("PUT ") && head.contains("/epochs/");
        let mut answer = (String::new(), Vec::new());
        for _ in 0..if is_epoch { 2 } else { 1 } {
            upstream.get_mut().write_all(&[head.as_bytes(), &body].concat())?;
            answer = message(&mut upstream, head.starts_with("HEAD "))?;
        }
        client.get_mut().write_all(&[answer.0.as_bytes(), &answer.1].concat())?;
    }
}

/// Listens before a server, with a thread for each connection.
pub fn proxy(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> SocketAddr {
    let (listener, serve) = (TcpListener::bind("127.0.0.1:0").unwrap(), Arc::new(serve));
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(client));
        }
    });
    address
}

#[test]
fn of_two_prunes_at_once_the_slower_ends_with_11() {
    let place = place("backup-prunes");
    let server: Server = place.up();
    code(&place.stele(&["bucket", "create", "backups"]), 0);
    let target = server.address;
    let slow = format!("s3+http://{}/backups/laptop", proxy(move |client| drop(outrun(client, target))));
    let fast = format!("s3+http://{target}/backups/laptop");
    let run = |repository: &str, arguments: &[&str]| backup(&place, repository, Some(server.keys()), arguments);
    code(&run(&fast, &["init"]), 0);
    let saved = code(&run(&fast, &["run", &place.path("files"), "--json"]), 0);
    code(&run(&fast, &["prune"]), 0);
    assert_eq!(code(&run(&slow, &["prune", "--json"]), 11)["kind"], "locked");
    // It removed nothing, and the next one goes on.
    code(&run(&fast, &["forget", saved["snapshot"].as_str().unwrap()]), 0);
    code(&run(&fast, &["run", &place.path("files")]), 0);
    code(&run(&fast, &["prune"]), 0);
    code(&run(&fast, &["verify", "--data"]), 0);
    server.stop();
}

#[test]
fn a_lost_answer_is_no_refusal() {
    let place = place("backup-lost");
    let server: Server = place.up();
    code(&place.stele(&["bucket", "create", "backups"]), 0);
    let (lost, target) = (Arc::new(Mutex::new(Vec::new())), server.address);
    let shared = Arc::clone(&lost);
    let proxy = proxy(move |client| drop(relay(client, target, &shared)));
    let repository = format!("s3+http://{proxy}/backups/laptop");
    let run = |arguments: &[&str]| backup(&place, &repository, Some(server.keys()), arguments);
    code(&run(&["init"]), 0);
    code(&run(&["run", &place.path("files")]), 0);
    let mut folders = lost.lock().unwrap().clone();
    folders.sort();
    assert_eq!(folders, ["keys", "repository", "segments", "sessions", "snapshots"]);
    // An object of another writer is still a refusal.
    code(&run(&["init"]), 9);
    server.stop();
}

#[test]
fn a_mount_shows_every_snapshot() {
    let place = place("backup-mount");
    let (repository, data, to) = (place.path("repository"), place.path("files"), place.path("mounted"));
    std::fs::create_dir(&to).unwrap();
    std::fs::File::create(place.path("files/sparse")).unwrap().set_len(10 << 20).unwrap();
    let holes = std::fs::File::create(place.path("files/holes")).unwrap();
    holes.set_len(10 << 20).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&holes, &content(9, 4096), 6 << 20).unwrap();
    let run = |arguments: &[&str]| {
        next_second();
        backup(&place, &repository, None, arguments)
    };
    code(&run(&["init"]), 0);
    let first = code(&run(&["run", &data, "--json"]), 0);
    std::fs::remove_file(place.path("files/0/file 4")).unwrap();
    code(&run(&["run", &data]), 0);
    let mut command = place.command(&["backup", "mount", &to, "--json"]);
    command.env("STELE_BACKUP_REPOSITORY", &repository).env("STELE_BACKUP_PASSWORD_FILE", place.path("password"));
    let mut mounted = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(mounted.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line.is_empty() {
        let output = mounted.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains("needs root"), "{text}");
        println!("left out: {text}");
        return;
    }
    let latest = format!("{to}/latest{data}");
    // Content and metadata; hard links are files of their own in a mount.
    if installed(&["rsync", "--version"]) {
        let options = ["-aAXn", "--checksum", "--delete", "--itemize-changes"];
        let output =
            Command::new("rsync").args(options).args([format!("{data}/"), format!("{latest}/")]).output().unwrap();
        assert!(output.status.success() && output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    }
    let sparse = std::fs::metadata(format!("{latest}/sparse")).unwrap();
    assert_eq!((sparse.len(), sparse.blocks()), (10 << 20, 0), "a hole takes no space");
    let (saved, shown) = (std::fs::File::open(format!("{data}/holes")), std::fs::File::open(format!("{latest}/holes")));
    let (saved, shown) = (saved.unwrap(), shown.unwrap());
    for place in [SeekFrom::Data(0), SeekFrom::Hole(0), SeekFrom::Hole(6 << 20), SeekFrom::Data(8 << 20)] {
        assert_eq!(rustix::fs::seek(&shown, place), rustix::fs::seek(&saved, place), "{place:?}");
    }
    let diff = Command::new("diff").args(["-r", "--no-dereference", &data, &latest]).output().unwrap();
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
    // The first snapshot still has the file, by its id and by its date.
    let id = first["snapshot"].as_str().unwrap();
    let old = std::fs::read(format!("{to}/ids/{}{data}/0/file 4", &id[..8])).unwrap();
    assert_eq!(old, content(4, 3_000_000));
    let dates: Vec<_> = std::fs::read_dir(format!("{to}/dates")).unwrap().flatten().collect();
    assert_eq!((dates.len(), std::fs::read_dir(format!("{to}/ids")).unwrap().count()), (2, 2));
    assert!(dates.iter().all(|date| std::fs::metadata(date.path()).unwrap().is_dir()));
    let copy = place.path("copy");
    let copied = Command::new("cp").args(["-a", &format!("{to}/ids/{id}{data}"), &copy]).output().unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    assert!(std::fs::write(format!("{latest}/new"), b"").is_err());
    assert!(std::fs::remove_file(format!("{latest}/0/file 0")).is_err());
    // As a terminal that is closed ends it.
    let stopped = Command::new("kill").args(["-HUP", &mounted.id().to_string()]).status().unwrap();
    assert!(stopped.success() && mounted.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(&to).unwrap().count(), 0);
}
