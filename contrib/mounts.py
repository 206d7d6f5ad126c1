#!/usr/bin/env python3
"""Mounts a bucket of a running server by s3fs and by rclone mount, and works on it as on a directory.

    contrib/mounts.py URL ACCESS_KEY SECRET_KEY

The key: stele key create --role storage-administrator --access read,write,delete,list

Needs root or fusermount3, /dev/fuse, and Debian's packages s3fs, rclone and fuse3. It makes a bucket and removes it again.
The exit code is 1 if a check fails.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def run(*command, env=None):
    done = subprocess.run([str(word) for word in command], env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def rclone_settings(url, access, secret):
    settings = {"TYPE": "s3", "PROVIDER": "Other", "ENDPOINT": url, "ACCESS_KEY_ID": access, "SECRET_ACCESS_KEY": secret}
    # rclone refuses a bundle of certificates in the environment.
    environment = {name: value for name, value in os.environ.items() if name != "AWS_CA_BUNDLE"}
    return environment | {f"RCLONE_CONFIG_S_{name}": value for name, value in settings.items()} | {"RCLONE_CONFIG": "/dev/null"}


def content(root):
    """Each file below the directory, with its bytes."""
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def differences(place, twin):
    """The files that one has and the other has not, or otherwise."""
    here, there = content(place), content(twin)
    return sorted(name for name in here.keys() | there.keys() if here.get(name) != there.get(name))


def work(place, twin):
    """The same on the mount and in a plain directory. Yields what is compared, and the files that differ."""

    def both(act):
        for root in (twin, place):
            act(root)

    def write(name, content):
        both(lambda root: ((root / name).parent.mkdir(parents=True, exist_ok=True), (root / name).write_bytes(content)))

    large = os.urandom(30_000_000)
    write("small", b"small")
    write("tree/a/one", b"1" * 5000)
    write("tree/b/two", b"")
    write("tree/ä b+c%20/three", os.urandom(70_000))
    write("large", large)
    yield "files of all sizes", differences(place, twin)
    both(lambda root: (root / "small").write_bytes(b"smaller, and then longer"))
    yield "a file written again", differences(place, twin)

    def edit(name, mode, change):
        def act(root):
            with open(root / name, mode) as file:
                change(file)

        both(act)

    edit("tree/a/one", "ab", lambda file: file.write(b"appended"))
    yield "a file appended to", differences(place, twin)
    edit("large", "r+b", lambda file: (file.seek(12_345_678), file.write(b"changed in the middle")))
    yield "a large file changed in the middle", differences(place, twin)
    # By an open file: s3fs 1.90 stores zeros if a file is cut short by its name alone.
    edit("large", "r+b", lambda file: file.truncate(10_000_000))
    yield "a file cut short", differences(place, twin)
    both(lambda root: (root / "large").rename(root / "tree/moved"))
    yield "a file renamed", differences(place, twin)
    both(lambda root: (root / "tree").rename(root / "renamed"))
    yield "a directory renamed", differences(place, twin)
    with open(place / "renamed/moved", "rb") as file:
        file.seek(9_000_000)
        yield "a read in the middle", [] if file.read(1000) == large[9_000_000:9_001_000] else ["renamed/moved"]
    both(lambda root: shutil.rmtree(root / "renamed/a"))
    both(lambda root: (root / "small").unlink())
    yield "files removed", differences(place, twin)
    both(lambda root: shutil.rmtree(root / "renamed"))
    yield "everything removed", differences(place, twin)


def judge(name, mount, folder):
    place, twin = folder / f"{name}-mount", folder / f"{name}-twin"
    place.mkdir(), twin.mkdir()
    mount(place)
    failed = 0
    try:
        for what, differ in work(place, twin):
            failed += bool(differ)
            print(f"FAILED {name}: {what}: {', '.join(differ)} differ" if differ else f"ok     {name}: {what}")
    finally:
        subprocess.run(["fusermount3", "-u", "-z", place], check=False)
    return failed


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    url, access, secret = sys.argv[1:]
    env = rclone_settings(url, access, secret)
    bucket = f"mounts-{os.getpid()}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        folder = Path(folder)
        run("rclone", "mkdir", f"s:{bucket}", env=env)
        keys = folder / "keys"
        keys.write_text(f"{access}:{secret}\n")
        keys.chmod(0o600)

        def s3fs(place):
            run("s3fs", bucket, place, "-o", f"passwd_file={keys},url={url},use_path_request_style")

        def rclone(place):
            (folder / "cache").mkdir()
            run("rclone", "mount", f"s:{bucket}", place, "--daemon", "--vfs-cache-mode", "full", "--vfs-write-back", "0", "--cache-dir", folder / "cache", env=env)

        try:
            failed = judge("s3fs", s3fs, folder)
            failed += judge("rclone mount", rclone, folder)
        finally:
            # rclone writes back in the background.
            time.sleep(2)
            subprocess.run(["rclone", "purge", f"s:{bucket}"], env=env, check=False)
    print("ok" if failed == 0 else f"{failed} failed")
    sys.exit(1 if failed else 0)


main()
