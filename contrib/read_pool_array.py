"""Drives, labels, anchors, rows and codes of a pool, read without Stele: FORMAT/drive.md, slots.md,
log.md and codes.md in code. Nothing here writes."""

import os
from struct import unpack_from

import xxhash

KIB, MIB = 1 << 10, 1 << 20
BLOCK, PAGE = 4096, 16 * KIB
LABEL, ANCHORS, ANCHOR, LOG = 64 * KIB, 128 * KIB, MIB, 4 * MIB
NONE4, NONE8, WORD8 = 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF
ROWS, VOLUMES, MAPS, SLOTS = 1, 2, 0x40000000, 0x80000000
KNOWN_FEATURES = 7
VOTERS = (1, 4)  # Active and filling drives.
USED = (1, 4, 5)  # Those and joining ones.


class Wrong(Exception):
    """Something does not hold, or cannot be read."""


def check(good, finding):
    if not good:
        raise Wrong(finding)


def crc_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


CRC = crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC[(crc ^ byte) & 255] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def join(a, b):
    z = (a * 0x9E3779B97F4A7C15 & WORD8) ^ b
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & WORD8
    z = (z ^ z >> 27) * 0x94D049BB133111EB & WORD8
    return z ^ z >> 31


def fold(mixed):
    return (mixed ^ mixed >> 32) & 0xFFFFFFFF


def digest(data, context, xxh3=True):
    """The digest of a page or unit in its context, before 0 and 1 are set aside."""
    if xxh3:
        return fold(join(xxhash.xxh3_64_intdigest(data), context))
    return crc32c(data) ^ fold(join(context, 0x5354454C4521))


