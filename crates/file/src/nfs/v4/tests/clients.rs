//! EXCHANGE_ID, CREATE_SESSION and what ends them. The cases of EXCHANGE_ID are those of RFC 8881,
//! section 18.35.5.

use crate::nfs::testing::{Client, Program, args, server};
use crate::nfs::v4::number::*;
use crate::nfs::v4::testing::*;
use crate::nfs::v4::{
    CLIENTS_MAX, CLIENTS_PER_ADDRESS, KEPT_MAX, KEPT_PER_ADDRESS, KEPT_TOTAL, LEASE, OPERATIONS_MAX, SESSIONS_MAX,
    SLOTS_MAX, status,
};

const UPDATE: u32 = 0x4000_0000;
const CONFIRMED: u32 = 0x8000_0000;
const USE_NON_PNFS: u32 = 0x1_0000;

#[tokio::test(start_paused = true)]
async fn a_new_owner_gets_a_number() {
    let server = server();
    let mut wire = Client::new(&server);
    let one = wire.exchange("one", 1, 0).await.unwrap();
    let two = wire.exchange("two", 1, 0).await.unwrap();
    assert_eq!((one.1, one.2), (1, USE_NON_PNFS));
    assert_ne!(one.0, two.0);
}

#[tokio::test(start_paused = true)]
async fn an_unconfirmed_record_is_replaced() {
    let server = server();
    let mut wire = Client::new(&server);
    let first = wire.exchange("one", 1, 0).await.unwrap();
    let second = wire.exchange("one", 1, 0).await.unwrap();
    assert_ne!(first.0, second.0);
    assert_eq!(wire.session(first.0, 1, CHANNEL).await, Err(status::STALE_CLIENTID));
    wire.session(second.0, 1, CHANNEL).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_confirmed_record_is_found_again() {
    let server = server();
    let mut wire = Client::new(&server);
    let (client, next, _) = wire.exchange("one", 1, 0).await.unwrap();
    let session = wire.session(client, next, CHANNEL).await.unwrap();
    assert_eq!(wire.exchange("one", 1, 0).await, Ok((client, next + 1, USE_NON_PNFS | CONFIRMED)));
    let mut wire = Client::new(&server);
    assert_eq!(wire.exchange("one", 1, 0).await.map(|known| known.0), Ok(client));
    assert_eq!(wire.compound(&sequence(&session, 1, 0, false)).await.status, status::OK);
}

#[tokio::test(start_paused = true)]
async fn updates_need_the_same_client() {
    let server = server();
    let mut wire = Client::new(&server);
    assert_eq!(wire.exchange("one", 1, UPDATE).await, Err(status::NOENT));
    let (client, next, _) = wire.exchange("one", 1, 0).await.unwrap();
    assert_eq!(wire.exchange("one", 1, UPDATE).await, Err(status::NOENT), "not confirmed yet");
    wire.session(client, next, CHANNEL).await.unwrap();
    assert_eq!(wire.exchange("one", 1, UPDATE).await.map(|known| known.0), Ok(client));
    assert_eq!(wire.exchange("one", 2, UPDATE).await, Err(status::NOT_SAME));
    wire.uid = 5;
    assert_eq!(wire.exchange("one", 1, UPDATE).await, Err(status::PERM));
}

#[tokio::test(start_paused = true)]
async fn a_restarted_client_loses_what_it_had() {
    let (server, mut session, root) = begin().await;
    let (file, _) = session.open(&root, "a", "owner", WRITE_ACCESS, BOTH_ACCESS).await;
    let mut other = ClientSession::new(&server, "other").await;
    assert_eq!(other.try_open(&root, "a", "o", READ_ACCESS, 0).await.unwrap_err(), status::SHARE_DENIED);
    let mut again = Client::new(&server);
    let (client, next, flags) = again.exchange("client", 2, 0).await.unwrap();
    assert_ne!(client, session.client);
    assert_eq!(flags & CONFIRMED, 0);
    // Until the new record is confirmed, the former one stays.
    assert_eq!(session.status(call().at(&file)).await, status::OK);
    again.session(client, next, CHANNEL).await.unwrap();
    assert_eq!(session.status(call().at(&file)).await, status::BADSESSION);
    other.open(&root, "a", "o", READ_ACCESS, 0).await;
    assert_eq!(server.clients().opens(), 1);
}

#[tokio::test(start_paused = true)]
async fn another_user_takes_only_an_idle_owner() {
    let (server, mut session, root) = begin().await;
    let (file, stateid) = session.open(&root, "a", "owner", WRITE_ACCESS, 0).await;
    let mut thief = Client::new(&server);
    thief.uid = 5;
    assert_eq!(thief.exchange("client", 1, 0).await, Err(status::CLID_INUSE));
    session.close(&file, stateid).await;
    let (client, next, _) = thief.exchange("client", 1, 0).await.unwrap();
    assert_ne!(client, session.client);
    assert_eq!(session.status(call().at(&file)).await, status::BADSESSION);
    // The record belongs to the user who made it.
    thief.uid = 6;
    assert_eq!(thief.session(client, next, CHANNEL).await, Err(status::CLID_INUSE));
    thief.uid = 5;
    thief.session(client, next, CHANNEL).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn bad_arguments_of_exchange_id_are_refused() {
    let server = server();
    let mut wire = Client::new(&server);
    for flags in [CONFIRMED, 0x8, 0x2000_0000] {
        assert_eq!(wire.exchange("one", 1, flags).await, Err(status::INVAL), "flags {flags:#x}");
    }
    let head = || args().u64(1).opaque(b"one").u32(0);
    let implementation = |to: crate::nfs::testing::Arguments| to.opaque(b"d").opaque(b"n").u64(0).u32(0);
    let table = [
        ("protection by the machine's credentials", head().u32(1), status::INVAL),
        ("protection by a secret", head().u32(2), status::INVAL),
        ("no such protection", head().u32(3), status::BADXDR),
        ("one implementation", implementation(head().u32(0).u32(1)), status::OK),
        ("two implementations", implementation(head().u32(0).u32(2)), status::BADXDR),
        ("nothing", args(), status::BADXDR),
        ("a long owner", args().u64(1).opaque(&[7; 1025]).u32(0).u32(0).u32(0), status::BADXDR),
    ];
    for (name, arguments, expected) in table {
        assert_eq!(wire.compound(&call().op(EXCHANGE_ID, arguments)).await.status, expected, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn records_that_were_not_confirmed_keep_no_client_out() {
    let server = server();
    let mut first = None;
    for machine in 0..CLIENTS_MAX / CLIENTS_PER_ADDRESS {
        let mut wire = machine_at(&server, machine);
        for number in 0..CLIENTS_PER_ADDRESS {
            let (client, ..) = wire.exchange(&format!("client {machine} {number}"), 1, 0).await.unwrap();
            if first.is_none() {
                first = Some(client);
                tokio::time::advance(std::time::Duration::from_secs(1)).await;
            }
        }
    }
    let mut wire = Client::new(&server);
    let (client, next, _) = wire.exchange("one more", 1, 0).await.unwrap();
    wire.session(client, next, CHANNEL).await.unwrap();
    assert_eq!(wire.session(first.unwrap(), 1, CHANNEL).await, Err(status::STALE_CLIENTID), "the oldest record stays");
}

fn machine_at(server: &std::sync::Arc<crate::nfs::Server<crate::MemoryFiles>>, number: usize) -> Client {
    Client::from(server, format!("10.7.{number}.1:700").parse().unwrap(), false)
}

#[tokio::test(start_paused = true)]
async fn one_machine_has_a_bounded_number_of_clients() {
    let server = server();
    let mut wire = machine_at(&server, 1);
    let small = [1 << 20, 1 << 20, 0, 8, 1];
    for number in 0..CLIENTS_PER_ADDRESS {
        let (client, next, _) = wire.exchange(&format!("client {number}"), 1, 0).await.unwrap();
        wire.session(client, next, small).await.unwrap();
    }
    assert_eq!(wire.exchange("one more", 1, 0).await, Err(status::DELAY));
    machine_at(&server, 2).exchange("one more", 1, 0).await.unwrap();
    tokio::time::advance(LEASE).await;
    wire.exchange("another", 1, 0).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_no_export_admits_is_no_client() {
    let server = server();
    let mut wire = Client::from(&server, "192.168.0.1:700".parse().unwrap(), false);
    assert_eq!(wire.exchange("stranger", 1, 0).await, Err(status::PERM));
}

#[tokio::test(start_paused = true)]
async fn a_session_has_bounded_channels() {
    let server = server();
    let mut wire = Client::new(&server);
    let (client, next, _) = wire.exchange("one", 1, 0).await.unwrap();
    let mut answer = wire.compound(&create_session(client, next, [u32::MAX; 5])).await;
    let reader = answer.done(CREATE_SESSION);
    reader.skip(16).unwrap();
    let words: Vec<u32> = (0..9).map(|_| reader.u32().unwrap()).collect();
    let record = crate::nfs::record::RECORD_MAX as u32;
    assert_eq!(words, [next, 0, 0, record, record, KEPT_MAX, OPERATIONS_MAX, SLOTS_MAX, 0]);
    for (name, channel, expected) in [
        ("small requests", [20, 1 << 20, 0, 8, 8], status::TOOSMALL),
        ("small answers", [1 << 20, 20, 0, 8, 8], status::TOOSMALL),
        ("no slot", [1 << 20, 1 << 20, 0, 8, 0], status::INVAL),
        ("no operation", [1 << 20, 1 << 20, 0, 0, 8], status::INVAL),
    ] {
        let (client, next, _) = wire.exchange(name, 1, 0).await.unwrap();
        assert_eq!(wire.session(client, next, channel).await, Err(expected), "{name}");
        assert_eq!(wire.session(client, next, CHANNEL).await, Err(expected), "{name}: the same number again");
        wire.session(client, next + 1, CHANNEL).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn create_session_happens_once_for_each_number() {
    let server = server();
    let mut wire = Client::new(&server);
    let (client, next, _) = wire.exchange("one", 1, 0).await.unwrap();
    assert_eq!(wire.session(client, next.wrapping_sub(1), CHANNEL).await, Err(status::SEQ_MISORDERED));
    assert_eq!(wire.session(client, next + 1, CHANNEL).await, Err(status::SEQ_MISORDERED));
    let first = wire.session(client, next, CHANNEL).await.unwrap();
    assert_eq!(wire.session(client, next, CHANNEL).await, Ok(first));
    assert_eq!(server.clients().sessions(), 1);
    let second = wire.session(client, next + 1, CHANNEL).await.unwrap();
    assert_ne!(first, second);
    assert_eq!(wire.session(client, next, CHANNEL).await, Err(status::SEQ_MISORDERED));
    assert_eq!(wire.session(client + 99, 1, CHANNEL).await, Err(status::STALE_CLIENTID));
    for number in 2..SESSIONS_MAX as u32 {
        wire.session(client, next + number, CHANNEL).await.unwrap();
    }
    assert_eq!(wire.session(client, next + SESSIONS_MAX as u32, CHANNEL).await, Err(status::NOSPC));
}

#[tokio::test(start_paused = true)]
async fn sessions_beyond_the_memory_get_fewer_slots() {
    let server = server();
    let whole = KEPT_TOTAL / (SLOTS_MAX * KEPT_MAX) as usize;
    let of_one = KEPT_PER_ADDRESS / (SLOTS_MAX * KEPT_MAX) as usize;
    // One machine takes its part, and leaves the rest to others.
    for machine in 0..whole / of_one {
        fill(&mut machine_at(&server, machine), machine, of_one).await;
    }
    let mut wire = Client::new(&server);
    let (client, next, _) = wire.exchange("late", 1, 0).await.unwrap();
    assert_eq!(wire.session(client, next, CHANNEL).await, Err(status::NOSPC));
}

/// Makes sessions until there is no memory for one more.
async fn fill(wire: &mut Client, machine: usize, whole: usize) {
    let big = [1 << 20, 1 << 20, KEPT_MAX, 8, SLOTS_MAX];
    let mut made = 0;
    let mut last = (0, 0);
    'clients: for number in 0.. {
        let (client, next, _) = wire.exchange(&format!("client {machine} {number}"), 1, 0).await.unwrap();
        for more in 0..SESSIONS_MAX as u32 {
            last = (client, next + more);
            match wire.session(client, next + more, big).await {
                Ok(_) => made += 1,
                Err(status) => {
                    assert_eq!(status, status::NOSPC);
                    break 'clients;
                }
            }
        }
    }
    assert_eq!(made, whole);
    let session = wire.session(last.0, last.1 - 1, big).await;
    assert!(session.is_ok() || last.1 == 1, "{session:?}");
    if let Ok(session) = session {
        let destroyed = wire.compound(&call().op(DESTROY_SESSION, args().fixed(&session))).await;
        assert_eq!(destroyed.status, status::OK);
        wire.session(last.0, last.1 + 1, big).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_and_clients_are_destroyed() {
    let (server, mut session, root) = begin().await;
    let (file, stateid) = session.open(&root, "a", "owner", READ_ACCESS, 0).await;
    let mut wire = Client::new(&server);
    let destroy_client = |client| call().op(DESTROY_CLIENTID, args().u64(client));
    let destroy_session = |id: &[u8; 16]| call().op(DESTROY_SESSION, args().fixed(id));
    assert_eq!(wire.compound(&destroy_client(session.client)).await.status, status::CLIENTID_BUSY);
    assert_eq!(session.status(destroy_client(session.client)).await, status::CLIENTID_BUSY);
    assert_eq!(session.close(&file, stateid).await, status::OK);
    // It must be the last operation in its own session.
    let id = session.id;
    assert_eq!(session.status(destroy_session(&id).then(PUTROOTFH)).await, status::NOT_ONLY_OP);
    assert_eq!(session.status(destroy_session(&id)).await, status::OK);
    assert_eq!(session.status(call().then(PUTROOTFH)).await, status::BADSESSION);
    assert_eq!(wire.compound(&destroy_session(&id)).await.status, status::BADSESSION);
    assert_eq!(wire.compound(&destroy_client(session.client)).await.status, status::OK);
    assert_eq!(wire.compound(&destroy_client(session.client)).await.status, status::STALE_CLIENTID);
    assert_eq!(server.clients().count(), 0);
}

#[tokio::test(start_paused = true)]
async fn connections_are_bound_to_the_fore_channel() {
    let (server, session, _) = begin().await;
    let mut wire = Client::new(&server);
    let bind = |id: &[u8; 16], direction| call().op(BIND_CONN_TO_SESSION, args().fixed(id).u32(direction).u32(0));
    for direction in [1, 3, 7] {
        let mut answer = wire.compound(&bind(&session.id, direction)).await;
        let reader = answer.done(BIND_CONN_TO_SESSION);
        assert_eq!(reader.fixed::<16>(), Ok(session.id));
        assert_eq!((reader.u32(), reader.bool()), (Ok(1), Ok(false)));
        answer.ends();
    }
    for (id, direction, expected) in
        [(session.id, 2, status::INVAL), (session.id, 4, status::BADXDR), ([9; 16], 1, status::BADSESSION)]
    {
        assert_eq!(wire.compound(&bind(&id, direction)).await.status, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn counters_name_the_operations() {
    let (server, mut session, _) = begin().await;
    session.status(call().then(GETFH)).await;
    let count = |wanted: &str| {
        let mut all = server.counters().procedures().filter(|(program, ..)| *program == Program::Nfs4);
        all.find(|(_, name, ..)| *name == wanted).map(|(_, _, calls, failures)| (calls, failures))
    };
    assert_eq!(count("getfh"), Some((2, 1)));
    assert_eq!(count("exchange_id"), Some((1, 0)));
    assert_eq!(count("compound"), Some((5, 1)));
}

#[tokio::test(start_paused = true)]
async fn the_numbers_of_clients_cannot_be_guessed() {
    let server = server();
    let mut wire = Client::new(&server);
    let mut low = Vec::new();
    for name in ["one", "two", "three", "four"] {
        low.push(wire.exchange(name, 1, 0).await.unwrap().0 as u32);
    }
    assert!(low.iter().any(|number| *number > 1 << 20), "{low:?}");
    let steps: Vec<u32> = low.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    assert!(steps[0] != steps[1] && steps[1] != steps[2], "{low:?}");
}

#[tokio::test(start_paused = true)]
async fn another_user_gets_no_session_of_a_client() {
    let (server, mut session, _) = begin().await;
    let mut thief = Client::new(&server);
    thief.uid = 5;
    // The call that made the session, again, and the next one.
    for number in [1, 2] {
        assert_eq!(thief.session(session.client, number, CHANNEL).await, Err(status::CLID_INUSE), "{number}");
    }
    assert_eq!(server.clients().sessions(), 1);
    let id = session.id;
    assert_eq!(session.status(call().op(DESTROY_SESSION, args().fixed(&id))).await, status::OK);
    let destroy = call().op(DESTROY_CLIENTID, args().u64(session.client));
    assert_eq!(thief.compound(&destroy).await.status, status::WRONG_CRED);
    let mut own = Client::new(&server);
    assert_eq!(own.compound(&destroy).await.status, status::OK);
}
