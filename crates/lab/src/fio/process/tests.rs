use super::super::units::Amount;
use super::*;
use crate::live::engine::Engine;

/// Takes everything and answers nothing, like a device that is gone.
struct Dead {
    buffer: Vec<u8>,
    /// Told to end at the first wait.
    stop: Option<Arc<AtomicBool>>,
}

impl Engine for Dead {
    fn slots(&self) -> u32 {
        4
    }

    fn start(&mut self, _: u32, _: &Access) {}

    fn reap(&mut self, _: u32, limit: Option<Duration>, _: &mut Vec<SlotResult>) {
        assert!(limit.is_some(), "a wait without a limit never ends");
        if let Some(stop) = &self.stop {
            stop.store(true, Ordering::Relaxed);
        }
    }

    fn buffer(&mut self, _: u32) -> &mut [u8] {
        &mut self.buffer
    }
}

impl Carrier for Dead {
    fn sync(&mut self, _: u32, _: usize, _: bool) {}
}

impl Drop for Dead {
    fn drop(&mut self) {
        panic!("to drop a ring is to wait for its device");
    }
}

/// What becomes of a job on it.
fn ran(keys: &str, stop: Option<Arc<AtomicBool>>) -> Tally {
    let text = format!("[a]\nioengine=null\nsize=64k\nrw=write\niodepth=4\n{keys}\n");
    let options = super::super::jobs(&text).unwrap().remove(0);
    assert_eq!(options.io_size, Amount::Unsaid);
    let (never, all) = (AtomicBool::new(false), AtomicBool::new(false));
    let ends = Ends { stop: stop.as_deref().unwrap_or(&never), all: &all, patience: Duration::from_millis(5) };
    let regions = [Region { offset: 0, length: 64 << 10, file: 64 << 10 }];
    let places = Places::new(&options, &regions, Dice::new(1));
    let dead = Dead { buffer: vec![0; 4096], stop: stop.clone() };
    Process::new(dead, &options, places, Kept { size: 64 << 10, log: None, cached: None }, &ends, Dice::new(2)).run()
}

#[test]
fn a_device_that_answers_nothing_is_given_up() {
    for keys in ["", "time_based\nruntime=1ms", "end_fsync=1", "thinktime=1us"] {
        let why = ran(keys, None).failed.unwrap_or_default();
        assert!(why.contains("is not answered for"), "{keys}: {why}");
    }
    // A sync may take its time, until the caller has enough of it.
    let why = ran("fsync=1", Some(Arc::default())).failed.unwrap_or_default();
    assert!(why.contains("is not answered for"), "{why}");
}
