use super::*;
use crate::store::{Folder, Store};
use crate::testing::{Temporary, random, repository, save};

/// All paths below a directory, each with its entry, as a file system would list them page by page.
fn visit(browser: &Browser, directory: u64, path: &str, page: usize, found: &mut Vec<(String, u64)>) {
    let mut cookie = 0;
    loop {
        let (members, end) = browser.list(directory, cookie, page).unwrap();
        assert!(end || members.len() == page);
        for ListedFile { cookie: next, seen } in members {
            let name = String::from_utf8(seen.entry.name.clone()).unwrap();
            assert_eq!(browser.lookup(directory, name.as_bytes()).unwrap().unwrap(), seen, "{path}/{name}");
            assert_eq!(browser.attributes(seen.number).unwrap(), seen);
            assert!(next > cookie);
            cookie = next;
            let path = format!("{path}/{name}");
            if seen.entry.content == Content::Directory {
                assert_eq!(browser.lookup(seen.number, b"..").unwrap().unwrap().number, directory, "{path}");
                visit(browser, seen.number, &path, page, found);
            }
            found.push((path, seen.number));
        }
        if end {
            return;
        }
    }
}

#[test]
fn a_tree_of_many_chunks_is_listed_page_by_page() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    let mut expected = Vec::new();
    // Links with long targets make a large tree.
    let target = "x".repeat(3900);
    for number in 0..1500 {
        let name = format!("{}/{}/{number:05}", number % 5, number % 7);
        match number % 3 {
            0 => drop(folder.write(&name, format!("content {number}"))),
            _ => {
                std::fs::create_dir_all(folder.join(&name).parent().unwrap()).unwrap();
                std::os::unix::fs::symlink(&target, folder.join(&name)).unwrap();
            }
        }
        expected.push(name);
    }
    folder.write("after", "z");
    save(&repository, &folder.0).unwrap();
    store.set_now(2_000_000);
    folder.write("new", "n");
    let second = save(&repository, &folder.0).unwrap();
    assert!(second.description.tree.len() > 2, "the test needs several chunks");
    let browse =
        |latest| Browser::new(repository.index(&repository.epoch().unwrap(), None).unwrap().0, latest).unwrap();
    let without = browse(None);
    assert_eq!(without.lookup(ROOT, b"latest").unwrap(), None);
    assert_eq!(without.list(ROOT, 0, 9).unwrap().0.len(), 2);
    let browser = browse(Some(second.id));
    assert_eq!(browser.list(ROOT, 0, 9).unwrap().0.len(), 3);
    let latest = browser.lookup(ROOT, b"latest").unwrap().unwrap();
    assert_eq!(latest.entry.content, Content::Symlink(format!("ids/{}", second.id).into_bytes()));
    for page in [1, 3, 1000] {
        let ids = browser.lookup(ROOT, b"ids").unwrap().unwrap().number;
        let top = browser.lookup(ids, second.id.to_string().as_bytes()).unwrap().unwrap().number;
        assert_eq!(browser.lookup(ids, second.id.short().as_bytes()).unwrap().unwrap().number, top);
        let mut found = Vec::new();
        visit(&browser, top, "", page, &mut found);
        let base = folder.0.to_str().unwrap();
        let files: std::collections::BTreeSet<String> =
            found.iter().filter_map(|(path, _)| path.strip_prefix(&format!("{base}/")).map(str::to_owned)).collect();
        assert!(expected.iter().all(|path| files.contains(path)));
        assert!(files.contains("after") && files.contains("new"));
        // 1,502 files and links, 5 directories, and 7 in each.
        assert_eq!(files.len(), 1502 + 5 + 35);
    }
    let (dates, end) = browser.list(browser.lookup(ROOT, b"dates").unwrap().unwrap().number, 0, 100).unwrap();
    let names: Vec<String> =
        dates.iter().map(|date| String::from_utf8_lossy(&date.seen.entry.name).into_owned()).collect();
    assert_eq!((names, end), (vec!["1970-01-12T13:46:40Z".to_owned(), "1970-01-24T03:33:20Z".to_owned()], true));
}

#[test]
fn any_part_of_a_file_is_read_as_it_was_saved() {
    let (repository, _) = repository(1);
    let folder = Temporary::new();
    let content = random(1, 100_000);
    let path = folder.write("file", &content);
    std::fs::OpenOptions::new().write(true).open(path).unwrap().set_len(300_000).unwrap();
    let whole = [content, vec![0; 200_000]].concat();
    let saved = save(&repository, &folder.0).unwrap();
    let browser = Browser::new(repository.index(&repository.epoch().unwrap(), None).unwrap().0, None).unwrap();
    let tree = crate::backup::tree_path(&folder.join("file")).unwrap();
    assert_eq!(browser.snapshots.len(), 1);
    let file = browser.find(0, &tree).unwrap().unwrap().number;
    for (offset, length) in
        [(0, 300_000), (0, 1), (1, 4096), (99_990, 20), (50_000, 250_000), (299_999, 5), (300_000, 5)]
    {
        let (bytes, end) = browser.read(file, offset as u64, length).unwrap();
        let expected = &whole[offset..(offset + length).min(whole.len())];
        assert!(bytes == expected && end == (offset + length >= whole.len()), "{offset} {length}");
    }
    // The file has data up to a block of the file system behind its content, and then a hole.
    let hole = browser.seek(file, 0, false).unwrap().unwrap();
    assert!((100_000..300_000).contains(&hole), "{hole}");
    assert_eq!(browser.seek(file, 70_000, true), Ok(Some(70_000)));
    assert_eq!(browser.seek(file, 250_000, false), Ok(Some(250_000)));
    assert_eq!((browser.seek(file, hole, true), browser.seek(file, 300_000, false)), (Ok(None), Ok(None)));
    assert!(browser.read(ROOT, 0, 1).is_err() && browser.seek(ROOT, 0, true).is_err());
    assert!(browser.attributes(u64::MAX).is_err());
    assert!(browser.attributes(5).is_err());
    drop(saved);
}

