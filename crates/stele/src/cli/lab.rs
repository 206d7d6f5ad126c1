//! `stele lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

mod paper;
mod replay;
mod words;

pub use paper::{Against, Paper};
pub use replay::Replay;
pub use words::{AlignArg, ArrivalsArg, OriginArg, WhenArg};
use words::{count, from_one, percent, seed, time, time_to_measure, workers};

#[derive(Subcommand, Debug)]
pub enum Lab {
    /// Run a load on a target and measure it; several values of an option give a table of all
    /// combinations
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
  stele lab run --on s3://host/bench --read 0,50,100 --access 4KiB,1MiB --outstanding 32     # s3+http:// without TLS
  stele lab run --on s3://127.0.0.1:9000/bench --ca certificate.pem --read 50 --verify
  stele lab run --on backup://host/bench --read 0,100 --access 64MiB --outstanding 1,16    # sessions of backups
  stele lab run --on volume:8+2,drives=12 --size 4GiB --outstanding 32 --read 0    # Stele's own array, in this process
  stele lab run --on /data/target --rate 2000 --arrivals drawn --objective p99=2ms       # exit code 13 if missed
  stele lab run --on /data/target --profile 0s=100,60s=5000                              # a ramp
  stele lab run --on /data/target --profile 0h=100,9h=2000,17h=2000,24h=100 --speed 720  # a day in two minutes
  stele lab run tenants.toml --on /data/target        # [[tenant]] tables run side by side, each with its objective
  stele lab run nightly.toml --on /data/target --out nightly.lab --resume
  stele lab run nightly.toml --on /data/target --live --metrics 127.0.0.1:9311      # in the terminal and for Prometheus
  stele lab run --on null --outstanding 1             # the cost of the generator itself
  stele lab run --workload oltp_8k --outstanding 100 --virtual drives=20,60 raid=5,10

The laboratory makes and fills a file that does not exist (--size). It overwrites data that it did not make
only with --destroy.")]
    Run(LabRun),
    /// Find the highest load that a target sustains at a response time
    #[command(after_help = "\
Examples:
  stele lab search --on /data/target --size 10GiB --workload oltp_4k
  stele lab search --on /dev/sdx --workload random_read_4k --response 2ms --percentile 99 --out sdx.lab
  stele lab search --on /dev/sdx --workload random_read_4k --objective p99=2ms       # the highest rate of an open loop
  stele lab search --on /dev/sdx --hosts a:9310,b:9310 --token-file lab.token     # the load is divided over both
  stele lab search --workload oltp_8k --virtual drives=20,60,100 raid=5,10 cache=on,off")]
    Search(Search),
    /// Replay a trace: repeat the accesses recorded on another storage, at their times, on a target
    #[command(after_help = "\
Examples:
  stele lab replay web.blktrace.0 web.blktrace.1 --on /dev/sdx --destroy       # one trace of two processors
  stele lab replay oltp.iolog --on /data/target --size 20GiB --speed 2         # twice as fast
  stele lab replay Financial1.spc --on /data/target --map wrap --fit round     # wraps offsets, rounds lengths up to blocks
  stele lab replay hm_1.csv --on /dev/sdx --destroy --speed max --outstanding 64       # without the trace's clock
  stele lab replay hm_1.csv --on null --plan                                   # accesses and devices of the trace

Formats: blktrace's binary records, fio's logs (version 2 and 3), SPC's lines (unit, block, bytes, operation,
seconds) and those of MSR (ticks, host, disk, type, offset, bytes). The command checks the whole trace first. An
access that does not fit the target is an error before the replay starts, unless --map and --fit change it. Syncs,
discards and flushes are counted but not replayed. A response time counts from the start that the trace demands.")]
    Replay(Replay),
    /// Measure on this machine for `stele lab run --hosts` or `stele lab search --hosts` on another
    /// machine
    #[command(after_help = "\
