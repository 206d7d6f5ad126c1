#!/usr/bin/env python3
"""The documents of a bucket, set and felt with boto3: policy, block of public access, CORS, lifecycle.

Environment: S3_ENDPOINT, S3_ACCESS_KEY, S3_SECRET_KEY; S3_LESS_ACCESS_KEY and S3_LESS_SECRET_KEY of a key
without access to the bucket. Each line of `ok`/`NOT OK` is one behaviour. Exits 1 if one is not as documented.
"""

import datetime
import email.utils
import json
import os
import re
import sys
import urllib.error
import urllib.request

import boto3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

ENDPOINT = os.environ["S3_ENDPOINT"]
CONFIG = {"s3": {"addressing_style": "path"}, "retries": {"max_attempts": 1}}
BUCKET = "documents"
failed = []


def client(access=None, secret=None, signature="s3v4"):
    return boto3.client(
        "s3",
        endpoint_url=ENDPOINT,
        region_name="us-east-1",
        aws_access_key_id=access,
        aws_secret_access_key=secret,
        config=Config(signature_version=signature, **CONFIG),
    )


s3 = client(os.environ["S3_ACCESS_KEY"], os.environ["S3_SECRET_KEY"])
LESS = os.environ["S3_LESS_ACCESS_KEY"]
less = client(LESS, os.environ["S3_LESS_SECRET_KEY"])
public = client(signature=UNSIGNED)


def check(name, holds, detail=""):
    print(f"ok      {name}" if holds else f"NOT OK  {name}  {detail}")
    if not holds:
        failed.append(name)


def same(name, got, expected):
    check(name, got == expected, f"got {got!r}, expected {expected!r}")


def refused(name, code, call, *args, **kwargs):
    try:
        answer = call(*args, **kwargs)
    except ClientError as error:
        check(name, error.response["Error"]["Code"] == code, str(error))
        return
    check(name, False, f"was allowed: {str(answer)[:200]}")


def policy(*statements):
    document = {"Version": "2012-10-17", "Statement": list(statements)}
    s3.put_bucket_policy(Bucket=BUCKET, Policy=json.dumps(document))
    return document


def statement(effect, actions, resource="/*", principal="*", **more):
    return {
        "Effect": effect,
        "Principal": principal,
        "Action": actions,
        "Resource": f"arn:aws:s3:::{BUCKET}{resource}",
        **more,
    }


def text(who, key, **more):
    return who.get_object(Bucket=BUCKET, Key=key, **more)["Body"].read()


