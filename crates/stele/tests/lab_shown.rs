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

/// The same result for cells of these names, measured on such a processor.
fn of_cells(place: &Place, file: &str, processor: &str) -> String {
    let stored = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lab/tests/formats/hosts.lab");
    let text = std::fs::read_to_string(stored).unwrap();
    let mut lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let (mut head, mut cell) = (lines.next().unwrap(), lines.next().unwrap());
    head["environment"] = json!([["processor", processor]]);
    let mut all = format!("{head}\n");
    for (number, access) in ["4 KiB", "64 KiB"].into_iter().enumerate() {
        cell["number"] = json!(number);
        cell["name"] = json!(format!("read 100 %, access {access}, outstanding 1"));
        cell["axes"] = json!([["read", "100 %"], ["access", access], ["outstanding", "1"]]);
        all += &format!("{cell}\n");
    }
    let path = place.path(file);
    std::fs::write(&path, all).unwrap();
    path
}

#[test]
fn cells_are_told_apart_in_a_narrow_terminal() {
    let place = Place::new("lab-narrow");
    let file = of_cells(&place, "a.lab", "one");
    for columns in ["80", "95", "105", "115", "125", "200"] {
        for command in [&["lab", "show", &file][..], &["lab", "diff", &file, &file]] {
            let output = place.command(command).env("COLUMNS", columns).output().unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            for access in ["4 KiB", "64 KiB"] {
                let (whole, values) = (format!("access {access}, outstanding 1"), format!("100 %, {access}, 1"));
                let named = |line: &str| line.contains(&whole) || line.contains(&values);
                // Without the remarks, which are whole in any case.
                let lines = text.lines().filter(|line| !line.contains("outstanding 1: "));
                assert!(lines.filter(|line| named(line)).count() > 0, "{columns} columns: {text}");
            }
        }
    }
}

#[test]
fn results_of_two_machines_are_told_apart() {
    let place = Place::new("lab-machines");
    let (here, there) = (of_cells(&place, "a.lab", "one kind"), of_cells(&place, "b.lab", "another kind"));
    for (command, side) in
        [(["lab", "diff"].as_slice(), "second"), (["lab", "check", "--against"].as_slice(), "result")]
    {
        let output = place.stele(&[command, &[here.as_str(), there.as_str()]].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(side) && text.contains("one kind") && text.contains("another kind"), "{text}");
    }
    let apart = &place.json(&["lab", "diff", &here, &there])["apart"];
    assert_eq!(*apart, json!([{ "name": "processor", "first": "one kind", "second": "another kind" }]));
    assert_eq!(place.json(&["lab", "diff", &here, &here])["apart"], json!([]));
}

/// A drive or its image, named by mistake.
#[test]
fn what_is_far_too_long_for_a_job_is_none() {
    let place = Place::new("lab-long-job");
    let path = place.path("drive.img");
    std::fs::File::create(&path).unwrap().set_len(17 << 20).unwrap();
    for command in ["run", "fio", "ffsb", "import"] {
        place.refused(2, &["is longer than 16 MiB"], &["lab", command, &path]);
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

#[test]
fn names_in_a_fio_job_of_others_act_on_nothing() {
    let place = Place::new("lab-fio-shown");
    let job = place.path("job.fio");
    std::fs::write(&job, "[a\u{1b}[31mb]\nioengine=null\nrw=read\nsize=64k\nfilename=x\u{1b}[2Jy\n").unwrap();
    for more in [&[][..], &["--plan"]] {
        let output = place.stele(&[&["lab", "fio", &job], more].concat());
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(output.status.success() && text.contains("a\\u{1b}[31mb"), "{text:?}");
        assert_eq!(text.chars().find(|c| *c != '\n' && is_unsafe(*c)), None, "{text:?}");
    }
}
