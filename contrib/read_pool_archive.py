"""Catalog, archive and shares on the volumes of a pool, read without Stele: FORMAT/catalog.md,
archive.md and file.md in code. Nothing here writes."""

from struct import unpack_from

import xxhash
from blake3 import blake3
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from read_pool_array import BLOCK, WORD8, Wrong, check, crc32c, up

FRAME, TAG, HEADER, ENTRY, RUN = 65536, 16, 80, 128, 1024
SETTINGS, BUCKETS, VERSIONS, PARTS, LAYOUTS, EXTENTS, SEGMENTS, AUDIT, CHECKPOINTS = 1, 2, 3, 4, 5, 6, 8, 10, 11
SHARES, INODES, NAMES, GROUPS = 64, 65, 67, 68
PIECE, WHOLE, VERSION, PART, BUCKET, IDENTITY, AUDITED = 1, 2, 3, 4, 5, 8, 9
MODES = ["GOVERNANCE", "COMPLIANCE"]
ROOT = 1


def big(value, length):
    return value.to_bytes(length, "big")


def cbor(data, at=0):
    """One CBOR item, and the place behind it."""
    check(at < len(data), "CBOR ends early")
    kind, low, at = data[at] >> 5, data[at] & 31, at + 1
    if kind == 7:
        check(20 <= low <= 22, f"a simple CBOR item of kind {low}")
        return (False, True, None)[low - 20], at
    number = low
    if low >= 24:
        check(low <= 27, "a CBOR item of indefinite length")
        width = 1 << (low - 24)
        number, at = int.from_bytes(data[at:at + width], "big"), at + width
    if kind == 0:
        return number, at
    if kind == 1:
        return -1 - number, at
    if kind in (2, 3):
        check(at + number <= len(data), "CBOR ends early")
        body = bytes(data[at:at + number])
        return (body if kind == 2 else body.decode()), at + number
    check(kind in (4, 5), f"a CBOR item of kind {kind}")
    items = []
    for _ in range(number * (kind - 3)):
        item, at = cbor(data, at)
        items.append(item)
    return (items if kind == 4 else dict(zip(items[::2], items[1::2]))), at


def value(data, fields=0):
    """The value of a record. Fields that were left out at the end of an array are None."""
    item, end = (data, None) if isinstance(data, list) else cbor(data)
    check(end is None or end == len(data), "bytes behind a CBOR item")
    return item + [None] * (fields - len(item)) if fields else item


def derive(key, purpose, salt=b""):
    return blake3(purpose.encode() + b"\0" + salt, key=key).digest()


def unseal(key, nonce, sealed, bound, what):
    try:
        return AESGCM(key).decrypt(nonce, sealed, bound)
    except InvalidTag:
        raise Wrong(f"{what} does not open with its key") from None


def unwrap(key, wrapped, bound, what):
    return unseal(key, wrapped[:12], wrapped[12:], bound, what)


def open_note(key, note, bound, what):
    return unseal(derive(key, "note", note[:16]), bytes(12), note[16:], bound, what)


def unescape(key):
    """The S3 key in a key of tables 3, 7 and 12, and the number behind it."""
    body, number = key[4:-10], int.from_bytes(key[-8:], "big")
    return int.from_bytes(key[:4], "big"), body.replace(b"\0\xff", b"\0").decode(), number


def version_key(bucket, key, number):
    return big(bucket, 4) + key.encode().replace(b"\0", b"\0\xff") + b"\0\1" + big(number ^ WORD8, 8)


class Records:
    """Records of a store by table and key: values as stored, or what `value` makes of them."""

    def __init__(self):
        self.tables = {}

    def put(self, table, key, found):
        if found is None:
            self.tables.get(table, {}).pop(key, None)
        else:
            self.tables.setdefault(table, {})[key] = found

    def table(self, number):
        return sorted(self.tables.get(number, {}).items())

    def get(self, table, key):
        return self.tables.get(table, {}).get(key)