def policies():
    refused("no policy at first", "NoSuchBucketPolicy", s3.get_bucket_policy, Bucket=BUCKET)
    refused("the public reads nothing", "AccessDenied", text, public, "open/a")
    document = policy(statement("Allow", "s3:GetObject", "/open/*"))
    same("the policy as it was set", json.loads(s3.get_bucket_policy(Bucket=BUCKET)["Policy"]), document)
    same("it is public", s3.get_bucket_policy_status(Bucket=BUCKET)["PolicyStatus"]["IsPublic"], True)
    same("the public reads what it opens", text(public, "open/a"), b"a")
    refused("... and nothing else", "AccessDenied", text, public, "closed/b")
    refused("... and lists nothing", "AccessDenied", public.list_objects_v2, Bucket=BUCKET)
    refused("... and writes nothing", "AccessDenied", public.put_object, Bucket=BUCKET, Key="open/c", Body=b"c")
    refused("a head is a read", "403", public.head_object, Bucket=BUCKET, Key="closed/b")
    refused("a missing key, by one that may not list", "AccessDenied", text, public, "open/none")
    refused("... and its head", "403", public.head_object, Bucket=BUCKET, Key="open/none")

    policy(
        statement("Allow", ["s3:PutObject", "s3:GetObject"], "/inbox/${aws:username}/*", {"AWS": LESS}),
        statement("Allow", "s3:ListBucket", "", {"AWS": LESS}, Condition={"StringLike": {"s3:prefix": "inbox/*"}}),
    )
    same("it is not public", s3.get_bucket_policy_status(Bucket=BUCKET)["PolicyStatus"]["IsPublic"], False)
    less.put_object(Bucket=BUCKET, Key=f"inbox/{LESS}/x", Body=b"mine")
    same("a key in its own place", text(less, f"inbox/{LESS}/x"), b"mine")
    refused("... in another's", "AccessDenied", less.put_object, Bucket=BUCKET, Key="inbox/other/x", Body=b"")
    refused("... deleting", "AccessDenied", less.delete_object, Bucket=BUCKET, Key=f"inbox/{LESS}/x")
    same("a listing of the prefix", less.list_objects_v2(Bucket=BUCKET, Prefix="inbox/")["KeyCount"], 1)
    refused("a missing key below it", "NoSuchKey", text, less, f"inbox/{LESS}/none")
    refused("a listing of everything", "AccessDenied", less.list_objects_v2, Bucket=BUCKET)
    big = less.create_multipart_upload(Bucket=BUCKET, Key=f"inbox/{LESS}/parts")
    of = {"Bucket": BUCKET, "Key": f"inbox/{LESS}/parts", "UploadId": big["UploadId"]}
    part = less.upload_part(**of, PartNumber=1, Body=b"part")
    less.complete_multipart_upload(**of, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]})
    same("a multipart upload by the policy", text(less, f"inbox/{LESS}/parts"), b"part")
    source = {"Bucket": BUCKET, "Key": "closed/b"}
    refused("a copy reads its source", "AccessDenied", less.copy_object, Bucket=BUCKET, Key=f"inbox/{LESS}/y", CopySource=source)

    policy(
        statement("Deny", "s3:PutObject", Condition={"Null": {"s3:x-amz-server-side-encryption": "true"}}),
        statement("Deny", "s3:DeleteObject", "/closed/*", Sid="Keep"),
        statement("Allow", "s3:GetObject", Condition={"StringEquals": {"s3:ExistingObjectTag/public": "yes"}}),
    )
    refused("an upload without encryption", "AccessDenied", s3.put_object, Bucket=BUCKET, Key="plain", Body=b"")
    empty = {"Bucket": BUCKET, "Key": "plain", "Body": b"", "ServerSideEncryption": ""}
    refused("... and with an empty header", "AccessDenied", s3.put_object, **empty)
    s3.put_object(Bucket=BUCKET, Key="sealed", Body=b"s", ServerSideEncryption="AES256")
    batch = {"Objects": [{"Key": "sealed"}, {"Key": "closed/b"}]}
    answer = s3.delete_objects(Bucket=BUCKET, Delete=batch)
    same("a batch deletes what it may", [one["Key"] for one in answer.get("Deleted", [])], ["sealed"])
    same("... and names what it may not", [(one["Key"], one["Code"]) for one in answer["Errors"]], [("closed/b", "AccessDenied")])
    refused("without the tag", "AccessDenied", text, public, "open/a")
    s3.put_object_tagging(Bucket=BUCKET, Key="open/a", Tagging={"TagSet": [{"Key": "public", "Value": "yes"}]})
    same("with the tag", text(public, "open/a"), b"a")

    policy(statement("Allow", "s3:PutObjectTagging"))
    tagged = {"Bucket": BUCKET, "Key": "open/a", "Body": b"other", "Tagging": "public=yes"}
    refused("a write by one that may only tag", "AccessDenied", public.put_object, **tagged)
    policy(statement("Allow", "s3:PutObject"))
    refused("tags by one that may only write", "AccessDenied", public.put_object, **tagged)
    policy(statement("Allow", ["s3:PutObject", "s3:PutObjectTagging"]))
    public.put_object(**{**tagged, "Body": b"a"})
    same("a write with tags by one that may both", s3.get_object(Bucket=BUCKET, Key="open/a")["Body"].read(), b"a")

    local = {"IpAddress": {"aws:SourceIp": "127.0.0.0/8"}}
    policy(statement("Allow", "s3:GetObject", Condition=local))
    same("from this address", text(public, "closed/b"), b"b")
    policy(statement("Allow", "s3:GetObject", Condition={"NotIpAddress": local["IpAddress"]}))
    refused("not from this address", "AccessDenied", text, public, "closed/b")
    policy(statement("Allow", "s3:GetObject", Condition={"Bool": {"aws:SecureTransport": "true"}}))
    refused("not without TLS", "AccessDenied", text, public, "closed/b")
    for what, bad in [
        ("an unknown action", statement("Allow", "s3:Fly")),
        ("another bucket", {**statement("Allow", "s3:GetObject"), "Resource": "arn:aws:s3:::other/*"}),
        ("an unknown key", statement("Allow", "s3:GetObject", principal={"AWS": "AKNOBODY"})),
        ("an unknown condition", statement("Allow", "s3:GetObject", Condition={"StringEquals": {"aws:Moon": "full"}})),
        ("the bypass of a retention", statement("Allow", "s3:BypassGovernanceRetention")),
    ]:
        document = json.dumps({"Version": "2012-10-17", "Statement": [bad]})
        refused(f"a policy with {what}", "MalformedPolicy", s3.put_bucket_policy, Bucket=BUCKET, Policy=document)
    mine = json.dumps({"Version": "2012-10-17", "Statement": [statement("Allow", "s3:*")]})
    refused("a policy by another key", "AccessDenied", less.put_bucket_policy, Bucket=BUCKET, Policy=mine)
    policy(statement("Deny", "s3:*", ""), statement("Deny", "s3:*"))
    refused("a bucket that is shut", "AccessDenied", text, s3, "open/a")
    s3.delete_bucket_policy(Bucket=BUCKET)
    same("... is opened again", text(s3, "open/a"), b"a")


