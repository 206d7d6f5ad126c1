//! iSCSI from untrusted bytes: a login, a discovery session, and a connection in the full feature
//! phase. Its commands (and so all parsers of CDBs and parameter lists) run against a small drive.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stele_block::iscsi::framing::Framing;
use stele_block::iscsi::login::{LOGIN_DATA_MAX, Refusal};
use stele_block::iscsi::parameters::Parameters;
use stele_block::iscsi::{Connection, Credentials, Discovery, Login, LoginResult, LoginRules, Next, Shared, Targets};
use stele_block::scsi::{Answer, Ask, Profile, Reached, Reservations, UnitId};
use stele_ground::{Bytes, Instant};
use stele_media::{Drive, MemoryDrive, Priority, Request};

struct Guarded;

impl Targets for Guarded {
    fn rules(&self, _: &str) -> Result<LoginRules, Refusal> {
        let known = |user: &str| Some(Credentials { user: user.to_owned(), secret: format!("the secret of {user}") });
        Ok(LoginRules { chap: known("host"), mutual: known("target") })
    }
}

fn log_in(bytes: &[u8]) {
    let (mut login, mut framing, mut rest) = (Login::new([3; 32]), Framing::new(LOGIN_DATA_MAX), bytes);
    loop {
        let fed = framing.feed(rest);
        rest = &rest[fed..];
        match framing.frame() {
            Ok(Some(frame)) => match login.receive(frame, &Guarded) {
                Next::Continue => {}
                Next::Join if login.agreed().target.is_some() => panic!("nobody gets in without the secret"),
                Next::Join | Next::Close => return,
            },
            Ok(None) if rest.is_empty() => return,
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

fn agreed(target: Option<&str>) -> LoginResult {
    LoginResult {
        initiator: "iqn.a:b".to_owned(),
        isid: [0; 6],
        target: target.map(str::to_owned),
        rules: LoginRules::default(),
        tsih: 0,
        cid: 0,
        command_number: 0,
        status_number: 0,
        parameters: Parameters { initial_r2t: false, ..Parameters::default() },
    }
}

fn discover(bytes: &[u8]) {
    let (mut discovery, mut framing) = (Discovery::new(&agreed(None)), Framing::new(LOGIN_DATA_MAX));
    framing.feed(bytes);
    while let Ok(Some(frame)) = framing.frame() {
        if !discovery.receive(&frame, &["iqn.c:d".to_owned()], "127.0.0.1:3260") {
            return;
        }
    }
}

fn transfer(bytes: &[u8]) {
    let profile = Profile {
        blocks: 256,
        block_bytes: 512,
        id: [1; 16],
        name: "vm".to_owned(),
        target: "iqn.c:d".to_owned(),
        read_only: false,
        removable: true,
        native_blocks: false,
        whole_max: 64 << 10,
        unmap_granularity: 8,
    };
    let mut shared = Shared::new(profile, Reservations::default());
    let mut drive = MemoryDrive::with_block(Bytes(256 * 512), Bytes(512));
    let agreed = agreed(Some("iqn.c:d"));
    let Ok(place) = shared.join(&agreed) else { return };
    let mut connection = Connection::new(place, &agreed, "127.0.0.1:3260".to_owned());
    let mut rest = bytes;
    while !rest.is_empty() && !connection.is_closing() {
        let fed = connection.framing.feed(rest);
        rest = &rest[fed..];
        connection.receive(&mut shared);
        loop {
            let asks = connection.take_asks();
            if asks.is_empty() {
                break;
            }
            for (tag, ask) in asks {
                let answer = match ask {
                    Ask::Drive(_, op) | Ask::Whole(_, op) => {
                        drive.submit(Request { tag: 0, op, priority: Priority::Host, deadline: None });
                        let mut finished = Vec::new();
                        drive.reap(Instant(0), &mut finished);
                        let Some(done) = finished.pop() else { return };
                        Answer::Drive(done.op, done.result)
                    }
                    Ask::Find(search) => {
                        let reached = || Reached {
                            unit: UnitId(0),
                            blocks: 256,
                            block_bytes: 512,
                            readable: true,
                            writable: true,
                            hold: Default::default(),
                        };
                        Answer::Found(search.names.iter().map(|(kind, _)| (*kind == 3).then(reached)).collect())
                    }
                    Ask::Keep(_, kept) => {
                        if let Some(kept) = kept {
                            assert!(Reservations::restore(&kept).is_some(), "what is kept can be read");
                        }
                        Answer::Kept(Ok(()))
                    }
                };
                connection.answer(&mut shared, tag, answer);
            }
            connection.hear(&mut shared);
        }
        connection.out.take();
    }
    connection.close(&mut shared);
    assert!(connection.is_over(), "nothing is with the drive");
    connection.forget(&mut shared);
    let _ = Reservations::restore(bytes);
}

fuzz_target!(|input: &[u8]| {
    let Some((choice, bytes)) = input.split_first() else { return };
    match choice % 8 {
        0 => log_in(bytes),
        1 => discover(bytes),
        _ => transfer(bytes),
    }
});
