//! The laboratory as a command: its measurements, files, output and refusals.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::support;
use crate::support::{Place, installed};
use serde_json::Value;

/// Options of a very short run.
const SHORT: [&str; 6] = ["--time", "60ms", "--round", "10ms", "--warm-up", "10ms"];

/// The cells that a run printed.
fn cells(place: &Place, arguments: &[&str]) -> Vec<Value> {
    place.cells(&[arguments, &SHORT].concat())
}

#[test]
fn a_sweep_over_a_file_is_measured_kept_and_shown() {
    let place = Place::new("lab-sweep");
    let (target, out) = (place.path("target"), place.path("sweep.lab"));
    let sweep =
        ["lab", "run", "--on", &target, "--size", "4MiB", "--read", "100,0", "--outstanding", "1,4", "--out", &out];
    let cells = cells(&place, &sweep);
    let names: Vec<&str> = cells.iter().filter_map(|cell| cell["name"].as_str()).collect();
    assert_eq!(
        names,
        [
            "read 100 %, outstanding 1",
            "read 100 %, outstanding 4",
            "read 0 %, outstanding 1",
            "read 0 %, outstanding 4"
        ]
    );

    let shown = place.json(&["lab", "show", &out]);
    assert_eq!(shown["cells"].as_array().unwrap().len(), 4);
    assert_eq!(shown["head"]["target_bytes"], 4 << 20);
    assert!(shown["blake3"].is_string(), "{shown}");
    let text = String::from_utf8(place.stele(&["lab", "show", &out, "--rounds"]).stdout).unwrap();
    assert!(text.contains("accesses/s") && text.contains("read 0 %, outstanding 4"), "{text}");

    let page = place.json(&["lab", "paper", &out])["written"].as_str().unwrap().to_owned();
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("read 0 %, outstanding 4") && page.contains("<svg"), "{page}");
    place.refused(9, &["exists already", "--out"], &["lab", "paper", &out]);
    let pdf =
        place.json(&["lab", "paper", &out, "-o", &place.path("page.pdf")])["written"].as_str().unwrap().to_owned();
    assert!(std::fs::read(pdf).unwrap().starts_with(b"%PDF-1.7\n"));
    let drawn = place.path("rates.svg");
    place.json(&["lab", "plot", &out, "--chart", "response-rate", "-o", &drawn]);
    assert!(std::fs::read_to_string(&drawn).unwrap().contains("http://www.w3.org/2000/svg"));
    let text = String::from_utf8(place.stele(&["lab", "plot", &out, "--chart", "bars"]).stdout).unwrap();
    assert!(text.contains("outstanding 4") && text.contains("===="), "{text}");
    place.refused(2, &["no .png", ".svg", ".html"], &["lab", "plot", &out, "-o", &place.path("a.png")]);
    place.refused(2, &["no .png", ".html"], &["lab", "paper", &out, "-o", &place.path("a.png")]);
    place.refused(2, &["no such chart", "--chart help"], &["lab", "plot", &out, "--chart", "pie"]);
    place.refused(4, &["has nothing for this chart"], &["lab", "plot", &out, "--chart", "rate-size"]);
    let conditioned = place.path("conditioned.lab");
    let run = ["lab", "run", "--on", &target, "--read", "50", "--precondition", "2x", "--out", &conditioned];
    let measure = |time: &str| {
        drop(std::fs::remove_file(&conditioned));
        let round = if time == "600ms" { "10ms" } else { "1s" };
        assert_eq!(
            place.cells(&[&run[..], &["--time", time, "--round", round, "--warm-up", "10ms"]].concat()).len(),
            1
        );
        place.json(&["lab", "show", &conditioned, "--rounds"])["cells"].as_array().unwrap().clone()
    };
    let found = Place::answered(measure, |cell| cell["precondition"]["random_bytes"].as_u64() > Some(0));
    assert_eq!(found[0]["precondition"]["ordered_bytes"], 8 << 20, "{found:?}");
    let same = place.json(&["lab", "diff", &out, &out]);
    assert_eq!((&same["cells"][0]["ratio"], &same["cells"][0]["differs"]), (&1.0.into(), &false.into()));
    place.refused(4, &["no cell in common", "only in one of them"], &["lab", "diff", &out, &conditioned]);

    place.refused(9, &["exists already", "--resume"], &[&sweep[..], &SHORT].concat());
    place.refused(3, &["came to its end"], &[&sweep[..], &SHORT, &["--resume"]].concat());
    // Change one digit of one figure.
    let text = std::fs::read_to_string(&out).unwrap().replacen("\"lag_ns\":", "\"lag_ns\":1", 1);
    std::fs::write(&out, text).unwrap();
    place.refused(5, &["was changed, or is damaged"], &["lab", "show", &out]);
}

