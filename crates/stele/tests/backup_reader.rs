//! `contrib/read-backup.py`, a second reader that was written from FORMAT/backup.md alone. It
//! restores what `stele backup` saved, and finds the damage that `stele backup verify` finds.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::backup::{backup, every_kind, place, same};
use crate::backup_commands::{code, damage, text};
use crate::support::{Place, Server, clients, content, installed};

type Keys = Option<(String, String)>;

/// Whether Python and the packages of the reader are on this machine.
fn has_reader() -> bool {
    installed(&["python3", "-c", "import blake3, boto3, cryptography, zstandard"])
}

/// Runs the second reader with a file as password. Gives the lines that it prints.
#[track_caller]
fn read(expected: i32, repository: &str, keys: &Keys, password: &str, arguments: &[&str]) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib/read-backup.py");
    let mut command = Command::new("python3");
    command.arg(script).args([repository, "--password-file", password]).args(arguments);
    command.env("PATH", clients()).stdin(Stdio::null());
    if let Some((access, secret)) = keys {
        command.env("AWS_ACCESS_KEY_ID", access).env("AWS_SECRET_ACCESS_KEY", secret);
        command.env("AWS_DEFAULT_REGION", "us-east-1");
    }
    let output = command.output().unwrap();
    let (said, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(expected), "{arguments:?}: {said}\n{errors}");
    said.lines().map(str::to_owned).collect()
}

/// Files whose pieces are in lists, and a tree of several chunks.
fn long_lists(place: &Place) {
    let islands = std::fs::File::create(place.path("files/islands")).unwrap();
    for number in 0..4200_u64 {
        islands.write_all_at(&number.to_le_bytes(), number * 8192).unwrap();
    }
    islands.set_len(4200 * 8192 + 777).unwrap();
    std::fs::create_dir(place.path("files/links")).unwrap();
    for number in 0..600 {
        symlink(format!("{number}{}", "x".repeat(3900)), place.path(&format!("files/links/{number:03}"))).unwrap();
    }
}

#[test]
fn a_second_reader_restores_what_was_saved() {
    if !has_reader() {
        return;
    }
    let place = place("backup-reader");
    every_kind(&place);
    long_lists(&place);
    let (repository, data) = (place.path("repository"), place.path("files"));
    let run = |arguments: &[&str]| code(&backup(&place, &repository, None, arguments), 0);
    let save = || run(&["run", &data, "--json"])["snapshot"].as_str().unwrap().to_owned();
    run(&["init", "--label", "\u{e4} label"]);
    let first = save();
    run(&["restore", &format!("{first}:{data}"), "--to", &place.path("before")]);
    std::fs::write(place.path("files/0/file 4"), content(7, 2_000_000)).unwrap();
    std::fs::remove_file(place.path("files/1/file 3")).unwrap();
    let second = save();
    std::fs::write(place.path("files/0/passing"), content(8, 10_000)).unwrap();
    let third = save();
    std::fs::remove_file(place.path("files/0/passing")).unwrap();
    run(&["forget", &third]);
    (0..3).for_each(|_| drop(run(&["prune"])));
    let last = save();
    std::fs::write(place.path("new"), " battery\tstaple\r\nsecond line\n").unwrap();
    run(&["key", "add", "--new-password-file", &place.path("new")]);
    run(&["key", "export", "--to", &place.path("escrow")]);

    let reader = |expected: i32, password: &str, arguments: &[&str]| {
        read(expected, &repository, &None, &place.path(password), arguments)
    };
    for password in ["password", "new", "escrow"] {
        assert_eq!(reader(0, password, &["verify"]), [""; 0], "{password}");
    }
    std::fs::write(place.path("wrong"), "another\n").unwrap();
    reader(1, "wrong", &["snapshots"]);
    let listed = reader(0, "new", &["snapshots"]);
    assert!(listed.len() == 3 && listed.iter().any(|line| line.starts_with(&second)), "{listed:?}");
    // The tree of the reader has the whole path.
    let restored = |id: &str| {
        let to = place.path(&format!("to-{id}"));
        assert_eq!(reader(0, "escrow", &["restore", id, &to]), [""; 0]);
        format!("{to}{data}")
    };
    same(&place.path("before"), &restored(&first));
    same(&data, &restored(&last[..12]));
    let part = place.path("part");
    reader(0, "password", &["restore", "latest", &part, &format!("{data}/1")]);
    same(&place.path("files/1"), &format!("{part}{data}/1"));
    assert!(!std::fs::exists(format!("{part}{data}/0")).unwrap());
}

