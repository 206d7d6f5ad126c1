//! Rights of buckets and keys on the command line, and the acts of two officers together.

use crate::support::Place;

#[test]
fn buckets_and_keys_get_what_their_flags_say() {
    let place = Place::new("rights");
    place.pool(5);
    let server = place.serve();
    let ledgers = ["bucket", "create", "ledgers", "--lock", "--retention", "governance:1d"];
    let made = place.json(&[&ledgers[..], &["--protection", "compliance", "--expiry", "delete"]].concat());
    assert_eq!((made["protection"].as_str(), made["expiry"].as_str()), (Some("compliance"), Some("delete")), "{made}");
    // At this level new retention is COMPLIANCE, whatever the client requests.
    let version = server.put("/ledgers/key", b"data").header("x-amz-version-id").unwrap();
    let mode = server.get(&format!("/ledgers/key?versionId={version}")).header("x-amz-object-lock-mode");
    assert_eq!(mode.as_deref(), Some("COMPLIANCE"));
    let made = place.json(&["bucket", "create", "drafts", "--lock", "--expiry", "notify"]);
    assert_eq!((made["protection"].as_str(), made["expiry"].as_str()), (Some("governance"), Some("notify")), "{made}");
    place.refused(2, &["'never'", "keep, delete, notify"], &["bucket", "create", "bad", "--lock", "--expiry", "never"]);
    place.refused(
        2,
        &["basic, governance, compliance"],
        &["bucket", "create", "bad", "--lock", "--protection", "high"],
    );
    place.refused(2, &["--lock"], &["bucket", "create", "bad", "--expiry", "delete"]);
    place.refused(4, &["bad"], &["bucket", "show", "bad"]);

    let key = place.json(&["key", "create", "--name", "scanner", "--bucket", "drafts", "--access", "write,list"]);
    let text = |name: &str| key[name].as_str().unwrap().to_owned();
    let scanner = (text("access_key"), text("secret_key"));
    let listed = String::from_utf8(place.stele(&["key", "list"]).stdout).unwrap();
    assert!(listed.contains("drafts/: write, list"), "{listed}");
    let by = |method: &str, target: &str| server.send(server.ask(method, target).by(&scanner).body("x")).status;
    assert_eq!((by("PUT", "/drafts/key"), by("GET", "/drafts?list-type=2")), (200, 200));
    assert_eq!((by("GET", "/drafts/key"), by("DELETE", "/drafts/key"), by("PUT", "/ledgers/key")), (403, 403, 403));
    place.refused(2, &["read, write, delete, list, retain"], &["key", "create", "--access", "everything"]);
}

