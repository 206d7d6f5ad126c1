"""boto3 and libnfs's tools on one share: what one stores, the other reads. Arguments: S3 endpoint, NFS port."""

import socket
import struct
import subprocess
import sys
import urllib.request

import boto3
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import ClientError

endpoint, port = sys.argv[1:3]
s3 = boto3.client("s3", endpoint_url=endpoint, config=Config(signature_version="s3v4"))


def url(share, path):
    return f"nfs://127.0.0.1/{share}/{path}?version=3&nfsport={port}&mountport={port}&uid=1000&gid=1000"


def nfs_write(share, path, data):
    with open("outgoing", "wb") as file:
        file.write(data)
    subprocess.run(["nfs-cp", "outgoing", url(share, path)], check=True, stdout=subprocess.DEVNULL, timeout=60)


def opaque(data):
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


class Nfs:
    """Just enough of NFS version 3 to change a file that exists: nfs-cp only makes new ones."""

    def __init__(self, share):
        self.stream = socket.create_connection(("127.0.0.1", int(port)))
        self.root = self.handle(self.call(100005, 1, opaque(f"/{share}".encode())))

    def call(self, program, procedure, arguments):
        sender = opaque(struct.pack(">I", 0) + opaque(b"test") + struct.pack(">III", 1000, 1000, 0))
        head = struct.pack(">IIIIIII", 7, 0, 2, program, 3, procedure, 1) + sender + struct.pack(">II", 0, 0)
        self.stream.sendall(struct.pack(">I", 0x80000000 | len(head + arguments)) + head + arguments)
        length = struct.unpack(">I", self.stream.recv(4, socket.MSG_WAITALL))[0] & 0x7FFFFFFF
        answer = self.stream.recv(length, socket.MSG_WAITALL)[24:]
        status = struct.unpack(">I", answer[:4])[0]
        expect(status == 0, f"procedure {procedure} of NFS answers {status}")
        return answer[4:]

    def handle(self, answer):
        length = struct.unpack(">I", answer[:4])[0]
        return answer[4 : 4 + length]

    def find(self, path):
        at = self.root
        for name in path.split("/"):
            at = self.handle(self.call(100003, 3, opaque(at) + opaque(name.encode())))
        return at

    def replace(self, path, data):
        file = self.find(path)
        # A new size, and no other attribute; then a stable write.
        self.call(100003, 2, opaque(file) + struct.pack(">IIIIQIII", 0, 0, 0, 1, len(data), 0, 0, 0))
        self.call(100003, 7, opaque(file) + struct.pack(">QII", 0, len(data), 2) + opaque(data))


def nfs_change(share, path, data):
    Nfs(share).replace(path, data)


def nfs_read(share, path):
    return subprocess.run(["nfs-cat", url(share, path)], check=True, capture_output=True, timeout=60).stdout


def code(act):
    try:
        act()
    except ClientError as error:
        return error.response["Error"]["Code"]
    return None


def keys(bucket, **more):
    found = []
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, **more):
        found += [entry["Key"] for entry in page.get("Contents", [])]
        found += [entry["Prefix"] for entry in page.get("CommonPrefixes", [])]
    return found


def expect(condition, text):
    if not condition:
        raise AssertionError(text)


# Over NFS, then over S3.
small, large = bytes(range(256)) * 20, b"stele" * (2 << 20)
nfs_write("home", "from-nfs", small)
answer = s3.get_object(Bucket="home", Key="from-nfs")
expect(answer["Body"].read() == small, "the file over S3 differs")
expect(answer["Metadata"] == {}, f"the gateway's metadata are shown: {answer['Metadata']}")
head = s3.head_object(Bucket="home", Key="from-nfs")
expect(head["ETag"] == answer["ETag"] and head["ContentLength"] == len(small), "HEAD and GET differ")
part = s3.get_object(Bucket="home", Key="from-nfs", Range="bytes=10-19")["Body"].read()
expect(part == small[10:20], "a range differs")

# Over S3, then over NFS: new directories, a multipart upload, and a new version of a file that NFS wrote.
s3.put_object(Bucket="home", Key="a/b/from-s3", Body=small, Metadata={"colour": "grey"}, Tagging="kind=test")
expect(nfs_read("home", "a/b/from-s3") == small, "the object over NFS differs")
expect(s3.head_object(Bucket="home", Key="a/b/from-s3")["Metadata"] == {"colour": "grey"}, "metadata")
tags = s3.get_object_tagging(Bucket="home", Key="a/b/from-s3")["TagSet"]
expect(tags == [{"Key": "kind", "Value": "test"}], tags)
with open("large", "wb") as file:
    file.write(large)
s3.upload_file("large", "home", "a/large", Config=TransferConfig(multipart_threshold=5 << 20, multipart_chunksize=5 << 20))
expect(nfs_read("home", "a/large") == large, "the multipart object over NFS differs")
s3.put_object(Bucket="home", Key="from-nfs", Body=b"replaced")
expect(nfs_read("home", "from-nfs") == b"replaced", "a replaced file over NFS differs")
nfs_change("home", "a/b/from-s3", b"changed over NFS")
expect(s3.get_object(Bucket="home", Key="a/b/from-s3")["Body"].read() == b"changed over NFS", "a changed file")
s3.copy_object(Bucket="home", Key="copies/large", CopySource={"Bucket": "home", "Key": "a/large"})
expect(nfs_read("home", "copies/large") == large, "the copy over NFS differs")
s3.copy_object(Bucket="plain", Key="large", CopySource={"Bucket": "home", "Key": "a/large"})
s3.copy_object(Bucket="home", Key="back", CopySource={"Bucket": "plain", "Key": "large"})
expect(nfs_read("home", "back") == large, "the copy from a bucket differs")

