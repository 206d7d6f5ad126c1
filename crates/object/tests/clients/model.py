#!/usr/bin/env python3
"""Every header of every operation in botocore's model of S3 is honoured or refused; none is accepted and passed over.

The proof: a header that takes garbage is a header that nobody read. Each is sent with a value that means nothing, and the
request must be refused, while the same request without it is not. Where S3 takes any text, or ignores what it cannot
read as HTTP has it, the header is sent with a value whose effect is seen instead. Operations that are not implemented are
sent too, and must be refused as they are.

Environment: S3_ENDPOINT, S3_ACCESS_KEY, S3_SECRET_KEY. Exits 1 if a header or operation is passed over.
"""

import base64
import hashlib
import http.client
import os
import re
import sys
import urllib.parse

import botocore.session
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

ENDPOINT = os.environ["S3_ENDPOINT"]
KEYS = Credentials(os.environ["S3_ACCESS_KEY"], os.environ["S3_SECRET_KEY"])
GARBAGE = "garbage, which means nothing"
failed = []
counted = 0


def send(method, path, body=b"", headers=None):
    """Signs and sends; status, headers in lower case, and text of the answer."""
    body = body.encode() if isinstance(body, str) else body
    request = AWSRequest(method=method, url=ENDPOINT + path, data=body, headers=headers or {})
    request.context["payload_signing_enabled"] = True
    S3SigV4Auth(KEYS, "s3", "us-east-1").add_auth(request)
    connection = http.client.HTTPConnection(ENDPOINT.split("//")[1], timeout=30)
    connection.request(method, path, body or None, dict(request.headers.items()) | {"Content-Length": str(len(body))})
    answer = connection.getresponse()
    text = answer.read().decode("utf-8", "replace")
    connection.close()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, text


def done(*arguments, **named):
    status, headers, text = send(*arguments, **named)
    assert status < 300, f"{arguments} {named}: {status} {text}"
    return headers, text


def check(name, holds, detail=""):
    global counted
    counted += 1
    if not holds:
        failed.append(name)
        print(f"NOT OK  {name}  {detail}")


def xml(root, inner):
    return f"<{root}>{inner}</{root}>"


def begin(key, headers=None):
    _, text = done("POST", f"/model/{key}?uploads", headers=headers)
    return re.search("<UploadId>(.*?)</UploadId>", text).group(1)


done("PUT", "/model")
done("PUT", "/spare")
done("PUT", "/set")
done("PUT", "/locked", headers={"x-amz-bucket-object-lock-enabled": "true"})
put, _ = done("PUT", "/model/k", "content")
done("PUT", "/spare/k", "content")
done("PUT", "/locked/k", "content")
ETAG = put["etag"]
done("PUT", "/model/read", "content")
MODIFIED = done("HEAD", "/model/read")[0]["last-modified"]
made = 0


def bucket():
    """A new bucket's path each time."""
    global made
    made += 1
    return f"/made{made:04}"


def upload():
    """An upload with one part; its query, and the part's entity tag."""
    number = begin("whole")
    part, _ = done("PUT", f"/model/whole?partNumber=1&uploadId={number}", "part")
    return f"uploadId={number}", part["etag"]


def completion():
    query, etag = upload()
    parts = xml("Part", xml("PartNumber", "1") + xml("ETag", etag))
    return "POST", f"/model/whole?{query}", xml("CompleteMultipartUpload", parts), {}


def after(path, ask):
    done("PUT", path)
    return ask


def deletion():
    body = xml("Delete", xml("Object", xml("Key", "none"))).encode()
    return "POST", "/model?delete", body, {"Content-MD5": base64.b64encode(hashlib.md5(body).digest()).decode()}


TAGS = xml("Tagging", xml("TagSet", xml("Tag", xml("Key", "a") + xml("Value", "1"))))
AES = xml(
    "ServerSideEncryptionConfiguration",
    xml("Rule", xml("ApplyServerSideEncryptionByDefault", xml("SSEAlgorithm", "AES256"))),
)
RETENTION = xml("Retention", xml("Mode", "GOVERNANCE") + xml("RetainUntilDate", "2099-01-01T00:00:00Z"))
COPY = {"x-amz-copy-source": "/model/k"}
CORS = xml("CORSConfiguration", xml("CORSRule", xml("AllowedMethod", "GET") + xml("AllowedOrigin", "*")))
LIFECYCLE = xml("LifecycleConfiguration", xml("Rule", xml("Filter", xml("Prefix", "old/")) + xml("Status", "Enabled") + xml("Expiration", xml("Days", "9"))))
OWNERSHIP = xml("OwnershipControls", xml("Rule", xml("ObjectOwnership", "BucketOwnerEnforced")))
INVENTORY = xml(
    "InventoryConfiguration",
    xml("Destination", xml("S3BucketDestination", xml("Bucket", "arn:aws:s3:::spare") + xml("Format", "CSV")))
    + xml("IsEnabled", "false") + xml("Id", "i") + xml("IncludedObjectVersions", "All") + xml("Schedule", xml("Frequency", "Daily")),
)


