//! The records that the third fixture has beside those of [`super::recent`]. Of objects: an upload
//! in parts and an unfinished one, tags, metadata and a checksum, GOVERNANCE with a hold, a
//! customer's key. Of buckets: quotas, rules, a share without a cache. And receipts and proofs for
//! verifiers.
//!
//! The fixture was made with the program alone, as an administrator would make it.

use serde_json::{Value, json};

use super::recent;
use crate::support::server::good;
use crate::support::{Place, Server, content};

/// A customer's key of 32 bytes, and its MD5, both in base64.
const CUSTOMER: [(&str, &str); 3] = [
    ("x-amz-server-side-encryption-customer-algorithm", "AES256"),
    ("x-amz-server-side-encryption-customer-key", "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="),
    ("x-amz-server-side-encryption-customer-key-md5", "mT2HRsMGJ5IX5C+0rreZ8Q=="),
];
/// The beginning of a receipt of format 2 in base64: `{"format":"stele receipt 2"`.
const OF_GROUP: &str = "eyJmb3JtYXQiOiJzdGVsZSByZWNlaXB0IDIi";

/// What the answer to a command lacks, if it lacks anything.
fn has(name: &str, is: bool, value: &Value) -> Option<String> {
    (!is).then(|| format!("{name}: {value}"))
}

/// Checks that every record is still there and in force.
pub fn check(place: &Place, server: &Server) {
    recent::check(place, server);
    let mut wrong = Vec::new();
    let loose = place.json(&["bucket", "show", "loose"]);
    let is_kept = loose["quota_bytes"] == 1 << 30 && loose["quota_versions"] == 500;
    wrong.extend(has("the bucket's quotas", is_kept, &loose));
    let keys = place.json(&["key", "list"]);
    let scanner = keys.as_array().unwrap().iter().find(|key| key["name"] == "scanner");
    let is_kept = scanner.is_some_and(|key| key["quota_bytes"] == 100u64 << 30 && key["quota_versions"] == 1_000_000);
    wrong.extend(has("the key's quotas", is_kept, &keys));
    let governed = place.json(&["why", "today/governed"]);
    let until = governed["retained_until"].as_str().unwrap_or_default();
    let is_kept = governed["mode"] == "GOVERNANCE" && until.starts_with("2080-01-01") && governed["legal_hold"] == true;
    wrong.extend(has("GOVERNANCE and a hold", is_kept, &governed));
    let found = place.json(&["find", "--bucket", "today", "--tag", "kind=invoice"]);
    wrong.extend(has("tags", found["key"] == "tagged" && found["tags"] == json!({"kind": "invoice"}), &found));
    let scans = place.json(&["share", "show", "scans"]);
    let is_kept = scans["caching"] == "off" && scans["removed_versions"] == "delete";
    wrong.extend(has("the share without a cache", is_kept, &scans));
    let page = place.json(&["share", "ls", "scans/a"]);
    wrong.extend(has("its file", page[0]["name"] == "page" && page[0]["state"] == "archived", &page));

    for (name, seed, length) in [("today/parts", 32, 1000), ("today/tagged", 34, 400), ("scans/a/page", 37, 1200)] {
        let answer = server.get(&format!("/{name}"));
        wrong.extend((answer.body != content(seed, length)).then(|| format!("{name} has another content")));
    }
    let tagged = server.get("/today/tagged");
    wrong.extend((tagged.header("x-amz-meta-case").as_deref() != Some("4711")).then(|| "metadata".to_owned()));
    let ask = server.ask("GET", "/today/customer");
    let locked = CUSTOMER.iter().fold(ask, |ask, (name, value)| ask.header(name, value));
    wrong.extend((server.send(locked).body != content(36, 500)).then(|| "a customer's key".to_owned()));
    wrong.extend((server.get("/today/customer").status != 400).then(|| "it is read without the key".to_owned()));
    for (query, says) in [
        ("uploads", "<Key>unfinished</Key>"),
        ("lifecycle", "<ID>old</ID>"),
        ("cors", "https://example.org"),
        ("policy", "today/secret/*"),
        ("publicAccessBlock", "<BlockPublicAcls>true</BlockPublicAcls>"),
    ] {
        let text = good(server.get(&format!("/today?{query}"))).text();
        wrong.extend((!text.contains(says)).then(|| format!("{query}: {text}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    verified(place);
}

/// Receipts and proofs hold without a server: one receipt of each format, a proof that the log went
/// on behind one of them, and a retention proof.
fn verified(place: &Place) {
    let group = std::fs::read_to_string(place.path("group.receipt")).unwrap();
    assert!(group.starts_with(OF_GROUP), "{group}");
    let [key, short, group, later, proof] =
        ["stele.pub", "short.receipt", "group.receipt", "later.proof", "proof"].map(|name| place.path(name));
    for arguments in [
        vec!["receipt", "verify", &short, "--key", &key, "--later", &later],
        vec!["receipt", "verify", &group, "--key", &key],
        vec!["proof", "verify", &proof, "--key", &key],
    ] {
        let output = place.command(&arguments).output().unwrap();
        assert!(output.status.success(), "stele {arguments:?}: {output:?}");
    }
}
