use super::*;
use crate::live::run::{Load, Pause, PauseWhen};

fn names(text: &str) -> Vec<String> {
    Job::parse(text).unwrap().cells().unwrap().iter().map(JobCell::name).collect()
}

#[test]
fn every_list_is_an_axis_and_the_last_changes_fastest() {
    let text = r#"
        on = "null"
        [workload]
        read = [100, 0]
        access = ["512", "64KiB"]
        [load]
        outstanding = [1, 8]
    "#;
    assert_eq!(
        names(text),
        [
            "read 100 %, access 512 B, outstanding 1",
            "read 100 %, access 512 B, outstanding 8",
            "read 100 %, access 64.0 KiB, outstanding 1",
            "read 100 %, access 64.0 KiB, outstanding 8",
            "read 0 %, access 512 B, outstanding 1",
            "read 0 %, access 512 B, outstanding 8",
            "read 0 %, access 64.0 KiB, outstanding 1",
            "read 0 %, access 64.0 KiB, outstanding 8",
        ]
        .map(|name| name.replace("64.0 KiB", &Bytes(64 << 10).to_string()))
    );
    assert_eq!(names("[workload]\nname = ['oltp_4k', 'file_server']"), ["workload oltp_4k", "workload file_server"]);
    assert_eq!(names(""), ["100 % read, 100 % random, 4 KiB".replace("4 KiB", &Bytes(4096).to_string())]);
}

#[test]
fn what_a_job_cannot_mean_is_an_error_that_names_it() {
    for (text, words) in [
        ("[load]\noutstandig = 3", "outstandig"),
        ("[load]\noutstanding = 3\nrate = 5", "give one of them"),
        ("[load]\noutstanding = []", "list in the job is empty"),
        ("[load]\noutstanding = [1, 8, 1]", "two cells 'outstanding 1'"),
        ("[workload]\naccess = ['4KiB', '4096']", "two cells 'access 4 KiB'"),
        ("[workload]\nname = 'oltp_5k'", "stele lab workloads"),
        ("[workload]\nname = 'oltp_4k'\nread = 5", "give either"),
        ("[workload]\nread = 101", "at most 100"),
        ("[workload]\naccess = '0'", "workload.access"),
        ("[workload]\naccess = 'large'", "workload.access = large"),
        ("[time]\nleast = '5'", "time.least = 5"),
        ("[time]\nleast = '5s'\nmost = '4s'", "less than time.least"),
        ("[time]\nround = '1us'", "at least 1ms"),
        ("[time]\nleast = '0s'", "time.least = 0s: more than 0"),
        ("[time]\nleast = '-1s'", "time.least = -1s: say it like"),
        ("[load]\nworkers = 0", "load.workers = 0: from 1 to 512 threads"),
        ("[load]\nworkers = [1, 513]", "load.workers = 513: from 1 to 512 threads"),
        ("[load]\noutstanding = [1, 0]", "load.outstanding = 0: at least 1 access"),
        ("[load]\nrate = -1.0", "load.rate = -1: more than 0"),
        ("[load]\nrate = 1e300", "load.rate = 1e300: more than 0 accesses a second, and at most"),
        ("[time]\nround = '5s'\nleast = '2s'\nmost = '2s'", "time.round = 5.0 s: longer than the time to measure"),
        ("[time]\nround = '600000h'", "time.round = 600000h: at most 100000h"),
        ("[time]\nwarm-up = '5000000h'", "time.warm-up = 5000000h: at most"),
        ("[load]\npause = '5000000h'", "load.pause = 5000000h: at most"),
        ("[search]\nresponse = '0ms'", "search.response = 0: "),
        ("[search]\noutstanding-max = 0", "search.outstanding-max = 0"),
        ("[search]\nobjective = 'p99=1ms'\nrate-max = 0", "search.rate-max = 0"),
        ("[content]\ncompress = 0.5", "content.compress"),
        ("[content]\nverify = true\ndedupe = 2.0", "verify or dedupe"),
        ("precondition = '2'", "like 1x or 2x"),
        ("precondition = '0x'", "like 1x or 2x"),
        ("[load]\nrate-bytes = 'much'", "load.rate-bytes = much"),
        ("[load]\nrate-bytes = '1MiB'\nrate = 5", "give one of them"),
        ("[load]\nrate-bytes = '1MiB'\n[search]", "leave load.rate out"),
        ("[load]\nrate = 5\npause = '1ms'", "gaps of its own"),
        ("[load]\narrivals = 'drawn'", "only a rate has them"),
        ("objective = 'quick'", "objective = quick"),
        ("objective = 'p99=1ms'\n[search]", "leave objective out"),
        ("[load]\nprofile = ['0s=5']", "load.profile"),
        ("[load]\nprofile = ['0s=5', '9s=5']\nrate = 5", "give one of them"),
        ("[load]\nprofile = ['0s=5', '9s=5']\n[time]\nleast = '5s'", "its last point says"),
        ("[load]\nprofile = ['0s=5', '9s=5']\npause = '1ms'", "gaps of its own"),
        ("[load]\nspeed = 2", "give load.profile"),
        ("[search]\nobjective = 'p99=1ms'\nresponse = '1ms'", "leave search.response"),
        ("[search]\nrate-max = 5", "only a search with search.objective"),
        ("[search]\nobjective = 'p99=1ms'\n[load]\noutstanding = 3", "leave all of load"),
        ("[search]\nobjective = 'p99=1ms'\n[load]\nrate = [3, 4]", "begins with one rate"),
        ("[load]\nburst = 5", "give load.pause"),
        ("[load]\nburst = 0\npause = '1ms'", "at least one"),
        ("[load]\npause = '1'", "load.pause = 1"),
        ("[search]\npercentile = 100.0", "between 0 and 100"),
        ("[search]\n[load]\nrate = 5", "leave load.rate out"),
        ("[search]\n[load]\noutstanding = [1, 2]", "the first one only"),
    ] {
        let error = match Job::parse(text) {
            Ok(job) => job.cells().unwrap_err(),
            Err(error) => error,
        };
        assert!(matches!(error, LabError::Usage(_) | LabError::Missing(_)), "{text}: {error:?}");
        assert!(error.to_string().contains(words), "{text}: {error}");
    }
    let job = Job { size: Some("huge".into()), ..Job::default() };
    assert!(job.size().unwrap_err().to_string().contains("size = huge"));
    let job = Job::parse("[time]\npatience = '0s'").unwrap();
    assert!(job.opening(&job.cells().unwrap(), false).unwrap_err().to_string().contains("time.patience = 0s"));
}

