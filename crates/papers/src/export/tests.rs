use super::*;
use crate::tests::{cell, recorded};

fn file() -> Recorded {
    let mut odd = cell(1, 8, 2000.0, 1500);
    odd.name = "a name, with \"quotes\"".into();
    recorded(vec![cell(0, 1, 1000.0, 900), odd])
}

#[test]
fn lines_of_values_have_a_value_for_each_title() {
    let parse = |line: &str| -> Vec<String> {
        let (mut values, mut inside) = (vec![String::new()], false);
        for letter in line.chars() {
            match letter {
                '"' => inside = !inside,
                ',' if !inside => values.push(String::new()),
                letter => values.last_mut().unwrap().push(letter),
            }
        }
        values
    };
    let csv = csv(&file());
    let lines: Vec<Vec<String>> = csv.lines().map(parse).collect();
    assert_eq!(lines.len(), 3);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{csv}");
    let of = |line: usize, title: &str| lines[line][lines[0].iter().position(|known| known == title).unwrap()].clone();
    assert_eq!(
        (of(1, "rate"), of(1, "mean_ns"), of(2, "outstanding")),
        ("1000.000".into(), "900000".into(), "8".into())
    );

    let iometer = iometer(&file());
    let titles = iometer.lines().find(|line| line.starts_with("'Target Type")).map(parse).unwrap();
    let rows: Vec<Vec<String>> = iometer.lines().filter(|line| line.starts_with("ALL,")).map(parse).collect();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.len() == titles.len()), "{iometer}");
    let at = titles.iter().position(|title| title == "Average Response Time").unwrap();
    assert_eq!(rows[1][at], "1.500000");
}

#[test]
fn fios_json_has_the_figures_and_bins_that_hold_all_accesses() {
    let json: serde_json::Value = serde_json::from_str(&fio(&file())).unwrap();
    let read = &json["jobs"][1]["read"];
    let near = |value: &serde_json::Value, wanted: f64| (value.as_f64().unwrap() / wanted - 1.0).abs() < 0.02;
    assert!(
        near(&read["clat_ns"]["mean"], 1.5e6) && near(&read["clat_ns"]["percentile"]["99.000000"], 1.5e6),
        "{read}"
    );
    assert!(near(&read["bw_bytes"], 2000.0 * 4096.0), "{read}");
    let bins = read["clat_ns"]["bins"].as_object().unwrap();
    let count: u64 = bins.values().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(read["total_ios"].as_u64(), Some(count));
    assert_eq!(json["jobs"][0]["write"]["total_ios"], 0);
}

#[test]
fn jobs_of_a_group_are_one_in_fios_json() {
    use stele_lab::fio;
    let text = "[global]\nioengine=null\nbs=4k\nsize=1m\n[one]\nrw=randread\nnumjobs=3\ngroup_reporting\n[two]\nstonewall\nrw=write\n";
    let jobs = fio::jobs(text).unwrap();
    let ran = fio::run(&jobs, false, &std::sync::atomic::AtomicBool::new(false), &|_| ()).unwrap();
    let said = super::ran(&ran);
    let all = said["jobs"].as_array().unwrap();
    let names: Vec<&str> = all.iter().filter_map(|job| job["jobname"].as_str()).collect();
    assert_eq!(names, ["one", "two"]);
    assert_eq!((&all[0]["read"]["total_ios"], &all[0]["read"]["io_bytes"]), (&768.into(), &(3u64 << 20).into()));
    assert_eq!((&all[1]["write"]["total_ios"], &all[1]["read"]["total_ios"]), (&256.into(), &0.into()));
    let share = |name: &str| all[0][name].as_object().unwrap().values().filter_map(|value| value.as_f64()).sum::<f64>();
    let shares = share("latency_ns") + share("latency_us") + share("latency_ms");
    assert!((shares - 100.0).abs() < 0.01, "{shares}");
    assert_eq!(all[0]["read"]["lat_ns"]["N"], 768);
    assert!(!said.to_string().contains("-0.0"), "{said}");
}

