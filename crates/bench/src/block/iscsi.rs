//! The same volume over iSCSI, beside tgt on a file in memory. `qemu-img bench` is the initiator,
//! over TCP on the loopback.

use super::client::{self, cpu_time};
use super::page::Page;
use super::servers::{SteleBlockServer, Tgt};
use super::{CPU, CPU_SUFFIX, RATE, STREAM, median, rounds};
use crate::harness::Bench;

struct Case {
    name: &'static str,
    load: client::Pass,
    /// Smallest ratio of tgt's server CPU to ours, and of our rate to tgt's.
    cpu_target: Option<f64>,
    rate_target: f64,
}

const fn pass(write: bool, size: u64, depth: u32, count: u64) -> client::Pass {
    client::Pass { write, size, depth, count }
}

const CASES: &[Case] = &[
    Case { name: "iscsi 4 KiB read", load: pass(false, 4096, 32, 60_000), cpu_target: Some(2.0), rate_target: 1.3 },
    Case { name: "iscsi 4 KiB write", load: pass(true, 4096, 32, 90_000), cpu_target: Some(2.0), rate_target: 2.0 },
    Case { name: "iscsi 256 KiB read", load: pass(false, 256 << 10, 8, 6000), cpu_target: None, rate_target: 2.0 },
    Case { name: "iscsi 256 KiB write", load: pass(true, 256 << 10, 8, 4000), cpu_target: None, rate_target: 2.0 },
];

/// Whether `--case` selects one of the cases.
pub fn wants(bench: &Bench) -> bool {
    CASES.iter().fold(false, |any, case| any | bench.wants_any(case.name, ["", CPU_SUFFIX]))
}

/// The volume already has content.
pub fn beside_tgt(bench: &mut Bench, page: &mut Page, stele: &SteleBlockServer) -> Result<(), String> {
    if !wants(bench) {
        return Ok(());
    }
    if !client::is_installed("tgtd") || !client::is_installed("qemu-img") {
        bench.note("iSCSI is left out: apt-get install tgt qemu-utils qemu-block-extra");
        return Ok(());
    }
    let tgt = Tgt::start(stele.dir())?;
    for Case { name, load, cpu_target, rate_target } in CASES {
        let cpu_name = format!("{name}{CPU_SUFFIX}");
        if !bench.wants(name) && !bench.wants(&cpu_name) {
            continue;
        }
        let (mut rate, mut cpu): ([Vec<f64>; 2], [Vec<f64>; 2]) = Default::default();
        for count in 0..=rounds(bench) {
            for (side, (process, url)) in [(stele.process, &stele.iscsi), (tgt.process, &tgt.url)].iter().enumerate() {
                let begun = cpu_time(*process);
                let seconds = client::qemu_bench(url, load)?;
                if side == 0 {
                    stele.settle()?;
                }
                let used = (cpu_time(*process) - begun) as f64 / 1000.0 / load.count as f64;
                if count > 0 {
                    let unit = if load.size > 65_536 { load.size as f64 / 1e6 } else { 1.0 };
                    rate[side].push(load.count as f64 * unit / seconds);
                    cpu[side].push(used);
                }
            }
        }
        let unit = if load.size > 65_536 { STREAM } else { RATE };
        let [ours, theirs] = [0, 1].map(|side| (median(&rate[side]), median(&cpu[side])));
        bench.figures(name, unit, &rate[0], Some(("tgt", theirs.0)), Some(*rate_target));
        bench.figures(&cpu_name, CPU, &cpu[0], Some(("tgt", theirs.1)), *cpu_target);
        page.iscsi.push((name, unit.name, [ours.0, theirs.0], [ours.1, theirs.1]));
    }
    Ok(())
}
