//! Groups that wait for what follows, and for how long.

use super::*;
use crate::durable::log::group::Header;
use crate::durable::log::linger::LINGER_MAX;
use crate::model::Action;
use stele_media::Op;

/// The groups that left since the last call, by how many records each holds.
fn departures(opened: &Opened) -> Vec<u32> {
    opened.tasks.run_ready();
    let mut out = Vec::new();
    opened.io.drain(&mut out);
    let groups = out.iter().filter_map(|action| match action {
        Action::Drive { request: stele_media::Request { op: Op::Write { data, .. }, .. }, .. } => {
            Header::decode(&data[0]).map(|header| (header.sequence, header.count))
        }
        _ => None,
    });
    groups.collect::<BTreeMap<_, _>>().into_values().collect()
}

fn append(opened: &Opened, urgency: FlushUrgency) -> Lsn {
    let record = Record::Write { volume: VolumeId(1), at: 0, data: vec![vec![1; 4096].into()] };
    let mut paid = opened.log.try_reserve(opened.log.cost(&record), Purpose::Host).expect("free");
    opened.log.append_with(&record, &mut paid, urgency)
}

#[test]
fn a_record_that_lingers_departs_with_the_next_that_does_not() {
    type After = fn(&Opened, Lsn);
    let check = |what: &str, after: After, records: &[u32]| {
        let opened = Bench::new(6, 4 * MIB, 3).open().expect("no cut").expect("opens");
        let lsn = append(&opened, FlushUrgency::Linger);
        assert_eq!(departures(&opened), [], "{what}: it left before anything followed");
        after(&opened, lsn);
        assert_eq!(departures(&opened), records, "{what}");
    };
    check("nothing follows", |_, _| (), &[]);
    check("another that lingers follows", |opened, _| _ = append(opened, FlushUrgency::Linger), &[]);
    check("one urgent follows", |opened, _| _ = append(opened, FlushUrgency::Now), &[2]);
    check(
        "somebody waits for it",
        |opened, lsn| {
            let log = opened.log.clone();
            opened.tasks.spawn(async move { drop(log.durable(lsn).await) });
        },
        &[1],
    );
    check(
        "its writer waits",
        |opened, lsn| {
            let log = opened.log.clone();
            opened.tasks.spawn(async move { drop(log.durable_in_time(lsn).await) });
        },
        &[],
    );
    check("one that nobody waits for follows", |opened, _| _ = append(opened, FlushUrgency::Whenever), &[]);
    check("its time is up", |opened, _| opened.io.advance(opened.io.now() + LINGER_MAX), &[1]);
}

#[test]
fn a_record_that_nobody_waits_for_departs_with_whatever_does() {
    type After = fn(&Opened, Lsn);
    let check = |what: &str, after: After, records: &[u32]| {
        let opened = Bench::new(6, 4 * MIB, 3).open().expect("no cut").expect("opens");
        let lsn = append(&opened, FlushUrgency::Whenever);
        assert_eq!(departures(&opened), [], "{what}: it left before anything followed");
        after(&opened, lsn);
        assert_eq!(departures(&opened), records, "{what}");
    };
    check(
        "much time passes",
        |opened, _| opened.io.advance(opened.io.now() + stele_ground::Duration::from_secs(9)),
        &[],
    );
    check("one urgent follows", |opened, _| _ = append(opened, FlushUrgency::Now), &[2]);
    check(
        "one lingers long enough",
        |opened, _| {
            append(opened, FlushUrgency::Linger);
            assert_eq!(departures(opened), [], "it waits a while");
            opened.io.advance(opened.io.now() + LINGER_MAX);
        },
        &[2],
    );
    check(
        "somebody waits for it after all",
        |opened, lsn| {
            let log = opened.log.clone();
            opened.tasks.spawn(async move { drop(log.durable(lsn).await) });
        },
        &[1],
    );
    check(
        "the log is sealed",
        |opened, _| {
            let log = opened.log.clone();
            opened.tasks.spawn(async move { drop(log.seal().await) });
        },
        &[2],
    );
    let many = |opened: &Opened, _| (0..20).for_each(|_| _ = append(opened, FlushUrgency::Whenever));
    check("they hold back a part of the ring", many, &[21]);
}