class Catalog(Records):
    """All records of a catalog volume."""

    def __init__(self, volume):
        super().__init__()
        self.read = volume.read
        last = volume.size // BLOCK * BLOCK - BLOCK
        copies = [one for at in (0, last) if (one := self.superblock(self.read(at, BLOCK)))]
        check(copies, "no superblock of the catalog is intact")
        block = max(copies, key=lambda one: unpack_from("<Q", one, 32))
        self.id = block[16:32]
        self.journal, self.length, self.tree = unpack_from("<QQQ", block, 48)
        for key, found in self.btree():
            self.put(int.from_bytes(key[:2], "big"), key[2:], found)
        self.replay()

    def superblock(self, data):
        if data[:8] != b"STELECAT" or blake3(data[:4064]).digest() != data[4064:]:
            return None
        version, features = unpack_from("<II", data, 8)
        check(version == 1 and features == 0, f"the catalog has version {version} and features {features:#x}")
        return data

    def batch(self, place, sequence, before):
        """Count and changes of a batch with its digest, if it is the next one."""
        if place + 128 > self.length:
            return None
        head = self.read(self.journal + place, 128)
        own, _, length, count = unpack_from("<QQII", head, 24)
        right = head[:8] == b"STELEJNL" and head[8:24] == self.id and head[48:80] == before and own == sequence
        if not right or length > 10 << 20 or place + 128 + length > self.length:
            return None
        changes = self.read(self.journal + place + 128, length)
        return (count, changes, head[80:112]) if blake3(head[:80] + changes).digest() == head[80:112] else None

    def replay(self):
        mark = self.get(65535, b"\1")
        sequence, place, before = 1, 0, self.id + bytes(16)
        if mark:
            sequence, place = unpack_from("<QQ", mark)
            before = mark[16:48]
        while True:
            batch = self.batch(place, sequence, before)
            if batch is None:
                place, batch = 0, self.batch(0, sequence, before)
            if batch is None:
                break
            (count, changes, before), at = batch, 0
            for _ in range(count):
                table, key, length = unpack_from("<HII", changes, at)
                at, there = at + 10 + key, length != 0xFFFFFFFF
                self.put(table, changes[at - key:at], changes[at:at + length] if there else None)
                at += length if there else 0
            check(at == len(changes), f"batch {sequence} of the catalog has other changes than it says")
            place, sequence = place + up(128 + len(changes), BLOCK), sequence + 1
        self.no_batch_lost(sequence)

    def no_batch_lost(self, missing):
        for place in range(0, self.length, BLOCK):
            head = self.read(self.journal + place, 128)
            own, _, length, _ = unpack_from("<QQII", head, 24)
            if head[:8] == b"STELEJNL" and head[8:24] == self.id and own > missing and length <= 10 << 20:
                changes = self.read(self.journal + place + 128, min(length, self.length - place - 128))
                whole = blake3(head[:80] + changes).digest() == head[80:112]
                check(not whole, f"batch {missing} of the catalog's journal is lost, and batch {own} is there")

    def btree(self):
        head = self.read(self.tree, BLOCK)
        check(head[:9] == b"redb\x1a\x0a\xa9\x0d\x0a", "the B-tree is no file of redb")
        self.page, self.heads, pages = unpack_from("<III", head, 12)
        self.region = (self.heads + pages) * self.page
        first = head[9] & 1
        slots = [head[64 + 128 * at:192 + 128 * at] for at in (first, 1 - first)]
        good = [slot for slot in slots if self.sum(slot[:112]) == slot[112:]]
        check(good and good[0][0] == 3, "no commit slot of the B-tree is intact")
        if good[0][1]:
            for name, table in self.pairs(*unpack_from("<Q16s", good[0], 8)):
                if name == b"records" and table[9]:
                    yield from self.pairs(*unpack_from("<Q16s", table, 10))

    @staticmethod
    def sum(data):
        return xxhash.xxh3_128_intdigest(data).to_bytes(16, "little")

    def pairs(self, number, checksum):
        """Keys and values below a page, none of them of a fixed size."""
        order = number >> 59
        size = self.page << order
        place = self.tree + self.page + (number >> 20 & 0xFFFFF) * self.region + self.heads * self.page
        page = self.read(place + (number & 0xFFFFF >> order) * size, size)
        kind, count = page[0], unpack_from("<H", page, 2)[0]
        check(kind in (1, 2) and count, "a page of the B-tree is neither leaf nor branch")
        at = 4 + 4 * count if kind == 1 else 8 + 24 * (count + 1)
        ends = unpack_from(f"<{count}I", page, at)
        check(self.sum(page[:ends[-1]]) == checksum, "a page of the B-tree does not verify")
        if kind == 2:
            for child in range(count + 1):
                below, = unpack_from("<Q", page, 8 + 16 * (count + 1) + 8 * child)
                yield from self.pairs(below, page[8 + 16 * child:24 + 16 * child])
            return
        key_at, value_at = 4 + 8 * count, unpack_from("<I", page, 4 * count)[0]
        for key, end in zip(unpack_from(f"<{count}I", page, 4), ends):
            yield page[key_at:key], page[value_at:end]
            key_at, value_at = key, end


