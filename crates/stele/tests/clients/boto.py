"""What boto3 expects of S3. Keys and endpoint come from the environment; ends with 'all held'."""

import datetime
import hashlib
import os
import urllib.request

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

ENDPOINT = os.environ["AWS_ENDPOINT_URL"]
RETRY_NEVER = {"max_attempts": 1}


def client(**options):
    config = Config(s3={"addressing_style": "path"}, signature_version="s3v4", retries=RETRY_NEVER)
    return boto3.client("s3", endpoint_url=ENDPOINT, config=config, **options)


s3 = client()
held = []


def check(rule):
    """Runs what it decorates, and counts it."""
    rule()
    held.append(rule.__name__)
    return rule


def refused(code, call, **arguments):
    try:
        call(**arguments)
    except ClientError as error:
        answer = error.response["Error"]["Code"]
        assert answer == code, f"{call.__name__}({arguments}) answered {answer}, not {code}"
        return
    raise AssertionError(f"{call.__name__}({arguments}) was not refused with {code}")


def until(days):
    return datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)


def body(key, bucket="plain", **arguments):
    return s3.get_object(Bucket=bucket, Key=key, **arguments)["Body"].read()


@check
def buckets():
    s3.create_bucket(Bucket="plain")
    s3.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
    assert [b["Name"] for b in s3.list_buckets()["Buckets"]] == ["locked", "plain"]
    s3.head_bucket(Bucket="plain")
    refused("404", s3.head_bucket, Bucket="nowhere")
    refused("NoSuchBucket", s3.list_objects_v2, Bucket="nowhere")
    refused("InvalidBucketName", s3.create_bucket, Bucket="1.2.3.4")
    assert s3.get_bucket_versioning(Bucket="locked")["Status"] == "Enabled"
    assert "Status" not in s3.get_bucket_versioning(Bucket="plain")


@check
def objects_with_metadata_and_ranges():
    data = bytes(range(256)) * 1000
    put = s3.put_object(
        Bucket="plain", Key="a", Body=data, ContentType="text/x", Metadata={"who": "me"}, CacheControl="no-store"
    )
    assert put["ETag"] == f'"{hashlib.md5(data).hexdigest()}"'
    got = s3.get_object(Bucket="plain", Key="a")
    assert got["Body"].read() == data
    assert (got["ContentType"], got["Metadata"], got["CacheControl"]) == ("text/x", {"who": "me"}, "no-store")
    head = s3.head_object(Bucket="plain", Key="a")
    assert head["ContentLength"] == len(data) and head["ETag"] == put["ETag"]
    for text, part in [("bytes=0-0", data[:1]), ("bytes=65530-65550", data[65530:65551]), ("bytes=-7", data[-7:])]:
        ranged = s3.get_object(Bucket="plain", Key="a", Range=text)
        assert ranged["Body"].read() == part and ranged["ResponseMetadata"]["HTTPStatusCode"] == 206
    refused("InvalidRange", s3.get_object, Bucket="plain", Key="a", Range="bytes=999999-")
    refused("NoSuchKey", s3.get_object, Bucket="plain", Key="none")
    refused("404", s3.head_object, Bucket="plain", Key="none")


@check
def conditions():
    etag = s3.head_object(Bucket="plain", Key="a")["ETag"]
    refused("PreconditionFailed", s3.get_object, Bucket="plain", Key="a", IfMatch='"other"')
    refused("304", s3.get_object, Bucket="plain", Key="a", IfNoneMatch=etag)
    refused("PreconditionFailed", s3.put_object, Bucket="plain", Key="a", Body=b"", IfNoneMatch="*")
    s3.put_object(Bucket="plain", Key="only-once", Body=b"1", IfNoneMatch="*")
    s3.get_object(Bucket="plain", Key="a", IfMatch=etag)


@check
def checksums():
    for algorithm in ["CRC32", "SHA1", "SHA256"]:
        field = f"Checksum{algorithm}"
        put = s3.put_object(Bucket="plain", Key="sum", Body=b"hello", ChecksumAlgorithm=algorithm)
        head = s3.head_object(Bucket="plain", Key="sum", ChecksumMode="ENABLED")
        assert put[field] == head[field], algorithm
    refused("BadDigest", s3.put_object, Bucket="plain", Key="sum", Body=b"hello", ContentMD5="1B2M2Y8AsgTpgAmY7PhCfg==")
    wrong = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="
    try:
        s3.put_object(Bucket="plain", Key="sum", Body=b"hello", ChecksumSHA256=wrong)
        raise AssertionError("a wrong SHA-256 was taken")
    except ClientError as error:
        code = error.response["Error"]["Code"]
        assert code in ("BadDigest", "XAmzContentChecksumMismatch", "InvalidRequest"), code
    assert body("sum") == b"hello"