def after_inventory():
    done("PUT", "/set?inventory&id=i", INVENTORY)
    return "DELETE", "/set?inventory&id=i", "", {}


POLICY = '{"Statement":[{"Effect":"Allow","Principal":"*","Action":"s3:GetObject","Resource":"arn:aws:s3:::set/*"}]}'
of_bucket = lambda method, query, body="", at="/model": lambda: (method, f"{at}?{query}" if query else at, body, {})
of_object = lambda method, query="", body="", at="/model/k": of_bucket(method, query, body, at)

# What is implemented, as a request that is answered well. Each is made anew for each header.
IMPLEMENTED = {
    "AbortMultipartUpload": lambda: ("DELETE", f"/model/whole?{upload()[0]}", "", {}),
    "CompleteMultipartUpload": completion,
    "CopyObject": lambda: ("PUT", "/model/copy", "", COPY),
    "CreateBucket": lambda: ("PUT", bucket(), "", {}),
    "CreateMultipartUpload": of_object("POST", "uploads"),
    "DeleteBucket": lambda: (lambda path: after(path, ("DELETE", path, "", {})))(bucket()),
    "DeleteBucketEncryption": of_bucket("DELETE", "encryption"),
    "DeleteBucketTagging": of_bucket("DELETE", "tagging"),
    "DeleteObject": of_object("DELETE", at="/model/none"),
    "DeleteObjectTagging": of_object("DELETE", "tagging"),
    "DeleteObjects": deletion,
    "GetBucketAccelerateConfiguration": of_bucket("GET", "accelerate"),
    "GetBucketAcl": of_bucket("GET", "acl"),
    "GetBucketEncryption": of_bucket("GET", "encryption"),
    "GetBucketLocation": of_bucket("GET", "location"),
    "GetBucketLogging": of_bucket("GET", "logging"),
    "GetBucketNotificationConfiguration": of_bucket("GET", "notification"),
    "GetBucketOwnershipControls": of_bucket("GET", "ownershipControls"),
    "GetBucketRequestPayment": of_bucket("GET", "requestPayment"),
    "GetBucketTagging": of_bucket("GET", "tagging", at="/tagged"),
    "GetBucketVersioning": of_bucket("GET", "versioning"),
    "GetObject": of_object("GET", at="/model/read"),
    "GetObjectAcl": of_object("GET", "acl"),
    "GetObjectAttributes": lambda: ("GET", "/model/k?attributes", "", {"x-amz-object-attributes": "ETag"}),
    "GetObjectLegalHold": of_object("GET", "legal-hold", at="/locked/k"),
    "GetObjectLockConfiguration": of_bucket("GET", "object-lock", at="/locked"),
    "GetObjectRetention": of_object("GET", "retention", at="/locked/retained"),
    "GetObjectTagging": of_object("GET", "tagging"),
    "HeadBucket": of_bucket("HEAD", ""),
    "HeadObject": of_object("HEAD", at="/model/read"),
    "ListBuckets": of_bucket("GET", "", at="/"),
    "ListMultipartUploads": of_bucket("GET", "uploads"),
    "ListObjectVersions": of_bucket("GET", "versions"),
    "ListObjects": of_bucket("GET", ""),
    "ListObjectsV2": of_bucket("GET", "list-type=2"),
    "ListParts": lambda: ("GET", f"/model/whole?{upload()[0]}", "", {}),
    "DeleteBucketCors": of_bucket("DELETE", "cors", at="/set"),
    "DeleteBucketLifecycle": of_bucket("DELETE", "lifecycle", at="/set"),
    "DeleteBucketPolicy": of_bucket("DELETE", "policy", at="/set"),
    "DeletePublicAccessBlock": of_bucket("DELETE", "publicAccessBlock", at="/set"),
    "PutBucketCors": of_bucket("PUT", "cors", CORS, "/set"),
    "PutBucketLifecycleConfiguration": of_bucket("PUT", "lifecycle", LIFECYCLE, "/set"),
    "PutBucketOwnershipControls": of_bucket("PUT", "ownershipControls", OWNERSHIP, "/set"),
    "PutBucketPolicy": of_bucket("PUT", "policy", POLICY, "/set"),
    "PutPublicAccessBlock": of_bucket("PUT", "publicAccessBlock", xml("PublicAccessBlockConfiguration", xml("BlockPublicAcls", "false")), "/set"),
    "PutBucketInventoryConfiguration": of_bucket("PUT", "inventory&id=i", INVENTORY, "/set"),
    "GetBucketInventoryConfiguration": of_bucket("GET", "inventory&id=j", at="/listed"),
    "ListBucketInventoryConfigurations": of_bucket("GET", "inventory"),
    "DeleteBucketInventoryConfiguration": lambda: after_inventory(),
    "PutBucketLogging": of_bucket("PUT", "logging", xml("BucketLoggingStatus", ""), "/set"),
    "PutBucketNotificationConfiguration": of_bucket("PUT", "notification", xml("NotificationConfiguration", ""), "/set"),
    "PutBucketEncryption": of_bucket("PUT", "encryption", AES),
    "PutBucketTagging": of_bucket("PUT", "tagging", TAGS),
    "PutBucketVersioning": of_bucket("PUT", "versioning", xml("VersioningConfiguration", xml("Status", "Enabled")), "/locked"),
    "PutObject": lambda: ("PUT", "/model/put", "content", {}),
    "PutObjectLegalHold": of_object("PUT", "legal-hold", xml("LegalHold", xml("Status", "OFF")), "/locked/k"),
    "PutObjectLockConfiguration": of_bucket("PUT", "object-lock", xml("ObjectLockConfiguration", xml("ObjectLockEnabled", "Enabled")), "/locked"),
    "PutObjectRetention": of_object("PUT", "retention", RETENTION, "/locked/k"),
    "PutObjectTagging": of_object("PUT", "tagging", TAGS),
    "UploadPart": lambda: ("PUT", f"/model/whole?partNumber=1&{upload()[0]}", "part", {}),
    "UploadPartCopy": lambda: ("PUT", f"/model/whole?partNumber=1&{upload()[0]}", "", COPY),
}
# Settings that were never made, and are answered with a code of their own.
UNSET = {
    "GetBucketCors": ("cors", "NoSuchCORSConfiguration"),
    "GetBucketLifecycle": ("lifecycle", "NoSuchLifecycleConfiguration"),
    "GetBucketLifecycleConfiguration": ("lifecycle", "NoSuchLifecycleConfiguration"),
    "GetBucketNotification": ("notification", "<NotificationConfiguration"),
    "GetBucketPolicy": ("policy", "NoSuchBucketPolicy"),
    "GetBucketPolicyStatus": ("policyStatus", "NoSuchBucketPolicy"),
    "GetBucketReplication": ("replication", "ReplicationConfigurationNotFoundError"),
    "GetBucketWebsite": ("website", "NoSuchWebsiteConfiguration"),
    "GetPublicAccessBlock": ("publicAccessBlock", "NoSuchPublicAccessBlockConfiguration"),
}
# The same request as another operation's, by nothing but the host it is sent to.
ANOTHERS = {"ListDirectoryBuckets"}

