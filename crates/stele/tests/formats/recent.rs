//! The records that later versions added, as the second fixture has them. They are classes and
//! events, matters, waiting notifications, an inventory, a key that expires, removed versions, and
//! a share with a locked and an open file.

use serde_json::Value;

use crate::support::nfs::Client;
use crate::support::server::good;
use crate::support::{Place, Server, content};

/// The configuration with what the records need. Nothing listens where the webhook points, so its
/// events wait.
pub fn configured(text: &str) -> String {
    let text = text.replacen("[nfs]\n", "[nfs]\nlisten = \"127.0.0.1:0\"\n", 1);
    format!("{text}\n[notifications.search]\nwebhook = \"http://127.0.0.1:9/events\"\n")
}

const NOTIFICATION: &str = "<NotificationConfiguration><QueueConfiguration><Id>all</Id>\
    <Queue>arn:stele:sqs::search:webhook</Queue><Event>s3:ObjectCreated:*</Event></QueueConfiguration>\
    </NotificationConfiguration>";
const INVENTORY: &str = "<InventoryConfiguration><Destination><S3BucketDestination>\
    <Bucket>arn:aws:s3:::loose</Bucket><Format>CSV</Format></S3BucketDestination></Destination>\
    <IsEnabled>false</IsEnabled><Id>daily</Id><IncludedObjectVersions>All</IncludedObjectVersions>\
    <Schedule><Frequency>Daily</Frequency></Schedule></InventoryConfiguration>";
const ARCHIVED: (&str, u64, usize) = ("/files/2026/ledger.pdf", 21, 2000);
const OPEN: (&str, &[u8]) = ("open.txt", b"written over NFS, and not archived");

fn port(server: &Server) -> u16 {
    server.ready["nfs"].as_str().and_then(|address| address.rsplit(':').next()).unwrap().parse().unwrap()
}

/// Makes the records on a server that is [`configured`] so.
pub fn fill(place: &Place, server: &Server) {
    place.json(&[
        "class",
        "create",
        "staff",
        "--initiation",
        "event",
        "--retver",
        "3650",
        "--action",
        "keep",
        "--mode",
        "compliance",
    ]);
    place.json(&["class", "activate", "staff"]);
    place.json(&["bucket", "create", "staff", "--lock"]);
    place.json(&["class", "bind", "staff", "--default", "staff"]);
    server.put("/staff/present", b"no event yet");
    server.put("/staff/left/1", b"an event");
    place.json(&["event", "--bucket", "staff", "--prefix", "left/", "--at", "2026-01-01"]);
    place.json(&["bucket", "create", "loose", "--versioning"]);
    server.put("/loose/held", b"held");
    server.put("/loose/gone", b"gone");
    place.json(&["matter", "open", "smith", "--reason", "Smith v. Jones"]);
    std::fs::write(place.path("held"), "loose/held\n").unwrap();
    place.json(&["matter", "put", "smith", "--list", &place.path("held")]);
    std::fs::remove_file(place.path("held")).unwrap();
    let listed = good(server.get("/loose?versions&prefix=gone")).text();
    let id = listed.split("<VersionId>").nth(1).and_then(|rest| rest.split('<').next()).unwrap();
    good(server.delete(&format!("/loose/gone?versionId={id}")));
    place.json(&[
        "key",
        "create",
        "--name",
        "reader",
        "--access",
        "read",
        "--bucket",
        "loose",
        "--expires",
        "2090-01-01",
    ]);
    server.put("/loose?inventory&id=daily", INVENTORY.as_bytes());
    server.put("/loose?notification", NOTIFICATION.as_bytes());
    server.put("/loose/told", b"told");
    let share =
        ["share", "create", "files", "--cache", "16MiB", "--retention", "governance:50y", "--archive-after", "4000000"];
    place.json(&share);
    server.put(ARCHIVED.0, &content(ARCHIVED.1, ARCHIVED.2));
    let mut client = Client::new(port(server), 0);
    let root = client.mount("/files");
    client.create(&root, OPEN.0).unwrap();
    let file = client.lookup(&root, OPEN.0).unwrap();
    client.write(&file, 0, OPEN.1, true).unwrap();
}

/// What one of the records lacks, if it lacks anything.
fn has(name: &str, is: bool, value: &Value) -> Option<String> {
    (!is).then(|| format!("{name}: {value}"))
}

/// Checks that every record is still there and in force.
pub fn check(place: &Place, server: &Server) {
    let mut wrong = Vec::new();
    let classes = place.json(&["class", "list"]);
    let staff = &classes[0];
    wrong.extend(has("class", staff["name"] == "staff" && staff["active"] == true, &classes));
    let (present, left) = (place.json(&["why", "staff/present"]), place.json(&["why", "staff/left/1"]));
    let is_kept = present["class"] == "staff" && present["protected"] == true && present["deletable_from"].is_null();
    wrong.extend(has("no event", is_kept, &present));
    let until = left["retained_until"].as_str().unwrap_or_default();
    let told = left["reasons"].to_string().contains("its event was 2026-01-01");
    wrong.extend(has("event", left["protected"] == true && told && until.starts_with("2036-11-"), &left));
    let matter = place.json(&["matter", "show", "smith"]);
    wrong.extend(has("matter", matter["reason"] == "Smith v. Jones", &matter));
    let held = place.json(&["why", "loose/held"]);
    wrong.extend(has("held", held["protected"] == true && held["matters"][0] == "smith", &held));
    for name in ["staff/present", "staff/left/1", "loose/held"] {
        let version = place.json(&["why", name])["version"].as_str().unwrap().to_owned();
        let answer = server.delete(&format!("/{name}?versionId={version}"));
        wrong.extend((answer.status != 403).then(|| format!("{name}: its deletion is answered {}", answer.status)));
    }
    let removed = place.json(&["disposal", "list", "--bucket", "loose"]);
    wrong.extend(has("removed", removed["key"] == "gone", &removed));
    let keys = place.json(&["key", "list"]);
    let reader = keys.as_array().unwrap().iter().find(|key| key["name"] == "reader");
    let expires = reader.and_then(|key| key["expires"].as_str()).unwrap_or_default();
    wrong.extend(has("key", expires.starts_with("2090-01-01"), &keys));
    let targets = place.json(&["notifications", "list"]);
    let is_waiting = targets[0]["target"] == "search" && targets[0]["pending"].as_u64() > Some(0);
    wrong.extend(has("notifications", is_waiting && targets[0]["buckets"][0] == "loose", &targets));
    for query in ["inventory&id=daily", "notification"] {
        let answer = server.get(&format!("/loose?{query}"));
        let is_there = answer.status == 200 && answer.text().contains("Id>");
        wrong.extend((!is_there).then(|| format!("{query}: {}", answer.text())));
    }
    let files = place.json(&["share", "ls", "files/2026"]);
    let until = files[0]["retained_until"].as_str().unwrap_or_default();
    let is_locked = files[0]["name"] == "ledger.pdf" && files[0]["state"] == "locked" && until > "2070";
    wrong.extend(has("share", is_locked, &files));
    let archived = server.get(ARCHIVED.0);
    wrong.extend((archived.body != content(ARCHIVED.1, ARCHIVED.2)).then(|| "the archived file".to_owned()));
    let mut client = Client::new(port(server), 0);
    let root = client.mount("/files");
    let open = client.lookup(&root, OPEN.0).map(|file| client.read_all(&file));
    wrong.extend((open.as_deref() != Ok(OPEN.1)).then(|| format!("the open file: {open:?}")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