@check
def keys_with_every_kind_of_byte():
    keys = ["sp ace", "pl+us", "per%20cent", "q?u=e&r", "ünï/cødé/日本", "a//b", "/lead", "trail/", "tab\tx", "'\"<>&", "x" * 1024]
    for key in keys:
        s3.put_object(Bucket="plain", Key="k/" + key if len(key) < 1000 else key, Body=key.encode())
    for key in keys:
        assert body("k/" + key if len(key) < 1000 else key) == key.encode(), key
    listed = [o["Key"] for o in s3.list_objects_v2(Bucket="plain", Prefix="k/")["Contents"]]
    expected = ["k/" + key for key in keys if len(key) < 1000]
    assert listed == sorted(expected, key=lambda key: key.encode()), listed
    refused("KeyTooLongError", s3.put_object, Bucket="plain", Key="x" * 1025, Body=b"")


@check
def listing():
    for name in ["l/a", "l/b/1", "l/b/2", "l/c", "l/d/e/f"]:
        s3.put_object(Bucket="plain", Key=name, Body=b"")
    one = s3.list_objects_v2(Bucket="plain", Prefix="l/", Delimiter="/")
    assert [o["Key"] for o in one["Contents"]] == ["l/a", "l/c"]
    assert [p["Prefix"] for p in one["CommonPrefixes"]] == ["l/b/", "l/d/"]
    pages = s3.get_paginator("list_objects_v2").paginate(
        Bucket="plain", Prefix="l/", Delimiter="/", PaginationConfig={"PageSize": 1}
    )
    seen = []
    for page in pages:
        seen += [o["Key"] for o in page.get("Contents", [])] + [p["Prefix"] for p in page.get("CommonPrefixes", [])]
    assert seen == ["l/a", "l/b/", "l/c", "l/d/"], seen
    old = s3.list_objects(Bucket="plain", Prefix="l/", MaxKeys=2)
    assert [o["Key"] for o in old["Contents"]] == ["l/a", "l/b/1"] and old["IsTruncated"]
    after = s3.list_objects_v2(Bucket="plain", Prefix="l/", StartAfter="l/b/2")
    assert [o["Key"] for o in after["Contents"]] == ["l/c", "l/d/e/f"]


@check
def copies_tags_and_batch_deletes():
    s3.put_object(Bucket="plain", Key="from", Body=b"copied", Metadata={"a": "1"}, Tagging="x=1&y=2")
    s3.copy_object(Bucket="plain", Key="to", CopySource={"Bucket": "plain", "Key": "from"})
    assert body("to") == b"copied" and s3.head_object(Bucket="plain", Key="to")["Metadata"] == {"a": "1"}
    s3.copy_object(
        Bucket="plain", Key="to", CopySource="plain/from", MetadataDirective="REPLACE", Metadata={"b": "2"}
    )
    assert s3.head_object(Bucket="plain", Key="to")["Metadata"] == {"b": "2"}
    tags = s3.get_object_tagging(Bucket="plain", Key="from")["TagSet"]
    assert sorted((t["Key"], t["Value"]) for t in tags) == [("x", "1"), ("y", "2")]
    s3.put_object_tagging(Bucket="plain", Key="from", Tagging={"TagSet": [{"Key": "z", "Value": "3"}]})
    assert s3.get_object_tagging(Bucket="plain", Key="from")["TagSet"] == [{"Key": "z", "Value": "3"}]
    s3.delete_object_tagging(Bucket="plain", Key="from")
    assert s3.get_object_tagging(Bucket="plain", Key="from")["TagSet"] == []
    answer = s3.delete_objects(Bucket="plain", Delete={"Objects": [{"Key": "from"}, {"Key": "to"}, {"Key": "never"}]})
    assert sorted(d["Key"] for d in answer["Deleted"]) == ["from", "never", "to"] and "Errors" not in answer
    refused("NoSuchKey", s3.get_object, Bucket="plain", Key="from")


