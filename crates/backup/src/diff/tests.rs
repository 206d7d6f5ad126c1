use super::*;
use crate::backup::tree_path;
use crate::testing::{Temporary, random, repository, save};

#[test]
fn differences_are_named_in_order() {
    let (repository, _) = repository(1);
    let folder = Temporary::new();
    for name in ["a", "b", "c/d", "c/e", "f/g"] {
        folder.write(name, random(name.len() as u64, 3000));
    }
    let first = save(&repository, &folder.0).unwrap();
    std::fs::remove_file(folder.join("a")).unwrap();
    folder.write("b", random(9, 3000));
    let file = std::fs::File::options().write(true).open(folder.join("c/d")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    folder.write("c/new", b"new");
    let second = save(&repository, &folder.0).unwrap();
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let top = tree_path(&folder.0).unwrap();
    let check = |within: &str, expected: &[(Change, &str)]| {
        let within = crate::tree::join(&top, within.as_bytes());
        let within = within.strip_suffix(b"/").unwrap_or(&within);
        let mut found = Vec::new();
        let is_there = run(&indexed, &first.description, &second.description, within, &mut |change, entry| {
            let path = String::from_utf8(entry.path[top.len()..].to_vec()).unwrap();
            // Directories change with their content.
            if entry.entry.content != Content::Directory {
                found.push((change, path));
            }
            Ok(())
        });
        assert_eq!(is_there, Ok(true));
        let expected: Vec<(Change, String)> =
            expected.iter().map(|(change, path)| (*change, path.to_string())).collect();
        assert_eq!(found, expected, "{}", String::from_utf8_lossy(within));
    };
    check(
        "",
        &[(Change::Removed, "/a"), (Change::Content, "/b"), (Change::Metadata, "/c/d"), (Change::Added, "/c/new")],
    );
    check("c", &[(Change::Metadata, "/c/d"), (Change::Added, "/c/new")]);
    check("f", &[]);
    let nowhere = run(&indexed, &first.description, &second.description, b"nowhere", &mut |_, _| Ok(()));
    assert_eq!(nowhere, Ok(false));
}