#[test]
fn a_segment_that_has_gone_is_damage_of_its_files() {
    let (repository, store) = repository(1);
    let folder = Temporary::new();
    folder.write("file", random(1, 100_000));
    save(&repository, &folder.0).unwrap();
    let browse = || Browser::new(repository.index(&repository.epoch().unwrap(), None).unwrap().0, None).unwrap();
    let (browser, fresh) = (browse(), browse());
    let file = browser.find(0, &crate::backup::tree_path(&folder.join("file")).unwrap()).unwrap().unwrap().number;
    store.names(Folder::Segments).iter().for_each(|name| store.remove(name).unwrap());
    // The file is there, and only its content is not.
    assert!(browser.attributes(file).is_ok());
    assert!(matches!(browser.read(file, 0, 10), Err(BackupError::Damaged(_))));
    assert!(matches!(fresh.attributes(file), Err(BackupError::Damaged(_))));
    // A snapshot that was forgotten is there no more.
    store.names(Folder::Snapshots).iter().for_each(|name| store.remove(name).unwrap());
    assert!(matches!(browse().attributes(file), Err(BackupError::Missing(_))));
}

/// A browser whose first snapshot has lost a chunk of its tree.
fn lacking(browser: Browser, chunk: usize) -> Browser {
    let mut description = (*browser.description(0).unwrap()).clone();
    description.tree[chunk].0 = ChunkId([7; 32]);
    browser.descriptions.lock().unwrap().push_front((0, Arc::new(description)));
    browser
}

/// As [`visit`], with directories of which a part is lost. Returns how many there were.
fn visit_what_is_left(browser: &Browser, directory: u64, path: &[u8], page: usize, found: &mut Vec<Vec<u8>>) -> usize {
    let (mut cookie, mut lost) = (0, 0);
    loop {
        let (members, end) = match browser.list(directory, cookie, page) {
            Ok(listed) => listed,
            Err(error) => {
                assert!(matches!(error, BackupError::Damaged(_)), "{error}");
                return lost + 1;
            }
        };
        assert!(end || !members.is_empty());
        for ListedFile { cookie: next, seen } in members {
            assert_eq!(browser.lookup(directory, &seen.entry.name).unwrap().unwrap(), seen);
            assert_eq!(browser.attributes(seen.number).unwrap(), seen);
            assert!(next > cookie);
            cookie = next;
            let path = join(path, &seen.entry.name);
            if seen.entry.content == Content::Directory {
                assert_eq!(browser.lookup(seen.number, b"..").unwrap().unwrap().number, directory);
                lost += visit_what_is_left(browser, seen.number, &path, page, found);
            }
            found.push(path);
        }
        if end {
            return lost;
        }
    }
}

#[test]
fn behind_a_lost_chunk_of_a_tree_all_else_is_shown() {
    let (repository, _) = repository(1);
    let folder = Temporary::new();
    let target = "x".repeat(3900);
    for number in 0..1000 {
        let path = folder.join(&format!("{}/{}/{number:05}", number % 5, number % 7));
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&target, path).unwrap();
    }
    let saved = save(&repository, &folder.0).unwrap();
    let chunks = saved.description.tree.len();
    assert!(chunks > 3, "the test needs several chunks");
    let browse = || Browser::new(repository.index(&repository.epoch().unwrap(), None).unwrap().0, None).unwrap();
    let whole = browse();
    let top = Node::Snapshot(0).number();
    let mut lost_directories = 0;
    for lost in 0..chunks {
        // Of the lost chunk, the directories are left that hold something in the next one.
        let mut expected = std::collections::BTreeSet::new();
        for chunk in (0..chunks).filter(|chunk| *chunk != lost) {
            for found in whole.chunk(&saved.description, chunk).unwrap().iter() {
                let ends = found.path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
                expected.extend(ends.map(|end| found.path[..end].to_vec()));
                expected.insert(found.path.clone());
            }
        }
        let gone = whole.chunk(&saved.description, lost).unwrap();
        lost_directories += gone.iter().filter(|found| expected.contains(&found.path)).count();
        let browser = lacking(browse(), lost);
        for page in [1, 2, 1000] {
            let mut found = Vec::new();
            assert!(visit_what_is_left(&browser, top, b"", page, &mut found) > 0, "the loss is told");
            let number = found.len();
            let found: std::collections::BTreeSet<Vec<u8>> = found.into_iter().collect();
            assert_eq!((found.len(), found == expected), (number, true), "chunk {lost} of {chunks}, {page} in a page");
        }
        let hidden = gone.iter().find(|found| !expected.contains(&found.path)).unwrap();
        assert!(matches!(browser.find(0, &hidden.path), Err(BackupError::Damaged(_))));
    }
    assert!(lost_directories > 0, "a chunk begins within a directory of the one before");
}