@check
def multipart():
    upload = s3.create_multipart_upload(Bucket="plain", Key="mp", Metadata={"m": "1"})["UploadId"]
    blobs = {3: b"c" * 100, 1: b"a" * (5 << 20), 2: b"b" * (6 << 20)}
    etags = {}
    for number, blob in blobs.items():
        part = s3.upload_part(Bucket="plain", Key="mp", UploadId=upload, PartNumber=number, Body=blob)
        etags[number] = part["ETag"]
    assert [p["PartNumber"] for p in s3.list_parts(Bucket="plain", Key="mp", UploadId=upload)["Parts"]] == [1, 2, 3]
    assert [u["Key"] for u in s3.list_multipart_uploads(Bucket="plain")["Uploads"]] == ["mp"]
    parts = [{"PartNumber": n, "ETag": etags[n]} for n in (1, 2, 3)]
    disordered = {"Parts": parts[::-1]}
    refused("InvalidPartOrder", s3.complete_multipart_upload, Bucket="plain", Key="mp", UploadId=upload, MultipartUpload=disordered)
    missing = {"Parts": [{"PartNumber": 9, "ETag": etags[1]}]}
    refused("InvalidPart", s3.complete_multipart_upload, Bucket="plain", Key="mp", UploadId=upload, MultipartUpload=missing)
    done = s3.complete_multipart_upload(Bucket="plain", Key="mp", UploadId=upload, MultipartUpload={"Parts": parts})
    digests = b"".join(hashlib.md5(blobs[n]).digest() for n in (1, 2, 3))
    assert done["ETag"] == f'"{hashlib.md5(digests).hexdigest()}-3"'
    assert body("mp") == blobs[1] + blobs[2] + blobs[3]
    assert body("mp", Range=f"bytes={(5 << 20) - 2}-{(5 << 20) + 1}") == b"aabb"
    aborted = s3.create_multipart_upload(Bucket="plain", Key="gone")["UploadId"]
    s3.upload_part(Bucket="plain", Key="gone", UploadId=aborted, PartNumber=1, Body=b"x")
    s3.abort_multipart_upload(Bucket="plain", Key="gone", UploadId=aborted)
    refused("NoSuchUpload", s3.list_parts, Bucket="plain", Key="gone", UploadId=aborted)
    small = s3.create_multipart_upload(Bucket="plain", Key="small")["UploadId"]
    etags = [s3.upload_part(Bucket="plain", Key="small", UploadId=small, PartNumber=n, Body=b"x")["ETag"] for n in (1, 2)]
    parts = {"Parts": [{"PartNumber": n + 1, "ETag": etag} for n, etag in enumerate(etags)]}
    refused("EntityTooSmall", s3.complete_multipart_upload, Bucket="plain", Key="small", UploadId=small, MultipartUpload=parts)
    s3.abort_multipart_upload(Bucket="plain", Key="small", UploadId=small)


@check
def versions_and_markers():
    first = s3.put_object(Bucket="locked", Key="v", Body=b"1")["VersionId"]
    second = s3.put_object(Bucket="locked", Key="v", Body=b"2")["VersionId"]
    marker = s3.delete_object(Bucket="locked", Key="v")
    assert marker["DeleteMarker"]
    refused("NoSuchKey", s3.get_object, Bucket="locked", Key="v")
    refused("MethodNotAllowed", s3.get_object, Bucket="locked", Key="v", VersionId=marker["VersionId"])
    assert body("v", "locked", VersionId=first) == b"1"
    listed = s3.list_object_versions(Bucket="locked", Prefix="v")
    assert [v["VersionId"] for v in listed["Versions"]] == [second, first]
    assert listed["DeleteMarkers"][0]["IsLatest"]
    s3.delete_object(Bucket="locked", Key="v", VersionId=marker["VersionId"])
    assert body("v", "locked") == b"2"
    s3.delete_object(Bucket="locked", Key="v", VersionId=second)
    assert body("v", "locked") == b"1"
    refused("NoSuchVersion", s3.get_object, Bucket="locked", Key="v", VersionId=second)


