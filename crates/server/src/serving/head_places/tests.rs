use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

fn head(records: u64) -> SignedHead {
    let text = |text: &str| text.to_owned();
    SignedHead {
        store: text("store"),
        records,
        link: text("link"),
        root: text("root"),
        time: text("now"),
        public_key: text("key"),
        signature: text("signature"),
    }
}

/// A place that writes heads so.
struct Fake(fn(&SignedHead) -> Outcome<()>);

impl Keeper for Fake {
    fn name(&self) -> String {
        "/mnt/vault".into()
    }

    fn write(&self, head: &SignedHead) -> Outcome<()> {
        self.0(head)
    }

    fn write_stamp(&self, _: &SignedHead, _: &[u8]) -> Outcome<()> {
        Ok(())
    }

    fn write_countersigned(&self, _: &Countersigned) -> Outcome<()> {
        Ok(())
    }
}

fn storage(write: fn(&SignedHead) -> Outcome<()>) -> Storage {
    Storage { keeper: Arc::new(Fake(write)), stamped: None, under_way: None, patience: Duration::from_millis(1) }
}

fn directory(write: fn(&SignedHead) -> Outcome<()>) -> HeadPlace {
    HeadPlace::new(Way::Storage(storage(write)))
}

fn places(places: Vec<HeadPlace>) -> HeadPlaces {
    HeadPlaces { places, ..HeadPlaces::default() }
}

/// Each call of it, as the share sees it, before it hangs.
static BEGUN: AtomicU32 = AtomicU32::new(0);

/// A hard mount of a server that is away: its calls return when it comes back, or never.
fn hang(_: &SignedHead) -> Outcome<()> {
    BEGUN.fetch_add(1, Ordering::SeqCst);
    loop {
        std::thread::park();
    }
}

type Taken = (mpsc::Sender<u64>, Mutex<mpsc::Receiver<u64>>);

/// The heads that a place behind the one that hangs has taken.
static TAKEN: std::sync::LazyLock<Taken> = std::sync::LazyLock::new(|| {
    let (sender, receiver) = mpsc::channel();
    (sender, Mutex::new(receiver))
});

fn take(head: &SignedHead) -> Outcome<()> {
    let _ = TAKEN.0.send(head.records);
    Ok(())
}

#[tokio::test]
async fn a_share_that_hangs_keeps_no_head_from_the_others() {
    let mut places = places(vec![directory(hang), directory(take)]);
    for records in 1..=3 {
        places.send_head(Ok(head(records)), HOUR, Instant::now()).await;
        let taken = TAKEN.1.lock().unwrap().recv().unwrap();
        assert_eq!(taken, records, "the other place has it");
        // Its thread may be about to answer still.
        places.places[1] = directory(take);
    }
    // The first of its threads may be about to begin still.
    while BEGUN.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    assert_eq!(BEGUN.load(Ordering::SeqCst), 1, "one thread waits for the share, not one for each head");
}

/// Where `heads_every` is a few seconds, the alarm said "0 minutes".
#[test]
fn a_short_lack_is_told_in_seconds() {
    for (seconds, says) in [(1, "1 second"), (20, "20 seconds"), (119, "119 seconds"), (180, "3 minutes")] {
        assert_eq!(in_words(Duration::from_secs(seconds)), says);
    }
    let mut lack = Lack::default();
    let (every, begun) = (Duration::from_secs(10), Instant::now());
    let told = |time: String| format!("none for {time}");
    assert_eq!(lack.note(every, begun, told), None);
    assert_eq!(lack.note(every, begun + 2 * every, told).as_deref(), Some("none for 20 seconds"));
}

#[tokio::test]
async fn a_place_that_took_no_head_for_two_turns_raises_one_alarm() {
    let away = storage(|_| Err(crate::failure::Failure::failed("the share is away")));
    let mut places = places(vec![HeadPlace::new(Way::Storage(Storage { patience: HOUR, ..away }))]);
    let (mut told, mut now) = (Vec::new(), Instant::now());
    for records in 1..=4 {
        told.push(places.send_head(Ok(head(records)), HOUR, now).await.len());
        now += HOUR;
    }
    assert_eq!(told, [0, 0, 1, 0]);
    // The alarm stands, with the time as it is now, until the place takes a head.
    let standing = places.lacking();
    assert_eq!((standing.len(), standing[0].subject.as_str()), (1, "/mnt/vault"));
    assert!(standing[0].message.contains("took none for 180 minutes: the share is away"), "{standing:?}");
    places.places[0].way = Way::Storage(Storage { patience: HOUR, ..storage(|_| Ok(())) });
    assert!(places.send_head(Ok(head(5)), HOUR, now).await.is_empty());
    assert_eq!(places.lacking(), []);
}

#[tokio::test]
async fn a_refusal_of_the_witness_is_told_once_though_a_silence_was_told_before() {
    let mut sending = places(Vec::new());
    let now = Instant::now();
    let mut told = Vec::new();
    let silent = || Err(Unsigned::Silent("no answer".into()));
    let refused = || Err(Unsigned::Refused("it has signed another log".into()));
    for (signed, hours) in [(silent(), 0), (silent(), 2), (refused(), 3), (refused(), 4), (silent(), 5)] {
        told.push(sending.note_countersigned(signed, HOUR, now + hours * HOUR).await);
    }
    assert_eq!(told.iter().map(Vec::len).collect::<Vec<_>>(), [0, 1, 1, 0, 0], "{told:?}");
    assert_eq!(told[2], ["it has signed another log"]);
    let standing: Vec<String> = sending.lacking().into_iter().map(|found| found.subject).collect();
    assert_eq!(standing, ["countersignatures", "witness"], "both stand until it signs");
}

