use std::sync::{Arc, Mutex};

use super::*;

#[tokio::test]
async fn a_second_append_waits_for_one_that_hangs() {
    let (go, gate) = mpsc::channel::<()>();
    let seen: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let append = move |lines: &[String]| {
        noted.lock().unwrap().push(lines.to_vec());
        gate.recv().map_err(io::Error::other)
    };
    // Without patience: each attempt looks once.
    let mut writer = Writer::start(append, Duration::ZERO).unwrap();
    for attempt in 0..5 {
        let taken = writer.append(2, vec!["first".into(), "second".into()]).await;
        assert!(taken.is_err(), "{attempt}: {taken:?}");
    }
    // Two appends may end now, and every further one fails.
    go.send(()).unwrap();
    go.send(()).unwrap();
    drop(go);
    writer.patience = Duration::from_secs(3600);
    // The events that wait have become more, but the append of the first two is the one that ends.
    assert_eq!(writer.append(3, vec!["first".into(), "second".into(), "third".into()]).await, Ok(2));
    assert_eq!(writer.append(3, vec!["third".into()]).await, Ok(3));
    assert_eq!(*seen.lock().unwrap(), [vec!["first".to_owned(), "second".into()], vec!["third".into()]]);
}
