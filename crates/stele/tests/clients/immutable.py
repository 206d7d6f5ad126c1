"""A backup repository that is immutable: the S3 operations for which Veeam's user guide asks permission, in boto3.

The guide asks for a bucket with versions and Object Lock and without default retention; each object gets the mode
COMPLIANCE. The order of the calls is this test's. Keys and endpoint come from the environment; ends with 'all held'.
"""

import datetime
import os

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

BUCKET = "repository"
FOLDER = "Backup/Archive/"
config = Config(s3={"addressing_style": "path"}, signature_version="s3v4", retries={"max_attempts": 1})
s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"], config=config)
now = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)


def retention(days):
    return {"Mode": "COMPLIANCE", "RetainUntilDate": now + datetime.timedelta(days=days)}


def refused(call, **arguments):
    try:
        call(Bucket=BUCKET, **arguments)
    except ClientError as error:
        assert error.response["Error"]["Code"] == "AccessDenied", error
        return
    raise AssertionError(f"{call.__name__}({arguments}) was not refused")


def versions(prefix=FOLDER):
    pages = s3.get_paginator("list_object_versions").paginate(
        Bucket=BUCKET, Prefix=prefix, PaginationConfig={"PageSize": 2}
    )
    return [(v["Key"], v["VersionId"]) for page in pages for v in page.get("Versions", [])]


# The repository is added: the bucket shows that it is fit.
s3.create_bucket(Bucket=BUCKET, ObjectLockEnabledForBucket=True)
assert BUCKET in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
s3.get_bucket_location(Bucket=BUCKET)
assert s3.get_bucket_versioning(Bucket=BUCKET)["Status"] == "Enabled"
assert s3.get_object_lock_configuration(Bucket=BUCKET)["ObjectLockConfiguration"] == {"ObjectLockEnabled": "Enabled"}

# Blocks are stored; another object beside the folder has no part in it.
stored = {}
for number in range(5):
    key = f"{FOLDER}blocks/{number}.blk"
    locked = {"ObjectLockMode": "COMPLIANCE", "ObjectLockRetainUntilDate": retention(10)["RetainUntilDate"]}
    put = s3.put_object(Bucket=BUCKET, Key=key, Body=key.encode(), ChecksumAlgorithm="SHA256", **locked)
    stored[key] = put["VersionId"]
s3.put_object(Bucket=BUCKET, Key="Backup/Archive-other", Body=b"")
assert versions() == sorted(stored.items()), versions()

# A later backup uses them again: their retention is extended, and never shortened.
for key, version in stored.items():
    named = {"Key": key, "VersionId": version}
    s3.put_object_retention(Bucket=BUCKET, Retention=retention(30), **named)
    assert s3.get_object_retention(Bucket=BUCKET, **named)["Retention"] == retention(30)
    refused(s3.put_object_retention, Retention=retention(10), **named)

# A new version is put over a locked key, and each has its own retention.
key = next(iter(stored))
over = s3.put_object(Bucket=BUCKET, Key=key, Body=b"over", **locked)["VersionId"]
assert versions(key) == [(key, over), (key, stored[key])], versions(key)
assert s3.get_object_retention(Bucket=BUCKET, Key=key)["Retention"] == retention(10)

# An intruder with the key of the repository removes what it can.
all_versions = versions()
answer = s3.delete_objects(
    Bucket=BUCKET, Delete={"Objects": [{"Key": key, "VersionId": version} for key, version in all_versions]}
)
assert "Deleted" not in answer, answer
errors = sorted((error["Key"], error["VersionId"], error["Code"]) for error in answer["Errors"])
assert errors == sorted((key, version, "AccessDenied") for key, version in all_versions), errors
for key, version in all_versions:
    refused(s3.delete_object, Key=key, VersionId=version, BypassGovernanceRetention=True)
s3.delete_objects(Bucket=BUCKET, Delete={"Objects": [{"Key": key} for key in stored], "Quiet": True})
assert s3.list_objects_v2(Bucket=BUCKET, Prefix=FOLDER)["KeyCount"] == 0

# Each version is still there and readable, and comes back once the delete markers go.
assert versions() == all_versions
for key, version in stored.items():
    assert s3.get_object(Bucket=BUCKET, Key=key, VersionId=version)["Body"].read() == key.encode()
for marker in s3.list_object_versions(Bucket=BUCKET, Prefix=FOLDER)["DeleteMarkers"]:
    s3.delete_object(Bucket=BUCKET, Key=marker["Key"], VersionId=marker["VersionId"])
assert s3.list_objects_v2(Bucket=BUCKET, Prefix=FOLDER)["KeyCount"] == len(stored)
print("all held")
