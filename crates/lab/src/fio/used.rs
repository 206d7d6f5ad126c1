//! What a thread used of the processors, from /proc. 0 where it does not tell.

use std::fs::read_to_string;

/// What the calling thread used so far.
#[derive(Clone, Copy, Default, Debug)]
pub struct Used {
    /// Seconds of processor time.
    pub user: f64,
    pub system: f64,
    pub switches: u64,
    pub major_faults: u64,
    pub minor_faults: u64,
}

impl Used {
    pub fn by_this_thread() -> Used {
        let read = |name: &str| read_to_string(format!("/proc/thread-self/{name}")).unwrap_or_default();
        let stat = read("stat");
        // Behind the name, which may hold anything.
        let behind = stat.rsplit_once(')').map_or("", |(_, behind)| behind);
        let fields: Vec<u64> = behind.split_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
        let field = |number: usize| fields.get(number).copied().unwrap_or(0);
        // Ticks are coarse: they say how the time, which is known to the nanosecond, was divided.
        let (user, system) = (field(11) as f64, field(12) as f64);
        let ran = read("schedstat").split_whitespace().next().and_then(|word| word.parse::<u64>().ok());
        let seconds = ran.unwrap_or(0) as f64 / 1e9;
        let share = if user + system > 0.0 { user / (user + system) } else { 0.5 };
        let status = read("status");
        let switches = status.lines().filter(|line| line.contains("ctxt_switches:"));
        let switches = switches.filter_map(|line| line.rsplit('\t').next()?.parse::<u64>().ok()).sum();
        Used {
            user: seconds * share,
            system: seconds * (1.0 - share),
            switches,
            major_faults: field(9),
            minor_faults: field(7),
        }
    }

    pub fn since(self, before: Used) -> Used {
        Used {
            user: (self.user - before.user).max(0.0),
            system: (self.system - before.system).max(0.0),
            switches: self.switches.saturating_sub(before.switches),
            major_faults: self.major_faults.saturating_sub(before.major_faults),
            minor_faults: self.minor_faults.saturating_sub(before.minor_faults),
        }
    }

    pub fn and(self, other: Used) -> Used {
        Used {
            user: self.user + other.user,
            system: self.system + other.system,
            switches: self.switches + other.switches,
            major_faults: self.major_faults + other.major_faults,
            minor_faults: self.minor_faults + other.minor_faults,
        }
    }
}
