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
