//! What was spent of a budget for records of the audit log, which only grows.

use crate::model::time::Reading;

/// A budget: records at once, and milliseconds for one more.
pub(crate) struct Budget {
    pub burst: u64,
    pub every: u64,
}

/// What one actor has spent. Times are milliseconds of elapsed time.
#[derive(Default)]
pub(crate) struct Spent {
    /// Of the burst, in milliseconds of waiting.
    spent: u64,
    last: u64,
}

impl Spent {
    /// Spends one record, if the budget has one left.
    pub fn admit(&mut self, budget: &Budget, now: u64) -> bool {
        self.spent = self.spent.saturating_sub(now.saturating_sub(self.last));
        // One that read the clock first may come second.
        self.last = self.last.max(now);
        let has_one = self.spent + budget.every <= budget.burst * budget.every;
        if has_one {
            self.spent += budget.every;
        }
        has_one
    }

    /// Whether the whole budget is left.
    pub fn is_whole(&self, now: u64) -> bool {
        self.spent <= now.saturating_sub(self.last)
    }
}

/// Elapsed time, of which budgets are made.
pub(crate) fn milliseconds(at: Reading) -> u64 {
    at.monotonic.0 / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_that_comes_late_gives_no_time_twice() {
        let budget = Budget { burst: 2, every: 100 };
        let mut spent = Spent::default();
        assert!(spent.admit(&budget, 1000) && spent.admit(&budget, 1000));
        for _ in 0..100 {
            assert!(!spent.admit(&budget, 1010) && !spent.admit(&budget, 1001));
        }
        assert!(spent.admit(&budget, 1100));
    }
}
