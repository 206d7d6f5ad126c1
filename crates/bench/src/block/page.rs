//! `docs/block.md`: the results of a whole run, beside the published tables of "fc8-end-to-end".

use crate::process;

pub const PATH: &str = "docs/block.md";

/// A row of Stele, nbdkit and qemu-nbd, in this order.
pub struct Figures {
    pub name: String,
    pub unit: &'static str,
    pub rate: [f64; 3],
    /// Microseconds of the servers for each operation.
    pub cpu: Option<[f64; 3]>,
}

#[derive(Default)]
pub struct Page {
    pub beside: Vec<Figures>,
    /// Stele alone: name, IOPS.
    pub alone: Vec<(String, f64)>,
    /// For each server, the MB/s read, written and both together.
    pub duplex: Vec<(String, [[f64; 3]; 3])>,
    /// The latencies of each server, and of the ping-pong; microseconds.
    pub latency: Vec<(String, [f64; 4])>,
    /// Name, unit, and for Stele and tgt the rate and the server CPU.
    pub iscsi: Vec<(&'static str, &'static str, [f64; 2], [f64; 2])>,
    /// Name, unit, rate, server CPU.
    pub cold: Vec<(String, &'static str, f64, f64)>,
}

/// The paper's first table (IOPS, depth 32, the read at 16), and the row of ours to compare.
const IOPS: &[(&str, u32, &str)] = &[
    ("50/50, 512 B", 401_605, "unix 50/50 at 512 B, 2 jobs"),
    ("50/50, 1 KiB", 396_112, "unix 50/50 at 1 KiB, 2 jobs"),
    ("50/50, 2 KiB", 412_050, "unix 50/50 at 2 KiB, 2 jobs"),
    ("50/50, 4 KiB", 315_386, "unix 50/50 at 4 KiB, 2 jobs"),
    ("50/50, 8 KiB", 176_179, "unix 50/50 at 8 KiB, 2 jobs"),
    ("100 % write, 512 B", 276_448, "unix 512 B write, 2 jobs"),
    ("100 % read, 512 B, depth 16", 474_858, "unix 512 B read at depth 16, 2 jobs"),
];

/// The paper's second table: depth, MB/s read, written, both.
const STREAMS: &[(&str, [u32; 3])] =
    &[("256 KiB full duplex at 160", [770, 764, 1534]), ("256 KiB full duplex at 32", [786, 751, 1537])];

impl Page {
    pub fn text(&self) -> String {
        let mut page = String::from(HEAD);
        page.push_str(&format!("Measured on: {}.\n\n## Beside nbdkit and qemu-nbd\n\n", process::machine()));
        page.push_str("| | unit | Stele | nbdkit | qemu-nbd | server CPU us/op: Stele | nbdkit | qemu-nbd |\n");
        page.push_str("| --- | --- | --- | --- | --- | --- | --- | --- |\n");
        for Figures { name, unit, rate: [ours, kit, qemu], cpu } in &self.beside {
            let cpu = cpu.map_or("| | ".to_owned(), |cpu| cpu.map(|us| format!("{us:.1}")).join(" | "));
            page.push_str(&format!("| {name} | {unit} | {ours:.0} | {kit:.0} | {qemu:.0} | {cpu} |\n"));
        }
        page.push_str(CPU_TAIL);
        page.push_str("\n## iSCSI beside tgt\n\n");
        page.push_str(
            "| | unit | Stele | tgt | server CPU us/op: Stele | tgt |\n| --- | --- | --- | --- | --- | --- |\n",
        );
        for (name, unit, [ours, tgt], cpu) in &self.iscsi {
            let cpu = cpu.map(|us| format!("{us:.1}")).join(" | ");
            page.push_str(&format!("| {name} | {unit} | {ours:.0} | {tgt:.0} | {cpu} |\n"));
        }
        page.push_str(ISCSI_TAIL);
        page.push_str("\n## One request at a time\n\n| | Stele us | nbdkit us | qemu-nbd us | ping-pong us |\n");
        page.push_str("| --- | --- | --- | --- | --- |\n");
        for (name, times) in &self.latency {
            page.push_str(&format!("| {name} | {} |\n", times.map(|us| format!("{us:.1}")).join(" | ")));
        }
        page.push_str(LATENCY_TAIL);
        page.push_str("\n## From the drives\n\n| | unit | Stele | server CPU us/op |\n| --- | --- | --- | --- |\n");
        for (name, unit, rate, cpu) in &self.cold {
            page.push_str(&format!("| {name} | {unit} | {rate:.0} | {cpu:.1} |\n"));
        }
        page.push_str(COLD_TAIL);
        page.push_str("\n## The published tables of fc8-end-to-end\n\n| Table 1 | paper IOPS | Stele IOPS |\n| --- | --- | --- |\n");
        for (name, paper, row) in IOPS {
            page.push_str(&format!("| {name} | {paper} | {} |\n", self.iops(row)));
        }
        page.push_str("\n| Table 2, MB/s read + written = both | paper | Stele, unix | nbdkit, unix | Stele, TCP |\n");
        page.push_str("| --- | --- | --- | --- | --- |\n");
        for (name, paper) in STREAMS {
            let [unix, tcp] = ["unix", "tcp"].map(|transport| {
                let found = self.duplex.iter().find(|(row, _)| *row == format!("{transport} {name}"));
                found.map(|(_, sides)| sides)
            });
            let side = |found: Option<&[[f64; 3]; 3]>, side: usize| {
                found.map_or("-".to_owned(), |sides| sum(sides[side].map(|rate| rate.round() as u32)))
            };
            page.push_str(&format!(
                "| {name} | {} | {} | {} | {} |\n",
                sum(*paper),
                side(unix, 0),
                side(unix, 1),
                side(tcp, 0)
            ));
        }
        page.push_str(PAPER_TAIL);
        page
    }

