"""Rules for names, directories, links and users on a mounted share: the ideas of pjdfstest.

Argument: the mount. Runs as root, and as others in child processes. Prints the number of checks.
"""

import errno
import os
import stat
import sys

top = sys.argv[1]
checks = 0


def at(*names):
    return os.path.join(top, *names)


def write(path, text=b"text"):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(file, text)
    os.close(file)


def holds(rule, found):
    global checks
    checks += 1
    if not found:
        sys.exit(f"broken: {rule}")


def fails(rule, code, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except OSError as error:
        holds(f"{rule}: {errno.errorcode[error.errno]}, not {errno.errorcode[code]}", error.errno == code)
        return
    holds(f"{rule}: it worked", False)


def as_user(uid, gid, call):
    """Does it as this user, in a process of its own."""
    global checks
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        before = checks
        try:
            call()
        except OSError as error:
            print(f"as user {uid}: {error}", file=sys.stderr)
            os._exit(255)
        os._exit(checks - before)
    status = os.waitpid(child, 0)[1]
    done = os.waitstatus_to_exitcode(status)
    if not 0 < done < 255:
        sys.exit(f"broken as user {uid}")
    checks += done


def links(path):
    return os.lstat(path).st_nlink


# Directories.
d, e, f = at("d"), at("e"), at("f")
os.mkdir(d)
os.mkdir(e)
write(f)
holds("a directory counts itself and its parts", links(top) == 4 and links(d) == 2)
fails("mkdir over a directory", errno.EEXIST, os.mkdir, d)
fails("mkdir over a file", errno.EEXIST, os.mkdir, f)
fails("mkdir below a file", errno.ENOTDIR, os.mkdir, at("f", "x"))
fails("mkdir below nothing", errno.ENOENT, os.mkdir, at("none", "x"))
fails("a name of 256 bytes", errno.ENAMETOOLONG, os.mkdir, at("n" * 256))
os.mkdir(at("n" * 255))
os.rmdir(at("n" * 255))
os.mkdir(at("d", "sub"))
holds("a directory below counts", links(d) == 3)
fails("rmdir of a full directory", errno.ENOTEMPTY, os.rmdir, d)
fails("rmdir of a file", errno.ENOTDIR, os.rmdir, f)
fails("rmdir of nothing", errno.ENOENT, os.rmdir, at("none"))
fails("rmdir of `.`", errno.EINVAL, os.rmdir, at("d", "."))
fails("unlink of a directory", errno.EISDIR, os.unlink, d)
fails("truncation of a directory", errno.EISDIR, os.truncate, d, 0)
fails("a directory opened for writing", errno.EISDIR, os.open, d, os.O_WRONLY)
fails("a file opened as a directory", errno.ENOTDIR, os.open, f, os.O_RDONLY | os.O_DIRECTORY)
fails("a path through a file", errno.ENOTDIR, os.stat, at("f", "x"))

# Renames.
fails("into itself", errno.EINVAL, os.rename, d, at("d", "sub", "x"))
fails("a directory over a full one", errno.ENOTEMPTY, os.rename, e, d)
fails("a directory over a file", errno.ENOTDIR, os.rename, e, f)
fails("a file over a directory", errno.EISDIR, os.rename, f, e)
fails("nothing", errno.ENOENT, os.rename, at("none"), at("x"))
os.rename(at("d", "sub"), at("e", "sub"))
holds("a moved directory counts at its new place", links(d) == 2 and links(e) == 3)
holds("`..` of a moved directory", os.stat(at("e", "sub", "..")).st_ino == os.stat(e).st_ino)
os.rename(e, d)
holds("over an empty directory", not os.path.exists(e) and os.listdir(d) == ["sub"])
write(at("g"), b"other")
before = os.stat(f)
os.rename(f, at("g"))
holds("over a file", os.stat(at("g")).st_ino == before.st_ino and not os.path.exists(f))
holds("a rename changes the change time", os.stat(at("g")).st_ctime_ns > before.st_ctime_ns)
os.link(at("g"), f)
os.rename(f, at("g"))
holds("names of one file stay", os.path.exists(f) and os.path.exists(at("g")))

# Links.
holds("names count", links(f) == 2)
fails("a link over a file", errno.EEXIST, os.link, f, at("g"))
fails("a link to a directory", errno.EPERM, os.link, d, at("x"))
os.unlink(at("g"))
holds("a name less", links(f) == 1)
os.symlink("loop", at("loop"))
fails("a link to itself", errno.ELOOP, os.stat, at("loop"))
fails("a link that is not followed", errno.ELOOP, os.open, at("loop"), os.O_RDONLY | os.O_NOFOLLOW)
os.symlink("d/sub", at("way"))
holds("a link is followed", stat.S_ISDIR(os.stat(at("way")).st_mode))
holds("a link keeps its text", os.readlink(at("way")) == "d/sub" and os.lstat(at("way")).st_size == 5)
fails("a link is read, a file is not", errno.EINVAL, os.readlink, f)
fails("an exclusive creation over a link", errno.EEXIST, os.open, at("loop"), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
os.mkfifo(at("pipe"), 0o600)
holds("a pipe", stat.S_ISFIFO(os.lstat(at("pipe")).st_mode))

# A file without a name.
file = os.open(f, os.O_RDWR)
os.unlink(f)
os.pwrite(file, b"more", 4)
holds("an open file without a name", os.pread(file, 9, 0) == b"textmore" and os.fstat(file).st_nlink == 0)
os.close(file)
write(f)

# Times of directories.
for rule, change in [
    ("a creation", lambda: write(at("d", "new"))),
    ("a rename", lambda: os.rename(at("d", "new"), at("d", "newer"))),
    ("a removal", lambda: os.unlink(at("d", "newer"))),
    ("a directory", lambda: os.mkdir(at("d", "below"))),
]:
    before = os.stat(d)
    change()
    after = os.stat(d)
    holds(f"{rule} changes the times", after.st_mtime_ns > before.st_mtime_ns and after.st_ctime_ns > before.st_ctime_ns)

# Users.
os.chmod(top, 0o777)
sticky, closed, group = at("sticky"), at("closed"), at("group")
for path, mode in [(sticky, 0o1777), (closed, 0o700), (group, 0o2777)]:
    os.mkdir(path)
    os.chmod(path, mode)
os.chown(group, 0, 2000)
write(os.path.join(closed, "f"))


def owner():
    write(at("sticky", "mine"))
    write(at("group", "f"))
    holds("the group of its directory", os.stat(at("group", "f")).st_gid == 2000)
    os.mkdir(at("group", "d"))
    holds("the bit goes on", os.stat(at("group", "d")).st_mode & stat.S_ISGID)
    fails("an owner gives nothing away", errno.EPERM, os.chown, at("sticky", "mine"), 1002, -1)


def other():
    fails("a sticky directory: removal", errno.EPERM, os.unlink, at("sticky", "mine"))
    fails("a sticky directory: rename", errno.EPERM, os.rename, at("sticky", "mine"), at("sticky", "x"))
    fails("the mode of another's file", errno.EPERM, os.chmod, at("sticky", "mine"), 0o777)
    fails("the times of another's file", errno.EPERM, os.utime, at("sticky", "mine"), (1, 1))
    fails("now, without the right to write", errno.EACCES, os.utime, at("sticky", "mine"))
    fails("writing to another's file", errno.EACCES, os.open, at("sticky", "mine"), os.O_WRONLY)
    fails("no search", errno.EACCES, os.stat, at("closed", "f"))
    fails("no listing", errno.EACCES, os.listdir, closed)
    fails("no new name", errno.EACCES, os.mkdir, at("closed", "x"))
    fails("special files are root's", errno.EPERM, os.mknod, at("device"), 0o644 | stat.S_IFCHR, os.makedev(1, 3))


def owner_again():
    os.rename(at("sticky", "mine"), at("sticky", "moved"))
    os.unlink(at("sticky", "moved"))
    holds("the owner removes", not os.listdir(sticky))


as_user(1001, 1001, owner)
as_user(1002, 1002, other)
as_user(1001, 1001, owner_again)

# A listing during which names come and go.
many = at("many")
os.mkdir(many)
for number in range(700):
    write(os.path.join(many, f"f{number}"), b"")
seen = {}
with os.scandir(many) as entries:
    for entry in entries:
        seen[entry.name] = seen.get(entry.name, 0) + 1
        if len(seen) % 7 == 0:
            os.unlink(os.path.join(many, entry.name))
            write(os.path.join(many, f"new{len(seen)}"), b"")
holds("each name that stays is listed once", all(seen.get(name) == 1 for name in os.listdir(many) if name[0] == "f"))
holds("no name is listed twice", max(seen.values()) == 1)
print(checks)
