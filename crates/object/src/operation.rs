//! The names of the S3 operations, and of those of restic's REST protocol, for metrics and logs.

macro_rules! operations {
    ($($name:ident),* $(,)?) => {
        /// An S3 operation this frontend knows.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Operation {
            $(
                #[allow(missing_docs)]
                $name,
            )*
            /// A request that was refused before its operation was known, or that names an unknown
            /// operation.
            Unknown,
        }

        impl Operation {
            /// Every operation, for tables.
            pub const ALL: &[Operation] = &[$(Operation::$name,)* Operation::Unknown];

            /// The name of the operation: on AWS, if it is one of S3.
            pub fn name(self) -> &'static str {
                match self {
                    $(Operation::$name => stringify!($name),)*
                    Operation::Unknown => "Unknown",
                }
            }
        }
    };
}

operations! {
    AbortMultipartUpload,
    AssumeRole,
    CompleteMultipartUpload,
    CopyObject,
    CreateBucket,
    CreateMultipartUpload,
    DeleteBucket,
    DeleteBucketCors,
    DeleteBucketEncryption,
    DeleteBucketInventoryConfiguration,
    DeleteBucketLifecycle,
    DeleteBucketPolicy,
    DeleteBucketTagging,
    DeleteObject,
    DeleteObjectTagging,
    DeleteObjects,
    DeletePublicAccessBlock,
    GetBucketAccelerateConfiguration,
    GetBucketAcl,
    GetBucketCors,
    GetBucketEncryption,
    GetBucketInventoryConfiguration,
    GetBucketLifecycleConfiguration,
    GetBucketLocation,
    GetBucketLogging,
    GetBucketNotificationConfiguration,
    GetBucketOwnershipControls,
    GetBucketPolicy,
    GetBucketPolicyStatus,
    GetBucketReplication,
    GetBucketRequestPayment,
    GetBucketTagging,
    GetBucketVersioning,
    GetBucketWebsite,
    GetCallerIdentity,
    GetObject,
    GetObjectAcl,
    GetObjectAttributes,
    GetObjectLegalHold,
    GetObjectLockConfiguration,
    GetObjectRetention,
    GetObjectTagging,
    GetPublicAccessBlock,
    HeadBucket,
    HeadObject,
    ListBucketInventoryConfigurations,
    ListBuckets,
    ListMultipartUploads,
    ListObjectVersions,
    ListObjects,
    ListObjectsV2,
    ListParts,
    PutBucketCors,
    PutBucketEncryption,
    PutBucketInventoryConfiguration,
    PutBucketLifecycleConfiguration,
    PutBucketLogging,
    PutBucketNotificationConfiguration,
    PutBucketOwnershipControls,
    PutBucketPolicy,
    PutBucketTagging,
    PutBucketVersioning,
    PutObject,
    PutObjectLegalHold,
    PutObjectLockConfiguration,
    PutObjectRetention,
    PutObjectTagging,
    PutPublicAccessBlock,
    RestCreate,
    RestDelete,
    RestGet,
    RestHead,
    RestList,
    RestPut,
    UploadPart,
    UploadPartCopy,
}

impl Operation {
    /// The index in a table of all operations.
    pub fn index(self) -> usize {
        self as usize
    }
}
