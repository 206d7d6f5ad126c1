"""A pool as its newest checkpoint and its log leave it, and reads of its volumes: FORMAT/table.md,
slots.md and log.md in code. Nothing here writes. A read returns bytes that verify, or raises
`Wrong` with the place."""

from collections import Counter, OrderedDict
from struct import unpack_from

import xxhash

from read_pool_array import (ANCHOR, ANCHORS, BLOCK, LOG, MAPS, MIB, NONE4, NONE8, PAGE, ROWS, SLOTS, USED, VOLUMES,
                             VOTERS, Entry, Layer, Row, Wrong, anchor, check, crc32c, digest, fold, join, parts_of,
                             restore, text, up)

GROUP = b"STELEGRP"
PER_CHUNK, PER_INDEX, PER_MAP = 1024, 682, 2048
CACHED = 256  # Stripes.


class Table:
    """The pages of a checkpoint."""

    def __init__(self, root, read, pool):
        self.rows, self.read, self.pool = root.rows, read, pool
        self.chunks, self.loaded, self.pages = {}, {}, {}
        for at, entry in enumerate(root.index):
            page = self.fetch(entry, NONE4, at)
            for slot in range(PER_INDEX):
                table, chunk, place, mark, sequence = unpack_from("<IIQII", page, 24 * slot)
                if place:
                    self.chunks[table, chunk] = (place, mark, sequence), PER_INDEX * at + slot

    def fetch(self, entry, table, index):
        """A page as stored, from whichever member has it."""
        place, mark, sequence = entry
        if not place:
            return bytes(PAGE)
        row, at = (place - 1) >> 32, (place - 1) & NONE4
        check(row in self.rows, f"page {index} of table {table:#x} lies in row {row}, which is not there")
        context = join(join(self.pool, table << 32 | index), sequence)
        for own, other in self.rows[row].members:
            for drive, unit in filter(None, (other, own)):
                page = self.read(drive, unit, at * PAGE, PAGE)
                if page is not None and mark in (digest(page, context), digest(page, context, False)):
                    return page
        raise Wrong(f"no copy of page {index} of table {table:#x} verifies")

    def entry(self, table, index):
        key = table, index // PER_CHUNK
        if key not in self.chunks:
            return 0, 0, 0
        if key not in self.loaded:
            entry, slot = self.chunks[key]
            self.loaded[key] = self.fetch(entry, NONE4 - 1, slot)
        return unpack_from("<QII", self.loaded[key], 16 * (index % PER_CHUNK))

    def page(self, table, index):
        key = table, index
        if key not in self.pages:
            self.pages[key] = bytearray(self.fetch(self.entry(table, index), table, index))
        return self.pages[key]

    def forget(self, table):
        """From here on no page of the table was ever written."""
        self.chunks = {key: found for key, found in self.chunks.items() if key[0] != table}
        self.pages = {key: page for key, page in self.pages.items() if key[0] != table}

    def indexes(self, table):
        """The pages of a table that were ever written."""
        for of, chunk in sorted(self.chunks):
            if of == table:
                for index in range(PER_CHUNK * chunk, PER_CHUNK * (chunk + 1)):
                    if self.entry(table, index)[0]:
                        yield index


