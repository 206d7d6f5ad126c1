//! Damage of a repository and its remedies, names with any bytes, and arguments without effect.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;

use crate::backup::{backup, place, proxy};
use crate::backup_commands::{Desk, code, damage, text};
use crate::support::{Server, wait_for};

#[test]
fn damaged_keys_are_named_and_the_last_good_one_stays() {
    let desk = Desk::new("commands-keys");
    desk.run(0, &["init"]);
    let first = desk.run(0, &["key", "list", "--json"])[0]["key"].as_str().unwrap().to_owned();
    let new = desk.write("new", "battery staple\n");
    let second = desk.run(0, &["key", "add", "--new-password-file", &new, "--json"]);
    let second = second["key"].as_str().unwrap();
    desk.run(0, &["verify"]);
    let path = PathBuf::from(desk.place.path(&format!("repository/keys/{second}")));
    // A byte of the salt: the object has the form of a key.
    damage(&path, 30);
    let found = desk.run(5, &["verify", "--json"]);
    let keys = found["damaged_keys"].as_array().unwrap();
    assert_eq!((keys.len(), &keys[0]["key"]), (1, &second.into()));
    let found = desk.run(5, &["verify", "--without-password", "--json"]);
    assert_eq!(found["damaged_keys"][0]["key"], second);
    desk.says(5, &["1 fault", "stele backup key remove"], &["verify"]);
    desk.says(0, &[second, "opens nothing"], &["key", "list"]);
    // The password of the only good key takes that away under no circumstances.
    desk.says(3, &["a key that stays"], &["key", "remove", &first]);
    desk.run(0, &["key", "remove", second]);
    desk.says(3, &["the last key"], &["key", "remove", &first]);
    desk.run(0, &["verify"]);
    desk.run(0, &["key", "add", "--new-password-file", &new]);
    desk.run(0, &["key", "remove", &first, "--password-file", &new]);
    desk.run(12, &["snapshots"]);
}

#[test]
fn repaired_damage_and_a_lost_snapshot_have_their_own_remedies() {
    let desk = Desk::new("commands-remedies");
    desk.run(0, &["init"]);
    desk.save(&[]);
    // Content alone: the tree has times of directories that other tests change.
    let is_content = |path: &PathBuf| std::fs::read(path).unwrap()[8] == 0;
    let content: Vec<PathBuf> = desk.segments().into_iter().filter(is_content).collect();
    content.iter().for_each(|path| damage(path, 60));
    desk.says(5, &["save the same files again with `stele backup run`"], &["verify", "--data"]);
    let second = desk.save(&[]);
    desk.says(5, &["content of 1 snapshot again", "nothing is to be repaired"], &["verify", "--data"]);
    desk.run(0, &["verify"]);
    damage(&desk.place.path(&format!("repository/snapshots/{second}")).into(), 60);
    let output = desk.command(&["verify"]).output().unwrap();
    code(&output, 5);
    let said = text(&output.stderr);
    assert!(said.contains("stele backup forget ID") && !said.contains("stele backup run"), "{said}");
}

#[test]
fn names_that_are_no_utf_8_are_saved_found_and_restored() {
    let desk = Desk::new("commands-bytes");
    desk.run(0, &["init"]);
    let odd = |before: &str, after: &str| OsString::from_vec([before.as_bytes(), b"n\xffx", after.as_bytes()].concat());
    let path = odd(&format!("{}/", desk.files), "");
    std::fs::write(&path, "odd").unwrap();
    let run = |arguments: &[&str], odd: &[OsString]| {
        let output = desk.command(arguments).args(odd).output().unwrap();
        code(&output, 0);
        text(&output.stdout)
    };
    run(&["run"], std::slice::from_ref(&path));
    let from = odd(&format!("latest:{}/", desk.files), "");
    assert!(run(&["ls"], std::slice::from_ref(&from)).lines().count() == 1);
    run(&["restore", "--to", &desk.place.path("restored")], &[from]);
    assert_eq!(std::fs::read(odd(&format!("{}/", desk.place.path("restored")), "")).unwrap(), b"odd");
    assert!(run(&["find"], &[odd("", "")]).lines().count() == 1);
    let excludes = desk.place.path("excludes");
    std::fs::write(&excludes, odd("\u{feff}", "\r\n").into_vec()).unwrap();
    for more in [&["--exclude".into(), odd("./", "")], &["--exclude-file".into(), excludes.into()]] {
        let saved: Value = serde_json::from_str(&run(&["run", &desk.files, "--json"], more)).unwrap();
        assert_eq!(saved["files"], 3);
    }
}

