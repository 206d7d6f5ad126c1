//! The operations of S3, from the wire crate's inputs to the archive and back.
//!
//! It only translates: the archive decides about rights and retention. Missing operations answer
//! `NotImplemented`, the wire crate's own default.

mod arrival;
mod bucket;
mod checksum;
mod convert;
mod copy;
mod cors;
mod deletion;
mod disclosure;
mod elements;
mod inventory;
mod lifecycle;
mod listing;
mod lock;
mod logging;
mod multipart;
mod notification;
mod object;
mod policy;
pub(crate) mod receipt;
mod tagging;
mod unset;
mod vocabulary;

use crate::call::Call;
use crate::objects::Objects;
use crate::operation::Operation;
use crate::settings::Settings;
use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result};
use std::sync::Arc;
use stele_archive::Archive;

pub(crate) use checksum::{Digests, is_of_nothing, verify_document};
pub(crate) use convert::archive_time;
pub(crate) use elements::{is_whole_number, only, plain_elements};
pub(crate) use object::{body_of, pump};

/// The archive and its objects, for the operations.
pub struct Wire {
    pub(crate) archive: Archive,
    pub(crate) objects: Objects,
    pub(crate) settings: Arc<Settings>,
}

type Answer<T> = S3Result<S3Response<T>>;

macro_rules! operations {
    ($($method:ident($operation:ident, $input:ident) -> $output:ident = $way:path;)*) => {
        #[async_trait::async_trait]
        impl S3 for Wire {
            $(
                async fn $method(&self, mut request: S3Request<$input>) -> S3Result<S3Response<$output>> {
                    let call = Call::of(&mut request, Operation::$operation)?;
                    vocabulary::check(Operation::$operation, &request.headers)?;
                    receipt::check(Operation::$operation, &request.headers)?;
                    $way(self, call, request).await
                }
            )*
        }
    };
}

