use super::*;
use crate::MemoryFiles;
use crate::nfs::procedures::{GETATTR, READ, READDIR, READDIRPLUS, REMOVE, WRITE};
use crate::nfs::rpc;
use crate::nfs::server::{Options, Tls};
use crate::nfs::testing::gate::Gate;
use crate::nfs::testing::*;
use crate::nfs::xdr::{Reader, Writer};
use stele_ground::Dice;
use tokio::io::{AsyncWriteExt, DuplexStream, ReadBuf, duplex};
use tokio::time::timeout;

fn read_call(handle: &[u8], count: u32) -> Vec<u8> {
    args().opaque(handle).u64(0).u32(count).0
}

/// A gated server, a client, and a file of 4096 bytes.
async fn gated(options: Options) -> (Arc<Server<Gate>>, Client, Bytes, Bytes) {
    let server = server_with(Gate::new(MemoryFiles::new(clock)), rule(), options);
    let mut client = Client::new(&server);
    let root = client.mount().await;
    let file = client.create(&root, "a").await;
    client.done(WRITE, args().opaque(&file).u64(0).u32(4096).u32(2).opaque(&[1; 4096])).await;
    (server, client, root, file)
}

fn gate(server: &Arc<Server<Gate>>) -> Arc<Gate> {
    server.exports().get(SHARE).unwrap().files.clone()
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_holds_up_no_other() {
    let (server, mut client, _, file) = gated(Options::default()).await;
    let waiting = client.send(Program::Nfs, READ, &read_call(&file, 4096)).await;
    for _ in 0..3 {
        client.done(GETATTR, &file).await;
    }
    gate(&server).passes.add_permits(1);
    let answer = client.receive().await;
    assert_eq!(answer[..4], waiting.to_be_bytes());
}

#[tokio::test(start_paused = true)]
async fn calls_in_any_pieces_are_all_answered() {
    let server = server();
    let mut client = Client::new(&server);
    let root = client.mount().await;
    let file = client.create(&root, "a").await;
    let mut dice = Dice::new(7);
    for _ in 0..20 {
        let (mut wire, mut expected) = (Vec::new(), Vec::new());
        for _ in 0..1 + dice.below(60) {
            client.xid += 1;
            let length = dice.below(20_000) as usize;
            let content =
                args().opaque(&file).u64(dice.below(50_000)).u32(length as u32).u32(0).opaque(&vec![2; length]);
            let record = match dice.below(3) {
                0 => client.record(Program::Nfs, WRITE, &content.0),
                1 => client.record(Program::Nfs, READ, &read_call(&file, dice.below(30_000) as u32)),
                _ => client.record(Program::Nfs, GETATTR, &args().opaque(&root).0),
            };
            wire.extend(record);
            expected.push(client.xid);
        }
        let (mut receiving, mut sending) = tokio::io::split(&mut client.stream);
        let send = async {
            let mut rest = &wire[..];
            while !rest.is_empty() {
                let (now, later) = rest.split_at((1 + dice.below(30_000) as usize).min(rest.len()));
                sending.write_all(now).await.unwrap();
                rest = later;
                tokio::task::yield_now().await;
            }
        };
        let receive = async {
            let mut answered = Vec::new();
            for _ in 0..expected.len() {
                let mark = receiving.read_u32().await.unwrap();
                let mut record = vec![0; (mark & 0x7fff_ffff) as usize];
                receiving.read_exact(&mut record).await.unwrap();
                answered.push(u32::from_be_bytes(record[..4].try_into().unwrap()));
                assert_eq!(record[4..28], [&1_u32.to_be_bytes()[..], &[0; 20]].concat());
            }
            answered
        };
        let ((), answered) = tokio::join!(send, receive);
        assert_eq!(answered, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn beyond_its_limits_a_connection_stops_reading() {
    let full = Options { requests_max: 4, ..Options::default() };
    let heavy = Options { bytes_max: 4 * 4096, ..Options::default() };
    for options in [full, heavy] {
        let (server, mut client, _, file) = gated(options).await;
        let before = calls(&server, "read");
        for _ in 0..40 {
            client.send(Program::Nfs, READ, &read_call(&file, 4096)).await;
        }
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(calls(&server, "read") - before, 4);
        gate(&server).passes.add_permits(40);
        for _ in 0..40 {
            client.receive().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn listings_that_wait_count_with_their_answers() {
    let (server, mut client, root, _) = gated(Options { bytes_max: 4 << 18, ..Options::default() }).await;
    gate(&server).listings_wait.store(true, Ordering::Relaxed);
    // What a client asks for beyond the largest answer does not count.
    for count in [1 << 18, u32::MAX] {
        let behind = || args().opaque(&root).u64(0).fixed(&[0; 8]);
        let calls_of = [
            ("readdir", READDIR, behind().u32(count)),
            // Names first, and then the whole answer.
            ("readdirplus", READDIRPLUS, behind().u32(512).u32(count)),
        ];
        for (name, procedure, call) in calls_of {
            let before = calls(&server, name);
            for _ in 0..20 {
                client.send(Program::Nfs, procedure, &call.0).await;
            }
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(calls(&server, name) - before, 4, "{name} of {count} bytes");
            gate(&server).passes.add_permits(20);
            for _ in 0..20 {
                client.receive().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn beyond_the_limit_of_all_a_connection_has_one_call_at_a_time() {
    let of_all = Options { all_bytes_max: 8 * 4096, ..Options::default() };
    let of_address = Options { address_bytes_max: 8 * 4096, ..Options::default() };
    // Eight calls of the first connection, and those of one of the same address and of one of
    // another.
    for (options, expected) in [(of_all, [8, 1, 1]), (of_address, [8, 1, 8])] {
        let (server, first, _, file) = gated(options).await;
        let addresses = ["10.1.2.3:701", "10.1.2.4:700"].map(|address| address.parse().unwrap());
        let [second, third] = addresses.map(|address| Client::from(&server, address, false));
        let mut clients = [first, second, third];
        for (client, expected) in clients.iter_mut().zip(expected) {
            let before = calls(&server, "read");
            for _ in 0..40 {
                client.send(Program::Nfs, READ, &read_call(&file, 4096)).await;
            }
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(calls(&server, "read") - before, expected);
        }
        gate(&server).passes.add_permits(120);
        for client in &mut clients {
            for _ in 0..40 {
                client.receive().await;
            }
        }
    }
}

fn calls<F>(server: &Server<F>, name: &str) -> u64 {
    let found = server.counters().procedures().find(|counted| counted.0 == Program::Nfs && counted.1 == name);
    found.unwrap().2
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_not_taken_stop_reading_too() {
    let options = Options { bytes_max: 1 << 20, ..Options::default() };
    let server = server_with(MemoryFiles::new(clock), rule(), options);
    let mut client = Client::new(&server);
    let root = client.mount().await;
    let file = client.create(&root, "a").await;
    let content = vec![3; 1 << 19];
    client.done(WRITE, args().opaque(&file).u64(0).u32(1 << 19).u32(2).opaque(&content)).await;
    for _ in 0..50 {
        client.send(Program::Nfs, READ, &read_call(&file, 1 << 19)).await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert_eq!(calls(&server, "read"), 3);
    for _ in 0..50 {
        assert!(client.receive().await.len() > 1 << 19);
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_under_way_survives_its_connection() {
    let (server, mut client, root, _) = gated(Options::default()).await;
    client.send(Program::Nfs, REMOVE, &args().opaque(&root).opaque(b"a").0).await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    let record = client.record(Program::Nfs, REMOVE, &args().opaque(&root).opaque(b"a").0);
    drop(client.stream);
    // The client comes back from its port, and repeats the call.
    let mut again = Client::new(&server);
    again.stream.write_all(&record).await.unwrap();
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert!(!client.task.is_finished(), "the connection ended before its change");
    gate(&server).passes.add_permits(1);
    assert!(matches!(client.task.await.unwrap(), ConnectionEnd::Closed | ConnectionEnd::Failed(_)));
    let mut results = rpc::results(again.receive().await, client.xid).unwrap();
    assert_eq!(results.u32(), Ok(0));
}

#[tokio::test(start_paused = true)]
async fn a_stuck_client_is_given_up() {
    let options = Options {
        record_patience: Duration::from_secs(4),
        write_patience: Duration::from_secs(8),
        idle_patience: Duration::from_secs(100),
        ..Options::default()
    };
    let seconds = |begun: Instant| begun.elapsed().as_secs();
    // Nothing at all.
    let server = server_with(MemoryFiles::new(clock), rule(), options.clone());
    let (client, begun) = (Client::new(&server), Instant::now());
    assert!(matches!(client.task.await.unwrap(), ConnectionEnd::Stuck(StuckReason::Idle)));
    assert!((100..110).contains(&seconds(begun)), "{}", seconds(begun));
    // A byte of a record now and then.
    let (mut client, begun) = (Client::new(&server), Instant::now());
    let record = client.record(Program::Nfs, 0, &[]);
    let drip = async {
        for byte in record {
            if client.stream.write_all(&[byte]).await.is_err() {
                return;
            }
            let _ = timeout(Duration::from_secs(1), std::future::pending::<()>()).await;
        }
    };
    tokio::join!(drip, async {
        assert!(matches!(client.task.await.unwrap(), ConnectionEnd::Stuck(StuckReason::Record)))
    });
    assert!((4..10).contains(&seconds(begun)), "{}", seconds(begun));
    // Answers that are not taken.
    let mut client = Client::new(&server);
    let root = client.mount().await;
    let file = client.create(&root, "a").await;
    client.done(WRITE, args().opaque(&file).u64(0).u32(1 << 18).u32(2).opaque(&vec![1; 1 << 18])).await;
    client.send(Program::Nfs, READ, &read_call(&file, 1 << 18)).await;
    let begun = Instant::now();
    assert!(matches!(client.task.await.unwrap(), ConnectionEnd::Stuck(StuckReason::Write)));
    assert!((8..12).contains(&seconds(begun)), "{}", seconds(begun));
}

/// A client that asks for a megabyte and takes so many bytes of the answer each second, and how its
/// connection ended.
async fn slow(bytes: usize) -> (ConnectionEnd<DuplexStream>, u64) {
    let options = Options {
        record_patience: Duration::from_secs(4),
        write_patience: Duration::from_secs(8),
        idle_patience: Duration::from_secs(100),
        ..Options::default()
    };
    let server = server_with(MemoryFiles::new(clock), rule(), options);
    let mut client = Client::new(&server);
    let root = client.mount().await;
    let file = client.create(&root, "a").await;
    client.done(WRITE, args().opaque(&file).u64(0).u32(1 << 19).u32(2).opaque(&vec![1; 1 << 19])).await;
    for _ in 0..2 {
        client.send(Program::Nfs, READ, &read_call(&file, 1 << 19)).await;
    }
    let (begun, Client { mut stream, task, .. }) = (Instant::now(), client);
    let mut piece = vec![0; bytes];
    let taking = async {
        for _ in 0..60 {
            if stream.read_exact(&mut piece).await.is_err() {
                return;
            }
            let _ = timeout(Duration::from_secs(1), std::future::pending::<()>()).await;
        }
    };
    taking.await;
    drop(stream);
    (task.await.unwrap(), begun.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_a_byte_now_and_then_is_given_up() {
    let (ended, seconds) = slow(1).await;
    assert!(matches!(ended, ConnectionEnd::Stuck(StuckReason::Write)), "{ended:?} after {seconds} s");
    // One that is slow and takes all of it in the end is not.
    let (ended, seconds) = slow(40 << 10).await;
    assert!(
        matches!(ended, ConnectionEnd::Stuck(StuckReason::Idle) | ConnectionEnd::Closed),
        "{ended:?} after {seconds} s"
    );
    assert!(seconds > 20, "it took only {seconds} s");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_long_is_not_stuck() {
    let (server, mut client, _, file) = gated(Options::default()).await;
    client.send(Program::Nfs, READ, &read_call(&file, 10)).await;
    tokio::time::advance(Duration::from_secs(100_000)).await;
    assert!(is_ready(client.receive()).await.is_none());
    assert!(!client.task.is_finished());
    gate(&server).passes.add_permits(1);
    client.receive().await;
}

#[tokio::test(start_paused = true)]
async fn a_record_that_is_too_long_ends_the_connection() {
    let server = server();
    let mut client = Client::new(&server);
    client.send(Program::Nfs, 0, &[]).await;
    client.stream.write_u32(0xffff_ffff).await.unwrap();
    // The call before it is still answered.
    client.receive().await;
    assert!(matches!(client.task.await.unwrap(), ConnectionEnd::Record(RecordError::TooLong)));
    assert_eq!(server.counters().refused.load(Ordering::Relaxed), 1);
}

/// A call of NULL with AUTH_TLS.
fn tls_question() -> Vec<u8> {
    let mut call = Vec::new();
    for word in [0, 5, 0, 2, 100_003, 3, 0, 7, 0, 0, 0] {
        call.put_u32(word);
    }
    rpc::Reply::of(call).head
}

#[tokio::test(start_paused = true)]
async fn a_client_that_asks_for_tls_gets_it() {
    let options = Options { tls: Tls::Required, ..Options::default() };
    let server = server_with(MemoryFiles::new(clock), rule(), options);
    let mut client = Client::new(&server);
    // NULL is answered in the clear, and nothing else.
    client.call(Program::Nfs, 0, &[]).await;
    let xid = client.send(Program::Mount, 1, &args().opaque(PATH.as_bytes()).0).await;
    let mut refused = Reader::new(client.receive().await);
    let words: Vec<u32> = (0..5).map(|_| refused.u32().unwrap()).collect();
    assert_eq!(words, [xid, 1, 1, 1, rpc::AUTH_TOO_WEAK]);
    client.stream.write_all(&tls_question()).await.unwrap();
    assert!(client.receive().await.ends_with(b"\0\0\0\x08STARTTLS\0\0\0\0"));
    let ConnectionEnd::StartTls(_stream) = client.task.await.unwrap() else { panic!("TLS is not begun") };
    let mut secure = Client::from(&server, "10.1.1.1:7".parse().unwrap(), true);
    secure.mount().await;
}

#[tokio::test(start_paused = true)]
async fn what_follows_the_question_for_tls_is_not_trusted() {
    let options = Options { tls: Tls::Offered, ..Options::default() };
    let server = server_with(MemoryFiles::new(clock), rule(), options);
    let mut client = Client::new(&server);
    let smuggled = client.record(Program::Nfs, 0, &[]);
    client.stream.write_all(&[tls_question(), smuggled].concat()).await.unwrap();
    client.receive().await;
    assert!(matches!(client.task.await.unwrap(), ConnectionEnd::Closed));
    // A server without TLS says that it does not know the flavor.
    let mut client = Client::new(&self::server());
    client.stream.write_all(&tls_question()).await.unwrap();
    let mut refused = Reader::new(client.receive().await);
    let words: Vec<u32> = (0..5).map(|_| refused.u32().unwrap()).collect();
    assert_eq!(words, [5, 1, 1, 1, rpc::AUTH_BAD_CREDENTIALS]);
}

#[tokio::test(start_paused = true)]
async fn other_programs_versions_and_procedures_are_unavailable() {
    let server = server();
    let mut client = Client::new(&server);
    for (at, word, expected) in
        [(4, 100_227, vec![1]), (5, 5, vec![2, 3, 4]), (5, 2, vec![2, 3, 4]), (6, 22, vec![3]), (6, u32::MAX, vec![3])]
    {
        let mut record = client.record(Program::Nfs, 0, &[]);
        record[at * 4..at * 4 + 4].copy_from_slice(&u32::to_be_bytes(word));
        client.stream.write_all(&record).await.unwrap();
        let mut answer = Reader::new(client.receive().await);
        answer.skip(20).unwrap();
        let words: Vec<u32> = (0..answer.remaining() / 4).map(|_| answer.u32().unwrap()).collect();
        assert_eq!(words, expected, "word {at} is {word}");
    }
    // Numbers of NLM between its procedures.
    let record = client.record(Program::Lock, 7, &[]);
    client.stream.write_all(&record).await.unwrap();
    assert!(client.receive().await.ends_with(&[0, 0, 0, 3]));
}

#[tokio::test(start_paused = true)]
async fn random_records_do_no_harm() {
    let server = server();
    let mut dice = Dice::new(8);
    for _ in 0..2000 {
        let mut client = Client::new(&server);
        let root = client.mount().await;
        let program = *dice.pick(&Program::ALL).unwrap();
        let mut arguments = args().opaque(&root).0;
        let mut noise = vec![0; dice.below(120) as usize & !3];
        dice.fill(&mut noise);
        // Small words are lengths and truth values more often than large ones.
        for word in noise.chunks_mut(4).filter(|word| word[0] < 0xc0) {
            word[..3].fill(0);
            word[3] &= 0x1f;
        }
        arguments.extend(noise);
        let mut record = client.record(program, dice.below(24) as u32, &arguments);
        if dice.one_in(3) {
            let at = 4 + dice.below(record.len() as u64 - 4) as usize;
            record[at] ^= 1 << dice.below(8);
        }
        client.stream.write_all(&record).await.unwrap();
        client.stream.shutdown().await.unwrap();
        let mut rest = Vec::new();
        client.stream.read_to_end(&mut rest).await.unwrap();
        assert!(matches!(client.task.await.unwrap(), ConnectionEnd::Closed));
    }
}

/// Takes bytes into its own memory although the stream below takes none, as TLS does. Only a later
/// write or a flush sends them.
struct Sealed {
    below: DuplexStream,
    held: Vec<u8>,
}

const SEALED_MAX: usize = 64 << 10;

impl Sealed {
    fn drain(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.held.is_empty() {
            match Pin::new(&mut self.below).poll_write(context, &self.held) {
                Poll::Ready(Ok(count)) => drop(self.held.drain(..count)),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Sealed {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.below).poll_read(context, to)
    }
}

impl AsyncWrite for Sealed {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Err(error)) = self.drain(context) {
            return Poll::Ready(Err(error));
        }
        let room = SEALED_MAX - self.held.len();
        if room == 0 {
            return Poll::Pending;
        }
        let taken = &bytes[..room.min(bytes.len())];
        self.held.extend_from_slice(taken);
        let _ = self.drain(context);
        Poll::Ready(Ok(taken.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.drain(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.below).poll_shutdown(context)
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_does_not_stay_in_the_memory_of_tls() {
    let server = server();
    let mut client = Client::new(&server);
    let root = client.mount().await;
    let file = client.create(&root, "a").await;
    client.done(WRITE, args().opaque(&file).u64(0).u32(200_000).u32(2).opaque(&vec![1; 200_000])).await;
    let serve = |server: &Arc<Server<MemoryFiles>>| {
        let (ours, below) = duplex(1024);
        let peer = Peer { address: "10.1.2.3:701".parse().unwrap(), secure: true };
        (ours, tokio::spawn(serve_connection(Sealed { below, held: Vec::new() }, peer, server.clone())))
    };
    let (ours, task) = serve(&server);
    client.stream = ours;
    for _ in 0..3 {
        client.send(Program::Nfs, READ, &read_call(&file, 200_000)).await;
        let answer = timeout(Duration::from_secs(5), client.receive()).await;
        assert!(answer.expect("the end of the answer does not come").len() > 200_000);
    }
    // Nor when the client ends its side first.
    client.send(Program::Nfs, READ, &read_call(&file, 200_000)).await;
    client.stream.shutdown().await.unwrap();
    let answer = timeout(Duration::from_secs(5), client.receive()).await;
    assert!(answer.expect("the end of the last answer does not come").len() > 200_000);
    assert!(matches!(task.await.unwrap(), ConnectionEnd::Closed));
    // A client that does not take it is given up.
    let (ours, task) = serve(&server);
    client.stream = ours;
    client.send(Program::Nfs, READ, &read_call(&file, 30_000)).await;
    let begun = Instant::now();
    assert!(matches!(task.await.unwrap(), ConnectionEnd::Stuck(StuckReason::Write)));
    assert!(begun.elapsed() < Duration::from_secs(80), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_write_under_way_is_not_performed_beside_its_repetition() {
    let server = server_with(Gate::new(MemoryFiles::new(clock)), rule(), no_grace());
    let mut client = Client::new(&server);
    let root = client.mount().await;
    let file = client.create(&root, "a").await;
    gate(&server).writes_wait.store(true, Ordering::Relaxed);
    let put = |content: &[u8]| args().opaque(&file).u64(0).u32(4).u32(2).opaque(content).0;
    client.send(Program::Nfs, WRITE, &put(b"aaaa")).await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    let record = client.record(Program::Nfs, WRITE, &put(b"aaaa"));
    drop(client.stream);
    let mut again = Client::new(&server);
    again.stream.write_all(&record).await.unwrap();
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert_eq!(gate(&server).writes.load(Ordering::Relaxed), 1, "the repetition is performed beside the first call");
    gate(&server).passes.add_permits(1);
    let mut results = rpc::results(again.receive().await, client.xid).unwrap();
    assert_eq!(results.u32(), Ok(0));
    // Once it is answered, the same bytes are a new call: content is not kept.
    gate(&server).passes.add_permits(1);
    again.stream.write_all(&record).await.unwrap();
    again.receive().await;
    assert_eq!(gate(&server).writes.load(Ordering::Relaxed), 2);
    // Another content under the same number is another call, and waits for the first one.
    again.send(Program::Nfs, WRITE, &args().opaque(&file).u64(0).u32(2000).u32(2).opaque(&[1; 2000]).0).await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    let mut other = Client::new(&server);
    other.xid = again.xid;
    let content = [&[1; 1999][..], &[2]].concat();
    let call = args().opaque(&file).u64(0).u32(2000).u32(2).opaque(&content);
    let record = other.record(Program::Nfs, WRITE, &call.0);
    other.stream.write_all(&record).await.unwrap();
    assert!(is_ready(other.receive()).await.is_none());
    gate(&server).passes.add_permits(1);
    let mut results = rpc::results(other.receive().await, other.xid).unwrap();
    assert_eq!(results.u32(), Ok(crate::nfs::status::JUKEBOX));
    assert_eq!(gate(&server).writes.load(Ordering::Relaxed), 3);
}

fn no_grace() -> Options {
    Options { grace: Duration::ZERO, ..Options::default() }
}

#[tokio::test(start_paused = true)]
async fn a_machine_that_no_export_admits_may_not_idle() {
    let server = server();
    for (address, least, most) in [("192.168.0.1:700", 30, 60), ("10.1.2.3:700", 900, 930)] {
        let mut client = Client::from(&server, address.parse().unwrap(), false);
        client.call(Program::Nfs, 0, &[]).await;
        let begun = Instant::now();
        assert!(matches!(client.task.await.unwrap(), ConnectionEnd::Stuck(StuckReason::Idle)));
        assert!((least..most).contains(&begun.elapsed().as_secs()), "{address}: {:?}", begun.elapsed());
    }
}
