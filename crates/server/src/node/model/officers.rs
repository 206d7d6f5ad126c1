//! Officers, the clock, and heads: acts that take two people.

use stele_archive::{ArchiveError, Caller};
use stele_ground::calendar::parse_moment;

use super::{Checked, DAY, World, heads};

impl World {
    /// The server is stopped for some days.
    pub async fn stay_closed(&mut self) -> Checked {
        let days = 1 + self.dice.below(100);
        self.tell(format!("the store is closed for {days} days"));
        self.close().await;
        self.pass(days * DAY);
        let _ = self.open().await;
        Ok(())
    }

    /// One person with both keys tries to credit the closed time; then two people credit it, who
    /// check the amount.
    pub async fn credit(&mut self) -> Checked {
        use std::sync::atomic::Ordering::Relaxed;
        let Some(archive) = self.writable().cloned() else { return Ok(()) };
        let [anna, ben] = self.officers.as_slice() else { return Ok(()) };
        let officer = async |id: &str, uid| -> Result<Caller, ArchiveError> {
            Ok(archive.officer_credentials(id).await?.caller.at(uid))
        };
        let (Ok(anna), Ok(ben)) = (officer(anna, 1).await, officer(ben, 2).await) else { return Ok(()) };
        let Ok(asked) = archive.request_credit(&anna).await else { return Ok(()) };
        self.tell(format!("an officer asks: {}", asked.says));
        for alone in [super::root(), anna.clone(), anna.clone().at(2), ben.clone().at(1)] {
            if archive.approve(&alone, &asked.id).await.is_ok() {
                return Err(self.violated(format!("one person had the clock credited: {}", asked.says)));
            }
        }
        // An honest officer refuses to trust a clock that was set ahead.
        if self.clock.ahead.load(Relaxed) > 0 {
            let _ = archive.refuse_request(&ben, &asked.id).await;
            return Ok(());
        }
        if let Ok(done) = archive.approve(&ben, &asked.id).await {
            self.tell("another one approves");
            // `... goes from A to B, by N s`. A rebuild may have set the clock back to before an
            // earlier credit, which can then be given again: the resulting position of the clock
            // counts.
            let moment = done.split_once(" to ").and_then(|(_, to)| to.split_once(','));
            let seconds = moment.and_then(|(to, _)| parse_moment(&format!("{}Z", to.split('.').next()?)));
            if 1000 * seconds.expect("where the clock stands") > self.fastest_clock() {
                return Err(self.violated(format!("the clock is ahead of the time that passed: {done}")));
            }
        }
        Ok(())
    }

    /// A key that root makes is not an officer's key without approval.
    pub async fn is_no_officer(&self, key: &str) -> Checked {
        match self.archive() {
            Some(archive) if archive.credentials(key).await.is_ok() => {
                Err(self.violated("an administrator made an officer without another officer's approval"))
            }
            _ => Ok(()),
        }
    }

    /// Removes the heads that were sent elsewhere, as far as root's access reaches.
    pub async fn remove_heads(&mut self) -> Checked {
        if self.disturbed.set_back {
            return Ok(());
        }
        self.close().await;
        let config = self.config().expect("the configuration");
        for place in heads::places(&self.site, &config) {
            let _ = std::fs::remove_dir_all(place);
        }
        self.headless = true;
        self.old_pool = None;
        self.tell("the heads are removed");
        let _ = self.open().await;
        Ok(())
    }
}