/// The objects of a folder of the repository.
fn objects(place: &Place, folder: &str) -> Vec<PathBuf> {
    let list = |path: &Path| std::fs::read_dir(path).unwrap().flatten().map(|entry| entry.path()).collect::<Vec<_>>();
    let found = list(place.path(&format!("repository/{folder}")).as_ref());
    found.into_iter().flat_map(|path| if path.is_dir() { list(&path) } else { vec![path] }).collect()
}

#[test]
fn both_readers_name_the_same_damage() {
    if !has_reader() {
        return;
    }
    let place = place("backup-reader-damage");
    let (repository, data) = (place.path("repository"), place.path("files"));
    let run = |expected: i32, arguments: &[&str]| code(&backup(&place, &repository, None, arguments), expected);
    run(0, &["init"]);
    run(0, &["run", &data]);
    std::fs::write(place.path("files/0/more"), content(9, 50_000)).unwrap();
    run(0, &["run", &data]);
    run(0, &["prune"]);
    let reader = |expected: i32| read(expected, &repository, &None, &place.path("password"), &["verify"]);
    let both = |what: &str| {
        let found = run(5, &["verify", "--data", "--json"]);
        let short = |of: &serde_json::Value| of["snapshot"].as_str().unwrap()[..8].to_owned();
        let lost = found["lost"].as_array().unwrap().iter();
        let lost: BTreeSet<_> = lost.map(|one| (short(one), one["path"].as_str().unwrap().to_owned())).collect();
        let lines = reader(1);
        let files = lines.iter().filter_map(|line| line.strip_prefix("snapshot ")?.split_once(": "));
        let files = files.filter_map(|(id, rest)| Some((id.to_owned(), rest.split_once(": ")?.0.to_owned())));
        assert_eq!(files.collect::<BTreeSet<_>>(), lost, "{what}: {lines:?}");
        assert!(lines.len() > lost.len(), "{what}: the object is not named: {lines:?}");
    };
    for folder in ["segments", "snapshots", "epochs"] {
        for path in objects(&place, folder) {
            let (whole, times) = (std::fs::read(&path).unwrap(), path.metadata().unwrap().modified().unwrap());
            for at in [20, whole.len() / 2, whole.len().saturating_sub(60), whole.len() - 5] {
                damage(&path, at);
                both(&format!("{} byte {at}", path.display()));
                std::fs::write(&path, &whole).unwrap();
            }
            std::fs::File::open(&path).unwrap().set_modified(times).unwrap();
            // Marks of a check.
            let _ = std::fs::remove_dir_all(place.path("repository/damaged"));
        }
    }
    assert_eq!(reader(0), [""; 0]);
    run(0, &["verify", "--data"]);
}

#[test]
fn a_second_reader_reads_a_bucket() {
    if !has_reader() {
        return;
    }
    let place = place("backup-reader-bucket");
    let server: Server = place.up();
    code(&place.stele(&["bucket", "create", "backups", "--lock"]), 0);
    let (keys, data) = (Some(server.keys()), place.path("files"));
    for prefix in ["/laptop", ""] {
        let repository = format!("s3+http://{}/backups{prefix}", server.address);
        let run = |arguments: &[&str]| code(&backup(&place, &repository, keys.clone(), arguments), 0);
        run(&["init", "--keep-for", "1d"]);
        run(&["run", &data]);
        let reader = |arguments: &[&str]| read(0, &repository, &keys, &place.path("password"), arguments);
        assert_eq!(reader(&["verify"]), [""; 0]);
        let to = place.path(&format!("to{}", prefix.len()));
        reader(&["restore", "latest", &to]);
        same(&data, &format!("{to}{data}"));
    }
}
