//! A drive as far as time is concerned: commands wait in the host, the model serves.

use std::collections::VecDeque;

use stele_ground::{Duration, Instant};
use stele_media::simulated::{CommandWork, Model};

/// One modelled drive with its queue. `K` names a command to the caller that submitted it.
pub struct Spindle<K> {
    model: Box<dyn Model>,
    waiting: VecDeque<(CommandWork, K)>,
    serving: usize,
    worked: Duration,
}

impl<K> Spindle<K> {
    pub fn new(model: Box<dyn Model>) -> Spindle<K> {
        Spindle { model, waiting: VecDeque::new(), serving: 0, worked: Duration(0) }
    }

    pub fn push(&mut self, work: CommandWork, key: K) {
        self.waiting.push_back((work, key));
    }

    /// Begins the next command, if one waits and may begin: its name, and when it will be done.
    pub fn begin(&mut self, now: Instant) -> Option<(K, Instant)> {
        if self.serving >= self.model.channels() || self.waiting.is_empty() {
            return None;
        }
        let chosen = match self.waiting.len() {
            1 => 0,
            _ => {
                let seen: Vec<CommandWork> =
                    self.waiting.iter().take(self.model.window()).map(|(work, _)| *work).collect();
                self.model.choose(now, &seen)
            }
        };
        let (work, key) = self.waiting.remove(chosen)?;
        self.serving += 1;
        let service = self.model.service(now, work);
        self.worked = Duration(self.worked.0 + service.0);
        Some((key, now + service))
    }

    /// What all commands took that were begun.
    pub fn worked(&self) -> Duration {
        self.worked
    }

    /// A command that `begin` handed out is done.
    pub fn done(&mut self) {
        self.serving -= 1;
    }
}
