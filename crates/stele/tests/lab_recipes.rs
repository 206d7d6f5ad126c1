//! The recipes of the laboratory on real storage, as commands: small runs, whose pages are checked.

use std::path::Path;

use crate::support::Place;
use serde_json::Value;

/// Options of very short cells.
const SHORT: [&str; 6] = ["--time", "20ms", "--round", "10ms", "--warm-up", "10ms"];

/// Runs a quick recipe, and returns its page and the cells of its file.
fn measured(place: &Place, name: &str, options: &[&str]) -> (String, Value) {
    let (page, again) = (place.path(&format!("{name}.html")), place.path(&format!("{name}-again.html")));
    let recipe = ["lab", "paper", "--recipe", name, "--quick", "--against", "published", "-o", &page];
    let output = place.stele(&[&recipe[..], options, &SHORT].concat());
    assert!(output.status.success(), "{name}: {output:?}");
    let text = std::fs::read_to_string(&page).unwrap();
    let kept = place.path(&format!("{name}.lab"));
    let output = place.stele(&["lab", "paper", &kept, "--against", "published", "-o", &again]);
    assert!(output.status.success(), "{name}: {output:?}");
    assert!(std::fs::read_to_string(again).unwrap() == text, "{name}: the page of a file is that of the run");
    (text, place.json(&["lab", "show", &kept])["cells"].clone())
}

#[test]
fn dr550_measures_files_in_a_directory_and_leaves_none_behind() {
    let place = Place::new("lab-dr550");
    let on = format!("dir:{}", place.path("files"));
    let (page, cells) = measured(&place, "dr550", &["--on", &on, "--size", "1MiB", "--files", "4"]);
    for said in ["Chart 1. ", "Chart 14. ", ">110<", "BLAKE3", "What is odd", "4 files of 256 KiB"] {
        assert!(page.contains(said), "{said}: {page}");
    }
    let cells = cells.as_array().unwrap();
    assert!(cells.iter().any(|cell| cell["name"].as_str().unwrap().contains("sequential")), "{cells:?}");
    assert!(!Path::new(&place.path("files")).exists());
}

#[test]
fn dr550_measures_two_shares_without_and_with_a_cache() {
    let place = Place::new("lab-dr550-two");
    place.pool(5);
    place.edit_config(|text| text.replace("[nfs]\n", "[nfs]\nlisten = \"127.0.0.1:0\"\n"));
    let server = place.serve();
    let [direct, cached] = [("direct", "off"), ("cached", "on")].map(|(name, caching)| {
        let share = place.json(&["share", "create", name, "--cache", "64MiB", "--caching", caching]);
        let port = share["nfs_port"].as_u64().unwrap();
        format!("nfs://127.0.0.1:{port}/{name}/target?mountport={port}")
    });
    let (page, cells) = measured(&place, "dr550", &["--on", &direct, "--on", &cached, "--size", "1MiB"]);
    let without = format!("{direct} is the file server without its cache, {cached} with it");
    for said in [&without, "Chart 14. ", "sequential reads, cache on", "one file of an NFS server"] {
        assert!(page.contains(said), "{said}: {page}");
    }
    let cells = cells.as_array().unwrap();
    assert_eq!(cells.len(), 48);
    assert!(cells.iter().all(|cell| cell["failed"].is_null()), "{cells:?}");
    for share in ["direct", "cached"] {
        assert_eq!(place.json(&["share", "ls", share]).as_array().map(Vec::len), Some(0), "{share} keeps a file");
    }
    drop(server);
}

#[test]
fn snia_pts_purges_measures_five_rounds_of_each_test_and_draws_their_windows() {
    let place = Place::new("lab-snia");
    let page = place.path("snia.html");
    let recipe = ["lab", "paper", "--recipe", "snia-pts", "--quick", "--on", &place.path("target"), "--size", "4MiB"];
    let output = place.stele(&[&recipe[..], &["-o", &page], &SHORT].concat());
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&page).unwrap();
    for said in
        ["IOPS: steady state window", "Write saturation: rate", "Latency: percentiles", "in order", "was given back"]
    {
        assert!(text.contains(said), "{said}: {text}");
    }
    let cells = place.json(&["lab", "show", &place.path("snia.lab")])["cells"].clone();
    assert_eq!(cells.as_array().unwrap().len(), 46);
    place.refused(
        2,
        &["leave out --against"],
        &["lab", "paper", &place.path("snia.lab"), "--against", "published", "-o", &place.path("x.html")],
    );
    place.refused(
        2,
        &["modelled drives are none"],
        &["lab", "paper", "--recipe", "snia-pts", "--virtual", "-o", &place.path("y.html")],
    );
}

#[test]
fn spc1_like_finds_a_rate_ramps_below_it_and_checks_its_data() {
    let place = Place::new("lab-spc1");
    let page = place.path("spc1.html");
    let recipe = ["lab", "paper", "--recipe", "spc1-like", "--quick", "--on", &place.path("target"), "--size", "8MiB"];
    let short = ["--time", "60ms", "--round", "10ms", "--warm-up", "10ms", "-o", &page];
    let output = place.stele(&[&recipe[..], &short].concat());
    assert!(output.status.success(), "{output:?}");
    let text = std::fs::read_to_string(&page).unwrap();
    for said in ["This is no SPC-1 result", "Repeatability", "Data check", "were read back as written"] {
        assert!(text.contains(said), "{said}: {text}");
    }
    let cells = place.json(&["lab", "show", &place.path("spc1.lab")])["cells"].clone();
    assert_eq!(cells.as_array().unwrap().len(), 13, "{cells}");
    place.refused(
        2,
        &["modelled drives keep no content"],
        &["lab", "paper", "--recipe", "spc1-like", "--virtual", "-o", &place.path("y.html")],
    );
}

