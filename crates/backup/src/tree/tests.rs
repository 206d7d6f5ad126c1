use stele_ground::Dice;

use super::*;
use crate::testing::random;

fn entry(dice: &mut Dice, name: Vec<u8>, directory: bool) -> Entry {
    let stamp = |dice: &mut Dice| Stamp { seconds: dice.roll() as i64 >> 20, nanos: dice.below(1_000_000_000) as u32 };
    let id = |dice: &mut Dice| ChunkId(random(dice.roll(), 32).try_into().unwrap());
    let xattrs = (0..dice.below(3)).map(|at| (format!("user.{at}").into_bytes(), random(dice.roll(), 9))).collect();
    let metadata = Metadata {
        mode: dice.below(0o10000) as u32,
        user: dice.roll() as u32,
        group: dice.roll() as u32,
        modified: stamp(dice),
        changed: stamp(dice),
        device: dice.roll(),
        inode: dice.roll(),
        links: dice.below(5),
        xattrs,
    };
    let content = match if directory { 0 } else { 1 + dice.below(8) } {
        0 => Content::Directory,
        1 => Content::Symlink(b"../target".to_vec()),
        2 => Content::Fifo,
        3 => Content::Socket,
        4 => Content::CharacterDevice(dice.roll()),
        5 => Content::BlockDevice(dice.roll()),
        6 => Content::File { size: dice.roll(), pieces: Vec::new(), lists: vec![id(dice), id(dice)], volume: None },
        _ => {
            let piece = |dice: &mut Dice| match dice.below(4) {
                0 => Piece::Hole(dice.roll() >> 9),
                _ => Piece::Chunk { id: id(dice), length: dice.roll() as u32 },
            };
            let pieces: Vec<Piece> = (0..dice.below(4)).map(|_| piece(dice)).collect();
            let volume = dice.one_in(2).then(|| Box::new(origin(dice)));
            Content::File { size: total(&pieces).unwrap(), pieces, lists: Vec::new(), volume }
        }
    };
    Entry { name, metadata, content }
}

fn origin(dice: &mut Dice) -> Origin {
    Origin {
        cell: 4096 << dice.below(11),
        block: [512, 4096][dice.below(2) as usize],
        strip: (16 << 10) << dice.below(7),
        digests_strips: dice.one_in(2),
        code: "mirror-2".to_owned(),
        snapshot: format!("backup-{}", dice.below(9)),
        number: dice.roll() as u32,
        made: dice.roll(),
    }
}

/// A random tree in the order of the walk: paths of directories, depths and entries.
fn tree(dice: &mut Dice, path: &[u8], depth: usize, into: &mut Vec<(Vec<u8>, usize, Entry)>) {
    let mut names: Vec<Vec<u8>> =
        (0..dice.below(60)).map(|_| format!("{:x}", dice.below(1 << 20)).into_bytes()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let directory = depth < 4 && dice.one_in(6);
        let entry = entry(dice, name, directory);
        into.push((path.to_vec(), depth, entry.clone()));
        if directory {
            tree(dice, &join(path, &entry.name), depth + 1, into);
        }
    }
}

fn cuts(tree: &[(Vec<u8>, usize, Entry)]) -> Vec<Cut> {
    let mut writer = TreeWriter::default();
    let mut cuts: Vec<Cut> = tree.iter().filter_map(|(_, depth, entry)| writer.add(*depth, entry)).collect();
    cuts.extend(writer.finish());
    cuts
}

#[test]
fn a_tree_reads_back_and_every_chunk_alone() {
    let mut dice = Dice::new(1);
    let mut most = 0;
    for _ in 0..10 {
        let mut tree_of = Vec::new();
        tree(&mut dice, b"", 0, &mut tree_of);
        let cuts = cuts(&tree_of);
        most = most.max(cuts.len());
        let mut expected = tree_of.iter();
        for cut in &cuts {
            let mut reader = TreeReader::new(&cut.bytes).unwrap();
            let mut first = None;
            while let Some((path, entry)) = reader.step().unwrap() {
                first.get_or_insert(join(path, &entry.name));
                let (directory, _, was) = expected.next().unwrap();
                assert_eq!((path, &entry), (directory.as_slice(), was));
            }
            assert_eq!(first.as_ref(), Some(&cut.first));
        }
        assert_eq!(expected.next(), None);
        let paths: Vec<Vec<u8>> = tree_of.iter().map(|(path, _, entry)| join(path, &entry.name)).collect();
        assert!(paths.is_sorted_by(|a, b| order(a, b).is_lt()));
    }
    assert!(most > 1, "no tree had several chunks");
}

#[test]
fn a_change_of_one_entry_changes_one_chunk() {
    let mut dice = Dice::new(2);
    let mut tree_of = Vec::new();
    while cuts(&tree_of).len() < 5 {
        tree_of.clear();
        tree(&mut dice, b"", 0, &mut tree_of);
        tree(&mut dice, b"", 0, &mut tree_of);
    }
    let before = cuts(&tree_of);
    let middle = tree_of.len() / 2;
    tree_of[middle].2.metadata.inode ^= 1;
    let after = cuts(&tree_of);
    let changed = after.iter().filter(|cut| !before.contains(cut)).count();
    assert_eq!(changed, 1);
}

#[test]
fn damaged_chunks_give_errors_or_other_entries_but_no_panic() {
    let mut dice = Dice::new(3);
    let mut tree_of = Vec::new();
    tree(&mut dice, b"", 0, &mut tree_of);
    let whole = cuts(&tree_of).remove(0).bytes;
    for _ in 0..3000 {
        let mut bytes = whole.clone();
        let at = dice.below(bytes.len() as u64) as usize;
        bytes[at] = dice.roll() as u8;
        if dice.one_in(4) {
            bytes.truncate(at);
        }
        if let Ok(mut reader) = TreeReader::new(&bytes) {
            while let Ok(Some((path, entry))) = reader.step() {
                assert!(is_name(&entry.name));
                assert!(path.is_empty() || path.split(|byte| *byte == b'/').all(is_name));
            }
        }
    }
}

#[test]
fn names_that_leave_the_directory_are_refused() {
    for name in ["", ".", "..", "a/b", "/etc", "a\0b"] {
        assert!(!is_name(name.as_bytes()), "{name:?}");
        let mut writer = TreeWriter::default();
        let entry = Entry { name: name.into(), metadata: Metadata::default(), content: Content::Fifo };
        writer.add(0, &entry);
        let cut = writer.finish().unwrap();
        assert!(TreeReader::new(&cut.bytes).unwrap().step().is_err(), "{name:?}");
    }
}
