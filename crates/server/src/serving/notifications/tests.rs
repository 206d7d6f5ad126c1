use stele_archive::{ObjectEvent, TEST_EVENT, Timestamp};

use super::record::{BEGINNINGS, message};
use super::*;

fn event(name: &str, key: &str) -> ObjectEvent {
    ObjectEvent {
        time: Timestamp(1_700_000_000_123),
        name: name.into(),
        rule: "rule".into(),
        bucket: "records".into(),
        bucket_owner: "key OWNER".into(),
        region: "us-east-1".into(),
        key: key.into(),
        version: Some("v1".into()),
        size: Some(7),
        etag: Some("abc".into()),
        actor: "key WRITER".into(),
        origin: Some("192.0.2.1 00AA".into()),
    }
}

#[test]
fn a_message_has_the_form_of_aws() {
    let text = message(&[(10, event("ObjectCreated:Put", "in/a b/ü+.txt"))]).expect("JSON");
    assert!(text.starts_with(BEGINNINGS[0]), "{text}");
    let said: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let record = &said["Records"][0];
    for (place, expected) in [
        (&record["eventVersion"], "2.1"),
        (&record["eventSource"], "aws:s3"),
        (&record["awsRegion"], "us-east-1"),
        (&record["eventTime"], "2023-11-14T22:13:20.123Z"),
        (&record["eventName"], "ObjectCreated:Put"),
        (&record["userIdentity"]["principalId"], "key WRITER"),
        (&record["requestParameters"]["sourceIPAddress"], "192.0.2.1"),
        (&record["responseElements"]["x-amz-request-id"], "00AA"),
        (&record["s3"]["configurationId"], "rule"),
        (&record["s3"]["bucket"]["arn"], "arn:aws:s3:::records"),
        (&record["s3"]["object"]["key"], "in/a+b/%C3%BC%2B.txt"),
        (&record["s3"]["object"]["eTag"], "abc"),
        (&record["s3"]["object"]["versionId"], "v1"),
        (&record["s3"]["object"]["sequencer"], "000000000000000A"),
    ] {
        assert_eq!(place, expected, "{text}");
    }
    assert_eq!(record["s3"]["object"]["size"], 7);
    let text = message(&[(1, event(TEST_EVENT, ""))]).expect("JSON");
    assert!(text.starts_with(BEGINNINGS[1]), "{text}");
    assert!(text.contains(r#""Event":"s3:TestEvent""#) && text.contains(r#""Bucket":"records""#), "{text}");
}

#[test]
fn no_target_is_a_file_of_the_server() {
    let dir = std::env::temp_dir().join(format!("stele-targets-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("heads")).expect("a folder");
    let site = Site { dir: dir.clone(), config_path: dir.join("settings.toml") };
    let mut config = Config::new(vec!["disks/a.img@0".parse().expect("a drive")]);
    (config.nfs.tls_key, config.admin.socket) = (Some("nfs.key".into()), Some("run/admin.sock".into()));
    (config.messages.mail_password, config.smb.include) = (Some("mail".into()), Some("smb.conf".into()));
    let judge = |file: &str| is_own(&site, &config, &whole(&site.path(Path::new(file))));
    for file in [
        "alarms.jsonl",
        "history.json",
        "first-key.json",
        "master.key",
        "stele.toml",
        "settings.toml",
        "heads/1.head",
        "heads/../exports.json",
        "copies/1.head",
        "disks/a.img",
        "drives/e0-0.img",
        "nfs.key",
        "run/admin.sock",
        "mail",
        "smb.conf",
    ] {
        assert!(judge(file), "{file}");
    }
    for file in ["trail.jsonl", "heads.jsonl", "trails/heads", "alarms.jsonl.old"] {
        assert!(!judge(file), "{file}");
    }
    std::fs::remove_dir_all(&dir).expect("the folder goes");
}
