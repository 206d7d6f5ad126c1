//! The S3 operations by name, as metrics and logs know them.

macro_rules! operations {
    ($($name:ident),* $(,)?) => {
        /// An S3 operation this frontend knows.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum Operation {
            $(
                #[allow(missing_docs)]
                $name,
            )*
            /// A request that was refused before it was known what it asks for, or asks for something unknown.
            Unknown,
        }

        impl Operation {
            /// Every operation, for tables.
            pub const ALL: &[Operation] = &[$(Operation::$name,)* Operation::Unknown];

            /// The name AWS gives it.
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
    CompleteMultipartUpload,
    CopyObject,
    CreateBucket,
    CreateMultipartUpload,
    DeleteBucket,
    DeleteBucketEncryption,
    DeleteBucketTagging,
    DeleteObject,
    DeleteObjectTagging,
    DeleteObjects,
    GetBucketAccelerateConfiguration,
    GetBucketAcl,
    GetBucketCors,
    GetBucketEncryption,
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
    ListBuckets,
    ListMultipartUploads,
    ListObjectVersions,
    ListObjects,
    ListObjectsV2,
    ListParts,
    PutBucketEncryption,
    PutBucketTagging,
    PutBucketVersioning,
    PutObject,
    PutObjectLegalHold,
    PutObjectLockConfiguration,
    PutObjectRetention,
    PutObjectTagging,
    UploadPart,
    UploadPartCopy,
}

impl Operation {
    /// The place in a table of all.
    pub fn index(self) -> usize {
        self as usize
    }
}
