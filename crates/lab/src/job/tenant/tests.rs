use super::*;
use crate::live::run::Load;
use stele_ground::Duration;

const TWO: &str = "
    on = '/data/one'
    [[tenant]]
    name = 'oltp'
    workload = { name = 'oltp_4k' }
    load = { rate = 2000.0, arrivals = 'drawn' }
    objective = 'p99=2ms'
    [[tenant]]
    name = 'backup'
    on = '/data/two'
    workload = { read = 100, random = 0, access = '1MiB' }
    load = { outstanding = 4 }
    [time]
    least = '20s'
    most = '2m'
";

#[test]
fn tenants_are_cells_that_end_together() {
    let job = Job::parse(TWO).unwrap();
    let cells = job.cells().unwrap();
    assert_eq!(cells.iter().map(JobCell::name).collect::<Vec<_>>(), ["tenant oltp", "tenant backup"]);
    assert_eq!(cells[0].setup.load, Load::Rate { each_second: 2000.0, random: true });
    assert_eq!(cells[0].objective.map(|objective| objective.response), Some(Duration::from_millis(2)));
    assert_eq!((cells[1].setup.load, cells[1].objective), (Load::Outstanding(4), None));
    assert!(cells.iter().all(|cell| cell.setup.timing.most == Duration::from_secs(20)));
    assert_eq!(job.target_of(0).unwrap(), "/data/one");
    assert_eq!(job.target_of(1).unwrap(), "/data/two");
    assert_eq!(Job::parse(&toml::to_string(&job).unwrap()).unwrap(), job);
}

#[test]
fn what_cannot_run_side_by_side_is_an_error_that_says_so() {
    let one = "[[tenant]]\nname = 'a'\n";
    for (text, words) in [
        ("[[tenant]]\nname = ''".to_owned(), "names none of them alone"),
        (format!("{one}{one}"), "tenant 2: 'a'"),
        (format!("[load]\noutstanding = 3\n{one}"), "of their own"),
        (format!("[search]\n{one}"), "leave search"),
        (format!("[content]\nverify = true\n{one}"), "content.verify"),
        (format!("{one}load = {{ outstanding = [1, 2] }}"), "tenant 'a': its values are no lists"),
        (format!("{one}objective = 'fast'"), "tenant 'a': objective = fast"),
        (format!("{one}load = {{ profile = ['0s=5', '5s=5'] }}\n[[tenant]]\nname = 'b'"), "all end together"),
    ] {
        let error = Job::parse(&text).unwrap().cells().unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}