@check
def compliance_only_gets_stronger():
    put = s3.put_object(
        Bucket="locked", Key="c", Body=b"record", ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=until(10)
    )
    version = {"Bucket": "locked", "Key": "c", "VersionId": put["VersionId"]}
    refused("AccessDenied", s3.delete_object, **version)
    refused("AccessDenied", s3.delete_object, BypassGovernanceRetention=True, **version)
    shorter = {"Mode": "COMPLIANCE", "RetainUntilDate": until(5)}
    refused("AccessDenied", s3.put_object_retention, Retention=shorter, **version)
    refused("AccessDenied", s3.put_object_retention, Retention={"Mode": "GOVERNANCE", "RetainUntilDate": until(20)}, **version)
    s3.put_object_retention(Retention={"Mode": "COMPLIANCE", "RetainUntilDate": until(20)}, **version)
    kept = s3.get_object_retention(**version)["Retention"]
    assert kept["Mode"] == "COMPLIANCE" and kept["RetainUntilDate"] > until(19)
    answer = s3.delete_objects(Bucket="locked", Delete={"Objects": [{"Key": "c", "VersionId": put["VersionId"]}, {"Key": "v"}]})
    assert [e["Code"] for e in answer["Errors"]] == ["AccessDenied"] and answer["Deleted"][0]["Key"] == "v"
    assert body("c", "locked") == b"record"


@check
def governance_and_holds():
    put = s3.put_object(
        Bucket="locked", Key="g", Body=b"", ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate=until(10)
    )
    version = {"Bucket": "locked", "Key": "g", "VersionId": put["VersionId"]}
    refused("AccessDenied", s3.delete_object, **version)
    s3.put_object_legal_hold(LegalHold={"Status": "ON"}, **version)
    assert s3.get_object_legal_hold(**version)["LegalHold"]["Status"] == "ON"
    refused("AccessDenied", s3.delete_object, BypassGovernanceRetention=True, **version)
    s3.put_object_legal_hold(LegalHold={"Status": "OFF"}, **version)
    s3.delete_object(BypassGovernanceRetention=True, **version)


@check
def default_retention():
    rule = {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}
    s3.put_object_lock_configuration(
        Bucket="locked", ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": rule}
    )
    assert s3.get_object_lock_configuration(Bucket="locked")["ObjectLockConfiguration"]["Rule"] == rule
    put = s3.put_object(Bucket="locked", Key="d", Body=b"")
    head = s3.head_object(Bucket="locked", Key="d")
    assert head["ObjectLockMode"] == "COMPLIANCE" and head["VersionId"] == put["VersionId"]
    refused("AccessDenied", s3.delete_object, Bucket="locked", Key="d", VersionId=put["VersionId"])
    refused("InvalidBucketState", s3.put_bucket_versioning, Bucket="locked", VersioningConfiguration={"Status": "Suspended"})
    refused("BucketNotEmpty", s3.delete_bucket, Bucket="locked")


@check
def presigned():
    url = s3.generate_presigned_url("put_object", Params={"Bucket": "plain", "Key": "signed"}, ExpiresIn=60)
    urllib.request.urlopen(urllib.request.Request(url, data=b"by url", method="PUT")).read()
    url = s3.generate_presigned_url("get_object", Params={"Bucket": "plain", "Key": "signed"}, ExpiresIn=60)
    assert urllib.request.urlopen(url).read() == b"by url"
    for wrong in [url[:-1] + ("0" if url[-1] != "0" else "1"), url.split("?")[0]]:
        try:
            urllib.request.urlopen(wrong)
            raise AssertionError(f"{wrong} was served")
        except urllib.error.HTTPError as error:
            assert error.code == 403, error.code


@check
def keys_are_checked():
    refused("SignatureDoesNotMatch", client(aws_secret_access_key="wrong", aws_access_key_id=os.environ["AWS_ACCESS_KEY_ID"]).list_buckets)
    refused("InvalidAccessKeyId", client(aws_access_key_id="AKIANOBODY", aws_secret_access_key="x").list_buckets)


@check
def what_comes_later_says_so():
    refused("NotImplemented", s3.put_bucket_website, Bucket="plain", WebsiteConfiguration={"IndexDocument": {"Suffix": "index.html"}})


@check
def an_emptied_bucket_goes():
    s3.create_bucket(Bucket="brief")
    s3.put_object(Bucket="brief", Key="x", Body=b"")
    refused("BucketNotEmpty", s3.delete_bucket, Bucket="brief")
    s3.delete_object(Bucket="brief", Key="x")
    s3.delete_bucket(Bucket="brief")
    refused("NoSuchBucket", s3.list_objects_v2, Bucket="brief")


print(f"{len(held)} rules: {', '.join(held)}")
print("all held")
