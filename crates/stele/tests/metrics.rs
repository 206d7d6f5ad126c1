//! `/metrics` and `/health` over HTTP: their listeners, their readers, and their contents.

use crate::support;
use crate::support::http::{Answer, between};
use crate::support::server::good;
use crate::support::{Place, content, wait_for};

/// The value of a series without labels.
fn value(text: &str, name: &str) -> f64 {
    let line = text.lines().find(|line| line.split(' ').next() == Some(name));
    line.and_then(|line| line.split(' ').nth(1)?.parse().ok()).unwrap_or_else(|| panic!("no {name} in {text}"))
}

#[test]
fn metrics_and_health_say_how_the_store_is() {
    let place = Place::new("metrics");
    let server = place.up();
    let health = server.plain("/health");
    assert_eq!((health.status, health.header("content-type").as_deref()), (200, Some("application/json")));
    let said: serde_json::Value = serde_json::from_str(&health.text()).unwrap();
    assert_eq!((said["health"].as_str(), said["drives"].as_u64()), (Some("healthy"), Some(12)), "{said}");
    assert_eq!(said["alarms"].as_array().map(Vec::len), Some(0), "{said}");

    place.json(&["bucket", "create", "records", "--versioning"]);
    server.put("/records/a", &content(1, 100_000));
    server.put("/records/a", &content(2, 50_000));
    good(server.delete("/records/a"));
    let columns = || String::from_utf8(place.stele(&["bucket", "list"]).stdout).unwrap();
    assert!(!columns().contains("unfinished"), "{}", columns());
    let begun = good(server.send(server.ask("POST", "/records/parts?uploads"))).text();
    let id = between(&begun, "<UploadId>", "</UploadId>").unwrap();
    server.put(&format!("/records/parts?partNumber=1&uploadId={id}"), &content(3, 30_000));
    let shown = place.json(&["bucket", "show", "records"]);
    assert_eq!((shown["stored_bytes"].as_u64(), shown["unfinished_bytes"].as_u64()), (Some(150_000), Some(30_000)));
    assert!(columns().contains("unfinished"), "{}", columns());
    place.json(&["pool", "scrub", "--wait"]);
    let metrics = || server.plain("/metrics").text();
    wait_for("versions in the metrics", || (value(&metrics(), "stele_versions") == 3.0).then_some(()));
    let text = metrics();
    assert_eq!(value(&text, "stele_stored_bytes"), 150_000.0);
    assert_eq!(value(&text, "stele_unfinished_bytes"), 30_000.0);
    assert!(value(&text, "stele_scrubbed_bytes_total") >= 150_000.0, "{text}");
    assert_eq!(value(&text, "stele_pool_health"), 0.0);
    assert_eq!(value(&text, "stele_s3_received_bytes_total"), 180_000.0);
    assert!(text.contains("stele_s3_requests_total{operation=\"PutObject\",status=\"200\"} 2"), "{text}");
    assert_eq!(text.matches("stele_drive_online{").count(), 12);
    // Every series appears once, with its kind.
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        assert!(text.contains(&format!("# TYPE {family} ")) || text.contains(&format!("# TYPE {name} ")), "{line}");
        let series = line.rsplit_once(' ').unwrap().0;
        let told = text.lines().filter(|other| other.rsplit_once(' ').is_some_and(|(other, _)| other == series));
        assert_eq!(told.count(), 1, "{line}");
    }

    // Both report a lost enclosure, under one name for both drives.
    let keys = server.keys();
    server.kill();
    for name in ["e1-0.img", "e1-1.img"] {
        std::fs::rename(place.0.join("drives").join(name), place.0.join(name)).unwrap();
    }
    let server = place.up().with_keys(keys);
    let text = wait_for("an alarm", || {
        let text = server.plain("/metrics").text();
        text.contains("stele_alarm{alarm=\"drive-").then_some(text)
    });
    assert_eq!(text.matches("stele_alarm{alarm=\"drive-missing\"} 1").count(), 1, "{text}");
    // The paths of these drives are not known, and Prometheus keeps one value of a series.
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let mut series: Vec<&str> = samples.filter_map(|line| Some(line.rsplit_once(' ')?.0)).collect();
    let told = series.len();
    series.sort_unstable();
    series.dedup();
    assert_eq!(series.len(), told, "{text}");
    assert_eq!(value(&text, "stele_pool_health"), 1.0);
    let health = server.plain("/health");
    assert_eq!(health.status, 200, "degraded is served");
    assert!(
        health.text().contains("drive-missing") && health.text().contains("\"drives_online\":10"),
        "{}",
        health.text()
    );
    // A command reports the same: the problem, its begin, the reaction, and the next step.
    let status = place.json(&["pool", "status"]);
    let standing = status["standing"].as_array().unwrap();
    let missing: Vec<_> = standing.iter().filter(|alarm| alarm["kind"] == "drive-missing").collect();
    assert_eq!(missing.len(), 2, "{status}");
    for alarm in missing {
        let text = |name: &str| alarm[name].as_str().unwrap_or_default();
        // Every drive of the enclosure is away: the operator should look there first.
        assert!(text("message").contains("no drive of enclosure 1 answers"), "{alarm}");
        assert!(text("subject").starts_with("drive ") && text("next").contains("power of enclosure 1"), "{alarm}");
        assert!(text("done").contains("spare space"), "{alarm}");
        assert!(alarm["since"].as_str().is_some_and(|since| since > "2023"), "{alarm}");
    }
    let said = place.stele(&["pool", "status"]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    for word in ["What is wrong now:", "drive-missing", "since", "done", "next   check the cables"] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

#[test]
fn strangers_get_metrics_only_where_they_are_meant_to() {
    let place = Place::new("metrics-open");
    place.up().stop();
    // On another address than loopback, an unsigned request counts as one for a bucket, and is
    // refused.
    place.edit_config(|text| text.replace("127.0.0.1:0", "0.0.0.0:0"));
    let server = place.serve();
    let here = |server: &support::Server, target: &str| -> Answer { server.plain(target) };
    let hidden = |server: &support::Server, target: &str| {
        let answer = here(server, target);
        assert!(matches!(answer.code().as_str(), "AccessDenied" | "NoSuchBucket"), "{target}: {}", answer.text());
    };
    hidden(&server, "/metrics");
    hidden(&server, "/health");
    assert!(server.ready.get("metrics").is_none(), "{}", server.ready);
    server.stop();
    // On a listener of their own they are open to every client.
    place.edit_config(|text| text.replace("[admin]\n", "[admin]\nmetrics = \"127.0.0.7:0\"\n"));
    let mut server = place.serve();
    let metrics = server.ready["metrics"].as_str().unwrap().to_owned();
    hidden(&server, "/metrics");
    server.address = metrics.split('/').nth(2).unwrap().parse().unwrap();
    assert_eq!(server.address.ip().to_string(), "127.0.0.7");
    assert!(here(&server, "/metrics").text().contains("stele_pool_health 0"));
    assert_eq!(here(&server, "/health").status, 200);
    assert_eq!(here(&server, "/records").status, 404, "no S3 there");
}

/// The series names that a rule or a dashboard uses.
fn asked(text: &str) -> std::collections::BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    words.filter(|word| word.starts_with("stele_")).map(str::to_owned).collect()
}

