//! `stele lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

mod replay;
mod words;

pub use replay::Replay;
pub use words::{AlignArg, ArrivalsArg, OriginArg, WhenArg};

#[derive(Subcommand, Debug)]
pub enum Lab {
    /// Drive a target and measure it; several values of an option make a table of all combinations
    #[command(after_help = "\
Examples:
  stele lab run --on /data/target --size 10GiB --workload oltp_4k --outstanding 32
  stele lab run --on /data/target --read 100,67,0 --access 512,4KiB,64KiB --outstanding 1,8,64 --out sweep.lab
  stele lab run --on /dev/sdx --destroy --workload random_write_4k --outstanding 32 --precondition 2x
  stele lab run --on /dev/sdx --destroy --workload random_write_4k --rate 2000 --arrivals drawn
  stele lab run --on /data/target --outstanding 8 --burst 100 --pause 10ms
  stele lab run --on 'nbd+unix:///vm1?socket=/run/vm1.sock' --random 0 --access 256KiB --outstanding 8
  stele lab run --on dir:/srv/share --files 100 --size 4GiB --random 0,100 --access 512,8KiB --outstanding 1,32 --buffered=false,true
  stele lab run --on 'iscsi://user%secret@host/iqn.2026-01.example:vm1/0' --outstanding 32 --access 4KiB
  stele lab run --on nfs://host/export/target --size 4GiB --read 0 --random 0 --access 64KiB
  stele lab run --on s3://host/bench --read 0,50,100 --access 4KiB,1MiB --outstanding 32     s3+http:// without TLS
  stele lab run --on s3://127.0.0.1:9000/bench --ca certificate.pem --read 50 --verify
  stele lab run --on volume:8+2,drives=12 --size 4GiB --outstanding 32 --read 0    Stele's own array, in this process
  stele lab run --on /data/target --rate 2000 --arrivals drawn --objective p99=2ms       exit code 13 where it is missed
  stele lab run --on /data/target --profile 0s=100,60s=5000                              a ramp
  stele lab run --on /data/target --profile 0h=100,9h=2000,17h=2000,24h=100 --speed 720  a day in two minutes
  stele lab run tenants.toml --on /data/target        [[tenant]] tables run side by side, each with its objective
  stele lab run nightly.toml --on /data/target --out nightly.lab --resume
  stele lab run nightly.toml --on /data/target --live --metrics 127.0.0.1:9311      seen in the terminal, and by Prometheus
  stele lab run --on null --outstanding 1             what the generator itself costs
  stele lab run --workload oltp_8k --outstanding 100 --virtual drives=20,60 raid=5,10

A file that does not exist is made and filled (--size). What the laboratory did not make is written over only with --destroy.")]
    Run(Run),
    /// Find the highest load that a target sustains at a response time
    #[command(after_help = "\
Examples:
  stele lab search --on /data/target --size 10GiB --workload oltp_4k
  stele lab search --on /dev/sdx --workload random_read_4k --response 2ms --percentile 99 --out sdx.lab
  stele lab search --on /dev/sdx --workload random_read_4k --objective p99=2ms       the highest rate of an open loop
  stele lab search --on /dev/sdx --hosts a:9310,b:9310 --token-file lab.token     the load is divided over both
  stele lab search --workload oltp_8k --virtual drives=20,60,100 raid=5,10 cache=on,off")]
    Search(Search),
    /// Carry out a trace again: the accesses of another storage, at their times, on a target
    #[command(after_help = "\
Examples:
  stele lab replay web.blktrace.0 web.blktrace.1 --on /dev/sdx --destroy       one trace of two processors
  stele lab replay oltp.iolog --on /data/target --size 20GiB --speed 2         twice as fast
  stele lab replay Financial1.spc --on /data/target --map wrap --fit round     beyond the target's end, and less than its blocks
  stele lab replay hm_1.csv --on /dev/sdx --destroy --speed max --outstanding 64       without the trace's clock
  stele lab replay hm_1.csv --on null --plan                                   what it asks for, and of which devices

Formats: blktrace's binary records, fio's logs (version 2 and 3), SPC's lines (unit, block, bytes, operation, seconds) and those
of MSR (ticks, host, disk, type, offset, bytes). All of a trace is looked at first; accesses that have no place on the target
are an error before anything starts, unless --map and --fit say what becomes of them. Syncs, discards and flushes are left
out, and counted. Responses count from the times that the trace asks for.")]
    Replay(Replay),
    /// Measure on this machine what `stele lab run --hosts` or `search --hosts` on another one asks for
    #[command(after_help = "\
Examples:
  stele lab serve --token-file lab.token                     for this machine only
  stele lab serve --listen 0.0.0.0:9310 --token-file lab.token
  stele lab run nightly.toml --on /data/target --hosts a:9310,b:9310 --token-file lab.token

Whoever holds the token may read and fill any file that this process may, and with --destroy write over it. What is said is not
encrypted.")]
    Serve {
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9310")]
        listen: std::net::SocketAddr,
        #[command(flatten)]
        token: TokenArgs,
        /// Let those who ask write over what the laboratory did not make
        #[arg(long)]
        destroy: bool,
    },
    /// Show what a .lab file holds
    #[command(after_help = "Examples:\n  stele lab show sweep.lab\n  stele lab show sweep.lab --rounds --json")]
    Show {
        file: PathBuf,
        /// Every round of every cell
        #[arg(long)]
        rounds: bool,
    },
    /// Write a report of a .lab file as a page or a PDF, or measure what a published paper measured and write that paper
    #[command(after_help = "\
Examples:
  stele lab paper sweep.lab                              writes sweep.html
  stele lab paper sweep.lab --pdf                        writes sweep.pdf
  stele lab paper sweep.lab --title 'The new array' -o array.pdf
  stele lab paper --recipe ds4500 --virtual --against published -o ds4500.html      all tables, in minutes
  stele lab paper --recipe ds4500 --virtual --quick -o quick.html                   a few of them
  stele lab paper ds4500.lab --against published -o again.html                      the same paper, from what was kept
  stele lab paper --recipe dr550 --on dir:/srv/share --against published            a file server's 240 cells
  stele lab paper --recipe fc8 --on nbd://host/vm1 --destroy --quick                accesses from cache
  stele lab paper --recipe gnr-tsm --on dir:/a --on dir:/b --against published      streams, one server and two
  stele lab paper --recipe ds4500 --on /dev/sdx --destroy --plan                    what would run, and for how long
  stele lab paper --recipe snia-pts --on /dev/sdx --destroy -o sdx.pdf              a solid state drive by the SNIA's rules

Recipes: ds4500 (RAID-5 and RAID-10 at 20 ms), dr550 (threads on 100 files), gnr-tsm (backup and restore streams), fc8 (accesses
from cache), snia-pts (solid state drives: saturation, IOPS, throughput, latency). A recipe keeps what it measured in a .lab file
beside the page; stopped with Ctrl-C or SIGTERM it writes the paper of what it has, and --resume goes on.")]
    Paper(Paper),
    /// Draw one chart of a .lab file: here, or as SVG into a file
    #[command(after_help = "\
Examples:
  stele lab plot sweep.lab                               the first chart that the file has something for, here
  stele lab plot sweep.lab --chart rate-size
  stele lab plot sweep.lab --chart distribution -o distribution.svg
  stele lab plot sweep.lab --chart help                  says which there are")]
    Plot {
        file: PathBuf,
        /// Which one; `help` lists them
        #[arg(long, value_name = "NAME")]
        chart: Option<String>,
        /// Where to, as SVG
        #[arg(long, short)]
        out: Option<PathBuf>,
    },
    /// Set two .lab files side by side, with the ratio of each cell and its interval
    #[command(after_help = "Example:\n  stele lab diff before.lab after.lab")]
    Diff { first: PathBuf, second: PathBuf },
    /// Hold a .lab file against an earlier one, and fail where it became slower
    #[command(after_help = "\
Examples:
  stele lab check nightly.lab --against release.lab
  stele lab check nightly.lab --against release.lab --tolerance 2% --junit nightly.xml --markdown nightly.md
  stele lab check results --against release.lab          the newest result of a directory
  stele lab check results --against results              the newest one against the one before it, on the same target

A cell is kept where the 95 % interval of its ratio is within the tolerance, regressed where it is beyond, and unclear where
it lies on both sides, or where a side is not steady. Exit codes: 0 all kept, 13 some regressed, 12 some missing, 10 some
unclear.")]
    Check(Check),
    /// Show how the results of a directory developed, oldest first; as a page it has trend charts
    #[command(after_help = "\
Examples:
  stele lab run nightly.toml --out results               keeps the result in a directory, under the time it began
  stele lab history results
  stele lab history results --cell 'outstanding 8'       the trend of a cell, drawn here
  stele lab history results -o trends.html               a chart for each cell; trends.pdf is a PDF

The newest figure of a cell stands beside the median of up to 20 before it. Results that are not steady, void or partial are
shown and not reckoned with.")]
    History(History),
    /// Run a job on two targets in turn, in blocks of ABBA, and say whether they differ
    #[command(after_help = "\
Examples:
  stele lab compare --on /data/target --against /other/target --workload oltp_4k --outstanding 32 --time 20s
  stele lab compare nightly.toml --on /dev/sdx --against /dev/sdy --blocks 8 --destroy --out drives.lab
  stele lab compare --on null --against null --time 1s          nothing against itself: no difference is to be shown

The rate's ratio is given with its 95 % interval; where that spans 1, no difference is shown.")]
    Compare(Compare),
    /// Run a job file of fio as it is: its keys with fio's meaning, and its JSON
    #[command(after_help = "\
Examples:
  stele lab fio nightly.fio                              a table of what each job did
  stele lab fio nightly.fio --json                       what fio prints with --output-format=json
  stele lab fio nightly.fio --out nightly.json
  stele lab fio nightly.fio --section oltp --section stream
  stele lab fio nightly.fio --plan                       which files would be made, read and written over
  stele lab fio nightly.fio --destroy                    also over what the laboratory did not make

A key that is not known is an error that names its line. Files that jobs make are marked, and written over again the next time;
others are only with --destroy, which fio does not ask for.")]
    Fio(Fio),
    /// Run a profile of FFSB as it is: whole files created, appended to, read, written, looked at and deleted
    #[command(after_help = "\
Examples:
  stele lab ffsb mailserver.ffsb
  stele lab ffsb mailserver.ffsb --time 30s --json

A line that is not known is an error that names it. Files lie in a directory that the run makes in each location of the profile, and
removes when it ends.")]
    Ffsb(Ffsb),
    /// Write what a .lab file holds in the format of another tool
    #[command(after_help = "\
Examples:
  stele lab export sweep.lab --format fio                writes sweep.json, as fio's --output-format=json+
  stele lab export sweep.lab --format iometer -o results.csv
  stele lab export sweep.lab --format csv
  stele lab export sweep.lab --format rounds             every run second by second: rate, responses, queue, processors")]
    Export {
        file: PathBuf,
        #[arg(long, value_enum)]
        format: ExportFormat,
        /// Where to [default: beside the .lab file]
        #[arg(long, short)]
        out: Option<PathBuf>,
    },
    /// Turn fio's job files, Iometer's configurations and FFSB's profiles into jobs of the laboratory
    #[command(after_help = "\
Examples:
  stele lab import nightly.fio                    writes NAME.toml for each job into this directory
  stele lab import nightly.fio --lenient --into jobs
  stele lab import servers.icf                    a job for each access specification that is assigned")]
    Import {
        file: PathBuf,
        /// What wrote it [default: what it looks like]
        #[arg(long, value_enum)]
        from: Option<OriginArg>,
        /// Directory for the jobs [default: this one]
        #[arg(long, value_name = "DIR", default_value = ".")]
        into: PathBuf,
        /// Leave out what is not known here, with a warning
        #[arg(long)]
        lenient: bool,
    },
    /// Say what arithmetic finds odd in the published tables that come with the laboratory
    #[command(after_help = "Example:\n  stele lab published")]
    Published,
    /// List the workloads that come with the laboratory
    #[command(after_help = "Example:\n  stele lab workloads")]
    Workloads,
}

