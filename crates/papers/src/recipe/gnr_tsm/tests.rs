use super::*;
use crate::recipe::tests::{made_up, page_of};
use stele_lab::job::RecipePart;
use stele_lab::live::run::Load;

fn job(beside: &[&str]) -> Job {
    let beside = beside.iter().map(|target| (*target).to_owned()).collect();
    let recipe = RecipePart { name: "gnr-tsm".into(), quick: false, beside };
    Job { on: Some("dir:/files".into()), recipe: Some(recipe), ..Job::default() }
}

fn targets(names: &[&str]) -> Vec<Target> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

#[test]
fn a_plan_has_all_directions_by_sessions_and_servers() {
    let alone = targets(&["dir:/files"]);
    let one = live(&job(&[]), false, &alone).unwrap();
    assert_eq!(one.len(), 3 * 8);
    let two = live(&job(&["dir:/more"]), false, &targets(&["dir:/files", "dir:/more"])).unwrap();
    assert_eq!(two.len(), 2 * 3 * 8);
    assert!(two.iter().filter(|asked| asked.targets == (0..2)).count() == 24);
    for asked in &two {
        let setup = &asked.cell.setup;
        assert_eq!(setup.load, Load::Outstanding(setup.workers), "a session has one access under way");
        assert_eq!(setup.spec.sizes, [(1 << 20, 100)]);
    }
    assert!(live(&job(&[]), true, &alone).unwrap().len() < one.len() && !left_out(true, false).is_empty());
}

#[test]
fn in_virtual_time_streams_run_on_8_2_over_116_drives_each_in_a_part_of_its_own() {
    let plan = plan(false).unwrap();
    assert_eq!(plan.cells.len(), 2 * 3, "without and with a processor");
    assert_eq!(plan.cells.iter().filter(|(_, planned)| planned.array.maker == Maker::SteleOn(1)).count(), 3);
    for (_, planned) in &plan.cells {
        assert_eq!((planned.array.level, planned.array.drives, planned.streams), (Level::Raid6, 116, 128));
    }
}

#[test]
fn in_virtual_time_the_results_of_one_server_and_its_link_have_a_table() {
    let job = Job { on: None, ..job(&[]) };
    let cells: Vec<_> = plan(false).unwrap().cells.into_iter().map(|(cell, _)| cell).collect();
    let mut recorded = made_up(&job, &cells, Some("abc123"));
    let page = page_of(&recorded, true);
    for said in [
        "The published results of one and two servers",
        "published-restore-1-rate\" class=\"right\">3,834<",
        "published-backup-1-link\" class=\"right\">5,000<",
        "76.7 %",
        "The published configuration: TSM",
        "116 modelled drives",
        "The highest throughput is that of",
        "no prediction for a backup server",
        "With the measured time of the server's one processor counted",
        "charged-mixed-rate",
        "to read 1 MiB and",
    ] {
        assert!(page.contains(said), "{said}: {page}");
    }
    let caveat = "more than the links of the published servers carry (10,000 MB/s); no link is modelled here";
    assert!(!page.contains(caveat), "{page}");
    for round in recorded.cells.iter_mut().flat_map(|cell| &mut cell.runs).flat_map(|run| &mut run.rounds) {
        (round.read_bytes, round.written_bytes) = (round.read_bytes * 20.0, round.written_bytes * 20.0);
    }
    let page = page_of(&recorded, true);
    assert!(page.contains(caveat), "{page}");
    let alone = page_of(&recorded, false);
    assert!(
        !alone.contains("The published results") && !alone.contains(caveat),
        "only where it was asked for: {alone}"
    );
}

#[test]
fn the_paper_sets_its_peaks_beside_the_five_published_results() {
    let job = job(&["dir:/more"]);
    let both = targets(&["dir:/files", "dir:/more"]);
    let cells: Vec<_> = live(&job, false, &both).unwrap().into_iter().map(|asked| asked.cell).collect();
    let mut recorded = made_up(&job, &cells, Some("abc123"));
    for cell in &mut recorded.cells {
        let servers: u32 = cell.axis("servers").unwrap().parse().unwrap();
        cell.runs.iter_mut().for_each(|run| run.outstanding = run.outstanding.map(|count| count * servers));
    }
    let page = page_of(&recorded, true);
    for said in [
        "4,017",
        "3,834",
        "4,981",
        "5,424",
        "4,821",
        "80.3 %",
        "54.2 %",
        "two servers",
        "--on dir:/files --on dir:/more",
    ] {
        assert!(page.contains(said), "{said}");
    }
    let alone = page_of(&recorded, false);
    assert!(!alone.contains("4,017"), "nothing published where it was not asked for");
}

#[test]
fn a_repository_of_backups_has_up_to_sixteen_sessions_of_objects() {
    let address = "backup+http://host:9000/bench";
    let job = Job { on: Some(address.into()), ..job(&[]) };
    let asked = live(&job, false, &targets(&[address])).unwrap();
    assert_eq!(asked.len(), 3 * 5);
    assert_eq!(asked.iter().map(|asked| asked.cell.setup.workers).max(), Some(16));
    assert!(asked.iter().all(|asked| asked.cell.setup.spec.sizes == [(16 << 20, 100)]));
    assert!(live(&job, true, &targets(&[address])).unwrap().len() < asked.len() && !left_out(true, true).is_empty());
    assert!(matches!(live(&job, false, &targets(&[address, "null"])), Err(LabError::Usage(_))), "one kind of server");
    let cells: Vec<_> = asked.into_iter().map(|asked| asked.cell).collect();
    let mut recorded = made_up(&job, &cells, Some("abc123"));
    recorded.head.target = address.into();
    let page = page_of(&recorded, true);
    for said in [
        "4,017",
        "3,834",
        "one object of 16 MiB after the other",
        "start a server, make a bucket",
        "no metadata of a tree",
    ] {
        assert!(page.contains(said), "{said}");
    }
    assert!(!page.contains("No backup program is at work"));
}

#[test]
fn no_other_paper_is_about_backups() {
    let address = targets(&["backup:/srv/repository"]);
    for name in ["ds4500", "dr550", "fc8", "snia-pts"] {
        let recipe = RecipePart { name: name.into(), quick: true, beside: Vec::new() };
        let job = Job { recipe: Some(recipe), ..job(&[]) };
        let refused = crate::recipe::live::plan(&job, &address);
        assert!(matches!(refused, Err(LabError::Usage(_))), "{name}");
    }
}