def blocks():
    refused("no block at first", "NoSuchPublicAccessBlockConfiguration", s3.get_public_access_block, Bucket=BUCKET)
    policy(statement("Allow", "s3:GetObject"))
    block = {name: True for name in ["BlockPublicAcls", "IgnorePublicAcls", "BlockPublicPolicy", "RestrictPublicBuckets"]}
    s3.put_public_access_block(Bucket=BUCKET, PublicAccessBlockConfiguration=block)
    same("the block as it was set", s3.get_public_access_block(Bucket=BUCKET)["PublicAccessBlockConfiguration"], block)
    refused("the public is kept out", "AccessDenied", text, public, "open/a")
    document = json.dumps({"Version": "2012-10-17", "Statement": [statement("Allow", "s3:GetObject")]})
    refused("a public policy", "AccessDenied", s3.put_bucket_policy, Bucket=BUCKET, Policy=document)
    s3.delete_public_access_block(Bucket=BUCKET)
    same("the public is let in again", text(public, "open/a"), b"a")
    s3.delete_bucket_policy(Bucket=BUCKET)
    enforced = {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}
    s3.put_bucket_ownership_controls(Bucket=BUCKET, OwnershipControls=enforced)
    writer = {"Rules": [{"ObjectOwnership": "ObjectWriter"}]}
    refused("another ownership", "NotImplemented", s3.put_bucket_ownership_controls, Bucket=BUCKET, OwnershipControls=writer)


def ask(method, key, **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(f"{ENDPOINT}/{BUCKET}/{key}", method=method, headers=names)
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers)