#[test]
fn durations_are_read_with_their_units() {
    for (text, nanoseconds) in [
        ("500us", 500_000),
        ("20ms", 20_000_000),
        ("1.5s", 1_500_000_000),
        ("2m", 120_000_000_000),
        (" 1 h ", 3_600_000_000_000),
    ] {
        assert_eq!(parse_duration(text), Some(Duration(nanoseconds)), "{text}");
    }
    for text in ["", "5", "s", "1.2.3s", "-1s", "1e99h", "5 days"] {
        assert_eq!(parse_duration(text), None, "{text}");
    }
}

#[test]
fn what_is_planned_is_what_is_measured_in_whole_rounds() {
    let cell = |time: &str| Job::parse(&format!("[time]\n{time}")).unwrap().cells().unwrap().remove(0);
    let milliseconds = |time: &str| {
        let found = cell(time);
        let Timing { warm_up, round, least, most } = found.setup.timing;
        [warm_up, round, least, most].map(|time| time.0 as f64 / 1e6)
    };
    assert_eq!(milliseconds("round = '1s'\nleast = '2500ms'\nmost = '4100ms'"), [2000.0, 1000.0, 3000.0, 5000.0]);
    assert_eq!(milliseconds("round = '1s'\nwarm-up = '100ms'"), [1000.0, 1000.0, 10_000.0, 30_000.0]);
    assert_eq!(milliseconds("round = '2s'\nleast = '2s'\nwarm-up = '0s'"), [0.0, 2000.0, 2000.0, 6000.0]);
    assert_eq!(milliseconds("least = '500us'\nwarm-up = '0s'"), [0.0, 1.0, 1.0, 2.0], "as little as a round");
    // A length that no ten rounds divide takes ten all the same.
    let timing = cell("least = '3333333333ns'").setup.timing;
    assert_eq!(timing.least.0 / timing.round.0, 10);
}

