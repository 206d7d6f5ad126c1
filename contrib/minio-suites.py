#!/usr/bin/env python3
"""Runs the functional tests of MinIO's Go and Python clients, unmodified, against a running server.

    contrib/minio-suites.py HOST:PORT ACCESS_KEY SECRET_KEY

The key: stele key create --role storage-administrator --access read,write,delete,list

The tests come with the clients: github.com/minio/minio-go/v7 from the Go module proxy (needs Go), and minio from PyPI.
They make and remove buckets of their own. A test that fails is compared with minio-suites.tsv beside this file, which
says why. The exit code is 1 if a test fails that is not listed there, or if a listed one passes.
"""
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

GO, PYTHON = "v7.4.1", "7.2.20"
HERE = Path(__file__).resolve().parent


def run(command, **options):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, **options).stdout


def go_suite(work, env):
    """Builds the suite beside the module's own dependencies, and returns what each test says."""
    (work / "go.mod").write_text("module suites\n")
    module = json.loads(run(["go", "mod", "download", "-json", f"github.com/minio/minio-go/v7@{GO}"], cwd=work))
    run(["go", "build", "-o", work / "functional", "functional_tests.go"], cwd=module["Dir"])
    told = subprocess.run([work / "functional"], cwd=work, env=env | {"MINT_MODE": "full", "RUN_ON_FAIL": "1"}, capture_output=True, text=True, timeout=1800)
    return told.stdout


def python_suite(work, env):
    run([sys.executable, "-m", "venv", work / "venv"])
    python = work / "venv/bin/python"
    run([python, "-m", "pip", "install", "--quiet", f"minio=={PYTHON}"])
    run([python, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", f"minio=={PYTHON}"], cwd=work)
    with tarfile.open(work / f"minio-{PYTHON}.tar.gz") as archive:
        archive.extractall(work, filter="data")
    tests = work / f"minio-{PYTHON}/tests/functional"
    # The suite would end at its first failure.
    program = "import tests\ncall = tests._call_test\ndef go_on(*words, **named):\n    try: call(*words, **named)\n    except tests.TestFailed: pass\ntests._call_test = go_on\ntests.main()\n"
    told = subprocess.run([python, "-c", program], cwd=tests, env=env, capture_output=True, text=True, timeout=1800)
    return told.stdout


def verdicts(text):
    """The worst word of each test, with its message."""
    found = {}
    for line in text.splitlines():
        try:
            said = json.loads(line)
        except ValueError:
            continue
        if not isinstance(said, dict) or "status" not in said:
            continue
        name = said["name"].replace(": ", ":").split(" ")[0]
        word = {"PASS": 0, "NA": 1, "FAIL": 2}[said["status"]]
        if word >= found.get(name, (0, ""))[0]:
            found[name] = (word, f"{said.get('message', '')} {said.get('error', '')}".strip()[:300])
    return found


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    host, access, secret = sys.argv[1:]
    env = os.environ | {"SERVER_ENDPOINT": host, "ACCESS_KEY": access, "SECRET_KEY": secret, "ENABLE_HTTPS": "0"}
    listed = dict(line.split("\t", 1) for line in (HERE / "minio-suites.tsv").read_text().splitlines() if line and line[0] != "#")
    with tempfile.TemporaryDirectory() as folder:
        found = verdicts(go_suite(Path(folder), env)) | verdicts(python_suite(Path(folder), env))
    bad = 0
    for name, (word, message) in found.items():
        if word == 2 and name not in listed:
            bad += 1
            print(f"FAILED {name}: {message}")
        elif word != 2 and name in listed:
            bad += 1
            print(f"PASSED {name}, which is listed as failing: {listed[name]}")
    for name in listed.keys() - found.keys():
        bad += 1
        print(f"DID NOT RUN {name}")
    words = [word for word, _ in found.values()]
    print(f"{words.count(0)} passed, {words.count(1)} not applicable, {words.count(2)} failed, {len(listed)} of them as listed")
    sys.exit(1 if bad or not found else 0)


main()
