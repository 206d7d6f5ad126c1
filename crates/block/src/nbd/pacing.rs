//! Decides when to read the next requests of a client that keeps many under way.
//!
//! A client and a reactor of about equal speed fall into step: one request, one wake-up, one reply.
//! Each takes its own system calls, which cost several times as much as the request. A client on
//! this machine with unread replies will send its next requests soon anyway. The reactor therefore
//! pauses, at most [`PAUSE_MAX`], and then finds several requests. The pause is about the time in
//! which the client reads half of its unread replies, learned from the replies left unread at its
//! end. A client that waits for its reply causes no pause.

use stele_ground::{Duration, Instant};

const PAUSE_MAX: Duration = Duration::from_micros(60);
/// With fewer unread replies, a pause saves less than it costs.
const UNREAD_MIN: u64 = 4;
/// Bytes that the kernel counts for a reply besides its payload.
const OVERHEAD: u64 = 768;
/// Nanoseconds of pause for each unread reply: the first value, and below the bounds of the learned
/// value.
const FIRST: u64 = 1000;
const LEAST: u64 = 100;
const MOST: u64 = 4000;

pub struct Pacing {
    each: u64,
    /// The present pause: its end, and the number of unread bytes at its beginning.
    pause: Option<(Instant, u64)>,
}

impl Default for Pacing {
    fn default() -> Pacing {
        Pacing { each: FIRST, pause: None }
    }
}

impl Pacing {
    /// Records that replies were sent, with their average length. `unread` returns the peer's
    /// unread bytes as the kernel counts them.
    pub fn sent(&mut self, now: Instant, reply: u64, unread: impl FnOnce() -> Option<u64>) {
        if self.pause.is_some() {
            return;
        }
        let Some(bytes) = unread() else { return };
        let replies = bytes / (reply + OVERHEAD);
        if replies >= UNREAD_MIN {
            let span = Duration((replies * self.each).min(PAUSE_MAX.0));
            self.pause = Some((now + span, bytes));
        }
    }

    /// The time until which no requests are read; `None`: read now.
    pub fn until(&mut self, now: Instant, unread: impl FnOnce() -> Option<u64>) -> Option<Instant> {
        let (end, before) = self.pause?;
        if now < end {
            return Some(end);
        }
        self.pause = None;
        match unread() {
            // The client was idle: it may have waited for us.
            None | Some(0) => self.each = (self.each / 2).max(LEAST),
            Some(left) if left * 2 > before => self.each = (self.each * 5 / 4).min(MOST),
            Some(_) => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates a client that takes `takes` nanoseconds for a reply and keeps `depth` requests
    /// under way. Returns requests per read.
    fn found(depth: u64, takes: u64) -> f64 {
        let mut pacing = Pacing::default();
        let reply = 4112;
        let size = reply + OVERHEAD;
        let (mut now, mut unread, mut asked) = (Instant(0), 0, depth);
        let (mut looks, mut requests) = (0, 0);
        let work = |now: &mut Instant, span: u64, unread: &mut u64, asked: &mut u64| {
            let done = (span / takes).min(*unread);
            (*unread, *asked) = (*unread - done, *asked + done);
            *now = *now + Duration(span);
        };
        for _ in 0..2000 {
            (looks, requests) = (looks + 1, requests + asked);
            (unread, asked) = (unread + asked, 0);
            pacing.sent(now, reply, || Some(unread * size));
            // The reactor's own turn.
            work(&mut now, 4000, &mut unread, &mut asked);
            if let Some(end) = pacing.until(now, || Some(unread * size)) {
                let rest = end.0 - now.0;
                work(&mut now, rest, &mut unread, &mut asked);
                assert_eq!(pacing.until(now, || Some(unread * size)), None);
            }
            while asked == 0 {
                work(&mut now, takes, &mut unread, &mut asked);
            }
        }
        requests as f64 / f64::from(looks)
    }

    #[test]
    fn a_deep_queue_is_looked_at_seldom_and_a_client_that_waits_at_once() {
        assert!(found(32, 4500) > 6.0, "{}", found(32, 4500));
        assert!(found(32, 1000) > 6.0, "{}", found(32, 1000));
        assert_eq!(found(1, 4500), 1.0);
        let mut pacing = Pacing::default();
        pacing.sent(Instant(0), 4112, || Some(3 * 4880));
        assert_eq!(pacing.until(Instant(0), || Some(0)), None, "three replies are no reason to pause");
        pacing.sent(Instant(0), 4112, || None);
        assert_eq!(pacing.until(Instant(0), || None), None);
    }
}