/// The rights of a key in every bucket.
fn may(key: &serde_json::Value) -> String {
    let words = |grant: &serde_json::Value| {
        assert!(grant["bucket"].is_null() && grant["prefix"] == "", "{grant}");
        grant["access"].as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    key["grants"].as_array().unwrap().iter().flat_map(words).collect::<Vec<_>>().join(",")
}

#[test]
fn keys_get_no_more_than_their_office_needs() {
    let place = Place::new("least");
    place.pool(5);
    let _server = place.serve();
    for (role, grants) in [
        ("user", "read,write,delete,list"),
        ("retention-officer", "read,list,retain"),
        ("auditor", "read,list"),
        ("storage-administrator", ""),
    ] {
        place.json(&["key", "create", "--name", role, "--role", role]);
        let listed = place.json(&["key", "list"]);
        let made = listed.as_array().unwrap().iter().find(|key| key["name"] == role).unwrap();
        assert_eq!(may(made), grants, "{role}");
        assert_eq!(made["bypass_governance"], false);
    }
    // One key may have several roles on request; the list shows all of its rights.
    place.json(&["key", "create", "--name", "both", "--role", "storage-administrator,auditor", "--bypass-governance"]);
    let listed = place.json(&["key", "list"]);
    let both = listed.as_array().unwrap().iter().find(|key| key["name"] == "both").unwrap();
    assert_eq!(both["roles"].to_string(), "[\"storage-administrator\",\"auditor\",\"user\"]");
    assert_eq!(may(both), "read,list");
    let table = String::from_utf8(place.stele(&["key", "list"]).stdout).unwrap();
    let line = table.lines().find(|line| line.contains("both")).unwrap();
    assert!(line.contains("*/: read, list; bypass GOVERNANCE"), "{table}");
    place.refused(
        2,
        &["--role retention-officer"],
        &["key", "create", "--officers-lost", "--role", "auditor,retention-officer"],
    );
    // One key never has the two roles that control each other.
    place.refused(2, &["two people"], &["key", "create", "--role", "storage-administrator,retention-officer"]);
    // The help lists the values that a command accepts.
    let help = |arguments: &[&str]| String::from_utf8(place.stele(arguments).stdout).unwrap();
    let key = help(&["key", "create", "--help"]);
    assert!(
        ["storage-administrator", "retention-officer", "auditor", "user", "retain"]
            .iter()
            .all(|word| key.contains(word))
    );
    let bucket = help(&["bucket", "create", "--help"]);
    assert!(["basic", "governance", "compliance", "keep", "delete", "notify"].iter().all(|word| bucket.contains(word)));
    assert!(help(&["--help"]).contains("8 drives did not answer"));
    place.refused(2, &["possible values", "auditor"], &["key", "create", "--role", "emperor"]);
}

#[test]
fn what_clients_do_wrong_is_no_error_of_the_server() {
    let place = Place::new("mistakes");
    place.pool(5);
    let server = place.serve();
    let status = |method: &str, target: &str, body: &str| server.send(server.ask(method, target).body(body)).status;
    assert_eq!(status("GET", "/nowhere", ""), 404);
    assert_eq!(status("PUT", "/UPPER", ""), 400);
    assert_eq!(status("PUT", "/made", ""), 200);
    assert_eq!(status("PUT", "/made?versioning", "<Other>a secret of the client's</Other>"), 400);
    // The end of the server writes the rest of its log.
    server.stop();
    let log = place.log();
    assert!(!log.contains("ERROR") && !log.contains("secret of the client"), "{log}");
}

#[test]
fn nobody_else_connects_to_the_socket_of_the_administrator() {
    use std::os::unix::fs::{FileTypeExt, PermissionsExt};
    let place = Place::new("socket");
    place.pool(5);
    let _server = place.serve();
    let socket = std::fs::metadata(place.0.join("stele.sock")).unwrap();
    assert!(socket.file_type().is_socket());
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    assert!(!place.0.join("stele.new").exists(), "the folder in which it was bound is gone");
    // Only root can act as another user, who may not even know whether a server runs.
    if std::os::unix::fs::MetadataExt::uid(&socket) == 0 {
        let output = as_user(&place, 54_321, None, &["upgrade", "check"]);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert_eq!(output.status.code(), Some(3), "{said}");
        assert!(said.contains("Permission denied") && !said.contains("no server"), "{said}");
    }
}

/// Runs a command as another user of this machine, with an officer's key or without.
fn as_user(place: &Place, uid: u32, key: Option<&str>, arguments: &[&str]) -> std::process::Output {
    use std::os::unix::process::CommandExt;
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_stele"));
    command.uid(uid).current_dir("/").env_remove("STELE_OFFICER");
    command.args(["--dir", place.0.to_str().unwrap()]).args(arguments);
    key.map(|key| command.env("STELE_OFFICER", key));
    command.output().unwrap()
}

#[test]
fn an_officers_user_reads_nothing_without_a_valid_key() {
    const USER: u32 = 54_321;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let place = Place::new("officers-read");
    // Only root can act as another user.
    if std::fs::metadata(&place.0).unwrap().uid() != 0 {
        return;
    }
    place.pool(5);
    place.edit_config(|text| text.replace("[admin]\n", &format!("[admin]\nofficers = [{USER}]\n")));
    let _server = place.serve();
    let key = |name: &str, role: &str| {
        let key = place.json(&["key", "create", "--name", name, "--role", role]);
        let path = place.path(&format!("{name}.json"));
        std::fs::write(&path, key.to_string()).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        (path, key["access_key"].as_str().unwrap().to_owned())
    };
    let (anna, id) = key("anna", "retention-officer");
    let (clerk, _) = key("clerk", "user");
    let reads: [&[&str]; 7] = [
        &["find", "--bucket", "records"],
        &["matter", "list"],
        &["class", "list"],
        &["disposal", "status"],
        &["disposal", "list"],
        &["act", "list"],
        &["approve"],
    ];
    for arguments in reads {
        for (what, shown) in [("no key", None), ("a clerk's", Some(clerk.as_str()))] {
            let output = as_user(&place, USER, shown, arguments);
            assert_eq!(output.status.code(), Some(3), "{what}: {arguments:?}: {output:?}");
        }
    }
    let listed = |key: &str| as_user(&place, USER, Some(key), &["act", "list"]);
    assert!(listed(&anna).status.success(), "{:?}", listed(&anna));
    // There is no bucket `records`: the search is admitted, and finds none.
    for (arguments, code) in [(&["approve"][..], 0), (&["act", "list"], 0), (&["find", "--bucket", "records"], 4)] {
        let read = as_user(&place, USER, None, &[arguments, &["--officer", &anna]].concat());
        assert_eq!(read.status.code(), Some(code), "{arguments:?}: {read:?}");
    }
    let approve = ["approve", "none", "--officer", &anna, "--yes"];
    let output = as_user(&place, USER, None, &approve);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("no request `none`"), "--officer is enough: {said}");
    place.json(&["key", "revoke", &id]);
    assert_eq!(listed(&anna).status.code(), Some(3), "revoked: {:?}", listed(&anna));
}