#[test]
fn a_result_file_that_is_refused_costs_no_target() {
    let place = Place::new("lab-out");
    let (target, out, ended) = (place.path("target"), place.path("some.lab"), place.path("ended.lab"));
    place.cells(&[&["lab", "run", "--on", "null", "--out", &ended][..], &SHORT].concat());
    std::fs::write(&out, "kept").unwrap();
    let nowhere = place.path("none/some.lab");
    let job = place.path("tenants.toml");
    let tenants = format!(
        "on = '{target}'\nsize = '1MiB'\n[[tenant]]\nname = 'a'\n[[tenant]]\nname = 'b'\n[time]\nleast = '60ms'"
    );
    std::fs::write(&job, tenants).unwrap();
    let trace = place.path("trace.spc");
    std::fs::write(&trace, "0,0,4096,r,0.0\n").unwrap();
    let run = ["lab", "run", "--on", &target, "--size", "1MiB"];
    let replay = ["lab", "replay", &trace, "--format", "spc", "--on", &target, "--size", "1MiB"];
    for command in [&run[..], &replay, &["lab", "run", &job]] {
        place.refused(9, &["exists already"], &[command, &["--out", &out]].concat());
        place.refused(4, &["cannot be created"], &[command, &["--out", &nowhere]].concat());
    }
    place.refused(3, &["came to its end"], &[&run[..], &["--out", &ended, "--resume"]].concat());
    place.refused(1, &["is not of a .lab file"], &[&run[..], &["--out", &job, "--resume"]].concat());
    assert!(!std::path::Path::new(&target).exists(), "it was filled before the result file was looked at");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "kept");
}

#[test]
fn what_was_measured_before_an_error_is_shown() {
    let place = Place::new("lab-kept");
    // A later cell that the target does not take is refused before the first is measured.
    let (out, target) = (place.path("some.lab"), place.path("target"));
    let said = place.refused(
        2,
        &["less than one access of 131072 bytes"],
        &["lab", "run", "--on", "null", "--size", "64KiB", "--access", "4KiB,128KiB", "--out", &out],
    );
    assert!(!said.contains("to go") && !std::path::Path::new(&out).exists(), "{said}");
    // The result file may have no more than its head, as on a full file system.
    let shell = "trap '' XFSZ; ulimit -f 8; exec \"$0\" \"$@\"";
    let run = [&["lab", "run", "--on", "null", "--outstanding", "1,2", "--out", &out][..], &SHORT].concat();
    let command = place.command(&run);
    let full = Command::new("sh").args(["-c", shell]).arg(command.get_program()).args(&run).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&full.stdout), String::from_utf8_lossy(&full.stderr));
    assert!(text.contains("outstanding 1") && text.contains("cannot be written"), "{text}");
    // A target that fails in the warm-up of the second cell.
    let run =
        ["lab", "run", "--on", &target, "--size", "4MiB", "--buffered", "--outstanding", "1,2", "--time", "100ms"];
    let run = [&run[..], &["--round", "20ms", "--warm-up", "2s", "--json"]].concat();
    let mut child = place.command(&run).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut cells = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok) {
        let line: Value = serde_json::from_str(&line).unwrap();
        match line["round"].is_null() {
            true => cells.push(line),
            false if line["cell"] == 1 => {
                std::fs::OpenOptions::new().write(true).open(&target).unwrap().set_len(0).unwrap();
            }
            false => {}
        }
    }
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!((&cells[0]["name"], &cells[1]["kind"]), (&"outstanding 1".into(), &"failed".into()), "{cells:?}");
}

