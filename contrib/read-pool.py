#!/usr/bin/env python3
"""Reads the drives of a pool without Stele: FORMAT/ in code. It opens every file for reading only.

usage: read-pool.py volumes DRIVE...
       read-pool.py volume NAME FILE DRIVE...
       read-pool.py objects --key FILE [--to DIR] [--without-catalog] DRIVE...
       read-pool.py files SHARE --key FILE [--to DIR] DRIVE...
       read-pool.py audit --key FILE [--without-catalog] DRIVE...

DRIVE is a drive or an image of it; no server may have it open. As many drives may be missing as the
codes tolerate. FILE of --key has the master key. Every command prints a JSON object a line. With
--to, contents go into new files of DIR, which the lines name. --without-catalog uses the data volume
alone. Exit code 0: everything could be read. 1: something could not; standard error or the line of
the thing says so. 2: wrong usage.
It needs Python 3.8 and the packages `cryptography`, `blake3` and `xxhash`.
"""

import argparse
import base64
import json
import os
import re
import sys
from datetime import datetime, timedelta
from struct import error as StructError

from read_pool_archive import MODES, Catalog, Share, Store, Survey
from read_pool_array import Wrong, check
from read_pool_volumes import Pool

DAMAGE = (Wrong, StructError, ValueError, KeyError, IndexError, TypeError, RecursionError)
PIECE = 64 << 10  # Of a volume. A piece with an unreadable part is left out.
KINDS = {0: "file", 1: "directory", 2: "symbolic link", 3: "block device", 4: "character device", 5: "pipe",
         6: "socket"}
ACTIONS = """CreateStore OpenStore CreateBucket ChangeBucket DeleteBucket PutObject DeleteObject AddDeleteMarker
    SetRetention SetLegalHold SetTags CreateUpload PutPart CompleteUpload AbortUpload CreateAccessKey RevokeAccessKey
    Expire Dispose ClockAlarm ClockAccept ExportMasterKey Rebuild Read List Audit Face Protect Administer Approve
    Summary NarrowAccessKey Matter Class SelfTest""".split()


def time(milliseconds):
    return (datetime(1970, 1, 1) + timedelta(milliseconds=milliseconds)).isoformat(timespec="milliseconds") + "Z"


def actor(of):
    kind, values = of
    return "anonymous" if kind == 0 else f"{('key', 'uid', 'stele')[kind - 1]} {values[0]}"


class Output:
    """Prints lines, and writes contents into numbered files."""

    def __init__(self, folder):
        self.folder, self.count, self.good = folder, 0, True
        if folder:
            os.makedirs(folder, exist_ok=False)

    def content(self, line, pieces):
        """Reads all of it, and writes it where a folder was given."""
        self.count += 1
        name = os.path.join(self.folder, f"{self.count:08}") if self.folder else os.devnull
        try:
            with open(name, "wb") as file:
                line["read_bytes"] = sum(file.write(piece) for piece in pieces)
            if self.folder:
                line["file"] = name
        except DAMAGE as finding:
            line["unreadable"], self.good = str(finding), False

    @staticmethod
    def line(fields):
        print(json.dumps(fields, ensure_ascii=True))


def volumes(pool, _, output):
    for name, volume in sorted(pool.volumes.items()):
        first = volume.layers[0]
        code = f"mirror-{first.m + 1}" if first.k == 1 else f"{first.k}+{first.m}"
        line = {"volume": name, "size_bytes": volume.size, "code": code, "snapshot": first.kind == 1,
                "owner": first.owner or None, "unreadable": []}
        for at in range(0, volume.size, PIECE):
            try:
                volume.read(at, min(PIECE, volume.size - at))
            except DAMAGE as finding:
                line["unreadable"].append({"offset": at, "finding": str(finding)})
                output.good = False
        output.line(line)


def volume(pool, given, output):
    check(given.name in pool.volumes, f"the pool has no volume {given.name!r}")
    of, lost = pool.volumes[given.name], []
    with open(given.file, "xb") as file:
        for at in range(0, of.size, PIECE):
            try:
                piece = of.read(at, min(PIECE, of.size - at))
            except DAMAGE as finding:
                lost.append({"offset": at, "finding": str(finding)})
                continue
            if any(piece):
                file.seek(at)
                file.write(piece)
        file.truncate(of.size)
    output.good = not lost
    output.line({"volume": given.name, "size_bytes": of.size, "file": given.file, "zeros_instead": lost})


