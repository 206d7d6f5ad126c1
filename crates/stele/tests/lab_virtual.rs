//! The laboratory in virtual time, as a command: searches and recipes repeat to the last digit.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::support::Place;
use serde_json::Value;

#[test]
fn a_search_on_modelled_arrays_gives_the_same_file_twice() {
    let place = Place::new("lab-virtual");
    let file = |name: &str| {
        let out = place.path(name);
        let search =
            ["lab", "search", "--workload", "oltp_8k", "--out", &out, "--virtual", "array=ds4500", "drives=20"];
        let found = place.stele(&[&search[..], &["raid=5,10", "cache=off"]].concat());
        assert!(found.status.success(), "{found:?}");
        std::fs::read_to_string(out).unwrap()
    };
    let first = file("first.lab");
    assert_eq!(first, file("second.lab"));
    let shown = place.json(&["lab", "show", &place.path("first.lab")]);
    let text = String::from_utf8(place.stele(&["lab", "show", &place.path("first.lab")]).stdout).unwrap();
    assert!(text.contains("CPU us") && !text.contains("0.00"), "no processor was modelled: {text}");
    let rates: Vec<f64> = (0..2).map(|at| shown["cells"][at]["search"]["rate"].as_f64().unwrap()).collect();
    assert!(
        (2700.0..3200.0).contains(&rates[0]) && (4600.0..5200.0).contains(&rates[1]),
        "published 3,000 and 4,840: {rates:?}"
    );
    place.refused(2, &["drives=25", "arrays of ten"], &["lab", "search", "--virtual", "array=ds4500", "drives=25"]);
    place.refused(2, &["leave out time"], &["lab", "run", &job(&place), "--virtual"]);
}

/// A job with a duration.
fn job(place: &Place) -> String {
    let path = place.path("long.toml");
    std::fs::write(&path, "[time]\nleast = '5s'\n").unwrap();
    path
}

#[test]
fn a_recipe_that_is_stopped_writes_the_paper_of_what_it_has_and_repeats_digit_for_digit() {
    let place = Place::new("lab-recipe");
    place.refused(4, &["recipe 'ds9999'", "ds4500"], &["lab", "paper", "--recipe", "ds9999", "--virtual"]);
    place.refused(2, &["--virtual"], &["lab", "paper", "--recipe", "ds4500"]);
    let stopped = |recipe: &str, name: &str| -> (String, String) {
        let page = place.path(name);
        let recipe =
            ["lab", "paper", "--recipe", recipe, "--virtual", "--quick", "--against", "published", "-o", &page];
        let mut child =
            place.command(&recipe).args(["--json"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let first: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        assert_eq!(first["cell"], 0, "{first}");
        let pid = child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        lines.for_each(drop);
        // A recipe of few cells may have measured all of them when the first is reported.
        let ended = child.wait().unwrap();
        let text = std::fs::read_to_string(&page).unwrap();
        assert_eq!(ended.code(), Some(12 * i32::from(text.contains("did not come to its end"))));
        let kept = std::fs::read_to_string(place.path(&name.replace("html", "lab"))).unwrap();
        // The head and the first cell; the number of further ones varies.
        (kept.lines().take(2).collect::<Vec<_>>().join("\n"), text)
    };
    let (first, page) = stopped("ds4500", "first.html");
    assert!(page.contains("did not come to its end") && page.contains("not the whole recipe"), "{page}");
    let again = place.path("again.html");
    let written = ["lab", "paper", &place.path("first.lab"), "--against", "published", "-o", &again];
    assert!(place.stele(&written).status.success());
    assert!(std::fs::read_to_string(again).unwrap() == page, "the page of a file is that of the run");
    assert_eq!(stopped("ds4500", "second.html").0, first);
    let (first, page) = stopped("gnr-tsm", "streams-first.html");
    assert!(page.contains("116 modelled drives"), "{page}");
    assert_eq!(stopped("gnr-tsm", "streams-second.html").0, first);
    // Its cells are long; one run shows that there is a page.
    let (_, page) = stopped("dr550", "files.html");
    assert!(page.contains("48 modelled drives"), "{page}");
}
