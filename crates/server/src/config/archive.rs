//! The section `[archive]`: volumes, master key, and where signed heads go.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Size;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Archive {
    /// Names of the archive's volumes.
    pub catalog_volume: String,
    pub data_volume: String,
    /// The master key, 64 hexadecimal digits: `file:PATH`, `env:NAME`, or `command:PROGRAM ARG ...`
    /// that prints it.
    pub master_key: String,
    /// Directory for signed audit heads; keep a copy elsewhere.
    pub heads: PathBuf,
    /// Further directories for heads: a mounted share, or a removable drive. At start the server
    /// compares its log with all of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub heads_also: Vec<PathBuf>,
    /// Syslog servers that heads are sent to: `udp:HOST:PORT`, `tcp:HOST:PORT`, `unix:PATH`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub heads_syslog: Vec<String>,
    /// Mail addresses that heads are sent to, by the mail server of `[messages]`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub heads_mail: Vec<String>,
    /// Bucket of another S3 server that heads are sent to: `s3://HOST[:PORT]/BUCKET[/PREFIX]`. At
    /// start the server compares its log with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads_bucket: Option<String>,
    /// File with the keys for it; `None`: where other S3 clients find them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads_bucket_key: Option<PathBuf>,
    /// The region that requests are signed for, with keys from that file.
    pub heads_bucket_region: String,
    /// Days for which the bucket locks each head; `None`: it locks none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads_bucket_days: Option<u32>,
    /// URL of a time stamp authority (RFC 3161) that stamps each head that goes out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads_timestamp: Option<String>,
    /// PEM file of authorities; one of them must have certified the signer of each time stamp.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads_timestamp_ca: Option<PathBuf>,
    /// URL of a witness that countersigns heads, and a copy of its public key. Both or neither.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads_witness: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads_witness_key: Option<PathBuf>,
    /// Seconds between two exports of a head.
    pub heads_every: u64,
    /// Hours between two self-tests of the buckets with Object Lock; 0: only on request.
    pub self_test_hours: u64,
    /// The largest size that the data volume reaches as the pool grows; `None`: the whole pool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_max: Option<Size>,
}

impl Default for Archive {
    fn default() -> Archive {
        Archive {
            catalog_volume: "catalog".to_owned(),
            data_volume: "data".to_owned(),
            master_key: "file:master.key".to_owned(),
            heads: PathBuf::from("heads"),
            heads_also: Vec::new(),
            heads_syslog: Vec::new(),
            heads_mail: Vec::new(),
            heads_bucket: None,
            heads_bucket_key: None,
            heads_bucket_region: "us-east-1".to_owned(),
            heads_bucket_days: None,
            heads_timestamp: None,
            heads_timestamp_ca: None,
            heads_witness: None,
            heads_witness_key: None,
            heads_every: 3600,
            self_test_hours: 0,
            data_max: None,
        }
    }
}
