//! A retention proof verifies without the store, and no byte of it can be altered.

use std::collections::BTreeMap;
use std::io::Read;

use super::*;
use crate::testing::put_as;
use crate::{BundleFiles, ProofSelection, ProofVerdict};

#[derive(Clone, Default)]
pub(super) struct Files(pub BTreeMap<String, Vec<u8>>);

impl BundleFiles for Files {
    fn names(&self) -> std::result::Result<Vec<String>, String> {
        Ok(self.0.keys().cloned().collect())
    }

    fn open(&self, name: &str) -> std::result::Result<Box<dyn Read + '_>, String> {
        self.0.get(name).map(|bytes| Box::new(bytes.as_slice()) as Box<dyn Read>).ok_or_else(|| "not there".into())
    }
}

fn bytes_of(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|at| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap()).collect()
}

async fn export(archive: &Archive, selection: ProofSelection) -> Files {
    let mut export = archive.export_proof(&admin(), selection).await.unwrap();
    let mut files = Files::default();
    while let Some(piece) = export.next().await.unwrap() {
        files.0.entry(piece.file).or_default().extend(piece.text.as_bytes());
        if let Some(signature) = piece.signature {
            files.0.insert("manifest.sig".into(), bytes_of(&signature));
        }
    }
    files
}

fn verify(files: &Files) -> std::result::Result<ProofVerdict, String> {
    verify_bundle(files, None)
}

/// A proof of the whole bucket verifies.
pub(super) async fn verifies(archive: &Archive, bucket: &str) {
    let files = export(archive, ProofSelection { bucket: bucket.into(), ..ProofSelection::default() }).await;
    verify(&files).unwrap();
}

fn below(prefix: &str) -> ProofSelection {
    ProofSelection { bucket: "records".into(), prefix: prefix.into(), matter: None }
}

async fn scene(world: &World, versions: usize) -> Archive {
    let archive = world.create().await;
    let new = NewBucket { object_lock: true, versioning: true, ..NewBucket::default() };
    archive.create_bucket(&admin(), "records", new).await.unwrap();
    let until = Timestamp::from_secs(1_900_000_000);
    for n in 0..versions {
        let request = PutRequest {
            bucket: "records".into(),
            key: format!("{}/<{n}>", if n % 2 == 0 { "even" } else { "odd" }),
            retention: (n % 3 == 0).then_some(Retention { mode: RetentionMode::Compliance, until }),
            legal_hold: n % 4 == 1,
            ..PutRequest::default()
        };
        put_as(&archive, &admin(), request, &content(n as u64, 50 + n)).await.unwrap();
    }
    archive
}

#[tokio::test]
async fn a_bundle_altered_in_any_byte_is_refused() {
    let world = World::new(1);
    let archive = scene(&world, 2).await;
    let later = Some(Retention { mode: RetentionMode::Compliance, until: Timestamp::from_secs(1_950_000_000) });
    archive.set_retention(&admin(), "records", "even/<0>", None, later, false).await.unwrap();
    archive.set_legal_hold(&admin(), "records", "odd/<1>", None, false).await.unwrap();
    let files = export(&archive, below("")).await;
    let verdict = verify(&files).unwrap();
    assert_eq!((verdict.versions, verdict.records), (2, 6), "{verdict:?}");
    let mut tried = 0;
    for (name, bytes) in &files.0 {
        for at in 0..bytes.len() {
            // Also the bit that turns a lower-case letter into another, and a space into nothing.
            for bit in [0x01, 0x20] {
                let mut altered = files.clone();
                altered.0.get_mut(name).unwrap()[at] ^= bit;
                assert!(verify(&altered).is_err(), "byte {at} of {name}");
                tried += 1;
            }
        }
        let mut missing = files.clone();
        missing.0.remove(name);
        assert!(verify(&missing).is_err(), "without {name}");
        let mut longer = files.clone();
        longer.0.get_mut(name).unwrap().push(b'\n');
        assert!(verify(&longer).is_err(), "{name} with a byte more");
        let mut shorter = files.clone();
        shorter.0.get_mut(name).unwrap().pop();
        assert!(verify(&shorter).is_err(), "{name} with a byte less");
    }
    assert!(tried > 10_000, "{tried}");
    let mut more = files.clone();
    more.0.insert("extra".into(), b"more".to_vec());
    assert!(verify(&more).is_err(), "a file more");
    // Another store's key does not verify it.
    assert!(verify_bundle(&files, Some(&[1; 32])).is_err());
}

