#!/usr/bin/env python3
"""S3 as AWS documents it, asked with boto3: every line of `ok`/`NOT OK` is one behaviour.

Environment: S3_ENDPOINT, S3_ACCESS_KEY, S3_SECRET_KEY; S3_LESS_ACCESS_KEY and S3_LESS_SECRET_KEY of a key
that may only read, write, delete and list below `mine/` of bucket `scoped`. Exits 1 if anything is not as documented.
"""

import base64
import datetime
import hashlib
import io
import os
import sys
import threading
import traceback
import urllib.error
import urllib.request
import uuid
import zlib

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

ENDPOINT = os.environ["S3_ENDPOINT"]
CONFIG = {"signature_version": "s3v4", "s3": {"addressing_style": "path"}, "retries": {"max_attempts": 1}}


def client(access=None, secret=None, **extra):
    return boto3.client(
        "s3",
        endpoint_url=ENDPOINT,
        region_name="us-east-1",
        aws_access_key_id=access or os.environ["S3_ACCESS_KEY"],
        aws_secret_access_key=secret or os.environ["S3_SECRET_KEY"],
        config=Config(**{**CONFIG, **extra}),
    )


s3 = client()
RUN = uuid.uuid4().hex[:8]
passed = 0
failed = []
checks = []


def check(name, holds, detail=""):
    global passed
    if holds:
        passed += 1
        print(f"ok      {name}")
    else:
        failed.append(name)
        print(f"NOT OK  {name}  {detail}")


def same(name, got, expected):
    check(name, got == expected, f"got {got!r}, expected {expected!r}")


def refused(name, code, status, call, *args, **kwargs):
    try:
        answer = call(*args, **kwargs)
    except ClientError as error:
        got = error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
        check(name, got == (code, status), f"got {got}, expected {(code, status)}: {error}")
        return error
    check(name, False, f"was allowed: {str(answer)[:200]}")
    return None


def group(function):
    checks.append(function)
    return function


def bucket(tag, **kwargs):
    name = f"{tag}-{RUN}"
    s3.create_bucket(Bucket=name, **kwargs)
    return name


def put(name, key, body=b"x", **kwargs):
    return s3.put_object(Bucket=name, Key=key, Body=body, **kwargs)


def get(name, key, **kwargs):
    return s3.get_object(Bucket=name, Key=key, **kwargs)["Body"].read()


def later(**span):
    return (datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(**span)).replace(microsecond=0)


