use super::*;
use crate::nfs::testing::*;
use crate::nfs::xdr::Reader;

#[tokio::test(start_paused = true)]
async fn the_monitor_tells_its_state_and_watches_no_strangers() {
    let server = server();
    let mut client = Client::new(&server);
    for (procedure, expected) in [(STAT, vec![1, 3]), (MON, vec![1, 3]), (UNMON, vec![3]), (UNMON_ALL, vec![3])] {
        let mut results = client.call(Program::Status, procedure, &args().opaque(b"host").0).await;
        let words: Vec<u32> = expected.iter().map(|_| results.u32().unwrap()).collect();
        assert_eq!(words, expected, "{procedure}");
        ends(&results);
    }
}

#[tokio::test(start_paused = true)]
async fn a_datagram_is_answered_without_a_mark() {
    let server = server();
    let client = Client::new(&server);
    let peer = "10.1.2.3:700".parse().unwrap();
    let record = |program| Bytes::from(client.record(program, 1, &args().opaque(b"host").0)).slice(4..);
    let answer = answer_datagram(&server, peer, record(Program::Status)).unwrap();
    let mut results = rpc::results(answer.into(), client.xid).unwrap();
    assert_eq!((results.u32(), results.u32()), (Ok(1), Ok(3)));
    for program in [Program::Nfs, Program::Mount, Program::Lock] {
        assert_eq!(answer_datagram(&server, peer, record(program)), None);
    }
    assert_eq!(answer_datagram(&server, peer, Bytes::from_static(b"short")), None);
}

#[tokio::test(start_paused = true)]
async fn a_notification_is_a_call_that_this_server_takes() {
    let server = server();
    let datagram = Bytes::from(notification(9, "server", 5).head).slice(4..);
    let mut words = Reader::new(datagram.clone());
    let head: Vec<u32> = (0..6).map(|_| words.u32().unwrap()).collect();
    assert_eq!(head, [9, 0, 2, 100_024, 1, NOTIFY]);
    words.skip(16).unwrap();
    assert_eq!((words.opaque(9).unwrap().as_ref(), words.u32()), (&b"server"[..], Ok(5)));
    let answer = answer_datagram(&server, "10.1.2.3:700".parse().unwrap(), datagram).unwrap();
    assert_eq!(rpc::results(answer.into(), 9).unwrap().remaining(), 0);
}

#[test]
fn remembered_hosts_are_bounded() {
    let reboots = Reboots::new(1);
    for number in 0..HOSTS_MAX as u32 + 5 {
        reboots.monitor(IpAddr::V4(number.into()), &Bytes::from_static(b"host"));
    }
    assert_eq!(reboots.hosts().len(), HOSTS_MAX);
}