#[tokio::test]
async fn a_bundle_has_what_was_selected_and_all_that_befell_it() {
    let world = World::new(2);
    let archive = scene(&world, 1300).await;
    archive.step().await.unwrap();
    let refused = DeleteRequest { bucket: "records".into(), key: "even/<0>".into(), ..DeleteRequest::default() };
    let even = GetRequest { bucket: "records".into(), key: "even/<0>".into(), ..GetRequest::default() };
    let version = archive.head(&admin(), even).await.unwrap().0.version;
    let refused = archive.delete(&admin(), DeleteRequest { version: Some(version), ..refused }).await;
    assert!(matches!(refused, Err(ArchiveError::Retained { .. })));
    put(&archive, "records", "odd/later", b"unlocked").await.unwrap();
    let all = export(&archive, below("")).await;
    let even = export(&archive, below("even/")).await;
    let held = export(&archive, ProofSelection { matter: Some("s3".into()), ..below("") }).await;
    // The creation of the bucket, the exports themselves; the refused delete is in the first two.
    let counts = |files: &Files| verify(files).map(|verdict| (verdict.versions, verdict.records));
    assert_eq!(counts(&all), Ok((1301, 1301 + 1 + 1 + 1)));
    assert_eq!(counts(&even), Ok((650, 650 + 1 + 2 + 1)));
    assert_eq!(counts(&held), Ok((325, 325 + 1 + 3)));
    let page = String::from_utf8(all.0["index.html"].clone()).unwrap();
    assert!(page.contains("even/&lt;0&gt;") && !page.contains("<0>"), "names of clients are text");
    assert!(page.contains("refused: "), "the page shows refusals");
    let unknown = archive.export_proof(&admin(), ProofSelection { matter: Some("x".into()), ..below("") }).await;
    assert!(matches!(unknown.err(), Some(ArchiveError::NoSuchThing(_))));
    let key = archive.create_access_key(&admin(), "user", Rights::user("records", "")).await.unwrap();
    let user = archive.credentials(&key.id).await.unwrap().caller;
    let denied = archive.export_proof(&user, below("")).await;
    assert!(matches!(denied.err(), Some(ArchiveError::Denied(_))), "it takes an auditor");
}

/// A bundle whose files were changed, and then signed again by the store: only the records show it.
async fn resigned(archive: &Archive, files: &Files, file: &str, from: &str, to: &str) -> Files {
    let mut forged = files.clone();
    let text = String::from_utf8(files.0[file].clone()).unwrap();
    assert!(text.contains(from), "{file}: {text}");
    forged.0.insert(file.into(), text.replacen(from, to, 1).into_bytes());
    let mut manifest: crate::Manifest = serde_json::from_slice(&files.0["manifest.json"]).unwrap();
    for listed in &mut manifest.files {
        let bytes = &forged.0[&listed.name];
        listed.size_bytes = bytes.len() as u64;
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
        listed.sha256 = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    }
    let text = format!("{}\n", serde_json::to_string(&manifest).unwrap());
    let signature = archive.store().signing().sign(format!("stele proof 1\n{text}").as_bytes());
    forged.0.insert("manifest.json".into(), text.into_bytes());
    forged.0.insert("manifest.sig".into(), signature);
    forged
}

#[tokio::test]
async fn versions_that_the_records_contradict_are_refused_even_if_signed() {
    let world = World::new(3);
    let archive = scene(&world, 2).await;
    let files = export(&archive, below("")).await;
    let same = resigned(&archive, &files, "index.html", "Retention", "Retention").await;
    assert!(verify(&same).is_ok(), "the forgery itself is sound");
    let cases = [
        ("versions.jsonl", "\"size_bytes\":50", "\"size_bytes\":51", "another size"),
        ("versions.jsonl", "2030-", "2031-", "another retention"),
        ("versions.jsonl", "\"COMPLIANCE\"", "\"GOVERNANCE\"", "another retention"),
        ("versions.jsonl", "\"COMPLIANCE\"", "null", "no mode"),
        ("versions.jsonl", "\"legal_hold\":true", "\"legal_hold\":false", "legal hold"),
        ("versions.jsonl", "even/<0>", "even/<2>", "no record says"),
        ("records.jsonl", "\"record\":4", "\"record\":3", "does not lead to the root"),
    ];
    for (file, from, to, why) in cases {
        let forged = resigned(&archive, &files, file, from, to).await;
        let finding = verify(&forged).unwrap_err();
        assert!(finding.contains(why), "{from}: {finding}");
    }
}

#[tokio::test]
async fn a_version_that_was_removed_is_refused_even_if_signed() {
    let world = World::new(5);
    let archive = scene(&world, 1).await;
    let line = |files: &Files, key: &str| {
        let text = String::from_utf8(files.0["versions.jsonl"].clone()).unwrap();
        text.lines().find(|line| line.contains(key)).unwrap().to_owned()
    };
    let loose = put(&archive, "records", "loose", b"soon gone").await.unwrap();
    let before = export(&archive, below("")).await;
    let request = DeleteRequest {
        bucket: "records".into(),
        key: "loose".into(),
        version: Some(loose.version),
        ..DeleteRequest::default()
    };
    archive.delete(&admin(), request).await.unwrap();
    put(&archive, "records", "other", b"there").await.unwrap();
    let after = export(&archive, below("")).await;
    let (gone, there) = (line(&before, "loose"), line(&after, "other"));
    let as_of = |line: &str| line.rsplit_once("\"as_of\":").unwrap().1.to_owned();
    let gone = gone.replace(&as_of(&gone), &as_of(&there));
    let forged = resigned(&archive, &after, "versions.jsonl", &there, &gone).await;
    let finding = verify(&forged).unwrap_err();
    assert!(finding.contains("was removed"), "{finding}");
}

