use super::*;
use crate::store::Folder;
use crate::testing::{random, repository};

#[test]
fn a_chunk_is_stored_once_by_any_number_of_threads() {
    let (repository, _) = repository(1);
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let packer = Packer::new(indexed.clone(), 2, None);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut compressor = Compressor::new(1).unwrap();
                for seed in 0..200 {
                    let raw = random(seed, 500);
                    let id = indexed.keys.id(Kind::Content, &raw);
                    packer.add(Kind::Content, id, &raw, &mut compressor).unwrap();
                }
            });
        }
    });
    let packed = packer.finish(Gathered::default()).unwrap();
    // A chunk may be stored twice if it becomes durable just then, and never more often than there
    // are threads.
    assert!((200 * 500..=210 * 500).contains(&packed.bytes_new), "{}", packed.bytes_new);
    assert_eq!(packed.references.chunks() as u64 * 500, packed.bytes_new);
    for seed in 0..200 {
        let raw = random(seed, 500);
        assert_eq!(indexed.chunk(Kind::Content, &indexed.keys.id(Kind::Content, &raw)), Ok(raw));
    }
}

#[test]
fn a_store_that_fails_ends_the_packer_with_its_error() {
    let (repository, store) = repository(1);
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let packer = Packer::new(indexed.clone(), 1, None);
    store.fail_after(Some(2));
    let mut compressor = Compressor::new(1).unwrap();
    let mut add = |seed| {
        let raw = random(seed, 4000);
        packer.add(Kind::Content, indexed.keys.id(Kind::Content, &raw), &raw, &mut compressor)
    };
    let refused = (0..100).find_map(|seed| add(seed).err());
    assert_eq!(refused, Some(BackupError::Failed("the store went away".to_owned())));
    assert!(packer.finish(Gathered::default()).is_err());
    assert_eq!(store.names(Folder::Segments).len(), 2);
}