#[test]
fn a_run_in_which_nothing_was_answered_is_not_steady() {
    let place = Place::new("lab-silent");
    // The pause begins in the warm-up, and outlasts the run.
    let out = place.path("silent.lab");
    let run = ["lab", "run", "--on", "null", "--pause", "1h", "--time", "300ms", "--round", "30ms", "--out", &out];
    let output = place.stele(&run);
    assert_eq!(output.status.code(), Some(10), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("nothing was answered") && !text.contains("0 ns"), "{text}");
    let text = String::from_utf8(place.stele(&["lab", "show", &out, "--rounds"]).stdout).unwrap();
    assert!(text.contains("round") && !text.contains("0 ns"), "{text}");
}

#[test]
fn a_run_that_is_interrupted_keeps_what_is_whole_and_goes_on() {
    for signal in ["-INT", "-TERM"] {
        interrupted_by(signal);
    }
}

fn interrupted_by(signal: &str) {
    let place = Place::new(&format!("lab-stop{signal}"));
    let out = place.path("null.lab");
    // Cells of the same length, so that the second is under way when the first has ended.
    let run =
        ["lab", "run", "--on", "null", "--outstanding", "1,2,3", "--time", "400ms", "--round", "50ms", "--out", &out];
    let mut child = place.command(&run).args(["--json"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut stopped = false;
    for line in lines.map_while(Result::ok) {
        let line: Value = serde_json::from_str(&line).unwrap();
        // One counting round is over; warm-up rounds, which have negative numbers, are not kept.
        if !stopped && line["cell"] == 1 && line["round"].as_i64() >= Some(0) {
            let pid = child.id().to_string();
            // Two signals at once, as `timeout` sends them, are one request.
            let both = format!("kill {signal} {pid}; kill {signal} {pid}");
            assert!(Command::new("sh").args(["-c", &both]).status().unwrap().success());
            stopped = true;
        }
    }
    assert_eq!(child.wait().unwrap().code(), Some(12));
    let shown = place.json(&["lab", "show", &out]);
    // The second cell, as far as it came.
    let cells = shown["cells"].as_array().unwrap();
    assert_eq!((cells.len(), &shown["blake3"]), (2, &Value::Null));
    assert!(cells[1]["remark"].as_str().unwrap().contains("stopped"), "{shown}");

    place.refused(2, &["another job"], &["lab", "run", "--on", "null", "--out", &out, "--resume"]);
    let output = place.stele(&[&run[..], &["--resume"]].concat());
    assert!(Place::measured(&output), "{output:?}");
    let shown = place.json(&["lab", "show", &out]);
    assert_eq!(shown["cells"].as_array().unwrap().len(), 3);
    assert!(shown["blake3"].is_string());
}

#[test]
fn the_highest_load_at_a_response_is_searched_for() {
    let place = Place::new("lab-search");
    let job = place.path("job.toml");
    std::fs::write(&job, "on = 'null'\n[workload]\nname = ['oltp_4k', 'web_server']\n").unwrap();
    let found = cells(&place, &["lab", "search", &job, "--response", "1h", "--outstanding-max", "16"]);
    assert_eq!(found.len(), 2);
    for cell in &found {
        assert_eq!(cell["search"]["open_end"], "the response was never exceeded", "{cell}");
        assert_eq!(cell["search"]["outstanding"], 16.0);
    }
}

#[test]
fn what_is_not_the_laboratorys_is_refused_and_left_alone() {
    let place = Place::new("lab-refuse");
    let records = place.path("records");
    std::fs::write(&records, vec![7; 8192]).unwrap();
    place.refused(3, &["not made by the laboratory", "--destroy"], &["lab", "run", "--on", &records, "--read", "0"]);
    assert_eq!(std::fs::read(&records).unwrap(), vec![7; 8192]);
    place.refused(4, &["--size"], &["lab", "run", "--on", &place.path("none")]);
    place.refused(2, &["--on"], &["lab", "run"]);
    place.refused(4, &["stele lab workloads"], &["lab", "run", "--on", "null", "--workload", "oltp_5k"]);
    place.refused(2, &["http://"], &["lab", "run", "--on", "http://somewhere"]);
    let job = place.path("job.toml");
    std::fs::write(&job, "[load]\noutstandig = 4\n").unwrap();
    let said =
        place.refused(2, &["job.toml: line 2, column 1 (`outstandig = 4`)"], &["lab", "run", &job, "--on", "null"]);
    assert!(!said.contains("\\n"), "{said}");
}

#[test]
fn a_plan_says_what_would_run_and_runs_nothing() {
    let place = Place::new("lab-plan");
    let target = place.path("target");
    let plan = ["lab", "run", "--on", &target, "--size", "1GiB", "--access", "512,4KiB", "--time", "10s", "--plan"];
    let planned = place.json(&plan);
    assert_eq!(planned["cells"].as_array().unwrap().len(), 2);
    assert_eq!(planned["least_seconds"], 24.0, "two cells of ten seconds and two rounds of warm-up: {planned}");
    assert!(!std::path::Path::new(&target).exists());
    let odd = place.json(&["lab", "papers", "check"]);
    assert!(odd.as_array().unwrap().iter().any(|odd| odd["place"] == "Fibre Channel Table 2"), "{odd}");
    let text = String::from_utf8(place.stele(&["lab", "workloads"]).stdout).unwrap();
    assert!(text.contains("file_server") && text.contains("4.0 KiB (60 %)") || text.contains("4 KiB (60 %)"), "{text}");
}

#[test]
fn a_fio_job_file_becomes_jobs_that_run() {
    let place = Place::new("lab-import");
    let file = place.path("nightly.fio");
    std::fs::write(&file, "[global]\nioengine=null\nsize=1g\n[a/b]\nrw=randrw\nbs=8k\niodepth=4\nfsync=1\n").unwrap();
    place.refused(2, &["nightly.fio", "line 8", "fsync"], &["lab", "import", &file]);
    let into = place.path("jobs/new");
    let written =
        place.json(&["lab", "import", &file, "--lenient", "--into", &into])["written"].as_str().unwrap().to_owned();
    assert!(written.ends_with("a_b.toml"), "{written}");
    let cells = cells(&place, &["lab", "run", &written]);
    assert_eq!(cells[0]["runs"][0]["outstanding"], 4, "{cells:?}");
    place.refused(9, &["exists already"], &["lab", "import", &file, "--lenient", "--into", &into]);
}

#[test]
fn a_directory_of_files_is_measured_checked_and_left_as_it_was() {
    let place = Place::new("lab-directory");
    std::fs::create_dir(place.path("share")).unwrap();
    std::fs::write(place.path("share/letter"), b"somebody's").unwrap();
    let on = format!("dir:{}", place.path("share"));
    let run = ["lab", "run", "--on", &on, "--files", "5", "--size", "5MiB", "--read", "50", "--buffered"];
    let found =
        cells(&place, &[&run[..], &["--random", "0,100", "--access", "512,8KiB", "--outstanding", "1,4"]].concat());
    assert_eq!(found.len(), 8);
    assert!(found.iter().all(|cell| cell["runs"][0]["response"]["count"].as_u64() > Some(0)), "{found:?}");
    // With and without the page cache, on the same files.
    let both = ["lab", "run", "--on", &on, "--files", "5", "--size", "5MiB", "--read", "50", "--buffered=false,true"];
    let found = cells(&place, &both);
    let names: Vec<&str> = found.iter().filter_map(|cell| cell["name"].as_str()).collect();
    assert_eq!(names, ["buffered false", "buffered true"]);
    place.refused(2, &["buffered as a list"], &["lab", "run", "--on", "null", "--buffered=false,true"]);
    let checked = cells(&place, &[&run[..], &["--verify", "--keep"]].concat());
    assert_eq!(checked.len(), 1);
    assert_eq!(std::fs::read_dir(place.path("share/stele-lab")).unwrap().count(), 6);
    assert_eq!(cells(&place, &[&run[..], &["--names"]].concat()).len(), 1);
    let left: Vec<_> =
        std::fs::read_dir(place.path("share")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["letter"]);
}

#[test]
fn wrong_data_ends_a_run_and_all_that_is_wrong_is_told() {
    use std::os::unix::fs::FileExt;
    let place = Place::new("lab-wrong");
    let (target, out) = (place.path("target"), place.path("wrong.lab"));
    let run = |more: &[&str]| {
        let given = ["lab", "run", "--on", &target, "--size", "4MiB", "--verify", "--json"];
        place.stele(&[&given[..], more, &SHORT].concat())
    };
    let good = run(&["--read", "50", "--outstanding", "1,4"]);
    let cells = Place::cells_of(&good);
    assert!(cells[0]["read_back"].is_null(), "once, behind the last cell: {cells:?}");
    assert_eq!(
        (&cells[1]["read_back"]["bytes"], &cells[1]["read_back"]["wrong_sectors"]),
        (&(4 << 20).into(), &0.into())
    );
    let file = std::fs::OpenOptions::new().write(true).open(&target).unwrap();
    let places = [5_000, 1_000_000, 4_194_000];
    places.iter().for_each(|at| file.write_all_at(b"damage", *at).unwrap());
    // Reads of the run meet one or more of them; the read-back finds the others.
    let bad = run(&["--read", "100", "--random", "0", "--access", "1MiB", "--out", &out]);
    let text = String::from_utf8(bad.stdout).unwrap();
    assert_eq!(bad.status.code(), Some(5), "{text}");
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(last["kind"], "damaged", "{text}");
    let cell = &place.json(&["lab", "show", &out])["cells"][0];
    assert!(cell["wrong_sectors"].as_u64() >= Some(1), "{cell}");
    assert_eq!(cell["read_back"]["wrong_sectors"], 3, "{cell}");
    for at in places {
        let told = format!("offset {}: ", at / 512 * 512);
        assert!(cell["read_back"]["places"].to_string().contains(&told), "{told}{cell}");
    }
    // The read-back after the last cell finds a write that no other read checks. The damage is
    // another program's writing, which the laboratory does not write over unasked.
    let writes = ["--read", "0", "--random", "0", "--rate", "100", "--access", "4KiB"];
    let refused = run(&writes);
    assert_eq!(refused.status.code(), Some(3), "{refused:?}");
    let unread = run(&[&writes[..], &["--destroy"]].concat());
    assert_eq!(unread.status.code(), Some(5), "{unread:?}");
}

#[test]
fn a_server_that_is_killed_or_stopped_ends_the_run_in_bounded_time() {
    let place = Place::new("lab-gone");
    place.json(&[
        "pool",
        "create",
        "--confirm-time",
        "--size",
        "256MiB",
        "--data",
        "none",
        "--drive",
        &place.path("d0.img"),
        "--drive",
        &place.path("d1.img"),
        "--drive",
        &place.path("d2.img"),
        "--drive",
        &place.path("d3.img"),
    ]);
    let mut server = place.serve();
    place.json(&["volume", "create", "vm1", "--code", "mirror-2", "--size", "64MiB"]);
    let url = place.json(&["volume", "export", "vm1", "--nbd"])["url"].as_str().unwrap().to_owned();
    for (signal, words) in [("-STOP", "has answered nothing"), ("-KILL", "ended the connection")] {
        let run =
            ["lab", "run", "--on", &url, "--time", "10m", "--round", "20ms", "--outstanding", "4", "--patience", "1s"];
        let mut child =
            place.command(&run).args(["--json"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // A counting round is over.
        let counted = |line: &str| serde_json::from_str::<Value>(line).unwrap()["round"].as_i64() >= Some(0);
        assert!(
            lines.by_ref().map_while(Result::ok).any(|line| counted(&line)),
            "the run ended before its first round"
        );
        assert!(
            std::process::Command::new("kill")
                .args([signal, &server.child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
        let begun = std::time::Instant::now();
        assert!(lines.map_while(Result::ok).count() < 1_000);
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(begun.elapsed().as_secs() < 20, "{text}");
        assert!(output.status.code() == Some(12) && text.contains(words), "{signal}: {text}");
        if signal == "-STOP" {
            assert!(
                std::process::Command::new("kill")
                    .args(["-CONT", &server.child.id().to_string()])
                    .status()
                    .unwrap()
                    .success()
            );
        }
    }
    server.child.wait().unwrap();
}

#[test]
fn two_targets_are_compared_in_blocks_and_the_record_says_so() {
    let place = Place::new("lab-compare");
    let (a, b, out) = (place.path("a"), place.path("b"), place.path("both.lab"));
    let what = ["lab", "compare", "--on", &a, "--against", &b, "--size", "4MiB", "--outstanding", "2", "--blocks", "3"];
    let how = ["--time", "60ms", "--round", "20ms", "--warm-up", "20ms", "--out", &out];
    let found = place.stele(&[&what[..], &how].concat());
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(Place::measured(&found) && text.contains("95 %"), "{text}");
    let shown = place.json(&["lab", "show", &out]);
    assert_eq!((shown["cells"].as_array().unwrap().len(), &shown["head"]["against"]), (12, &b.as_str().into()));
    let page = place.json(&["lab", "paper", &out])["written"].as_str().unwrap().to_owned();
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("B's rate is") && page.contains("Rates of both"), "{page}");
    place.refused(2, &["--blocks 2"], &["lab", "compare", "--on", "null", "--against", "null", "--blocks", "2"]);
}

#[test]
fn results_are_exported_and_fios_own_tool_reads_them() {
    let place = Place::new("lab-export");
    let out = place.path("null.lab");
    let run =
        ["lab", "run", "--on", "null", "--read", "50", "--outstanding", "1,2", "--time", "300ms", "--round", "100ms"];
    assert!(Place::measured(&place.stele(&[&run[..], &["--warm-up", "20ms", "--out", &out]].concat())));
    for format in ["fio", "iometer", "csv"] {
        place.json(&["lab", "export", &out, "--format", format]);
        place.refused(9, &["exists already"], &["lab", "export", &out, "--format", format]);
    }
    if !installed(&["fio_jsonplus_clat2csv", "--help"]) {
        return;
    }
    let (json, csv) = (place.path("null.json"), place.path("read.csv"));
    let read = Command::new("fio_jsonplus_clat2csv").args([&json, &csv]).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let text = std::fs::read_to_string(place.path("read_job0.csv")).unwrap();
    assert!(text.lines().count() > 2, "{text}");
}

#[test]
fn a_result_is_held_against_a_baseline_and_a_slower_one_fails() {
    let place = Place::new("lab-check");
    let (fast, slow, xml) = (place.path("fast.lab"), place.path("slow.lab"), place.path("check.xml"));
    // In virtual time the figures are the same on every machine, however busy.
    let measure = |drives: &str, out: &str| {
        let run = ["lab", "run", "--workload", "oltp_8k", "--outstanding", "40", "--out", out];
        let array = ["--virtual", "array=ds4500", "raid=5", drives];
        assert!(place.stele(&[&run[..], &array].concat()).status.success());
    };
    measure("drives=40", &fast);
    measure("drives=20", &slow);
    let check = |result: &str, against: &str, more: &[&str]| {
        let given = ["lab", "check", result, "--against", against, "--json"];
        let output = place.stele(&[&given[..], more].concat());
        let text = String::from_utf8(output.stdout).unwrap();
        let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        (output.status.code().unwrap(), first["cells"][0].clone())
    };
    let (code, cell) = check(&slow, &fast, &["--junit", &xml, "--markdown", &place.path("check.md")]);
    assert_eq!((code, &cell["verdict"]), (13, &"regressed".into()), "{cell}");
    assert!(std::fs::read_to_string(&xml).unwrap().contains("failures=\"1\""));
    assert!(std::fs::read_to_string(place.path("check.md")).unwrap().contains("regressed: worse by"));
    for (result, against) in [(&fast, &fast), (&fast, &slow)] {
        let (code, cell) = check(result, against, &["--junit", &xml]);
        assert_eq!((code, &cell["verdict"]), (0, &"kept".into()), "{cell}");
    }
    assert!(std::fs::read_to_string(&xml).unwrap().contains("failures=\"0\""));
    place.refused(2, &["--tolerance"], &["lab", "check", &fast, "--against", &fast, "--tolerance", "five"]);
    place.refused(4, &["none.lab"], &["lab", "check", &fast, "--against", &place.path("none.lab")]);
}

/// A host of the laboratory, and its address.
fn host(place: &Place, token: &str, more: &[&str]) -> (std::process::Child, String) {
    let serve = [&["lab", "serve", "--listen", "127.0.0.1:0", "--token-file", token, "--json"], more].concat();
    let mut child = place.command(&serve).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let said: Value = serde_json::from_str(&line).unwrap();
    (child, said["listen"].as_str().unwrap().to_owned())
}

#[test]
fn hosts_run_a_job_together_and_one_that_dies_leaves_a_partial_result_that_says_so() {
    let place = Place::new("lab-hosts");
    let (token, other) = (place.path("token"), place.path("other"));
    std::fs::write(&token, "a secret that is long enough\n").unwrap();
    std::fs::write(&other, "another one that is long enough").unwrap();
    let (mut first, mut second) = (host(&place, &token, &[]), host(&place, &token, &[]));
    let hosts = format!("{},{}", first.1, second.1);
    let run = ["lab", "run", "--on", "null", "--hosts", &hosts, "--outstanding", "1,2"];
    let found = cells(&place, &[&run[..], &["--token-file", &token]].concat());
    assert_eq!(found.len(), 2);
    for cell in &found {
        let (both, all) = (&cell["runs"][0], cell["hosts"].as_array().unwrap());
        assert_eq!(all.len(), 2, "{cell}");
        let rates: f64 = all.iter().map(|host| host["rate"].as_f64().unwrap()).sum();
        assert!(rates > 0.0 && (rates / both["rate"].as_f64().unwrap() - 1.0).abs() < 1e-3, "{cell}");
        assert!(all.iter().all(|host| host["cpu_own"].as_f64() > Some(0.0) && host["failed"].is_null()), "{cell}");
    }
    assert_eq!(found[1]["runs"][0]["outstanding"], 4, "two on each");
    // A search divides its loads: five become three and two, and one goes to one host alone.
    for (most, asked) in [("5", 2), ("1", 1)] {
        let search = ["lab", "search", "--on", "null", "--hosts", &hosts, "--outstanding-max", most];
        let found = cells(&place, &[&search[..], &["--token-file", &token]].concat());
        let (cell, all) = (&found[0], found[0]["hosts"].as_array().unwrap());
        assert_eq!(cell["runs"][0]["outstanding"].to_string(), most, "{cell}");
        assert!(cell["search"]["open_end"].as_str().unwrap().contains("never exceeded"), "{cell}");
        let rates: f64 = all.iter().map(|host| host["rate"].as_f64().unwrap()).sum();
        assert_eq!(all.len(), asked, "{cell}");
        assert!((rates / cell["runs"][0]["rate"].as_f64().unwrap() - 1.0).abs() < 1e-3, "{cell}");
    }
    place.refused(3, &["secret is another one"], &[&run[..], &["--token-file", &other]].concat());
    place.refused(2, &["--token-file"], &run);
    std::fs::write(&other, "short").unwrap();
    place.refused(2, &["at least 16"], &["lab", "serve", "--token-file", &other]);
    // Files that the hosts may not overwrite stay as they are, whatever the job asks for.
    let records = place.path("records");
    std::fs::write(&records, vec![7; 8192]).unwrap();
    let destroy =
        ["lab", "run", "--on", &records, "--hosts", &first.1, "--token-file", &token, "--read", "0", "--destroy"];
    place.refused(3, &["not made by the laboratory"], &destroy);
    assert_eq!(std::fs::read(&records).unwrap(), vec![7; 8192]);

    let out = place.path("hosts.lab");
    let long = ["lab", "run", "--on", "null", "--hosts", &hosts, "--time", "2s", "--round", "50ms", "--warm-up", "0s"];
    let mut command = place.command(&long);
    command.args(["--token-file", &token, "--out", &out, "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The file exists when all hosts are ready.
    support::wait_for("the run's file", || support::exists(std::path::Path::new(&out)));
    std::thread::park_timeout(std::time::Duration::from_millis(300));
    second.0.kill().unwrap();
    second.0.wait().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(12), "{output:?}");
    let shown = place.json(&["lab", "show", &out]);
    let cell = &shown["cells"][0];
    assert!(cell["remark"].as_str().unwrap().contains("partial"), "{cell}");
    assert_eq!(cell["runs"][0]["outstanding"], 1, "of the one that is left: {cell}");
    first.0.kill().unwrap();
    first.0.wait().unwrap();
    place.refused(7, &[&first.1], &[&run[..], &["--token-file", &token]].concat());
}

#[test]
fn a_job_file_of_fio_is_run_as_it_is() {
    let place = Place::new("lab-fio");
    let (job, files, out) = (place.path("job.fio"), place.path("files"), place.path("out.json"));
    let text = format!(
        "[global]\ndirectory={files}\nbs=4k\nsize=256k\n[make]\nrw=write\nfsync=16\n[look]\nstonewall\nfilename=make.0.0\n\
         rw=randread\nnumjobs=2\ngroup_reporting\n"
    );
    std::fs::write(&job, &text).unwrap();
    let planned = place.json(&["lab", "fio", &job, "--plan"]);
    assert_eq!((&planned[0]["files"][0]["is_made"], &planned[1]["turn"]), (&true.into(), &2.into()), "{planned}");
    assert!(!std::path::Path::new(&files).exists(), "a plan makes nothing");

    assert_eq!(place.json(&["lab", "fio", &job, "--out", &out])["written"], out.as_str());
    let said: Value = serde_json::from_str(&std::fs::read_to_string(&out).unwrap()).unwrap();
    let [make, look] = said["jobs"].as_array().unwrap().as_slice() else { panic!("{said}") };
    let counts =
        |job: &Value| [&job["read"], &job["write"], &job["sync"]].map(|way| way["total_ios"].as_u64().unwrap());
    assert_eq!((counts(make), counts(look)), ([0, 64, 3], [128, 0, 0]));
    assert_eq!(
        (&make["jobname"], &make["job options"]["fsync"], &look["groupid"]),
        (&"make".into(), &"16".into(), &1.into())
    );
    let clat = &look["read"]["clat_ns"];
    assert!(clat["percentile"]["99.000000"].as_u64() >= clat["percentile"]["50.000000"].as_u64(), "{clat}");
    assert!(look["read"]["iops"].as_f64() > Some(0.0) && look["read"]["bw_bytes"].as_u64() > Some(0), "{look}");
    let again = place.json(&["lab", "fio", &job]);
    assert_eq!(
        (&again["jobs"][0]["write"]["total_ios"], &again["jobs"][1]["read"]["total_ios"]),
        (&64.into(), &128.into())
    );
    place.refused(9, &["exists already", "--out"], &["lab", "fio", &job, "--out", &out]);

    // The laboratory overwrites its own files, and no others.
    let text = String::from_utf8(place.stele(&["lab", "fio", &job, "--section", "make"]).stdout).unwrap();
    assert!(text.contains("write") && text.contains("sync") && !text.contains("look"), "{text}");
    let foreign = format!("{files}/make.0.0");
    std::fs::remove_file(&foreign).unwrap();
    std::fs::write(&foreign, vec![7; 512 << 10]).unwrap();
    place.refused(3, &["was not made by the laboratory", "--destroy"], &["lab", "fio", &job]);
    assert_eq!(std::fs::read(&foreign).unwrap(), vec![7; 512 << 10]);
    place.json(&["lab", "fio", &job, "--destroy"]);
    assert_ne!(std::fs::read(&foreign).unwrap()[..4096], [7; 4096]);

    std::fs::write(&job, "[a]\nrw=read\nsize=1m\nverify=crc32c\n").unwrap();
    place.refused(2, &["job.fio: job 'a', line 4: verify=crc32c", "stele lab run --verify"], &["lab", "fio", &job]);
    place.refused(4, &["has no job 'b'", "its jobs are a"], &["lab", "fio", &job, "--section", "b"]);
}