#[test]
fn a_listing_goes_on_behind_a_part_of_the_tree_that_is_lost() {
    let desk = Desk::new("commands-ls");
    desk.run(0, &["init"]);
    // Links with long targets make a tree of several chunks.
    let target = "x".repeat(3900);
    for number in 0..900 {
        std::os::unix::fs::symlink(&target, desk.place.path(&format!("files/{number:04}"))).unwrap();
    }
    let id = desk.save(&[]);
    let is_tree = |path: &PathBuf| std::fs::read(path).unwrap()[8] == 1;
    desk.segments().iter().filter(|path| is_tree(path)).for_each(|path| damage(path, 60));
    let output = desk.command(&["ls", &id]).output().unwrap();
    code(&output, 5);
    let (listed, said) = (text(&output.stdout).lines().count(), text(&output.stderr));
    assert!((1..900).contains(&listed), "{listed}");
    assert!(said.contains("a part of the tree is lost") && said.contains("stele backup verify"), "{said}");
}

#[test]
fn a_mount_shows_what_is_left_of_a_tree() {
    let desk = Desk::new("commands-mount-lost");
    desk.run(0, &["init"]);
    let target = "x".repeat(3900);
    for number in 0..900 {
        std::os::unix::fs::symlink(&target, desk.place.path(&format!("files/{number:04}"))).unwrap();
    }
    let id = desk.save(&[]);
    let is_tree = |path: &PathBuf| std::fs::read(path).unwrap()[8] == 1;
    desk.segments().iter().filter(|path| is_tree(path)).for_each(|path| damage(path, 60));
    let listed = text(&desk.command(&["ls", &id, "--json"]).output().unwrap().stdout);
    let paths =
        listed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()?["path"].as_str().map(str::to_owned));
    let within = format!("{}/", desk.files);
    let members = paths.filter_map(|path| path.strip_prefix(&within).map(str::to_owned));
    let expected: BTreeSet<String> = members.filter(|name| !name.contains('/')).collect();
    assert!((1..900).contains(&expected.len()), "{}", expected.len());
    let to = desk.place.path("mounted");
    std::fs::create_dir(&to).unwrap();
    let mut mount = desk.command(&["mount", &to, "--json"]);
    let mut mounted = mount.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(mounted.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line.is_empty() {
        let said = text(&mounted.wait_with_output().unwrap().stderr);
        assert!(said.contains("needs root"), "{said}");
        println!("left out: {said}");
        return;
    }
    // The entries of the directories above were lost with the first part of the tree.
    let place = format!("{to}/latest{}", desk.files);
    let (mut shown, mut failed) = (BTreeSet::new(), None);
    for member in std::fs::read_dir(&place).unwrap() {
        match member {
            Ok(member) => drop(shown.insert(member.file_name().into_string().unwrap())),
            Err(error) => failed = error.raw_os_error(),
        }
    }
    let last = expected.iter().rfind(|name| name.len() == 4).unwrap();
    let link = std::fs::read_link(format!("{place}/{last}"));
    let stopped = Command::new("kill").arg(mounted.id().to_string()).status().unwrap();
    assert!(stopped.success() && mounted.wait().unwrap().success());
    assert_eq!((shown == expected, failed), (true, Some(5)), "{} of {} files", shown.len(), expected.len());
    assert_eq!(link.unwrap(), PathBuf::from(&target));
}

#[test]
fn a_link_that_is_named_is_told() {
    let desk = Desk::new("commands-link");
    desk.run(0, &["init"]);
    let link = desk.place.path("link");
    std::os::unix::fs::symlink("files", &link).unwrap();
    desk.says(0, &["is a symbolic link", "a slash behind it"], &["run", &link]);
    assert_eq!(desk.run(0, &["run", &link, "--json"])["files"], 0);
    assert_eq!(desk.run(0, &["run", &format!("{link}/"), "--json"])["files"], 3);
    assert_eq!(desk.run(0, &["run", &desk.files, "--json"])["files_read"], 0, "it is the same series");
}

