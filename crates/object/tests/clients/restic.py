#!/usr/bin/env python3
"""A backup with restic: made, repeated, checked byte for byte, restored, forgotten and pruned."""

import os
import pathlib
import subprocess
import sys
import tempfile

with tempfile.TemporaryDirectory() as work:
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": os.environ["S3_ACCESS_KEY"],
        "AWS_SECRET_ACCESS_KEY": os.environ["S3_SECRET_KEY"],
        "AWS_DEFAULT_REGION": "us-east-1",
        "RESTIC_REPOSITORY": f"s3:{os.environ['S3_ENDPOINT']}/restic/repository",
        "RESTIC_PASSWORD": "for the test",
        "RESTIC_CACHE_DIR": f"{work}/cache",
    }

    def restic(*arguments):
        done = subprocess.run(["restic", *arguments], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    source = pathlib.Path(work) / "source"
    source.mkdir()
    for number in range(60):
        (source / f"{number}").write_bytes(os.urandom(number * 5003))
    (source / "large").write_bytes(os.urandom(40 << 20))
    restic("init")
    print("ok      init")
    restic("backup", str(source))
    (source / "0").write_bytes(b"changed")
    restic("backup", str(source))
    print("ok      backup, twice")
    restic("check", "--read-data")
    print("ok      check --read-data")
    restic("restore", "latest", "--target", f"{work}/back")
    back = pathlib.Path(work) / "back" / str(source).lstrip("/")
    for path in source.iterdir():
        assert (back / path.name).read_bytes() == path.read_bytes(), path
    print("ok      restore")
    restic("forget", "--keep-last", "1", "--prune")
    restic("check")
    print("ok      forget and prune")
sys.exit(0)
