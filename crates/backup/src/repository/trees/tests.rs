use super::*;
use crate::testing::{Temporary, repository, save};

#[test]
fn a_walk_gives_a_path_and_all_below_it() {
    let (repository, _) = repository(1);
    let folder = Temporary::new();
    for name in ["a/b/1", "a/b/2", "a/b.c", "a/bc/3", "z"] {
        folder.write(name, name);
    }
    let saved = save(&repository, &folder.0).unwrap();
    let (indexed, _) = repository.index(&Default::default(), None).unwrap();
    let top = crate::backup::tree_path(&folder.0).unwrap();
    let check = |within: &str, expected: &[&str]| {
        let mut walk = Walk::new(&indexed, &saved.description, &join(&top, within.as_bytes()));
        let mut found = Vec::new();
        while let Some(next) = walk.step().unwrap() {
            found.push(String::from_utf8(next.path[top.len() + 1..].to_vec()).unwrap());
        }
        assert_eq!(found, expected, "{within}");
    };
    check("a", &["a", "a/b", "a/b/1", "a/b/2", "a/b.c", "a/bc", "a/bc/3"]);
    check("a/b", &["a/b", "a/b/1", "a/b/2"]);
    check("z", &["z"]);
    check("y", &[]);
}