def owned(pool, owner):
    found = [one for _, one in sorted(pool.volumes.items()) if one.layers[0].owner == owner]
    check(found, f"no volume of the pool has the owner {owner!r}")
    return found


def catalog_of(pool, store):
    """The catalog of the data volume: a rebuild may have left others."""
    findings = []
    for volume in owned(pool, "catalog"):
        try:
            catalog = Catalog(volume)
            if store.is_of(catalog):
                return catalog
            findings.append(f"{volume.name} is not the catalog of the data volume")
        except DAMAGE as finding:
            findings.append(f"{volume.name}: {finding}")
    raise Wrong("; ".join(findings) + "; --without-catalog reads the data volume alone")


def store(pool, given):
    with open(given.key) as file:
        digits = file.read().strip()
    check(re.fullmatch("[0-9a-fA-F]{64}", digits), f"{given.key} is no master key: 64 hexadecimal digits")
    master = bytes.fromhex(digits)
    found = Store(owned(pool, "archive")[0], master)
    if getattr(given, "without_catalog", False):
        return found.with_records(Survey(found))
    return found.with_records(catalog_of(pool, found))


def objects(pool, given, output):
    of = store(pool, given)
    for bucket, key, version, row in of.versions():
        retention = row[11]
        line = {"bucket": of.buckets[bucket][0], "key": key, "version": version, "delete_marker": row[3],
                "size_bytes": row[4], "modified": time(row[6]), "owner": actor(row[7]), "headers": row[9][0],
                "metadata": row[9][1], "tags": row[10], "blake3": row[14].hex(),
                "retention_mode": MODES[retention[0]] if retention else None,
                "keep_until": time(retention[1]) if retention else None, "legal_hold": row[12],
                "matters": row[20] or []}
        if not row[3]:
            output.content(line, of.content(bucket, row))
            if line.get("read_bytes", row[4]) != row[4]:
                line["unreadable"], output.good = "the content has another size", False
        output.line(line)


def files(pool, given, output):
    share = Share(store(pool, given), given.share, pool.volumes)
    for path, inode, row in share.files():
        kind = KINDS[row[0][0]]
        line = {"path": path.decode("utf-8", "surrogateescape"), "kind": kind, "mode": oct(row[1]), "uid": row[2],
                "gid": row[3], "size_bytes": row[5], "modified": row[7], "committed_until":
                time(row[17]) if row[17] is not None else None}
        if kind == "file":
            output.content(line, share.content(inode, row))
        elif kind == "symbolic link":
            line["target"] = base64.b64encode(row[12]).decode()
        output.line(line)


def audit(pool, given, output):
    found, wrong = store(pool, given).audit()
    for number, (when, who, action, bucket, key, version, refused, detail, origin) in found:
        name = ACTIONS[action] if action < len(ACTIONS) else {40: "ProlongAccessKey"}.get(action, str(action))
        output.line({"record": number, "time": time(when), "actor": actor(who), "action": name, "bucket": bucket,
                     "key": key, "version": version, "refused": refused, "detail": detail, "origin": origin})
    for finding in wrong:
        print(f"read-pool: {finding}", file=sys.stderr)
        output.good = False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for work in (volumes, volume, objects, files, audit):
        name = work.__name__
        one = commands.add_parser(name)
        one.set_defaults(work=work, to=None)
        if name == "volume":
            one.add_argument("name")
            one.add_argument("file")
        if name == "files":
            one.add_argument("share")
        if name in ("objects", "files", "audit"):
            one.add_argument("--key", metavar="FILE", required=True, help="the file of the master key")
        if name in ("objects", "audit"):
            one.add_argument("--without-catalog", action="store_true", help="use the data volume alone")
        if name in ("objects", "files"):
            one.add_argument("--to", metavar="DIR", help="write contents into new files of this new directory")
        one.add_argument("drives", nargs="+", metavar="DRIVE")
    given = parser.parse_args()
    try:
        pool = Pool(given.drives)
        for warning in pool.warnings():
            print(f"read-pool: {warning}", file=sys.stderr)
        output = Output(given.to)
        given.work(pool, given, output)
    except (*DAMAGE, OSError) as finding:
        print(f"read-pool: {finding if isinstance(finding, (Wrong, OSError)) else repr(finding)}", file=sys.stderr)
        return 1
    return 0 if output.good else 1


if __name__ == "__main__":
    sys.exit(main())
