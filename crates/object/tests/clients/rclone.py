#!/usr/bin/env python3
"""What people do with rclone: copy, check, sync, list, move, purge; odd names and large files."""

import os
import pathlib
import subprocess
import sys
import tempfile

ENVIRONMENT = {
    **os.environ,
    "RCLONE_CONFIG": "/dev/null",
    "RCLONE_CONFIG_S_TYPE": "s3",
    "RCLONE_CONFIG_S_PROVIDER": "Other",
    "RCLONE_CONFIG_S_ENDPOINT": os.environ["S3_ENDPOINT"],
    "RCLONE_CONFIG_S_ACCESS_KEY_ID": os.environ["S3_ACCESS_KEY"],
    "RCLONE_CONFIG_S_SECRET_ACCESS_KEY": os.environ["S3_SECRET_KEY"],
    "RCLONE_CONFIG_S_REGION": "us-east-1",
}


def rclone(*arguments):
    done = subprocess.run(["rclone", "--retries", "1", *arguments], env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return done.stdout


# rclone's transport refuses a bundle for a server that is plain HTTP anyway.
ENVIRONMENT.pop("AWS_CA_BUNDLE", None)

with tempfile.TemporaryDirectory() as work:
    source = pathlib.Path(work) / "source"
    source.mkdir()
    for name in ["plain", "with space", "plus+sign", "per%cent", "ümlaut", "日本語", "quote'", "amp&", "semi;", "hash#", "star", "a=b", "😀"]:
        (source / name).write_bytes(name.encode() * 1000)
    (source / "sub").mkdir()
    for number in range(30):
        (source / "sub" / f"{number}").write_bytes(os.urandom(number * 1001))
    (source / "large").write_bytes(os.urandom(30 << 20))
    (source / "empty").write_bytes(b"")
    rclone("mkdir", "s:rclone")
    rclone("copy", str(source), "s:rclone/tree", "--s3-upload-cutoff", "8M", "--s3-chunk-size", "5M")
    print("ok      copy")
    rclone("check", str(source), "s:rclone/tree", "--download")
    print("ok      check by content")
    rclone("check", str(source), "s:rclone/tree")
    print("ok      check by hash")
    rclone("copy", "s:rclone/tree", f"{work}/back")
    rclone("check", str(source), f"{work}/back")
    print("ok      copy back")
    (source / "plain").unlink()
    rclone("sync", str(source), "s:rclone/tree")
    names = rclone("lsf", "s:rclone/tree").splitlines()
    assert "plain" not in names and "with space" in names and "sub/" in names, names
    print("ok      sync removes")
    rclone("moveto", "s:rclone/tree/large", "s:rclone/moved")
    rclone("copyto", "s:rclone/moved", f"{work}/moved")
    assert pathlib.Path(f"{work}/moved").read_bytes() == (source / "large").read_bytes()
    print("ok      move on the server")
    assert "Total objects: 44" in rclone("size", "s:rclone"), rclone("size", "s:rclone")
    rclone("purge", "s:rclone")
    assert "rclone" not in rclone("lsd", "s:")
    print("ok      purge")
sys.exit(0)
