#!/usr/bin/env python3
"""Verifies a retention proof of Stele, without Stele: FORMAT/evidence.md in code.

usage: verify-proof.py DIR [--key FILE] [--content KEY FILE]

--key is the store's public key, from a source that you trust. --content compares a copy of an object with the
newest version of that key in the proof. Exit code 0: everything holds. 1: something does not. 2: wrong usage.
It needs Python 3.8 and the package `cryptography`.
"""

import argparse
import base64
import hashlib
import json
import os
import re
import stat
import sys

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

LISTED = ["index.html", "policy.json", "public-key", "records.jsonl", "versions.jsonl"]
RUN = 1024
STORING = (5, 13, 7)  # PutObject, CompleteUpload, AddDeleteMarker


class Wrong(Exception):
    """Something does not hold."""


def check(good, finding):
    if not good:
        raise Wrong(finding)


# BLAKE3, from its specification.
IV = [0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19]
ORDER = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8]
MIXES = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
         (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]
CHUNK_START, CHUNK_END, PARENT, ROOT = 1, 2, 4, 8
WORD = 0xFFFFFFFF


def compress(chaining, block, counter, length, flags):
    message = [int.from_bytes(block[at:at + 4], "little") for at in range(0, 64, 4)]
    state = chaining + IV[:4] + [counter & WORD, counter >> 32, length, flags]
    for turn in range(7):
        for place, (a, b, c, d) in enumerate(MIXES):
            for word, first, second in ((message[2 * place], 16, 12), (message[2 * place + 1], 8, 7)):
                state[a] = (state[a] + state[b] + word) & WORD
                mixed = state[d] ^ state[a]
                state[d] = (mixed >> first | mixed << (32 - first)) & WORD
                state[c] = (state[c] + state[d]) & WORD
                mixed = state[b] ^ state[c]
                state[b] = (mixed >> second | mixed << (32 - second)) & WORD
        message = [message[at] for at in ORDER]
    return [state[at] ^ state[at + 8] for at in range(8)]


def chunk(data, counter, root):
    chaining = IV
    blocks = [data[at:at + 64] for at in range(0, len(data), 64)] or [b""]
    for at, block in enumerate(blocks):
        flags = (CHUNK_START if at == 0 else 0) | (CHUNK_END | root if at + 1 == len(blocks) else 0)
        chaining = compress(chaining, block.ljust(64, b"\0"), counter, len(block), flags)
    return chaining


def subtree(data, counter, root):
    if len(data) <= 1024:
        return chunk(data, counter, root)
    left = 1 << (len(data) - 1).bit_length() - 1  # The largest power of two below the length.
    sides = subtree(data[:left], counter, 0) + subtree(data[left:], counter + left // 1024, 0)
    block = b"".join(word.to_bytes(4, "little") for word in sides)
    return compress(IV, block, 0, 64, PARENT | root)


def blake3(data):
    return b"".join(word.to_bytes(4, "little") for word in subtree(data, 0, ROOT))


def unhex(text, length=None):
    check(isinstance(text, str) and re.fullmatch("([0-9a-f]{2})*", text), "not lower-case hexadecimal")
    check(length is None or len(text) == 2 * length, f"not {length} bytes in hexadecimal")
    return bytes.fromhex(text)


def signed(key, signature, text, what):
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, text)
    except (InvalidSignature, ValueError):
        raise Wrong(f"the signature of {what} does not hold") from None


def climb(value, index, leaves, path):
    """The root of the tree with this leaf at its index (RFC 9162, 2.1.3.2)."""
    check(index < leaves, "a leaf behind the end of its tree")
    node, last = blake3(b"\0" + value), leaves - 1
    for beside in path:
        beside = unhex(beside, 32)
        check(last > 0, "a path is too long")
        if index & 1 or index == last:
            node = blake3(b"\1" + beside + node)
            while index and not index & 1:
                index, last = index >> 1, last >> 1
        else:
            node = blake3(b"\1" + node + beside)
        index, last = index >> 1, last >> 1
    check(last == 0, "a path is too short")
    return node


