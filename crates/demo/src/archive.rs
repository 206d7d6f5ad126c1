//! Stores and reads through the AWS SDK, eight requests at a time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_sdk_s3::Client;
use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_s3::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{
    CompletedMultipartUpload, CompletedPart, DefaultRetention, ObjectLockConfiguration, ObjectLockEnabled,
    ObjectLockRetention, ObjectLockRetentionMode, ObjectLockRule,
};
use futures_util::StreamExt;
use stele_ground::Dice;

use crate::Outcome;
use crate::server::Server;
use crate::tree::{Item, sha256};

pub const BUCKET: &str = "records";
/// Number of concurrent requests.
const AT_ONCE: usize = 8;
/// Files of this size or more are uploaded in parts of this size.
const PART: u64 = 8 << 20;

/// The acknowledged versions: key to version, SHA-256 and length.
pub type Stored = BTreeMap<String, (String, [u8; 32], u64)>;

/// A step's bytes, count and time.
#[derive(Clone, Copy, Default)]
pub struct Pace {
    pub objects: u64,
    pub bytes: u64,
    pub took: Duration,
}

pub fn connect(server: &Server) -> Client {
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .endpoint_url(&server.endpoint)
        .force_path_style(true)
        .credentials_provider(Credentials::new(&server.access_key, &server.secret_key, None, None, "stele-demo"))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .retry_config(aws_sdk_s3::config::retry::RetryConfig::disabled())
        .build();
    Client::from_conf(config)
}

fn said<E, R>(what: &str, error: SdkError<E, R>) -> String
where
    E: std::error::Error + 'static,
    R: std::fmt::Debug,
    SdkError<E, R>: std::error::Error,
{
    format!("{what}: {}", DisplayErrorContext(&error))
}

/// Makes a bucket with Object Lock. Its versions are kept for a day under COMPLIANCE by default.
pub async fn make_bucket(client: &Client) -> Outcome<()> {
    client
        .create_bucket()
        .bucket(BUCKET)
        .object_lock_enabled_for_bucket(true)
        .send()
        .await
        .map_err(|error| said("cannot create the bucket", error))?;
    let retention = DefaultRetention::builder().mode(ObjectLockRetentionMode::Compliance).days(1).build();
    let lock = ObjectLockConfiguration::builder()
        .object_lock_enabled(ObjectLockEnabled::Enabled)
        .rule(ObjectLockRule::builder().default_retention(retention).build())
        .build();
    client
        .put_object_lock_configuration()
        .bucket(BUCKET)
        .object_lock_configuration(lock)
        .send()
        .await
        .map(drop)
        .map_err(|error| said("cannot set the default retention", error))
}

async fn store_one(client: &Client, item: &Item) -> Outcome<(String, [u8; 32], u64)> {
    let body =
        tokio::fs::read(&item.path).await.map_err(|error| format!("cannot read {}: {error}", item.path.display()))?;
    let (sum, length) = (sha256(&body), body.len() as u64);
    let body = bytes::Bytes::from(body);
    let version = if length > PART {
        store_parts(client, &item.key, body).await?
    } else {
        store_whole(client, &item.key, body).await?
    };
    Ok((version, sum, length))
}

async fn store_whole(client: &Client, key: &str, body: bytes::Bytes) -> Outcome<String> {
    let put = client.put_object().bucket(BUCKET).key(key).body(ByteStream::from(body)).send().await;
    let put = put.map_err(|error| said(&format!("cannot store {key}"), error))?;
    put.version_id().map(str::to_owned).ok_or_else(|| format!("storing {key} answered no version"))
}

async fn store_parts(client: &Client, key: &str, body: bytes::Bytes) -> Outcome<String> {
    let what = format!("cannot store {key} in parts");
    let upload =
        client.create_multipart_upload().bucket(BUCKET).key(key).send().await.map_err(|error| said(&what, error))?;
    let id = upload.upload_id().ok_or_else(|| format!("{what}: no upload id"))?;
    let mut parts = Vec::new();
    for (number, at) in (1..).zip((0..body.len()).step_by(PART as usize)) {
        let piece = body.slice(at..body.len().min(at + PART as usize));
        let part = client
            .upload_part()
            .bucket(BUCKET)
            .key(key)
            .upload_id(id)
            .part_number(number)
            .body(ByteStream::from(piece));
        let part = part.send().await.map_err(|error| said(&what, error))?;
        parts.push(
            CompletedPart::builder()
                .part_number(number)
                .set_e_tag(part.e_tag)
                .set_checksum_crc32(part.checksum_crc32)
                .build(),
        );
    }
    let list = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
    let complete = client.complete_multipart_upload().bucket(BUCKET).key(key).upload_id(id).multipart_upload(list);
    let complete = complete.send().await.map_err(|error| said(&what, error))?;
    complete.version_id().map(str::to_owned).ok_or_else(|| format!("{what}: no version"))
}

