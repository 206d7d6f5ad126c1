use super::*;
use crate::backup::BackupProgress;
use crate::backup::tests::job;
use crate::packer::Packer;
use crate::testing::{options, repository};

#[test]
fn the_top_on_one_file_system_is_more_than_its_names() {
    let (repository, _) = repository(1);
    let mut options = options(Path::new("/"));
    options.one_file_system = true;
    let paths = roots(&[PathBuf::from("/usr"), PathBuf::from("/"), PathBuf::from("/etc")]).unwrap();
    assert_eq!(paths, [b""], "a path within another one is saved with that one");
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let (progress, packer) = (BackupProgress::default(), Packer::new(indexed.clone(), 1, None));
    let job = job(&indexed, &options, &progress, &packer);
    let is_below = |item: &Item| match item {
        Item::Ready { depth, .. } | Item::Read { depth, .. } | Item::Span { depth, .. } => *depth > 0,
    };
    let walked = walk(&job, &paths, None, &mut |batch| match batch.iter().any(is_below) {
        true => Err(BackupError::Stopped),
        false => Ok(()),
    });
    assert!(matches!(walked, Err(BackupError::Stopped)), "{walked:?}");
}
