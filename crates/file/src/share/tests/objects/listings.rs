//! Listings against a sorted set of keys, for many trees, prefixes, delimiters and markers.

use std::collections::BTreeSet;

use stele_archive::ListRequest;
use stele_ground::Dice;

use super::*;

/// The keys of a tree: every file, and every empty directory.
type Keys = BTreeSet<String>;

/// What a listing shows, computed from all keys.
fn expected(keys: &Keys, request: &ListRequest) -> Vec<String> {
    let folded = |key: &str| {
        let delimiter = request.delimiter.as_deref()?;
        let at = key.get(request.prefix.len()..)?.find(delimiter)?;
        Some(key[..request.prefix.len() + at + delimiter.len()].to_owned())
    };
    let after = request.after.as_deref().unwrap_or("");
    let skipped = |key: &str| {
        key <= after
            || (after.starts_with(&request.prefix) && folded(after).as_deref() == Some(after) && key.starts_with(after))
    };
    let mut shown = BTreeSet::new();
    for key in keys.iter().filter(|key| key.starts_with(&request.prefix) && !skipped(key)) {
        shown.insert(folded(key).unwrap_or_else(|| key.clone()));
    }
    shown.into_iter().collect()
}

async fn listed(view: &View, request: &ListRequest) -> Vec<String> {
    let mut all = Vec::new();
    let mut request = request.clone();
    loop {
        let page = view.objects.list(&view.client, request.clone()).await.expect("a listing");
        assert!(page.objects.len() + page.common_prefixes.len() <= request.limit);
        let objects = page.objects.iter().map(|object| object.key.clone());
        let mut shown: Vec<String> = objects.chain(page.common_prefixes).collect();
        shown.sort();
        assert!(all.last() < shown.first() || shown.is_empty(), "pages overlap: {all:?} {shown:?}");
        all.extend(shown);
        if !page.truncated {
            return all;
        }
        assert_eq!(page.next_marker.as_ref(), all.last());
        request.token = page.next_token;
    }
}

/// Names whose bytes lie on both sides of `/`.
const NAMES: [&str; 12] = ["a", "a-", "a-b", "a.txt", "a/", "a0", "ab", "b", "\u{e9}", "A!", "a--", "z~"];

#[tokio::test(start_paused = true)]
async fn listings_agree_with_a_sorted_set_of_keys() {
    for seed in 0..30 {
        let view = View::new(Stage::new(seed)).await;
        let mut dice = Dice::new(seed);
        let mut keys = Keys::new();
        for _ in 0..60 {
            act(&view, &mut dice, &mut keys).await;
        }
        let all: Vec<String> = keys.iter().cloned().collect();
        for _ in 0..60 {
            let mut piece = |most: u64| {
                let key = dice.pick(&all).cloned().unwrap_or_default();
                let length = dice.below(most).min(key.len() as u64) as usize;
                let mut piece = key[..key.floor_char_boundary(length)].to_owned();
                if dice.one_in(4) {
                    piece.push_str(dice.pick(&["/", "-", "0", "a", "."]).expect("not empty"));
                }
                piece
            };
            let (prefix, after) = (piece(6), piece(12));
            let delimiter = *dice.pick(&["", "/", "/", "-", "a", "b/"]).expect("not empty");
            let request = ListRequest {
                bucket: NAME.into(),
                prefix: if dice.one_in(3) { String::new() } else { prefix },
                delimiter: Some(delimiter.to_owned()).filter(|text| !text.is_empty()),
                after: Some(after).filter(|_| dice.one_in(2)),
                token: None,
                limit: 1 + dice.below(7) as usize,
                ..ListRequest::default()
            };
            assert_eq!(listed(&view, &request).await, expected(&keys, &request), "seed {seed}: {request:?}, {keys:?}");
        }
    }
}

