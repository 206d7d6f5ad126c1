//! Objects that are stored, compared, overwritten and deleted; and versions under COMPLIANCE that
//! must never be deleted.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use stele_ground::Dice;

use super::site::Site;
use super::traffic::{self, Seen, Traffic};
use crate::support::content;
use crate::support::http::Answer;

/// Length and seed of a content.
pub type Written = (u64, usize);

#[derive(Default)]
pub struct Records {
    plain: BTreeMap<String, Written>,
    /// Key, version and content of each version under retention.
    locked: Vec<(String, String, Written)>,
    /// Objects of the requests beside the events.
    beside: BTreeMap<String, Written>,
    /// After an interrupted request: the former content, or the new one.
    unsure: BTreeMap<String, Vec<Option<Written>>>,
    next: u64,
}

impl Records {
    pub fn new(site: &mut Site) -> Records {
        site.good(&["bucket", "create", "records", "--lock", "--retention", "compliance:1y"]);
        site.good(&["bucket", "create", "plain"]);
        Records::default()
    }

    fn fresh(&mut self, dice: &mut Dice) -> Written {
        self.next += 1;
        (self.next, 1 + dice.below(180_000) as usize)
    }

    /// Sends some requests; each must get its usual answer.
    #[track_caller]
    pub fn work(&mut self, site: &mut Site, count: u64, dice: &mut Dice) {
        for _ in 0..count {
            match dice.below(8) {
                0..3 => self.put_plain(site, dice),
                3..5 => self.put_locked(site, dice),
                5 => self.delete_plain(site, dice),
                6 => self.delete_locked(site, dice),
                _ => self.compare_some(site, 3, dice),
            }
        }
    }

    #[track_caller]
    fn put_plain(&mut self, site: &mut Site, dice: &mut Dice) {
        let (seed, length) = self.fresh(dice);
        let key = format!("k{}", dice.below(60));
        expect(
            site,
            site.server().send(site.server().ask("PUT", &format!("/plain/{key}")).body(content(seed, length))),
        );
        site.tally.bytes_stored += length as u64;
        self.unsure.remove(&key);
        self.plain.insert(key, (seed, length));
    }

    #[track_caller]
    fn put_locked(&mut self, site: &mut Site, dice: &mut Dice) {
        let (seed, length) = self.fresh(dice);
        let key = format!("r{}", self.locked.len() / 2);
        let ask = site.server().ask("PUT", &format!("/records/{key}")).body(content(seed, length));
        let answer = expect(site, site.server().send(ask));
        let version = answer.header("x-amz-version-id").expect("a version");
        site.tally.bytes_stored += length as u64;
        self.locked.push((key, version, (seed, length)));
    }

    #[track_caller]
    fn delete_plain(&mut self, site: &mut Site, dice: &mut Dice) {
        let keys: Vec<String> = self.plain.keys().cloned().collect();
        let Some(key) = dice.pick(&keys) else { return };
        expect(site, site.server().delete(&format!("/plain/{key}")));
        self.plain.remove(key);
    }

    /// The deletion must be refused in every state of the pool.
    #[track_caller]
    pub fn delete_locked(&mut self, site: &mut Site, dice: &mut Dice) {
        let Some((key, version, _)) = dice.pick(&self.locked) else { return };
        let answer = site.server().delete(&format!("/records/{key}?versionId={version}"));
        assert!(answer.status == 403 || answer.status >= 500, "a locked version: {} {}", answer.head, answer.text());
        site.tally.refusals += 1;
    }

    #[track_caller]
    fn compare_some(&mut self, site: &mut Site, count: usize, dice: &mut Dice) {
        for _ in 0..count {
            if let Some((key, version, written)) = dice.pick(&self.locked).cloned() {
                same(site, &format!("/records/{key}?versionId={version}"), written);
            }
        }
    }

    /// Puts objects while `strike` comes: every acknowledged object must be there afterwards.
    pub fn put_while(&mut self, site: &mut Site, dice: &mut Dice, strike: impl FnOnce(&mut Site)) {
        let puts: Vec<(String, Written)> = (0..24).map(|at| (format!("s{at}"), self.fresh(dice))).collect();
        let asks: Vec<_> = puts
            .iter()
            .map(|(key, (seed, length))| {
                let ask = site.server().ask("PUT", &format!("/plain/{key}")).body(content(*seed, *length));
                ask.signed().0.bytes()
            })
            .collect();
        let address = site.server().address;
        let taken: Vec<bool> = std::thread::scope(|scope| {
            let send = |asks: &[Vec<u8>]| -> Vec<bool> { asks.iter().map(|ask| taken(address, ask)).collect() };
            let (one, other) = asks.split_at(asks.len() / 2);
            let first = scope.spawn(move || send(one));
            let second = scope.spawn(move || send(other));
            strike(site);
            first.join().unwrap().into_iter().chain(second.join().unwrap()).collect()
        });
        for ((key, written), taken) in puts.into_iter().zip(taken) {
            if taken {
                self.unsure.remove(&key);
                self.plain.insert(key, written);
            } else {
                let before = self.plain.remove(&key);
                let known = self.unsure.entry(key).or_insert_with(|| vec![before]);
                known.push(Some(written));
            }
        }
    }

