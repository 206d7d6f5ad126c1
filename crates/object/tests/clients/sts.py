#!/usr/bin/env python3
"""Temporary credentials with boto3 and the AWS command line: made, used in every way of signing, limited, ended.

Environment: S3_ENDPOINT, S3_ACCESS_KEY, S3_SECRET_KEY; S3_LESS_ACCESS_KEY and S3_LESS_SECRET_KEY of a key with access
to `mine/` in the bucket `scoped`. Each line of `ok`/`NOT OK` is one behaviour. Exits 1 if one is not as expected.
"""

import base64
import datetime
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

ENDPOINT = os.environ["S3_ENDPOINT"]
CONFIG = {"s3": {"addressing_style": "path"}, "retries": {"max_attempts": 1}}
ROLE = "arn:aws:iam::000000000000:role/any"
failed = []


def client(service, access, secret, token=None):
    return boto3.client(
        service,
        endpoint_url=ENDPOINT,
        region_name="us-east-1",
        aws_access_key_id=access,
        aws_secret_access_key=secret,
        aws_session_token=token,
        config=Config(signature_version="s3v4" if service == "s3" else "v4", **CONFIG),
    )


KEY, SECRET = os.environ["S3_ACCESS_KEY"], os.environ["S3_SECRET_KEY"]
LESS, LESS_SECRET = os.environ["S3_LESS_ACCESS_KEY"], os.environ["S3_LESS_SECRET_KEY"]
s3, sts, less_sts = client("s3", KEY, SECRET), client("sts", KEY, SECRET), client("sts", LESS, LESS_SECRET)


def check(name, holds, detail=""):
    print(f"ok      {name}" if holds else f"NOT OK  {name}  {detail}")
    if not holds:
        failed.append(name)


def refused(name, code, call, *args, **kwargs):
    try:
        answer = call(*args, **kwargs)
    except ClientError as error:
        check(name, error.response["Error"]["Code"] == code, str(error))
        return
    check(name, False, f"was allowed: {str(answer)[:200]}")