pub async fn store_all(client: &Client, items: &[Item], stored: &mut Stored) -> Outcome<Pace> {
    let begun = Instant::now();
    let mut pace = Pace::default();
    let results = futures_util::stream::iter(items)
        .map(async |item| (item, store_one(client, item).await))
        .buffer_unordered(AT_ONCE);
    let mut results = std::pin::pin!(results);
    while let Some((item, result)) = results.next().await {
        let result = result?;
        pace.objects += 1;
        pace.bytes += result.2;
        stored.insert(item.key.clone(), result);
    }
    pace.took = begun.elapsed();
    Ok(pace)
}

/// Reads every version back, and compares its SHA-256 with that of the file on disk.
pub async fn read_all(client: &Client, stored: &Stored) -> Outcome<Pace> {
    let begun = Instant::now();
    let mut pace = Pace::default();
    let results = futures_util::stream::iter(stored)
        .map(async |(key, (version, sum, length))| {
            let object = client.get_object().bucket(BUCKET).key(key).version_id(version).send().await;
            let object = object.map_err(|error| said(&format!("cannot read {key}"), error))?;
            let body =
                object.body.collect().await.map_err(|error| format!("reading {key} broke off: {error}"))?.into_bytes();
            if body.len() as u64 != *length || sha256(&body) != *sum {
                return Err(format!("{key} came back different: {} bytes instead of {length}", body.len()));
            }
            Ok(*length)
        })
        .buffer_unordered(AT_ONCE);
    let mut results = std::pin::pin!(results);
    while let Some(result) = results.next().await {
        pace.bytes += result?;
        pace.objects += 1;
    }
    pace.took = begun.elapsed();
    Ok(pace)
}

/// The server's text for a refusal.
pub struct Refusal {
    pub tried: &'static str,
    pub answer: String,
}

/// Tries requests that must be refused; a success is an error.
pub async fn try_forbidden(client: &Client, stored: &Stored) -> Outcome<Vec<Refusal>> {
    let (key, (version, ..)) = stored.iter().next().ok_or("nothing is stored")?;
    let deleted = client.delete_object().bucket(BUCKET).key(key).version_id(version).send().await;
    let first = refusal("delete a version under COMPLIANCE", deleted)?;
    let deleted = client
        .delete_object()
        .bucket(BUCKET)
        .key(key)
        .version_id(version)
        .bypass_governance_retention(true)
        .send()
        .await;
    let second = refusal("delete it with the bypass header", deleted)?;
    let soon = std::time::SystemTime::now() + Duration::from_secs(60);
    let shorter =
        ObjectLockRetention::builder().mode(ObjectLockRetentionMode::Compliance).retain_until_date(soon.into()).build();
    let shortened =
        client.put_object_retention().bucket(BUCKET).key(key).version_id(version).retention(shorter).send().await;
    let third = refusal("shorten its retention", shortened)?;
    Ok(vec![first, second, third])
}

fn refusal<T, E, R>(tried: &'static str, result: Result<T, SdkError<E, R>>) -> Outcome<Refusal>
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
    R: std::fmt::Debug,
    SdkError<E, R>: std::error::Error,
{
    match result {
        Ok(_) => Err(format!("it was possible to {tried}")),
        Err(SdkError::ServiceError(refused)) => {
            let error = refused.err();
            let code = error.code().unwrap_or("no code");
            match code {
                "AccessDenied" => {
                    Ok(Refusal { tried, answer: format!("{code}: {}", error.message().unwrap_or_default()) })
                }
                other => Err(format!("trying to {tried} answered {other} instead of AccessDenied")),
            }
        }
        Err(error) => Err(format!("trying to {tried} answered nothing: {}", DisplayErrorContext(&error))),
    }
}

/// Starts an upload in the background that will not end. Dropping the handle ends the client's
/// side.
pub fn begin_upload(client: &Client, key: &'static str, length: usize) -> tokio::task::JoinHandle<Result<(), String>> {
    let client = client.clone();
    let mut bytes = vec![0; length];
    Dice::new(7).fill(&mut bytes);
    let body = Arc::new(bytes::Bytes::from(bytes));
    tokio::spawn(async move {
        let put = client.put_object().bucket(BUCKET).key(key).body(ByteStream::from((*body).clone())).send().await;
        put.map(drop).map_err(|error| said("cut off", error))
    })
}

/// True if the key has a version or delete marker.
pub async fn exists(client: &Client, key: &str) -> Outcome<bool> {
    let listed = client.list_object_versions().bucket(BUCKET).prefix(key).send().await;
    let listed = listed.map_err(|error| said("cannot list versions", error))?;
    Ok(!listed.versions().is_empty())
}
