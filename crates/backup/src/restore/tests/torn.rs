//! Trees of which a part is lost.

use std::os::unix::fs::MetadataExt;

use super::*;

#[test]
fn a_lost_part_of_the_tree_costs_its_own_entries_alone() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    std::fs::create_dir_all(folder.join("outer/inner")).unwrap();
    for number in 0..900 {
        let target = crate::crypt::hex(&random(number, 1900));
        symlink(target, folder.join(&format!("outer/inner/{number:03}"))).unwrap();
    }
    let saved = save(&repository, &folder.0).unwrap();
    assert!(saved.description.tree.len() > 2, "the tree needs several chunks");
    let mut bridged = 0;
    for name in store.names(Folder::Segments) {
        let whole = store.get(&name, 1 << 24).unwrap();
        store.damage(&name, |bytes| bytes[crate::segment::HEADER_BYTES + 20] ^= 1);
        let target = Temporary::new();
        let done = with(&repository, &saved, &options(&target.0, &folder.0)).unwrap();
        assert!(done.others > 500 && done.others < 900, "{}: {} links, {:?}", name.text(), done.others, done.issues);
        // The entries of both directories are in the first chunk.
        let is_bridge = |issue: &&Issue| issue.text.contains("its owner, mode and times are lost");
        let paths: Vec<&[u8]> = done.issues.iter().filter(is_bridge).map(|issue| issue.path.as_slice()).collect();
        if !paths.is_empty() {
            assert_eq!(paths, [&b"outer"[..], b"outer/inner"]);
            let mode = target.join("outer/inner").metadata().unwrap().mode();
            assert_eq!(mode & 0o7777, 0o700);
            bridged += 1;
        }
        assert!(store.damage(&name, |bytes| *bytes = whole));
    }
    assert_eq!(bridged, 1);
}