def cbor(data, at):
    """One CBOR item of the kinds that records have, and the place behind it."""
    check(at < len(data), "a record ends early")
    kind, low, at = data[at] >> 5, data[at] & 31, at + 1
    if kind == 7:
        return {20: False, 21: True, 22: None}[low], at
    number = low
    if low >= 24:
        check(low <= 27, "a record has a length of unknown size")
        width = 1 << (low - 24)
        number, at = int.from_bytes(data[at:at + width], "big"), at + width
    if kind == 0:
        return number, at
    if kind in (2, 3):
        check(at + number <= len(data), "a record ends early")
        body = data[at:at + number]
        return (body if kind == 2 else body.decode()), at + number
    check(kind == 4, "a record has an item of another kind")
    items = []
    for _ in range(number):
        item, at = cbor(data, at)
        items.append(item)
    return items, at


def names_only(value, names, what):
    check(isinstance(value, dict) and set(value) == set(names.split()), f"{what} has other fields")
    return value


def check_head(head, key, store):
    check(head["public_key"] == key.hex(), "another key signed the head")
    check(head["store"] == store, "the head is of another store")
    text = ["stele audit head 1", head["store"], str(head["records"]), head["link"], head["root"], head["time"], ""]
    signed(key, unhex(head["signature"], 64), "\n".join(text).encode(), "the head")


