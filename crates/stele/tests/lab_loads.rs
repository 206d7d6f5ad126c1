//! The loads of the laboratory beyond a fixed one, as commands: objectives, profiles, tenants and
//! traces; and the views of runs, live and over days.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::support::Place;
use serde_json::Value;

/// Options of a very short run.
const SHORT: [&str; 6] = ["--time", "60ms", "--round", "10ms", "--warm-up", "10ms"];

/// The cells that a run printed.
fn cells(place: &Place, arguments: &[&str]) -> Vec<Value> {
    place.cells(&[arguments, &SHORT].concat())
}

#[test]
fn the_results_of_a_directory_have_a_history_and_the_newest_is_checked() {
    let place = Place::new("lab-history");
    let (results, page) = (place.path("results"), place.path("trends.html"));
    std::fs::create_dir(&results).unwrap();
    place.refused(4, &["holds no whole result"], &["lab", "history", &results]);
    // In virtual time, results of the same array are equal; in a directory, the starting time names
    // the file.
    let run = ["lab", "run", "--workload", "oltp_8k", "--outstanding", "40", "--virtual", "array=ds4500", "raid=5"];
    let kept = place.stele(&[&run[..], &["drives=40", "--out", &results]].concat());
    assert!(kept.status.success(), "{kept:?}");
    let names: Vec<_> = std::fs::read_dir(&results).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(names.len() == 1 && names[0].to_str().unwrap().ends_with("Z.lab"), "{names:?}");
    let slow = format!("{results}/slow.lab");
    assert!(place.stele(&[&run[..], &["drives=20", "--out", &slow]].concat()).status.success());
    let none = place.path("none/");
    place.refused(4, &["no such directory", "make it first"], &[&run[..], &["drives=40", "--out", &none]].concat());
    place.refused(2, &["is a directory"], &[&run[..], &["drives=40", "--out", &results, "--resume"]].concat());

    let history = place.json(&["lab", "history", &results]);
    assert_eq!(history["results"].as_array().unwrap().len(), 2, "{history}");
    let cell = &history["cells"][0];
    assert_eq!(cell["points"].as_array().unwrap().len(), 2, "{cell}");
    assert!(cell["ratio"].as_f64().unwrap() < 0.8, "{cell}");
    let text = String::from_utf8(place.stele(&["lab", "history", &results]).stdout).unwrap();
    assert!(text.contains("newest") && text.contains("0."), "{text}");
    let name = cell["cell"].as_str().unwrap();
    let drawn = String::from_utf8(place.stele(&["lab", "history", &results, "--cell", name]).stdout).unwrap();
    assert!(drawn.contains("number of the result") && drawn.contains("accesses a second"), "{drawn}");
    place.json(&["lab", "history", &results, "-o", &page]);
    assert!(std::fs::read_to_string(&page).unwrap().contains("<svg"));
    // Virtual results have no time: none is earlier than another.
    let against = ["lab", "check", &results, "--against", &results];
    place.refused(4, &["from before this one"], &against);
    let output = place.stele(&["lab", "check", &results, "--against", &format!("{results}/slow.lab")]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn objectives_profiles_and_tenants_are_measured_and_judged() {
    let place = Place::new("lab-objectives");
    let (target, out, jobs) = (place.path("target"), place.path("found.lab"), place.path("tenants.toml"));
    let on = ["--on", &target, "--size", "4MiB"];
    let search = ["lab", "search", "--objective", "p99=10s", "--rate", "500", "--rate-max", "1000", "--out", &out];
    let found = cells(&place, &[&search[..], &on].concat());
    assert_eq!(found[0]["search"]["rate_asked"], 1000.0, "{found:?}");
    let text = String::from_utf8(place.stele(&["lab", "show", &out]).stdout).unwrap();
    assert!(text.contains("1000 a second") && text.contains("the objective was never missed"), "{text}");
    place.refused(2, &["keeps nothing", "leave --verify out"], &["lab", "run", "--on", "null", "--verify"]);
    place.refused(2, &["objective = fast", "p99=2ms"], &["lab", "search", "--objective", "fast", "--on", "null"]);

    let never = ["lab", "search", "--objective", "mean=1ns", "--rate", "500"];
    let text = String::from_utf8(place.stele(&[&never[..], &on, &SHORT].concat()).stdout).unwrap();
    assert!(text.contains("the objective was always missed") && !text.contains("0.0 outstanding"), "{text}");

    let missed = ["lab", "run", "--rate", "500", "--objective", "mean=1ns"];
    let output = place.stele(&[&missed[..], &on, &SHORT].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    // On a busy machine the run may also be void, which takes precedence.
    assert!(matches!(output.status.code(), Some(11 | 13)), "{text}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(11) || said.contains("1 of 1 cell missed its objective"), "{said}");
    assert!(text.contains("objective missed: the mean within 1 ns"), "{text}");

    let ramp = ["lab", "run", "--profile", "0s=200,300ms=2000", "--round", "50ms", "--warm-up", "50ms", "--json"];
    let output = place.stele(&[&ramp[..], &on].concat());
    assert!(Place::measured(&output), "{output:?}");
    let cell = &Place::cells_of(&output)[0];
    let rate = cell["runs"][0]["rate"].as_f64().unwrap();
    assert!((600.0..1400.0).contains(&rate), "{cell}");

    let tenants = "[[tenant]]\nname = 'oltp'\nload = { rate = 500.0 }\nobjective = 'p99=10s'\n\
                   [[tenant]]\nname = 'scan'\nworkload = { random = 0, access = '64KiB' }\nload = { outstanding = 2 }\n";
    std::fs::write(&jobs, tenants).unwrap();
    let found = cells(&place, &[&["lab", "run", &jobs][..], &on].concat());
    assert_eq!(found.len(), 2, "{found:?}");
    assert_eq!((&found[0]["name"], &found[1]["name"]), (&"tenant oltp".into(), &"tenant scan".into()));
    assert!(found[0]["objective"]["found_ns"].as_u64().unwrap() > 0, "{found:?}");
}

#[test]
fn a_trace_is_replayed_by_its_clock_and_one_that_does_not_fit_is_refused() {
    let place = Place::new("lab-replay");
    let (target, out, trace) = (place.path("target"), place.path("found.lab"), place.path("trace.csv"));
    let lines: String =
        (0..100).map(|n| format!("{},h,0,{},{},4096,9\n", 10_000 * n, ["Read", "Write"][n % 2], 4096 * n)).collect();
    std::fs::write(&trace, lines).unwrap();
    let on = ["--on", &target, "--size", "4MiB"];
    let replay = |more: &[&'static str]| [&["lab", "replay", &trace][..], &on, more].concat();
    let found = place.cells(&[&replay(&["--speed", "2"])[..], &["--out", &out]].concat());
    let run = &found[0]["runs"][0];
    assert_eq!((&run["read"]["count"], &run["write"]["count"]), (&50.into(), &50.into()), "{found:?}");
    assert!(found[0]["remark"].as_str().unwrap().contains("behind the trace's clock"), "{found:?}");
    let text = String::from_utf8(place.stele(&["lab", "show", &out]).stdout).unwrap();
    assert!(text.contains("replay of trace.csv"), "{text}");
    assert!(place.json(&["lab", "paper", &out])["written"].is_string());
    let plan = place.json(&replay(&["--plan"]));
    assert_eq!((&plan["format"], &plan["reads"], &plan["step"]), (&"msr".into(), &50.into(), &4096.into()), "{plan}");
    std::fs::write(&trace, "0,h,0,Read,8388608,4096,9\n").unwrap();
    let text = String::from_utf8(place.stele(&replay(&["--plan"])).stdout).unwrap();
    assert!(text.contains("1 read, 0 writes") && text.contains("all at one time"), "one access has no rate: {text}");
    place.refused(2, &["reaches to", "--map wrap"], &replay(&[]));
    assert_eq!(place.cells(&replay(&["--map", "scale"])).len(), 1);
    place.refused(2, &["--speed fast"], &replay(&["--speed", "fast"]));
    std::fs::write(&trace, "nothing\n").unwrap();
    place.refused(2, &["looks like no trace"], &replay(&[]));
    place.refused(1, &["line 1", "no unit"], &replay(&["--format", "spc"]));
}

#[test]
fn a_run_is_seen_while_it_goes_on_and_kept_second_by_second() {
    use std::io::{Read, Write};
    let place = Place::new("lab-live");
    let out = place.path("found.lab");
    let run = ["lab", "run", "--on", "null", "--time", "20s", "--round", "50ms", "--warm-up", "50ms", "--out", &out];
    let shown = ["--live", "--metrics", "127.0.0.1:0"];
    let mut child =
        place.command(&[&run[..], &shown].concat()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let address =
        lines.find_map(|line| Some(line.strip_prefix("metrics at http://")?.strip_suffix("/metrics")?.to_owned()));
    let address = address.unwrap();
    assert!(
        lines.by_ref().any(|line| line.contains("under way") && line.contains("of the machine")),
        "queue and processors"
    );
    let asked = |request: &str| {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let text = asked("GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n");
    assert!(text.starts_with("HTTP/1.1 200 OK\r\n") && text.contains("target=\"null\""), "{text}");
    assert!(text.contains("stele_lab_response_seconds_bucket{direction=\"read\",le=\"+Inf\"}"), "{text}");
    assert!(asked("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    // A silent client does not block other clients, and too long a request gets no answer.
    let silent = std::net::TcpStream::connect(&address).unwrap();
    assert!(asked("GET /metrics HTTP/1.1\r\n\r\n").contains("200 OK"));
    drop(silent);
    assert_eq!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().code(), Some(0));
    let drained = std::thread::spawn(move || lines.count());
    assert_eq!(child.wait().unwrap().code(), Some(12), "stopped");
    drained.join().unwrap();
    let log = place.json(&["lab", "export", &out, "--format", "rounds"])["written"].as_str().unwrap().to_owned();
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.lines().count() > 2 && log.contains("under_way"), "{log}");
}

/// A load that is no axis is not in the name of a cell.
#[test]
fn results_of_two_loads_are_told_apart_and_give_no_verdict() {
    let place = Place::new("lab-two-loads");
    let measured = |outstanding: &str| {
        let out = place.path(&format!("{outstanding}.lab"));
        let run = ["lab", "run", "--workload", "oltp_8k", "--outstanding", outstanding, "--out", &out];
        let array = ["--virtual", "array=ds4500", "raid=5", "drives=20"];
        assert!(place.stele(&[&run[..], &array].concat()).status.success());
        out
    };
    let (one, many) = (measured("10"), measured("40"));
    let apart = &place.json(&["lab", "diff", &one, &many])["apart"];
    assert_eq!(*apart, serde_json::json!([{ "name": "load.outstanding", "first": "10", "second": "40" }]));
    let said = place.stele(&["lab", "check", &many, "--against", &one]);
    let text = String::from_utf8(said.stdout).unwrap();
    assert_eq!(said.status.code(), Some(10), "{text}");
    assert!(text.contains("the load is another one: 10 outstanding in the baseline"), "{text}");
}

#[test]
fn nothing_is_made_in_places_of_the_system() {
    let place = Place::new("lab-system");
    for on in ["dir:/etc", "/usr", "volume:mirror-2,dir=/etc/stele-lab-drives", "backup:/etc/stele-lab-backup"] {
        place.refused(3, &["of the operating system", "/mnt/bench"], &["lab", "run", "--on", on, "--size", "4MiB"]);
    }
    assert!(!std::path::Path::new("/etc/stele-lab").exists());
    let device = "/dev/stele-lab-no-such-device";
    place.refused(4, &["no such device"], &["lab", "run", "--on", device, "--size", "4MiB"]);
    let job = place.path("job.fio");
    std::fs::write(&job, format!("[a]\nrw=read\nsize=1m\nfilename={device}\n")).unwrap();
    place.refused(4, &["job.fio: job 'a', line 1: ", "no such device"], &["lab", "fio", &job]);
    assert!(!std::path::Path::new(device).exists());
}

#[test]
fn an_error_of_a_fio_job_names_its_file_and_its_line() {
    let place = Place::new("lab-fio-errors");
    let (job, file) = (place.path("job.fio"), place.path("records"));
    std::fs::write(&file, vec![7; 8192]).unwrap();
    std::fs::write(&job, format!("[one]\nioengine=null\nrw=read\nsize=1m\n[two]\nrw=write\nfilename={file}\n"))
        .unwrap();
    place.refused(3, &["job.fio: job 'two', line 5: ", "not made by the laboratory"], &["lab", "fio", &job]);
    std::fs::write(&job, "[one]\nrw=read\nfilename=/nowhere/at/all\n").unwrap();
    for more in [&[][..], &["--plan"]] {
        place.refused(2, &["job.fio: job 'one', line 1: "], &[&["lab", "fio", &job][..], more].concat());
    }
}

#[test]
fn a_profile_of_ffsb_is_run_as_it_is() {
    let place = Place::new("lab-ffsb");
    let (profile, files) = (place.path("profile.ffsb"), place.path("files"));
    let text = format!(
        "time=60\n[filesystem0]\nlocation={files}\nnum_files=10\nmin_filesize=4k\nmax_filesize=4k\n[end0]\n[threadgroup0]\n\
         num_threads=2\nwrite_size=4k\nwrite_blocksize=4k\ncreate_weight=2\nappend_weight=2\ndelete_weight=1\nstat_weight=3\n[end0]\n"
    );
    std::fs::write(&profile, &text).unwrap();
    let measure = |time: &str| {
        let said = place.json(&["lab", "ffsb", &profile, "--time", time]);
        said[0]["operations"].as_array().unwrap().clone()
    };
    let kinds = Place::answered(measure, |kind| kind["count"].as_u64() > Some(0));
    let names: Vec<&str> = kinds.iter().filter_map(|kind| kind["operation"].as_str()).collect();
    assert_eq!(names, ["create", "append", "delete", "stat"]);
    assert_eq!(std::fs::read_dir(&files).unwrap().count(), 0, "what was made is gone");
    let shown = String::from_utf8(place.stele(&["lab", "ffsb", &profile, "--time", "50ms"]).stdout).unwrap();
    assert!(shown.contains("threadgroup0") && shown.contains("append"), "{shown}");

    place.refused(2, &["create_weight", "`stele lab ffsb`"], &["lab", "import", &profile]);
    std::fs::write(&profile, text.replace("stat_weight", "metaop_weight")).unwrap();
    place.refused(2, &["line 15: metaop_weight=3", "not known here"], &["lab", "ffsb", &profile]);
}
