//! What the command line gives buckets and keys, and what two officers may do together.

mod support;

use support::Place;

#[test]
fn buckets_and_keys_get_what_their_flags_say() {
    let place = Place::new("rights");
    place.pool(5);
    let server = place.serve();
    let ledgers = ["bucket", "create", "ledgers", "--lock", "--retention", "governance:1d"];
    let made = place.json(&[&ledgers[..], &["--protection", "compliance", "--expiry", "delete"]].concat());
    assert_eq!((made["protection"].as_str(), made["expiry"].as_str()), (Some("compliance"), Some("delete")), "{made}");
    // At this level new retention is COMPLIANCE whatever was asked for.
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
    let listed = place.json(&["key", "list"]).to_string();
    assert!(listed.contains("drafts/: write, list"), "{listed}");
    let by = |method: &str, target: &str| server.send(server.ask(method, target).by(&scanner).body("x")).status;
    assert_eq!((by("PUT", "/drafts/key"), by("GET", "/drafts?list-type=2")), (200, 200));
    assert_eq!((by("GET", "/drafts/key"), by("DELETE", "/drafts/key"), by("PUT", "/ledgers/key")), (403, 403, 403));
    place.refused(2, &["read, write, delete, list, retain"], &["key", "create", "--access", "everything"]);
}

#[test]
fn time_is_credited_by_two_different_officers_and_nobody_less() {
    let place = Place::new("credit");
    place.pool(5);
    let server = place.serve();
    let officer = |name: &str, role: &str| {
        let key = place.json(&["key", "create", "--name", name, "--role", role]);
        let path = place.path(&format!("{name}.json"));
        std::fs::write(&path, key.to_string()).unwrap();
        path
    };
    let (anna, ben) = (officer("anna", "retention-officer"), officer("ben", "retention-officer"));
    let user = officer("user", "user");
    let credit = |first: &str, second: &str| {
        ["clock", "credit", "--officer", first, "--officer", second].map(str::to_owned).to_vec()
    };
    let refused = |code: i32, words: &[&str], arguments: Vec<String>| {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        place.refused(code, words, &arguments);
    };
    refused(3, &["two different"], credit(&anna, &anna));
    refused(3, &[], credit(&anna, &user));
    place.refused(2, &["twice"], &["clock", "credit", "--officer", &anna]);
    let forged = std::fs::read_to_string(&ben).unwrap().replace("secret_key\":\"", "secret_key\":\"x");
    std::fs::write(place.0.join("forged.json"), forged).unwrap();
    refused(3, &["secret"], credit(&anna, &place.path("forged.json")));
    let arguments = credit(&anna, &ben);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    assert!(place.json(&arguments)["frozen"].is_null());
    let record = place.json(&["audit", "show", "--limit", "1"]);
    assert!(record["refused"].is_null() && record["detail"].as_str().unwrap().contains("consent"), "{record}");
    server.stop();
    place.refused(3, &["start the server"], &arguments);
}
