//! Compares the output of `--json` with SEMANTICS/json.md: every printed field is documented there
//! with its kind, and every documented field is printed, unless its entry says that it may be
//! absent.

use std::collections::{BTreeMap, BTreeSet};

use crate::support;
use crate::support::{Place, wait_for};
use serde_json::Value;

/// Fields of one command by path, `drives[].size_bytes`: the kind, and whether it may be null or
/// absent.
type Fields = BTreeMap<String, (String, bool)>;

/// The tables of the document, by the heading above each.
fn documented() -> BTreeMap<String, Fields> {
    let text = include_str!("../../../SEMANTICS/json.md");
    let mut all: BTreeMap<String, Fields> = BTreeMap::new();
    let mut heading = String::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            heading = title.replace('`', "");
        }
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        if let [path, kind, _meaning] = cells.as_slice()
            && let Some(path) = path.strip_prefix('`').and_then(|path| path.strip_suffix('`'))
        {
            let optional = kind.ends_with('?');
            let kind = kind.trim_end_matches('?').to_owned();
            all.entry(heading.clone()).or_default().insert(path.to_owned(), (kind, optional));
        }
    }
    all
}

fn flatten(value: &Value, path: &str, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Array(values) => {
            found.push((path.to_owned(), Value::Array(Vec::new())));
            values.iter().for_each(|value| flatten(value, &format!("{path}[]"), found));
        }
        Value::Object(fields) => {
            if !path.is_empty() {
                found.push((path.to_owned(), Value::Object(serde_json::Map::new())));
            }
            let dot = if path.is_empty() { "" } else { "." };
            fields.iter().for_each(|(name, value)| flatten(value, &format!("{path}{dot}{name}"), found));
        }
        other => found.push((path.to_owned(), other.clone())),
    }
}

fn is_moment(text: &str) -> bool {
    let pattern = "0000-00-00T00:00:00";
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    shape.starts_with(pattern) && shape.ends_with('Z')
}

/// The reason why a value is not of its kind, if it is not.
fn wrong(path: &str, kind: &str, value: &Value) -> Option<String> {
    let name = path.rsplit('.').next().unwrap_or(path).trim_end_matches("[]");
    let good = match kind {
        "text" | "word" | "path" | "identity" | "secret" => value.is_string(),
        "moment" => value.as_str().is_some_and(is_moment),
        // The name contains the unit.
        "bytes" => value.is_u64() && (name.ends_with("_bytes") || name == "bytes"),
        "bytes a second" => value.is_u64() && name.starts_with("bytes_per_second"),
        "seconds" => value.is_u64() && (name.ends_with("_seconds") || name.starts_with("seconds_")),
        "percent" => value.is_u64() && name.ends_with("_percent"),
        "count" | "number" => value.is_u64() && !name.ends_with("_bytes") && !name.ends_with("_seconds"),
        "yes or no" => value.is_boolean(),
        "list" => value.is_array(),
        "object" | "counts" => value.is_object(),
        other => return Some(format!("{path}: the document knows no kind '{other}'")),
    };
    (!good).then(|| format!("{path}: {value} is not of kind '{kind}'"))
}

/// Compares printed values with one table.
fn check(heading: &str, printed: &[Value], mistakes: &mut Vec<String>) {
    let all = documented();
    let Some(fields) = all.get(heading) else {
        mistakes.push(format!("SEMANTICS/json.md has no heading '{heading}'"));
        return;
    };
    let mut found = Vec::new();
    printed.iter().for_each(|value| flatten(value, "", &mut found));
    let found: Vec<(String, Value)> = found
        .into_iter()
        .map(|(path, value)| (path.trim_start_matches("[].").trim_start_matches("[]").to_owned(), value))
        .filter(|(path, _)| !path.is_empty())
        .collect();
    let mut seen = BTreeSet::new();
    for (path, value) in &found {
        // Counts have names of their own.
        if fields.iter().any(|(known, (kind, _))| kind == "counts" && path.starts_with(&format!("{known}."))) {
            continue;
        }
        seen.insert(path.clone());
        match fields.get(path) {
            None => mistakes.push(format!("{heading}: {path} is printed ({value}) and not documented")),
            Some((_, true)) if value.is_null() => {}
            Some((kind, _)) => mistakes.extend(wrong(path, kind, value).map(|what| format!("{heading}: {what}"))),
        }
    }
    for (path, (_, optional)) in fields {
        // Fields inside an empty list or an absent object are not printed.
        let printed_above = path.rsplit_once(['.', ']']).is_none_or(|(above, _)| {
            let above = above.trim_end_matches('[');
            above.is_empty()
                || found
                    .iter()
                    .any(|(path, _)| path.strip_prefix(above).is_some_and(|rest| rest.starts_with(['.', '['])))
        });
        if !optional && printed_above && !seen.contains(path) {
            mistakes.push(format!("{heading}: {path} is documented and not printed"));
        }
    }
}