#[tokio::test]
async fn changes_during_an_export_do_not_make_it_contradict_itself() {
    let world = World::new(4);
    let archive = scene(&world, 3).await;
    archive.create_bucket(&admin(), "plain", NewBucket::default()).await.unwrap();
    put(&archive, "plain", "null", b"the first content").await.unwrap();
    put(&archive, "plain", "null", b"the second").await.unwrap();
    for bucket in ["plain", "records"] {
        let selection = ProofSelection { bucket: bucket.into(), ..ProofSelection::default() };
        let mut export = archive.export_proof(&admin(), selection).await.unwrap();
        let mut files = Files::default();
        let mut pieces = 0;
        while let Some(piece) = export.next().await.unwrap() {
            files.0.entry(piece.file).or_default().extend(piece.text.as_bytes());
            if let Some(signature) = piece.signature {
                files.0.insert("manifest.sig".into(), bytes_of(&signature));
            }
            pieces += 1;
            if pieces == 1 {
                // The versions were read; the head is not taken yet. Nothing of this is in the
                // versions.
                put(&archive, "plain", "null", b"the third, which is longer").await.unwrap();
                let later =
                    Some(Retention { mode: RetentionMode::Compliance, until: Timestamp::from_secs(1_990_000_000) });
                archive.set_retention(&admin(), "records", "even/<0>", None, later, false).await.unwrap();
                archive.set_legal_hold(&admin(), "records", "odd/<1>", None, false).await.unwrap();
            }
        }
        let verdict = verify(&files).unwrap_or_else(|finding| panic!("{bucket}: {finding}"));
        assert!(verdict.records > verdict.versions);
    }
}

/// The manifest names a matter. Each version has to be under it, also where the store itself signs
/// otherwise.
#[tokio::test]
async fn a_version_that_was_not_under_the_matter_refutes_the_proof() {
    let world = World::new(9);
    let archive = scene(&world, 4).await;
    let name = |key: &str| crate::VersionName { bucket: "records".into(), key: key.into(), version: None };
    for matter in ["smith", "jones"] {
        archive.open_matter(&admin(), matter, "a lawsuit").await.unwrap();
        archive.hold_listed(&admin(), matter, vec![name("even/<2>"), name("odd/<1>")], true).await.unwrap();
    }
    let of = async |matter: &str| export(&archive, ProofSelection { matter: Some(matter.into()), ..below("") }).await;
    assert_eq!(verify(&of("smith").await).unwrap().versions, 2);
    let held = of("s3").await;
    assert_eq!(verify(&held).unwrap().versions, 1);
    archive.hold_listed(&admin(), "smith", vec![name("even/<2>")], false).await.unwrap();
    assert_eq!(verify(&of("smith").await).unwrap().versions, 1);
    let named = |files: &Files, from: &str, to: &str| {
        let mut files = files.clone();
        let manifest = String::from_utf8(files.0["manifest.json"].clone()).unwrap();
        let (from, to) = (format!(r#""matter":{from}"#), format!(r#""matter":{to}"#));
        assert!(manifest.contains(&from), "{manifest}");
        let manifest = manifest.replace(&from, &to).into_bytes();
        let text = [b"stele proof 1\n", manifest.as_slice()].concat();
        files.0.insert("manifest.sig".into(), archive.store().signing().sign(&text).to_vec());
        files.0.insert("manifest.json".into(), manifest);
        files
    };
    let jones = of("jones").await;
    assert_eq!(verify(&named(&jones, r#""jones""#, "null")).map(|verdict| verdict.versions), Ok(2));
    for other in [r#""smith""#, r#""s3""#, r#""jon""#, r#""none""#] {
        let finding = verify(&named(&jones, r#""jones""#, other)).unwrap_err();
        assert!(finding.contains("was not under the matter"), "{other}: {finding}");
    }
}

#[tokio::test]
async fn a_record_states_the_mode_that_was_set_and_not_the_one_that_was_asked_for() {
    let world = World::new(5);
    let archive = world.create().await;
    let new = NewBucket { object_lock: true, protection: Some(Protection::Compliance), ..NewBucket::default() };
    archive.create_bucket(&admin(), "records", new).await.unwrap();
    let stored = put(&archive, "records", "k", b"x").await.unwrap();
    let until = archive.store().compliance_now().plus_days(30);
    let asked = Retention { mode: RetentionMode::Governance, until };
    archive.set_retention(&admin(), "records", "k", Some(stored.version), Some(asked), false).await.unwrap();
    let kept = archive.retention(&admin(), "records", "k", Some(stored.version)).await.unwrap();
    assert_eq!(kept, Retention { mode: RetentionMode::Compliance, until });
    verifies(&archive, "records").await;
    let log = archive.audit_records(&admin(), 1, 1000).await.unwrap();
    let record = log.iter().find(|record| record.action == "SetRetention").unwrap();
    assert_eq!(record.detail.as_deref(), Some(format!("COMPLIANCE until {until}").as_str()));
}