#[test]
fn fc8_measures_a_file_that_it_makes_with_all_nine_rows() {
    let place = Place::new("lab-fc8");
    let (page, cells) = measured(&place, "fc8", &["--on", &place.path("target"), "--size", "4MiB"]);
    assert!(page.contains("401,605") && page.contains("Table 2. "), "{page}");
    assert!(cells.as_array().unwrap().len() >= 7, "512 bytes are too short for some drives: {cells}");
}

#[test]
fn gnr_tsm_drives_two_targets_at_once() {
    let place = Place::new("lab-gnr");
    let on = ["one", "two"].map(|name| format!("dir:{}", place.path(name)));
    let options = ["--on", &on[0], "--on", &on[1], "--size", "8MiB", "--files", "4"];
    let (page, cells) = measured(&place, "gnr-tsm", &options);
    assert!(page.contains("5,424") && page.contains("two servers"), "{page}");
    let both = cells.as_array().unwrap().iter().filter(|cell| cell["name"].as_str().unwrap().starts_with("servers 2"));
    assert_eq!(both.count(), 9);
}

#[test]
fn ds4500_searches_a_target_for_the_rates_at_20_ms() {
    let place = Place::new("lab-ds4500");
    let (page, cells) = measured(&place, "ds4500", &["--on", "null"]);
    assert!(page.contains("this target") && page.contains("16,525"), "{page}");
    let cells = cells.as_array().unwrap();
    assert_eq!(cells.len(), 4, "{cells:?}");
    cells.iter().for_each(ends_as_its_loads_say);
}

/// The null target answers as fast as the generator works: at 1024 outstanding a slow build on a
/// busy machine takes longer than 20 ms. So each cell's end is judged by the responses that it
/// measured itself. How a search ends is tested by laws in `stele-papers`.
fn ends_as_its_loads_say(cell: &Value) {
    let runs: Vec<(u64, f64)> = cell["runs"].as_array().unwrap().iter().map(load_and_millis).collect();
    let measured = |load: u64, is: fn(f64) -> bool| runs.iter().any(|(of, millis)| *of == load && is(*millis));
    let end = cell["search"]["open_end"].as_str();
    // A response within a hundredth of 20 ms is the answer itself.
    if runs.iter().all(|(_, millis)| *millis < 19.8) && measured(1024, |_| true) {
        assert_eq!(end, Some("the response was never exceeded"), "{cell}");
    }
    match end {
        Some("the response was never exceeded") => assert!(measured(1024, |millis| millis <= 20.0), "{cell}"),
        Some("the response was always exceeded") => assert!(measured(1, |millis| millis > 20.0), "{cell}"),
        Some(other) => assert!(other.starts_with("the search ran out of probes"), "{cell}"),
        None => assert!(runs.iter().any(|(_, millis)| *millis > 19.8), "{cell}"),
    }
}

/// Outstanding accesses of a run, and its mean response.
fn load_and_millis(run: &Value) -> (u64, f64) {
    (run["outstanding"].as_u64().unwrap(), run["response"]["mean_ns"].as_u64().unwrap() as f64 / 1e6)
}

#[test]
fn what_a_recipe_cannot_do_is_refused_before_anything_is_opened() {
    let place = Place::new("lab-recipe-bad");
    let recipe = |name: &'static str| ["lab", "paper", "--recipe", name];
    place.refused(4, &["recipe 'ds9999'", "dr550, gnr-tsm, fc8"], &[&recipe("ds9999")[..], &["--on", "null"]].concat());
    place.refused(4, &["recipe 'ds9999'"], &recipe("ds9999"));
    place.refused(2, &["--virtual, or --on"], &recipe("dr550"));
    place.refused(2, &["answered from a cache", "--on nbd://"], &[&recipe("fc8")[..], &["--virtual"]].concat());
    place.refused(2, &["cannot be used with"], &[&recipe("dr550")[..], &["--virtual", "--on", "null"]].concat());
    place.refused(2, &["dir:PATH"], &[&recipe("dr550")[..], &["--on", "nbd://127.0.0.1/vm1"]].concat());
    place.refused(2, &["nbd://"], &[&recipe("fc8")[..], &["--on", "dir:/nowhere"]].concat());
    place.refused(2, &["one target"], &[&recipe("fc8")[..], &["--on", "null", "--on", "null"]].concat());
    place.refused(2, &["cannot be used with"], &[&recipe("dr550")[..], &["--virtual", "--size", "1GiB"]].concat());
    let file = place.path("records");
    std::fs::write(&file, vec![7; 8192]).unwrap();
    place.refused(3, &["--destroy"], &[&recipe("fc8")[..], &["--on", &file]].concat());
    assert!(std::fs::read(&file).unwrap().iter().all(|byte| *byte == 7));
    let plan = place.json(&[&recipe("dr550")[..], &["--on", "null", "--plan"]].concat());
    assert_eq!(plan["cells"].as_array().unwrap().len(), 120, "nothing is cached before the null target");
    assert_eq!(plan["least_seconds"], 120.0 * 12.0);
}