const INVENTORY: &str = "<InventoryConfiguration><Destination><S3BucketDestination>\
    <Bucket>arn:aws:s3:::reports</Bucket><Format>CSV</Format></S3BucketDestination></Destination>\
    <IsEnabled>false</IsEnabled><Id>daily</Id><IncludedObjectVersions>All</IncludedObjectVersions>\
    <Schedule><Frequency>Daily</Frequency></Schedule></InventoryConfiguration>";

#[test]
fn what_is_printed_for_machines_is_documented() {
    let place = Place::new("json");
    let server = place.up();
    std::fs::write(place.0.join("phrase"), "correct horse battery staple").unwrap();
    let mut mistakes = Vec::new();
    check("stele up and stele serve", std::slice::from_ref(&server.ready), &mut mistakes);
    let mut one = |heading: &str, arguments: &[&str]| {
        let value = place.json(arguments);
        check(heading, std::slice::from_ref(&value), &mut mistakes);
        value
    };
    one("Buckets", &["bucket", "create", "records", "--lock", "--retention", "compliance:7y", "--quota", "1GiB"]);
    one("Buckets", &["bucket", "list"]);
    let key =
        one("stele key create", &["key", "create", "--name", "reader", "--access", "read", "--bucket", "records"]);
    one("Access keys", &["key", "list"]);
    one("Access keys", &["key", "narrow", key["access_key"].as_str().unwrap(), "--prefix", "scans/"]);
    one("Access keys", &["key", "set", key["access_key"].as_str().unwrap(), "--expires", "90d"]);
    assert_eq!(place.json(&["key", "revoke", key["access_key"].as_str().unwrap()]), serde_json::json!({}));
    server.put("/records/ledger", b"kept");
    one("stele why and stele share why", &["why", "records/ledger"]);
    one("stele self-test", &["self-test"]);
    one("Buckets", &["bucket", "create", "reports"]);
    server.put("/records?inventory&id=daily", INVENTORY.as_bytes());
    one("stele bucket inventory", &["bucket", "inventory", "records", "daily"]);
    one("Matters", &["matter", "open", "smith", "--reason", "Smith v. Jones"]);
    one("stele matter put --dry-run", &["matter", "put", "smith", "--bucket", "records", "--dry-run"]);
    one("Matters", &["matter", "put", "smith", "--bucket", "records"]);
    std::fs::write(place.path("held"), "records/ledger\n").unwrap();
    one("stele matter put --list", &["matter", "put", "smith", "--list", &place.path("held")]);
    one("Matters", &["matter", "show", "smith"]);
    one("Matters", &["matter", "list"]);
    one("stele why and stele share why", &["why", "records/ledger"]);
    let terms = ["--initiation", "event", "--retver", "10", "--action", "keep", "--mode", "compliance"];
    one("Classes", &[&["class", "create", "staff"], &terms[..]].concat());
    one("stele class activate", &["class", "activate", "staff"]);
    one("stele class bind", &["class", "bind", "records", "--default", "staff", "--rule", "staff:prefix=hr/"]);
    server.put("/records/hr/1", b"kept");
    one("Classes", &["class", "list"]);
    one("stele event", &["event", "--bucket", "records", "--at", "2026-01-01"]);
    one("stele why and stele share why", &["why", "records/hr/1"]);
    one("stele find", &["find", "--bucket", "records", "--prefix", "hr/"]);
    one("Buckets", &["bucket", "create", "loose"]);
    server.put("/loose/gone", b"gone");
    assert_eq!(server.send(server.ask("DELETE", "/loose/gone")).status, 204);
    one("stele disposal list", &["disposal", "list", "--bucket", "loose"]);
    one("stele disposal status", &["disposal", "status"]);
    one("stele disposal status", &["disposal", "pause", "--reason", "an audit"]);
    one("stele disposal status", &["disposal", "rate", "100"]);
    one("stele disposal status", &["disposal", "resume"]);
    one("stele act list", &["act", "list"]);
    let officers = ["anna.json", "ben.json"].map(|name| place.path(name));
    for officer in &officers {
        let key = place.json(&["key", "create", "--role", "retention-officer"]);
        std::fs::write(officer, key.to_string()).unwrap();
    }
    let restrict = ["act", "restrict", "bypass", "--to", "two", "--officer", &officers[0]];
    let asked = one("Requests", &restrict)["id"].as_str().unwrap().to_owned();
    one("Requests", &["approve"]);
    one("stele approve with a request", &["approve", &asked, "--refuse", "--officer", &officers[1]]);
    let expiring = place.stele(&["class", "expiring", "--before", "2100-01-01", "--json"]).stdout;
    let expiring = String::from_utf8(expiring).unwrap();
    let expiring: Vec<Value> = expiring.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!expiring.is_empty());
    one("Volumes", &["volume", "create", "vm1", "--code", "mirror-2", "--size", "8MiB"]);
    one("Volumes", &["volume", "snapshot", "vm1", "monday"]);
    one("Volumes", &["volume", "list"]);
    one("stele volume show", &["volume", "show", "vm1"]);
    one("Exports", &["volume", "export", "vm1", "--nbd", "--allow", "10.0.0.0/8"]);
    one("Exports", &["export", "list"]);
    one("stele export remove", &["export", "remove", "vm1"]);
    place.json(&["volume", "create", "scratch", "--code", "mirror-2", "--size", "8MiB"]);
    one("stele volume delete", &["volume", "delete", "scratch", "--yes"]);
    one("Shares", &["share", "create", "files", "--cache", "16MiB", "--retention", "governance:1d"]);
    one("Shares", &["share", "list"]);
    one("Shares", &["share", "show", "files"]);
    one("Shares", &["share", "set", "files", "--allow", "10.0.0.0/8", "--squash", "all"]);
    // Only root mounts shares; elsewhere there is no file to list.
    let directory = place.path("mounted");
    std::fs::create_dir(&directory).unwrap();
    if place.stele(&["share", "mount", "files", &directory]).status.success() {
        std::fs::write(format!("{directory}/ledger"), b"kept").unwrap();
        one("Files of a share", &["share", "ls", "files"]);
        one("Files of a share", &["share", "archive", "files/ledger"]);
        one("stele why and stele share why", &["share", "why", "files/ledger"]);
        one("stele share unmount", &["share", "unmount", &directory]);
        one("stele share mount", &["share", "mount", "files", &directory]);
        place.json(&["share", "unmount", &directory]);
    }
    place.json(&["share", "create", "empty", "--cache", "16MiB"]);
    one("stele share remove", &["share", "remove", "empty", "--yes"]);
    let (repository, password) = (place.path("repository"), place.path("phrase"));
    std::fs::create_dir(place.path("saved")).unwrap();
    std::fs::write(place.path("saved/ledger"), b"kept").unwrap();
    std::os::unix::fs::symlink("ledger", place.path("saved/link")).unwrap();
    let at = ["--repository", &repository, "--password-file", &password];
    let saved = place.path("saved");
    let with = |arguments: &[&'static str]| [&["backup"], arguments, &at[..]].concat();
    one("stele backup init", &with(&["init"]));
    one("stele backup run", &[&with(&["run", "--tag", "nightly"])[..], &[&saved]].concat());
    std::fs::write(place.path("saved/second"), b"new").unwrap();
    one("stele backup run", &[&with(&["run"])[..], &[&saved]].concat());
    let snapshots = one("stele backup snapshots", &with(&["snapshots"]));
    // The order of two that were made within a second is not said.
    let [one_of_them, other] = [0, 1].map(|at| snapshots[at]["snapshot"].as_str().unwrap());
    let diff = [&with(&["diff"])[..], &[one_of_them, other, "--json"]].concat();
    let diff = String::from_utf8(place.stele(&diff).stdout).unwrap();
    let diff: Vec<Value> = diff.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(!diff.is_empty());
    let restored = place.path("restored");
    one("stele backup restore", &[&with(&["restore", "latest"])[..], &["--to", &restored]].concat());
    one("stele backup verify", &with(&["verify", "--data"]));
    one("stele backup verify --without-password", &with(&["verify", "--without-password"]));
    one("stele backup key list", &with(&["key", "list"]));
    let new = ["--new-password-file", &password];
    let added = one("stele backup key add", &[&with(&["key", "add", "--label", "second"])[..], &new].concat());
    let (key, safe) = (added["key"].as_str().unwrap(), place.path("safe"));
    one("stele backup key remove", &[&with(&["key", "remove"])[..], &[key]].concat());
    let (escrow, opens) =
        ("stele master-key export and stele backup key export", "stele master-key verify and stele backup key verify");
    one(escrow, &[&with(&["key", "export"])[..], &["--to", &safe]].concat());
    one(opens, &[&with(&["key", "verify"])[..], &[&safe]].concat());
    let policy = place.path("policy.toml");
    std::fs::write(&policy, "[[class]]\nname = \"all\"\ninclude = [\"*\"]\nversions = 5\n").unwrap();
    one("stele backup policy", &["backup", "policy", &policy]);
    one("stele backup policy with paths", &["backup", "policy", &policy, "/etc"]);
    let plan = place.path("schedules.toml");
    let row = format!("[[schedule]]\nname = \"saved\"\nevery = \"52w\"\npaths = [\"{saved}\"]\n");
    std::fs::write(&plan, row).unwrap();
    // Exit code 3 if the schedule is late in its slot.
    let report = place.stele(&[&with(&["report"])[..], &[&plan, "--json"]].concat());
    let report: Value = serde_json::from_slice(&report.stdout).unwrap();
    one("stele backup forget", &with(&["forget", "--keep-last", "1"]));
    one("stele backup prune", &with(&["prune"]));
    one("stele clock show", &["clock", "show"]);
    one("stele clock accept", &["clock", "accept", "--yes"]);
    one("stele audit verify", &["audit", "verify"]);
    one("stele audit key", &["audit", "key"]);
    let receipt = one("Receipts", &["receipt", "get", "records/ledger"]);
    std::fs::write(place.0.join("receipt"), receipt.to_string()).unwrap();
    assert!(place.stele(&["audit", "key", "--to", &place.path("key")]).status.success());
    let verify = ["receipt", "verify", &place.path("receipt"), "--key", &place.path("key")];
    one("stele receipt verify", &verify);
    one(
        "stele proof export and stele proof verify",
        &["proof", "export", "--bucket", "records", "--to", &place.path("proof")],
    );
    one(
        "stele config export",
        &["config", "export", "--to", &place.path("backup"), "--passphrase-file", &place.path("phrase")],
    );
    one(escrow, &["master-key", "export", "--to", &place.path("escrowed")]);
    one(opens, &["master-key", "verify", &place.path("escrowed")]);
    one("stele pool scrub --wait", &["pool", "scrub", "--wait"]);
    one("stele pool status", &["pool", "status"]);
    one("stele top", &["top", "--once"]);
    one("stele upgrade check", &["upgrade", "check"]);
    let doctor = place.stele(&["doctor", "--json"]);
    let text = String::from_utf8(doctor.stdout).unwrap();
    let checking = [&["backup", "verify", "--data", "--progress", "--json"], &at[..]].concat();
    for arguments in [checking, [&["backup", "prune", "--progress", "--json"], &at[..]].concat()] {
        let told = place.command(&arguments).output().unwrap();
        let told = String::from_utf8(told.stderr).unwrap();
        let told: Vec<Value> = told.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(!told.is_empty(), "{arguments:?}");
        check("Progress of backups", &told, &mut mistakes);
    }
    check("stele backup report", &[report], &mut mistakes);
    check("stele backup lock", &[lock_of(&place, &server)], &mut mistakes);
    check("stele doctor", &[serde_json::from_str(text.lines().next().unwrap()).unwrap()], &mut mistakes);
    let records = String::from_utf8(place.stele(&["audit", "show", "--json"]).stdout).unwrap();
    let records: Vec<Value> = records.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    check("stele audit show", &records, &mut mistakes);
    check("stele class expiring", &expiring, &mut mistakes);
    check("stele backup diff", &diff, &mut mistakes);
    // Failures, including those of the parser and of the configuration.
    for (arguments, kind, code) in [
        (&["volume", "show", "nothing"][..], "missing", 4),
        (&["volume", "create", "v", "--code", "9+9", "--size", "1G"], "usage", 2),
        (&["frobnicate"], "usage", 2),
        (&["pool", "status", "--often"], "usage", 2),
        (&["volume", "delete", "data", "--yes"], "refused", 3),
        (&["bucket", "create", "records"], "exists", 9),
        (&["volume", "create", "vm1", "--code", "mirror-2", "--size", "8MiB"], "exists", 9),
        (&["volume", "snapshot", "vm1", "monday"], "exists", 9),
        (&["master-key", "export", "--to", &place.path("escrowed")], "exists", 9),
    ] {
        let output = place.stele(&[arguments, &["--json"]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        let value: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error}: {text}"));
        assert_eq!(value["kind"], kind, "{arguments:?}: {value}");
        if kind == "usage" {
            assert!(value["next"].as_str().is_some_and(|next| !next.is_empty()), "{arguments:?}: {value}");
        }
        check("Failures", &[value], &mut mistakes);
    }
    server.stop();
    assert!(
        mistakes.is_empty(),
        "{}",
        mistakes.into_iter().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join("\n")
    );
}

/// What the lock of a stored snapshot prints. It takes a bucket, and so an access key.
fn lock_of(place: &Place, server: &support::Server) -> Value {
    place.json(&["bucket", "create", "vault", "--lock"]);
    let (access, secret) = server.keys();
    let (repository, phrase) = (format!("s3+http://{}/vault", server.address), place.path("phrase"));
    let at = ["--repository", &repository, "--password-file", &phrase, "--json"];
    let saved = place.path("saved");
    let mut last = Value::Null;
    for arguments in [&["init"][..], &["run", &saved], &["lock", "latest", "--until", "1d"]] {
        let mut command = place.command(&[&["backup"], arguments, &at[..]].concat());
        let output = command.env("AWS_ACCESS_KEY_ID", &access).env("AWS_SECRET_ACCESS_KEY", &secret).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        last = serde_json::from_slice(&output.stdout).unwrap();
    }
    last
}

#[test]
fn what_commands_on_drives_print_is_documented() {
    let place = Place::new("json-drives");
    place.pool(5);
    let server = place.serve();
    std::fs::write(place.0.join("phrase"), "correct horse battery staple").unwrap();
    let mistakes = std::cell::RefCell::new(Vec::new());
    let one = |heading: &str, arguments: &[&str]| {
        check(heading, &[place.json(arguments)], &mut mistakes.borrow_mut());
    };
    one("stele pool scrub", &["pool", "scrub"]);
    assert_eq!(place.json(&["pool", "wash"]), serde_json::json!({}));
    one("stele drive clear and stele drive online", &["drive", "clear", "3"]);
    one("stele pool status", &["drive", "set", "3", "--enclosure", "3"]);
    one("stele drive dump", &["drive", "dump", &place.path("d0.img")]);
    let new = |name: &str, enclosure: u32| format!("{}@{enclosure}", place.path(name));
    one("stele pool add", &["pool", "add", "--size", "256MiB", "--drive", &new("d5.img", 5)]);
    one("stele pool status", &["pool", "add", "--wait", "--size", "256MiB", "--drive", &new("d6.img", 6)]);
    one("stele pool remove", &["pool", "remove", "5"]);
    // It may have left already.
    let kept = place.stele(&["pool", "remove", "5", "--cancel", "--json"]);
    let heading = if kept.status.success() { "stele pool remove --cancel" } else { "Failures" };
    check(heading, &[serde_json::from_slice(&kept.stdout).unwrap()], &mut mistakes.borrow_mut());
    one("stele pool status", &["pool", "remove", "6", "--wait"]);
    let left = place.path("d6.img");
    let wiped = wait_for("the drive to be let go", || {
        let wiped = place.stele(&["drive", "wipe", &left, "--yes", "--json"]);
        wiped.status.success().then(|| serde_json::from_slice::<Value>(&wiped.stdout).unwrap())
    });
    check("stele drive wipe", &[wiped], &mut mistakes.borrow_mut());
    one("stele pool replace", &["pool", "replace", "3", &new("d7.img", 3), "--size", "256MiB"]);
    let (backup, phrase) = (place.path("backup"), place.path("phrase"));
    one("stele config export", &["config", "export", "--to", &backup, "--passphrase-file", &phrase]);
    server.stop();
    one("stele catalog rebuild", &["catalog", "rebuild", "--yes", "--force"]);
    let other = Place::new("json-import");
    let import = other.json(&["config", "import", &backup, "--passphrase-file", &phrase]);
    check("stele config import", &[import], &mut mistakes.borrow_mut());
    let mistakes = mistakes.into_inner();
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

const NOTIFICATION: &str = "<NotificationConfiguration><QueueConfiguration><Id>all</Id>\
    <Queue>arn:stele:sqs::trail:file</Queue><Event>s3:ObjectCreated:*</Event></QueueConfiguration>\
    </NotificationConfiguration>";

#[test]
fn targets_of_notifications_are_documented() {
    let place = Place::new("json-targets");
    let server = place.up();
    let keys = server.keys();
    server.stop();
    let section = "\n[notifications.trail]\nfile = \"trail.jsonl\"\n";
    place.edit_config(|text| format!("{text}{section}"));
    let server = place.serve().with_keys(keys);
    let mut mistakes = Vec::new();
    place.json(&["bucket", "create", "told"]);
    server.put("/told?notification", NOTIFICATION.as_bytes());
    let list = place.json(&["notifications", "list"]);
    check("stele notifications list", std::slice::from_ref(&list), &mut mistakes);
    assert_eq!(list[0]["configured"], true, "{list}");
    place.refused(2, &["in the configuration"], &["notifications", "forget", "trail"]);
    server.stop();
    place.edit_config(|text| text.replace(section, ""));
    let server = place.serve();
    let list = place.json(&["notifications", "list"]);
    assert_eq!((&list[0]["configured"], &list[0]["buckets"][0]), (&false.into(), &"told".into()), "{list}");
    let status = place.json(&["pool", "status"]);
    assert!(status.to_string().contains("forget trail"), "{status}");
    let forgotten = place.json(&["notifications", "forget", "trail"]);
    check("stele notifications forget", std::slice::from_ref(&forgotten), &mut mistakes);
    server.stop();
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}

/// Checks that the document is parsed correctly.
#[test]
fn a_field_of_another_kind_is_noticed() {
    for (path, kind, value, good) in [
        ("a.size_bytes", "bytes", serde_json::json!(1), true),
        ("a.size", "bytes", serde_json::json!(1), false),
        ("at", "moment", serde_json::json!("2026-11-21T19:28:13Z"), true),
        ("at", "moment", serde_json::json!(1_795_289_293), false),
        ("count_bytes", "count", serde_json::json!(1), false),
        ("x", "mystery", serde_json::json!(1), false),
    ] {
        assert_eq!(wrong(path, kind, &value).is_none(), good, "{path} {kind} {value}");
    }
    assert!(documented().len() > 10);
}