    /// Starts requests beside the events.
    pub fn begin_beside(&mut self, site: &Site, dice: Dice) -> Traffic {
        Traffic::start(site, std::mem::take(&mut self.beside), dice)
    }

    /// Takes what the requests beside the events have stored. Only a server that was killed may
    /// have answered with an error.
    #[track_caller]
    pub fn end_beside(&mut self, site: &mut Site, traffic: Traffic, killed: bool) {
        let Seen { objects, unsure, complaint, totals } = traffic.ends();
        site.tally.requests_beside += totals.requests;
        site.tally.objects_compared += totals.objects_compared;
        site.tally.bytes_compared += totals.bytes_compared;
        site.tally.bytes_stored += totals.bytes_stored;
        let complaint = complaint.filter(|_| !killed);
        assert!(complaint.is_none(), "a request beside the events: {complaint:?}; today: {:?}", site.story);
        // A later answer settles what an interrupted request left open.
        self.unsure.retain(|key, _| !objects.contains_key(key));
        self.beside = objects;
        if let Some((key, before, new)) = unsure {
            let known = match before {
                Some(_) => vec![before],
                None => self.unsure.remove(&key).unwrap_or_else(|| vec![None]),
            };
            self.unsure.insert(key, [known, vec![Some(new)]].concat());
        }
    }

    /// Compares all objects.
    #[track_caller]
    pub fn compare_all(&mut self, site: &mut Site) {
        for (key, version, written) in self.locked.clone() {
            same(site, &format!("/records/{key}?versionId={version}"), written);
        }
        for (key, written) in self.plain.clone().into_iter().chain(self.beside.clone()) {
            same(site, &format!("/plain/{key}"), written);
        }
        for (key, known) in std::mem::take(&mut self.unsure) {
            let answer = site.server().get(&format!("/plain/{key}"));
            let found = match answer.status {
                404 => None,
                200 => Some(answer.body),
                _ => panic!("GET /plain/{key}: {}\n{}", answer.head, answer.text()),
            };
            let right = known.iter().find(|written| found == written.map(|(seed, length)| content(seed, length)));
            let right = right.unwrap_or_else(|| panic!("/plain/{key} is none of what was written to it: {known:?}"));
            let of_thread = known.iter().flatten().any(|(seed, _)| *seed >= traffic::SEEDS);
            let objects = if of_thread { &mut self.beside } else { &mut self.plain };
            objects.extend(right.map(|written| (key, written)));
        }
    }

    /// The objects that are unreadable now, as `BUCKET/KEY`. Every object that is read must be
    /// right.
    pub fn unreadable(&self, site: &mut Site) -> Vec<String> {
        let locked = self
            .locked
            .iter()
            .map(|(key, version, written)| ("records", key, format!("?versionId={version}"), written));
        let plain = self.plain.iter().chain(&self.beside).map(|(key, written)| ("plain", key, String::new(), written));
        let mut failed = Vec::new();
        for (bucket, key, query, written) in locked.chain(plain) {
            let answer = site.server().get(&format!("/{bucket}/{key}{query}"));
            let whole = answer.status == 200 && answer.body.len() == written.1;
            if whole {
                assert!(answer.body == content(written.0, written.1), "a wrong byte in {bucket}/{key}");
                site.tally.objects_compared += 1;
                site.tally.bytes_compared += written.1 as u64;
            } else {
                assert!(matches!(answer.status, 200 | 500..=599), "{bucket}/{key}: {}\n{}", answer.head, answer.text());
                failed.push(format!("{bucket}/{key}"));
            }
        }
        failed
    }

    pub fn count(&self) -> usize {
        self.locked.len() + self.plain.len() + self.beside.len()
    }
}

/// Whether a request got a successful answer.
fn taken(address: SocketAddr, request: &[u8]) -> bool {
    let mut head = [0; 12];
    let mut sent = || -> std::io::Result<()> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(request)?;
        stream.read_exact(&mut head)
    };
    sent().is_ok() && head.ends_with(b"200")
}

#[track_caller]
fn expect(site: &Site, answer: Answer) -> Answer {
    let taken = matches!(answer.status, 200 | 204 | 206);
    assert!(taken, "today: {:?}: {}\n{}", site.story, answer.head, answer.text());
    answer
}

#[track_caller]
fn same(site: &mut Site, target: &str, (seed, length): Written) {
    let answer = expect(site, site.server().get(target));
    assert!(answer.body == content(seed, length), "a wrong byte in {target}; today: {:?}", site.story);
    site.tally.objects_compared += 1;
    site.tally.bytes_compared += length as u64;
}
