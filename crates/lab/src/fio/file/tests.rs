use super::*;

#[test]
fn a_global_section_holds_for_the_jobs_behind_it() {
    let text = "[global]\nbs=4k\n[a]\nrw=read\n[global]\nbs = 8k ; larger\n[b]\n# nothing\nRW=write\n";
    let jobs = sections(text).unwrap();
    let said = |job: &Section| {
        job.entries.iter().map(|entry| format!("{}:{}={}", entry.line, entry.key, entry.value)).collect::<Vec<_>>()
    };
    assert_eq!(
        (jobs[0].name.as_str(), jobs[0].line, said(&jobs[0])),
        ("a", 3, vec!["2:bs=4k".into(), "4:rw=read".into()])
    );
    assert_eq!(said(&jobs[1]), ["2:bs=4k", "6:bs=8k", "9:rw=write"]);
}

#[test]
fn what_is_no_job_file_is_an_error() {
    for (text, words) in [
        ("rw=read", "line 1: 'rw' stands before the first"),
        ("[global]\nrw=read", "no job"),
        ("", "no job"),
        ("[a]\nfilename=${STELE_NO_SUCH_NAME}/t", "line 2: filename: the environment has no STELE_NO_SUCH_NAME"),
        ("[a]\nfilename=${PATH", "line 2: filename: ${ has no end"),
    ] {
        assert!(sections(text).unwrap_err().to_string().contains(words), "{text}");
    }
    let path = std::env::var("PATH").unwrap();
    assert_eq!(expanded("a${PATH}b").unwrap(), format!("a{path}b"));
}