#[test]
fn what_is_expected_of_the_longest_times_is_counted() {
    let cell = |time: &str| Job::parse(&format!("[time]\n{time}")).unwrap().cells().unwrap().remove(0);
    let longest = cell("round = '100000h'\nwarm-up = '100000h'");
    assert_eq!(longest.expected().0, Duration(11 * LONGEST.0));
    let searched = JobCell { goal: Some(SearchPart::default().goal().unwrap()), ..longest };
    assert_eq!(searched.expected().1, Duration(u64::MAX));
}

#[test]
fn a_job_that_was_written_down_is_the_same_when_it_is_read() {
    let text = "on = 'null'\nsize = '1GiB'\n[workload]\nread = [5, 6]\n[load]\nrate = 3.5\narrivals = 'drawn'\n[search]\nresponse = '1ms'";
    let job = Job::parse(text).unwrap();
    assert_eq!(serde_json::from_str::<Job>(&serde_json::to_string(&job).unwrap()).unwrap(), job);
}

#[test]
fn sizes_may_be_mixed_by_shares_that_come_to_100() {
    let cells = |access: &str| Job::parse(&format!("[workload]\naccess = {access}")).unwrap().cells();
    let found = cells("[\"512:10/4KiB:90\", \"64KiB\"]").unwrap();
    assert_eq!(found[0].setup.spec.sizes, [(512, 10), (4096, 90)]);
    assert_eq!(found[0].name(), "access 512 B:10/4 KiB:90");
    assert_eq!(found[1].setup.spec.sizes, [(65536, 100)]);
    for wrong in ["512:10/4KiB:80", "512/4KiB", "512:200", "4KiB:", "/"] {
        assert!(cells(&format!("\"{wrong}\"")).unwrap_err().to_string().contains("4KiB:60/8KiB:40"), "{wrong}");
    }
}

#[test]
fn lists_that_would_fill_the_memory_are_refused() {
    let many: Vec<String> = (1..=1000).map(|count: u32| count.to_string()).collect();
    let many = many.join(",");
    let job = Job::parse(&format!("[load]\noutstanding = [{many}]\nworkers = [{many}]")).unwrap();
    assert!(job.cells().unwrap_err().to_string().contains("1000000 cells; a job has 100000 at most"));
}

#[test]
fn the_page_cache_is_an_axis_that_changes_slowest() {
    assert_eq!(
        names("buffered = [false, true]\n[workload]\nread = [100, 0]"),
        [
            "buffered false, read 100 %",
            "buffered false, read 0 %",
            "buffered true, read 100 %",
            "buffered true, read 0 %"
        ]
    );
    let cells = |text: &str| Job::parse(text).unwrap().cells().unwrap();
    assert!(cells("buffered = true")[0].buffered && !cells("")[0].buffered);
    let job = Job::parse("buffered = [true, false]").unwrap();
    assert!(job.opening(&job.cells().unwrap(), false).unwrap().buffered, "as the first cell says");
}

#[test]
fn pauses_and_rates_in_bytes_are_read() {
    let setups = |text: &str| -> Vec<Setup> {
        Job::parse(text).unwrap().cells().unwrap().into_iter().map(|cell| cell.setup).collect()
    };
    let pause = |text: &str| setups(text)[0].pause;
    assert_eq!(pause("[load]\noutstanding = 4"), None);
    assert_eq!(pause("[load]\npause = '0ms'\nburst = 4"), None, "as Iometer has it, a burst without a delay is none");
    let answered = Pause { each: Duration::from_millis(2), burst: 1, when: PauseWhen::Answered };
    assert_eq!(pause("[load]\npause = '2ms'"), Some(answered));
    let overlapping = Pause { burst: 8, when: PauseWhen::Overlapping, ..answered };
    assert_eq!(pause("[load]\npause = '2ms'\nburst = 8\npause-when = 'overlapping'"), Some(overlapping));
    let rates: Vec<Load> =
        setups("[load]\nrate-bytes = ['1MiB', '1000']\narrivals = 'drawn'").iter().map(|setup| setup.load).collect();
    let rate = |each_second| Load::Bytes { each_second, random: true };
    assert_eq!(rates, [rate(1048576.0), rate(1000.0)]);
}
