//! Mounting, unmounting, and what stays of a file that is open or was lost.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use stele_file::fuse::{MountOptions, detach_dead, mount};
use stele_file::{FileError, Files};
use tokio::runtime::Runtime;

use super::{Share, Way, able, each_way, empty_tree, new_directory};

const CHILD: &str = "STELE_TEST_MOUNTS_AND_DIES";

#[test]
fn an_unlinked_file_is_usable_until_closed() {
    each_way("unlinked", |share| {
        let path = share.path("f");
        let mut file = File::create_new(&path).expect("it is created");
        let inode = share.found("f").inode;
        fs::remove_file(&path).expect("it is removed");
        file.write_all(b"still there").expect("it is written");
        file.sync_all().expect("it is durable");
        assert_eq!(file.metadata().expect("it is there").len(), 11);
        drop(file);
        share.unmount();
        assert_eq!(share.runtime.block_on(share.files.attributes(inode)), Err(FileError::Stale));
    });
}

#[test]
fn a_sync_is_durable_and_tells_a_loss() {
    each_way("durable", |share| {
        let file = File::create_new(share.path("f")).expect("it is created");
        file.write_all_at(b"kept", 0).expect("it is written");
        file.sync_data().expect("it is durable");
        file.write_all_at(b"lost", 4).expect("it is written");
        share.files.crash();
        let lost = file.sync_all().expect_err("a write was lost");
        assert_eq!(lost.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()));
        let kept = share.found("f");
        assert_eq!(kept.size, 4);
        file.write_all_at(b"again", 4).expect("it is written");
        file.sync_all().expect("a loss is told once");
        share.files.crash();
        assert_eq!(share.runtime.block_on(share.files.attributes(kept.inode)).map(|file| file.size), Ok(9));
    });
}

#[test]
fn a_synchronous_write_is_durable() {
    use std::os::unix::fs::OpenOptionsExt;
    each_way("synchronous", |share| {
        for (name, flag) in [("all", rustix::fs::OFlags::SYNC), ("data", rustix::fs::OFlags::DSYNC)] {
            let mut options = File::options();
            options.write(true).create_new(true).custom_flags(flag.bits() as i32);
            let file = options.open(share.path(name)).expect("it is created");
            file.write_all_at(b"kept", 0).expect("it is written");
            let verifier = share.files.verifier();
            share.files.crash();
            assert_eq!(share.files.verifier(), verifier, "{name}: nothing is lost");
        }
    });
}

#[test]
fn a_busy_mount_stays() {
    each_way("busy", |share| {
        let file = File::create_new(share.path("f")).expect("it is created");
        let busy = share.mounted().unmount().expect_err("a file is open");
        assert_eq!(busy.kind(), ErrorKind::ResourceBusy, "{busy}");
        assert!(share.mounted().is_serving());
        file.write_all_at(b"content", 0).expect("it is written");
        drop(file);
        share.unmount();
        assert!(!share.mounted().is_serving());
        share.mounted().unmount().expect("once is enough");
        assert_eq!(fs::read_dir(share.path("")).expect("it is empty").count(), 0);
    });
}

#[test]
fn a_detached_mount_serves_what_is_open() {
    each_way("detached", |share| {
        let file = File::create_new(share.path("f")).expect("it is created");
        share.mounted().detach().expect("it is detached");
        assert!(!share.path("f").exists());
        file.write_all_at(b"content", 0).expect("it is written");
        file.sync_all().expect("it is durable");
    });
}

#[test]
fn a_share_is_mounted_once() {
    if !able() {
        return;
    }
    let share = Share::new("once", &Way { slow: false, options: MountOptions::default() });
    let again = mount(empty_tree(), &share.directory, &MountOptions::default(), None, share.runtime.handle().clone());
    let error = again.err().expect("one is there");
    assert_eq!(error.kind(), ErrorKind::ResourceBusy, "{error}");
    fs::write(share.path("f"), b"").expect("the first one serves");
}

/// Runs in the process that the next test starts; by itself it does nothing.
#[test]
fn child_that_mounts_and_dies() {
    let Some(directory) = std::env::var_os(CHILD) else { return };
    let runtime = Runtime::new().expect("a runtime starts");
    let mounted = mount(empty_tree(), Path::new(&directory), &MountOptions::default(), None, runtime.handle().clone());
    let _mounted = mounted.expect("it is mounted");
    fs::write(Path::new(&directory).join("f"), b"").expect("it serves");
    std::process::abort();
}

/// A directory at which a process had mounted a tree when it died.
fn dead_mount(name: &str) -> PathBuf {
    let directory = new_directory(name);
    let mut child = std::process::Command::new(std::env::current_exe().expect("a test has a name"));
    child.args(["lifecycle::child_that_mounts_and_dies", "--exact"]).env(CHILD, &directory);
    let ended = child.output().expect("the child starts");
    assert!(!ended.status.success(), "{ended:?}");
    let dead = fs::metadata(&directory).expect_err("its server died");
    assert_eq!(dead.kind(), ErrorKind::NotConnected, "{dead}");
    directory
}

#[test]
fn a_dead_mount_is_detached_by_command() {
    if !able() {
        return;
    }
    let directory = dead_mount("detached");
    assert!(detach_dead(&directory).expect("it may be unmounted"), "no dead mount was found");
    assert!(fs::read_dir(&directory).is_ok_and(|mut entries| entries.next().is_none()));
    assert!(!detach_dead(&directory).expect("a look"), "only a dead mount is unmounted");
    fs::remove_dir(&directory).expect("nothing is mounted there");
}

#[test]
fn a_dead_mount_is_cleaned_up() {
    if !able() {
        return;
    }
    let directory = dead_mount("dead");
    let runtime = Runtime::new().expect("a runtime starts");
    let mounted = mount(empty_tree(), &directory, &MountOptions::default(), None, runtime.handle().clone());
    let mounted = Some(mounted.expect("it is mounted"));
    let mut share = Share { files: empty_tree(), mounted, directory, runtime };
    fs::write(share.path("f"), b"").expect("it serves");
    share.unmount();
    assert!(!share.path("f").exists(), "nothing is mounted any more");
}
