#!/usr/bin/env python3
"""The access log of a bucket with boto3 and the AWS command line: where it may go, and what its lines say.

Environment: STELE, the binary; DIRECTORY, an empty directory for the server. Exits 1 if something is not as documented.
"""

import atexit
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

STELE = os.environ["STELE"]
DIRECTORY = pathlib.Path(os.environ["DIRECTORY"])
DATA = DIRECTORY / "data"
LINE = re.compile(
    r'(\S+) (\S+) \[([^\]]+)\] (\S+) (\S+) (\S+) (\S+) (\S+) "([^"]*)" (\d+) (\S+) (\S+) (\S+) (\d+) (\d+) '
    r'"([^"]*)" "([^"]*)" (\S+) (\S+) (\S+) (\S+) (\S+) (\S+) (\S+) (\S+) (\S+)$'
)
failed = []


def check(name, holds, detail=""):
    print(f"ok      {name}" if holds else f"NOT OK  {name}  {detail}", flush=True)
    if not holds:
        failed.append(name)


def start():
    log = open(DIRECTORY / "server.log", "a")
    arguments = ["up", "--json", "--listen", "127.0.0.1:0", "--drive-size", "256MiB", "--dir", str(DATA)]
    child = subprocess.Popen([STELE, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
    atexit.register(child.kill)
    return child, json.loads(child.stdout.readline())


def client(access, secret):
    config = Config(signature_version="s3v4", s3={"addressing_style": "path"}, retries={"max_attempts": 1})
    return boto3.client("s3", endpoint_url=ready["endpoint"], region_name="us-east-1", aws_access_key_id=access, aws_secret_access_key=secret, config=config)


server, ready = start()
server.terminate()
server.wait()
settings = (DATA / "stele.toml").read_text()
changed = re.sub(r"access_log_every = \d+", "access_log_every = 1", settings)
check("the interval is a setting", settings != changed)
(DATA / "stele.toml").write_text(changed)
server, ready = start()
key = json.loads((DATA / "first-key.json").read_text())
s3 = client(key["access_key"], key["secret_key"])
s3.create_bucket(Bucket="source")
s3.create_bucket(Bucket="logs")
s3.create_bucket(Bucket="locked", ObjectLockEnabledForBucket=True)
made = [STELE, "--dir", str(DATA), "--json", "key", "create", "--name", "another", "--role", "storage-administrator"]
other = json.loads(subprocess.run(made, capture_output=True, check=True, text=True).stdout)
less = client(other["access_key"], other["secret_key"])
less.create_bucket(Bucket="others")


def put(target, who=s3, source="source", **more):
    enabled = {"TargetBucket": target, "TargetPrefix": "log/", **more}
    who.put_bucket_logging(Bucket=source, BucketLoggingStatus={"LoggingEnabled": enabled})


def refused(name, code, call, *args, **named):
    try:
        call(*args, **named)
    except ClientError as error:
        check(name, error.response["Error"]["Code"] == code, str(error))
        return
    check(name, False, "was allowed")


check("nothing is set at first", "LoggingEnabled" not in s3.get_bucket_logging(Bucket="source"))
refused("a bucket that is not there", "InvalidTargetBucketForLogging", put, "nowhere")
refused("a bucket of another owner", "InvalidTargetBucketForLogging", put, "others")
refused("a bucket where the author may not write", "AccessDenied", put, "logs", less)
deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": "arn:aws:s3:::logs/log/*"}
s3.put_bucket_policy(Bucket="logs", Policy=json.dumps({"Version": "2012-10-17", "Statement": [deny]}))
refused("a bucket whose policy denies it", "AccessDenied", put, "logs")
s3.delete_bucket_policy(Bucket="logs")
deny = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutBucketLogging", "Resource": "arn:aws:s3:::source"}
s3.put_bucket_policy(Bucket="source", Policy=json.dumps({"Version": "2012-10-17", "Statement": [deny]}))
refused("a policy denies the action", "AccessDenied", put, "logs")
s3.delete_bucket_policy(Bucket="source")
put("locked")
lock = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 10}}}
s3.put_object_lock_configuration(Bucket="locked", ObjectLockConfiguration=lock)
refused("a bucket with a default retention", "InvalidTargetBucketForLogging", put, "locked")
grants = [{"Grantee": {"Type": "Group", "URI": "http://acs.amazonaws.com/groups/global/AllUsers"}, "Permission": "READ"}]
refused("grants", "AccessControlListNotSupported", put, "logs", TargetGrants=grants)
put("logs")
got = s3.get_bucket_logging(Bucket="source")["LoggingEnabled"]
check("the setting as it was made", (got["TargetBucket"], got["TargetPrefix"]) == ("logs", "log/"), got)

s3.put_object(Bucket="source", Key='a "b"\n/ü', Body=b"seven b")
s3.get_object(Bucket="source", Key='a "b"\n/ü', Range="bytes=1-3")["Body"].read()
refused("a key that is not there", "NoSuchKey", s3.get_object, Bucket="source", Key="none")
import urllib.request

url = s3.generate_presigned_url("get_object", Params={"Bucket": "source", "Key": "none"})
try:
    urllib.request.urlopen(urllib.request.Request(url, headers={"User-Agent": 'evil" 200', "Referer": "http://page/"}))
except urllib.error.HTTPError:
    pass


def lines():
    keys = [entry["Key"] for entry in s3.list_objects_v2(Bucket="logs", Prefix="log/").get("Contents", [])]
    return keys, [line for key in keys for line in s3.get_object(Bucket="logs", Key=key)["Body"].read().decode().splitlines()]


end = time.monotonic() + 60
while time.monotonic() < end and not any("QueryString" in line for line in lines()[1]):
    time.sleep(0.3)
keys, found = lines()
check("keys have the prefix and the date", all(re.fullmatch(r"log/\d{4}-\d\d-\d\d-\d\d-\d\d-\d\d-[0-9A-F]{16}", key) for key in keys), keys)
parsed = [LINE.match(line) for line in found]
check("every line has the form of AWS", all(parsed), [line for line, match in zip(found, parsed) if not match])
parsed = [match.groups() for match in parsed if match]
by = lambda operation, status: [line for line in parsed if line[6] == operation and line[9] == status]
stored = by("REST.PUT.OBJECT", "200")
check("the write", len(stored) == 1 and stored[0][7] == "a%20%22b%22%0A/%C3%BC" and stored[0][12] == "7", stored)
check("who wrote", stored and stored[0][4] == key["access_key"] and stored[0][3] == "127.0.0.1", stored)
read = by("REST.GET.OBJECT", "206")
check("a range: bytes sent and the object's size", len(read) == 1 and read[0][11:13] == ("3", "7"), read)
missing = by("REST.GET.OBJECT", "404")
check("refusals with their code", len(missing) == 2 and all(line[10] == "NoSuchKey" for line in missing), missing)
foreign = [line for line in missing if line[21] == "QueryString"]
check("a client's text cannot end its field", foreign and foreign[0][16] == "evil%22 200", foreign)
check("... and its signature is not told", foreign and "X-Amz-Signature=..." in foreign[0][8], foreign)
audit = subprocess.run([STELE, "--dir", str(DATA), "audit", "show"], capture_output=True, text=True).stdout
check("the audit log names the writer of the log", "stele access log" in audit, audit[-500:])
s3.put_bucket_logging(Bucket="source", BucketLoggingStatus={})
check("an empty document ends it", "LoggingEnabled" not in s3.get_bucket_logging(Bucket="source"))
server.terminate()
server.wait()
sys.exit(bool(failed))