def cors():
    refused("no CORS at first", "NoSuchCORSConfiguration", s3.get_bucket_cors, Bucket=BUCKET)
    page = "https://app.example.com"
    status, _ = ask("OPTIONS", "open/a", Origin=page, Access_Control_Request_Method="GET")
    same("a browser's question before", status, 403)
    rules = [
        {
            "ID": "app",
            "AllowedOrigins": ["https://*.example.com"],
            "AllowedMethods": ["GET", "PUT"],
            "AllowedHeaders": ["x-amz-*", "content-type"],
            "ExposeHeaders": ["ETag"],
            "MaxAgeSeconds": 300,
        },
        {"AllowedOrigins": ["*"], "AllowedMethods": ["HEAD"]},
    ]
    s3.put_bucket_cors(Bucket=BUCKET, CORSConfiguration={"CORSRules": rules})
    same("the rules as they were set", s3.get_bucket_cors(Bucket=BUCKET)["CORSRules"], rules)
    asked = {"Origin": page, "Access_Control_Request_Method": "PUT", "Access_Control_Request_Headers": "X-Amz-Date, content-type"}
    status, headers = ask("OPTIONS", "new", **asked)
    same("a browser's question", status, 200)
    same("... the origin", headers.get("access-control-allow-origin"), page)
    same("... the methods", headers.get("access-control-allow-methods"), "GET, PUT")
    same("... the headers", headers.get("access-control-allow-headers"), "x-amz-date, content-type")
    same("... for how long", headers.get("access-control-max-age"), "300")
    check("... it varies by origin", "Origin" in headers.get("vary", ""))
    same("another method", ask("OPTIONS", "new", **{**asked, "Access_Control_Request_Method": "DELETE"})[0], 403)
    same("another origin", ask("OPTIONS", "new", **{**asked, "Origin": "https://evil.org"})[0], 403)
    same("another header", ask("OPTIONS", "new", **{**asked, "Access_Control_Request_Headers": "x-other"})[0], 403)
    same("no origin", ask("OPTIONS", "new", Access_Control_Request_Method="GET")[0], 400)
    policy(statement("Allow", "s3:GetObject"))
    status, headers = ask("GET", "open/a", Origin=page)
    same("an answer to the page", (status, headers.get("access-control-allow-origin")), (200, page))
    same("... what it may read", headers.get("access-control-expose-headers"), "ETag")
    status, headers = ask("GET", "open/none", Origin=page)
    same("a refusal to the page", (status, headers.get("access-control-allow-origin")), (403, page))
    same("another page", ask("GET", "open/a", Origin="https://evil.org")[1].get("access-control-allow-origin"), None)
    same("every origin", ask("HEAD", "open/a", Origin="https://evil.org")[1].get("access-control-allow-origin"), "*")
    s3.delete_bucket_policy(Bucket=BUCKET)
    s3.delete_bucket_cors(Bucket=BUCKET)
    refused("no CORS at last", "NoSuchCORSConfiguration", s3.get_bucket_cors, Bucket=BUCKET)


