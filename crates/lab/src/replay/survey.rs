//! What a trace asks for, all of it looked at before anything is carried out.

use std::io::BufRead;

use super::{Ordered, Record};
use crate::error::LabError;
use crate::job::greatest_common;

#[derive(Clone, PartialEq, Debug)]
pub struct Device {
    pub name: String,
    /// Where its last byte lies that was touched, and one.
    pub reach: u64,
    pub accesses: u64,
}

#[derive(Clone, PartialEq, Default, Debug)]
pub struct Survey {
    /// The time of the first access, and of the last one.
    pub first: u64,
    pub last: u64,
    pub reads: u64,
    pub writes: u64,
    pub bytes: u64,
    pub longest: u64,
    /// All offsets and lengths are multiples of it.
    pub step: u64,
    pub devices: Vec<Device>,
    pub left_out: Vec<(String, u64)>,
    pub disordered: u64,
}

impl Survey {
    /// Of all that is to come; of one device only, where one is named.
    pub fn of<R: BufRead>(trace: &mut Ordered<R>, device: Option<&str>) -> Result<Survey, LabError> {
        let mut survey = Survey { first: u64::MAX, ..Survey::default() };
        let mut others = 0;
        while let Some(record) = trace.take()? {
            let names = trace.devices.names();
            while survey.devices.len() < names.len() {
                let name = names.get(survey.devices.len()).cloned().unwrap_or_default();
                survey.devices.push(Device { name, reach: 0, accesses: 0 });
            }
            let Some(of) = survey.devices.get_mut(usize::from(record.device)) else { continue };
            if device.is_some_and(|wanted| wanted != of.name) {
                others += 1;
                continue;
            }
            of.reach = of.reach.max(record.offset + record.length);
            of.accesses += 1;
            survey.count(&record);
        }
        survey.first = survey.first.min(survey.last);
        survey.left_out = trace.left_out.iter().map(|(what, count)| ((*what).to_owned(), *count)).collect();
        survey.left_out.extend((others > 0).then(|| ("access of another device".to_owned(), others)));
        survey.disordered = trace.disordered;
        Ok(survey)
    }

    fn count(&mut self, record: &Record) {
        self.first = self.first.min(record.at);
        self.last = self.last.max(record.at);
        self.reads += u64::from(!record.write);
        self.writes += u64::from(record.write);
        self.bytes = self.bytes.saturating_add(record.length);
        self.longest = self.longest.max(record.length);
        self.step = greatest_common(greatest_common(self.step, record.offset), record.length);
    }

    pub fn accesses(&self) -> u64 {
        self.reads + self.writes
    }

    /// By the trace's own clock.
    pub fn seconds(&self) -> f64 {
        (self.last - self.first) as f64 / 1e9
    }
}
