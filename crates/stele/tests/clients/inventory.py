#!/usr/bin/env python3
"""Inventories of a bucket with boto3 and `stele bucket inventory`: their settings, and what they list.

Environment: STELE, the binary; DIRECTORY, an empty directory for the server. Exits 1 if something is not as documented.
"""

import atexit
import csv
import gzip
import hashlib
import io
import json
import os
import pathlib
import subprocess
import sys

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

STELE = os.environ["STELE"]
DIRECTORY = pathlib.Path(os.environ["DIRECTORY"])
DATA = DIRECTORY / "data"
failed = []


def check(name, holds, detail=""):
    print(f"ok      {name}" if holds else f"NOT OK  {name}  {detail}", flush=True)
    if not holds:
        failed.append(name)


def refused(name, code, call, *args, **named):
    try:
        call(*args, **named)
    except ClientError as error:
        check(name, error.response["Error"]["Code"] == code, str(error))
        return
    check(name, False, "was allowed")


log = open(DIRECTORY / "server.log", "a")
arguments = ["up", "--json", "--listen", "127.0.0.1:0", "--drive-size", "256MiB", "--dir", str(DATA)]
server = subprocess.Popen([STELE, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
atexit.register(server.kill)
ready = json.loads(server.stdout.readline())
key = json.loads((DATA / "first-key.json").read_text())
s3 = boto3.client(
    "s3",
    endpoint_url=ready["endpoint"],
    region_name="us-east-1",
    aws_access_key_id=key["access_key"],
    aws_secret_access_key=key["secret_key"],
    config=Config(s3={"addressing_style": "path"}, retries={"max_attempts": 1}),
)
s3.create_bucket(Bucket="source", ObjectLockEnabledForBucket=True)
s3.create_bucket(Bucket="reports")
FIELDS = ["Size", "LastModifiedDate", "ETag", "IsMultipartUploaded", "ObjectLockMode", "ObjectLockRetainUntilDate", "ObjectLockLegalHoldStatus"]
DAILY = {
    "Id": "daily",
    "IsEnabled": True,
    "IncludedObjectVersions": "All",
    "Schedule": {"Frequency": "Daily"},
    "OptionalFields": FIELDS,
    "Destination": {"S3BucketDestination": {"Bucket": "arn:aws:s3:::reports", "Format": "CSV", "Prefix": "inv"}},
}


def put(**change):
    inventory = {**DAILY, **change}
    s3.put_bucket_inventory_configuration(Bucket="source", Id=inventory["Id"], InventoryConfiguration=inventory)


def to(**change):
    return {"S3BucketDestination": {**DAILY["Destination"]["S3BucketDestination"], **change}}


of = {"Bucket": "source", "Id": "daily"}
refused("none at first", "NoSuchConfiguration", s3.get_bucket_inventory_configuration, **of)
check("... in the list", "InventoryConfigurationList" not in s3.list_bucket_inventory_configurations(Bucket="source"))
refused("ORC", "NotImplemented", put, Destination=to(Format="ORC"))
refused("a bucket that is not there", "InvalidArgument", put, Destination=to(Bucket="arn:aws:s3:::nowhere"))
refused("a field that is not there", "InvalidArgument", put, OptionalFields=["ReplicationStatus"])
refused("a bad id", "InvalidArgument", put, Id="a/../b")
put()
put(Id="second", IncludedObjectVersions="Current", Filter={"Prefix": "in/"}, Schedule={"Frequency": "Weekly"}, IsEnabled=False)
got = s3.get_bucket_inventory_configuration(**of)["InventoryConfiguration"]
check("as it was set", got == DAILY, got)
ids = [inventory["Id"] for inventory in s3.list_bucket_inventory_configurations(Bucket="source")["InventoryConfigurationList"]]
check("the list has both", ids == ["daily", "second"], ids)
deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutInventoryConfiguration", "Resource": "arn:aws:s3:::source"}
s3.put_bucket_policy(Bucket="source", Policy=json.dumps({"Version": "2012-10-17", "Statement": [deny]}))
refused("a policy denies the action", "AccessDenied", put)
s3.delete_bucket_policy(Bucket="source")

s3.put_object(Bucket="source", Key="in/ü b", Body=b"old")
s3.put_object(
    Bucket="source", Key="in/ü b", Body=b"newer", ObjectLockMode="GOVERNANCE", ObjectLockRetainUntilDate="2040-01-01T00:00:00Z"
)
s3.put_object(Bucket="source", Key="out", Body=b"x", ObjectLockLegalHoldStatus="ON")
s3.delete_object(Bucket="source", Key="out")


def run(*arguments):
    made = subprocess.run([STELE, "--dir", str(DATA), *arguments], capture_output=True, text=True)
    check(" ".join(arguments), made.returncode == 0, made.stderr)
    return made.stdout


report = json.loads(run("--json", "bucket", "inventory", "source", "daily"))
check("its report", (report["objects"], report["files"], report["destination"]) == (4, 1, "reports"), report)
text = s3.get_object(Bucket="reports", Key=report["manifest"])["Body"].read()
sums = s3.get_object(Bucket="reports", Key=report["manifest"].replace(".json", ".checksum"))["Body"].read().decode()
check("the checksum of the manifest", sums == hashlib.md5(text).hexdigest(), sums)
manifest = json.loads(text)
schema = ["Bucket", "Key", "VersionId", "IsLatest", "IsDeleteMarker", *FIELDS]
check("its schema", manifest["fileSchema"] == ", ".join(schema), manifest)
rows = []
for file in manifest["files"]:
    packed = s3.get_object(Bucket="reports", Key=file["key"])["Body"].read()
    check("a file as the manifest says", (len(packed), hashlib.md5(packed).hexdigest()) == (file["size"], file["MD5checksum"]), file)
    rows += [dict(zip(schema, row)) for row in csv.reader(io.StringIO(gzip.decompress(packed).decode()))]
newest = rows[0]
check("keys are escaped", newest["Key"] == "in/%C3%BC%20b", newest)
check("the newest first", [row["IsLatest"] for row in rows[:2]] == ["true", "false"], rows)
check("the lock", (newest["ObjectLockMode"], newest["ObjectLockRetainUntilDate"][:10]) == ("GOVERNANCE", "2040-01-01"), newest)
check("the marker and the hold", (rows[2]["IsDeleteMarker"], rows[3]["ObjectLockLegalHoldStatus"]) == ("true", "ON"), rows)
report = json.loads(run("--json", "bucket", "inventory", "source", "second"))
check("current ones with the prefix", report["objects"] == 1, report)
s3.delete_bucket_inventory_configuration(**of)
refused("none at last", "NoSuchConfiguration", s3.delete_bucket_inventory_configuration, **of)
server.terminate()
server.wait()
sys.exit(bool(failed))