@group
def buckets():
    name = bucket("buckets")
    check("a new bucket is listed", name in [b["Name"] for b in s3.list_buckets()["Buckets"]])
    check("a listed bucket has its creation date", all("CreationDate" in b for b in s3.list_buckets()["Buckets"]))
    same("head of a bucket", s3.head_bucket(Bucket=name)["ResponseMetadata"]["HTTPStatusCode"], 200)
    same("head of a bucket names its region", s3.head_bucket(Bucket=name)["BucketRegion"], "us-east-1")
    refused("head of a bucket that is not there", "404", 404, s3.head_bucket, Bucket=f"none-{RUN}")
    same("the location of the first region is null", s3.get_bucket_location(Bucket=name)["LocationConstraint"], None)
    same("making a bucket of one's own again", s3.create_bucket(Bucket=name)["ResponseMetadata"]["HTTPStatusCode"], 200)
    refused("... as another one", "BucketAlreadyOwnedByYou", 409, s3.create_bucket, Bucket=name, ObjectLockEnabledForBucket=True)
    for bad in ["ab", "UPPER", "under_score", "-dash", "dash-", "two..dots", "192.168.1.1", "x" * 64]:
        refused(f"bucket name {bad[:12]}", "InvalidBucketName", 400, quiet(s3.create_bucket), Bucket=bad)
    put(name, "k")
    refused("a bucket with an object is not deleted", "BucketNotEmpty", 409, s3.delete_bucket, Bucket=name)
    s3.delete_object(Bucket=name, Key="k")
    same("an empty bucket is deleted", s3.delete_bucket(Bucket=name)["ResponseMetadata"]["HTTPStatusCode"], 204)
    refused("a deleted bucket is gone", "NoSuchBucket", 404, s3.list_objects_v2, Bucket=name)
    refused("deleting it again", "NoSuchBucket", 404, s3.delete_bucket, Bucket=name)
    many = [bucket(f"page{i}") for i in range(3)]
    first = s3.list_buckets(MaxBuckets=2, Prefix="page")
    same("a page of buckets", len(first["Buckets"]), 2)
    second = s3.list_buckets(MaxBuckets=2, Prefix="page", ContinuationToken=first["ContinuationToken"])
    same("all buckets over pages", [b["Name"] for b in first["Buckets"] + second["Buckets"]], many)
    refused("an ACL other than private", "InvalidBucketAclWithObjectOwnership", 400, s3.create_bucket, Bucket=f"acl-{RUN}", ACL="public-read")
    same("the bucket's list: its owner has full control", s3.get_bucket_acl(Bucket=many[0])["Grants"][0]["Permission"], "FULL_CONTROL")
    rules = s3.get_bucket_encryption(Bucket=many[0])["ServerSideEncryptionConfiguration"]["Rules"]
    same("encryption is always on", rules[0]["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"], "AES256")
    for call, code in [
        (s3.get_bucket_policy, "NoSuchBucketPolicy"),
        (s3.get_bucket_cors, "NoSuchCORSConfiguration"),
        (s3.get_bucket_lifecycle_configuration, "NoSuchLifecycleConfiguration"),
        (s3.get_bucket_replication, "ReplicationConfigurationNotFoundError"),
        (s3.get_bucket_website, "NoSuchWebsiteConfiguration"),
        (s3.get_public_access_block, "NoSuchPublicAccessBlockConfiguration"),
    ]:
        refused(f"{call.__name__}: there is none", code, 404, call, Bucket=many[0])
    for call, field in [(s3.get_bucket_logging, "LoggingEnabled"), (s3.get_bucket_notification_configuration, "TopicConfigurations")]:
        check(f"{call.__name__}: there is none", field not in call(Bucket=many[0]))
    same("the owner pays", s3.get_bucket_request_payment(Bucket=many[0])["Payer"], "BucketOwner")
    refused("a policy that is none", "MalformedPolicy", 400, s3.put_bucket_policy, Bucket=many[0], Policy="{}")
    aes = {"Rules": [{"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}]}
    same("AES256 as it is", s3.put_bucket_encryption(Bucket=many[0], ServerSideEncryptionConfiguration=aes)["ResponseMetadata"]["HTTPStatusCode"], 200)


def quiet(call):
    """Without botocore's own checks, so that the server gets to see what is wrong."""
    def ask(**kwargs):
        own = client(parameter_validation=False)
        own.meta.events.unregister("before-parameter-build.s3", botocore.handlers.validate_bucket_name)
        return getattr(own, call.__name__)(**kwargs)

    return ask


import botocore.handlers  # noqa: E402


@group
def objects():
    name = bucket("objects")
    body = os.urandom(100_000)
    answer = put(name, "k", body, ContentType="text/x-test", Metadata={"one": "1", "two": "zwei"}, CacheControl="no-cache", ContentDisposition="attachment", ContentLanguage="de", ContentEncoding="identity")
    same("the entity tag is the MD5", answer["ETag"], f'"{hashlib.md5(body).hexdigest()}"')
    same("an answer says it is encrypted", answer["ServerSideEncryption"], "AES256")
    found = s3.get_object(Bucket=name, Key="k")
    same("what was put is got", found["Body"].read(), body)
    same("its type", found["ContentType"], "text/x-test")
    same("its metadata", found["Metadata"], {"one": "1", "two": "zwei"})
    same("its cache control", found["CacheControl"], "no-cache")
    same("its disposition", found["ContentDisposition"], "attachment")
    same("its language", found["ContentLanguage"], "de")
    same("its encoding", found["ContentEncoding"], "identity")
    same("ranges are offered", found["AcceptRanges"], "bytes")
    head = s3.head_object(Bucket=name, Key="k")
    same("head tells the size", head["ContentLength"], 100_000)
    same("head tells the tag", head["ETag"], answer["ETag"])
    age = datetime.datetime.now(datetime.timezone.utc) - head["LastModified"]
    check("head tells when", abs(age.total_seconds()) < 60, str(age))
    put(name, "empty", b"")
    same("an empty object", get(name, "empty"), b"")
    same("its default type", s3.head_object(Bucket=name, Key="empty")["ContentType"], "binary/octet-stream")
    put(name, "k", b"new")
    same("an object is replaced", get(name, "k"), b"new")
    same("deleting", s3.delete_object(Bucket=name, Key="k")["ResponseMetadata"]["HTTPStatusCode"], 204)
    same("deleting what is not there", s3.delete_object(Bucket=name, Key="k")["ResponseMetadata"]["HTTPStatusCode"], 204)
    refused("getting what is not there", "NoSuchKey", 404, s3.get_object, Bucket=name, Key="k")
    refused("head of what is not there", "404", 404, s3.head_object, Bucket=name, Key="k")
    refused("getting from no bucket", "NoSuchBucket", 404, s3.get_object, Bucket=f"none-{RUN}", Key="k")
    refused("putting into no bucket", "NoSuchBucket", 404, s3.put_object, Bucket=f"none-{RUN}", Key="k", Body=b"x")
    refused("a key of 1025 bytes", "KeyTooLongError", 400, s3.put_object, Bucket=name, Key="k" * 1025, Body=b"")
    put(name, "k" * 1024)
    same("a key of 1024 bytes", get(name, "k" * 1024), b"x")
    refused("too much metadata", "MetadataTooLarge", 400, s3.put_object, Bucket=name, Key="m", Body=b"", Metadata={"a": "b" * 2100})
    refused("an unknown storage class", "InvalidStorageClass", 400, s3.put_object, Bucket=name, Key="m", Body=b"", StorageClass="GLACIER")
    refused("KMS", "NotImplemented", 501, s3.put_object, Bucket=name, Key="m", Body=b"", ServerSideEncryption="aws:kms")
    refused("an ACL", "AccessControlListNotSupported", 400, s3.put_object, Bucket=name, Key="m", Body=b"", ACL="public-read")
    put(name, "meta", Metadata={"text": "plain"})
    answer = s3.get_object(Bucket=name, Key="meta", ResponseContentType="text/plain", ResponseCacheControl="private")
    same("the type of an answer is overridden", answer["ContentType"], "text/plain")
    same("the cache control of an answer is overridden", answer["CacheControl"], "private")
    same("the object's list", s3.get_object_acl(Bucket=name, Key="meta")["Grants"][0]["Permission"], "FULL_CONTROL")
    expires = later(days=3)
    put(name, "expires", Expires=expires)
    check("an expiry date is kept", s3.head_object(Bucket=name, Key="expires").get("ExpiresString") is not None)
    put(name, "website", WebsiteRedirectLocation="/elsewhere")
    same("a redirect is kept", s3.head_object(Bucket=name, Key="website")["WebsiteRedirectLocation"], "/elsewhere")
    refused("another owner is expected", "AccessDenied", 403, s3.get_object, Bucket=name, Key="meta", ExpectedBucketOwner="123456789012")


@group
def keys():
    name = bucket("keys")
    texts = [
        "plain", "with space", "a+b", "100%", "a%20b", "ä/ö/ü", "日本語", "emoji-😀", "quote\"'", "<xml>&amp;", "semi;colon",
        "a//b", "/leading", "trailing/", "dot/./dot/../x", "tilde~", "back\\slash", "question?mark", "hash#mark", "star*",
        "tab\there", "line\nfeed", "return\rhere", "\x01control\x1f", "\x7f", "[]{}|^`", "=equals&and", "!$(),:@", " ", "\u200b",
        "nul\x00byte",
    ]
    texts += ["all-" + "".join(chr(c) for c in range(1, 128))]
    for text in texts:
        put(name, text, text.encode())
    for text in texts:
        same(f"key {text!r:.40}", get(name, text), text.encode())
    listed = [o["Key"] for page in s3.get_paginator("list_objects_v2").paginate(Bucket=name) for o in page.get("Contents", [])]
    same("all keys are listed, in the order of their bytes", listed, sorted(texts, key=lambda text: text.encode()))
    answer = s3.list_objects_v2(Bucket=name, Prefix="ä/", EncodingType="url")
    same("a listing is percent-encoded on request", [o["Key"] for o in answer["Contents"]], ["%C3%A4/%C3%B6/%C3%BC"])
    gone = s3.delete_objects(Bucket=name, Delete={"Objects": [{"Key": text} for text in texts if not any(ord(c) < 32 for c in text)]})
    check("they are deleted in one request", "Errors" not in gone, str(gone.get("Errors")))
    for text in texts:
        s3.delete_object(Bucket=name, Key=text)
    same("the bucket is empty", s3.list_objects_v2(Bucket=name)["KeyCount"], 0)


@group
def ranges():
    name = bucket("ranges")
    body = os.urandom(300_000)
    put(name, "k", body)
    for text, part in [
        ("bytes=0-0", body[:1]), ("bytes=0-9", body[:10]), ("bytes=65530-65545", body[65530:65546]), ("bytes=100000-", body[100_000:]),
        ("bytes=-7", body[-7:]), ("bytes=-999999", body), ("bytes=299999-", body[-1:]), ("bytes=299999-400000", body[-1:]),
    ]:
        answer = s3.get_object(Bucket=name, Key="k", Range=text)
        same(f"range {text}", answer["Body"].read(), part)
        same(f"range {text} is partial", answer["ResponseMetadata"]["HTTPStatusCode"], 206)
    answer = s3.get_object(Bucket=name, Key="k", Range="bytes=10-19")
    same("a range says where it is", answer["ContentRange"], "bytes 10-19/300000")
    same("head of a range", s3.head_object(Bucket=name, Key="k", Range="bytes=10-19")["ContentLength"], 10)
    refused("a range behind the end", "InvalidRange", 416, s3.get_object, Bucket=name, Key="k", Range="bytes=300000-")
    refused("the last no bytes", "InvalidRange", 416, s3.get_object, Bucket=name, Key="k", Range="bytes=-0")
    for text in ["bytes=9-3", "bytes=a-b", "lines=1-2", "bytes=1-2,4-5", "bytes="]:
        answer = s3.get_object(Bucket=name, Key="k", Range=text)
        same(f"range {text} is as if it were not there", (answer["ResponseMetadata"]["HTTPStatusCode"], answer["ContentLength"]), (200, 300_000))
    put(name, "empty", b"")
    refused("a range of nothing", "InvalidRange", 416, s3.get_object, Bucket=name, Key="empty", Range="bytes=0-")


@group
def conditions():
    name = bucket("conditions")
    tag = put(name, "k", b"v1")["ETag"]
    when = s3.head_object(Bucket=name, Key="k")["LastModified"]
    earlier = when - datetime.timedelta(hours=1)
    same("If-Match holds", get(name, "k", IfMatch=tag), b"v1")
    refused("If-Match fails", "PreconditionFailed", 412, s3.get_object, Bucket=name, Key="k", IfMatch='"0"')
    same("If-None-Match holds", get(name, "k", IfNoneMatch='"0"'), b"v1")
    refused("If-None-Match: not modified", "304", 304, s3.get_object, Bucket=name, Key="k", IfNoneMatch=tag)
    refused("If-None-Match: *", "304", 304, s3.get_object, Bucket=name, Key="k", IfNoneMatch="*")
    refused("If-None-Match: a list", "304", 304, s3.get_object, Bucket=name, Key="k", IfNoneMatch=f'"0", {tag}')
    same("If-Modified-Since holds", get(name, "k", IfModifiedSince=earlier), b"v1")
    refused("If-Modified-Since: not modified", "304", 304, s3.get_object, Bucket=name, Key="k", IfModifiedSince=when)
    same("If-Unmodified-Since holds", get(name, "k", IfUnmodifiedSince=when), b"v1")
    refused("If-Unmodified-Since fails", "PreconditionFailed", 412, s3.get_object, Bucket=name, Key="k", IfUnmodifiedSince=earlier)
    same("If-Match outweighs If-Unmodified-Since", get(name, "k", IfMatch=tag, IfUnmodifiedSince=earlier), b"v1")
    refused("If-None-Match outweighs If-Modified-Since", "304", 304, s3.get_object, Bucket=name, Key="k", IfNoneMatch=tag, IfModifiedSince=earlier)
    refused("head: not modified", "304", 304, s3.head_object, Bucket=name, Key="k", IfNoneMatch=tag)
    refused("head: If-Match fails", "412", 412, s3.head_object, Bucket=name, Key="k", IfMatch='"0"')
    refused("a write on condition of absence, present", "PreconditionFailed", 412, s3.put_object, Bucket=name, Key="k", Body=b"v2", IfNoneMatch="*")
    same("... changed nothing", get(name, "k"), b"v1")
    same("a write on condition of absence, absent", put(name, "new", b"v1", IfNoneMatch="*")["ResponseMetadata"]["HTTPStatusCode"], 200)
    refused("a write on condition of another tag", "PreconditionFailed", 412, s3.put_object, Bucket=name, Key="k", Body=b"v2", IfMatch='"0"')
    put(name, "k", b"v2", IfMatch=tag)
    same("a write on condition of the tag", get(name, "k"), b"v2")
    refused("a write on condition of a tag, absent", "NoSuchKey", 404, s3.put_object, Bucket=name, Key="none", Body=b"v2", IfMatch=tag)
    refused("a deletion on condition of another tag", "PreconditionFailed", 412, s3.delete_object, Bucket=name, Key="k", IfMatch='"0"')
    won = []
    def race(number):
        try:
            client().put_object(Bucket=name, Key="race", Body=str(number).encode(), IfNoneMatch="*")
            won.append(number)
        except ClientError as error:
            if error.response["ResponseMetadata"]["HTTPStatusCode"] not in (409, 412):
                won.append(error)
    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    check("of eight writers on condition of absence one wins", len(won) == 1 and get(name, "race") == str(won[0]).encode(), str(won))


@group
def checksums():
    name = bucket("checksums")
    body = os.urandom(70_000)
    values = {
        "CRC32": base64.b64encode(zlib.crc32(body).to_bytes(4, "big")).decode(),
        "SHA1": base64.b64encode(hashlib.sha1(body).digest()).decode(),
        "SHA256": base64.b64encode(hashlib.sha256(body).digest()).decode(),
    }
    for algorithm, value in values.items():
        field = f"Checksum{algorithm}"
        same(f"{algorithm} is computed by the SDK and given back", put(name, algorithm, body, ChecksumAlgorithm=algorithm)[field], value)
        same(f"{algorithm} given by the client", put(name, algorithm, body, **{field: value})[field], value)
        same(f"{algorithm} is told on request", s3.head_object(Bucket=name, Key=algorithm, ChecksumMode="ENABLED")[field], value)
        check(f"{algorithm} is not told unasked", field not in s3.head_object(Bucket=name, Key=algorithm))
        answer = s3.get_object(Bucket=name, Key=algorithm, ChecksumMode="ENABLED")
        same(f"{algorithm} is verified by the SDK on reading", (answer["Body"].read(), answer[field]), (body, value))
        wrong = base64.b64encode(bytes(len(base64.b64decode(value)))).decode()
        refused(f"a wrong {algorithm}", "BadDigest", 400, s3.put_object, Bucket=name, Key="wrong", Body=body, **{field: wrong})
        refused(f"a malformed {algorithm}", "InvalidRequest", 400, s3.put_object, Bucket=name, Key="wrong", Body=body, **{field: "AAA="})
        same(f"the type of {algorithm}", s3.head_object(Bucket=name, Key=algorithm, ChecksumMode="ENABLED")["ChecksumType"], "FULL_OBJECT")
    md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
    same("Content-MD5 holds", put(name, "md5", body, ContentMD5=md5)["ResponseMetadata"]["HTTPStatusCode"], 200)
    refused("Content-MD5 of something else", "BadDigest", 400, s3.put_object, Bucket=name, Key="wrong", Body=body, ContentMD5=base64.b64encode(bytes(16)).decode())
    refused("Content-MD5 malformed", "InvalidDigest", 400, s3.put_object, Bucket=name, Key="wrong", Body=body, ContentMD5="nonsense")
    refused("... stored nothing", "404", 404, s3.head_object, Bucket=name, Key="wrong")
    bare = client(request_checksum_calculation="when_required", response_checksum_validation="when_required")
    bare.put_object(Bucket=name, Key="bare", Body=body)
    check("an object sent without a checksum gets one", "ChecksumCRC64NVME" in s3.head_object(Bucket=name, Key="bare", ChecksumMode="ENABLED"))
    told = s3.get_object_attributes(Bucket=name, Key="SHA256", ObjectAttributes=["ETag", "Checksum", "ObjectSize", "StorageClass"])
    same("attributes: size", told["ObjectSize"], 70_000)
    same("attributes: tag", told["ETag"].strip('"'), hashlib.md5(body).hexdigest())
    same("attributes: checksum", told["Checksum"]["ChecksumSHA256"], values["SHA256"])
    same("attributes: class", told["StorageClass"], "STANDARD")
    check("attributes: only what was asked for", "Checksum" not in s3.get_object_attributes(Bucket=name, Key="SHA256", ObjectAttributes=["ETag"]))
    stream = io.BytesIO(body)
    put(name, "stream", stream, ChecksumAlgorithm="CRC32")
    same("a stream with its checksum in the trailer", get(name, "stream"), body)


@group
def listings():
    name = bucket("listings")
    texts = [f"a/{i:02}" for i in range(12)] + [f"b/{i}/x" for i in range(3)] + ["c", "d"]
    for text in texts:
        put(name, text, text.encode())
    answer = s3.list_objects_v2(Bucket=name)
    same("all keys", [o["Key"] for o in answer["Contents"]], sorted(texts))
    same("their number", answer["KeyCount"], len(texts))
    same("nothing follows", answer["IsTruncated"], False)
    same("sizes", [o["Size"] for o in answer["Contents"]], [len(text) for text in sorted(texts)])
    check("no owner unless asked", "Owner" not in answer["Contents"][0])
    check("the owner on request", "ID" in s3.list_objects_v2(Bucket=name, FetchOwner=True)["Contents"][0]["Owner"])
    answer = s3.list_objects_v2(Bucket=name, Delimiter="/")
    same("a delimiter folds", [p["Prefix"] for p in answer["CommonPrefixes"]], ["a/", "b/"])
    same("... and leaves the rest", [o["Key"] for o in answer["Contents"]], ["c", "d"])
    same("... and counts both", answer["KeyCount"], 4)
    answer = s3.list_objects_v2(Bucket=name, Prefix="b/", Delimiter="/")
    same("a prefix and a delimiter", [p["Prefix"] for p in answer["CommonPrefixes"]], ["b/0/", "b/1/", "b/2/"])
    same("a prefix nobody has", s3.list_objects_v2(Bucket=name, Prefix="zzz")["KeyCount"], 0)
    seen, token = [], {}
    while True:
        answer = s3.list_objects_v2(Bucket=name, MaxKeys=5, **token)
        check("a page is not longer than asked", answer["KeyCount"] <= 5)
        seen += [o["Key"] for o in answer["Contents"]]
        if not answer["IsTruncated"]:
            break
        token = {"ContinuationToken": answer["NextContinuationToken"]}
    same("pages make the whole", seen, sorted(texts))
    seen, token = [], {}
    while True:
        answer = s3.list_objects_v2(Bucket=name, MaxKeys=1, Delimiter="/", **token)
        seen += [o["Key"] for o in answer.get("Contents", [])] + [p["Prefix"] for p in answer.get("CommonPrefixes", [])]
        if not answer["IsTruncated"]:
            break
        token = {"ContinuationToken": answer["NextContinuationToken"]}
    same("pages of folded listings make the whole", seen, ["a/", "b/", "c", "d"])
    same("start after a key", [o["Key"] for o in s3.list_objects_v2(Bucket=name, StartAfter="b/2/x")["Contents"]], ["c", "d"])
    same("no keys wanted", s3.list_objects_v2(Bucket=name, MaxKeys=0)["KeyCount"], 0)
    refused("a made-up token", "InvalidArgument", 400, s3.list_objects_v2, Bucket=name, ContinuationToken="made up")
    answer = s3.list_objects(Bucket=name, MaxKeys=3)
    same("V1: a page", [o["Key"] for o in answer["Contents"]], sorted(texts)[:3])
    same("V1: the owner", "Owner" in answer["Contents"][0], True)
    answer = s3.list_objects(Bucket=name, Marker="c")
    same("V1: behind a marker", [o["Key"] for o in answer["Contents"]], ["d"])
    answer = s3.list_objects(Bucket=name, Delimiter="/", MaxKeys=1)
    same("V1: the next marker of a folded listing", answer["NextMarker"], "a/")
    answer = s3.list_objects(Bucket=name, Delimiter="/", MaxKeys=1, Marker="a/")
    same("V1: behind a common prefix", answer["CommonPrefixes"][0]["Prefix"], "b/")
    pages = s3.get_paginator("list_objects").paginate(Bucket=name, PaginationConfig={"PageSize": 4})
    same("V1: pages make the whole", [o["Key"] for page in pages for o in page["Contents"]], sorted(texts))
    same("an empty delimiter is none", s3.list_objects_v2(Bucket=name, Delimiter="")["KeyCount"], len(texts))


@group
def deletions():
    name = bucket("deletions")
    for i in range(20):
        put(name, f"k{i}")
    answer = s3.delete_objects(Bucket=name, Delete={"Objects": [{"Key": f"k{i}"} for i in range(10)] + [{"Key": "none"}]})
    same("many are deleted, what is not there too", sorted(d["Key"] for d in answer["Deleted"]), sorted([f"k{i}" for i in range(10)] + ["none"]))
    answer = s3.delete_objects(Bucket=name, Delete={"Objects": [{"Key": f"k{i}"} for i in range(10, 20)], "Quiet": True})
    check("quietly", "Deleted" not in answer and "Errors" not in answer)
    same("the bucket is empty", s3.list_objects_v2(Bucket=name)["KeyCount"], 0)
    refused("more than a thousand", "MalformedXML", 400, s3.delete_objects, Bucket=name, Delete={"Objects": [{"Key": f"k{i}"} for i in range(1001)]})
    answer = s3.delete_objects(Bucket=name, Delete={"Objects": [{"Key": "k", "VersionId": "nonsense"}, {"Key": "l"}]})
    same("a wrong key has an error of its own", (answer["Errors"][0]["Key"], answer["Deleted"][0]["Key"]), ("k", "l"))
    refused("in no bucket", "NoSuchBucket", 404, s3.delete_objects, Bucket=f"none-{RUN}", Delete={"Objects": [{"Key": "k"}]})


@group
def versions():
    name = bucket("versions")
    check("a new bucket has no versioning", "Status" not in s3.get_bucket_versioning(Bucket=name))
    put(name, "old", b"before")
    check("no version is named without versioning", "VersionId" not in s3.head_object(Bucket=name, Key="old"))
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    same("versioning is on", s3.get_bucket_versioning(Bucket=name)["Status"], "Enabled")
    one = put(name, "k", b"1")["VersionId"]
    two = put(name, "k", b"2")["VersionId"]
    check("versions differ", one != two)
    same("the current version", get(name, "k"), b"2")
    same("an earlier version", get(name, "k", VersionId=one), b"1")
    same("head of an earlier version", s3.head_object(Bucket=name, Key="k", VersionId=one)["VersionId"], one)
    put(name, "old", b"after")
    same("what was before is the null version", get(name, "old", VersionId="null"), b"before")
    marker = s3.delete_object(Bucket=name, Key="k")
    same("a deletion adds a marker", marker["DeleteMarker"], True)
    error = refused("the key is gone", "NoSuchKey", 404, s3.get_object, Bucket=name, Key="k")
    same("... by a marker", error and error.response["ResponseMetadata"]["HTTPHeaders"].get("x-amz-delete-marker"), "true")
    same("... an earlier version is not", get(name, "k", VersionId=two), b"2")
    refused("a marker cannot be got", "MethodNotAllowed", 405, s3.get_object, Bucket=name, Key="k", VersionId=marker["VersionId"])
    refused("nor its head", "405", 405, s3.head_object, Bucket=name, Key="k", VersionId=marker["VersionId"])
    answer = s3.list_object_versions(Bucket=name, Prefix="k")
    same("versions, newest first", [v["VersionId"] for v in answer["Versions"]], [two, one])
    same("the marker is the latest", [m["IsLatest"] for m in answer["DeleteMarkers"]], [True])
    same("no version is the latest then", [v["IsLatest"] for v in answer["Versions"]], [False, False])
    undone = s3.delete_object(Bucket=name, Key="k", VersionId=marker["VersionId"])
    same("removing the marker", (undone["DeleteMarker"], undone["VersionId"]), (True, marker["VersionId"]))
    same("... brings the key back", get(name, "k"), b"2")
    same("removing a version", s3.delete_object(Bucket=name, Key="k", VersionId=two)["VersionId"], two)
    same("... makes the one before current", get(name, "k"), b"1")
    refused("a version that is not there", "NoSuchVersion", 404, s3.get_object, Bucket=name, Key="k", VersionId=two)
    refused("a version id that is none", "InvalidArgument", 400, s3.get_object, Bucket=name, Key="k", VersionId="nonsense")
    answer = s3.delete_objects(Bucket=name, Delete={"Objects": [{"Key": "k", "VersionId": one}, {"Key": "old"}]})
    check("many: a version and a marker", {(d["Key"], d.get("DeleteMarker")) for d in answer["Deleted"]} == {("k", None), ("old", True)}, str(answer))
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Suspended"})
    put(name, "s", b"1")
    same("suspended: the null version", s3.head_object(Bucket=name, Key="s")["VersionId"], "null")
    put(name, "s", b"2")
    same("suspended: it is replaced", len(s3.list_object_versions(Bucket=name, Prefix="s")["Versions"]), 1)
    refused("a status of neither kind", "MalformedXML", 400, s3.put_bucket_versioning, Bucket=name, VersioningConfiguration={"Status": "Sometimes"})
    refused("a bucket with versions is not deleted", "BucketNotEmpty", 409, s3.delete_bucket, Bucket=name)
    deep = bucket("deep")
    s3.put_bucket_versioning(Bucket=deep, VersioningConfiguration={"Status": "Enabled"})
    made = [put(deep, "k", str(i).encode())["VersionId"] for i in range(25)] + [put(deep, "l")["VersionId"]]
    seen, marker = [], {}
    while True:
        answer = s3.list_object_versions(Bucket=deep, MaxKeys=7, **marker)
        seen += [v["VersionId"] for v in answer["Versions"]]
        if not answer["IsTruncated"]:
            break
        marker = {"KeyMarker": answer["NextKeyMarker"], "VersionIdMarker": answer["NextVersionIdMarker"]}
    same("pages of versions make the whole", seen, made[:25][::-1] + made[25:])
    refused("a version marker without a key marker", "InvalidArgument", 400, s3.list_object_versions, Bucket=deep, VersionIdMarker=made[0])


@group
def multipart():
    name = bucket("multipart")
    size = 5 << 20
    parts = [os.urandom(size), os.urandom(size), os.urandom(1000)]
    begun = s3.create_multipart_upload(Bucket=name, Key="k", ContentType="text/x-parts", Metadata={"m": "1"})
    upload = begun["UploadId"]
    where = {"Bucket": name, "Key": "k", "UploadId": upload}
    tags = {}
    for number in [3, 1, 2]:
        tags[number] = s3.upload_part(**where, PartNumber=number, Body=parts[number - 1])["ETag"]
    same("a part's tag is its MD5", tags[1], f'"{hashlib.md5(parts[0]).hexdigest()}"')
    listed = s3.list_parts(**where)
    same("parts are listed in order", [(p["PartNumber"], p["Size"]) for p in listed["Parts"]], [(1, size), (2, size), (3, 1000)])
    page = s3.list_parts(**where, MaxParts=2)
    same("a page of parts", (page["IsTruncated"], page["NextPartNumberMarker"]), (True, 2))
    same("the next page of parts", [p["PartNumber"] for p in s3.list_parts(**where, PartNumberMarker=2)["Parts"]], [3])
    check("the upload is listed", upload in [u["UploadId"] for u in s3.list_multipart_uploads(Bucket=name)["Uploads"]])
    refused("the object is not there yet", "404", 404, s3.head_object, Bucket=name, Key="k")
    whole = [{"PartNumber": number, "ETag": tags[number]} for number in [1, 2, 3]]
    refused("parts out of order", "InvalidPartOrder", 400, s3.complete_multipart_upload, **where, MultipartUpload={"Parts": whole[::-1]})
    refused("a part with another tag", "InvalidPart", 400, s3.complete_multipart_upload, **where, MultipartUpload={"Parts": whole[:2] + [{"PartNumber": 3, "ETag": '"0"'}]})
    refused("a part that was not sent", "InvalidPart", 400, s3.complete_multipart_upload, **where, MultipartUpload={"Parts": whole + [{"PartNumber": 9, "ETag": tags[1]}]})
    refused("no parts", "MalformedXML", 400, s3.complete_multipart_upload, **where, MultipartUpload={"Parts": []})
    done = s3.complete_multipart_upload(**where, MultipartUpload={"Parts": whole})
    digest = hashlib.md5(b"".join(hashlib.md5(part).digest() for part in parts)).hexdigest()
    same("the tag of the whole", done["ETag"], f'"{digest}-3"')
    same("the whole", get(name, "k"), b"".join(parts))
    head = s3.head_object(Bucket=name, Key="k")
    same("its type and metadata", (head["ContentType"], head["Metadata"]), ("text/x-parts", {"m": "1"}))
    answer = s3.get_object(Bucket=name, Key="k", PartNumber=2)
    same("a part of it", (answer["Body"].read(), answer["PartsCount"]), (parts[1], 3))
    same("head of a part", s3.head_object(Bucket=name, Key="k", PartNumber=3)["ContentLength"], 1000)
    refused("a part it has not", "InvalidPartNumber", 416, s3.get_object, Bucket=name, Key="k", PartNumber=4)
    same("a range over parts", get(name, "k", Range=f"bytes={size - 5}-{size + 4}"), parts[0][-5:] + parts[1][:5])
    again = s3.complete_multipart_upload(**where, MultipartUpload={"Parts": whole})
    same("completing again answers alike", again["ETag"], done["ETag"])
    told = s3.get_object_attributes(Bucket=name, Key="k", ObjectAttributes=["ObjectParts"])
    same("attributes: parts", told["ObjectParts"]["TotalPartsCount"], 3)

    upload = s3.create_multipart_upload(Bucket=name, Key="small")["UploadId"]
    where = {"Bucket": name, "Key": "small", "UploadId": upload}
    tags = [s3.upload_part(**where, PartNumber=number, Body=b"small")["ETag"] for number in [1, 2]]
    refused("a small part that is not the last", "EntityTooSmall", 400, s3.complete_multipart_upload, **where, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": tags[0]}, {"PartNumber": 2, "ETag": tags[1]}]})
    s3.upload_part(**where, PartNumber=1, Body=b"replaced")
    refused("a replaced part's old tag", "InvalidPart", 400, s3.complete_multipart_upload, **where, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": tags[0]}]})
    same("aborting", s3.abort_multipart_upload(**where)["ResponseMetadata"]["HTTPStatusCode"], 204)
    refused("a part of an aborted upload", "NoSuchUpload", 404, s3.upload_part, **where, PartNumber=1, Body=b"x")
    refused("listing its parts", "NoSuchUpload", 404, s3.list_parts, **where)
    refused("completing it", "NoSuchUpload", 404, s3.complete_multipart_upload, **where, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": tags[0]}]})
    refused("aborting it again", "NoSuchUpload", 404, s3.abort_multipart_upload, **where)
    refused("part 0", "InvalidArgument", 400, s3.upload_part, **where, PartNumber=0, Body=b"x")
    refused("part 10001", "InvalidArgument", 400, s3.upload_part, **where, PartNumber=10_001, Body=b"x")
    for i in range(5):
        s3.create_multipart_upload(Bucket=name, Key=f"u/{i}")
    page = s3.list_multipart_uploads(Bucket=name, MaxUploads=2)
    rest = s3.list_multipart_uploads(Bucket=name, KeyMarker=page["NextKeyMarker"], UploadIdMarker=page["NextUploadIdMarker"])
    same("pages of uploads", [u["Key"] for u in page["Uploads"] + rest["Uploads"]], [f"u/{i}" for i in range(5)])
    same("folded uploads", s3.list_multipart_uploads(Bucket=name, Delimiter="/")["CommonPrefixes"][0]["Prefix"], "u/")
    half = bucket("half")
    s3.create_multipart_upload(Bucket=half, Key="never completed")
    same("a bucket with uploads only is deleted", s3.delete_bucket(Bucket=half)["ResponseMetadata"]["HTTPStatusCode"], 204)

    for algorithm, kind in [("CRC32", "COMPOSITE"), ("SHA256", "COMPOSITE"), ("CRC32", "FULL_OBJECT"), ("CRC64NVME", "FULL_OBJECT")]:
        try:
            upload = s3.create_multipart_upload(Bucket=name, Key="sum", ChecksumAlgorithm=algorithm, ChecksumType=kind)["UploadId"]
            where = {"Bucket": name, "Key": "sum", "UploadId": upload}
            sent = [s3.upload_part(**where, PartNumber=n, Body=parts[n - 1], ChecksumAlgorithm=algorithm) for n in [1, 2, 3]]
        except Exception as error:  # An SDK without its native extension cannot compute CRC64NVME.
            print(f"skipped {algorithm}: {type(error).__name__}: {error}")
            continue
        field = f"Checksum{algorithm}"
        done = s3.complete_multipart_upload(**where, MultipartUpload={"Parts": [{"PartNumber": n, "ETag": sent[n - 1]["ETag"], field: sent[n - 1][field]} for n in [1, 2, 3]]})
        same(f"{algorithm} {kind} of parts", done["ChecksumType"], kind)
        if kind == "COMPOSITE" and algorithm == "SHA256":
            composite = hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()
            same("a composite SHA-256", done[field], base64.b64encode(composite).decode() + "-3")
        if kind == "FULL_OBJECT" and algorithm == "CRC32":
            same("a CRC32 of the whole", done[field], base64.b64encode(zlib.crc32(b"".join(parts)).to_bytes(4, "big")).decode())
        same(f"{algorithm} {kind}: the whole is read and verified", s3.get_object(Bucket=name, Key="sum", ChecksumMode="ENABLED")["Body"].read(), b"".join(parts))
    refused("SHA-256 of a whole of parts", "InvalidRequest", 400, s3.create_multipart_upload, Bucket=name, Key="sum", ChecksumAlgorithm="SHA256", ChecksumType="FULL_OBJECT")

    large = os.urandom(23 << 20)
    s3.upload_fileobj(io.BytesIO(large), name, "managed", Config=TransferConfig(multipart_threshold=8 << 20, multipart_chunksize=8 << 20))
    fetched = io.BytesIO()
    s3.download_fileobj(name, "managed", fetched, Config=TransferConfig(multipart_threshold=8 << 20, multipart_chunksize=8 << 20))
    check("the SDK's own transfer, up and down", fetched.getvalue() == large)
    whole = base64.b64encode(zlib.crc32(large).to_bytes(4, "big")).decode()
    config = TransferConfig(multipart_threshold=8 << 20, multipart_chunksize=8 << 20)
    s3.upload_fileobj(io.BytesIO(large), name, "summed", ExtraArgs={"ChecksumCRC32": whole}, Config=config)
    told = s3.head_object(Bucket=name, Key="summed", ChecksumMode="ENABLED")
    same("the SDK's own transfer, with a checksum of the whole", (told["ChecksumCRC32"], told["ChecksumType"]), (whole, "FULL_OBJECT"))
    other = base64.b64encode(zlib.crc32(b"other").to_bytes(4, "big")).decode()
    try:
        s3.upload_fileobj(io.BytesIO(large), name, "summed wrongly", ExtraArgs={"ChecksumCRC32": other}, Config=config)
        check("a wrong checksum of the whole", False, "was taken")
    except Exception as error:
        check("a wrong checksum of the whole", "BadDigest" in str(error), error)


@group
def copies():
    name = bucket("copies")
    other = bucket("copies2")
    body = os.urandom(200_000)
    put(name, "src/ä b", body, ContentType="text/x-src", Metadata={"m": "1"}, Tagging="t=1")
    source = {"Bucket": name, "Key": "src/ä b"}
    answer = s3.copy_object(Bucket=other, Key="dst", CopySource=source)
    same("a copy", get(other, "dst"), body)
    same("its tag", answer["CopyObjectResult"]["ETag"], f'"{hashlib.md5(body).hexdigest()}"')
    head = s3.head_object(Bucket=other, Key="dst")
    same("its type and metadata", (head["ContentType"], head["Metadata"]), ("text/x-src", {"m": "1"}))
    same("its tags", s3.get_object_tagging(Bucket=other, Key="dst")["TagSet"], [{"Key": "t", "Value": "1"}])
    s3.copy_object(Bucket=other, Key="dst", CopySource=source, MetadataDirective="REPLACE", Metadata={"n": "2"}, ContentType="text/x-dst", TaggingDirective="REPLACE", Tagging="u=2")
    head = s3.head_object(Bucket=other, Key="dst")
    same("replaced type and metadata", (head["ContentType"], head["Metadata"]), ("text/x-dst", {"n": "2"}))
    same("replaced tags", s3.get_object_tagging(Bucket=other, Key="dst")["TagSet"], [{"Key": "u", "Value": "2"}])
    refused("a copy onto itself that changes nothing", "InvalidRequest", 400, s3.copy_object, Bucket=name, Key="src/ä b", CopySource=source)
    s3.copy_object(Bucket=name, Key="src/ä b", CopySource=source, MetadataDirective="REPLACE", Metadata={"self": "1"})
    same("a copy onto itself that changes metadata", s3.head_object(Bucket=name, Key="src/ä b")["Metadata"], {"self": "1"})
    for asked in ({"ServerSideEncryption": "AES256"}, {"StorageClass": "STANDARD"}):
        s3.copy_object(Bucket=name, Key="src/ä b", CopySource=source, **asked)
        same(f"a copy onto itself that names {asked}", s3.head_object(Bucket=name, Key="src/ä b")["Metadata"], {"self": "1"})
    refused("a copy of nothing", "NoSuchKey", 404, s3.copy_object, Bucket=other, Key="d", CopySource={"Bucket": name, "Key": "none"})
    refused("a copy from no bucket", "NoSuchBucket", 404, s3.copy_object, Bucket=other, Key="d", CopySource={"Bucket": f"none-{RUN}", "Key": "k"})
    tag = s3.head_object(Bucket=name, Key="src/ä b")["ETag"]
    same("a copy on condition", s3.copy_object(Bucket=other, Key="c", CopySource=source, CopySourceIfMatch=tag)["CopyObjectResult"]["ETag"], tag)
    refused("a copy on condition that fails", "PreconditionFailed", 412, s3.copy_object, Bucket=other, Key="c", CopySource=source, CopySourceIfMatch='"0"')
    refused("a copy of what is not modified", "PreconditionFailed", 412, s3.copy_object, Bucket=other, Key="c", CopySource=source, CopySourceIfNoneMatch=tag)
    s3.put_bucket_versioning(Bucket=name, VersioningConfiguration={"Status": "Enabled"})
    one = put(name, "v", b"1")["VersionId"]
    put(name, "v", b"2")
    answer = s3.copy_object(Bucket=other, Key="v", CopySource={"Bucket": name, "Key": "v", "VersionId": one})
    same("a copy of a version", (get(other, "v"), answer["CopySourceVersionId"]), (b"1", one))
    upload = s3.create_multipart_upload(Bucket=other, Key="parts")["UploadId"]
    where = {"Bucket": other, "Key": "parts", "UploadId": upload}
    large = os.urandom(6 << 20)
    put(other, "large", large)
    first = s3.upload_part_copy(**where, PartNumber=1, CopySource={"Bucket": other, "Key": "large"})["CopyPartResult"]["ETag"]
    second = s3.upload_part_copy(**where, PartNumber=2, CopySource={"Bucket": other, "Key": "large"}, CopySourceRange="bytes=10-99")["CopyPartResult"]["ETag"]
    s3.complete_multipart_upload(**where, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": first}, {"PartNumber": 2, "ETag": second}]})
    check("parts from copies", get(other, "parts") == large + large[10:100])
    upload = s3.create_multipart_upload(Bucket=other, Key="parts")["UploadId"]
    refused("a malformed range of a source", "InvalidArgument", 400, s3.upload_part_copy, Bucket=other, Key="parts", UploadId=upload, PartNumber=1, CopySource={"Bucket": other, "Key": "large"}, CopySourceRange="bytes=9-")
    refused("a range behind a source's end", "InvalidArgument", 400, s3.upload_part_copy, Bucket=other, Key="parts", UploadId=upload, PartNumber=1, CopySource={"Bucket": other, "Key": "large"}, CopySourceRange="bytes=0-99999999")


@group
def tagging():
    name = bucket("tagging")
    put(name, "k", Tagging="a=1&b=zwei%20drei")
    same("tags of a put", s3.get_object_tagging(Bucket=name, Key="k")["TagSet"], [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "zwei drei"}])
    same("their number", s3.get_object(Bucket=name, Key="k")["TagCount"], 2)
    s3.put_object_tagging(Bucket=name, Key="k", Tagging={"TagSet": [{"Key": "c", "Value": ""}]})
    same("replaced tags", s3.get_object_tagging(Bucket=name, Key="k")["TagSet"], [{"Key": "c", "Value": ""}])
    s3.delete_object_tagging(Bucket=name, Key="k")
    same("removed tags", s3.get_object_tagging(Bucket=name, Key="k")["TagSet"], [])
    many = [{"Key": f"k{i}", "Value": "v"} for i in range(11)]
    refused("eleven tags", "BadRequest", 400, s3.put_object_tagging, Bucket=name, Key="k", Tagging={"TagSet": many})
    refused("a tag twice", "InvalidTag", 400, s3.put_object_tagging, Bucket=name, Key="k", Tagging={"TagSet": [{"Key": "a", "Value": "1"}, {"Key": "a", "Value": "2"}]})
    refused("a tag's key too long", "InvalidTag", 400, s3.put_object_tagging, Bucket=name, Key="k", Tagging={"TagSet": [{"Key": "a" * 129, "Value": "1"}]})
    refused("a tag's value too long", "InvalidTag", 400, s3.put_object_tagging, Bucket=name, Key="k", Tagging={"TagSet": [{"Key": "a", "Value": "1" * 257}]})
    refused("a tag of AWS", "InvalidTag", 400, s3.put_object_tagging, Bucket=name, Key="k", Tagging={"TagSet": [{"Key": "aws:a", "Value": "1"}]})
    refused("tags of nothing", "NoSuchKey", 404, s3.get_object_tagging, Bucket=name, Key="none")
    refused("no tags of a bucket", "NoSuchTagSet", 404, s3.get_bucket_tagging, Bucket=name)
    s3.put_bucket_tagging(Bucket=name, Tagging={"TagSet": [{"Key": "team", "Value": "x"}]})
    same("tags of a bucket", s3.get_bucket_tagging(Bucket=name)["TagSet"], [{"Key": "team", "Value": "x"}])
    s3.delete_bucket_tagging(Bucket=name)
    refused("removed tags of a bucket", "NoSuchTagSet", 404, s3.get_bucket_tagging, Bucket=name)


@group
def locks():
    plain = bucket("plain")
    refused("no lock configuration", "ObjectLockConfigurationNotFoundError", 404, s3.get_object_lock_configuration, Bucket=plain)
    put(plain, "k")
    refused("retention without a lock", "InvalidRequest", 400, s3.put_object_retention, Bucket=plain, Key="k", Retention={"Mode": "COMPLIANCE", "RetainUntilDate": later(days=1)})
    refused("a put under retention without a lock", "InvalidRequest", 400, s3.put_object, Bucket=plain, Key="k", Body=b"", ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate=later(days=1))
    refused("a legal hold without a lock", "InvalidRequest", 400, s3.get_object_legal_hold, Bucket=plain, Key="k")

    name = bucket("locks", ObjectLockEnabledForBucket=True)
    same("a lock from the start", s3.get_object_lock_configuration(Bucket=name)["ObjectLockConfiguration"], {"ObjectLockEnabled": "Enabled"})
    same("... versions everything", s3.get_bucket_versioning(Bucket=name)["Status"], "Enabled")
    refused("... which cannot be suspended", "InvalidBucketState", 409, s3.put_bucket_versioning, Bucket=name, VersioningConfiguration={"Status": "Suspended"})
    version = put(name, "c", b"kept", ObjectLockMode="COMPLIANCE", ObjectLockRetainUntilDate=later(days=1))["VersionId"]
    head = s3.head_object(Bucket=name, Key="c")
    same("head tells the mode", head["ObjectLockMode"], "COMPLIANCE")
    where = {"Bucket": name, "Key": "c", "VersionId": version}
    refused("a version under COMPLIANCE is not deleted", "AccessDenied", 403, s3.delete_object, **where)
    refused("... not by a bypass", "AccessDenied", 403, s3.delete_object, **where, BypassGovernanceRetention=True)
    refused("... its time is not shortened", "AccessDenied", 403, s3.put_object_retention, **where, Retention={"Mode": "COMPLIANCE", "RetainUntilDate": later(hours=1)}, BypassGovernanceRetention=True)
    refused("... its mode is not weakened", "AccessDenied", 403, s3.put_object_retention, **where, Retention={"Mode": "GOVERNANCE", "RetainUntilDate": later(days=2)}, BypassGovernanceRetention=True)
    refused("... its retention is not removed", "AccessDenied", 403, s3.put_object_retention, **where, Retention={}, BypassGovernanceRetention=True)
    longer = later(days=2)
    s3.put_object_retention(**where, Retention={"Mode": "COMPLIANCE", "RetainUntilDate": longer})
    same("... its time is extended", s3.get_object_retention(**where)["Retention"], {"Mode": "COMPLIANCE", "RetainUntilDate": longer})
    same("a deletion without a version adds a marker", s3.delete_object(Bucket=name, Key="c")["DeleteMarker"], True)
    same("a new version over a locked one", put(name, "c", b"new")["ResponseMetadata"]["HTTPStatusCode"], 200)
    same("the locked version is there", get(name, "c", VersionId=version), b"kept")
    answer = s3.delete_objects(Bucket=name, Delete={"Objects": [{"Key": "c", "VersionId": version}, {"Key": "none"}]})
    same("many: the locked one is refused by itself", [(e["Key"], e["Code"]) for e in answer["Errors"]], [("c", "AccessDenied")])
    same("many: the others are not", answer["Deleted"][0]["Key"], "none")
    refused("a bucket with a locked version is not deleted", "BucketNotEmpty", 409, s3.delete_bucket, Bucket=name)

    version = put(name, "g", b"kept", ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate=later(days=1))["VersionId"]
    where = {"Bucket": name, "Key": "g", "VersionId": version}
    refused("a version under GOVERNANCE is not deleted", "AccessDenied", 403, s3.delete_object, **where)
    refused("... its time is not shortened unasked", "AccessDenied", 403, s3.put_object_retention, **where, Retention={"Mode": "GOVERNANCE", "RetainUntilDate": later(hours=1)})
    shorter = later(hours=2)
    s3.put_object_retention(**where, Retention={"Mode": "GOVERNANCE", "RetainUntilDate": shorter}, BypassGovernanceRetention=True)
    same("... but is on request", s3.get_object_retention(**where)["Retention"]["RetainUntilDate"], shorter)
    same("... and is deleted on request", s3.delete_object(**where, BypassGovernanceRetention=True)["ResponseMetadata"]["HTTPStatusCode"], 204)

    version = put(name, "h", b"held", ObjectLockLegalHoldStatus="ON")["VersionId"]
    where = {"Bucket": name, "Key": "h", "VersionId": version}
    same("a legal hold of a put", s3.get_object_legal_hold(**where)["LegalHold"]["Status"], "ON")
    same("head tells the hold", s3.head_object(**where)["ObjectLockLegalHoldStatus"], "ON")
    refused("a held version is not deleted", "AccessDenied", 403, s3.delete_object, **where, BypassGovernanceRetention=True)
    s3.put_object_legal_hold(**where, LegalHold={"Status": "OFF"})
    same("the hold is lifted", s3.get_object_legal_hold(**where)["LegalHold"]["Status"], "OFF")
    same("... and the version deleted", s3.delete_object(**where)["VersionId"], version)
    put(name, "n", b"none")
    refused("no retention set", "NoSuchObjectLockConfiguration", 404, s3.get_object_retention, Bucket=name, Key="n")
    refused("a date in the past", "InvalidArgument", 400, s3.put_object_retention, Bucket=name, Key="n", Retention={"Mode": "GOVERNANCE", "RetainUntilDate": later(days=-1)})
    refused("a mode without a date", "InvalidArgument", 400, s3.put_object, Bucket=name, Key="n", Body=b"", ObjectLockMode="GOVERNANCE")
    refused("a mode of neither kind", "MalformedXML", 400, s3.put_object_retention, Bucket=name, Key="n", Retention={"Mode": "MAYBE", "RetainUntilDate": later(days=1)})

    s3.put_object_lock_configuration(Bucket=name, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 3}}})
    put(name, "d", b"default")
    kept = s3.get_object_retention(Bucket=name, Key="d")["Retention"]
    same("default retention: the mode", kept["Mode"], "GOVERNANCE")
    check("default retention: the time", abs((kept["RetainUntilDate"] - later(days=3)).total_seconds()) < 120, str(kept))
    explicit = later(days=9)
    put(name, "d", b"explicit", ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate=explicit)
    same("explicit beats default", s3.get_object_retention(Bucket=name, Key="d")["Retention"]["RetainUntilDate"], explicit)
    upload = s3.create_multipart_upload(Bucket=name, Key="mp")["UploadId"]
    tag = s3.upload_part(Bucket=name, Key="mp", UploadId=upload, PartNumber=1, Body=b"part")["ETag"]
    s3.complete_multipart_upload(Bucket=name, Key="mp", UploadId=upload, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": tag}]})
    same("default retention of an upload in parts", s3.get_object_retention(Bucket=name, Key="mp")["Retention"]["Mode"], "GOVERNANCE")
    s3.copy_object(Bucket=name, Key="cp", CopySource={"Bucket": plain, "Key": "k"})
    same("default retention of a copy", s3.get_object_retention(Bucket=name, Key="cp")["Retention"]["Mode"], "GOVERNANCE")
    for rule in [{"Mode": "GOVERNANCE"}, {"Mode": "GOVERNANCE", "Days": 1, "Years": 1}]:
        refused(f"a default of {len(rule)} fields", "MalformedXML", 400, s3.put_object_lock_configuration, Bucket=name, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": rule}})
    refused("a default of no days", "InvalidArgument", 400, s3.put_object_lock_configuration, Bucket=name, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "GOVERNANCE", "Days": 0}}})
    s3.put_object_lock_configuration(Bucket=name, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled"})
    check("a default is cleared", "Rule" not in s3.get_object_lock_configuration(Bucket=name)["ObjectLockConfiguration"])
    same("... which touches nothing stored", s3.get_object_retention(Bucket=name, Key="d")["Retention"]["RetainUntilDate"], explicit)
    s3.put_bucket_versioning(Bucket=plain, VersioningConfiguration={"Status": "Enabled"})
    s3.put_object_lock_configuration(Bucket=plain, ObjectLockConfiguration={"ObjectLockEnabled": "Enabled"})
    same("a lock enabled later", s3.get_object_lock_configuration(Bucket=plain)["ObjectLockConfiguration"]["ObjectLockEnabled"], "Enabled")


@group
def customer_keys():
    name = bucket("ssec")
    key, other = os.urandom(32), os.urandom(32)
    body = os.urandom(100_000)
    mine = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": key}
    wrong = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": other}
    answer = put(name, "k", body, **mine)
    same("the answer tells the key's digest", answer["SSECustomerKeyMD5"], base64.b64encode(hashlib.md5(key).digest()).decode())
    check("... and not that the key is ours", "ServerSideEncryption" not in answer)
    same("read with the key", get(name, "k", **mine), body)
    same("a range with the key", get(name, "k", Range="bytes=70000-70009", **mine), body[70_000:70_010])
    refused("read without the key", "InvalidRequest", 400, s3.get_object, Bucket=name, Key="k")
    refused("read with another key", "AccessDenied", 403, s3.get_object, Bucket=name, Key="k", **wrong)
    refused("head without the key", "400", 400, s3.head_object, Bucket=name, Key="k")
    same("head with the key", s3.head_object(Bucket=name, Key="k", **mine)["ContentLength"], 100_000)
    refused("a key that is too short", "InvalidArgument", 400, s3.put_object, Bucket=name, Key="s", Body=b"", SSECustomerAlgorithm="AES256", SSECustomerKey=b"short")
    refused("an algorithm of another name", "InvalidEncryptionAlgorithmError", 400, s3.put_object, Bucket=name, Key="s", Body=b"", SSECustomerAlgorithm="AES512", SSECustomerKey=key)
    s3.copy_object(Bucket=name, Key="copy", CopySource={"Bucket": name, "Key": "k"}, CopySourceSSECustomerAlgorithm="AES256", CopySourceSSECustomerKey=key)
    same("copied to our key", get(name, "copy"), body)
    upload = s3.create_multipart_upload(Bucket=name, Key="mp", **mine)["UploadId"]
    where = {"Bucket": name, "Key": "mp", "UploadId": upload}
    refused("a part without the key", "InvalidRequest", 400, s3.upload_part, **where, PartNumber=1, Body=b"part")
    tag = s3.upload_part(**where, PartNumber=1, Body=b"part", **mine)["ETag"]
    s3.complete_multipart_upload(**where, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": tag}]})
    same("parts with the key", get(name, "mp", **mine), b"part")


@group
def presigned():
    name = bucket("presigned")
    put(name, "k", b"signed")

    def fetch(url, method="GET", body=None, headers=None):
        request = urllib.request.Request(url, data=body, method=method, headers=headers or {})
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    url = s3.generate_presigned_url("get_object", Params={"Bucket": name, "Key": "k"})
    same("a presigned GET", fetch(url), (200, b"signed"))
    same("... tampered with", fetch(url.replace("/k?", "/l?"))[0], 403)
    same("... used to PUT", fetch(url, "PUT", b"x")[0], 403)
    url = s3.generate_presigned_url("put_object", Params={"Bucket": name, "Key": "up"})
    same("a presigned PUT", fetch(url, "PUT", b"uploaded")[0], 200)
    same("... stored", get(name, "up"), b"uploaded")
    url = s3.generate_presigned_url("get_object", Params={"Bucket": name, "Key": "k", "ResponseContentType": "text/x-over"})
    same("a presigned GET with an override", fetch(url)[0], 200)
    url = s3.generate_presigned_url("put_object", Params={"Bucket": name, "Key": "meta", "Metadata": {"m": "1"}})
    check("a presigned PUT without its signed header", fetch(url, "PUT", b"x")[0] in (200, 403))
    same("without any signature", fetch(f"{ENDPOINT}/{name}/k")[0], 403)
    same("without any signature, a listing", fetch(f"{ENDPOINT}/{name}")[0], 403)
    long = s3.generate_presigned_url("get_object", Params={"Bucket": name, "Key": "k"}, ExpiresIn=604_801)
    status, text = fetch(long)
    same("a URL of more than a week", (status, b"AuthorizationQueryParametersError" in text), (400, True))


@group
def rights():
    refused("an unknown key", "InvalidAccessKeyId", 403, client(access="AKNOBODY").list_buckets)
    refused("a wrong secret", "SignatureDoesNotMatch", 403, client(secret="wrong").list_buckets)
    if "S3_LESS_ACCESS_KEY" not in os.environ:
        print("skipped the scoped key: none given")
        return
    try:
        s3.create_bucket(Bucket="scoped")
    except ClientError:
        pass
    less = client(os.environ["S3_LESS_ACCESS_KEY"], os.environ["S3_LESS_SECRET_KEY"])
    same("a scoped key writes below its prefix", less.put_object(Bucket="scoped", Key="mine/k", Body=b"1")["ResponseMetadata"]["HTTPStatusCode"], 200)
    same("... reads there", less.get_object(Bucket="scoped", Key="mine/k")["Body"].read(), b"1")
    same("... lists there", less.list_objects_v2(Bucket="scoped", Prefix="mine/")["KeyCount"], 1)
    refused("... writes nowhere else", "AccessDenied", 403, less.put_object, Bucket="scoped", Key="other/k", Body=b"1")
    put("scoped", "other/k")
    refused("... reads nowhere else", "AccessDenied", 403, less.get_object, Bucket="scoped", Key="other/k")
    refused("... lists nothing else", "AccessDenied", 403, less.list_objects_v2, Bucket="scoped")
    refused("... makes no bucket", "AccessDenied", 403, less.create_bucket, Bucket=f"less-{RUN}")
    refused("... deletes nowhere else", "AccessDenied", 403, less.delete_object, Bucket="scoped", Key="other/k")
    answer = less.delete_objects(Bucket="scoped", Delete={"Objects": [{"Key": "mine/k"}, {"Key": "other/k"}]})
    same("... many: each by itself", ([d["Key"] for d in answer["Deleted"]], [e["Key"] for e in answer["Errors"]]), (["mine/k"], ["other/k"]))
    refused("... sees no other bucket", "AccessDenied", 403, less.list_objects_v2, Bucket=bucket("hidden"))


def main():
    wanted = sys.argv[1:]
    for function in checks:
        if wanted and function.__name__ not in wanted:
            continue
        print(f"--- {function.__name__}")
        try:
            function()
        except Exception:
            failed.append(f"{function.__name__} broke off")
            traceback.print_exc(file=sys.stdout)
    print(f"{passed} passed, {len(failed)} failed")
    for name in failed:
        print(f"  {name}")
    sys.exit(1 if failed else 0)


main()