#[test]
fn arguments_without_effect_are_refused() {
    let desk = Desk::new("commands-refused");
    desk.run(0, &["init"]);
    let id = desk.save(&[]);
    let to = desk.place.path("restored");
    desk.says(4, &["neither snapshot has /typo"], &["diff", &id, "latest", "--path", "/typo"]);
    desk.run(0, &["diff", &id, "latest", "--path", &desk.files]);
    desk.says(2, &["--path"], &["diff", &format!("{id}:/etc"), "latest"]);
    desk.says(2, &["--snapshot"], &["find", "file 1", "--snapshot", &format!("{id}:/etc")]);
    desk.run(2, &["restore", &id, "--to", &to, "--code", "8+2"]);
    desk.run(2, &["restore", &id, "--to", &to, "--overwrite"]);
    desk.says(2, &["empty word"], &["run", &desk.files, "--tag", ""]);
    desk.says(2, &["empty word"], &["run", &desk.files, "--host", ""]);
    desk.says(2, &["empty word"], &["ls", "latest", "--host", ""]);
    desk.says(2, &["empty word"], &["forget", "--keep-tag", ""]);
    for name in ["", "a/b", "..", &"x".repeat(256)] {
        desk.says(2, &["the name of a file"], &["run", &desk.files, "--exclude-if-present", name]);
        desk.says(2, &["the name of a file"], &["run", "--stdin-name", name]);
    }
    desk.says(4, &["nodir"], &["mount", &desk.place.path("nodir")]);
    desk.says(2, &["not empty"], &["mount", &desk.files]);
    desk.says(2, &["no directory"], &["mount", &desk.place.path("password")]);
    // A place that lost its header is damaged, and no place for another repository.
    std::fs::remove_file(desk.place.path("repository/repository")).unwrap();
    let output = desk.command(&["snapshots"]).output().unwrap();
    code(&output, 5);
    let said = text(&output.stderr);
    assert!(said.contains("'repository' is lost: bring that back") && !said.contains("backup init"), "{said}");
}

#[test]
fn a_file_is_no_place_of_a_repository() {
    let desk = Desk::new("commands-place");
    let file = desk.place.path("password");
    for command in [&["init"][..], &["snapshots"], &["run", &desk.files], &["prune"], &["verify", "--without-password"]]
    {
        desk.says(2, &["password is no directory"], &[command, &["--repository", &file]].concat());
    }
}

#[test]
fn a_trial_says_what_would_be_refused() {
    let desk = Desk::new("commands-trial");
    desk.run(0, &["init"]);
    desk.save(&[]);
    let trial = ["forget", "--keep-tag", "nothing", "--dry-run"];
    desk.says(0, &["without --dry-run this is refused", "the rules keep no snapshot of"], &trial);
    let output = desk.command(&[&trial[..], &["--remove-series"]].concat()).output().unwrap();
    code(&output, 0);
    assert!(!text(&output.stderr).contains("refused"));
    desk.run(3, &trial[..3]);
}

#[test]
fn a_lost_segment_is_no_success_of_prune_or_check() {
    let desk = Desk::new("commands-lost");
    desk.run(0, &["init"]);
    let id = desk.save(&[]);
    desk.run(0, &["prune"]);
    desk.run(0, &["verify", "--without-password"]);
    let gone = desk.segments().remove(0);
    std::fs::remove_file(&gone).unwrap();
    desk.says(5, &["1 needed segment is gone", "stele backup verify"], &["prune"]);
    assert_eq!(desk.run(5, &["prune", "--json"])["lost_segments"], 1);
    desk.run(5, &["prune", "--dry-run"]);
    let found = desk.run(5, &["verify", "--without-password", "--json"]);
    let name = gone.file_name().unwrap().to_str().unwrap();
    assert_eq!(found["damaged"][0]["segment"], name, "{found}");
    // The remedy.
    desk.run(0, &["forget", &id]);
    desk.run(0, &["prune"]);
    desk.run(0, &["verify", "--without-password"]);
    std::fs::remove_dir_all(desk.place.path("repository/keys")).unwrap();
    let found = desk.run(5, &["verify", "--without-password", "--json"]);
    assert_eq!(found["damaged_objects"][0]["object"], "keys", "{found}");
}

