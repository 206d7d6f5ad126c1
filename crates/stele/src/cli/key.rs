//! `stele key`.

use clap::{Args, Subcommand};

use super::bucket::{Quota, VersionsQuota, quota, quota_versions};
use super::master_key::{MasterKeyExport, MasterKeyRequest, MasterKeyVerify};
use super::words::{Access, Role};

#[derive(Subcommand, Debug)]
pub enum Key {
    /// Make an access key; its secret is printed once
    Create(KeyCreate),
    /// List access keys, without secrets
    #[command(after_help = "Example:\n  stele key list")]
    List,
    /// Take rights from an access key, with immediate effect. It never adds a right
    Narrow(Narrow),
    /// Change when an access key expires, and what it may own
    Set(KeySet),
    /// Revoke an access key, with immediate effect
    #[command(after_help = "Example:\n  stele key revoke STELEK7Q2M4XJ9TB3HWD")]
    Revoke {
        /// The access key, as `stele key list` shows it
        id: String,
    },
    /// Former spelling of `stele master-key export`
    #[command(hide = true)]
    Escrow(MasterKeyExport),
    /// Former spelling of `stele master-key request`
    #[command(hide = true)]
    RequestEscrow(MasterKeyRequest),
    /// Former spelling of `stele master-key verify`
    #[command(hide = true)]
    Check(MasterKeyVerify),
}

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  stele key create --name ingest --role user --bucket records --prefix scans/
  stele key create --name scanner --bucket records --access write,retain
  stele key create --name anna --role retention-officer --json > anna.json
  stele key create --name bert --role storage-administrator,auditor
  stele key create --name contractor --bucket records --read-only --expires 90d
  stele key create --name scanner --bucket records --access write --quota 100GiB --quota-versions 1000000

A key has only the rights that --role and --access give; at least one of the two is required. `stele key narrow`
takes rights away later. The first two retention officers need no approval. From then on, the key of a new officer
is not valid until another officer approves it (`stele approve`).")]
pub struct KeyCreate {
    /// Name of the holder, shown in lists of keys
    #[arg(long, default_value = "", hide_default_value = true)]
    pub name: String,
    /// Rights over the store; separate several by commas, or repeat the option
    #[arg(long, value_enum, value_name = "ROLES", value_delimiter = ',')]
    pub role: Vec<Role>,
    /// Allow only this bucket; repeat for more
    #[arg(long, value_name = "BUCKET")]
    pub bucket: Vec<String>,
    /// Allow only object keys that begin with this prefix
    #[arg(long, default_value = "", hide_default_value = true)]
    pub prefix: String,
    /// Rights over objects, separated by commas
    /// [default: by role: user read,write,delete,list; retention-officer read,list,retain;
    /// auditor read,list; storage-administrator nothing]
    #[arg(long, value_enum, value_name = "KINDS", value_delimiter = ',')]
    pub access: Vec<Access>,
    /// The same as --access read,list
    #[arg(long, conflicts_with = "access")]
    pub read_only: bool,
    /// Allow bypassing GOVERNANCE retention in requests that ask for it explicitly
    #[arg(long)]
    pub bypass_governance: bool,
    /// The key is void from then on: a date or moment in UTC, or a duration from now on (30m, 12h,
    /// 90d, 8w, 1y)
    #[arg(long, value_name = "WHEN", conflicts_with = "officers_lost")]
    pub expires: Option<String>,
    /// Refuse writes of the key beyond this size of what it owns, over all buckets: versions, and
    /// parts of unfinished uploads
    #[arg(long, value_name = "SIZE", value_parser = stele_server::config::size, conflicts_with = "officers_lost")]
    pub quota: Option<stele_ground::Bytes>,
    /// The same for the number of its versions, delete markers included
    #[arg(long, value_name = "COUNT", conflicts_with = "officers_lost")]
    pub quota_versions: Option<u64>,
    /// Make a retention officer when no officer is left to approve one. The key becomes valid after
    /// 30 days. During these days an alarm stands, and any officer can refuse the key
    #[arg(long, conflicts_with_all = ["bucket", "prefix", "access", "read_only", "bypass_governance"])]
    pub officers_lost: bool,
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("less").required(true).multiple(true).args(["role", "bucket", "prefix", "access", "no_bypass"]))]
#[command(after_help = "\
Examples:
  stele key narrow STELEK7Q2M4XJ9TB3HWD --access read,list
  stele key narrow STELEK7Q2M4XJ9TB3HWD --bucket records --prefix scans/
  stele key narrow STELEK7Q2M4XJ9TB3HWD --role auditor --no-bypass

Settings that are not given keep their value. The command is refused when it names a right that the key does not
have.")]
pub struct Narrow {
    /// The access key, as `stele key list` shows it
    pub id: String,
    /// Keep only these roles
    #[arg(long, value_enum, value_name = "ROLES", value_delimiter = ',')]
    pub role: Vec<Role>,
    /// Keep only these buckets; repeat for more
    #[arg(long, value_name = "BUCKET")]
    pub bucket: Vec<String>,
    /// Keep only object keys that begin with this prefix
    #[arg(long)]
    pub prefix: Option<String>,
    /// Keep only these rights over objects, separated by commas
    #[arg(long, value_enum, value_name = "KINDS", value_delimiter = ',')]
    pub access: Vec<Access>,
    /// Take away the right to bypass GOVERNANCE retention
    #[arg(long)]
    pub no_bypass: bool,
}

#[derive(Args, Debug)]
#[command(group = clap::ArgGroup::new("key").required(true).multiple(true).args(["expires", "quota", "quota_versions"]))]
#[command(after_help = "\
Examples:
  stele key set STELEK7Q2M4XJ9TB3HWD --expires 2027-04-02
  stele key set STELEK7Q2M4XJ9TB3HWD --expires 12h
  stele key set STELEK7Q2M4XJ9TB3HWD --quota 200GiB --quota-versions none

A key that has expired stays so: make another key. A retention officer's key gets no later end, since a new officer
takes another officer's approval. Ends count by the later of the system clock and the compliance clock: a
system clock that is set back behind a moment at which the store was open revives no key.

A quota counts the versions that the key stored, in every bucket, and the parts of its unfinished uploads. It removes
nothing, and delete markers are written beyond it. `stele key list` shows what each key owns.")]
pub struct KeySet {
    /// The access key, as `stele key list` shows it
    pub id: String,
    /// The key is void from then on: a date or moment in UTC, a duration from now on (30m, 12h,
    /// 90d, 8w, 1y), or `never`
    #[arg(long, value_name = "WHEN")]
    pub expires: Option<String>,
    /// Refuse writes of the key beyond this size of what it owns; `none` removes the limit
    #[arg(long, value_name = "SIZE", value_parser = quota)]
    pub quota: Option<Quota>,
    /// The same for the number of its versions
    #[arg(long, value_name = "COUNT", value_parser = quota_versions)]
    pub quota_versions: Option<VersionsQuota>,
}
