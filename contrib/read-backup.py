#!/usr/bin/env python3
"""Reads a repository of `stele backup` without Stele: FORMAT/backup.md in code.

usage: read-backup.py REPOSITORY --password-file FILE snapshots
       read-backup.py REPOSITORY --password-file FILE verify
       read-backup.py REPOSITORY --password-file FILE restore SNAPSHOT DIR [PATH]

REPOSITORY is a directory, or s3://HOST/BUCKET/PREFIX (s3+http:// is without TLS) with the access
key in the environment, as for every client of boto3. FILE has the password on its first line, or it
is what `stele backup key export` wrote. SNAPSHOT is an id, its first digits, or `latest` of all.
DIR is made, and gets the tree, or what is at and below PATH. The repository is only read.

Exit code 0: all is whole. 1: what is damaged, missing, of a later version or could not be restored
is listed. 2: wrong usage. It needs Python 3.8, and the packages `blake3`, `cryptography` (from
version 44 on), `zstandard` and, for a bucket, `boto3`.
"""

import argparse
import os
import re
import stat
import struct
import sys
import time

import zstandard
from blake3 import blake3
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

NAMES = {"": "repository|defaults", "keys": "[0-9a-f]{1,64}", "segments": "([0-9a-f]{2})/\\1[0-9a-f]{62}",
         "snapshots": "[0-9a-f]{64}", "epochs": "[0-9a-f]{16}", "damaged": "[0-9a-f]{64}"}
DIRECTORY, FILE, LINK, PIPE, SOCKET, CHARACTERS, BLOCKS, VOLUME = range(8)
SPECIAL = {PIPE: stat.S_IFIFO, SOCKET: stat.S_IFSOCK, CHARACTERS: stat.S_IFCHR, BLOCKS: stat.S_IFBLK}
CHUNKS_MAX, CHUNK_MAX, SEGMENT_MAX, SNAPSHOT_MAX = 65_536, 4 << 20, 80 << 20, 1 << 30
PIECES_MAX, NAME_MAX, NUMBER_MAX, NANOS = 4096, 4096, (1 << 32) - 1, 10**9


class Wrong(Exception):
    """Something does not hold."""


def check(good, finding):
    if not good:
        raise Wrong(finding)


def digest(data, key=None):
    return blake3(data, key=key).digest()


def derive(purpose, secret):
    return blake3(secret, derive_key_context="stele backup 2026-11 " + purpose).digest()


def unseal(key, number, sealed, bound):
    try:
        return AESGCM(key).decrypt(struct.pack("<QI", number, 0), sealed, bound)
    except (InvalidTag, ValueError):
        raise Wrong("it is not authentic") from None


def expand(frame, limit):
    try:
        data = zstandard.ZstdDecompressor().stream_reader(frame).read(limit + 1)
        check(len(data) <= limit, "it is longer than its limit")
        return data
    except zstandard.ZstdError as error:
        raise Wrong(f"it does not decompress: {error}") from None