    fn iops(&self, row: &str) -> String {
        let beside = self.beside.iter().find(|figures| figures.name == row).map(|figures| figures.rate[0]);
        let alone = || self.alone.iter().find(|(name, _)| name == row).map(|(_, rate)| *rate);
        beside.or_else(alone).map_or("-".to_owned(), |rate| format!("{rate:.0}"))
    }
}

fn sum([read, written, both]: [u32; 3]) -> String {
    format!("{read} + {written} = {both}")
}

const HEAD: &str = "# Block devices over NBD and iSCSI, beside other servers and the published tables

This page shows how fast Stele serves a block volume, beside other servers on the same machine. This
command wrote it:

    ./x bench block --write-docs

Everything is in memory and on one machine. The client, fio's nbd engine, shares that machine with
the server. Small blocks are random over 1 GiB. The depth is 32 for small blocks and 8 for 256 KiB,
for each job and connection. Rounds alternate between the servers. The first round of each is thrown
away, and medians of three are shown.

| server | serves |
| --- | --- |
| Stele | a volume of two copies on 12 file drives, with a digest for every block; it answers a write when the replicated log has it; the cache holds the volume |
| nbdkit | its memory plugin |
| qemu-nbd | a file in memory |

nbdkit and qemu-nbd keep no copies and check nothing. A kill loses the writes that they answered.

";

const CPU_TAIL: &str = "
- **Server CPU** is all time of all threads of the server's process, divided by operations. For
  Stele's writes and mixes it includes the destage behind them, until no block is dirty. Writes move
  384 MiB, six times the dirty limit (256 KiB: 1 GiB).
- The client takes as much of the machine as the server, or more. So a rate says what both reach
  together, and the CPU column says what the server takes.
- nbdkit works on a connection with 16 threads. Stele serves a pool on one thread.
";

const ISCSI_TAIL: &str = "
The client is `qemu-img bench` over TCP. The depth is 32 for 4 KiB and 8 for 256 KiB. tgt serves a
file in memory. Writes count with their destage.
";

const LATENCY_TAIL: &str = "
The ping-pong is the lower bound for two threads that sleep until the other has written. It sends 28
bytes there and 4112 back.
";

const COLD_TAIL: &str = "
This is the same volume over the unix socket, with a cache of 128 MiB, an eighth of it. Most reads
come from the drives, which are files in memory, and are verified. No peer does as much.
";

const PAPER_TAIL: &str = "
The tables stand side by side and are no comparison, because the two set-ups differ:

| | paper (July 2009) | here |
| --- | --- | --- |
| server | one quad-core Xeon 5500 of 2.97 GHz, 6 GB, Windows Server 2008 | client and server share the processors named above |
| path | one 8 Gb Fibre Channel port, a switch | no link and no other machine |
| storage | two DS5300 arrays with four controllers and a port of 8 Gb each, four to eight logical drives; all I/O comes from the controllers' caches | every write is in the log of the drives, and later in two copies on them |
| load | IOmeter 2006.07.27 | two jobs keep 32 requests each under way (16 in all for the read) |

The paper does not say what its depth counts, how many drives or which RAID level there were, nor
whether MB are MiB. Its streams end at the one link of 8 Gb in each direction.
";
