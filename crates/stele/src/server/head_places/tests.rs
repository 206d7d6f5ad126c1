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

fn directory(write: fn(&Path, &SignedHead) -> Outcome<()>) -> HeadPlace {
    HeadPlace::new(Way::Directory(Directory {
        path: "/mnt/vault".into(),
        write,
        under_way: None,
        patience: Duration::from_millis(1),
    }))
}

/// Each call of it, as the share sees it, before it hangs.
static BEGUN: AtomicU32 = AtomicU32::new(0);

/// A hard mount of a server that is away: its calls return when it comes back, or never.
fn hang(_: &Path, _: &SignedHead) -> Outcome<()> {
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

fn take(_: &Path, head: &SignedHead) -> Outcome<()> {
    let _ = TAKEN.0.send(head.records);
    Ok(())
}

#[tokio::test]
async fn a_share_that_hangs_keeps_no_head_from_the_others() {
    let mut places = HeadPlaces(vec![directory(hang), directory(take)]);
    for records in 1..=3 {
        places.send_head(Ok(head(records)), HOUR, Instant::now()).await;
        let taken = TAKEN.1.lock().unwrap().recv().unwrap();
        assert_eq!(taken, records, "the other place has it");
        // Its thread may be about to answer still.
        places.0[1] = directory(take);
    }
    assert_eq!(BEGUN.load(Ordering::SeqCst), 1, "one thread waits for the share, not one for each head");
}

#[tokio::test]
async fn a_place_that_took_no_head_for_two_turns_raises_one_alarm() {
    let mut places = HeadPlaces(vec![directory(|_, _| Err(crate::failure::Failure::failed("the share is away")))]);
    let (mut told, mut now) = (Vec::new(), Instant::now());
    for records in 1..=4 {
        told.push(places.send_head(Ok(head(records)), HOUR, now).await.len());
        now += HOUR;
    }
    assert_eq!(told, [0, 0, 1, 0]);
}

#[tokio::test]
async fn a_head_that_could_not_be_signed_counts_for_every_place() {
    let mut places = HeadPlaces(vec![directory(take), directory(take)]);
    let mut now = Instant::now();
    for due in [0, 0, 2, 0] {
        let told = places.send_head(Err("the log was changed".into()), HOUR, now).await;
        assert_eq!(told.len(), due, "{told:?}");
        now += HOUR;
    }
}

#[tokio::test]
async fn a_place_that_the_unit_shows_read_only_names_the_drop_in() {
    let refused = |path: &Path, _: &SignedHead| {
        Err(crate::failure::io_failure("make", path, &std::io::Error::from_raw_os_error(libc::EROFS)))
    };
    let mut places = HeadPlaces(vec![directory(refused)]);
    let now = Instant::now();
    places.send_head(Ok(head(1)), HOUR, now).await;
    let told = places.send_head(Ok(head(1)), HOUR, now + 2 * HOUR).await.concat();
    for word in ["/mnt/vault", "ReadWritePaths=", "systemctl edit stele"] {
        assert!(told.contains(word), "{word}: {told}");
    }
    assert!(!told.contains('\n'), "an alarm is one line: {told}");
}
