//! Changes of one key take turns.

use std::pin::pin;

use futures_util::poll;

use super::*;

#[tokio::test]
async fn a_key_goes_to_the_request_that_waited_longest() {
    let world = World::new(1);
    let archive = world.create().await;
    let store = &archive.store();
    let first = store.lock(1, "key").await.unwrap();
    let (mut second, mut third) = (pin!(store.lock(1, "key")), pin!(store.lock(1, "key")));
    assert!(poll!(second.as_mut()).is_pending() && poll!(third.as_mut()).is_pending());
    drop(first);
    let held = second.await.unwrap();
    // Two that ask again and again leave no room for a third unless it comes before them.
    let mut again = pin!(store.lock(1, "key"));
    assert!(poll!(again.as_mut()).is_pending());
    drop(held);
    assert!(poll!(again.as_mut()).is_pending(), "the third waited longer");
    drop(third.await.unwrap());
    drop(again.await.unwrap());
    archive.close().await.unwrap();
}

#[tokio::test]
async fn a_request_that_gives_up_waiting_passes_its_turn_on() {
    let world = World::new(1);
    let archive = world.create().await;
    let store = &archive.store();
    let first = store.lock(1, "key").await.unwrap();
    let mut second = Box::pin(store.lock(1, "key"));
    let mut third = pin!(store.lock(1, "key"));
    assert!(poll!(second.as_mut()).is_pending() && poll!(third.as_mut()).is_pending());
    drop(first);
    drop(second);
    assert!(poll!(third.as_mut()).is_ready());
    archive.close().await.unwrap();
}

#[tokio::test]
async fn keys_that_count_up_do_not_wait_for_each_other() {
    let world = World::new(1);
    let archive = world.create().await;
    let mut held = Vec::new();
    for number in 0..100 {
        let key = format!("camera-7/2026/frame-{number:07}");
        let store = archive.store();
        let mut lock = pin!(store.lock(1, &key));
        if let std::task::Poll::Ready(lock) = poll!(lock.as_mut()) {
            held.push(lock.unwrap());
        }
    }
    assert!(held.len() > 80, "{} of 100 keys at once", held.len());
    drop(held);
    archive.close().await.unwrap();
}
