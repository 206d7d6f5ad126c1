//! Results and jobs of the laboratory that others made: what they hold is shown, and acts on no
//! terminal.

use std::path::Path;

use serde_json::{Value, json};
use stele_ground::shown::is_unsafe;

use crate::support::Place;

/// A result whose texts clear the screen, set its title, turn the direction of writing, and forge a
/// line.
fn forged(place: &Place) -> String {
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/tests/formats/hosts.lab");
    let text = std::fs::read_to_string(stored).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let (mut head, mut cell) = (lines.next().unwrap(), lines.next().unwrap());
    head["target"] = json!("\u{1b}[2Jtarget\u{202e}");
    head["reached"] = json!("\u{1b}]0;title\u{7}");
    head["program"] = json!("stele\u{1b}[1m");
    head["environment"] = json!([["\u{1b}[31mname", "value\nwhole     BLAKE3 0"]]);
    cell["name"] = json!("\u{1b}[31mcell\nwhole     BLAKE3 0");
    cell["axes"] = json!([["\u{1b}axis", "\u{1b}value"]]);
    cell["failed"] = json!("a cause\u{1b}[5m");
    cell["hosts"][0]["failed"] = json!("lost\u{9b}31m");
    let path = place.path("forged.lab");
    std::fs::write(&path, format!("{head}\n{cell}\n")).unwrap();
    path
}

#[test]
fn names_in_a_result_of_others_act_on_nothing() {
    let place = Place::new("lab-shown");
    let file = forged(&place);
    let commands: &[&[&str]] = &[
        &["lab", "show", &file],
        &["lab", "show", &file, "--rounds"],
        &["lab", "show", &file, "--json"],
        &["lab", "diff", &file, &file],
        &["lab", "check", &file, "--against", &file],
        &["lab", "plot", &file, "--chart", "bars"],
    ];
    for arguments in commands {
        let output = place.stele(arguments);
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        let acts = text.chars().find(|c| *c != '\n' && is_unsafe(*c));
        assert_eq!(acts, None, "stele {arguments:?}: {text:?}");
        assert!(!text.contains("\nwhole     BLAKE3 0"), "stele {arguments:?}: {text}");
        assert!(text.contains("u{1b}") || text.contains("u001b"), "stele {arguments:?}: {text}");
    }
}

/// Workloads side by side, with names that act on a terminal.
const JOB: &str = r#"
on = "null"
[time]
least = "100ms"
round = "20ms"
warm-up = "20ms"
[[tenant]]
name = "a\u009bb"
workload = { random = 100 }
load = { outstanding = 1 }
[[tenant]]
name = "c\u202ed"
workload = { random = 0 }
load = { outstanding = 1 }
"#;

#[test]
fn names_in_a_job_of_others_act_on_nothing() {
    let place = Place::new("lab-job-shown");
    let job = place.path("job.toml");
    std::fs::write(&job, JOB).unwrap();
    for more in [&[][..], &["--json"]] {
        let output = place.stele(&[&["lab", "run", &job], more].concat());
        assert!(Place::measured(&output), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.chars().find(|c| *c != '\n' && is_unsafe(*c)), None, "{text:?}");
        assert!(text.contains("tenant a") && text.contains("tenant c"), "{text}");
    }
}
