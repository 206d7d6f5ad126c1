use std::os::fd::AsFd;
use std::os::unix::fs::symlink;

use super::*;
use crate::testing::Temporary;

#[test]
fn links_are_never_followed() {
    let folder = Temporary::new();
    folder.write("real/file", b"x");
    symlink(folder.join("real"), folder.join("link")).unwrap();
    symlink(folder.join("real/file"), folder.join("file")).unwrap();
    let path = folder.0.to_str().unwrap().trim_start_matches('/');
    let mut parent = open_top().unwrap();
    for name in path.split('/') {
        parent = open_folder(&parent, name.as_bytes()).unwrap();
    }
    assert!(open_folder(&parent, b"link").is_err());
    assert!(open_file(&parent, b"file").is_err());
    assert!(open_folder(&parent, b"real").is_ok());
    assert_eq!(names(&parent).unwrap(), [b"file".to_vec(), b"link".to_vec(), b"real".to_vec()]);
    assert_eq!(
        content(&parent, b"file", &stat(&parent, b"file").unwrap()).unwrap(),
        Some(Content::Symlink(folder.join("real/file").into_os_string().into_encoded_bytes()))
    );
}

#[test]
fn attributes_of_any_length_are_read() {
    let folder = Temporary::new();
    let path = folder.write("file", b"x");
    let file = std::fs::File::open(&path).unwrap();
    let long = vec![7; 1800];
    let set = rustix::fs::fsetxattr(&file, "user.long", &long, rustix::fs::XattrFlags::empty());
    // Some file systems have none.
    if set.is_ok() {
        rustix::fs::fsetxattr(&file, "user.a", b"", rustix::fs::XattrFlags::empty()).unwrap();
        let expected = vec![(b"user.a".to_vec(), Vec::new()), (b"user.long".to_vec(), long)];
        assert_eq!(xattrs(file.as_fd()).unwrap(), expected);
    }
}

#[test]
fn only_a_regular_file_is_waited_for() {
    let folder = Temporary::new();
    folder.write("file", b"x");
    symlink(folder.join("file"), folder.join("link")).unwrap();
    let mode = Mode::RUSR | Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, folder.join("pipe"), FileType::Fifo, mode, 0).unwrap();
    let parent = open_top().unwrap();
    let opened = |name: &str| {
        let path = folder.join(name);
        open_leased(&parent, path.strip_prefix("/").unwrap().as_os_str().as_bytes()).map(|file| {
            let mut content = [0; 2];
            let length = rustix::io::read(&file, &mut content).unwrap();
            content[..length].to_vec()
        })
    };
    assert_eq!(opened("file"), Ok(b"x".to_vec()));
    assert_eq!((opened("pipe"), opened("link")), (Err(Errno::AGAIN), Err(Errno::AGAIN)));
}