def up(value, step):
    return -(-value // step) * step


class Part:
    """A drive, or one shard's part of it."""

    def __init__(self, path, start, size):
        self.path, self.start, self.size = path, start, size

    def read(self, at, length):
        """The bytes there; None where the drive does not give them."""
        try:
            with open(self.path, "rb", buffering=0) as file:
                data = os.pread(file.fileno(), length, self.start + at)
        except OSError:
            return None
        return data if len(data) == length else None


class Label:
    def __init__(self, data):
        self.incompatible, = unpack_from("<Q", data, 40)
        self.pool = data[48:64]
        self.sequence, self.number, self.flags, self.m, self.spare = unpack_from("<QHHII", data, 64)
        drives, epochs, self.created, self.epoch, self.seed, self.unit, self.log = unpack_from("<HHQQQQQ", data, 84)
        at, self.name = text(data, 128)
        at = up(at, 8)
        self.drives, self.epochs, self.shard, self.shards = [], [], 0, 1
        for _ in range(drives):
            size, joined, enclosure, state = unpack_from("<QQII", data, at + 16)
            self.drives.append((data[at:at + 16], size, state & 0xFF))
            at += 40
        for _ in range(epochs):
            epoch, first, members = unpack_from("<QQH", data, at)
            self.epochs.append((epoch, first, unpack_from(f"<{members}H", data, at + 18)))
            at += 18 + 2 * members
        if self.incompatible & 1:
            overrides, = unpack_from("<I", data, at + 24)
            at += 28 + 8 * overrides
        if self.incompatible & 4:
            self.shard, self.shards = unpack_from("<HH", data, at)

    def identity(self):
        return self.drives[self.number][0]


def text(data, at):
    length, = unpack_from("<H", data, at)
    return at + 2 + length, data[at + 2:at + 2 + length].decode()


def label(data):
    """The label in these 64 KiB, a number where its format is another one, or None."""
    if data is None or data[:8] != b"STELELBL":
        return None
    kind, length, crc = unpack_from("<III", data, 8)
    if length % BLOCK or not BLOCK <= length <= LABEL or crc32c(data[24:length]) != crc:
        return None
    if kind != 1:
        return kind
    found = Label(data)
    check(not found.incompatible & ~KNOWN_FEATURES, f"a label has features {found.incompatible:#x}, of a later version")
    return found


def newest_label(part, tail=True):
    ends = [0, LABEL]
    if tail:
        end = part.size // LABEL * LABEL
        ends += [end - 2 * LABEL, end - LABEL]
    found = [one for at in ends if at >= 0 and (one := label(part.read(at, LABEL)))]
    known = [one for one in found if isinstance(one, Label)]
    # The CRC does not cover the format: one copy alone may be damaged.
    later = len(found) - len(known)
    check(later < 2 and (known or not later), f"{part.path} has labels of a later version")
    return max(known, key=lambda one: one.sequence, default=None)


def parts_of(path):
    """The parts of a drive with their labels."""
    with open(path, "rb") as file:
        length = file.seek(0, 2)
    whole = Part(path, 0, length)
    first = newest_label(whole, tail=False)
    found = first or newest_label(whole)
    if found is None:
        return []
    count = found.shards
    size = length // count // MIB * MIB if count > 1 else length
    if first and first.shard == 0:
        listed = first.drives[first.number][1]
        second = Part(path, listed, length - listed)
        if count == 1 or newest_label(second, tail=False):
            size = listed
    parts = [Part(path, size * at, size if at + 1 < count else length - size * at) for at in range(count)]
    if count == 1:
        parts[0].size = size
    return [(part, one) for part in parts if (one := newest_label(part))]


class Row:
    def __init__(self, data, at):
        self.number, self.kind, self.k, self.m, members, self.strip, self.unit = unpack_from("<IBBBBQQ", data, at)
        self.members = []
        for member in range(members):
            drive, second, unit, other, _, other_unit, _ = unpack_from("<HHIHHII", data, at + 24 + 20 * member)
            self.members.append([(drive, unit), (other, other_unit) if second else None])
        self.end = at + 24 + 20 * members
        self.units = self.strip // self.unit if self.unit else 1
        self.digests = members * self.units
        self.entry = up(40 + 4 * self.digests, 8)


class Layer:
    """A map with what is known of it: a volume, a snapshot, or one that is given up."""

    def __init__(self, number, kind, handle, base, taken, data, at):
        self.number, self.kind, self.handle, self.base, self.taken = number, kind, handle, base, taken
        (self.size, self.strip, self.block, self.k, self.m, self.by_strip, self.mode, self.full, self.owned,
         self.spread) = unpack_from("<QIIBBBBBBH", data, at)
        at, self.name = text(data, at + 24)
        _, self.owner = text(data, at)
        self.stripe = self.k * self.strip

    def copy(self):
        other = object.__new__(Layer)
        other.__dict__.update(self.__dict__)
        return other


class Entry:
    def __init__(self, data, at, digests):
        self.generation, self.exceptions, kind = unpack_from("<QIB", data, at + 16)
        self.xxh3 = bool(kind & 1)
        self.digests = list(unpack_from(f"<{digests}I", data, at + 40))


class Anchor:
    def __init__(self, data):
        self.format, = unpack_from("<I", data, 8)
        self.pool = data[24:40]
        (self.epoch, self.sequence, self.cut, self.lsn, self.group, self.offset, self.crc, rows, pages,
         root) = unpack_from("<QQQQQQIIII", data, 40)
        at, self.rows = 120, {}
        for _ in range(rows):
            row = Row(data, at)
            self.rows[row.number], at = row, row.end
        self.index = [unpack_from("<QII", data, at + 16 * page) for page in range(pages)]
        self.root = data[at + 16 * pages:at + 16 * pages + root]


def anchor(data):
    if data is None or data[:8] != b"STELEANC":
        return None
    length, crc = unpack_from("<II", data, 12)
    if not 120 <= length <= ANCHOR or crc32c(data[24:length]) != crc:
        return None
    return Anchor(data)


class Field:
    """GF(2^8) modulo 0x11D, on strings of bytes."""

    def __init__(self):
        self.powers, self.logs, value = [], {}, 1
        for power in range(255):
            self.powers.append(value)
            self.logs[value] = power
            value = value << 1 ^ (0x11D if value & 0x80 else 0)
        self.tables = {}

    def times(self, a, b):
        return self.powers[(self.logs[a] + self.logs[b]) % 255] if a and b else 0

    def inverse(self, a):
        return self.powers[-self.logs[a] % 255]

    def scale(self, a, data):
        if a not in self.tables:
            self.tables[a] = bytes(self.times(a, b) for b in range(256))
        return data.translate(self.tables[a])


GF = Field()


def xor(a, b):
    return (int.from_bytes(a, "little") ^ int.from_bytes(b, "little")).to_bytes(len(a), "little")


def coefficient(k, parity, strip):
    """What data strip `strip` counts for in a parity strip."""
    return 1 if k == 1 else GF.powers[parity * strip % 255]


def restore(k, present, wanted):
    """The wanted data strip from any k present strips, all of one length."""
    absent = [strip for strip in range(k) if strip not in present]
    parities = [strip for strip in sorted(present) if strip >= k][:len(absent)]
    equations = []
    for parity in parities:
        value = present[parity]
        for strip in range(k):
            if strip in present:
                value = xor(value, GF.scale(coefficient(k, parity - k, strip), present[strip]))
        equations.append([[coefficient(k, parity - k, strip) for strip in absent], value])
    for at in range(len(absent)):
        pivot = next(row for row in range(at, len(absent)) if equations[row][0][at])
        equations[at], equations[pivot] = equations[pivot], equations[at]
        factors, value = equations[at]
        by = GF.inverse(factors[at])
        equations[at] = factors, value = [GF.times(by, factor) for factor in factors], GF.scale(by, value)
        for row, (others, other) in enumerate(equations):
            if row != at and others[at]:
                by = others[at]
                others = [a ^ GF.times(by, b) for a, b in zip(others, factors)]
                equations[row] = others, xor(other, GF.scale(by, value))
    return equations[absent.index(wanted)][1]
