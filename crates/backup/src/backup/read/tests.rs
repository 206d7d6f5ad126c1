use std::os::unix::fs::FileExt;

use super::*;
use crate::backup::tests::job;
use crate::backup::{BackupProgress, SPAN, scan};
use crate::packer::Packer;
use crate::testing::{Temporary, options, repository};

#[test]
fn a_file_of_several_spans_that_changes_is_listed_once() {
    let (repository, _) = repository(1);
    let folder = Temporary::new();
    let path = folder.write("data/sparse", b"begin");
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    if file.set_len(SPAN * 4).is_err() {
        return;
    }
    file.write_all_at(b"middle", SPAN * 2 + 5).unwrap();
    let (options, progress) = (options(&folder.join("data")), BackupProgress::default());
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let packer = Packer::new(indexed.clone(), 1, None);
    let job = job(&indexed, &options, &progress, &packer);
    let mut batches = Vec::new();
    let send = &mut |batch: Vec<Item>| {
        batches.push(batch);
        Ok(())
    };
    scan::walk(&job, &scan::roots(&options.paths).unwrap(), None, send).unwrap();
    file.write_all_at(b"changed", SPAN).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    let mut worker = Worker::new(&job).unwrap();
    let parts: usize = batches
        .into_iter()
        .map(|batch| {
            let done = worker.batch(batch).unwrap();
            done.iter().filter(|done| matches!(done, Done::Part { .. })).count()
        })
        .sum();
    assert!(parts > 1, "{parts}");
    let (problems, issues) = &*lock(&job.issues);
    assert_eq!((*problems, issues.len()), (1, 1), "{issues:?}");
    assert!(issues[0].text.contains("changed"), "{issues:?}");
}