def session(by=less_sts, **arguments):
    made = by.assume_role(RoleArn=ROLE, RoleSessionName="job-1", **arguments)["Credentials"]
    return made, client("s3", made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"])


def allow(*actions, resource="arn:aws:s3:::*", **more):
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": resource, **more}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


s3.create_bucket(Bucket="scoped")
s3.create_bucket(Bucket="other")
s3.put_object(Bucket="scoped", Key="theirs/a", Body=b"theirs")

# Without a policy a session is its key.
answer = less_sts.assume_role(RoleArn=ROLE, RoleSessionName="job-1", DurationSeconds=900)
made = answer["Credentials"]
lent = client("s3", made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"])
left = (made["Expiration"] - datetime.datetime.now(datetime.timezone.utc)).total_seconds()
check("the end is in 900 seconds", 880 < left < 910, left)
check("the answer names the key", answer["AssumedRoleUser"]["Arn"].endswith(f"/{LESS}/job-1"), answer)
lent.put_object(Bucket="scoped", Key="mine/a", Body=b"a" * 100_000)
check("it writes and reads", lent.get_object(Bucket="scoped", Key="mine/a")["Body"].read() == b"a" * 100_000)
refused("it has no more rights than its key", "AccessDenied", lent.get_object, Bucket="scoped", Key="theirs/a")
refused("nor other buckets", "AccessDenied", lent.list_objects_v2, Bucket="other")
upload = lent.create_multipart_upload(Bucket="scoped", Key="mine/parts")["UploadId"]
part = lent.upload_part(Bucket="scoped", Key="mine/parts", UploadId=upload, PartNumber=1, Body=b"p" * 1000)
parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
lent.complete_multipart_upload(Bucket="scoped", Key="mine/parts", UploadId=upload, MultipartUpload=parts)
check("it uploads parts", lent.head_object(Bucket="scoped", Key="mine/parts")["ContentLength"] == 1000)

# Who am I.
me = sts.get_caller_identity()
check("a key asks who it is", me["UserId"] == KEY and me["Arn"].endswith(KEY), me)
temporary = client("sts", made["AccessKeyId"], made["SecretAccessKey"], made["SessionToken"])
check("a session asks who it is", temporary.get_caller_identity()["UserId"] == f"{LESS}:job-1")
refused("a session makes no session", "AccessDenied", temporary.assume_role, RoleArn=ROLE, RoleSessionName="again")

# Presigned URLs and forms.
url = lent.generate_presigned_url("get_object", Params={"Bucket": "scoped", "Key": "mine/a"})
check("a presigned URL works", "X-Amz-Security-Token" in url and len(urllib.request.urlopen(url).read()) == 100_000)


def status(request):
    try:
        return urllib.request.urlopen(request).status, b""
    except urllib.error.HTTPError as error:
        return error.code, error.read()


_, other = session()
bare = client("s3", made["AccessKeyId"], made["SecretAccessKey"])
code, text = status(bare.generate_presigned_url("get_object", Params={"Bucket": "scoped", "Key": "mine/a"}))
check("a presigned URL without the token does not", code == 403 and b"InvalidAccessKeyId" in text, text)
form = lent.generate_presigned_post("scoped", "mine/form")


def post(fields):
    boundary = "xxBOUNDARYxx"
    body = b"".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    )
    body += f'--{boundary}\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nposted\r\n'.encode()
    body += f"--{boundary}--\r\n".encode()
    headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
    return status(urllib.request.Request(form["url"], data=body, headers=headers, method="POST"))


check("the form carries the token", "x-amz-security-token" in form["fields"], form)
check("a form stores", post(form["fields"])[0] == 204)
check("what was posted is there", lent.get_object(Bucket="scoped", Key="mine/form")["Body"].read() == b"posted")
token = form["fields"]["x-amz-security-token"]
code, text = post({**form["fields"], "x-amz-security-token": "A" * len(token)})
check("a form with another token does not", code == 400 and b"InvalidToken" in text, text)
code, text = post({name: value for name, value in form["fields"].items() if name != "x-amz-security-token"})
check("nor one without it", code == 403 and b"InvalidAccessKeyId" in text, text)

# Session policies.
_, reader = session(by=sts, Policy=allow("s3:GetObject", resource="arn:aws:s3:::scoped/*"))
check("the policy allows", reader.get_object(Bucket="scoped", Key="theirs/a")["Body"].read() == b"theirs")
denied = [
    ("to write", reader.put_object, {"Key": "mine/b", "Body": b""}),
    ("to delete", reader.delete_object, {"Key": "mine/a"}),
    ("to list", reader.list_objects_v2, {}),
    ("the settings", reader.get_bucket_versioning, {}),
    ("to change settings", reader.put_bucket_versioning, {"VersioningConfiguration": {"Status": "Enabled"}}),
    ("to begin an upload", reader.create_multipart_upload, {"Key": "mine/c"}),
    ("the policy", reader.get_bucket_policy, {}),
    ("to copy", reader.copy_object, {"Key": "mine/d", "CopySource": "scoped/mine/a"}),
    ("to tag", reader.put_object_tagging, {"Key": "mine/a", "Tagging": {"TagSet": []}}),
    ("to bury the bucket", reader.delete_bucket, {}),
]
for what, call, arguments in denied:
    refused(f"it does not allow {what}", "AccessDenied", call, Bucket="scoped", **arguments)
refused("nor to list the buckets", "AccessDenied", reader.list_buckets)
refused("nor to make one", "AccessDenied", reader.create_bucket, Bucket="mine-too")
batch = reader.delete_objects(Bucket="scoped", Delete={"Objects": [{"Key": "mine/a"}, {"Key": "theirs/a"}]})
check("nor a batch of deletions", [e["Code"] for e in batch["Errors"]] == ["AccessDenied"] * 2, batch)
_, lister = session(by=sts, Policy=allow("s3:ListAllMyBuckets", "s3:ListBucket", resource="*"))
check("a policy can allow the list of buckets", len(lister.list_buckets()["Buckets"]) == 2)
by_prefix = allow("s3:ListBucket", Condition={"StringEquals": {"s3:prefix": "mine/"}})
_, narrow = session(by=sts, Policy=by_prefix)
check("a condition allows", narrow.list_objects_v2(Bucket="scoped", Prefix="mine/")["KeyCount"] == 3)
refused("a condition refuses", "AccessDenied", narrow.list_objects_v2, Bucket="scoped", Prefix="theirs/")
_, copier = session(by=sts, Policy=allow("s3:PutObject", resource="arn:aws:s3:::scoped/mine/*"))
refused("the source of a copy needs its own right", "AccessDenied", copier.copy_object, Bucket="scoped", Key="mine/e",
        CopySource="scoped/theirs/a")
_, beyond = session(Policy=allow("s3:*", resource="*"))
refused("a policy gives nothing", "AccessDenied", beyond.get_object, Bucket="scoped", Key="theirs/a")

# Refusals.
for what, arguments in [
    ("too short", {"DurationSeconds": 899}),
    ("too long", {"DurationSeconds": 43201}),
    ("a policy that is none", {"Policy": "{}"}),
    ("an unknown action", {"Policy": allow("s3:Nothing")}),
    ("policies by name", {"PolicyArns": [{"arn": "arn:aws:iam::aws:policy/ReadOnlyAccess"}]}),
    ("tags", {"Tags": [{"Key": "a", "Value": "b"}]}),
]:
    try:
        sts.assume_role(RoleArn=ROLE, RoleSessionName="job-1", **arguments)
        check(f"{what} is refused", False)
    except Exception as error:  # botocore checks the least duration itself
        check(f"{what} is refused", "ValidationError" in str(error) or "valid min value" in str(error), error)
wrong = client("sts", LESS, "x" * 40)
refused("a wrong secret", "SignatureDoesNotMatch", wrong.assume_role, RoleArn=ROLE, RoleSessionName="job-1")
unknown = client("sts", "STELEAAAAAAAAAAAAAAA", "x" * 40)
refused("an unknown key", "InvalidClientTokenId", unknown.assume_role, RoleArn=ROLE, RoleSessionName="job-1")
refused("another action", "InvalidAction", sts.get_session_token)
flipped = bytearray(base64.b64decode(made["SessionToken"]))
flipped[40] ^= 1
changed = client("s3", made["AccessKeyId"], made["SecretAccessKey"], base64.b64encode(bytes(flipped)).decode())
refused("a changed token", "InvalidToken", changed.get_object, Bucket="scoped", Key="mine/a")
stray = client("s3", KEY, SECRET, made["SessionToken"])
refused("a token with a lasting key", "InvalidToken", stray.list_buckets)

# The AWS command line.
environment = {
    **os.environ,
    "AWS_ACCESS_KEY_ID": LESS,
    "AWS_SECRET_ACCESS_KEY": LESS_SECRET,
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_PAGER": "",
}


def aws(environment, *arguments):
    return subprocess.run(["aws", "--endpoint-url", ENDPOINT, *arguments], env=environment, capture_output=True, text=True)


done = aws(environment, "sts", "assume-role", "--role-arn", ROLE, "--role-session-name", "cli")
check("aws sts assume-role", done.returncode == 0, done.stderr)
found = json.loads(done.stdout)["Credentials"]
environment |= {
    "AWS_ACCESS_KEY_ID": found["AccessKeyId"],
    "AWS_SECRET_ACCESS_KEY": found["SecretAccessKey"],
    "AWS_SESSION_TOKEN": found["SessionToken"],
}
done = aws(environment, "s3", "cp", "s3://scoped/mine/form", "-")
check("aws s3 cp with a session", done.stdout == "posted", done.stderr)
done = aws(environment, "s3", "cp", "s3://scoped/theirs/a", "-")
check("aws s3 cp beyond the key", done.returncode != 0, done.stdout)

print(f"{len(failed)} not as expected")
sys.exit(1 if failed else 0)