#[test]
fn a_cell_with_wrong_data_or_a_failed_target_has_errors_in_every_format() {
    use stele_lab::live::read_back::ReadBack;
    use stele_lab::live::wrong::Wrong;
    let mut wrong = Wrong::default();
    (0..3).for_each(|number| wrong.note(format!("offset {}: why", number * 512)));
    let back = ReadBack { bytes: 1 << 20, wrong };
    let damaged = CellRecord { read_back: Some(back), ..cell(0, 1, 1000.0, 900) };
    let met = CellRecord { wrong_sectors: 2, failed: Some("2 are wrong".into()), ..cell(1, 1, 1000.0, 900) };
    let failed = CellRecord { failed: Some("gone, \"for good\"".into()), ..cell(2, 1, 1000.0, 900) };
    let file = recorded(vec![damaged, met, failed, cell(3, 1, 1000.0, 900)]);
    let json: serde_json::Value = serde_json::from_str(&fio(&file)).unwrap();
    let errors: Vec<_> = json["jobs"].as_array().unwrap().iter().map(|job| job["error"].as_u64().unwrap()).collect();
    assert_eq!(errors, [84, 84, 5, 0]);
    assert!(
        json["jobs"][0]["error text"].as_str().unwrap().contains("offset 512: why")
            && json["jobs"][3]["error text"].is_null()
    );
    let csv = csv(&file);
    let ends: Vec<&str> = csv.lines().map(|line| line.split(',').next_back().unwrap()).collect();
    assert_eq!((ends[0], ends[2], ends[4]), ("error", "2 are wrong", ""), "{csv}");
    assert!(
        csv.contains(",3,3 sectors of 512 bytes are not as written: offset 0: why")
            && csv.contains(",1,\"gone, \"\"for good\"\"\""),
        "{csv}"
    );
    let iometer = iometer(&file);
    let title = iometer.lines().find(|line| line.starts_with("'Target Type")).unwrap();
    let at = title.split(',').position(|title| title == "Errors").unwrap();
    let of = |line: &str| line.split(',').skip(at).take(3).map(str::to_owned).collect::<Vec<_>>().join(" ");
    let found: Vec<String> = iometer.lines().filter(|line| line.starts_with("ALL,")).map(of).collect();
    assert_eq!(found, ["3 3 0", "2 2 0", "1 0 0", "0 0 0"]);
}

#[test]
fn iometers_share_of_the_processors_is_at_most_all_of_them() {
    let mut file = recorded(vec![cell(0, 1, 1000.0, 900)]);
    file.cells[0].runs[0].rounds.iter_mut().for_each(|round| round.cpu_machine = 2.0);
    file.head.environment = vec![("processor".into(), "9 GHz".into()), ("processors".into(), "4".into())];
    let text = iometer(&file);
    assert!(text.ends_with(",50.000000,2.000000\n"), "{text}");
}

#[test]
fn samples_of_the_copies_of_a_group_are_added_up() {
    use std::time::SystemTime;
    use stele_lab::fio::{DirectionStats, JobResult, Tally};
    let copy = |samples: &[(f64, f64)]| {
        let way = DirectionStats { samples: samples.to_vec(), ..DirectionStats::default() };
        let tally = Tally { ways: [way, DirectionStats::default()], ..Tally::default() };
        let (name, options, begun) = ("one".into(), Vec::new(), SystemTime::UNIX_EPOCH);
        JobResult { name, line: 1, group: 0, with_group: true, options, depth: 1, begun, tally }
    };
    let said = super::ran(&[copy(&[(1024.0, 10.0), (3072.0, 30.0)]), copy(&[(2048.0, 100.0)]), copy(&[])]);
    let read = &said["jobs"][0]["read"];
    let values =
        ["iops_min", "iops_max", "iops_mean", "bw_min", "bw_max", "bw_mean"].map(|name| read[name].as_f64().unwrap());
    assert_eq!((values, &read["iops_samples"]), ([110.0, 130.0, 120.0, 3.0, 5.0, 4.0], &3.into()));
}

#[test]
fn a_job_that_failed_has_the_number_of_the_systems_error() {
    use std::time::SystemTime;
    use stele_lab::fio::{JobResult, Tally};
    for (why, number) in
        [("write: no room is left (os error 28)", 28), ("it hangs", 5), ("(os error x)", 5), ("(os error 0)", 5)]
    {
        let tally = Tally { failed: Some(why.to_owned()), ..Tally::default() };
        let (options, begun) = (Vec::new(), SystemTime::UNIX_EPOCH);
        let job = JobResult { name: "a".into(), line: 1, group: 0, with_group: false, options, depth: 1, begun, tally };
        let said = super::ran(&[job]);
        assert_eq!((&said["jobs"][0]["error"], &said["jobs"][0]["error text"]), (&number.into(), &why.into()));
    }
}

#[test]
fn every_round_is_a_line_with_the_time_at_which_it_ended() {
    let text = rounds(&recorded(vec![cell(0, 1, 1000.0, 900), cell(1, 8, 2000.0, 1500)]));
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(lines.len(), 1 + 2 * 5);
    assert!(lines.iter().all(|line| line.len() == lines[0].len()), "{text}");
    let at = |row: usize, name: &str| lines[row][lines[0].iter().position(|known| *known == name).unwrap()];
    assert_eq!((at(1, "round"), at(1, "seconds"), at(5, "seconds")), ("1", "1.000", "5.000"));
    assert_eq!((at(6, "cell"), at(6, "rate"), at(6, "load")), ("1", "2000.000", "8 outstanding"));
    // 2,000 a second of 1.5 ms each.
    let under_way: f64 = at(6, "under_way").parse().unwrap();
    assert!((under_way - 3.0).abs() < 0.01, "{text}");
    assert_eq!((at(6, "processors_own"), at(6, "processors")), ("0.100", "0.200"));
}
