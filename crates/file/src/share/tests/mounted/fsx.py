"""Random operations on one file of a mounted share, each compared with a model in memory: the ideas of fsx.

Arguments: the file, a seed, the most bytes of the file. Each line of input is a number of operations. After these the whole
file is compared, it is closed, and a line is printed: `ok` and how often each kind of operation was done.
"""

import errno
import mmap
import os
import random
import sys

path, seed, most = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
dice = random.Random(seed)
model = bytearray()
counts = {}
file = -1


def place(end):
    """A range below `end`, often near the borders of blocks and slots."""
    at = dice.randrange(end)
    if dice.random() < 0.5:
        unit = dice.choice([4096, 65536])
        at = min(end - 1, max(0, at // unit * unit + dice.randrange(-2, 3)))
    length = dice.randrange(1, dice.choice([10, 5000, 70_000, 300_000]))
    return at, min(length, end - at)


def grow(size):
    if size > len(model):
        model.extend(bytes(size - len(model)))


def write():
    at, length = place(most)
    data = dice.randbytes(length)
    grow(at + length)
    model[at:at + length] = data
    assert os.pwrite(file, data, at) == length


def append():
    data = dice.randbytes(dice.randrange(1, 9000))
    if len(model) + len(data) > most:
        return
    end = os.open(path, os.O_WRONLY | os.O_APPEND)
    assert os.write(end, data) == len(data)
    os.close(end)
    model.extend(data)


def read():
    at, length = place(most)
    found = os.pread(file, length, at)
    assert found == bytes(model[at:at + length]), f"{length} bytes at {at} differ"


def truncate():
    size = place(most)[0] if dice.random() < 0.8 else 0
    os.ftruncate(file, size)
    del model[size:]
    grow(size)


def allocate():
    # Where the file system has no fallocate(2), the library writes zeros over holes and behind the end.
    at, length = place(most)
    os.posix_fallocate(file, at, length)
    grow(at + length)


def map_read():
    if not model:
        return
    at, length = place(len(model))
    with mmap.mmap(file, len(model), mmap.MAP_PRIVATE, mmap.PROT_READ) as view:
        assert view[at:at + length] == bytes(model[at:at + length]), f"mapped {length} bytes at {at} differ"


def map_write():
    if not model:
        return
    at, length = place(len(model))
    data = dice.randbytes(length)
    try:
        view = mmap.mmap(file, len(model), mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    except OSError as error:
        # Without the kernel's cache, and before Linux 6.6.
        assert error.errno == errno.ENODEV
        return
    with view:
        view[at:at + length] = data
        view.flush()
    model[at:at + length] = data


def reopen():
    global file
    os.close(file)
    file = os.open(path, os.O_RDWR)


def sync():
    os.fsync(file)


def rename():
    os.rename(path, path + ".other")
    os.rename(path + ".other", path)


def stat():
    assert os.fstat(file).st_size == len(model)


KINDS = [write, write, write, append, read, read, read, truncate, allocate, map_read, map_write, reopen, sync, rename, stat]

for line in sys.stdin:
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    for step in range(int(line)):
        kind = dice.choice(KINDS)
        counts[kind.__name__] = counts.get(kind.__name__, 0) + 1
        try:
            kind()
        except (AssertionError, OSError) as error:
            sys.exit(f"seed {seed}, {kind.__name__} number {counts[kind.__name__]}: {error}")
    found = os.pread(file, most + 1, 0)
    while len(found) < len(model):
        more = os.pread(file, most + 1 - len(found), len(found))
        assert more, f"seed {seed}: the file ends at {len(found)}, not {len(model)}"
        found += more
    assert found == bytes(model), f"seed {seed}: the file differs from the model"
    os.close(file)
    print("ok", *(f"{name}={count}" for name, count in sorted(counts.items())), flush=True)
