#!/usr/bin/env python3
"""What people do with the AWS command line: sync a tree there and back, large files, locks, presigned URLs."""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request

ENDPOINT = os.environ["S3_ENDPOINT"]
ENVIRONMENT = {
    **os.environ,
    "AWS_ACCESS_KEY_ID": os.environ["S3_ACCESS_KEY"],
    "AWS_SECRET_ACCESS_KEY": os.environ["S3_SECRET_KEY"],
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_PAGER": "",
}


def aws(*arguments, fails=None):
    done = subprocess.run(["aws", "--endpoint-url", ENDPOINT, *arguments], env=ENVIRONMENT, capture_output=True, text=True)
    if fails:
        assert done.returncode != 0 and fails in done.stderr, f"{arguments}: expected {fails}, got {done.stdout}{done.stderr}"
        return done.stderr
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


def tree(root):
    return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(root.rglob("*")) if p.is_file()}


with tempfile.TemporaryDirectory() as work:
    work = pathlib.Path(work)
    ENVIRONMENT["AWS_CONFIG_FILE"] = str(work / "config")
    source = work / "source"
    for number in range(40):
        path = source / f"dir {number % 5}" / f"file-{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(number * 997))
    (source / "ünïcode").write_bytes(b"text")
    (source / "large").write_bytes(os.urandom(21 << 20))
    aws("s3", "mb", "s3://cli")
    aws("s3", "sync", str(source), "s3://cli/tree", "--no-progress")
    aws("s3", "sync", "s3://cli/tree", str(work / "back"), "--no-progress")
    assert tree(source) == tree(work / "back"), "what comes back is what went"
    print("ok      sync there and back")
    assert aws("s3", "sync", str(source), "s3://cli/tree", "--no-progress") == "", "nothing to do the second time"
    print("ok      sync again does nothing")
    listed = aws("s3", "ls", "s3://cli/tree/", "--recursive")
    assert len(listed.strip().splitlines()) == 42, listed
    print("ok      ls --recursive")
    aws("s3", "cp", "s3://cli/tree/large", "s3://cli/copy")
    aws("s3", "mv", "s3://cli/copy", "s3://cli/moved")
    aws("s3", "cp", "s3://cli/moved", str(work / "moved"))
    assert (work / "moved").read_bytes() == (source / "large").read_bytes()
    print("ok      cp and mv of a large object on the server")
    url = aws("s3", "presign", "s3://cli/moved").strip()
    if "X-Amz-Signature" not in url:
        # Version 1 of the command presigns with Signature Version 2; the refusal says how it does not.
        try:
            urllib.request.urlopen(url)
            sys.exit("Signature Version 2 was taken")
        except urllib.error.HTTPError as error:
            said = error.read().decode()
        hint = "aws configure set default.s3.signature_version s3v4"
        assert hint in said, said
        aws(*hint.split()[1:])
        url = aws("s3", "presign", "s3://cli/moved").strip()
    assert urllib.request.urlopen(url).read() == (source / "large").read_bytes()
    print("ok      presign")
    for algorithm in ["CRC32", "SHA1", "SHA256"]:
        done = json.loads(aws("s3api", "put-object", "--bucket", "cli", "--key", algorithm, "--body", str(source / "large"), "--checksum-algorithm", algorithm))
        assert f"Checksum{algorithm}" in done, done
    print("ok      checksums")
    aws("s3api", "create-multipart-upload", "--bucket", "cli", "--key", "half")
    aws("s3", "rb", "--force", "s3://cli")
    print("ok      rb --force with an unfinished upload")

    aws("s3api", "create-bucket", "--bucket", "cli-lock", "--object-lock-enabled-for-bucket")
    rule = {"ObjectLockEnabled": "Enabled", "Rule": {"DefaultRetention": {"Mode": "COMPLIANCE", "Days": 1}}}
    aws("s3api", "put-object-lock-configuration", "--bucket", "cli-lock", "--object-lock-configuration", json.dumps(rule))
    done = json.loads(aws("s3api", "put-object", "--bucket", "cli-lock", "--key", "k", "--body", str(source / "ünïcode")))
    aws("s3api", "delete-object", "--bucket", "cli-lock", "--key", "k", "--version-id", done["VersionId"], fails="AccessDenied")
    kept = json.loads(aws("s3api", "get-object-retention", "--bucket", "cli-lock", "--key", "k"))
    assert kept["Retention"]["Mode"] == "COMPLIANCE", kept
    aws("s3api", "head-object", "--bucket", "cli-lock", "--key", "none", fails="404")
    print("ok      object lock")
sys.exit(0)
