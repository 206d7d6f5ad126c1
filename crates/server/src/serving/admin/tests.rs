use super::*;
use crate::node::testing::Scene;

#[test]
fn changes_of_volumes_and_exports_end_although_their_clients_hang_up() {
    let changes = ["create", "set", "resize", "snapshot", "clone", "rollback", "delete", "restore/end"];
    let of_volumes = changes.map(|name| format!("volume/{name}"));
    let of_exports = ["add", "remove", "set"].map(|name| format!("export/{name}"));
    for name in of_volumes.iter().chain(&of_exports) {
        assert!(CALLS.iter().any(|call| call.name == name && !call.reads), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_call_refuses_a_field_that_it_does_not_have() {
    let scene = Scene::new("unknown-fields");
    for call in CALLS {
        let body = Bytes::from_static(br#"{"no_such_field":1}"#);
        let refused = (call.handler)(&scene.node, Actor { uid: 0 }, body).await.unwrap_err();
        let said = format!("{} has no field `no_such_field`", call.name);
        assert!(refused.kind == Kind::Usage && refused.error.contains(&said), "{}: {refused}", call.name);
    }
}

/// A setting that names another file or directory by mistake takes nothing away.
#[tokio::test]
async fn a_socket_replaces_sockets_alone() {
    let dir = std::env::temp_dir().join(format!("stele-sockets-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(dir.join("stele.new/below")).unwrap();
    let (key, socket) = (dir.join("master.key"), dir.join("stele.sock"));
    std::fs::write(&key, "key").unwrap();
    let refused = listen(&key, "[nbd] socket", false).unwrap_err();
    assert!(refused.kind == Kind::Refused && refused.to_string().contains("[nbd] socket"), "{refused}");
    assert!(listen(&dir.join("stele.new"), "[nbd] socket", false).is_err());
    remove(&key);
    assert_eq!(std::fs::read(&key).unwrap(), b"key");

    // As a killed server leaves it.
    drop(listen(&socket, "[admin] socket", false).unwrap());
    let again = listen(&socket, "[admin] socket", false).unwrap();
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
    // A socket that is served stays: both settings may name one, or one of another program.
    let taken = listen(&socket, "[nbd] socket", false).unwrap_err();
    assert!(taken.kind == Kind::Busy && taken.next.contains("[nbd] socket"), "{taken}");
    assert!(std::os::unix::net::UnixStream::connect(&socket).is_ok());
    let nowhere = listen(&dir.join("no/such.sock"), "[nbd] socket", false).unwrap_err();
    assert!(nowhere.to_string().contains("no/such.sock") && nowhere.next.contains("[nbd] socket"), "{nowhere}");
    drop(again);
    remove(&socket);
    let mut left: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["master.key", "stele.new"]);
    assert!(dir.join("stele.new/below").is_dir());
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A call that runs to its end without its caller keeps the caller's place.
#[test]
fn searches_and_lists_end_with_their_clients() {
    for name in [
        "find",
        "share/ls",
        "share/why",
        "key/list",
        "master-key/verify",
        "class/list",
        "class/expiring",
        "matter/list",
        "matter/show",
        "matter/versions",
        "matter/count",
        "approve/list",
        "export/list",
        "receipt/get",
        "audit/prove",
        "audit/show",
        "why",
        "bucket/list",
        "volume/list",
        "pool/status",
    ] {
        assert!(CALLS.iter().any(|call| call.name == name && call.reads), "{name}");
    }
}

/// A call that says when it has begun, and goes on when it is told to.
#[tokio::test]
async fn a_call_goes_on_to_its_end_though_its_caller_hangs_up_and_keeps_its_place_meanwhile() {
    let path = std::env::temp_dir().join(format!("stele-admin-calls-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    let (begun, mut begins) = tokio::sync::mpsc::unbounded_channel();
    let (go_on, going_on) = oneshot::channel::<()>();
    let (end, mut ended) = oneshot::channel::<()>();
    let gates = Arc::new(Mutex::new(Some((going_on, end))));
    let calls = Arc::new(Calls::default());
    let running = Arc::clone(&calls);
    let answer = move |_: Option<u32>, _: Request<Incoming>, place: Kept| {
        let (begun, gates) = (begun.clone(), gates.lock().unwrap().take());
        running.run(
            async move {
                let _ = begun.send(());
                if let Some((going_on, end)) = gates {
                    let _ = going_on.await;
                    let _ = end.send(());
                }
                StatusCode::OK.into_response()
            },
            place,
        )
    };
    let stop = watch::Sender::new(false);
    let allow = |_: Option<u32>| Allowance { account: None, connections: 1, idle: IDLE_MAX };
    let serving = tokio::spawn(http::serve_unix(listener, allow, turned_away, answer, stop.subscribe()));
    let mut caller = tokio::net::UnixStream::connect(&path).await.unwrap();
    let request = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    tokio::io::AsyncWriteExt::write_all(&mut caller, request).await.unwrap();
    begins.recv().await.unwrap();
    drop(caller);
    // The place is taken still, and the next connection is turned away.
    let mut next = tokio::net::UnixStream::connect(&path).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut next, request).await.unwrap();
    let mut said = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut next, &mut said).await.unwrap();
    assert!(said.starts_with(b"HTTP/1.1 403"), "{}", String::from_utf8_lossy(&said));
    // All connections have ended when this returns.
    stop.send_replace(true);
    serving.await.unwrap();
    assert!(ended.try_recv().is_err(), "it waits still");
    assert!(go_on.send(()).is_ok(), "the call ended with its connection");
    calls.finish().await;
    assert!(ended.try_recv().is_ok(), "it came to its end");
    let _ = std::fs::remove_file(&path);
}

/// The command reads the failure and not a connection that broke off.
#[tokio::test]
async fn a_command_beyond_the_connections_of_its_user_is_told_so() {
    let path = std::env::temp_dir().join(format!("stele-admin-full-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let listener = UnixListener::bind(&path).unwrap();
    let stop = watch::Sender::new(false);
    let allow = |_: Option<u32>| Allowance { account: Some(0), connections: 1, idle: IDLE_MAX };
    let answer = |_: Option<u32>, _: Request<Incoming>, _: Kept| async { StatusCode::OK.into_response() };
    let serving = tokio::spawn(http::serve_unix(listener, allow, turned_away, answer, stop.subscribe()));
    let first = tokio::net::UnixStream::connect(&path).await.unwrap();
    let mut sender = crate::connection::connect(&path).await.unwrap();
    let failure = crate::connection::ask(&path, &mut sender, "pool/status", b"{}".to_vec()).await.unwrap_err();
    let said = "user 0 has 1 connection to the server, and no further one is served; nothing was done";
    assert!(failure.kind == Kind::Busy && failure.error == said, "{failure}");
    drop((first, sender));
    stop.send_replace(true);
    serving.await.unwrap();
    let _ = std::fs::remove_file(&path);
}

#[test]
fn strangers_have_one_account_together() {
    let strangers = [allowance(1001, false, false), allowance(1002, false, false)];
    assert_eq!(strangers[0], strangers[1]);
    assert_eq!((strangers[0].account, strangers[0].connections), (None, STRANGERS_MAX));
    let officers = [allowance(1001, false, true), allowance(1002, false, true)];
    assert!(officers.iter().all(|officer| officer.connections == CONNECTIONS_PER_OFFICER));
    assert_eq!((officers[0].account, officers[1].account), (Some(1001), Some(1002)));
    assert_eq!(allowance(0, true, false).connections, CONNECTIONS_MAX);
}

#[test]
fn officers_are_told_every_command_they_may_use() {
    for call in CALLS.iter().filter(|call| call.for_officers) {
        let command = call.name.split('/').next().unwrap_or_default();
        let mut commands = OFFICERS_COMMANDS.split('`').filter_map(|quoted| quoted.strip_prefix("stele "));
        assert!(commands.any(|told| told.starts_with(command)), "{}", call.name);
    }
}
