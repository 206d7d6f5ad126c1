//! The policy of a form: a signed document that says which fields the form may have.

use super::Fields;
use crate::refusal::refuse;
use crate::sigv4::{SigningKeys, version_two};
use aws_lc_rs::hmac;
use s3s::{S3Error, S3ErrorCode, S3Result};
use serde_json::Value;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const CONDITIONS_MAX: usize = 200;

/// What a form claims about its sender.
pub struct SignedPolicy<'f> {
    pub access_key: &'f str,
    pub region: &'f str,
    /// The token of a session, if the form's sender has temporary credentials.
    pub token: Option<&'f str>,
    date: &'f str,
    service: &'f str,
    document: &'f str,
    signature: &'f str,
}

impl<'f> SignedPolicy<'f> {
    /// The claim of a form. None: it has no policy, so it is of no user in particular.
    pub fn of(fields: &'f Fields) -> S3Result<Option<SignedPolicy<'f>>> {
        if fields.get("awsaccesskeyid").is_some() {
            return Err(version_two());
        }
        let Some(document) = fields.get("policy") else {
            return match ["x-amz-signature", "x-amz-credential"].iter().any(|name| fields.get(name).is_some()) {
                true => Err(missing("policy")),
                false => Ok(None),
            };
        };
        let field = |name: &'static str| fields.get(name).ok_or_else(|| missing(name));
        if field("x-amz-algorithm")? != ALGORITHM {
            return Err(invalid("X-Amz-Algorithm only supports \"AWS4-HMAC-SHA256\""));
        }
        let credential = field("x-amz-credential")?;
        let mut scope = credential.split('/');
        let parts = [scope.next(), scope.next(), scope.next(), scope.next(), scope.next(), scope.next()];
        let [Some(access_key), Some(date), Some(region), Some(service), Some("aws4_request"), None] = parts else {
            return Err(invalid("The credential of the form must be KEY/DATE/REGION/s3/aws4_request"));
        };
        if service != "s3" || !field("x-amz-date")?.starts_with(date) {
            return Err(invalid("The scope of the form's credential does not fit the service or the date"));
        }
        let token = fields.get("x-amz-security-token");
        Ok(Some(SignedPolicy {
            access_key,
            region,
            token,
            date,
            service,
            document,
            signature: field("x-amz-signature")?,
        }))
    }

    /// Checks the signature over the policy.
    pub fn verify(&self, secret: &str, keys: &SigningKeys) -> S3Result<()> {
        let key = keys.key(self.access_key, secret, self.date, self.region, self.service);
        let signature = hex_simd::decode_to_vec(self.signature);
        let genuine = signature.is_ok_and(|signature| hmac::verify(&key, self.document.as_bytes(), &signature).is_ok());
        match genuine {
            true => Ok(()),
            false => Err(refuse(
                S3ErrorCode::SignatureDoesNotMatch,
                "The request signature we calculated does not match the signature you provided. Check your key and signing method.",
            )),
        }
    }

    /// The decoded document.
    pub fn document(&self) -> S3Result<Vec<u8>> {
        base64_simd::STANDARD
            .decode_to_vec(self.document.trim())
            .map_err(|_| refused("Invalid Policy: it is not base64."))
    }
}

/// Checks that the policy is in force, that every condition holds, and that it speaks of every
/// field. Returns the range of the file's size, if it states one.
pub fn checked(document: &[u8], bucket: &str, fields: &Fields, now: SystemTime) -> S3Result<Option<(u64, u64)>> {
    let json: Value = serde_json::from_slice(document).map_err(|_| refused("Invalid Policy: Invalid JSON."))?;
    let expiration = json.get("expiration").and_then(Value::as_str);
    let expiration = expiration.ok_or_else(|| refused("Invalid Policy: Policy missing expiration."))?;
    let seconds = seconds_of(expiration).ok_or_else(|| refused("Invalid Policy: Invalid 'expiration' value."))?;
    if UNIX_EPOCH + Duration::from_secs(seconds) <= now {
        return Err(refuse(S3ErrorCode::AccessDenied, "Invalid according to Policy: Policy expired."));
    }
    let conditions = json.get("conditions").and_then(Value::as_array);
    let conditions = conditions.ok_or_else(|| refused("Invalid Policy: Policy missing conditions."))?;
    if conditions.len() > CONDITIONS_MAX {
        return Err(refused("Invalid Policy: it has too many conditions."));
    }
    let mut spoken: Vec<String> = Vec::new();
    let mut range: Option<(u64, u64)> = None;
    for condition in conditions {
        match Condition::read(condition)? {
            // Of several each has to hold.
            Condition::Size(least, most) => {
                let (above, below) = range.unwrap_or((0, u64::MAX));
                range = Some((least.max(above), most.min(below)));
            }
            Condition::Field { name, text, starts } => {
                let value = if name == "bucket" { Some(bucket) } else { fields.get(&name) };
                let value = value.unwrap_or_default();
                let holds = if starts { starts_with(&name, value, &text) } else { value == text };
                if !holds {
                    return Err(refuse(
                        S3ErrorCode::AccessDenied,
                        format!("Invalid according to Policy: Policy Condition failed: {condition}"),
                    ));
                }
                spoken.push(name);
            }
        }
    }
    if !spoken.iter().any(|name| name == "bucket") {
        return Err(refuse(S3ErrorCode::AccessDenied, "Invalid according to Policy: Extra input fields: bucket"));
    }
    let free =
        |name: &str| ["policy", "x-amz-signature", "file", "bucket"].contains(&name) || name.starts_with("x-ignore-");
    match fields.iter().find(|(name, _)| !free(name) && !spoken.iter().any(|known| known == name)) {
        Some((name, _)) => {
            Err(refuse(S3ErrorCode::AccessDenied, format!("Invalid according to Policy: Extra input fields: {name}")))
        }
        None => Ok(range),
    }
}

/// Of several content types each has to fit.
fn starts_with(name: &str, value: &str, beginning: &str) -> bool {
    match name {
        "content-type" => value.split(',').all(|one| one.trim().starts_with(beginning)),
        _ => value.starts_with(beginning),
    }
}

enum Condition {
    Field { name: String, text: String, starts: bool },
    Size(u64, u64),
}

impl Condition {
    fn read(json: &Value) -> S3Result<Condition> {
        let invalid = || refused("Invalid Policy: Invalid Simple-Condition or list condition.");
        if let Some(object) = json.as_object() {
            let mut members = object.iter();
            let (Some((name, Value::String(text))), None) = (members.next(), members.next()) else {
                return Err(invalid());
            };
            return Ok(Condition::Field { name: name.to_ascii_lowercase(), text: text.clone(), starts: false });
        }
        let list = json.as_array().ok_or_else(invalid)?;
        let [Value::String(operator), second, third] = list.as_slice() else { return Err(invalid()) };
        if operator.eq_ignore_ascii_case("content-length-range") {
            let size = |value: &Value| {
                let number = value.as_u64();
                number.or_else(|| value.as_str().and_then(|text| text.parse().ok())).ok_or_else(invalid)
            };
            return Ok(Condition::Size(size(second)?, size(third)?));
        }
        let starts = match operator.to_ascii_lowercase().as_str() {
            "eq" => false,
            "starts-with" => true,
            _ => return Err(invalid()),
        };
        let (Some(name), Some(text)) = (second.as_str().and_then(|name| name.strip_prefix('$')), third.as_str()) else {
            return Err(invalid());
        };
        Ok(Condition::Field { name: name.to_ascii_lowercase(), text: text.to_owned(), starts })
    }
}

/// Seconds of `2030-01-31T12:00:00Z`, with or without a fraction, which is dropped.
fn seconds_of(text: &str) -> Option<u64> {
    let whole = match text.split_once('.') {
        Some((whole, fraction)) if fraction.ends_with('Z') => format!("{whole}Z"),
        Some(_) => return None,
        None => text.to_owned(),
    };
    stele_ground::calendar::parse_moment(&whole)
}

fn missing(name: &str) -> S3Error {
    refuse(S3ErrorCode::InvalidArgument, format!("Bucket POST must contain a field named '{name}'."))
}

fn invalid(message: &'static str) -> S3Error {
    refuse(S3ErrorCode::InvalidArgument, message)
}

fn refused(message: &'static str) -> S3Error {
    refuse(S3ErrorCode::InvalidPolicyDocument, message)
}