Examples:
  stele lab serve --token-file lab.token                     # for this machine only
  stele lab serve --listen 0.0.0.0:9310 --token-file lab.token
  stele lab run nightly.toml --on /data/target --hosts a:9310,b:9310 --token-file lab.token

A holder of the token can read and fill every file that this process can access, and with --destroy overwrite it. The
connection is not encrypted.")]
    Serve {
        /// The address to listen at
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9310")]
        listen: std::net::SocketAddr,
        #[command(flatten)]
        token: TokenArgs,
        /// Allow remote jobs to overwrite data that the laboratory did not make
        #[arg(long)]
        destroy: bool,
    },
    /// Show the contents of a .lab file
    #[command(after_help = "Examples:\n  stele lab show sweep.lab\n  stele lab show sweep.lab --rounds --json")]
    Show {
        /// The .lab file
        file: PathBuf,
        /// Show every round of every cell
        #[arg(long)]
        rounds: bool,
    },
    /// Write a report of a .lab file as a page or a PDF, or repeat a published paper's measurements
    /// in a new paper
    #[command(after_help = "\
Examples:
  stele lab paper sweep.lab                              # writes sweep.html
  stele lab paper sweep.lab --pdf                        # writes sweep.pdf
  stele lab paper sweep.lab --title 'The new array' -o array.pdf
  stele lab paper --recipe ds4500 --virtual --against published -o ds4500.html      # all tables, in minutes
  stele lab paper ds4500.lab --against published -o again.html                      # the same paper, from the kept results
  stele lab paper --recipe dr550 --on dir:/srv/share --against published            # a file server's 240 cells
  stele lab paper --recipe dr550 --on dir:/mnt/off --on dir:/mnt/on                 # the same, of a share without a cache and one with
  stele lab paper --recipe fc8 --on nbd://host/vm1 --destroy --quick                # accesses from cache
  stele lab paper --recipe gnr-tsm --on dir:/a --on dir:/b --against published      # streams, one server and two
  stele lab paper --recipe gnr-tsm --on backup://host/bench --against published     # sessions of backups and restores
  stele lab paper --recipe ds4500 --on /dev/sdx --destroy --plan                    # cells that would run, and how long
  stele lab paper --recipe snia-pts --on /dev/sdx --destroy -o sdx.pdf              # a solid state drive by the SNIA's rules
  stele lab paper --recipe spc1-like --on /dev/sdx --destroy -o sdx.html            # a ramp of loads at 30 ms

Recipes: ds4500 (RAID-5 and RAID-10 at 20 ms), dr550 (threads on 100 files), gnr-tsm (backup and restore streams),
fc8 (accesses from cache), snia-pts (solid state drives: saturation, IOPS, throughput, latency; it purges the target
first), spc1-like (a ramp of loads up to the highest rate at 30 ms; no SPC result). A recipe keeps its
measurements in a .lab file beside the page. Stopped with Ctrl-C or SIGTERM, it writes a paper of the finished
cells, and --resume continues.")]
    Paper(Paper),
    /// Draw one chart of a .lab file, or of several in one, in the terminal or as SVG into a file
    #[command(after_help = "\
Examples:
  stele lab plot sweep.lab                               # the first chart that the file has data for, in the terminal
  stele lab plot sweep.lab --chart tail -o tail.svg
  stele lab plot before.lab after.lab --chart tail       # both results in one chart
  stele lab plot sweep.lab --chart help                  # lists the charts")]
    Plot {
        /// The .lab files
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Name of the chart; `help` lists them
        #[arg(long, value_name = "NAME")]
        chart: Option<String>,
        /// SVG file to write; its name ends in .svg
        #[arg(long, short)]
        out: Option<PathBuf>,
    },
    /// Compare two .lab files side by side: the ratio of each cell with its interval
    #[command(after_help = "Example:\n  stele lab diff before.lab after.lab")]
    Diff {
        /// The earlier .lab file
        first: PathBuf,
        /// The later one
        second: PathBuf,
    },
    /// Compare a .lab file with an earlier one, and fail if a cell became slower
    #[command(after_help = "\
