use super::*;

fn leaves(count: u64) -> Vec<Hash> {
    (0..count).map(|n| *blake3::hash(&n.to_be_bytes()).as_bytes()).collect()
}

/// The simple twin: the root as RFC 6962 defines it.
fn slow_root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => Hash::default(),
        [one] => leaf_hash(one),
        many => {
            let middle = (many.len() as u64).next_power_of_two() as usize / 2;
            node_hash(&slow_root(&many[..middle]), &slow_root(&many[middle..]))
        }
    }
}

fn tree(leaves: &[Hash]) -> MerkleTree {
    let mut tree = MerkleTree::default();
    leaves.iter().for_each(|leaf| tree.push(leaf));
    tree
}

#[test]
fn roots_of_every_view_are_those_of_the_definition() {
    let all = leaves(40);
    let tree = tree(&all);
    for count in 0..=40usize {
        assert_eq!(tree.view(count as u64, None).root(), slow_root(&all[..count]), "{count}");
        let extra: Vec<Hash> = all[..count].iter().copied().chain([[7; 32]]).collect();
        assert_eq!(tree.view(count as u64, Some(&[7; 32])).root(), slow_root(&extra), "{count} and one");
    }
}

#[test]
fn a_path_proves_its_leaf_and_no_other() {
    let all = leaves(20);
    let tree = tree(&all);
    for count in 1..=20u64 {
        let view = tree.view(count, None);
        for index in 0..count {
            let (leaf, path) = (&all[index as usize], view.path(index));
            assert_eq!(root_of(leaf, index, count, &path), Some(view.root()), "{index} of {count}");
            assert_ne!(root_of(&[1; 32], index, count, &path), Some(view.root()));
            assert_ne!(root_of(leaf, index, count + 40, &path), Some(view.root()));
            for other in (0..count).filter(|other| *other != index) {
                assert_ne!(root_of(leaf, other, count, &path), Some(view.root()), "{index} as {other} of {count}");
            }
            for at in 0..path.len() {
                let mut bent = path.clone();
                bent[at][31] ^= 1;
                assert_ne!(root_of(leaf, index, count, &bent), Some(view.root()));
                assert_eq!(root_of(leaf, index, count, &path[..at]), None, "a cut path");
            }
            let long: Vec<Hash> = path.iter().copied().chain([[0; 32]]).collect();
            assert_eq!(root_of(leaf, index, count, &long), None, "a longer path");
        }
        assert_eq!(root_of(&all[0], count, count, &[]), None, "no such leaf");
    }
}

#[test]
fn growth_is_proven_and_change_is_not() {
    let all = leaves(24);
    let grown = tree(&all);
    for new in 1..=24u64 {
        let view = grown.view(new, None);
        for old in 1..=new {
            let before = grown.view(old, None).root();
            let path = view.growth(old);
            assert!(has_grown(old, new, &before, &view.root(), &path), "{old} to {new}");
            for changed in 0..old as usize {
                let mut other = all.clone();
                other[changed][0] ^= 1;
                let other = tree(&other);
                let forged = other.view(new, None);
                assert!(
                    !has_grown(old, new, &before, &forged.root(), &forged.growth(old)),
                    "{old} to {new}, leaf {changed} changed"
                );
            }
            for at in 0..path.len() {
                let mut bent = path.clone();
                bent[at][0] ^= 1;
                assert!(!has_grown(old, new, &before, &view.root(), &bent));
            }
            assert!(!has_grown(new + 1, old, &view.root(), &before, &path));
        }
        assert!(!has_grown(0, new, &Hash::default(), &view.root(), &[]), "an empty tree proves nothing");
    }
}

#[test]
fn one_path_serves_the_ended_and_the_grown_tree() {
    let all = leaves(20);
    let grown = tree(&all);
    for count in 1..=20u64 {
        for index in 0..count {
            let path = grown.view(count, None).path(index);
            let old = [9; 32];
            let (ended, whole) = climb(&old, &all[index as usize], index, count, &path).unwrap();
            assert_eq!(ended, grown.view(index, Some(&old)).root(), "{index} of {count}");
            assert_eq!(whole, grown.view(count, None).root());
        }
    }
}