#[tokio::test]
async fn a_head_that_could_not_be_signed_counts_for_every_place() {
    let mut places = places(vec![directory(take), directory(take)]);
    let mut now = Instant::now();
    for due in [0, 0, 2, 0] {
        let told = places.send_head(Err("the log was changed".into()), HOUR, now).await;
        assert_eq!(told.len(), due, "{told:?}");
        now += HOUR;
    }
}

/// A service on loopback that says this to each request, or nothing at all.
async fn service(answer: Option<&'static [u8]>) -> (String, tokio::task::JoinHandle<()>) {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let serving = tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 4096]).await;
            if let Some(answer) = answer {
                let _ = stream.write_all(answer).await;
            }
            kept.push(stream);
        }
    });
    (url, serving)
}

#[tokio::test]
async fn an_authority_that_gives_no_stamp_raises_one_alarm_and_delays_no_head() {
    static GIVEN: std::sync::LazyLock<Taken> = std::sync::LazyLock::new(|| {
        let (sender, receiver) = mpsc::channel();
        (sender, Mutex::new(receiver))
    });
    let give = |head: &SignedHead| {
        let _ = GIVEN.0.send(head.records);
        Ok(())
    };
    let answers: [(Option<&[u8]>, &str); 4] = [
        (None, "no answer within"),
        (Some(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nwords"), "no reply in DER"),
        (Some(b"HTTP/1.1 500 Broken\r\ncontent-length: 0\r\n\r\n"), "500"),
        (Some(b"HTTP/1.1 200 OK\r\ncontent-length: 9000000\r\n\r\n"), "answer"),
    ];
    for (answer, word) in answers {
        let (url, serving) = service(answer).await;
        let mut sending = places(vec![directory(give)]);
        sending.authority = Some(Authority::at(&url, Duration::from_millis(200)));
        let (mut told, mut now) = (Vec::new(), Instant::now());
        for records in 1..=4 {
            told.push(sending.send_head(Ok(head(records)), HOUR, now).await);
            assert_eq!(GIVEN.1.lock().unwrap().recv().unwrap(), records, "the place has it");
            sending.places[0] = directory(give);
            now += HOUR;
        }
        assert_eq!(told.iter().map(Vec::len).collect::<Vec<_>>(), [0, 0, 1, 0], "{word}: {told:?}");
        assert!(told[2][0].contains("no time stamp for 120 minutes") && told[2][0].contains(word), "{:?}", told[2]);
        assert!(told[2][0].contains("127.0.0.1"), "the authority is named: {:?}", told[2]);
        serving.abort();
    }
}

#[tokio::test]
async fn places_get_the_stamped_head_until_the_log_has_grown() {
    let stamped = Stamped { head: SignedHead { time: "earlier".into(), ..head(7) }, reply: vec![1] };
    static TIMES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let note = |head: &SignedHead| {
        TIMES.lock().unwrap().push(head.time.clone());
        Ok(())
    };
    let patient = Storage { patience: HOUR, ..storage(note) };
    let mut sending = places(vec![HeadPlace::new(Way::Storage(patient))]);
    (sending.sent, sending.stamped) = (Some(stamped.head.clone()), Some(stamped));
    for records in [7, 8] {
        sending.send_head(Ok(head(records)), HOUR, Instant::now()).await;
    }
    assert_eq!(*TIMES.lock().unwrap(), ["earlier", "now"]);
    assert!(sending.stamped.is_none(), "the stamp is about the shorter log");
}

#[tokio::test]
async fn a_turn_after_one_that_was_broken_off_sends_the_same_bytes() {
    static TIMES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let note = |head: &SignedHead| {
        TIMES.lock().unwrap().push(head.time.clone());
        Ok(())
    };
    let (url, serving) = service(None).await;
    let patient = Storage { patience: HOUR, ..storage(note) };
    let mut sending = places(vec![HeadPlace::new(Way::Storage(patient))]);
    sending.authority = Some(Authority::at(&url, HOUR));
    let taken = async {
        while TIMES.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        _ = sending.send_head(Ok(head(7)), HOUR, Instant::now()) => panic!("the authority answers nothing"),
        () = taken => {}
    }
    serving.abort();
    sending.authority = None;
    sending.places.push(HeadPlace::new(Way::Storage(Storage { patience: HOUR, ..storage(note) })));
    sending.send_head(Ok(SignedHead { time: "later".into(), ..head(7) }), HOUR, Instant::now()).await;
    let times = TIMES.lock().unwrap().clone();
    assert!(times.len() > 1 && times.iter().all(|time| time == "now"), "{times:?}");
}

#[tokio::test]
async fn a_place_that_the_unit_shows_read_only_names_the_drop_in() {
    let refused = |_: &SignedHead| {
        let path = Path::new("/mnt/vault");
        Err(crate::failure::io_failure("make", path, &std::io::Error::from_raw_os_error(libc::EROFS)))
    };
    let patient = Storage { patience: HOUR, ..storage(refused) };
    let mut sending = places(vec![HeadPlace::new(Way::Storage(patient))]);
    let now = Instant::now();
    sending.send_head(Ok(head(1)), HOUR, now).await;
    let told = sending.send_head(Ok(head(1)), HOUR, now + 2 * HOUR).await.concat();
    for word in ["/mnt/vault", "ReadWritePaths=", "systemctl edit stele"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    assert!(!told.contains('\n'), "an alarm is one line: {told}");
}

#[tokio::test]
async fn the_longest_pause_between_two_turns_raises_no_alarm() {
    let mut lack = Lack::default();
    let told = |_| String::new();
    assert_eq!(lack.note(Duration::MAX, Instant::now(), told), None);
    assert_eq!(lack.note(Duration::from_secs(u64::MAX), Instant::now() + Duration::from_secs(3600), told), None);
}