#[test]
fn rules_and_dashboard_ask_for_what_is_exported() {
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let read = |name: &str| std::fs::read_to_string(root.join(name)).unwrap();
    let (rules, dashboard) = (read("contrib/prometheus/stele.yml"), read("contrib/grafana/stele.json"));
    let place = Place::new("metrics-contrib");
    let server = place.up();
    let text = server.plain("/metrics").text();
    for (file, wanted) in [("rules", asked(&rules)), ("dashboard", asked(&dashboard))] {
        assert!(wanted.len() > 6, "{file}: {wanted:?}");
        for name in wanted {
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(&name);
            assert!(text.contains(&format!("# TYPE {family} ")), "{file}: {name} is not exported");
        }
    }
    let board: serde_json::Value = serde_json::from_str(&dashboard).unwrap();
    assert!(board["panels"].as_array().is_some_and(|panels| panels.len() > 10));
    server.stop();

    // Every alarm has a rule: those in the array's code, and those in the manual.
    let listed = read("OPERATIONS.md");
    let listed =
        listed.split("## What each alarm means").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap().to_owned();
    let rows = listed
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| alarm") && !line.starts_with("| ---"));
    let mut kinds: Vec<String> = rows.map(|row| row.split('|').nth(1).unwrap().trim().to_owned()).collect();
    let source = read("crates/array/src/model/admin.rs");
    let variants = source.split("pub enum AlarmKind {").nth(1).and_then(|rest| rest.split("\n}").next()).unwrap();
    let names =
        variants.lines().map(str::trim).filter(|line| !line.starts_with('/')).filter_map(|line| line.strip_suffix(','));
    kinds.extend(names.map(|name| {
        let kebab: String = name
            .chars()
            .map(|c| if c.is_ascii_uppercase() { format!("-{}", c.to_ascii_lowercase()) } else { c.to_string() })
            .collect();
        kebab.trim_start_matches('-').to_owned()
    }));
    assert!(kinds.len() > 40, "{kinds:?}");
    let (told, excepted): (Vec<&str>, Vec<&str>) = rules.lines().partition(|line| !line.starts_with('#'));
    let (told, excepted) = (told.join("\n"), excepted.join(" "));
    let excepted: Vec<&str> = excepted.split(|c: char| !(c.is_ascii_lowercase() || c == '-')).collect();
    for kind in kinds {
        // A counter that begins with the first alarm has no increase.
        assert!(text.contains(&format!("stele_alarms_total{{alarm=\"{kind}\"}} ")), "{kind} has no counter");
        let ruled = told.contains(&format!("alarm=\"{kind}\""));
        assert!(ruled || excepted.contains(&kind.as_str()), "no rule speaks of the alarm {kind}");
    }
    for alarm in told.split("alarm=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(
            listed.contains(&format!("| {alarm} |")),
            "a rule speaks of an alarm {alarm}, which the manual does not"
        );
    }
}
