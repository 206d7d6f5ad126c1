//! The messages of notifications, in the form of AWS: event version 2.1.

use serde::Serialize;
use stele_archive::{ObjectEvent, TEST_EVENT, Timestamp};

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Message<'e> {
    records: Vec<Record<'e>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Record<'e> {
    event_version: &'static str,
    event_source: &'static str,
    aws_region: &'e str,
    event_time: String,
    event_name: &'e str,
    user_identity: Principal<'e>,
    request_parameters: Parameters<'e>,
    response_elements: Answer<'e>,
    s3: S3<'e>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Principal<'e> {
    principal_id: &'e str,
}

#[derive(Serialize)]
struct Parameters<'e> {
    #[serde(rename = "sourceIPAddress")]
    source_ip_address: &'e str,
}

#[derive(Serialize)]
struct Answer<'e> {
    #[serde(rename = "x-amz-request-id")]
    request_id: &'e str,
    #[serde(rename = "x-amz-id-2")]
    host_id: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct S3<'e> {
    s3_schema_version: &'static str,
    configuration_id: &'e str,
    bucket: Bucket<'e>,
    object: Object<'e>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Bucket<'e> {
    name: &'e str,
    owner_identity: Principal<'e>,
    arn: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Object<'e> {
    key: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    e_tag: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version_id: Option<&'e str>,
    sequencer: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Test<'e> {
    service: &'static str,
    event: &'static str,
    time: String,
    bucket: &'e str,
    request_id: String,
    host_id: &'static str,
}

const HOST: &str = "stele";

/// Every message begins with one of these.
pub const BEGINNINGS: [&str; 2] = [
    r#"{"Records":[{"eventVersion":"2.1","eventSource":"aws:s3","#,
    r#"{"Service":"Amazon S3","Event":"s3:TestEvent","#,
];

/// One message for these events. A test event is alone in its message.
pub fn message(events: &[(u64, ObjectEvent)]) -> Result<String, String> {
    let text = match events {
        [(number, event)] if event.name == TEST_EVENT => serde_json::to_string(&Test {
            service: "Amazon S3",
            event: "s3:TestEvent",
            time: moment(event.time),
            bucket: &event.bucket,
            request_id: format!("{number:016X}"),
            host_id: HOST,
        }),
        _ => serde_json::to_string(&Message { records: events.iter().map(record).collect() }),
    };
    text.map_err(|error| error.to_string())
}

fn record((number, event): &(u64, ObjectEvent)) -> Record<'_> {
    let mut origin = event.origin.as_deref().unwrap_or_default().split(' ');
    Record {
        event_version: "2.1",
        event_source: "aws:s3",
        aws_region: &event.region,
        event_time: moment(event.time),
        event_name: &event.name,
        user_identity: Principal { principal_id: &event.actor },
        request_parameters: Parameters { source_ip_address: origin.next().unwrap_or_default() },
        response_elements: Answer { request_id: origin.next().unwrap_or_default(), host_id: HOST },
        s3: S3 {
            s3_schema_version: "1.0",
            configuration_id: &event.rule,
            bucket: Bucket {
                name: &event.bucket,
                owner_identity: Principal { principal_id: &event.bucket_owner },
                arn: format!("arn:aws:s3:::{}", event.bucket),
            },
            object: Object {
                key: escaped(&event.key),
                size: event.size,
                e_tag: event.etag.as_deref(),
                version_id: event.version.as_deref(),
                sequencer: format!("{number:016X}"),
            },
        },
    }
}

/// RFC 3339 with milliseconds.
fn moment(time: Timestamp) -> String {
    let seconds = stele_ground::calendar::moment(time.seconds());
    format!("{}.{:03}Z", seconds.trim_end_matches('Z'), time.0 % 1000)
}

/// A key as AWS writes it in events: as in a form, with `/` as it is.
fn escaped(key: &str) -> String {
    let mut text = String::with_capacity(key.len());
    for byte in key.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'*' | b'/' => text.push(byte as char),
            b' ' => text.push('+'),
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}