def show(path):
    """A path for people: on one line, and never as commands of a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in os.fsdecode(path))


class Fields:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, length):
        check(self.at + length <= len(self.data), "it ends early")
        self.at += length
        return self.data[self.at - length:self.at]

    def fixed(self, length):
        return int.from_bytes(self.take(length), "little")

    def varint(self, limit=(1 << 64) - 1):
        value, shift, byte = 0, 0, 128
        while byte >= 128:
            byte = self.fixed(1)
            value |= (byte & 127) << shift
            check(shift < 70 and value <= limit, f"a number exceeds {limit}")
            shift += 7
        return value

    def moment(self):
        seconds = self.varint()
        return (seconds >> 1 ^ -(seconds & 1)) * NANOS + self.varint(NANOS - 1)

    def string(self, limit=1 << 20):
        return self.take(self.varint(limit))

    def text(self):
        return self.string(NAME_MAX).decode(errors="replace")

    def array(self, read, limit):
        return [read() for _ in range(self.varint(limit))]

    def magic(self, *words):
        word = self.take(8)
        is_later = word[:7] == words[-1][:7] and word[7:].isdigit() and word > words[-1]
        check(word in words, "its first bytes say a later version" if is_later else "it begins with other bytes")
        return word

    def end(self, with_hash=False):
        if with_hash:
            check(digest(self.data[:self.at]) == self.take(32), "its hash differs")
        check(self.at == len(self.data), "bytes follow its end")


class Directory:
    def __init__(self, path):
        self.path = path

    def list(self, folder):
        top = os.path.join(self.path, folder)
        for full in (os.path.join(path, file) for path, _, files in os.walk(top) for file in files):
            status = os.stat(full)
            yield os.path.relpath(full, top), status.st_size, int(status.st_mtime)

    def read(self, name, start=0, length=-1):
        with open(os.path.join(self.path, name), "rb") as file:
            file.seek(start)
            return file.read(length)


class Bucket:
    def __init__(self, address):
        import boto3
        scheme, _, place = address.partition("://")
        host, self.bucket, prefix = (place.rstrip("/") + "//").split("/", 2)
        self.prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""
        self.client = boto3.client("s3", endpoint_url=("https" if scheme == "s3" else "http") + "://" + host)

    def list(self, folder):
        top = self.prefix + (folder + "/" if folder else "")
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=top):
            for item in page.get("Contents", []):
                yield item["Key"][len(top):], item["Size"], int(item["LastModified"].timestamp())

    def read(self, name, start=0, length=-1):
        some = {} if length < 0 else {"Range": f"bytes={start}-{start + length - 1}"}
        try:
            return self.client.get_object(Bucket=self.bucket, Key=self.prefix + name, **some)["Body"].read()
        except Exception as error:  # Those of boto3 have many classes.
            raise OSError(str(error)) from None


def take_runs(fields):
    runs, end = [], 0
    for _ in range(fields.varint(CHUNKS_MAX)):
        start = end + fields.varint(CHUNKS_MAX)
        end = start + fields.varint(CHUNKS_MAX)
        check(end <= CHUNKS_MAX, "a run ends behind the last possible chunk")
        runs.append(range(start, end))
    return runs


def take_pieces(fields):
    pieces = []
    for _ in range(fields.varint(PIECES_MAX)):
        number = fields.varint()
        check(number == 1 or number & 1 == 0, "a piece of an unknown kind")
        pieces.append((fields.varint(), None) if number == 1 else (number >> 1, fields.take(32)))
    return pieces


class Segment:
    def __init__(self, store, path, size):
        self.path = path
        check(144 <= size <= SEGMENT_MAX, "no segment has this length")
        trailer = Fields(store.read(self.path, size - 48, 48))
        length, count, said = trailer.fixed(4), trailer.fixed(4), trailer.take(32)
        trailer.magic(b"STLBEND1")
        possible = count <= CHUNKS_MAX and length == 48 + 40 * count and length + 96 <= size
        check(possible, "its footer has another length")
        footer = store.read(self.path, size - 48 - length, length)
        check(digest(footer) == said, "the hash of its footer differs")
        fields = Fields(footer)
        fields.magic(b"STLBSEG1")
        self.kind, zeros, self.salt, self.head = fields.fixed(1), fields.fixed(7), fields.take(32), footer[:48]
        check(self.kind <= 1 and zeros == 0, "it is of an unknown kind")
        self.chunks, at = [], 48
        for _ in range(count):
            name, stored, word = fields.take(32), fields.fixed(4), fields.fixed(4)
            length, compressed = word & (1 << 31) - 1, word >> 31
            check(length <= CHUNK_MAX, "a chunk is too long")
            self.chunks.append((name, at, stored, length, compressed))
            at += stored
        check(at + len(footer) + 48 == size, "it has another length than its footer tells")


class Entry:
    def __init__(self, fields):
        self.kind, self.name = fields.fixed(1), fields.string(NAME_MAX)
        check(self.kind <= VOLUME, "an entry of an unknown kind")
        wrong = self.name in (b"", b".", b"..") or b"/" in self.name or b"\0" in self.name
        check(not wrong, "a name is empty, a dot, or contains a slash")
        self.mode, self.user, self.group = fields.varint(0o7777), fields.varint(NUMBER_MAX), fields.varint(NUMBER_MAX)
        self.modified, self.changed = fields.moment(), fields.moment()
        self.device, self.inode, self.links = fields.varint(), fields.varint(), fields.varint()
        self.attributes = fields.array(lambda: (fields.string(NAME_MAX), fields.string(1 << 16)), 4096)
        self.target = fields.string(NAME_MAX) if self.kind == LINK else None
        self.number = fields.varint() if self.kind in (CHARACTERS, BLOCKS) else 0
        self.size, self.lists, self.pieces = 0, [], []
        if self.kind in (FILE, VOLUME):
            self.size = fields.varint()
            self.lists = fields.array(lambda: fields.take(32), 16_384)
            self.pieces = take_pieces(fields)
        if self.kind == VOLUME:
            self.geometry, self.code = [fields.varint() for _ in range(4)], fields.text()
            self.taken = fields.text(), fields.varint(), fields.varint()

    def file(self):
        """What is equal for all names of one file, and different for others."""
        content = self.size, tuple(self.lists), tuple(self.pieces), self.target, self.number
        return self.device, self.inode, self.kind, self.modified, content


class Snapshot:
    def __init__(self, repository, name, seconds):
        self.name, self.seconds = name, seconds
        data = repository.store.read(f"snapshots/{name}")
        check(len(data) <= SNAPSHOT_MAX, "it is too long")
        check(digest(data).hex() == name, "its hash is not its name")
        fields = Fields(data)
        word = fields.magic(b"STLBSNP1", b"STLBSNP2")
        check(fields.take(16) == repository.id, "it is of another repository")
        self.references = {}
        for _ in range(fields.varint()):
            segment = fields.take(32).hex()
            self.references[segment] = take_runs(fields)
        check(list(self.references) == sorted(self.references), "its references are out of order")
        bound = repository.id + (digest(data[:fields.at]) if word == b"STLBSNP2" else b"")
        key = digest(b"snapshot\0" + fields.take(32), repository.sealing)
        sealed = fields.take(fields.fixed(8))
        fields.end()
        fields = Fields(expand(unseal(key, 0, sealed, bound), SNAPSHOT_MAX))
        self.version = fields.varint(3)
        check(self.version > 0, "its description is of an unknown version")
        self.host, self.user, self.program = fields.text(), fields.text(), fields.text()
        self.began = fields.varint()
        self.ended = fields.varint() if self.version > 1 else self.began * NANOS
        self.paths = fields.array(fields.string, 10_000)
        self.tags, self.excludes = fields.array(fields.text, 10_000), fields.array(fields.text, 10_000)
        self.files, *self.counts, self.problems = (fields.varint() for _ in range(8))
        self.issues = fields.array(lambda: (fields.string(), fields.text()), 1000)
        self.tree = fields.array(lambda: (fields.take(32), fields.string()), len(fields.data))
        fields.end()


class Repository:
    """An open repository. `faults` has what is wrong with its objects."""

    def __init__(self, store, word):
        self.store, self.faults = store, []
        fields = Fields(store.read("repository"))
        fields.magic(b"STLBREP1")
        self.id, self.check_value = fields.take(16), fields.take(32)
        lengths, complete = [fields.fixed(4) for _ in range(3)], fields.fixed(4)
        possible = lengths == sorted(lengths) and lengths[2] <= CHUNK_MAX and complete <= 64 << 20
        check(possible, "a length in the header exceeds its limit")
        fields.end(with_hash=True)
        secret = self.by_escrow(word) if word.startswith(b"stele-backup-escrow-1 ") else self.by_password(word)
        self.id_keys = [derive("chunk ids", secret), derive("tree chunk ids", secret)]
        self.sealing = derive("sealing", secret)
        self.segments, self.places = {}, {}
        self.read_footers()

    def each(self, folder, read):
        """Calls `read` for each object of a folder, the oldest first, and notes where it fails."""
        listed = [item for item in self.store.list(folder) if re.fullmatch(NAMES[folder], item[0])]
        for name, size, seconds in sorted(listed, key=lambda item: (item[2], item[0])):
            path = f"{folder}/{name}" if folder else name
            try:
                read(path, name, size, seconds)
            except (Wrong, OSError) as error:
                self.faults.append((path, error))

    def by_escrow(self, word):
        words = word.decode(errors="replace").split()
        check([len(part) for part in words[1:]] == [32, 64, 8], "the escrow has another form")
        said = derive("check of the secret", digest(" ".join(words[1:3]).encode()))[:4].hex()
        secret = bytes.fromhex(words[2])
        is_ours = words[1] == self.id.hex() and derive("check of the secret", secret) == self.check_value
        check(is_ours and said == words[3], "the escrow is damaged, or of another repository")
        return secret

    def by_password(self, word):
        found = []

        def attempt(path, name, *_):
            fields = Fields(self.store.read(path))
            check(len(name) != 32 or digest(fields.data)[:16].hex() == name, "its hash is not its name")
            fields.magic(b"STLBKEY1")
            memory, passes, lanes, length = (fields.fixed(4) for _ in range(4))
            possible = memory <= 1 << 20 and 1 <= passes <= 64 and 1 <= lanes <= 16 and memory >= 8 * lanes
            check(possible and length <= 200, "a number in it exceeds its limit")
            salt, sealed, label = fields.take(32), fields.take(48), fields.take(length)
            fields.end()
            if found:
                return
            stretch = Argon2id(salt=salt, length=32, iterations=passes, lanes=lanes, memory_cost=memory)
            try:
                secret = unseal(stretch.derive(word), 0, sealed, label)
            except Wrong:
                return  # It has another password.
            check(derive("check of the secret", secret) == self.check_value, "it opens another repository")
            found.append(secret)

        self.each("keys", attempt)
        check(found, "no key opens with this password")
        return found[0]

    def read_footers(self):
        """Which segments have a chunk. Those that a check marked as damaged there are the last ones."""
        marks = {}

        def read_marks(path, name, *_):
            fields = Fields(self.store.read(path))
            marks[name] = take_runs(fields)
            fields.end()

        def read_segment(path, _, size, __):
            name = path[-64:]
            segment = self.segments[name] = Segment(self.store, path, size)
            for ordinal, chunk in enumerate(segment.chunks):
                marked = any(ordinal in run for run in marks.get(name, ()))
                self.places.setdefault(chunk[0], []).append((marked, name, ordinal))

        self.each("damaged", read_marks)
        self.each("segments", read_segment)

    def open_chunk(self, segment, ordinal, sealed):
        name, _, stored, length, compressed = segment.chunks[ordinal]
        check(len(sealed) == stored, "it ends early")
        key = digest(b"segment\0" + segment.salt, self.sealing)
        content = unseal(key, ordinal, sealed, name + struct.pack("<IB", length, compressed))
        content = expand(content, length) if compressed else content
        is_its_own = len(content) == length and digest(content, self.id_keys[segment.kind]) == name
        check(is_its_own, "its content has another id")
        return content

    def chunk(self, name, kind, snapshot):
        """The content of a chunk, from any segment that has it whole. Referenced ones come first."""
        finding, places = "no segment has it", self.places.get(name, [])
        is_other = lambda at, ordinal: not any(ordinal in run for run in snapshot.references.get(at, ()))
        for _, _, at, ordinal in sorted((marked, is_other(at, ordinal), at, ordinal) for marked, at, ordinal in places):
            segment = self.segments[at]
            try:
                check(segment.kind == kind, "it is of another kind there")
                _, start, stored, _, _ = segment.chunks[ordinal]
                return self.open_chunk(segment, ordinal, self.store.read(segment.path, start, stored))
            except (Wrong, OSError) as error:
                finding = f"{segment.path}, chunk {ordinal}: {error}"
        raise Wrong(f"chunk {name.hex()}: {finding}")

    def snapshots(self):
        """Those that can be read, the oldest first."""
        found = []
        self.each("snapshots", lambda _, name, __, seconds: found.append(Snapshot(self, name, seconds)))
        return sorted(found, key=lambda one: (one.seconds, one.ended, one.name))

    def walk(self, snapshot, lose):
        """Each path of a tree with its entry. Calls `lose` for each part of it that is lost."""
        above, last = [], [b""]  # The directories above an entry, and the last name at each level.
        for number, (name, first) in enumerate(snapshot.tree):
            try:
                fields = Fields(self.chunk(name, 1, snapshot))
                check(fields.fixed(1) == 1, "the tree is of an unknown version")
                here, is_first = [part for part in fields.string().split(b"/") if part], True
                if last is None:
                    above, last = here, [b""] * (len(here) + 1)
                while fields.at < len(fields.data):
                    leave = fields.varint(len(above))
                    if is_first:
                        leave = len(above) - len(here)
                        check(leave >= 0 and above[:len(here)] == here, "a part of the tree is missing before it")
                    above, last = above[:len(above) - leave], last[:len(last) - leave]
                    entry = Entry(fields)
                    path = b"/".join(above + [entry.name])
                    check(not is_first or path == first, f"it begins with {show(path)}")
                    check(last[-1] < entry.name, f"{show(path)} is out of order")
                    last[-1], is_first = entry.name, False
                    yield path, entry
                    if entry.kind == DIRECTORY:
                        above, last = above + [entry.name], last + [b""]
            except Wrong as error:
                behind = snapshot.tree[number + 1][1] if number + 1 < len(snapshot.tree) else None
                end = f"before {show(behind)}" if behind else "to the end"
                lose(first, f"this and all that follows {end} is lost: {error}")
                last = None

    def pieces(self, entry, snapshot):
        """The pieces of a file, also if they are in lists."""
        found = list(entry.pieces)
        for name in entry.lists:
            fields = Fields(self.chunk(name, 1, snapshot))
            found += take_pieces(fields)
            fields.end()
        check(sum(length for length, _ in found) == entry.size, "its pieces have another length than the file")
        return found


class Restore:
    """Restores into a new directory, and follows no link there."""

    def __init__(self, repository, snapshot, top, below):
        self.repository, self.snapshot, self.top = repository, snapshot, os.fsencode(top)
        self.missing, self.directories, self.first = [], [], {}
        os.mkdir(self.top, 0o700)
        for name in os.listxattr(self.top):
            if name.startswith("system.posix_acl"):  # What is made in it must inherit nothing.
                os.removexattr(self.top, name)
        self.made, selected = {self.top}, False
        for path, entry in repository.walk(snapshot, lambda *lost: self.missing.append(lost)):
            is_selected = not below or path == below or path.startswith(below + b"/")
            selected |= is_selected
            if is_selected or entry.kind == DIRECTORY and below.startswith(path + b"/"):
                self.attempt(path, self.entry, path, entry)
        for path, full, entry in reversed(self.directories):
            self.metadata(path, full, entry)
        if below and not selected:
            self.missing.append((below, "the snapshot has nothing of that path"))

    def attempt(self, path, change, *arguments, **options):
        try:
            change(*arguments, **options)
        except (Wrong, OSError, ValueError, OverflowError) as error:
            self.missing.append((path, error))

    def enter(self, full):
        if full not in self.made:
            self.enter(os.path.dirname(full))
            os.mkdir(full, 0o700)
            self.made.add(full)

    def entry(self, path, entry):
        full = os.path.join(self.top, path)
        self.enter(os.path.dirname(full))
        if entry.kind == DIRECTORY:
            self.enter(full)
            self.directories.append((path, full, entry))
            return
        if entry.links > 1 and entry.file() in self.first:
            os.link(self.first[entry.file()], full, follow_symlinks=False)
            return
        if entry.kind in (FILE, VOLUME):
            self.content(full, entry)
        elif entry.kind == LINK:
            os.symlink(entry.target, full)
        else:
            os.mknod(full, SPECIAL[entry.kind] | 0o600, entry.number)
        if entry.links > 1:
            self.first[entry.file()] = full
        self.metadata(path, full, entry)

    def content(self, full, entry):
        """A file with all of its content. One that lacks any is not left there."""
        pieces, at = self.repository.pieces(entry, self.snapshot), 0
        with open(full, "xb") as file:
            try:
                for length, name in pieces:
                    if name is not None:
                        data = self.repository.chunk(name, 0, self.snapshot)
                        check(len(data) == length, "a chunk has another length than its piece")
                        file.seek(at)
                        file.write(data)
                    at += length
                file.truncate(entry.size)
            except (Wrong, OSError):
                os.remove(full)
                raise

    def metadata(self, path, full, entry):
        """The owner first: its change takes set-user bits and capabilities away."""
        is_root = os.geteuid() == 0
        owner = (entry.user, entry.group) if is_root else (-1, -1)
        self.attempt(path, os.chown, full, *owner, follow_symlinks=False)
        for name, value in entry.attributes:
            self.attempt(path, os.setxattr, full, name, value, follow_symlinks=False)
        if entry.kind != LINK:
            self.attempt(path, os.chmod, full, entry.mode if is_root else entry.mode & 0o1777)
        self.attempt(path, os.utime, full, ns=(entry.modified, entry.modified), follow_symlinks=False)


def verify(repository):
    """Reads everything. Gives the files that lack content, each with its snapshot."""
    whole, missing = set(), []

    def of_segment(path, *_):
        segment = repository.segments.get(path[-64:])
        if segment is None:
            return  # Its footer is a fault.
        data, bad = repository.store.read(path), []
        for ordinal, (name, start, stored, length, _) in enumerate(segment.chunks):
            try:
                repository.open_chunk(segment, ordinal, data[start:start + stored])
                whole.add((segment.kind, name, length))
            except Wrong as error:
                bad.append(f"chunk {ordinal}: {error}")
        check(not bad, "; ".join(bad))
        check(data[:48] == segment.head and digest(data).hex() == path[-64:], "its hash is not its name")

    def of_other(path, name, *_):
        fields = Fields(repository.store.read(path))
        if path == "defaults":
            fields.magic(b"STLBDEF1")
            check(fields.fixed(8) <= 100 * 366 * 86_400, "the period of its locks is impossible")
            fields.end(with_hash=True)
        elif path.startswith("epochs/"):
            fields.magic(b"STLBEPO1")
            check(fields.fixed(8) == int(name, 16), "its number is not its name")
            fields.take(40 * fields.varint(len(fields.data)))
            fields.end(with_hash=True)

    for folder, read in (("segments", of_segment), ("", of_other), ("epochs", of_other)):
        repository.each(folder, read)
    for snapshot in repository.snapshots():
        needed = {name for name, _ in snapshot.tree}
        for path, entry in repository.walk(snapshot, lambda *lost: missing.append((snapshot, *lost))):
            needed.update(entry.lists)
            try:
                pieces = [piece for piece in repository.pieces(entry, snapshot) if piece[1] is not None]
                needed.update(name for _, name in pieces)
                lost = [name.hex() for length, name in pieces if (0, name, length) not in whole]
                check(not lost, f"chunk {' '.join(lost[:1])} is damaged or gone")
            except Wrong as error:
                missing.append((snapshot, path, error))
        # What is needed and not referenced, a prune may remove.
        for name, runs in snapshot.references.items():
            segment = repository.segments.get(name)
            if segment is None:
                repository.faults.append((f"segments/{name[:2]}/{name}", f"snapshot {snapshot.name[:8]} references it"))
                needed.clear()
                break
            needed.difference_update(chunk[0] for run in runs for chunk in segment.chunks[run.start:run.stop])
        if needed:
            repository.faults.append((f"snapshots/{snapshot.name}", "it does not reference all that it needs"))
    return missing


def run(place, password_file, command, wanted="", top="", below=""):
    with open(password_file, "rb") as file:
        word = file.readline().rstrip(b"\n")
    word = word[:-1] if word.endswith(b"\r") else word
    repository = Repository(Bucket(place) if re.match("s3(\\+http)?://", place) else Directory(place), word)
    missing = []
    if command == "verify":
        found = verify(repository)
        missing = [f"snapshot {snapshot.name[:8]}: /{show(path)}: {cause}" for snapshot, path, cause in found]
    elif command == "snapshots":
        for one in repository.snapshots():
            stored = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(one.seconds))
            paths = " ".join("/" + show(path) for path in one.paths)
            print(f"{one.name}  {stored}  {show(one.host)}  {one.files} files  {paths}")
    else:
        found = repository.snapshots()
        found = found[-1:] if wanted == "latest" else [one for one in found if one.name.startswith(wanted)]
        check(len(found) == 1, f"{len(found)} snapshots are '{wanted}'")
        restored = Restore(repository, found[0], top, os.fsencode(below.strip("/")))
        missing = [f"/{show(path)}: {cause}" for path, cause in restored.missing]
        missing += [f"/{show(path)}: noted by the backup: {show(text)}" for path, text in found[0].issues]
    for line in [f"{path}: {cause}" for path, cause in repository.faults] + missing:
        print(line)
    return 1 if repository.faults or missing else 0


def main():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, usage=argparse.SUPPRESS, formatter_class=form)
    parser.add_argument("repository")
    parser.add_argument("command", choices=["snapshots", "verify", "restore"])
    parser.add_argument("arguments", nargs="*")
    parser.add_argument("--password-file", required=True)
    given = parser.parse_args()
    if len(given.arguments) not in ((2, 3) if given.command == "restore" else (0,)):
        parser.error("restore takes a snapshot, a directory and perhaps a path; the others take nothing")
    try:
        return run(given.repository, given.password_file, given.command, *given.arguments)
    except (Wrong, OSError, ValueError) as finding:
        print(f"read-backup: {finding}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