Examples:
  stele lab check nightly.lab --against release.lab
  stele lab check nightly.lab --against release.lab --tolerance 2% --junit nightly.xml --markdown nightly.md
  stele lab check results --against release.lab          # the newest result of a directory
  stele lab check results --against results              # the newest result against the previous one on the same target

A cell is kept if the 95 % interval of its ratio is within the tolerance, and regressed if the interval is beyond
it. A cell is unclear if the interval lies on both sides, or if one of the results is not steady. Exit codes: 0 all
kept, 13 some regressed, 12 some missing, 10 some unclear.")]
    Check(Check),
    /// Show the results of a directory in the order of time, oldest first; an HTML page has trend
    /// charts
    #[command(after_help = "\
Examples:
  stele lab run nightly.toml --out results               # keeps the result in a directory, named by its starting time
  stele lab history results
  stele lab history results --cell 'outstanding 8'       # draws the trend of a cell in the terminal
  stele lab history results -o trends.html               # a chart for each cell; trends.pdf is a PDF

The newest figure of a cell stands beside the median of up to 20 earlier ones. Results that are not steady, void or
partial are shown, but the median leaves them out.")]
    History(LabHistory),
    /// Run a job on two targets in turn, in ABBA blocks, and show whether they differ
    #[command(after_help = "\
Examples:
  stele lab compare --on /data/target --against /other/target --workload oltp_4k --outstanding 32 --time 20s
  stele lab compare nightly.toml --on /dev/sdx --against /dev/sdy --blocks 8 --destroy --out drives.lab
  stele lab compare --on null --against null --time 1s          # the null target against itself: no difference

The result is the ratio of the rates with its 95 % interval. If the interval contains 1, no difference is shown.")]
    Compare(Compare),
    /// Run a fio job file: its keys have fio's meaning, and --json prints fio's JSON
    #[command(after_help = "\
Examples:
  stele lab fio nightly.fio                              # a table with the results of each job
  stele lab fio nightly.fio --json                       # the JSON that fio prints with --output-format=json
  stele lab fio nightly.fio --out nightly.json
  stele lab fio nightly.fio --section oltp --section stream
  stele lab fio nightly.fio --plan                       # the files that would be made, read and overwritten
  stele lab fio nightly.fio --destroy                    # overwrites files that the laboratory did not make, too

An unknown key is an error that names its line. The laboratory marks the files that jobs make and overwrites them in
the next run. It overwrites other files only with --destroy, unlike fio.")]
    Fio(Fio),
    /// Run an FFSB profile: create, append to, read, write, stat and delete whole files
    #[command(after_help = "\
Examples:
  stele lab ffsb mailserver.ffsb
  stele lab ffsb mailserver.ffsb --time 30s --json

An unknown line is an error that names the line. The run makes a directory for its files in each location of the
profile, and removes it at the end.")]
    Ffsb(Ffsb),
    /// Write the contents of a .lab file in the format of another tool
    #[command(after_help = "\
Examples:
  stele lab export sweep.lab --format fio                # writes sweep.json, as fio's --output-format=json+
  stele lab export sweep.lab --format iometer -o results.csv
  stele lab export sweep.lab --format csv
  stele lab export sweep.lab --format rounds             # every run second by second: rate, responses, queue, processors")]
    Export {
        /// The .lab file
        file: PathBuf,
        /// The format to write
        #[arg(long, value_enum)]
        format: ExportFormat,
        /// File to write [default: beside the .lab file]
        #[arg(long, short)]
        out: Option<PathBuf>,
    },
    /// Convert fio job files, Iometer configurations and FFSB profiles into jobs of the laboratory
    #[command(after_help = "\