/// One change of the tree, over S3 or over files, and of the model.
async fn act(view: &View, dice: &mut Dice, keys: &mut Keys) {
    let depth = 1 + dice.below(3);
    let names: Vec<&str> =
        (0..depth).map(|_| *dice.pick(&NAMES).expect("not empty")).map(|name| name.trim_end_matches('/')).collect();
    let mut key = names.join("/");
    let known: Vec<String> = keys.iter().cloned().collect();
    match dice.below(6) {
        0..=2 => {
            if dice.one_in(5) {
                key.push('/');
            }
            let data = if key.ends_with('/') { Bytes::new() } else { content(1, 10) };
            if view.put(&key, &data).await.is_ok() {
                add(keys, &key);
            }
        }
        3 => {
            let Some(key) = dice.pick(&known) else { return };
            view.delete(key).await.expect("a delete");
            remove(keys, key);
        }
        4 => {
            let Some(key) = dice.pick(&known).filter(|key| !key.contains('/')) else { return };
            let to = *dice.pick(&["a-z", "moved", "a!"]).expect("not empty");
            let root = view.share.root();
            if view.share.rename(&Caller::ROOT, (root, key.as_bytes()), (root, to.as_bytes())).await.is_ok() {
                keys.remove(key);
                keys.insert(to.to_owned());
            }
        }
        _ => {
            let Some(top) = dice.pick(&known).and_then(|key| key.split_once('/')).map(|(top, _)| top) else { return };
            let root = view.share.root();
            let to = format!("{top}-moved");
            if view.share.rename(&Caller::ROOT, (root, top.as_bytes()), (root, to.as_bytes())).await.is_ok() {
                let (from, to) = (format!("{top}/"), format!("{to}/"));
                // An empty directory may have been there and was replaced.
                keys.remove(&to);
                let moved: Vec<String> = keys.iter().filter(|key| key.starts_with(&from)).cloned().collect();
                for key in moved {
                    keys.remove(&key);
                    keys.insert(key.replacen(&from, &to, 1));
                }
            }
        }
    }
}

/// A key makes the directories above it, which are not empty any more.
fn add(keys: &mut Keys, key: &str) {
    for (at, _) in key.match_indices('/').filter(|(at, _)| at + 1 < key.len()) {
        keys.remove(&key[..=at]);
    }
    let filled = key.ends_with('/') && keys.iter().any(|other| other.starts_with(key) && other != key);
    if !filled {
        keys.insert(key.to_owned());
    }
}

/// A removed key may leave its directory empty.
fn remove(keys: &mut Keys, key: &str) {
    keys.remove(key);
    let path = key.strip_suffix('/').unwrap_or(key);
    if let Some((above, _)) = path.rsplit_once('/') {
        let above = format!("{above}/");
        if !keys.iter().any(|other| other.starts_with(&above)) {
            keys.insert(above);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_has_no_key_is_not_listed() {
    let view = View::new(Stage::new(1)).await;
    let root = view.share.root();
    let link = Node::Link { target: Bytes::from_static(b"f") };
    view.share.make(&Caller::ROOT, root, b"link", link, Changes::default()).await.expect("a link");
    file(&view.share, ".hidden", &content(1, 10)).await;
    let how = crate::Creation::Guarded(Changes::default());
    view.share.create(&Caller::ROOT, root, b"\xff\xfe", how).await.expect("a name that is not UTF-8");
    let request = ListRequest { bucket: NAME.into(), limit: 1000, ..Default::default() };
    assert_eq!(listed(&view, &request).await, [".hidden"]);
    // No version holds it yet: its size is known, its tag is not.
    let page = view.objects.list(&view.client, request).await.expect("a listing");
    assert_eq!((page.objects[0].size, page.objects[0].etag), (10, stele_archive::ETag::NONE));
}

#[tokio::test(start_paused = true)]
async fn a_large_directory_is_listed_page_by_page() {
    let view = View::new(Stage::new(2)).await;
    let mut keys = Keys::new();
    for number in 0..600 {
        let key = format!("d/{number:04}");
        let how = crate::Creation::Guarded(Changes::default());
        if number == 0 {
            view.put("d/", &Bytes::new()).await.expect("a directory");
        }
        let directory = view.find("d").expect("the directory");
        view.share.create(&Caller::ROOT, directory, &key.as_bytes()[2..], how).await.expect("a file");
        keys.insert(key);
    }
    for (delimiter, after) in
        [(None, None), (None, Some("d/0300")), (Some("/"), None), (Some("0"), None), (Some("99"), None)]
    {
        let request = ListRequest {
            bucket: NAME.into(),
            delimiter: delimiter.map(str::to_owned),
            after: after.map(str::to_owned),
            limit: 100,
            ..Default::default()
        };
        assert_eq!(listed(&view, &request).await, expected(&keys, &request), "{request:?}");
    }
}