class Store:
    """The data volume with the records over it."""

    def __init__(self, volume, master):
        self.volume, self.master, self.slots = volume, master, {}
        copies = []
        for at in (0, volume.size // BLOCK * BLOCK - BLOCK):
            data = volume.read(at, BLOCK)
            if data[:8] == b"STELEARC" and crc32c(data[:56]) == unpack_from("<I", data, 56)[0]:
                witness = data[64:128] if crc32c(data[64:128]) == unpack_from("<I", data, 128)[0] else bytes(64)
                copies.append((unpack_from("<Q", witness)[0], unpack_from("<Q", witness, 24)[0], witness, data))
        check(copies, "no superblock of the data volume is intact")
        check(all(unpack_from("<I", copy[3], 8)[0] in (1, 2) for copy in copies), "the archive has a later format")
        *_, self.witness, block = max(copies)
        self.segment, = unpack_from("<I", block, 12)
        self.store = block[16:32]
        right = derive(master, "fingerprint", self.store)[:16] == block[40:56]
        check(right, "the master key is that of another store")
        self.headers = {}
        for number in range(1, (volume.size // BLOCK - 1) * BLOCK // self.segment):
            data = volume.read(number * self.segment, BLOCK)
            good = data[:8] == b"STELESEG" and crc32c(data[:48]) == unpack_from("<I", data, 48)[0]
            if good and data[16:32] == self.store and unpack_from("<I", data, 12)[0] == number:
                self.headers[number] = unpack_from("<IIQ", data, 32)
        self.parts = {0: 0}
        for number, (kind, part, _) in self.headers.items():
            # An extension of the key table that was cut off leaves a part without entries.
            if kind == 2 and (part not in self.parts or not self.has_entries(self.parts[part])):
                self.parts[part] = number

    def has_entries(self, number):
        return any(self.volume.read(number * self.segment + 2 * BLOCK, self.segment - 2 * BLOCK))

    def with_records(self, records):
        self.records = records
        self.buckets = {int.from_bytes(key, "big"): value(row, 24) for key, row in records.table(BUCKETS)}
        return self

    def is_of(self, catalog):
        """Whether the catalog is the one of this data volume, by their pairing."""
        identity = catalog.get(SETTINGS, b"identity")
        if identity is None:
            return False
        own = [*unpack_from("<Q16s", self.witness)]
        identity = value(identity, 16)
        return identity[0] == self.store and (own in identity[6:9] or own == [0, bytes(16)])

    def bucket_key(self, number, row):
        return unwrap(derive(self.master, "buckets"), row[11], big(number, 4), f"the key of bucket {number}")

    def key_entry(self, bucket, thing, slot):
        """The wrapped key of an object. Without one there is no such version."""
        each = (self.segment - 8192) // ENTRY
        part, at = divmod(slot, each)
        if part not in self.parts:
            return None
        entry = self.volume.read(self.parts[part] * self.segment + 8192 + at * ENTRY, ENTRY)
        good = crc32c(entry[:124]) == unpack_from("<I", entry, 124)[0]
        return entry[16:76] if good and unpack_from("<QII", entry) == (thing, bucket, 1) else None

    def object_key(self, bucket, row, customer=None):
        thing, slot = row[0], row[8]
        wrapped = self.key_entry(bucket, thing, slot)
        check(wrapped, f"the key of object {thing} is gone")
        check(row[15] is None or customer, f"object {thing} needs its customer's key")
        key = self.bucket_key(bucket, self.buckets[bucket])
        key = derive(key, "customer", customer) if row[15] else derive(key, "objects")
        return unwrap(key, wrapped, big(thing, 8) + big(slot, 8), f"the key of object {thing}")

    def stream(self, thing, key, stream):
        number, salt, size, extents = (stream + [None])[:4]
        key, frame, left = derive(key, "stream", salt), 0, size
        if extents is None:
            chunks = self.records.tables.get(EXTENTS, {})
            extents, chunk = [], 0
            while big(number, 8) + big(chunk, 4) in chunks:
                extents += value(chunks[big(number, 8) + big(chunk, 4)])[0]
                chunk += 1
        for segment, at, length in extents:
            at += segment * self.segment + HEADER
            left -= length
            while length:
                take = min(FRAME, length)
                bound = big(thing, 8) + big(number, 8) + big(frame, 4) + big(take, 4)
                sealed = self.volume.read(at, take + TAG)
                yield unseal(key, bytes(4) + big(frame, 8), sealed, bound, f"frame {frame} of object {thing}")
                at, frame, length = at + take + TAG, frame + 1, length - take
        check(left == 0, f"object {thing} lacks {left} bytes of a stream")

    def content(self, bucket, row, customer=None):
        """The content of a version, in pieces; an error at the end if it is not that of the row."""
        kind, thing = row[16][0], row[0]
        if row[3]:
            return
        key, digests = kind and self.object_key(bucket, row, customer), []
        for stream in self.streams(kind, thing, row):
            hasher = blake3()
            for piece in self.stream(thing, key, stream):
                hasher.update(piece)
                yield piece
            digests.append(hasher.digest())
        whole = blake3(b"".join(digests)).digest() if kind == 2 else digests[0] if digests else blake3(b"").digest()
        check(whole == row[14], f"object {thing} has another BLAKE3 than its record")

    def streams(self, kind, thing, row):
        if kind == 1:
            yield row[16][1][0]
        elif kind == 2:
            layout = self.records.get(LAYOUTS, big(thing, 8))
            check(layout, f"object {thing} lacks the list of its parts")
            for number, _, _ in value(layout)[0]:
                part = self.records.get(PARTS, big(thing, 8) + big(number, 4))
                check(part, f"object {thing} lacks its part {number}")
                yield value(part)[0]

    def versions(self):
        """Bucket, key, version id and row of every version, the newest of each key first."""
        for key, row in self.records.table(VERSIONS):
            bucket, name, number = unescape(key)
            row = value(row, 23)
            yield bucket, name, "null" if row[2] else f"{number ^ WORD8:016x}{row[1]:016x}", row

    def signing_key(self):
        identity = value(self.records.get(SETTINGS, b"identity"))
        seed = open_note(derive(self.master, "signing", self.store), identity[3], self.store, "the signing key")
        return Ed25519PrivateKey.from_private_bytes(seed).public_key()

    def audit(self):
        """Number and fields of every record of the audit log, and what does not hold."""
        link, links, found, wrong, last = bytes(32), {0: bytes(32)}, [], [], 0
        for key, stored in self.records.table(AUDIT):
            number = int.from_bytes(key, "big")
            if number != last + 1:
                wrong.append(f"records {last + 1} to {number - 1} of the audit log are missing")
            link, last = blake3(link + key + stored).digest(), number
            links[number] = link
            found.append((number, value(stored, 9)))
        head = self.records.get(SETTINGS, b"audit")
        if head and (int.from_bytes(head[:8], "big"), head[8:]) != (last, link):
            wrong.append("the audit log does not lead to its head")
        known, link = unpack_from("<Q32s", self.witness, 24)
        if known > last:
            wrong.append(f"{last} records of the audit log are here; the data volume has witnessed {known}")
        elif known and links.get(known) != link:
            wrong.append(f"record {known} of the audit log is not the one that the data volume has witnessed")
        signed = []
        for key, row in self.records.table(CHECKPOINTS):
            first, (end, at, root, signature) = int.from_bytes(key, "big"), value(row)
            text = b"stele audit checkpoint 1" + self.store + big(end, 8) + at + root
            if links.get(end) != at or merkle([links[n] for n in range(first, end + 1) if n in links]) != root:
                wrong.append(f"the checkpoint at record {end} is of another log")
            signed.append((f"the checkpoint at record {end}", signature, text))
        sealed = self.records.get(SETTINGS, b"sealed")
        if sealed:
            end, at, covered, signature = value(sealed)
            if links.get(end) != at:
                wrong.append(f"the signed end at record {end} is of another log")
            signed.append((f"the end at record {end}", signature,
                           b"stele audit end 1" + self.store + big(end, 8) + big(covered, 8) + at))
        for what, signature, text in signed:
            try:
                self.signing_key().verify(signature, text)
            except InvalidSignature:
                wrong.append(f"the signature of {what} does not hold")
        return found, wrong


def merkle(links):
    level = [blake3(b"\0" + link).digest() for link in links]
    while len(level) > 1:
        pairs = [blake3(b"\1" + b"".join(level[at:at + 2])).digest() for at in range(0, len(level) - 1, 2)]
        level = pairs + level[2 * len(pairs):]
    return level[0] if level else bytes(32)


class Survey(Records):
    """Buckets, versions and audit log as the data volume alone gives them, without a catalog."""

    def __init__(self, store):
        super().__init__()
        self.store, self.notes, self.pieces, keys = store, [], {}, {0: derive(store.master, "notes", store.store)}
        for segment, (kind, _, incarnation) in sorted(store.headers.items()):
            if kind == 1:
                self.walk(segment, incarnation)
        newest, buckets = {}, {}
        for kind, scope, thing, sequence, note in sorted(self.notes, key=lambda one: (one[1] != 0, one[3])):
            if scope and scope not in keys:
                check(scope in buckets, f"the note of bucket {scope} is missing")
                keys[scope] = derive(store.bucket_key(scope, buckets[scope]), "notes")
            note = value(open_note(keys[scope], note, big(sequence, 8), f"the note of sequence {sequence}"))
            if kind == BUCKET:
                buckets[thing] = note
            elif kind in (WHOLE, VERSION):
                newest[VERSIONS, thing] = note
            elif kind == PART:
                newest[PARTS, note[0], note[1]] = note[2]
            elif kind == IDENTITY:
                newest[SETTINGS] = note
            elif kind == AUDITED:
                for number, stored in enumerate(note[1], note[0]):
                    newest[AUDIT, number] = stored, sequence
        self.fill(newest, buckets)

    def walk(self, segment, incarnation):
        store, at = self.store, BLOCK
        while at + HEADER <= store.segment:
            head = store.volume.read(segment * store.segment + at, HEADER)
            size = None
            if head[:4] == b"STRC" and crc32c(head[:76]) == unpack_from("<I", head, 76)[0] and \
                    unpack_from("<Q", head, 56)[0] == incarnation:
                size = self.record(segment, at, head)
            at = up(at + size, BLOCK if size >= 128 << 10 else 16) if size else up(at + 1, BLOCK)

    def record(self, segment, at, head):
        payload, note, scope, frame, thing, stream = unpack_from("<IIIIQQ", head, 8)
        sequence, crc = unpack_from("<QI", head, 64)
        start = segment * self.store.segment + at + HEADER
        if at + HEADER + payload > self.store.segment:
            return None
        data = self.store.volume.read(start, payload)
        if crc32c(data) != crc:
            return None
        if head[4] in (PIECE, WHOLE):
            frames = payload - note
            content = frames - TAG * -(-frames // (FRAME + TAG))
            self.pieces.setdefault((thing, stream), {}).setdefault(frame, [segment, at, content])
        if note:
            self.notes.append((head[4], scope, thing, sequence, data[payload - note:]))
        return HEADER + payload

    def fill(self, newest, buckets):
        for number, row in buckets.items():
            if row[0]:
                self.put(BUCKETS, big(number, 4), row)
        if SETTINGS in newest:
            self.put(SETTINGS, b"identity", newest[SETTINGS][0])
        cuts = ((newest[SETTINGS][0] + [None] * 16)[13] or []) if SETTINGS in newest else []
        nulls = {}
        for key, found in newest.items():
            if key == SETTINGS:
                continue
            if key[0] == VERSIONS:
                (bucket, name, number), row, layout = (found + [None])[:3]
                if bucket and self.store.key_entry(bucket, row[0], row[8]) is not None:
                    if row[16][0] == 1:
                        row[16][1][0] = self.joined(row[0], row[16][1][0])
                    self.put(VERSIONS, version_key(bucket, name, number), row)
                    if row[2]:
                        nulls.setdefault((bucket, name), []).append((bool(row[11] or row[12]), number, row))
                    if layout:
                        self.put(LAYOUTS, big(row[0], 8), layout)
            elif key[0] == PARTS:
                row = found
                row[0] = self.joined(key[1], row[0])
                self.put(PARTS, big(key[1], 8) + big(key[2], 4), row)
            elif not any(key[1] >= first and found[1] < below for first, below in cuts):
                self.put(AUDIT, big(key[1], 8), found[0])

        for rows in nulls.values():  # One of them is the null version, the others have their numbers.
            for _, _, row in sorted(rows, key=lambda one: one[:2])[:-1]:
                row[2] = False

    def joined(self, thing, stream):
        pieces = self.pieces.get((thing, stream[0]), {})
        return [*stream[:3], [pieces[frame] for frame in sorted(pieces)]]


class Share:
    """A share: its tree, and the content of its files from the cache volume and the archive."""

    def __init__(self, store, name, volumes):
        row = store.records.get(SHARES, name.encode())
        names = ", ".join(key.decode() for key, _ in store.records.table(SHARES))
        check(row, f"there is no share {name!r}; the shares are: {names or 'none'}")
        row = value(row)
        self.store, self.name, self.cache, self.number = store, name, volumes.get(row[1]), big(row[0], 4)
        self.bucket = max(at for at, row in store.buckets.items() if row[0] == name and row[12] is None)
        self.archived = {}
        for bucket, key, version, row in store.versions():
            if bucket == self.bucket:
                self.archived[key, version] = row

    def files(self):
        """Path and row of everything in the share."""
        children = {}
        for key, row in self.store.records.table(NAMES):
            if key[:4] == self.number:
                inode, name = value(row)
                children.setdefault(int.from_bytes(key[4:12], "big"), []).append((name, inode))
        todo = [(b"", ROOT)]
        while todo:
            path, inode = todo.pop()
            row = self.store.records.get(INODES, self.number + big(inode, 8))
            check(row, f"{self.name}{path!r} has no inode {inode}")
            yield path, inode, value(row, 23)
            if value(row)[0][0] == 1:
                todo += [(path + b"/" + name, child) for name, child in sorted(children.get(inode, ()), reverse=True)]

    def content(self, inode, row):
        """The content of a regular file, block by block."""
        size, archived, below = row[5], b"", 0
        if row[15]:
            version, _, below = row[15]
            found = self.archived.get((f"{inode:016x}", version))
            check(found, f"version {version} of inode {inode} is not in the archive")
            archived = b"".join(self.store.content(self.bucket, found))[:below]
        for group in range(-(-size // (1 << 20))):
            stored = self.store.records.get(GROUPS, self.number + big(inode, 8) + big(group, 8))
            slots = value(stored)[0] if stored else [[0, 0]] * 16
            for at, (place, valid) in enumerate(slots):
                start = (group << 20) + at * 65536
                for block in range(16):
                    first = start + block * BLOCK
                    take = min(BLOCK, size - first)
                    if take <= 0:
                        return
                    if place and valid >> block & 1:
                        yield self.cache.read((place - 1) * 65536 + block * BLOCK, take)
                    else:
                        yield archived[first:first + take].ljust(take, b"\0")