operations! {
    create_bucket(CreateBucket, CreateBucketInput) -> CreateBucketOutput = bucket::create;
    delete_bucket(DeleteBucket, DeleteBucketInput) -> DeleteBucketOutput = bucket::delete;
    head_bucket(HeadBucket, HeadBucketInput) -> HeadBucketOutput = bucket::head;
    list_buckets(ListBuckets, ListBucketsInput) -> ListBucketsOutput = bucket::list;
    get_bucket_location(GetBucketLocation, GetBucketLocationInput) -> GetBucketLocationOutput = bucket::location;
    get_bucket_versioning(GetBucketVersioning, GetBucketVersioningInput) -> GetBucketVersioningOutput = bucket::versioning;
    put_bucket_versioning(PutBucketVersioning, PutBucketVersioningInput) -> PutBucketVersioningOutput = bucket::set_versioning;
    get_bucket_encryption(GetBucketEncryption, GetBucketEncryptionInput) -> GetBucketEncryptionOutput = bucket::encryption;
    put_bucket_encryption(PutBucketEncryption, PutBucketEncryptionInput) -> PutBucketEncryptionOutput = unset::set_encryption;
    delete_bucket_encryption(DeleteBucketEncryption, DeleteBucketEncryptionInput) -> DeleteBucketEncryptionOutput = unset::remove_encryption;
    get_bucket_policy(GetBucketPolicy, GetBucketPolicyInput) -> GetBucketPolicyOutput = policy::document;
    get_bucket_policy_status(GetBucketPolicyStatus, GetBucketPolicyStatusInput) -> GetBucketPolicyStatusOutput = policy::status;
    get_bucket_cors(GetBucketCors, GetBucketCorsInput) -> GetBucketCorsOutput = cors::get;
    get_bucket_lifecycle_configuration(GetBucketLifecycleConfiguration, GetBucketLifecycleConfigurationInput) -> GetBucketLifecycleConfigurationOutput = lifecycle::get;
    get_bucket_replication(GetBucketReplication, GetBucketReplicationInput) -> GetBucketReplicationOutput = unset::replication;
    get_bucket_website(GetBucketWebsite, GetBucketWebsiteInput) -> GetBucketWebsiteOutput = unset::website;
    get_public_access_block(GetPublicAccessBlock, GetPublicAccessBlockInput) -> GetPublicAccessBlockOutput = policy::access_block;
    put_bucket_policy(PutBucketPolicy, PutBucketPolicyInput) -> PutBucketPolicyOutput = policy::set;
    delete_bucket_policy(DeleteBucketPolicy, DeleteBucketPolicyInput) -> DeleteBucketPolicyOutput = policy::remove;
    put_bucket_cors(PutBucketCors, PutBucketCorsInput) -> PutBucketCorsOutput = cors::set;
    delete_bucket_cors(DeleteBucketCors, DeleteBucketCorsInput) -> DeleteBucketCorsOutput = cors::remove;
    put_bucket_lifecycle_configuration(PutBucketLifecycleConfiguration, PutBucketLifecycleConfigurationInput) -> PutBucketLifecycleConfigurationOutput = lifecycle::set;
    delete_bucket_lifecycle(DeleteBucketLifecycle, DeleteBucketLifecycleInput) -> DeleteBucketLifecycleOutput = lifecycle::remove;
    put_public_access_block(PutPublicAccessBlock, PutPublicAccessBlockInput) -> PutPublicAccessBlockOutput = policy::set_access_block;
    delete_public_access_block(DeletePublicAccessBlock, DeletePublicAccessBlockInput) -> DeletePublicAccessBlockOutput = policy::remove_access_block;
    put_bucket_ownership_controls(PutBucketOwnershipControls, PutBucketOwnershipControlsInput) -> PutBucketOwnershipControlsOutput = policy::set_ownership;
    get_bucket_logging(GetBucketLogging, GetBucketLoggingInput) -> GetBucketLoggingOutput = logging::get;
    put_bucket_logging(PutBucketLogging, PutBucketLoggingInput) -> PutBucketLoggingOutput = logging::set;
    get_bucket_notification_configuration(GetBucketNotificationConfiguration, GetBucketNotificationConfigurationInput) -> GetBucketNotificationConfigurationOutput = notification::get;
    get_bucket_inventory_configuration(GetBucketInventoryConfiguration, GetBucketInventoryConfigurationInput) -> GetBucketInventoryConfigurationOutput = inventory::get;
    list_bucket_inventory_configurations(ListBucketInventoryConfigurations, ListBucketInventoryConfigurationsInput) -> ListBucketInventoryConfigurationsOutput = inventory::list;
    put_bucket_inventory_configuration(PutBucketInventoryConfiguration, PutBucketInventoryConfigurationInput) -> PutBucketInventoryConfigurationOutput = inventory::set;
    delete_bucket_inventory_configuration(DeleteBucketInventoryConfiguration, DeleteBucketInventoryConfigurationInput) -> DeleteBucketInventoryConfigurationOutput = inventory::remove;
    put_bucket_notification_configuration(PutBucketNotificationConfiguration, PutBucketNotificationConfigurationInput) -> PutBucketNotificationConfigurationOutput = notification::set;
    get_bucket_accelerate_configuration(GetBucketAccelerateConfiguration, GetBucketAccelerateConfigurationInput) -> GetBucketAccelerateConfigurationOutput = unset::accelerate;
    get_bucket_request_payment(GetBucketRequestPayment, GetBucketRequestPaymentInput) -> GetBucketRequestPaymentOutput = unset::request_payment;
    get_bucket_acl(GetBucketAcl, GetBucketAclInput) -> GetBucketAclOutput = bucket::acl;
    get_bucket_ownership_controls(GetBucketOwnershipControls, GetBucketOwnershipControlsInput) -> GetBucketOwnershipControlsOutput = bucket::ownership;
    get_bucket_tagging(GetBucketTagging, GetBucketTaggingInput) -> GetBucketTaggingOutput = tagging::of_bucket;
    put_bucket_tagging(PutBucketTagging, PutBucketTaggingInput) -> PutBucketTaggingOutput = tagging::set_of_bucket;
    delete_bucket_tagging(DeleteBucketTagging, DeleteBucketTaggingInput) -> DeleteBucketTaggingOutput = tagging::remove_of_bucket;
    get_object_tagging(GetObjectTagging, GetObjectTaggingInput) -> GetObjectTaggingOutput = tagging::of_object;
    put_object_tagging(PutObjectTagging, PutObjectTaggingInput) -> PutObjectTaggingOutput = tagging::set_of_object;
    delete_object_tagging(DeleteObjectTagging, DeleteObjectTaggingInput) -> DeleteObjectTaggingOutput = tagging::remove_of_object;
    put_object(PutObject, PutObjectInput) -> PutObjectOutput = object::put;
    get_object(GetObject, GetObjectInput) -> GetObjectOutput = object::get;
    head_object(HeadObject, HeadObjectInput) -> HeadObjectOutput = object::head;
    get_object_attributes(GetObjectAttributes, GetObjectAttributesInput) -> GetObjectAttributesOutput = object::attributes;
    get_object_acl(GetObjectAcl, GetObjectAclInput) -> GetObjectAclOutput = object::acl;
    copy_object(CopyObject, CopyObjectInput) -> CopyObjectOutput = copy::object;
    upload_part_copy(UploadPartCopy, UploadPartCopyInput) -> UploadPartCopyOutput = copy::part;
    delete_object(DeleteObject, DeleteObjectInput) -> DeleteObjectOutput = deletion::one;
    delete_objects(DeleteObjects, DeleteObjectsInput) -> DeleteObjectsOutput = deletion::many;
    list_objects(ListObjects, ListObjectsInput) -> ListObjectsOutput = listing::first;
    list_objects_v2(ListObjectsV2, ListObjectsV2Input) -> ListObjectsV2Output = listing::second;
    list_object_versions(ListObjectVersions, ListObjectVersionsInput) -> ListObjectVersionsOutput = listing::versions;
    create_multipart_upload(CreateMultipartUpload, CreateMultipartUploadInput) -> CreateMultipartUploadOutput = multipart::create;
    upload_part(UploadPart, UploadPartInput) -> UploadPartOutput = multipart::part;
    complete_multipart_upload(CompleteMultipartUpload, CompleteMultipartUploadInput) -> CompleteMultipartUploadOutput = multipart::complete;
    abort_multipart_upload(AbortMultipartUpload, AbortMultipartUploadInput) -> AbortMultipartUploadOutput = multipart::abort;
    list_parts(ListParts, ListPartsInput) -> ListPartsOutput = multipart::parts;
    list_multipart_uploads(ListMultipartUploads, ListMultipartUploadsInput) -> ListMultipartUploadsOutput = multipart::uploads;
    get_object_lock_configuration(GetObjectLockConfiguration, GetObjectLockConfigurationInput) -> GetObjectLockConfigurationOutput = lock::configuration;
    put_object_lock_configuration(PutObjectLockConfiguration, PutObjectLockConfigurationInput) -> PutObjectLockConfigurationOutput = lock::set_configuration;
    get_object_retention(GetObjectRetention, GetObjectRetentionInput) -> GetObjectRetentionOutput = lock::retention;
    put_object_retention(PutObjectRetention, PutObjectRetentionInput) -> PutObjectRetentionOutput = lock::set_retention;
    get_object_legal_hold(GetObjectLegalHold, GetObjectLegalHoldInput) -> GetObjectLegalHoldOutput = lock::legal_hold;
    put_object_legal_hold(PutObjectLegalHold, PutObjectLegalHoldInput) -> PutObjectLegalHoldOutput = lock::set_legal_hold;
}
