//! A crash during a PUT leaves the former file or the new one, and no row names a version that does not exist.

use super::*;

/// Stops a put after so many steps of its task, as a crash does, and opens the share anew.
async fn cut(stage: &Stage, former: Option<&Bytes>, data: &Bytes, polls: usize) -> bool {
    let view = View::new(stage.clone()).await;
    let inode = match former {
        Some(former) => Some(file(&view.share, "f", former).await),
        None => None,
    };
    let mut going = Box::pin(view.put("f", data));
    let mut done = false;
    for _ in 0..polls {
        tokio::task::yield_now().await;
        if let std::task::Poll::Ready(answer) = futures_util::poll!(going.as_mut()) {
            answer.expect("a put");
            done = true;
            break;
        }
    }
    drop(going);
    // The task of the change ends in any case: a client that goes away leaves nothing half done.
    drop(view);
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let share = stage.share().await;
    match (share.resolve("f"), inode) {
        (Ok(now), _) => {
            let found = read(&share, now).await;
            assert!(found == *data || former.is_some_and(|former| found == *former), "polls {polls}: other content");
            assert!(!done || found == *data, "polls {polls}: an acknowledged put is not there");
        }
        (Err(_), None) => assert!(!done, "polls {polls}: an acknowledged put is not there"),
        (Err(error), Some(_)) => panic!("polls {polls}: the former file is gone: {error}"),
    }
    settle(stage, &share).await;
    if let Ok(now) = share.resolve("f") {
        let found = read(&share, now).await;
        assert!(found == *data || former.is_some_and(|former| found == *former));
    }
    done
}

#[tokio::test(start_paused = true)]
async fn a_put_that_is_cut_short_leaves_the_former_file_or_the_new_one() {
    for versioning in [false, true] {
        for former in [None, Some(content(1, 200_000))] {
            let mut done = false;
            for polls in 0..200 {
                let mut stage = Stage::new(polls as u64);
                stage.bucket.versioning = versioning;
                done = cut(&stage, former.as_ref(), &content(2, 90_000), polls).await;
                if done {
                    break;
                }
            }
            assert!(done, "no put came to its end");
        }
    }
}