#[test]
fn what_takes_two_people_is_not_done_by_one() {
    let place = Place::new("two-people");
    place.pool(5);
    let server = place.serve();
    let officer = |name: &str| {
        let key = place.json(&["key", "create", "--name", name, "--role", "retention-officer"]);
        let path = place.path(&format!("{name}.json"));
        std::fs::write(&path, key.to_string()).unwrap();
        (path, key["awaits"].as_str().map(str::to_owned))
    };
    let ((anna, none), (ben, neither), (cleo, asked)) = (officer("anna"), officer("ben"), officer("cleo"));
    assert_eq!((none, neither), (None, None), "the first set-up");
    let asked = asked.unwrap();
    let waiting = place.json(&["approve"]);
    assert!(
        waiting[0]["id"] == asked.as_str() && waiting[0]["says"].as_str().unwrap().contains("(\"cleo\")"),
        "{waiting}"
    );
    // The same local user asked, so another officer's key does not help.
    place.refused(3, &["another person approves"], &["approve", &asked, "--officer", &anna, "--yes"]);
    place.refused(3, &["no retention officer"], &["approve", &asked, "--yes"]);
    place.refused(3, &["not approved yet"], &["approve", &asked, "--officer", &cleo, "--yes"]);
    let forged = std::fs::read_to_string(&ben).unwrap().replace("secret_key\":\"", "secret_key\":\"x");
    std::fs::write(place.0.join("forged.json"), forged).unwrap();
    place.refused(3, &["secret"], &["approve", &asked, "--officer", &place.path("forged.json"), "--yes"]);
    let last = place.json(&["audit", "show", "--limit", "1"]);
    assert!(last["refused"].as_str().unwrap().contains("the secret is another"), "{last}");
    place.refused(2, &["--yes"], &["approve", &asked, "--officer", &ben]);
    place.json(&["approve", &asked, "--refuse", "--officer", &ben]);
    assert_eq!(place.json(&["approve"]).as_array().map(Vec::len), Some(0));
    // An officer can ask to count the closed time; another person must approve.
    server.stop();
    let server = place.serve();
    let credit = place.json(&["clock", "credit", "--officer", &anna])["id"].as_str().unwrap().to_owned();
    place.refused(3, &["another person approves"], &["approve", &credit, "--officer", &ben, "--yes"]);
    place.json(&["approve", &credit, "--refuse", "--officer", &ben]);
    place.refused(3, &["secret"], &["clock", "credit", "--officer", &place.path("forged.json")]);
    let last = place.json(&["audit", "show", "--limit", "1"]);
    assert!(last["refused"].as_str().unwrap().contains("the secret is another"), "{last}");
    place.refused(2, &["--officer"], &["clock", "credit"]);
    // Lost officers are replaced after a month, and an alarm stands until then.
    let lost = ["key", "create", "--name", "new", "--role", "retention-officer", "--officers-lost"];
    let asked = place.json(&lost)["awaits"].as_str().unwrap().to_owned();
    place.refused(3, &["it takes until"], &["approve", &asked, "--yes"]);
    let standing = place.json(&["pool", "status"])["standing"].to_string();
    assert!(standing.contains("\"officers\"") && standing.contains(&asked), "{standing}");
    server.stop();
    place.refused(3, &["start the server"], &["clock", "credit", "--officer", &anna]);
}

#[test]
fn a_command_on_volumes_is_recorded_before_it_is_carried_out() {
    let place = Place::new("intent");
    place.pool(5);
    let _server = place.serve();
    place.json(&["volume", "create", "scratch", "--code", "mirror-2", "--size", "8MiB"]);
    place.json(&["volume", "delete", "scratch", "--yes"]);
    place.refused(3, &["data"], &["volume", "delete", "data", "--yes"]);
    let output = place.stele(&["audit", "show", "--limit", "100", "--json"]);
    let records = String::from_utf8(output.stdout).unwrap();
    let records: Vec<serde_json::Value> = records.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let said: Vec<(&str, bool)> = records
        .iter()
        .filter(|record| record["action"] == "Administer")
        .map(|record| (record["detail"].as_str().unwrap(), record["refused"].is_null()))
        .collect();
    assert_eq!(
        said,
        [
            ("about to do: volume/create scratch", true),
            ("volume/create scratch", true),
            ("about to do: volume/delete scratch", true),
            ("volume/delete scratch", true),
            ("about to do: volume/delete data", true),
            ("volume/delete data", false),
        ]
    );
}
