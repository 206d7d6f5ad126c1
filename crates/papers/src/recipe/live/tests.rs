use super::*;

fn job(name: &str, quick: bool) -> Job {
    let recipe = RecipePart { name: name.into(), quick, beside: Vec::new() };
    Job { on: Some("null".into()), recipe: Some(recipe), ..Job::default() }
}

#[test]
fn a_target_that_cannot_carry_a_recipe_is_refused_with_what_can() {
    let cases = [
        ("dr550", &["nbd://host/vm1"][..], "dir:PATH"),
        ("dr550", &["/dev/shm/stele-lab-no-such-file"], "dir:PATH"),
        ("fc8", &["dir:/files"], "nbd://"),
        ("fc8", &["nfs://host/export/file"], "nbd://"),
        ("fc8", &["/dev"], "nbd://"),
        ("ds4500", &["s3+http://host:9000/bucket"], "nbd://"),
        ("ds4500", &["null", "null"], "one target"),
        ("gnr-tsm", &["null", "null", "null"], "two targets"),
        ("ds9999", &["null"], "ds4500"),
    ];
    for (name, targets, says) in cases {
        let targets: Vec<Target> = targets.iter().map(|target| target.parse().unwrap()).collect();
        let error = plan(&job(name, true), &targets).unwrap_err().to_string();
        assert!(error.contains(name) && error.contains(says), "{error}");
    }
}

#[test]
fn every_recipe_runs_on_the_null_target_and_a_quick_one_asks_for_less_than_a_minute() {
    for recipe in super::super::RECIPES {
        let asked = plan(&job(recipe.name, true), &[Target::Null]).unwrap();
        let seconds: f64 = asked.iter().map(|asked| asked.cell.expected().0.as_secs_f64()).sum();
        assert!(!asked.is_empty() && seconds < 45.0, "{}: {seconds} s", recipe.name);
        assert!(asked.iter().all(|asked| !asked.buffered), "nothing is cached before the null target");
    }
}

#[test]
fn what_the_job_says_of_time_goes_before_the_recipes_own() {
    let mut job = job("fc8", false);
    let usual = plan(&job, &[Target::Null]).unwrap()[0].cell.setup.timing;
    assert_eq!((usual.least.as_secs_f64(), usual.most.as_secs_f64()), (10.0, 30.0));
    (job.time.least, job.time.round) = (Some("60ms".into()), Some("10ms".into()));
    let given = plan(&job, &[Target::Null]).unwrap()[0].cell.setup.timing;
    assert_eq!((given.round.as_secs_f64(), given.least.as_secs_f64()), (0.01, 0.06));
}
