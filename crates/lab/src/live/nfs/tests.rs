use super::*;

#[test]
fn addresses_are_read() {
    let address = |host: &str, port, mount_port, path: &str| NfsAddress {
        host: host.into(),
        port,
        mount_port,
        path: path.into(),
    };
    for (text, expected) in [
        ("nfs://host/export/a%20b", address("host", None, None, "/export/a b")),
        ("nfs://127.0.0.1:2049/x?mountport=5", address("127.0.0.1", Some(2049), Some(5), "/x")),
    ] {
        assert_eq!(text.parse::<NfsAddress>().unwrap(), expected);
    }
    for text in ["nfs://", "nfs://host", "nfs://host/", "nfs:///x", "nfs://host/x/", "nfs://host/x?y=1"] {
        assert!(text.parse::<NfsAddress>().is_err(), "{text}");
    }
}

#[test]
fn records_are_cut_however_they_come_and_what_is_too_long_is_refused() {
    let whole = [&[0, 0, 0, 2][..], b"ab", &[0x80, 0, 0, 3], b"cde", &[0x80, 0, 0, 0], &[0x80, 0, 0, 1], b"f"].concat();
    for step in 1..=whole.len() {
        let mut records = Records::default();
        let mut found = Vec::new();
        for part in whole.chunks(step) {
            records.feed(part);
            while let Some(record) = records.next(16).unwrap() {
                found.push(String::from_utf8(record).unwrap());
            }
        }
        assert_eq!(found, ["abcde", "", "f"], "in pieces of {step}");
    }
    let mut records = Records::default();
    records.feed(&[0x80, 0, 1, 0]);
    assert!(records.next(255).is_err());
}

#[test]
fn a_reply_that_ends_too_early_is_an_error_wherever_it_ends() {
    let mut reply = Call::default().u32(7).u32(1).u32(0).u32(0).opaque(b"").u32(0).u32(0).u32(1).0;
    reply.extend([0; 84]);
    reply = [reply, Call::default().opaque(b"handle").0].concat();
    let read = |bytes: &[u8]| -> io::Result<(u32, Vec<u8>)> {
        let mut reply = Reply(bytes);
        let xid = reply.begin()?;
        reply.u32()?;
        reply.attributes()?;
        Ok((xid, reply.opaque()?.to_vec()))
    };
    assert_eq!(read(&reply).unwrap(), (7, b"handle".to_vec()));
    for end in 0..reply.len() - 2 {
        assert!(read(&reply[..end]).is_err(), "cut at {end}");
    }
}

/// A server of one file of 4096 bytes, that puts the first call off.
fn busy_server(listener: &std::net::TcpListener) -> io::Result<u32> {
    use std::io::{Read, Write};
    let (mut stream, _) = listener.accept()?;
    let (mut records, mut stage, mut calls) = (Records::default(), [0; 512], 0);
    loop {
        let count = stream.read(&mut stage)?;
        if count == 0 {
            return Ok(calls);
        }
        records.feed(&stage[..count]);
        while let Some(record) = records.next(4096)? {
            let xid = Reply(&record).u32()?;
            let reply = Call(vec![0; 4]).u32(xid).u32(1).u32(0).u32(0).opaque(b"").u32(0);
            let reply = match calls {
                0 => reply.u32(JUKEBOX).u32(0),
                _ => reply.u32(0).u32(0).u32(4096).u32(1).opaque(&[7; 4096]),
            };
            stream.write_all(&reply.record())?;
            calls += 1;
        }
    }
}

#[test]
fn a_call_that_the_server_puts_off_is_sent_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || busy_server(&listener));
    let remote = Remote {
        address: "nfs://host/file".parse().unwrap(),
        place,
        directory: Vec::new(),
        name: String::new(),
        handle: b"handle".to_vec(),
        read_max: 4096,
        write_max: 4096,
        stable: FILE_SYNC,
        made: false,
    };
    let mut engine = Nfs::new(&remote, 1, 4096).unwrap();
    engine.start(0, &Access { target: 0, at: 0, length: 4096, write: false });
    let mut answers = Vec::new();
    engine.reap(1, Some(Duration::from_secs(10)), &mut answers);
    assert_eq!(answers, [(0, Ok(()))]);
    assert!(engine.buffer(0).iter().all(|byte| *byte == 7));
    drop(engine);
    assert_eq!(server.join().unwrap().unwrap(), 2);
}