# Uploads under way, among them one at a path that looks like a key of the archive.
upload = s3.create_multipart_upload(Bucket="home", Key="0000000000000011")["UploadId"]
s3.upload_part(Bucket="home", Key="0000000000000011", UploadId=upload, PartNumber=1, Body=b"part")
expect([entry["Key"] for entry in s3.list_multipart_uploads(Bucket="home")["Uploads"]] == ["0000000000000011"], "uploads")
expect(len(s3.list_parts(Bucket="home", Key="0000000000000011", UploadId=upload)["Parts"]) == 1, "parts")
s3.abort_multipart_upload(Bucket="home", Key="0000000000000011", UploadId=upload)
expect(code(lambda: s3.head_object(Bucket="home", Key="0000000000000011")) == "404", "an aborted upload")

# Listings.
s3.put_object(Bucket="home", Key="a-b", Body=b"x")
s3.put_object(Bucket="home", Key="empty/", Body=b"")
whole = ["a-b", "a/b/from-s3", "a/large", "back", "copies/large", "empty/", "from-nfs"]
expect(keys("home") == whole, keys("home"))
expect(keys("home", PaginationConfig={"PageSize": 2}) == whole, "pages differ")
expect(keys("home", Delimiter="/") == ["a-b", "back", "from-nfs", "a/", "copies/", "empty/"], keys("home", Delimiter="/"))
expect(keys("home", Prefix="a/", Delimiter="/") == ["a/large", "a/b/"], keys("home", Prefix="a/", Delimiter="/"))
first = s3.list_objects(Bucket="home", MaxKeys=3, Delimiter="/")
expect(first["IsTruncated"] and first["NextMarker"] == "back", first)

# Keys that no tree holds, conditions, and the archive's own keys.
for key in ["a//b", "../a", "a/./b", "from-nfs/below", "a", "x" * 256]:
    expect(code(lambda: s3.put_object(Bucket="home", Key=key, Body=b"x")) == "InvalidRequest", key)
expect(code(lambda: s3.put_object(Bucket="home", Key="a-b", Body=b"x", IfNoneMatch="*")) == "PreconditionFailed", "If-None-Match")
expect(code(lambda: s3.get_object(Bucket="home", Key="0000000000000010")) == "NoSuchKey", "a key of the archive")
expect(code(lambda: s3.put_object(Bucket="home", Key="p", Body=b"x", Metadata={"stele-path": "q"})) == "InvalidArgument", "metadata")
link = s3.generate_presigned_url("get_object", Params={"Bucket": "home", "Key": "a-b"})
expect(urllib.request.urlopen(link).read() == b"x", "a presigned URL")

# Deletions, with an answer for each key.
answer = s3.delete_objects(Bucket="home", Delete={"Objects": [{"Key": key} for key in ["a-b", "missing", "a//b", "empty/"]]})
expect([error["Key"] for error in answer["Errors"]] == ["a//b"], answer)
expect(keys("home", Delimiter="/") == ["back", "from-nfs", "a/", "copies/"], keys("home", Delimiter="/"))
expect(code(lambda: s3.get_object(Bucket="home", Key="a-b")) == "NoSuchKey", "a removed file")

# Versions and retention on a share with Object Lock: its default holds for what S3 stores.
one = s3.put_object(Bucket="records", Key="2026/ledger", Body=b"final")
expect(s3.get_object_retention(Bucket="records", Key="2026/ledger")["Retention"]["Mode"] == "COMPLIANCE", "the default")
expect(code(lambda: s3.put_object(Bucket="records", Key="2026/ledger", Body=b"other")) == "AccessDenied", "a committed file")
expect(code(lambda: s3.delete_object(Bucket="records", Key="2026/ledger")) == "AccessDenied", "a committed file")
expect(nfs_read("records", "2026/ledger") == b"final", "the committed file over NFS")
nfs_write("records", "draft", b"one")
s3.head_object(Bucket="records", Key="draft")
nfs_change("records", "draft", b"two")
s3.head_object(Bucket="records", Key="draft")
versions = [entry for entry in s3.list_object_versions(Bucket="records", Prefix="draft")["Versions"]]
expect([entry["IsLatest"] for entry in versions][0] and len(versions) >= 2, versions)
old = s3.get_object(Bucket="records", Key="draft", VersionId=versions[-1]["VersionId"])["Body"].read()
expect(old == b"one", old)
s3.put_object_legal_hold(Bucket="records", Key="draft", LegalHold={"Status": "ON"})
expect(code(lambda: s3.delete_object(Bucket="records", Key="draft")) == "AccessDenied", "a held file")
s3.put_object_legal_hold(Bucket="records", Key="draft", LegalHold={"Status": "OFF"})
s3.delete_object(Bucket="records", Key="draft")
expect(keys("records") == ["2026/ledger"], keys("records"))
print("all held")
