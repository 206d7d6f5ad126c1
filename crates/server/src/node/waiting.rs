//! Work that waits for drives, beside tasks that do not.

use tokio::runtime::{Handle, RuntimeFlavor};

use crate::failure::{Failure, Outcome};

/// Runs blocking work (opening drives, replaying logs) off the async threads.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Outcome<T> + Send + 'static) -> Outcome<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(Failure::failed(format!("the work was broken off: {error}; this is a defect of Stele")))
    })
}

/// Runs work that waits for a drive on this thread, and hands the thread's other tasks on before.
pub fn hand_on(work: &mut dyn FnMut()) {
    let has_others = Handle::try_current().is_ok_and(|here| here.runtime_flavor() == RuntimeFlavor::MultiThread);
    match has_others {
        true => tokio::task::block_in_place(work),
        false => work(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn other_tasks_go_on_while_one_waits_for_a_drive() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (sender, receiver) = mpsc::channel();
        let waits = runtime.spawn(async move {
            let mut answer = None;
            hand_on(&mut || answer = Some(receiver.recv_timeout(Duration::from_secs(10))));
            answer
        });
        let answers = runtime.spawn(async move { sender.send(7) });
        assert_eq!(runtime.block_on(waits).unwrap(), Some(Ok(7)));
        runtime.block_on(answers).unwrap().unwrap();
    }

    #[test]
    fn without_other_tasks_work_is_just_done() {
        let mut done = 0;
        hand_on(&mut || done += 1);
        let alone = tokio::runtime::Builder::new_current_thread().build().unwrap();
        alone.block_on(async { hand_on(&mut || done += 1) });
        assert_eq!(done, 2);
    }
}