/// The secret that hosts share.
#[derive(Args, Debug)]
pub struct TokenArgs {
    /// File with the secret that all hosts share, at least 16 characters [default: what STELE_LAB_TOKEN holds]
    #[arg(long, value_name = "FILE")]
    pub token_file: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct Paper {
    /// The .lab file
    #[arg(required_unless_present = "recipe", conflicts_with = "recipe")]
    pub file: Option<PathBuf>,
    /// Where to, by its ending a page or a PDF [default: beside the .lab file, or RECIPE.html]
    #[arg(long, short)]
    pub out: Option<PathBuf>,
    #[arg(long)]
    pub title: Option<String>,
    /// A PDF, whatever the name
    #[arg(long)]
    pub pdf: bool,
    /// Measure as this paper did: ds4500, dr550, gnr-tsm or fc8; or by these rules: snia-pts
    #[arg(long, value_name = "NAME")]
    pub recipe: Option<String>,
    /// On modelled arrays in virtual time: Stele's own code, and the published machine's profile
    #[arg(long = "virtual", requires = "recipe", conflicts_with = "on")]
    pub modelled: bool,
    /// On this target; gnr-tsm takes a second one, which stands for a second server
    #[arg(long, value_name = "TARGET", requires = "recipe")]
    pub on: Vec<String>,
    #[command(flatten)]
    pub place: PlaceArgs,
    /// Fewer cells, or shorter ones; the paper says what is left out
    #[arg(long, requires = "recipe")]
    pub quick: bool,
    /// Beside the published figures
    #[arg(long, value_enum)]
    pub against: Option<Against>,
    /// Go on with a recipe that was stopped
    #[arg(long, requires = "recipe")]
    pub resume: bool,
    /// Where a recipe keeps what it measured [default: beside the page]
    #[arg(long, value_name = "FILE", requires = "recipe")]
    pub lab: Option<PathBuf>,
    /// Say what would run and for how long, and end
    #[arg(long, requires = "recipe")]
    pub plan: bool,
}

/// How a recipe uses a real target, and for how long.
#[derive(Args, Debug)]
pub struct PlaceArgs {
    /// Bytes of the target to use [default: what the paper says, less where the run is quick; all of a device]
    #[arg(long, requires = "on", conflicts_with = "modelled")]
    pub size: Option<String>,
    /// Files that it is divided into, where the target is a directory; objects of each length in a bucket [default: 100]
    #[arg(long, requires = "on", conflicts_with = "modelled")]
    pub files: Option<u32>,
    /// What is on the target may be written over
    #[arg(long, requires = "on", conflicts_with = "modelled")]
    pub destroy: bool,
    /// Leave the files of a directory where they are, for the next run, and what was made on a server
    #[arg(long, requires = "on", conflicts_with = "modelled")]
    pub keep: bool,
    /// Time to measure each cell, exactly
    #[arg(long, requires = "on", conflicts_with_all = ["modelled", "least", "most"])]
    pub time: Option<String>,
    /// Time to measure each cell at least [default: 10s; 600ms of a quick run]
    #[arg(long, requires = "on", conflicts_with = "modelled")]
    pub least: Option<String>,
    /// Time to measure each cell at most, where it does not become steady [default: three times the least]
    #[arg(long, requires = "on", conflicts_with = "modelled")]
    pub most: Option<String>,
    /// Time before anything counts [default: 2s; 200ms of a quick run]
    #[arg(long, requires = "on", conflicts_with = "modelled")]
    pub warm_up: Option<String>,
    /// Length of a round [default: 1s; 100ms of a quick run]
    #[arg(long, requires = "on", conflicts_with = "modelled")]
    pub round: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Against {
    Published,
}

#[derive(Args, Debug)]
pub struct Run {
    /// Hosts that run the job at once, each on its own target of that name: HOST:PORT of each one's `stele lab serve`
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT")]
    pub hosts: Vec<String>,
    #[command(flatten)]
    pub token: TokenArgs,
    #[command(flatten)]
    pub what: What,
    #[command(flatten)]
    pub load: LoadArgs,
}

#[derive(Args, Debug)]
pub struct Fio {
    /// The job file
    pub file: PathBuf,
    /// Only this job; several times for several
    #[arg(long, value_name = "NAME")]
    pub section: Vec<String>,
    /// What the laboratory did not make may be written over
    #[arg(long)]
    pub destroy: bool,
    /// Keep fio's JSON in this file
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Say which files would be made, read and written over, and end
    #[arg(long)]
    pub plan: bool,
}

#[derive(Args, Debug)]
pub struct Ffsb {
    /// The profile
    pub file: PathBuf,
    /// Instead of the profile's time
    #[arg(long)]
    pub time: Option<String>,
}

#[derive(Args, Debug)]
pub struct History {
    /// The directory that holds .lab files
    pub directory: PathBuf,
    /// Draw the trend of the cells of this name here
    #[arg(long, value_name = "NAME", conflicts_with = "out")]
    pub cell: Option<String>,
    /// Write a page there, by its ending HTML or a PDF
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Of the page
    #[arg(long, requires = "out")]
    pub title: Option<String>,
}

#[derive(Args, Debug)]
pub struct Check {
    /// What was measured now; a directory stands for its newest result
    pub result: PathBuf,
    /// What it is held against; a directory stands for its newest result on the same target from before
    #[arg(long, value_name = "BASELINE")]
    pub against: PathBuf,
    /// How much worse a cell may be
    #[arg(long, value_name = "PERCENT", default_value = "5%")]
    pub tolerance: String,
    /// Write the verdicts there as JUnit's XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Write them there as a table in Markdown
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct Compare {
    #[command(flatten)]
    pub what: What,
    #[command(flatten)]
    pub load: LoadArgs,
    /// The target that --on is compared against
    #[arg(long, value_name = "TARGET")]
    pub against: String,
    /// Blocks of four runs, for each cell
    #[arg(long, default_value_t = 5)]
    pub blocks: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ExportFormat {
    Iometer,
    Fio,
    Csv,
    /// A line for each round of each run: the log of a run, second by second
    Rounds,
}

#[derive(Args, Debug)]
pub struct Search {
    /// Hosts that the load is divided over, each on its own target of that name: HOST:PORT of each one's `stele lab serve`
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT")]
    pub hosts: Vec<String>,
    #[command(flatten)]
    pub token: TokenArgs,
    #[command(flatten)]
    pub what: What,
    /// Raise accesses a second in open loops, as long as this is kept, like p99=2ms, p99.9=10ms or mean=5ms
    #[arg(long, value_name = "STATISTIC=TIME", conflicts_with_all = ["response", "percentile", "outstanding", "outstanding_max", "hosts", "modelled"])]
    pub objective: Option<String>,
    /// With an objective: accesses a second to begin with [default: 1000]
    #[arg(long, requires = "objective")]
    pub rate: Option<f64>,
    /// With an objective: accesses a second at most [default: 100000000]
    #[arg(long, requires = "objective")]
    pub rate_max: Option<u64>,
    /// With an objective: gaps between accesses are all the same, or drawn from the exponential distribution [default: even]
    #[arg(long, value_enum, requires = "objective")]
    pub arrivals: Option<ArrivalsArg>,
    /// The response that must not be exceeded [default: 20ms]
    #[arg(long)]
    pub response: Option<String>,
    /// Of so many percent of the accesses, instead of the mean
    #[arg(long, value_name = "PERCENT")]
    pub percentile: Option<f64>,
    /// Outstanding accesses to begin with
    #[arg(long)]
    pub outstanding: Option<u32>,
    /// Outstanding accesses at most [default: 512; 20000 of modelled arrays]
    #[arg(long)]
    pub outstanding_max: Option<u64>,
}

#[derive(Args, Debug)]
pub struct LoadArgs {
    /// Accesses under way at all times [default: 1]
    #[arg(long, value_delimiter = ',')]
    pub outstanding: Vec<u32>,
    /// Accesses started each second, whatever the answers
    #[arg(long, value_delimiter = ',', conflicts_with = "outstanding")]
    pub rate: Vec<f64>,
    /// Bytes started each second, whatever the answers, like 10MiB
    #[arg(long, value_delimiter = ',', value_name = "BYTES", conflicts_with_all = ["outstanding", "rate"])]
    pub rate_bytes: Vec<String>,
    /// Accesses a second that change: points like 0s=100,60s=5000, with straight lines between; two at one time are a step
    #[arg(long, value_delimiter = ',', value_name = "TIME=RATE", conflicts_with_all = ["outstanding", "rate", "rate_bytes", "pause", "time", "least", "most"])]
    pub profile: Vec<String>,
    /// A profile's time runs so many times as fast, so that a day becomes a minute with 1440 [default: 1]
    #[arg(long, value_name = "TIMES")]
    pub speed: Option<f64>,
    /// Say whether accesses kept this, like p99=2ms, p99.9=10ms or mean=5ms; one that is missed ends with exit code 13
    #[arg(long, value_name = "STATISTIC=TIME")]
    pub objective: Option<String>,
    /// Gaps between them: all the same, or drawn from the exponential distribution
    #[arg(long, value_enum)]
    pub arrivals: Option<ArrivalsArg>,
    /// Time for which each thread starts nothing, between bursts, like 1ms
    #[arg(long, value_name = "TIME", conflicts_with_all = ["rate", "rate_bytes"])]
    pub pause: Option<String>,
    /// Accesses of each thread between two pauses [default: 1]
    #[arg(long, value_name = "COUNT")]
    pub burst: Option<u32>,
    /// A pause begins when the burst is answered, when it is started and then answered, or overlaps what is under way [default: answered]
    #[arg(long, value_enum)]
    pub pause_when: Option<WhenArg>,
}

/// What is shown of a run while it goes on.
#[derive(Args, Debug)]
pub struct LiveArgs {
    /// Draw rate, responses, queue and processors anew for each round
    #[arg(long)]
    pub live: bool,
    /// Answer Prometheus at http://ADDRESS/metrics while the run goes on
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<std::net::SocketAddr>,
}

#[derive(Args, Debug)]
pub struct What {
    /// A job as a TOML file; options replace what it says
    pub job: Option<PathBuf>,
    /// The target: null, a file, a block device, a directory (dir:PATH), a volume in this process (volume:8+2,drives=12), or a URL
    /// of nbd://, iscsi://, nfs:// or s3://
    #[arg(long, value_name = "TARGET")]
    pub on: Option<String>,
    /// Arrays of modelled drives in virtual time are the target: drives=20,60 raid=5,10 cache=on,off stroke=8,45 array=stele,ds4500
    #[arg(
        long = "virtual",
        value_name = "AXIS=VALUES",
        num_args = 0..,
        conflicts_with_all = ["on", "size", "buffered", "destroy", "verify", "workers", "time", "least", "most", "warm_up", "round", "precondition"]
    )]
    pub modelled: Option<Vec<String>>,
    /// File with the authorities whose certificate an s3:// server must have [default: those of the system]
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// Bytes of it to use; needed for a file that does not exist yet, and for a volume
    #[arg(long)]
    pub size: Option<String>,
    /// Files that it is divided into, where the target is a directory; objects of each length in a bucket [default: 100]
    #[arg(long)]
    pub files: Option<u32>,
    /// Look at names of files (LIST of objects), and make and remove them, instead of reading and writing
    #[arg(long)]
    pub names: bool,
    /// Leave the files of a directory where they are, for the next run, and what was made on a server
    #[arg(long)]
    pub keep: bool,
    /// A workload by name (`stele lab workloads`)
    #[arg(long, value_delimiter = ',', value_name = "NAME")]
    pub workload: Vec<String>,
    /// Percent of accesses that read [default: 100]
    #[arg(long, value_delimiter = ',', value_name = "PERCENT", conflicts_with = "workload")]
    pub read: Vec<u8>,
    /// Percent of accesses at a random place [default: 100]
    #[arg(long, value_delimiter = ',', value_name = "PERCENT", conflicts_with = "workload")]
    pub random: Vec<u8>,
    /// Bytes of each access, or sizes with their shares like 4KiB:60/8KiB:40 [default: 4KiB]
    #[arg(long, value_delimiter = ',', value_name = "BYTES", conflicts_with = "workload")]
    pub access: Vec<String>,
    /// Where random accesses begin: at multiples of their own size, or of 512 bytes
    #[arg(long, value_enum)]
    pub align: Option<AlignArg>,
    /// Threads [default: one for each processor]
    #[arg(long, value_delimiter = ',')]
    pub workers: Vec<u32>,
    /// Answers that a thread waits for at once; more of them cost less, and each seems to take longer [default: 1]
    #[arg(long)]
    pub batch: Option<u32>,
    /// Time to measure, exactly: no longer where it is not steady
    #[arg(long, conflicts_with_all = ["least", "most"])]
    pub time: Option<String>,
    /// Time to measure at least [default: ten rounds]
    #[arg(long)]
    pub least: Option<String>,
    /// Time to measure at most, where it does not become steady [default: three times the least]
    #[arg(long)]
    pub most: Option<String>,
    /// Time before anything counts [default: two rounds]
    #[arg(long)]
    pub warm_up: Option<String>,
    /// Length of a round [default: 1s]
    #[arg(long)]
    pub round: Option<String>,
    /// A target that answers nothing for so long has failed [default: 30s]
    #[arg(long)]
    pub patience: Option<String>,
    /// Compare what is read with what was written, and read all of the target back at the end
    #[arg(long)]
    pub verify: bool,
    /// Size over compressed size of what is written [default: 1]
    #[arg(long, value_name = "RATIO")]
    pub compress: Option<f64>,
    /// Blocks over distinct blocks of what is written [default: 1]
    #[arg(long, value_name = "RATIO")]
    pub dedupe: Option<f64>,
    /// Of all that is drawn [default: 1]
    #[arg(long)]
    pub seed: Option<u64>,
    /// Before each cell write all of it so many times in order, like 2x, and for random writes then at random until that is steady
    #[arg(long, value_name = "TIMES")]
    pub precondition: Option<String>,
    /// Through the page cache; --buffered=false,true measures both
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_delimiter = ',')]
    pub buffered: Vec<bool>,
    /// What is on the target may be written over
    #[arg(long)]
    pub destroy: bool,
    /// Keep all that was measured in this .lab file; in a directory it is named after the time at which it began
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Go on with the cells that the .lab file lacks
    #[arg(long, requires = "out")]
    pub resume: bool,
    #[command(flatten)]
    pub live: LiveArgs,
    /// Say what would run and for how long, and end
    #[arg(long)]
    pub plan: bool,
}