def lifecycle():
    missing = "NoSuchLifecycleConfiguration"
    refused("no rules at first", missing, s3.get_bucket_lifecycle_configuration, Bucket=BUCKET)
    rules = [
        {"ID": "logs", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 30}},
        {
            "ID": "all",
            "Status": "Disabled",
            "Filter": {
                "And": {
                    "Prefix": "a/",
                    "Tags": [{"Key": "b", "Value": "1"}, {"Key": "c", "Value": "2"}],
                    "ObjectSizeGreaterThan": 5,
                    "ObjectSizeLessThan": 500,
                }
            },
            "NoncurrentVersionExpiration": {"NoncurrentDays": 3, "NewerNoncurrentVersions": 2},
        },
        {"ID": "old form", "Status": "Enabled", "Prefix": "p", "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}},
        {"ID": "markers", "Status": "Enabled", "Filter": {"Prefix": ""}, "Expiration": {"ExpiredObjectDeleteMarker": True}},
        {"ID": "one tag", "Status": "Enabled", "Filter": {"Tag": {"Key": "t", "Value": "v"}}, "Expiration": {"Days": 1}},
    ]
    put = lambda rules: s3.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration={"Rules": rules})
    put(rules)
    same("the rules as they were set", s3.get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"], rules)
    base = {"ID": "x", "Status": "Enabled", "Filter": {"Prefix": ""}}
    refused("no day", "InvalidArgument", put, [{**base, "Expiration": {"Days": 0}}])
    refused("a date at noon", "InvalidArgument", put, [{**base, "Expiration": {"Date": "2040-01-01T12:00:00Z"}}])
    refused("two rules of one id", "InvalidArgument", put, [{**base, "Expiration": {"Days": 1}}] * 2)
    moved = {**base, "Transitions": [{"Days": 1, "StorageClass": "GLACIER"}]}
    refused("a transition", "NotImplemented", put, [moved])
    refused("no action", "InvalidArgument", put, [base])
    refused("another key", "AccessDenied", less.get_bucket_lifecycle_configuration, Bucket=BUCKET)
    put([
        {"ID": "later", "Status": "Enabled", "Filter": {"Prefix": "ends/"}, "Expiration": {"Days": 9}},
        {"ID": "of a week/2", "Status": "Enabled", "Filter": {"Prefix": "ends/"}, "Expiration": {"Days": 7}},
        {"ID": "off", "Status": "Disabled", "Filter": {"Prefix": ""}, "Expiration": {"Days": 1}},
    ])
    today = datetime.datetime.now(datetime.timezone.utc).date()
    stored = s3.put_object(Bucket=BUCKET, Key="ends/a", Body=b"1")
    said = {
        "PUT": stored,
        "GET": s3.get_object(Bucket=BUCKET, Key="ends/a"),
        "HEAD": s3.head_object(Bucket=BUCKET, Key="ends/a"),
        "copy": s3.copy_object(Bucket=BUCKET, Key="ends/b", CopySource=f"{BUCKET}/ends/a"),
    }
    for name, answer in said.items():
        text = answer.get("Expiration", "")
        date, rule = re.fullmatch('expiry-date="(.*)", rule-id="(.*)"', text).groups() if text else ("", "")
        left = (email.utils.parsedate_to_datetime(date).date() - today).days if date else None
        check(f"{name} says when a rule ends it", (left, rule) in [(8, "of%20a%20week%2F2"), (7, "of%20a%20week%2F2")], text)
    check("no rule, no end", "Expiration" not in s3.put_object(Bucket=BUCKET, Key="stays", Body=b"1"))
    if "VersionId" in stored:
        named = s3.head_object(Bucket=BUCKET, Key="ends/a", VersionId=stored["VersionId"])
        check("nothing is said of a named version", "Expiration" not in named, named)
    s3.delete_bucket_lifecycle(Bucket=BUCKET)
    refused("no rules at last", missing, s3.get_bucket_lifecycle_configuration, Bucket=BUCKET)


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def post(fields, content=b"content", filename="a b.txt", path=f"/{BUCKET}", kind="text/plain"):
    """Sends a form as a browser does; the status, the headers and the body of the answer."""
    mark = "----form7MA4YWxkTrZu0gW"
    parts = []
    for name, value in fields.items():
        parts.append(f'--{mark}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode())
    head = f'--{mark}\r\nContent-Disposition: form-data; name="file"; filename="{filename}"\r\nContent-Type: {kind}\r\n\r\n'
    body = b"".join(parts) + head.encode() + content + f"\r\n--{mark}--\r\n".encode()
    headers = {"Content-Type": f"multipart/form-data; boundary={mark}"}
    request = urllib.request.Request(ENDPOINT + path, data=body, method="POST", headers=headers)
    try:
        with urllib.request.build_opener(NoRedirect).open(request) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers), error.read()


def code(answer):
    text = answer[2].decode()
    return text.split("<Code>")[1].split("</Code>")[0] if "<Code>" in text else f"status {answer[0]}"


def forms():
    def signed(key="form/${filename}", fields=None, conditions=None, who=s3, **more):
        made = who.generate_presigned_post(BUCKET, key, Fields=fields, Conditions=conditions, **more)
        return made["fields"]

    # boto3 lets the key begin with what stands before ${filename}.
    answer = post(signed())
    same("a form", answer[0], 204)
    same("... its content", text(s3, "form/a b.txt"), b"content")
    same("... no type but the form's", s3.head_object(Bucket=BUCKET, Key="form/a b.txt")["ContentType"], "binary/octet-stream")
    big = os.urandom(3_000_000) + b"\r\n--almost\r\n"
    same("a large form", post(signed("form/big"), big)[0], 204)
    check("... its content", text(s3, "form/big") == big)
    same("an empty file", post(signed("form/empty"), b"")[0], 204)
    same("... its content", text(s3, "form/empty"), b"")
    own = {"x-amz-meta-who": "me", "success_action_status": "201", "Content-Type": "image/png"}
    answer = post(signed("form/meta", own, [{name: value} for name, value in own.items()]))
    same("a form with fields", answer[0], 201)
    check("... is told where its object is", b"<Key>form/meta</Key>" in answer[2] and b"<PostResponse>" in answer[2], answer[2])
    head = s3.head_object(Bucket=BUCKET, Key="form/meta")
    same("... its metadata and type", (head["Metadata"], head["ContentType"]), ({"who": "me"}, "image/png"))
    url = {"success_action_redirect": "http://localhost/done?a=1"}
    answer = post(signed("form/sent", url, [url]))
    same("a redirect", answer[0], 303)
    check("... names the object", answer[1]["location"].startswith("http://localhost/done?a=1&bucket=documents&key=form%2Fsent&etag=%22"), answer[1])
    tagging = "<Tagging><TagSet><Tag><Key>a b</Key><Value>1&amp;2</Value></Tag></TagSet></Tagging>"
    same("tags", post(signed("form/tags", {"tagging": tagging}, [{"tagging": tagging}]))[0], 204)
    same("... as they are", s3.get_object_tagging(Bucket=BUCKET, Key="form/tags")["TagSet"], [{"Key": "a b", "Value": "1&2"}])

    small = [["content-length-range", 3, 7]]
    same("a file of the right size", post(signed("form/size", None, list(small)))[0], 204)
    same("one that is too large", code(post(signed("form/large", None, list(small)), b"12345678")), "EntityTooLarge")
    same("one that is too small", code(post(signed("form/small", None, list(small)), b"12")), "EntityTooSmall")
    same("a field more than the policy has", code(post({**signed("form/more"), "x-amz-meta-a": "1"})), "AccessDenied")
    same("another key than the policy's", code(post({**signed("form/key"), "key": "form/other"})), "AccessDenied")
    same("another bucket than the policy's", code(post(signed("form/x"), path="/scoped")) in ("AccessDenied", "NoSuchBucket"), True)
    changed = signed("form/policy")
    changed["policy"] = changed["policy"][:-8] + "AAAAAAA="
    same("another policy than the signed one", code(post(changed)), "SignatureDoesNotMatch")
    same("a key without the right", code(post(signed("form/less", who=less))), "AccessDenied")
    same("no policy", code(post({"key": "form/none"})), "AccessDenied")
    same("an expired policy", code(post(signed("form/late", ExpiresIn=-5))), "AccessDenied")
    same("no key", code(post({name: value for name, value in signed().items() if name != "key"})), "InvalidArgument")
    for key in ["large", "small", "more", "other", "policy", "less", "none", "late"]:
        refused(f"nothing was stored: {key}", "404", s3.head_object, Bucket=BUCKET, Key=f"form/{key}")
    policy(statement("Allow", "s3:PutObject", "/drop/*"))
    same("a form of the public, by the bucket's policy", post({"key": "drop/${filename}"})[0], 204)
    same("... and nowhere else", code(post({"key": "elsewhere"})), "AccessDenied")
    s3.delete_bucket_policy(Bucket=BUCKET)


s3.create_bucket(Bucket=BUCKET)
s3.put_object(Bucket=BUCKET, Key="open/a", Body=b"a")
s3.put_object(Bucket=BUCKET, Key="closed/b", Body=b"b")
for group in [policies, blocks, cors, lifecycle, forms]:
    print(f"--- {group.__name__}")
    group()
sys.exit(bool(failed))