def open_record(proven, head):
    """The fields of a record, once it is found to be under the head."""
    names_only(proven, "record previous value run_path log_path", "a record")
    number, records, value = proven["record"], head["records"], unhex(proven["value"])
    check(isinstance(number, int) and 1 <= number <= records, "a record is behind the head")
    link = blake3(unhex(proven["previous"], 32) + number.to_bytes(8, "big") + value)
    run, place = divmod(number - 1, RUN)
    root = climb(link, place, min(RUN, records - run * RUN), proven["run_path"])
    root = climb(root, run, -(-records // RUN), proven["log_path"])
    check(root == unhex(head["root"], 32), f"record {number} does not lead to the root of the head")
    fields, end = cbor(value, 0)
    check(isinstance(fields, list) and end == len(value), f"record {number} is not an array")
    return fields + [None] * (9 - len(fields))


class History:
    """What the records say of one version."""

    def __init__(self):
        self.stored, self.retentions, self.holds, self.removed, self.matters = [], [], [], [], []

    def add(self, number, action, detail):
        if detail.startswith("path `"):  # A client chose the path; what follows it is the store's own.
            detail = detail.rpartition("`; ")[2]
        if action in STORING:
            content = re.search(r"(\d+) bytes, blake3 ([A-Za-z0-9+/=]+)", detail) if action != 7 else None
            said = (int(content[1]), base64.b64decode(content[2], validate=True).hex()) if content else None
            self.stored.append((number, said))
            if detail.endswith(", legal hold"):
                self.holds.append((number, True))
        if action == 9:
            self.holds.append((number, detail == "on"))
        if action == 6 or action == 17 and not detail.startswith("its "):
            self.removed.append(number)
        matter = re.match(r"the matter `([^`]*)` (on|off)(?:,|$)", detail) if action == 32 else None
        if matter:
            self.matters.append((number, matter[1], matter[2] == "on"))
        kept = re.search(r"(\S+) until ([^,]+)", detail)
        if action == 8 and detail.startswith("none"):
            self.retentions.append((number, (None, None)))
        elif action in (5, 8, 13) and kept:
            self.retentions.append((number, (kept[1], kept[2])))


def last_between(changes, first, as_of, now):
    known = [value for number, value in changes if first <= number <= as_of]
    return known[-1] if known else now


def read(path):
    check(stat.S_ISREG(os.lstat(path).st_mode), f"{path} is not a plain file")
    with open(path, "rb") as file:
        return file.read()


def verify(folder, given):
    """Checks a retention proof, and returns its manifest and its versions."""
    check(sorted(os.listdir(folder)) == sorted(LISTED + ["manifest.json", "manifest.sig"]), "other files are there")
    files = {name: read(os.path.join(folder, name)) for name in LISTED + ["manifest.json", "manifest.sig"]}
    key_file = files["public-key"].decode()
    check(key_file.endswith("\n"), "the public key is not one line")
    key = unhex(key_file[:-1], 32)
    check(given is None or given == files["public-key"], "the proof names another public key than the one given")
    signed(key, files["manifest.sig"], b"stele proof 1\n" + files["manifest.json"], "the manifest")
    manifest = json.loads(files["manifest.json"])
    names_only(manifest, "format store exported bucket prefix matter versions records head files", "the manifest")
    check(manifest["format"] == "stele proof 1", "another format")
    head, bucket, prefix = manifest["head"], manifest["bucket"], manifest["prefix"]
    check_head(head, key, manifest["store"])
    check([file["name"] for file in manifest["files"]] == LISTED, "the manifest lists other files")
    for file in manifest["files"]:
        data = files[file["name"]]
        same = len(data) == file["size_bytes"] and hashlib.sha256(data).hexdigest() == file["sha256"]
        check(same, f"{file['name']} was changed")
    histories, last, records = {}, 0, files["records.jsonl"].splitlines()
    for line in records:
        proven = json.loads(line)
        _, _, action, of, name, version, refused, detail = open_record(proven, head)[:8]
        check(proven["record"] > last, "records are out of order")
        last = proven["record"]
        check(of == bucket and (name is None or name.startswith(prefix)), f"record {last} is about something else")
        if refused is None and name is not None and version is not None:
            histories.setdefault((name, version), History()).add(last, action, detail or "")
    versions = []
    for line in files["versions.jsonl"].splitlines():
        version = names_only(json.loads(line), "key version delete_marker size_bytes blake3 parts sha256 stored owner "
                             "retention_mode keep_until legal_hold as_of", "a version")
        what, as_of = f"{version['key']!r} version {version['version']}", version["as_of"]
        check(version["key"].startswith(prefix) and as_of <= head["records"], f"{what} is not of the selection")
        history = histories.get((version["key"], version["version"]), History())
        stored = [(number, said) for number, said in history.stored if number <= as_of]
        check(stored, f"no record says how {what} was stored")
        first, said = stored[-1]
        content = version["size_bytes"], version["blake3"]
        check(said in (None, content), f"a record says another size or BLAKE3 of {what}")
        check(not any(first <= number <= as_of for number in history.removed), f"a record says that {what} was removed")
        kept = version["retention_mode"], version["keep_until"]
        said = last_between(history.retentions, first, as_of, kept)
        check(said == kept and (kept[0] is None) == (kept[1] is None), f"a record sets another retention of {what}")
        hold = last_between(history.holds, first, as_of, version["legal_hold"])
        check(hold == version["legal_hold"], f"a record says something else of the legal hold of {what}")
        if manifest["matter"] == "s3":
            check(version["legal_hold"], f"{what} was not under the matter of the proof")
        elif manifest["matter"] is not None:
            under = [(number, on) for number, matter, on in history.matters if matter == manifest["matter"]]
            check(last_between(under, first, as_of, False), f"{what} was not under the matter of the proof")
        versions.append(version)
    check((len(versions), len(records)) == (manifest["versions"], manifest["records"]), "lines are missing")
    return manifest, versions


def check_content(version, data):
    sizes = None if version["parts"] is None else [size for size, count in version["parts"] for _ in range(count)]
    if sizes is None:
        digest = blake3(data)
    else:
        ends = [sum(sizes[:at]) for at in range(len(sizes) + 1)]
        digest = blake3(b"".join(blake3(data[at:end]) for at, end in zip(ends, ends[1:])))
    check(len(data) == version["size_bytes"] and digest.hex() == version["blake3"], "the content is another one")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dir")
    parser.add_argument("--key", metavar="FILE", help="the store's public key")
    parser.add_argument("--content", nargs=2, metavar=("KEY", "FILE"), help="compare a copy of an object")
    given = parser.parse_args()
    try:
        manifest, versions = verify(given.dir, read(given.key) if given.key else None)
        if given.content:
            key, path = given.content
            version = next((version for version in versions if version["key"] == key), None)
            check(version is not None, f"the proof has no version of {key!r}")
            check_content(version, read(path))
            print(f"{path} is the content of {key!r} version {version['version']}, stored {version['stored']}.")
    except (Wrong, OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as finding:
        print(f"verify-proof: it does not hold: {finding!r}", file=sys.stderr)
        return 1
    head = manifest["head"]
    print(f"{manifest['bucket']}/{manifest['prefix']}: {len(versions)} versions and {manifest['records']} records hold,")
    print(f"under the head of {head['records']} records that store {manifest['store']} signed at {head['time']}.")
    if not given.key:
        print(f"Compare the key with one that came on another way: {head['public_key']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
