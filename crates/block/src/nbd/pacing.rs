//! When to look for the next requests of a client that keeps many under way.
//!
//! A client and the reactor that are about equally fast fall into step: one request, one wake-up, one reply, each with its own
//! system calls, which cost several times what the request does. A client on this machine that has not yet read all replies will
//! send its next requests in a moment anyway. So the reactor lets a while pass, at most [`PAUSE_MAX`], and then finds several.
//! The while is as long as about half of the unread replies take the client; it is learned from what is left unread at its
//! end, and there is none for a client that waits for its reply.

use stele_ground::{Duration, Instant};

const PAUSE_MAX: Duration = Duration::from_micros(60);
/// With fewer unread replies a pause saves less than it costs.
const UNREAD_MIN: u64 = 4;
/// What the kernel counts beside the bytes of a reply.
const OVERHEAD: u64 = 768;
/// Nanoseconds of pause for an unread reply: at first, and the bounds of what is learned.
const FIRST: u64 = 1000;
const LEAST: u64 = 100;
const MOST: u64 = 4000;

pub struct Pacing {
    each: u64,
    /// The pause under way: its end, and the bytes unread at its beginning.
    pause: Option<(Instant, u64)>,
}

impl Default for Pacing {
    fn default() -> Pacing {
        Pacing { each: FIRST, pause: None }
    }
}

impl Pacing {
    /// Replies were sent, of so many bytes on average. `unread` tells how much the peer has not read, as the kernel counts.
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

    /// Until when requests are not looked for; none: now.
    pub fn until(&mut self, now: Instant, unread: impl FnOnce() -> Option<u64>) -> Option<Instant> {
        let (end, before) = self.pause?;
        if now < end {
            return Some(end);
        }
        self.pause = None;
        match unread() {
            // It had nothing to do: it may have waited for us.
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

    /// A client that takes `takes` nanoseconds for a reply and keeps `depth` requests under way. Requests found at a look.
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