#[test]
fn a_backup_says_that_the_store_dates_it_back() {
    let desk = Desk::new("commands-dates");
    desk.run(0, &["init"]);
    let first = desk.save(&[]);
    let said = || text(&desk.command(&["run", &desk.files]).output().unwrap().stderr);
    assert_eq!(said(), "");
    // As if the clock had been right then, and three days behind from then on.
    let path = desk.place.path(&format!("repository/snapshots/{first}"));
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(3 * 86_400);
    std::fs::File::open(path).unwrap().set_modified(later).unwrap();
    let said = said();
    assert!(said.contains("its clock was set back") && said.contains(&first[..8]), "{said}");
}

#[test]
fn a_signal_ends_a_backup_that_waits_for_its_password() {
    let desk = Desk::new("commands-password");
    desk.run(0, &["init"]);
    let begun = desk.place.path("begun");
    let asking = format!("echo $$ > {begun}.new; mv {begun}.new {begun}; exec sleep 1000");
    let mut command = desk.command(&["run", &desk.files, "--password-command", &asking]);
    let mut child = command.stderr(Stdio::null()).spawn().unwrap();
    let process: i32 = wait_for("the command", || std::fs::read_to_string(&begun).ok()).trim().parse().unwrap();
    // To the backup alone, as a service manager may do.
    assert!(Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap().success());
    let ended = wait_for("the end", || child.try_wait().unwrap());
    assert_eq!(ended.code(), Some(130));
    assert!(!std::path::Path::new(&format!("/proc/{process}")).exists(), "the command goes too");
    desk.says(2, &["more than 1048576 bytes"], &["snapshots", "--password-command", "cat /dev/zero"]);
}

#[test]
fn a_mount_ends_beside_a_read_that_waits_for_a_silent_server() {
    let place = place("backup-mount-silent");
    let server: Server = place.up();
    code(&place.stele(&["bucket", "create", "backups"]), 0);
    let (silent, address) = (Arc::new(AtomicBool::new(false)), server.address);
    let is_silent = Arc::clone(&silent);
    let proxy = proxy(move |client| {
        let upstream = TcpStream::connect(address).unwrap();
        let carry = |mut from: TcpStream, mut to: TcpStream| {
            let mut bytes = [0; 1 << 16];
            while let Ok(length @ 1..) = from.read(&mut bytes) {
                while is_silent.load(Ordering::Relaxed) {
                    std::thread::park();
                }
                let _ = to.write_all(&bytes[..length]);
            }
        };
        let (back, up) = (client.try_clone().unwrap(), upstream.try_clone().unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| carry(client, upstream));
            carry(up, back);
        });
    });
    let (repository, to) = (format!("s3+http://{proxy}/backups"), place.path("mounted"));
    std::fs::create_dir(&to).unwrap();
    let run = |arguments: &[&str]| code(&backup(&place, &repository, Some(server.keys()), arguments), 0);
    run(&["init"]);
    run(&["run", &place.path("files")]);
    let mut command = place.command(&["backup", "mount", &to, "--json"]);
    command.env("STELE_BACKUP_REPOSITORY", &repository).env("STELE_BACKUP_PASSWORD_FILE", place.path("password"));
    command.env("AWS_ACCESS_KEY_ID", &server.access_key).env("AWS_SECRET_ACCESS_KEY", &server.secret_key);
    let mut mounted = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(mounted.stdout.take().unwrap()).read_line(&mut line).unwrap();
    if line.is_empty() {
        println!("left out: mounting needs root and the kernel's module fuse");
        mounted.wait().unwrap();
        return server.kill();
    }
    silent.store(true, Ordering::Relaxed);
    let wanted = format!("{to}/latest{}/0/file 4", place.path("files"));
    let mut reader = Command::new("cat").arg(wanted).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut said = BufReader::new(mounted.stderr.take().unwrap());
    let mut line = String::new();
    said.read_line(&mut line).unwrap();
    assert!(line.contains("waiting for an answer"), "{line}");
    assert!(Command::new("kill").args(["-INT", &mounted.id().to_string()]).status().unwrap().success());
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert!(mounted.wait().unwrap().success(), "{rest}");
    assert!(rest.contains("files are still open") && !rest.contains("panicked"), "{rest}");
    assert!(!reader.wait().unwrap().success());
    server.kill();
}
