use super::*;
use crate::nfs::export::{AwaitedExport, Network, Rule};
use crate::nfs::procedures::{GETATTR, MKDIR};
use crate::nfs::testing::*;
use crate::{Changes, MemoryFiles, Node};

async fn mount(client: &mut Client, path: &str) -> Result<bytes::Bytes, u32> {
    let mut results = client.call(Program::Mount, MNT, &args().opaque(path.as_bytes()).0).await;
    match results.u32().unwrap() {
        status::OK => {
            let handle = results.opaque(64).unwrap();
            assert_eq!((results.u32(), results.u32(), results.u32()), (Ok(2), Ok(AUTH_SYS), Ok(AUTH_NONE)));
            ends(&results);
            Ok(handle)
        }
        status => {
            ends(&results);
            Err(status)
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_path_leads_to_a_directory() {
    let server = server();
    let mut client = Client::new(&server);
    let root = client.mount().await;
    client.create(&root, "file").await;
    let mut made = client.done(MKDIR, args().opaque(&root).opaque(b"d").mode(0o755)).await;
    made.bool().unwrap();
    let directory = made.opaque(64).unwrap();
    for (path, expected) in [
        ("/records", Ok(root.clone())),
        ("//records/", Ok(root)),
        ("/records/d", Ok(directory)),
        ("/records/file", Err(status::NOTDIR)),
        ("/records/none", Err(status::NOENT)),
        ("/", Err(status::NOENT)),
        ("/records/../records", Err(status::NOENT)),
        ("", Err(status::NOENT)),
    ] {
        assert_eq!(mount(&mut client, path).await, expected, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn another_network_is_refused() {
    let server = server();
    let mut client = Client::from(&server, "192.168.1.1:999".parse().unwrap(), false);
    assert_eq!(mount(&mut client, PATH).await, Err(status::ACCES));
    // It is not told of the export either.
    let results = client.call(Program::Mount, EXPORT, &[]).await;
    assert_eq!(results.remaining(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_share_that_is_to_open_is_not_absent() {
    let server = server();
    let mut client = Client::new(&server);
    let late = AwaitedExport { path: "/late".to_owned(), rules: vec![rule()] };
    server.expect([(SHARE + 1, late)].into());
    assert_eq!(mount(&mut client, "/late").await, Err(status::SERVERFAULT));
    let mut other = Client::from(&server, "192.168.1.1:999".parse().unwrap(), false);
    assert_eq!(mount(&mut other, "/late").await, Err(status::NOENT), "it is not told of the share");
    let files = Arc::new(MemoryFiles::new(clock));
    let export = Export { path: "/late".to_owned(), share: SHARE + 1, files, rules: vec![rule()] };
    server.add(export).unwrap();
    mount(&mut client, "/late").await.expect("it is open");
}

#[tokio::test(start_paused = true)]
async fn a_mount_below_needs_the_way_to_be_open() {
    let files = MemoryFiles::new(clock);
    let changes = Changes { mode: Some(0o700), ..Changes::default() };
    let made = files.make(&Caller::ROOT, files.root(), b"closed", Node::Directory, changes.clone()).await.unwrap();
    files.make(&Caller::ROOT, made.file.inode, b"in", Node::Directory, changes).await.unwrap();
    let server = server_with(files, Rule::new(Network::ALL_V4), Default::default());
    let mut client = Client::new(&server);
    assert!(mount(&mut client, "/records/closed").await.is_ok());
    assert_eq!(mount(&mut client, "/records/closed/in").await, Err(status::ACCES));
}

/// The mounts that DUMP lists.
async fn mounts(client: &mut Client) -> Vec<(String, String)> {
    let mut results = client.call(Program::Mount, DUMP, &[]).await;
    let mut mounts = Vec::new();
    while results.bool().unwrap() {
        let mut text = || String::from_utf8(results.opaque(99).unwrap().to_vec()).unwrap();
        mounts.push((text(), text()));
    }
    ends(&results);
    mounts
}

#[tokio::test(start_paused = true)]
async fn mounts_are_listed_until_they_end() {
    let server = server();
    let mut client = Client::new(&server);
    let mut other = Client::from(&server, "10.9.9.9:999".parse().unwrap(), false);
    let mount_of = |host: &str| (host.to_owned(), PATH.to_owned());
    client.mount().await;
    client.mount().await;
    other.mount().await;
    assert_eq!(mounts(&mut client).await, [mount_of("10.1.2.3"), mount_of("10.9.9.9")]);
    client.call(Program::Mount, UMNT, &args().opaque(PATH.as_bytes()).0).await;
    assert_eq!(mounts(&mut client).await, [mount_of("10.9.9.9")]);
    other.call(Program::Mount, UMNTALL, &[]).await;
    assert_eq!(mounts(&mut client).await, []);
}

#[tokio::test(start_paused = true)]
async fn the_wire_of_the_list_of_exports() {
    let server = server();
    let mut client = Client::new(&server);
    let results = client.call(Program::Mount, EXPORT, &[]).await;
    let expected = b"\0\0\0\x01\0\0\0\x08/records\0\0\0\x01\0\0\0\x0a10.0.0.0/8\0\0\0\0\0\0\0\0\0\0";
    let record = results.record();
    assert_eq!(record[record.len() - results.remaining()..], expected[..]);
}

#[tokio::test(start_paused = true)]
async fn a_removed_share_is_stale_at_once() {
    let server = server();
    let mut client = Client::new(&server);
    let root = client.mount().await;
    client.done(GETATTR, &root).await;
    assert!(server.remove(SHARE) && !server.remove(SHARE));
    assert_eq!(client.nfs(GETATTR, &root).await.0, status::STALE);
    assert_eq!(mount(&mut client, PATH).await, Err(status::NOENT));
    let files = Arc::new(MemoryFiles::new(clock));
    server.add(Export { path: "/again".to_owned(), share: SHARE, files: files.clone(), rules: vec![rule()] }).unwrap();
    client.done(GETATTR, &root).await;
    let closed = Export { path: "/again".to_owned(), share: SHARE, files, rules: Vec::new() };
    server.replace(closed).unwrap();
    assert_eq!(client.nfs(GETATTR, &root).await.0, status::ACCES);
}

#[test]
fn every_failure_has_a_status_of_mount() {
    let known = [1, 2, 5, 13, 20, 22, 63, 10_004, 10_006];
    for error in failures() {
        assert!(known.contains(&mount_status(&error)), "{error:?}");
    }
}