# Any text is stored with the object, and given back.
STORED = {
    "cache-control": "no-store",
    "content-disposition": "attachment",
    "content-encoding": "gzip",
    "content-language": "de",
    "content-type": "text/x-model",
    "expires": "Tue, 01 Dec 2099 16:00:00 GMT",
    "x-amz-meta-": "model",
}
# A value that shows its effect by this status, where garbage shows none.
SEEN = {
    "if-none-match": (ETAG, {304, 412, 501}),
    "if-modified-since": (MODIFIED, {304}),
    "if-unmodified-since": ("Thu, 01 Dec 2022 16:00:00 GMT", {412}),
    "range": ("bytes=1-2", {206}),
    "x-amz-copy-source-if-none-match": (ETAG, {412}),
}
# Garbage that is well-formed otherwise: any text is the name of a tag.
MALFORMED = {"x-amz-tagging": "a=1&a=2"}
# Says how many bytes follow: HTTP's own.
OF_HTTP = {"content-length"}


def read_back(operation, name, value):
    """Whether what an operation was sent with is given back by the object it makes."""
    method, path, body, headers = IMPLEMENTED[operation]()
    headers = headers | {name + "x" if name.endswith("-") else name: value}
    if operation == "CopyObject":
        headers |= {"x-amz-metadata-directive": "REPLACE"}
    _, text = done(method, path, body, headers=headers)
    if operation == "CreateMultipartUpload":
        number = re.search("<UploadId>(.*?)</UploadId>", text).group(1)
        part, _ = done("PUT", f"/model/k?partNumber=1&uploadId={number}", "content")
        parts = xml("Part", xml("PartNumber", "1") + xml("ETag", part["etag"]))
        done("POST", f"/model/k?uploadId={number}", xml("CompleteMultipartUpload", parts))
        path = "/model/k"
    got, _ = done("HEAD", path)
    done("PUT", "/model/k", "content")
    return got.get(name + "x" if name.endswith("-") else name) == value