Examples:
  stele lab import nightly.fio                    # writes NAME.toml for each job into this directory
  stele lab import nightly.fio --lenient --into jobs
  stele lab import servers.icf                    # a job for each access specification that is assigned")]
    Import {
        /// The file of the other tool
        file: PathBuf,
        /// Tool that wrote the file [default: detected from its contents]
        #[arg(long, value_enum)]
        from: Option<OriginArg>,
        /// Directory for the jobs; it is made if it is missing [default: the current directory]
        #[arg(long, value_name = "DIR", default_value = ".")]
        into: PathBuf,
        /// Leave out unknown settings, with a warning
        #[arg(long)]
        lenient: bool,
    },
    /// The published papers that come with the laboratory
    #[command(subcommand)]
    Papers(PapersCommand),
    /// Former spelling of `stele lab papers check`
    #[command(hide = true, after_help = "Example:\n  stele lab papers check")]
    Published,
    /// List the workloads that come with the laboratory
    #[command(after_help = "Example:\n  stele lab workloads")]
    Workloads,
}

#[derive(Subcommand, Debug)]
pub enum PapersCommand {
    /// Find contradictions in the published tables by arithmetic
    #[command(after_help = "Example:\n  stele lab papers check")]
    Check,
}

/// The secret that hosts share.
#[derive(Args, Debug)]
pub struct TokenArgs {
    /// File with the secret that all hosts share, at least 16 characters
    /// [default: the value of STELE_LAB_TOKEN]
    #[arg(long, value_name = "FILE", display_order = 11)]
    pub token_file: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct LabRun {
    /// Hosts that run the job together, each on its own target of that name: HOST:PORT of each
    /// host's `stele lab serve`
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT", display_order = 10)]
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
    /// Run only this job; repeat for more
    #[arg(long, value_name = "NAME")]
    pub section: Vec<String>,
    /// Allow overwriting files that the laboratory did not make
    #[arg(long)]
    pub destroy: bool,
    /// Time without any answer after which a device has failed [default: 30s]
    #[arg(long, allow_hyphen_values = true, value_parser = time)]
    pub patience: Option<String>,
    /// List the files that would be made, read and overwritten, and run nothing
    #[arg(long)]
    pub plan: bool,
    /// Write fio's JSON to this file
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub struct Ffsb {
    /// The profile
    pub file: PathBuf,
    /// Duration, instead of the profile's
    #[arg(long, allow_hyphen_values = true, value_parser = time_to_measure)]
    pub time: Option<String>,
}

#[derive(Args, Debug)]
pub struct LabHistory {
    /// The directory that holds .lab files
    pub directory: PathBuf,
    /// Draw the trend of the cells with this name in the terminal
    #[arg(long, value_name = "NAME", conflicts_with = "out")]
    pub cell: Option<String>,
    /// File for a page; its ending decides between HTML and PDF
    #[arg(long, short, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Title of the page
    #[arg(long, requires = "out", conflicts_with = "cell")]
    pub title: Option<String>,
}

#[derive(Args, Debug)]
pub struct Check {
    /// The new result; a directory stands for its newest result
    pub result: PathBuf,
    /// The result to compare with; a directory stands for its newest earlier result on the same
    /// target
    #[arg(long, value_name = "BASELINE")]
    pub against: PathBuf,
    /// Largest slowdown of a cell that still passes
    #[arg(long, value_name = "PERCENT", default_value = "5%")]
    pub tolerance: String,
    /// Write the verdicts to this file as JUnit XML
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// Write the verdicts to this file as a Markdown table
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
    #[arg(long, value_name = "TARGET", display_order = 2)]
    pub against: String,
    /// Blocks of four runs for each cell
    #[arg(long, default_value_t = 5, display_order = 66, allow_negative_numbers = true, value_parser = count())]
    pub blocks: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ExportFormat {
    Iometer,
    Fio,
    Csv,
    /// One line for each round of each run, usually one second
    Rounds,
}

/// Options of a search without an objective, which raises the outstanding accesses and no rate.
const OF_A_CLOSED_LOOP: [&str; 6] = ["response", "percentile", "outstanding", "outstanding_max", "hosts", "modelled"];

#[derive(Args, Debug)]
pub struct Search {
    /// Hosts that share the load, each on its own target of that name: HOST:PORT of each host's
    /// `stele lab serve`
    #[arg(long, value_delimiter = ',', value_name = "HOST:PORT", display_order = 10)]
    pub hosts: Vec<String>,
    #[command(flatten)]
    pub token: TokenArgs,
    #[command(flatten)]
    pub what: What,
    /// Raise the rate of an open loop while it meets this objective, for example p99=2ms,
    /// p99.9=10ms or mean=5ms
    #[arg(long, value_name = "STATISTIC=TIME", conflicts_with_all = OF_A_CLOSED_LOOP, display_order = 35)]
    pub objective: Option<String>,
    /// With an objective: rate to begin with, in accesses a second [default: 1000]
    #[arg(long, requires = "objective", conflicts_with_all = OF_A_CLOSED_LOOP, display_order = 42, allow_negative_numbers = true)]
    pub rate: Option<f64>,
    /// With an objective: largest rate, in accesses a second [default: 100000000]
    #[arg(long, requires = "objective", conflicts_with_all = OF_A_CLOSED_LOOP, display_order = 43, allow_negative_numbers = true, value_parser = from_one)]
    pub rate_max: Option<u64>,
    /// With an objective: equal gaps between accesses, or gaps drawn from the exponential
    /// distribution [default: even]
    #[arg(long, value_enum, requires = "objective", conflicts_with_all = OF_A_CLOSED_LOOP, display_order = 47)]
    pub arrivals: Option<ArrivalsArg>,
    /// The response time that must not be exceeded [default: 20ms]
    #[arg(long, display_order = 36, allow_hyphen_values = true, value_parser = time)]
    pub response: Option<String>,
    /// Apply the response time to this percentile of the accesses, instead of the mean
    #[arg(long, value_name = "PERCENT", display_order = 37, allow_negative_numbers = true)]
    pub percentile: Option<f64>,
    /// Number of outstanding accesses to begin with
    #[arg(long, display_order = 40, allow_negative_numbers = true, value_parser = count())]
    pub outstanding: Option<u32>,
    /// Largest number of outstanding accesses [default: 512; 20000 of modelled arrays]
    #[arg(long, display_order = 41, allow_negative_numbers = true, value_parser = from_one)]
    pub outstanding_max: Option<u64>,
}

#[derive(Args, Debug)]
pub struct LoadArgs {
    /// Number of outstanding accesses, kept constant [default: 1]
    #[arg(long, value_delimiter = ',', display_order = 40, allow_negative_numbers = true, value_parser = count())]
    pub outstanding: Vec<u32>,
    /// Accesses started each second, however late the answers come (open loop)
    #[arg(
        long,
        value_delimiter = ',',
        conflicts_with = "outstanding",
        display_order = 42,
        allow_negative_numbers = true
    )]
    pub rate: Vec<f64>,
    /// Bytes started each second, however late the answers come, for example 10MiB
    #[arg(long, value_delimiter = ',', value_name = "BYTES", conflicts_with_all = ["outstanding", "rate"], display_order = 44)]
    pub rate_bytes: Vec<String>,
    /// Rate that changes over time: points like 0s=100,60s=5000, with straight lines between; two
    /// points at one time are a step
    #[arg(long, value_delimiter = ',', value_name = "TIME=RATE", conflicts_with_all = ["outstanding", "rate", "rate_bytes", "pause", "time", "least", "most"], display_order = 45)]
    pub profile: Vec<String>,
    /// Run a profile's time this many times faster; 1440 turns a day into a minute [default: 1]
    #[arg(long, value_name = "TIMES", display_order = 46, allow_negative_numbers = true)]
    pub speed: Option<f64>,
    /// Report whether the accesses met this objective, for example p99=2ms or mean=5ms; exit code
    /// 13 if they missed it
    #[arg(long, value_name = "STATISTIC=TIME", display_order = 35)]
    pub objective: Option<String>,
    /// Gaps between accesses: equal, or drawn from the exponential distribution
    #[arg(long, value_enum, display_order = 47)]
    pub arrivals: Option<ArrivalsArg>,
    /// Pause of each thread between bursts, in which it starts no access, for example 1ms
    #[arg(long, value_name = "TIME", conflicts_with_all = ["rate", "rate_bytes"], display_order = 48, allow_hyphen_values = true, value_parser = time)]
    pub pause: Option<String>,
    /// Accesses of each thread between two pauses [default: 1]
    #[arg(long, value_name = "COUNT", display_order = 49, allow_negative_numbers = true, value_parser = count())]
    pub burst: Option<u32>,
    /// Start of a pause: when the burst is answered, when it is started and then answered, or
    /// overlapping outstanding accesses [default: answered]
    #[arg(long, value_enum, display_order = 50)]
    pub pause_when: Option<WhenArg>,
}

/// The views of a run while it goes on.
#[derive(Args, Debug)]
pub struct LiveArgs {
    /// Show rate, responses, queue and processors in the terminal after each round
    #[arg(long, display_order = 72)]
    pub live: bool,
    /// Serve metrics to Prometheus at http://ADDRESS/metrics during the run
    #[arg(long, value_name = "ADDRESS", display_order = 73)]
    pub metrics: Option<std::net::SocketAddr>,
}

#[derive(Args, Debug)]
pub struct What {
    /// A job as a TOML file; options take precedence over it
    pub job: Option<PathBuf>,
    /// The target: null, a file, a block device, a directory (dir:PATH), a volume in this process
    /// (volume:8+2,drives=12), or a URL of nbd://, iscsi://, nfs://, s3:// or backup://
    #[arg(long, value_name = "TARGET", display_order = 1)]
    pub on: Option<String>,
    /// Measure arrays of modelled drives in virtual time: drives=20,60 raid=5,10 cache=on,off
    /// stroke=8,45 array=stele,ds4500
    #[arg(
        display_order = 3,
        long = "virtual",
        value_name = "AXIS=VALUES",
        num_args = 0..,
        conflicts_with_all = ["on", "size", "buffered", "destroy", "verify", "workers", "time", "least", "most", "warm_up", "round", "precondition"]
    )]
    pub modelled: Option<Vec<String>>,
    /// File with the certificate authorities to trust for an s3:// server
    /// [default: those of the system]
    #[arg(long, value_name = "FILE", display_order = 6)]
    pub ca: Option<PathBuf>,
    /// Bytes of the target to use; required for a file that does not exist yet, and for a volume
    #[arg(long, display_order = 4)]
    pub size: Option<String>,
    /// Number of files in a directory target; objects of each length in a bucket [default: 100]
    #[arg(long, display_order = 5, allow_negative_numbers = true, value_parser = count())]
    pub files: Option<u32>,
    /// Look up, create and remove file names (or list objects), instead of reading and writing
    #[arg(long, display_order = 25)]
    pub names: bool,
    /// Keep the files of a directory, or the objects on a server, for the next run
    #[arg(long, display_order = 9)]
    pub keep: bool,
    /// A workload by name (`stele lab workloads`)
    #[arg(long, value_delimiter = ',', value_name = "NAME", display_order = 20)]
    pub workload: Vec<String>,
    /// Percent of accesses that read, from 0 to 100 [default: 100]
    #[arg(long, value_delimiter = ',', value_name = "PERCENT", conflicts_with = "workload", display_order = 21, allow_negative_numbers = true, value_parser = percent())]
    pub read: Vec<u8>,
    /// Percent of accesses at a random offset, from 0 to 100 [default: 100]
    #[arg(long, value_delimiter = ',', value_name = "PERCENT", conflicts_with = "workload", display_order = 22, allow_negative_numbers = true, value_parser = percent())]
    pub random: Vec<u8>,
    /// Bytes of each access, or sizes with their shares, for example 4KiB:60/8KiB:40
    /// [default: 4KiB]
    #[arg(long, value_delimiter = ',', value_name = "BYTES", conflicts_with = "workload", display_order = 23)]
    pub access: Vec<String>,
    /// Alignment of random accesses: multiples of their own size, or of 512 bytes
    #[arg(long, value_enum, display_order = 24)]
    pub align: Option<AlignArg>,
    /// Number of threads, from 1 to 512 [default: one for each processor]
    #[arg(long, value_delimiter = ',', display_order = 51, allow_negative_numbers = true, value_parser = workers())]
    pub workers: Vec<u32>,
    /// Number of answers that a thread collects at once; a higher number costs less CPU time, but
    /// each access seems slower [default: 1]
    #[arg(long, display_order = 52, allow_negative_numbers = true, value_parser = count())]
    pub batch: Option<u32>,
    /// Time to measure, in whole rounds, at most 100000h; it is not extended if the rate is not
    /// steady
    #[arg(long, conflicts_with_all = ["least", "most"], display_order = 60, allow_hyphen_values = true, value_parser = time_to_measure)]
    pub time: Option<String>,
    /// Time to measure at least [default: ten rounds]
    #[arg(long, display_order = 61, allow_hyphen_values = true, value_parser = time_to_measure)]
    pub least: Option<String>,
    /// Time to measure at most, if the rate does not become steady [default: three times the least]
    #[arg(long, display_order = 62, allow_hyphen_values = true, value_parser = time)]
    pub most: Option<String>,
    /// Warm-up time that does not count [default: two rounds]
    #[arg(long, display_order = 63, allow_hyphen_values = true, value_parser = time)]
    pub warm_up: Option<String>,
    /// Length of a round [default: 1s]
    #[arg(long, display_order = 64, allow_hyphen_values = true, value_parser = time)]
    pub round: Option<String>,
    /// Time without any answer after which a target has failed [default: 30s]
    #[arg(long, display_order = 65, allow_hyphen_values = true, value_parser = time)]
    pub patience: Option<String>,
    /// Compare data read with data written, and read the whole target back at the end
    #[arg(long, display_order = 26)]
    pub verify: bool,
    /// Compression ratio of the written data: size over compressed size [default: 1]
    #[arg(long, value_name = "RATIO", display_order = 27, allow_negative_numbers = true)]
    pub compress: Option<f64>,
    /// Deduplication ratio of the written data: blocks over distinct blocks [default: 1]
    #[arg(long, value_name = "RATIO", display_order = 28, allow_negative_numbers = true)]
    pub dedupe: Option<f64>,
    /// Random seed [default: 1]
    #[arg(long, display_order = 29, allow_negative_numbers = true, value_parser = seed)]
    pub seed: Option<u64>,
    /// Write the whole target this many times in order before each cell, for example 2x; for random
    /// writes then write at random until the rate is steady
    #[arg(long, value_name = "TIMES", display_order = 30)]
    pub precondition: Option<String>,
    /// Use the page cache; --buffered=false,true measures both
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true", value_delimiter = ',', display_order = 7)]
    pub buffered: Vec<bool>,
    /// Allow overwriting the data on the target
    #[arg(long, display_order = 8)]
    pub destroy: bool,
    /// Keep all measurements in this .lab file; in a directory, the starting time gives the file
    /// its name
    #[arg(long, value_name = "FILE", display_order = 70)]
    pub out: Option<PathBuf>,
    /// Measure only the cells that the .lab file lacks
    #[arg(long, requires = "out", display_order = 71)]
    pub resume: bool,
    #[command(flatten)]
    pub live: LiveArgs,
    /// Show the cells that would run and their duration, and run nothing
    #[arg(long, display_order = 74)]
    pub plan: bool,
}