class Shard:
    """One pool: its labels, its state, and reads of its layers."""

    def __init__(self, parts):
        check(parts, "no drive has a label of one of the shards")
        newest = max((label for _, label in parts), key=lambda label: (label.epoch, label.sequence))
        self.label, self.drives, self.voters = newest, {}, {}
        numbers = {identity: number for number, (identity, _, state) in enumerate(newest.drives)}
        for part, label in sorted(parts, key=lambda pair: pair[1].sequence):
            number = numbers.get(label.identity())
            if number is not None and newest.drives[number][2] in USED:
                self.drives[number] = part
                if newest.drives[number][2] in VOTERS:
                    self.voters[number] = part
        self.units = up(LOG + newest.log, MIB)
        high, low = (int.from_bytes(newest.pool[at:at + 8], "big") for at in (0, 8))
        self.pool = join(high, low)
        self.warnings = []
        voters = sum(state in VOTERS for _, _, state in newest.drives)
        if 2 * len(self.voters) <= voters:
            self.warnings.append(f"{len(self.voters)} of {voters} drives are here: newer content may be on the others")
        self.open()

    def cell(self, drive, unit, at, length):
        part = self.drives.get(drive)
        return part.read(self.units + unit * self.label.unit + at, length) if part else None

    def open(self):
        found, later = {}, 0
        for part in self.voters.values():
            for slot in (0, 1):
                one = anchor(part.read(ANCHORS + slot * ANCHOR, ANCHOR))
                if one and one.format not in (1, 2):
                    later += 1
                elif one and one.pool == self.label.pool:
                    found[one.epoch, one.sequence] = one
        check(found and later < 2, "the pool has anchors of a later version" if later else "no anchor is intact")
        for key in sorted(found, reverse=True):
            try:
                self.table = Table(found[key], self.cell, self.pool)
                break
            except Wrong as finding:
                self.warnings.append(f"checkpoint {key} is passed over: {finding}")
        else:
            raise Wrong("the directory of no checkpoint can be read")
        self.anchor = found[key]
        records = self.log()
        self.rows, self.layers, self.words, self.entries = {}, {}, {}, {}
        self.writes, self.redos = {}, {}
        patching = True
        for lsn, kind, body in records:
            if kind == 25 and lsn >= self.anchor.cut and patching:
                self.patch(body)
            elif lsn >= self.anchor.cut and (kind != 1 or lsn > self.anchor.cut):
                patching = False
        for index in self.table.indexes(ROWS):
            page = self.table.page(ROWS, index)
            for at in range(0, PAGE, 512):
                if unpack_from("<I", page, at)[0]:
                    row = Row(page, at + 8)
                    self.rows[row.number] = row
        for index in self.volume_pages():
            page = self.table.page(VOLUMES, index)
            if unpack_from("<I", page, 0)[0]:
                kind, handle, base, _, taken = unpack_from("<BxxxIIIQ", page, 16)
                self.layers[index] = Layer(index, kind, handle, base, taken, page, 40)
        for lsn, kind, body in records:
            self.replay(lsn, kind, body)

    def volume_pages(self):
        return sorted(set(self.table.indexes(VOLUMES)) | {at for of, at in self.table.pages if of == VOLUMES})

    def patch(self, body):
        pages, = unpack_from("<I", body, 0)
        at = 8
        for _ in range(pages):
            table, index, words = unpack_from("<III", body, at)
            at += 16
            page = self.table.page(table, index)
            for _ in range(words):
                place, = unpack_from("<I", body, at)
                page[place:place + 4] = body[at + 4:at + 8]
                at += 8

    # The log.

    def right_epoch(self, sequence):
        return [epoch for epoch, first, _ in self.label.epochs if first <= sequence][-1:]

    def header(self, data, at=0):
        """The fields of a group's header, if its own check holds and it is of this pool."""
        if data[at:at + 8] != GROUP or data[at + 16:at + 32] != self.label.pool:
            return None
        crc, = unpack_from("<I", data, at + 8)
        return unpack_from("<QQQIIQQIQI", data, at + 32) if crc32c(data[at + 12:at + 96]) == crc else None

    def group(self, at, sequence, crc):
        """The header and the records of the group there, from any member that has it."""
        for number in sorted({number for _, _, members in self.label.epochs for number in members}):
            part = self.drives.get(number)
            data = part.read(LOG + at, BLOCK) if part and at + BLOCK <= self.label.log else None
            fields = self.header(data) if data else None
            if fields is None:
                continue
            epoch, own, _, _, length, _, _, before, check8, _ = fields
            if own != sequence or [epoch] != self.right_epoch(sequence) or before != crc:
                continue
            if at + 96 + length > self.label.log:
                continue
            records = part.read(LOG + at + 96, length)
            if records is None:
                continue
            good = (xxhash.xxh3_64_intdigest(records) or 1) == check8 if check8 else \
                crc32c(records) == unpack_from("<I", data, 12)[0]
            if good:
                return fields, records, unpack_from("<I", data, 8)[0]
        return None

    def log(self):
        """All records from the replay position on: (LSN, kind, body)."""
        root = self.anchor
        at, sequence, crc, lsn, found = root.offset, root.group, root.crc, root.lsn, []
        self.groups = 0
        while True:
            group = self.group(at, sequence, crc)
            if group is None and at:
                group = self.group(0, sequence, crc)
                if group and at + up(96 + group[0][4], BLOCK) <= self.label.log:
                    group = None
                at = 0 if group else at
            if group is None:
                break
            fields, records, crc = group
            check(fields[2] == lsn, f"group {sequence} begins with record {fields[2]} instead of {lsn}")
            place = 0
            for _ in range(fields[3]):
                length, kind = unpack_from("<IB", records, place)
                check(8 <= length <= len(records) - place and length % 8 == 0, f"record {lsn} has a wrong length")
                found.append((lsn, kind, records[place + 8:place + length]))
                lsn, place = lsn + 1, place + length
            at, sequence = at + up(96 + fields[4], BLOCK), sequence + 1
            self.groups += 1
        self.no_group_lost(sequence)
        return found

    def no_group_lost(self, missing):
        """Refuses the log if an acknowledged group is missing."""
        later = self.label.epochs[-1][1]
        check(missing >= later, f"group {missing} of the log is lost: an epoch begins with group {later}")
        for number in self.label.epochs[-1][2]:
            part = self.drives.get(number)
            for start in range(0, self.label.log if part else 0, MIB):
                data = part.read(LOG + start, min(MIB, self.label.log - start)) or b""
                at = data.find(GROUP)
                while at >= 0:
                    fields = self.header(data, at) if at % BLOCK == 0 else None
                    if fields and missing < fields[1] <= missing + self.label.log // BLOCK and \
                            missing <= fields[5] < fields[1] and fields[9] in (0, self.tag(data[at + 12:at + 92])):
                        raise Wrong(f"group {missing} of the log is lost: group {fields[1]} on drive {number} says "
                                    f"that {fields[5]} was durable")
                    at = data.find(GROUP, at + 8)

    def tag(self, data):
        return fold(join(xxhash.xxh3_64_intdigest(data), self.label.seed)) or 1

    # Records.

    def replay(self, lsn, kind, body):
        if kind == 2:
            volume, length, offset = unpack_from("<IIQ", body, 0)
            self.written(lsn, volume, offset, length, body[16:16 + length])
        elif kind == 3:
            volume, _, offset, length = unpack_from("<IIQQ", body, 0)
            self.written(lsn, volume, offset, length, None)
        elif kind == 4:
            volume, count, stripe, slot, generation, _, covers, how = unpack_from("<IIQQQQQQ", body, 0)
            if lsn >= self.anchor.cut and volume in self.layers:
                entry, members = self.entry(slot), self.rows[slot >> 32].members
                entry.generation, entry.xxh3 = generation, bool(how & 1)
                entry.exceptions = sum(1 << strip for strip, (_, second) in enumerate(members) if second)
                entry.digests = list(unpack_from(f"<{count}I", body, 56))
                self.words[volume, stripe] = slot + 2
            self.covered(volume, stripe, covers)
        elif kind == 5:
            volume, zero, stripe, _, _, covers = unpack_from("<IIQQQQ", body, 0)
            if lsn >= self.anchor.cut:
                self.words[volume, stripe] = 1 if zero else 0
            self.covered(volume, stripe, covers)
        elif kind == 6:
            self.redo(lsn, body)
        elif kind == 7:
            volume, _, stripe, covers = unpack_from("<IIQQ", body, 0)
            self.covered(volume, stripe, covers)
        elif kind in (18, 20, 1, 25):
            pass
        elif lsn >= self.anchor.cut:
            change = {8: self.row_create, 9: self.row_free, 10: self.replacement, 11: self.moved, 12: self.created,
                      13: self.deleted, 14: self.resized, 15: self.ignored, 16: self.ignored, 17: self.ignored,
                      19: self.member_changed, 21: self.layer, 22: self.given_up, 23: self.adopted, 24: self.ignored}
            check(kind in change, f"record {lsn} of the log has the unknown kind {kind}")
            change[kind](body)

    def ignored(self, body):
        pass

    def written(self, lsn, volume, offset, length, data):
        layer = self.layers.get(volume)
        end = offset + length
        stripe_bytes = layer.stripe if layer else None
        if stripe_bytes is None:
            return
        while offset < end:
            stripe, inside = divmod(offset, stripe_bytes)
            take = min(end - offset, stripe_bytes - inside)
            part, data = (None, None) if data is None else (data[:take], data[take:])
            self.writes.setdefault((volume, stripe), []).append((lsn, inside, take, part))
            offset += take

    def covered(self, volume, stripe, covers):
        key = volume, stripe
        for of in (self.writes, self.redos):
            if key in of:
                of[key] = [one for one in of[key] if one[0] > covers]

    def redo(self, lsn, body):
        volume, digests, stripe, slot, generation, covers, images = unpack_from("<IIQQQQI", body, 0)
        at, changed, found = 48, [], []
        for _ in range(digests):
            changed.append(unpack_from("<III", body, at))
            at += 12
        for _ in range(images):
            strip, source, first, count = unpack_from("<BBxxII", body, at)
            at += 12
            data = None
            if source == 0:
                data = body[at:at + count * BLOCK]
                at += count * BLOCK
            found.append((strip, first, count, data))
        if lsn >= self.anchor.cut and slot >> 32 in self.rows:
            entry, row = self.entry(slot), self.rows[slot >> 32]
            if entry.generation == generation:
                for strip, unit, mark in changed:
                    entry.digests[strip * row.units + unit] = mark
        writes = list(self.writes.get((volume, stripe), []))
        self.redos.setdefault((volume, stripe), []).append((covers, slot, generation, found, writes))

    def row_create(self, body):
        row = Row(body, 0)
        self.rows[row.number] = row

    def row_free(self, body):
        number, = unpack_from("<I", body, 0)
        self.rows.pop(number, None)
        self.entries = {slot: entry for slot, entry in self.entries.items() if slot >> 32 != number}
        self.table.forget(SLOTS + number)

    def replacement(self, body):
        number, member, present, drive, unit = unpack_from("<IBBHI", body, 0)
        row = self.rows.get(number)
        if row:
            row.members[member][1] = (drive, unit) if present else None

    def member_changed(self, body):
        number, member, drive, unit = unpack_from("<IBxHI", body, 0)
        row = self.rows.get(number)
        if row:
            row.members[member][:] = (drive, unit), None

    def moved(self, body):
        slot, generation, strip, second = unpack_from("<QQBB", body, 0)
        if slot >> 32 not in self.rows:
            return
        entry = self.entry(slot)
        if entry.generation == generation:
            entry.exceptions = entry.exceptions & ~(1 << strip) | second << strip

    def created(self, body):
        volume, = unpack_from("<I", body, 0)
        self.layers[volume] = Layer(volume, 0, volume, NONE4, 0, body, 4)

    def deleted(self, body):
        volume, = unpack_from("<I", body, 0)
        gone = self.layers.pop(volume, None)
        for layer in self.layers.values():
            if gone and layer.base == volume:
                layer.base = gone.base

    def resized(self, body):
        volume, _, size = unpack_from("<IIQ", body, 0)
        self.layers[volume].size = size

    def given_up(self, body):
        volume, = unpack_from("<I", body, 0)
        self.layers[volume].kind, self.layers[volume].handle = 2, NONE4

    def layer(self, body):
        number, base, former, taken, reason = unpack_from("<IIIQB", body, 0)
        _, name = text(body, 24)
        new = (self.layers[base] if reason < 2 else self.layers[former]).copy()
        new.number, new.base, new.kind = number, base, 0
        if reason == 0:
            old = self.layers[former]
            old.kind, old.name, old.handle, old.taken = 1, name, number, taken
        elif reason == 1:
            new.name, new.handle = name, number
        else:
            self.layers[former].kind, self.layers[former].handle = 2, NONE4
        self.layers[number] = new

    def adopted(self, body):
        source, target, stripe, slot = unpack_from("<IIQQ", body, 0)
        self.words[source, stripe] = 0
        self.words[target, stripe] = 1 if slot == NONE8 else slot + 2

    # Reading.

    def entry(self, slot):
        if slot not in self.entries:
            row = self.rows.get(slot >> 32)
            check(row, f"slot {slot:#x} lies in a row that is not there")
            each = PAGE // row.entry
            index, at = divmod(slot & NONE4, each)
            page = self.table.page(SLOTS + row.number, index)
            self.entries[slot] = Entry(page, at * row.entry, row.digests)
        return self.entries[slot]

    def word(self, volume, stripe):
        if (volume, stripe) not in self.words:
            page = self.table.page(MAPS + volume, stripe // PER_MAP)
            self.words[volume, stripe], = unpack_from("<Q", page, 8 * (stripe % PER_MAP))
        return self.words[volume, stripe]

    def stripe(self, number, stripe):
        """The content of a stripe of a layer."""
        layer = self.layers[number]
        word = self.word(number, stripe)
        if word > 1:
            data = self.decode(layer, number, stripe, word - 2)
        elif word == 1 or layer.base == NONE4:
            data = bytes(layer.stripe)
        else:
            below = self.layers[layer.base]
            data = self.stripe(layer.base, stripe)
            kept = max(0, min(len(data), below.size - stripe * layer.stripe))
            data = data[:kept] + bytes(len(data) - kept)
        writes = self.writes.get((number, stripe))
        if writes:
            data = bytearray(data)
            for _, at, length, part in sorted(writes, key=lambda one: one[0]):
                data[at:at + length] = bytes(length) if part is None else part
        return bytes(data)

    def decode(self, layer, number, stripe, slot):
        row, entry, place = self.rows.get(slot >> 32), self.entry(slot), f"stripe {stripe} of layer {number}"
        images = self.images(layer, number, stripe, slot, entry)
        context = join(join(self.pool, slot), entry.generation)
        strips, found = {}, []

        def units(strip):
            """The units of a strip that verify, by number; zeros where the digest says so."""
            if strip not in strips:
                strips[strip] = self.strip(row, entry, slot, strip, images.get(strip, ()), context)
            return strips[strip]

        for strip in range(row.k):
            for at in range(row.units):
                if entry.digests[strip * row.units + at] == 0:
                    raise Wrong(f"{place}: unit {at} of strip {strip} is recorded as lost")
                have = units(strip).get(at)
                if have is None:
                    present = {other: units(other)[at] for other in range(row.k + row.m) if at in units(other)}
                    check(len(present) >= row.k, f"{place}: unit {at} verifies on {len(present)} drives of {row.k}")
                    have = restore(row.k, present, strip) if row.k > 1 else next(iter(present.values()))
                    mark = entry.digests[strip * row.units + at]
                    check(self.verifies(have, mark, context, strip, at, entry.xxh3) or mark == 1,
                          f"{place}: unit {at} of strip {strip} was restored to something else")
                found.append(have)
        return b"".join(found)

    def verifies(self, data, mark, context, strip, at, xxh3):
        return max(2, digest(data, join(context, strip << 32 | at), xxh3)) == mark

    def strip(self, row, entry, slot, strip, images, context):
        good, zero = {}, bytes(row.unit)
        own, other = row.members[strip]
        cells = [own, other] if not entry.exceptions >> strip & 1 else [other, own]
        for cell in filter(None, cells):
            data = self.cell(*cell, (slot & NONE4) * row.strip, row.strip)
            if data is None and not images:
                continue
            data = bytearray(data or bytes(row.strip))
            for first, blocks in images:
                data[first * BLOCK:first * BLOCK + len(blocks)] = blocks
            for at in range(row.units):
                part = bytes(data[at * row.unit:(at + 1) * row.unit])
                mark = entry.digests[strip * row.units + at]
                if at not in good and mark > 1 and self.verifies(part, mark, context, strip, at, entry.xxh3):
                    good[at] = part
        for at in range(row.units):
            mark = entry.digests[strip * row.units + at]
            if mark == 1 or mark == 0 and strip < row.k:
                good[at] = zero
        return good

    def images(self, layer, number, stripe, slot, entry):
        """What open redo records put onto the strips of the slot."""
        found = {}
        for covers, of, generation, images, writes in sorted(self.redos.get((number, stripe), []), key=lambda r: r[0]):
            if of != slot or generation != entry.generation:
                continue
            for strip, first, count, data in images:
                if data is None:  # Every strip of a mirror holds the same blocks.
                    start = (strip * layer.strip if layer.k > 1 else 0) + first * BLOCK
                    data = self.from_writes(writes, covers, start, count * BLOCK)
                    if data is None:
                        continue
                found.setdefault(strip, []).append((first, data))
        return found

    def from_writes(self, writes, covers, start, length):
        data, known = bytearray(length), bytearray(length)
        for lsn, at, size, part in writes:
            low, high = max(start, at), min(start + length, at + size)
            if lsn <= covers and low < high:
                data[low - start:high - start] = bytes(high - low) if part is None else part[low - at:high - at]
                known[low - start:high - start] = b"\1" * (high - low)
        return bytes(data) if all(known) else None


class Volume:
    """A volume or snapshot by its layers on the shards."""

    def __init__(self, pool, name, layers):
        self.pool, self.name, self.layers = pool, name, layers
        first = layers[0]
        self.unit = up(MIB, first.stripe)
        self.size = first.size
        if len(layers) > 1:  # The largest volume that the parts hold.
            rows = min(layer.size // self.unit for layer in layers)
            self.size = rows * self.unit * len(layers)
            for layer in layers:
                more = min(self.unit, layer.size - rows * self.unit)
                self.size += more
                if more < self.unit:
                    break

    def read(self, at, length):
        found = []
        check(at + length <= self.size, f"{self.name} ends at {self.size}")
        while length:
            shard, place, take = 0, at, length
            if len(self.layers) > 1:
                unit, inside = divmod(at, self.unit)
                shard = unit % len(self.layers)
                place, take = unit // len(self.layers) * self.unit + inside, min(length, self.unit - inside)
            found.append(self.part(shard, place, take))
            at, length = at + take, length - take
        return b"".join(found)

    def part(self, shard, at, length):
        layer, found = self.layers[shard], []
        while length:
            stripe, inside = divmod(at, layer.stripe)
            take = min(length, layer.stripe - inside)
            found.append(self.pool.stripe(shard, layer.number, stripe)[inside:inside + take])
            at, length = at + take, length - take
        return b"".join(found)


class Pool:
    def __init__(self, paths):
        parts = [pair for path in paths for pair in parts_of(path)]
        check(parts, "no drive has a label")
        pools = Counter(self.identity(label) for _, label in parts)
        check(len(pools) == 1, f"the drives are of {len(pools)} pools: {', '.join(sorted(of.hex() for of in pools))}")
        whole = next(iter(pools))
        self.shards = []
        for at in range(max(label.shards for _, label in parts)):
            self.shards.append(Shard([pair for pair in parts if pair[1].shard == at]))
        self.identity, self.cache = whole, OrderedDict()
        self.volumes = {}
        for layer in self.shards[0].layers.values():
            if layer.kind < 2:
                layers = [layer]
                if layer.spread:
                    for shard in self.shards[1:]:
                        layers += [one for one in shard.layers.values() if one.kind < 2 and one.name == layer.name]
                self.volumes[layer.name] = Volume(self, layer.name, layers)

    @staticmethod
    def identity(label):
        return label.pool[:14] + (int.from_bytes(label.pool[14:], "big") ^ label.shard).to_bytes(2, "big")

    def stripe(self, shard, layer, stripe):
        key = shard, layer, stripe
        if key in self.cache:
            self.cache.move_to_end(key)
        else:
            self.cache[key] = self.shards[shard].stripe(layer, stripe)
            if len(self.cache) > CACHED:
                self.cache.popitem(last=False)
        return self.cache[key]

    def warnings(self):
        return [warning for shard in self.shards for warning in shard.warnings]