def headers_of(operation):
    shape = operation.input_shape
    members = shape.members.items() if shape else []
    for _, member in members:
        if member.serialization.get("location") in ("header", "headers"):
            yield member.serialization["name"].lower()
    # Which the model names apart from the others.
    if operation.http_checksum.get("requestAlgorithmMember"):
        yield "x-amz-sdk-checksum-algorithm"


def walk(name, operation):
    ask = IMPLEMENTED[name]
    for header in sorted(set(headers_of(operation))):
        label = f"{name} {header}"
        if header in OF_HTTP:
            continue
        if header in STORED:
            check(label, read_back(name, header, STORED[header]), "is not given back")
            continue
        value, expected = SEEN.get(header, (MALFORMED.get(header, GARBAGE), None))
        method, path, body, headers = ask()
        if header == "content-md5" and not body:
            continue
        if header in SEEN and method == "HEAD" and header == "if-none-match":
            expected = {304}
        status, _, text = send(method, path, body, {n: v for n, v in headers.items() if n.lower() != header} | {header: value})
        holds = status in expected if expected else 400 <= status < 500 or status == 501
        check(label, holds, f"answered {status} {text[:200]}")
    method, path, body, headers = ask()
    status, _, text = send(method, path, body, headers)
    check(f"{name} as it is", status < 300, f"answered {status} {text[:300]}")


def walk_unimplemented(name, operation):
    uri = operation.http["requestUri"]
    path = uri.replace("{Bucket}", "spare").replace("{Key+}", "k")
    path = re.sub(r"\{.*?\}", "x", path)
    # What stands in the query with a value is there as well.
    for _, member in operation.input_shape.members.items() if operation.input_shape else []:
        if member.serialization.get("location") == "querystring" and member.serialization["name"] in ("id", "versionId"):
            path += ("&" if "?" in path else "?") + member.serialization["name"] + "=x"
    status, _, text = send(operation.http["method"], path, "<X/>" if operation.http["method"] in ("PUT", "POST") else b"")
    check(f"{name} is refused", 400 <= status < 500 or status == 501, f"{path} answered {status} {text[:200]}")


done("PUT", "/tagged")
done("PUT", "/tagged?tagging", TAGS)
done("PUT", "/locked/retained", "content")
done("PUT", "/listed")
done("PUT", "/listed?inventory&id=j", INVENTORY.replace("<Id>i<", "<Id>j<"))
done("PUT", "/locked/retained?retention", RETENTION)
model = botocore.session.get_session().get_service_model("s3")
for name in model.operation_names:
    operation = model.operation_model(name)
    if name in ANOTHERS:
        continue
    if name in UNSET:
        query, words = UNSET[name]
        _, _, text = send("GET", f"/model?{query}")
        check(f"{name} says there is none", words in text, text[:200])
        status, _, _ = send("GET", f"/model?{query}", headers={"x-amz-expected-bucket-owner": GARBAGE})
        check(f"{name} x-amz-expected-bucket-owner", status == 403, f"answered {status}")
    elif name in IMPLEMENTED:
        walk(name, operation)
    else:
        walk_unimplemented(name, operation)
check("what was refused changed nothing", send("GET", "/spare/k")[2] == "content")
print(f"{counted} headers and operations, {len(failed)} passed over")
sys.exit(1 if failed else 0)
