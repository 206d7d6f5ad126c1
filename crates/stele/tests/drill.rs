//! The restore drill: a machine is lost and its drives move into another machine. The backup of the
//! configuration makes that machine the server.

use std::os::unix::fs::PermissionsExt;

use crate::support;
use crate::support::Place;

#[test]
fn a_new_machine_serves_the_drives_of_a_lost_one() {
    let lost = Place::new("drill-lost");
    lost.pool(4);
    lost.edit_config(|text| text.replace("[iscsi]\n", "[iscsi]\nlisten = \"127.0.0.1:0\"\n"));
    std::fs::write(lost.0.join("chap"), "a long secret indeed\n").unwrap();
    std::fs::write(lost.0.join("phrase"), "correct horse battery staple\n").unwrap();
    std::fs::write(lost.0.join("short"), "short\n").unwrap();
    let server = lost.serve();
    let keys = server.keys();
    lost.json(&["bucket", "create", "records", "--lock", "--retention", "compliance:7y"]);
    server.put("/records/ledger", b"kept for seven years");
    let retained = lost.json(&["why", "records/ledger"])["retained_until"].clone();
    lost.json(&["volume", "create", "vm1", "--code", "mirror-2", "--size", "16MiB"]);
    lost.json(&["volume", "export", "vm1", "--iscsi", "--chap-user", "host", "--chap-secret", &lost.path("chap")]);
    let (backup, phrase) = (lost.path("backup"), lost.path("phrase"));
    lost.refused(
        2,
        &["fewer than 12"],
        &["config", "export", "--to", &backup, "--passphrase-file", &lost.path("short")],
    );
    let made = lost.json(&["config", "export", "--to", &backup, "--passphrase-file", &phrase]);
    assert_eq!(made["master_key"], true, "{made}");
    lost.refused(9, &["there already"], &["config", "export", "--to", &backup, "--passphrase-file", &phrase]);
    // Other users cannot read the backup, and it shows no secret.
    let about = std::fs::metadata(&backup).unwrap();
    assert_eq!(about.permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&backup).unwrap();
    let master = std::fs::read_to_string(lost.0.join("master.key")).unwrap();
    assert!(!text.contains(master.trim()) && !text.contains("a long secret indeed"));
    let handed = String::from_utf8(lost.stele(&["audit", "show"]).stdout).unwrap();
    assert!(handed.contains("ExportMasterKey"), "the log knows that the key was handed out: {handed}");
    server.stop();
    lost.refused(
        7,
        &["no server runs"],
        &["config", "export", "--to", &lost.path("later"), "--passphrase-file", &phrase],
    );

    // The drives come into another machine, under other names.
    let new = Place::new("drill-new");
    for (number, name) in ["p", "q", "r", "s"].iter().enumerate() {
        std::fs::rename(lost.0.join(format!("d{number}.img")), new.0.join(name)).unwrap();
    }
    std::fs::write(new.0.join("other"), "another horse battery staple\n").unwrap();
    let dir = Place(new.0.join("data"));
    let drives: Vec<String> =
        (0..4).map(|number| format!("{}@{number}", new.path(["p", "q", "r", "s"][number]))).collect();
    let (wrong, right) = (new.path("other"), phrase.clone());
    let import_with = |phrase: &str| {
        let mut arguments = vec!["config", "import", backup.as_str(), "--passphrase-file", phrase];
        drives.iter().for_each(|drive| arguments.extend(["--drive", drive.as_str()]));
        dir.stele(&arguments)
    };
    let refused = import_with(&wrong);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    assert!(!dir.0.exists(), "nothing is written before all is known to be right");
    let done = import_with(&right);
    assert!(done.status.success(), "{done:?}");
    for secret in ["master.key", "exports.json"] {
        let mode = std::fs::metadata(dir.0.join(secret)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{secret}");
    }
    // An interrupted import can be repeated; files with other contents are left alone.
    assert!(import_with(&right).status.success());
    std::fs::write(dir.0.join("exports.json"), "{}").unwrap();
    let refused = import_with(&right);
    assert_eq!(refused.status.code(), Some(9), "{refused:?}");
    assert_eq!(std::fs::read_to_string(dir.0.join("exports.json")).unwrap(), "{}");
    std::fs::remove_file(dir.0.join("exports.json")).unwrap();
    assert!(import_with(&right).status.success());

    let server = dir.serve().with_keys(keys);
    let why = dir.json(&["why", "records/ledger"]);
    assert_eq!((&why["protected"], &why["retained_until"]), (&true.into(), &retained), "{why}");
    assert_eq!(server.get("/records/ledger").body, b"kept for seven years");
    let exports = dir.json(&["export", "list"]);
    assert_eq!(
        (&exports[0]["served"], &exports[0]["iscsi"]["chap"]["user"]),
        (&true.into(), &"host".into()),
        "{exports}"
    );
    // Signed heads came along, and the log contains them.
    assert!(std::fs::read_dir(dir.0.join("heads")).unwrap().count() > 0);
    assert_eq!(dir.json(&["audit", "verify"])["findings"].as_array().map(Vec::len), Some(0));
    server.stop();
}

#[test]
fn a_backup_that_was_changed_is_refused() {
    let place = Place::new("drill-changed");
    place.pool(3);
    std::fs::write(place.0.join("phrase"), "correct horse battery staple\n").unwrap();
    let server = place.serve();
    let (backup, phrase) = (place.path("backup"), place.path("phrase"));
    support::wait_for("a signed head", || {
        let sent = std::fs::read_dir(place.0.join("heads")).ok()?.flatten();
        sent.map(|head| head.path()).find(|head| head.extension().is_some_and(|ending| ending == "head"))
    });

    place.json(&["config", "export", "--to", &backup, "--passphrase-file", &phrase]);
    server.stop();
    let text = std::fs::read_to_string(&backup).unwrap();
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let new = Place(place.0.join("new"));
    let refused = |what: &str, value: &serde_json::Value| {
        std::fs::write(&backup, value.to_string()).unwrap();
        let output = new.stele(&["config", "import", &backup, "--passphrase-file", &phrase]);
        assert_eq!(output.status.code(), Some(3), "{what}: {output:?}");
        assert!(!new.0.exists(), "{what}");
    };
    // A backup without heads would hide that a pool was rolled back.
    let heads = value["open"]["files"].take();
    value["open"]["files"] = serde_json::json!([]);
    refused("heads taken away", &value);
    value["open"]["files"] = heads;
    let configuration = value["open"]["configuration"].as_str().unwrap().to_owned();
    value["open"]["configuration"] =
        configuration.replace("catalog_volume = \"catalog\"", "catalog_volume = \"older\"").into();
    refused("another catalog", &value);
    value["open"]["configuration"] = configuration.into();
    value["open"]["files"][0]["path"] = "../outside".into();
    refused("a file outside", &value);
}

/// A pool with a served archive, and a backup of its configuration.
fn backed_up(name: &str) -> Place {
    let place = Place::new(name);
    place.pool(3);
    std::fs::write(place.0.join("phrase"), "correct horse battery staple\n").unwrap();
    let server = place.serve();
    let export = ["config", "export", "--passphrase-file", &place.path("phrase"), "--to"];
    // Nothing is handed out before the file can be written.
    place.refused(4, &["nowhere"], &[&export[..], &[place.path("nowhere/backup").as_str()]].concat());
    let audit = || String::from_utf8(place.stele(&["audit", "show"]).stdout).unwrap();
    assert!(!audit().contains("ExportMasterKey"), "{}", audit());
    place.json(&[&export[..], &[place.path("backup").as_str()]].concat());
    assert!(audit().contains("ExportMasterKey"), "{}", audit());
    server.stop();
    place
}

#[test]
fn an_import_goes_where_the_server_looks() {
    let lost = backed_up("drill-home");
    // As a package: the configuration in one folder names a data directory elsewhere.
    let package = Place::new("drill-package");
    let (etc, data) = (package.0.join("etc"), package.0.join("data"));
    std::fs::create_dir_all(&etc).unwrap();
    let config = etc.join("stele.toml");
    std::fs::write(&config, format!("data = \"{}\"\n[pool]\ndrives = []\n", data.display())).unwrap();
    let import = |place: &[&str]| {
        let mut command = package.command(&["config", "import", &lost.path("backup")]);
        command.args(["--passphrase-file", &lost.path("phrase")]).args(place).output().unwrap()
    };
    let with_config = ["--config", config.to_str().unwrap()];
    let done = import(&with_config);
    assert!(done.status.success(), "{done:?}");
    assert!(data.join("heads").is_dir() && data.join("master.key").exists() && !etc.join("heads").exists());
    let text = std::fs::read_to_string(&config).unwrap();
    assert!(text.contains(&format!("data = \"{}\"", data.display())), "{text}");
    // It is repeated, and the commands take the data that came along.
    assert!(import(&with_config).status.success());
    let status = package.command(&["pool", "status"]).args(with_config).output().unwrap();
    assert!(status.status.success(), "{status:?}");
}

#[test]
fn root_imports_nothing_that_the_server_could_not_read() {
    use std::os::unix::fs::chown;
    // Only root could do that.
    let place = Place::new("drill-owner");
    if chown(&place.0, Some(12345), None).is_err() {
        return;
    }
    let lost = backed_up("drill-owned");
    let backup = lost.path("backup");
    let import = ["config", "import", &backup, "--passphrase-file", &lost.path("phrase")];
    place.refused(3, &["user 12345", "runuser"], &import);
    assert_eq!(std::fs::read_dir(&place.0).unwrap().count(), 0);
}
