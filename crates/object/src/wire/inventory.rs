//! Inventories of a bucket.

use super::{Answer, Wire};
use crate::call::Call;
use crate::refusal::{no_such_configuration, refuse, translated};
use hyper::StatusCode;
use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use std::sync::Arc;
use stele_archive::{BucketChange, Inventory};

/// GetBucketInventoryConfiguration.
pub async fn get(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<GetBucketInventoryConfigurationInput>,
) -> Answer<GetBucketInventoryConfigurationOutput> {
    let input = request.input;
    let inventories = wire.archive.inventories(&call.caller, &input.bucket).await.map_err(translated)?;
    let inventory = inventories.into_iter().find(|inventory| inventory.id == input.id).ok_or_else(missing)?;
    let inventory_configuration = Some(told(inventory));
    Ok(S3Response::new(GetBucketInventoryConfigurationOutput { inventory_configuration }))
}

/// ListBucketInventoryConfigurations. A bucket has so few that one page has them all.
pub async fn list(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<ListBucketInventoryConfigurationsInput>,
) -> Answer<ListBucketInventoryConfigurationsOutput> {
    let input = request.input;
    if input.continuation_token.is_some() {
        return Err(invalid("The continuation token provided is incorrect"));
    }
    let inventories = wire.archive.inventories(&call.caller, &input.bucket).await.map_err(translated)?;
    Ok(S3Response::new(ListBucketInventoryConfigurationsOutput {
        is_truncated: Some(false),
        inventory_configuration_list: Some(inventories.into_iter().map(told).collect()),
        ..ListBucketInventoryConfigurationsOutput::default()
    }))
}

/// PutBucketInventoryConfiguration. Replaces the one with the same id.
pub async fn set(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<PutBucketInventoryConfigurationInput>,
) -> Answer<PutBucketInventoryConfigurationOutput> {
    let input = request.input;
    let configuration = input.inventory_configuration;
    if configuration.id != input.id {
        return Err(invalid("The id in the document is not the id of the request"));
    }
    let inventory = read(configuration)?;
    let change = BucketChange::Inventory(inventory);
    wire.archive.change_bucket(&call.caller, &input.bucket, change).await.map_err(translated)?;
    Ok(S3Response::with_status(PutBucketInventoryConfigurationOutput::default(), StatusCode::NO_CONTENT))
}

/// DeleteBucketInventoryConfiguration.
pub async fn remove(
    wire: &Wire,
    call: Arc<Call>,
    request: S3Request<DeleteBucketInventoryConfigurationInput>,
) -> Answer<DeleteBucketInventoryConfigurationOutput> {
    let input = request.input;
    let inventories = wire.archive.inventories(&call.caller, &input.bucket).await.map_err(translated)?;
    if !inventories.iter().any(|inventory| inventory.id == input.id) {
        return Err(missing());
    }
    let change = BucketChange::NoInventory(input.id);
    wire.archive.change_bucket(&call.caller, &input.bucket, change).await.map_err(translated)?;
    Ok(S3Response::with_status(DeleteBucketInventoryConfigurationOutput::default(), StatusCode::NO_CONTENT))
}

fn read(configuration: InventoryConfiguration) -> S3Result<Inventory> {
    let destination = configuration.destination.s3_bucket_destination;
    if destination.format.as_str() != InventoryFormat::CSV {
        return Err(refuse(S3ErrorCode::NotImplemented, "Inventories are written as CSV alone."));
    }
    if destination.encryption.is_some_and(|encryption| encryption.ssekms.is_some()) {
        return Err(refuse(S3ErrorCode::NotImplemented, "KMS is not implemented."));
    }
    let bucket = destination.bucket.strip_prefix("arn:aws:s3:::").ok_or_else(|| invalid("Invalid bucket ARN."))?;
    let fields = configuration.optional_fields.into_iter().flatten();
    Ok(Inventory {
        bucket: bucket.to_owned(),
        id: configuration.id,
        enabled: configuration.is_enabled,
        prefix: destination.prefix,
        filter: configuration.filter.map(|filter| filter.prefix),
        all_versions: match configuration.included_object_versions.as_str() {
            InventoryIncludedObjectVersions::ALL => true,
            InventoryIncludedObjectVersions::CURRENT => false,
            _ => return Err(malformed()),
        },
        weekly: match configuration.schedule.frequency.as_str() {
            InventoryFrequency::WEEKLY => true,
            InventoryFrequency::DAILY => false,
            _ => return Err(malformed()),
        },
        fields: fields.map(|field| field.as_str().to_owned()).collect(),
    })
}

fn told(inventory: Inventory) -> InventoryConfiguration {
    let fields: Vec<_> = inventory.fields.into_iter().map(InventoryOptionalField::from).collect();
    InventoryConfiguration {
        destination: InventoryDestination {
            s3_bucket_destination: InventoryS3BucketDestination {
                account_id: None,
                bucket: format!("arn:aws:s3:::{}", inventory.bucket),
                encryption: None,
                format: InventoryFormat::from_static(InventoryFormat::CSV),
                prefix: inventory.prefix,
            },
        },
        filter: inventory.filter.map(|prefix| InventoryFilter { prefix }),
        id: inventory.id,
        included_object_versions: InventoryIncludedObjectVersions::from_static(match inventory.all_versions {
            true => InventoryIncludedObjectVersions::ALL,
            false => InventoryIncludedObjectVersions::CURRENT,
        }),
        is_enabled: inventory.enabled,
        optional_fields: (!fields.is_empty()).then_some(fields),
        schedule: InventorySchedule {
            frequency: InventoryFrequency::from_static(match inventory.weekly {
                true => InventoryFrequency::WEEKLY,
                false => InventoryFrequency::DAILY,
            }),
        },
    }
}

fn missing() -> S3Error {
    no_such_configuration()
}

fn invalid(message: &'static str) -> S3Error {
    refuse(S3ErrorCode::InvalidArgument, message)
}

fn malformed() -> S3Error {
    refuse(
        S3ErrorCode::MalformedXML,
        "The XML you provided was not well-formed or did not validate against our published schema",
    )
}
