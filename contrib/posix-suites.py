#!/usr/bin/env python3
"""Runs public suites of file systems on shares of a server of its own, mounted through FUSE.

    contrib/posix-suites.py STELE [--operations N] [--keep-log FILE]

STELE is the program `stele`. The suites, unmodified:

- pjdfstest 0.2.2: names, modes, users, times and errors, on a share and on one with Object Lock
- fsx 0.3.2: N random operations (50,000) a run, with and without maps, cache on and off
- stress-ng's stressors of file systems, each for 5 seconds, where stress-ng is installed

pjdfstest and fsx are taken from PATH in these versions, or built by `cargo install`. Needs root,
/dev/fuse, two users without rights (nobody and daemon), and 4 GB. What does not pass is compared
with posix-suites.tsv beside this file, which says why. The exit code is 1 if something does not
pass that is not listed there, or if a listed case passes. Nothing is left behind.
"""
import argparse
import collections
import grp
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

VERSIONS = {"pjdfstest": "0.2.2", "fsx": "0.3.2"}
HERE = Path(__file__).resolve().parent
SHARES = {
    "plain": ["--cache", "256MiB"],
    "locked": ["--cache", "64MiB", "--lock", "--retention", "compliance:1d"],
    "uncached": ["--cache", "64MiB", "--caching", "off"],
}
STRESSORS = (
    "access chattr chdir chmod chown copy-file dentry dir dirdeep dirmany dup fallocate fcntl fiemap filename flock"
    " fpunch fsize fstat getdent handle hdd inode-flags inotify io iomix lease link locka lockf lockofd mknod mmap open"
    " readahead rename seek sendfile splice symlink sync-file touch utime verity xattr"
).split()
# A file that has no name any more, and is open, gets a quarter of the cache at most.
SIZES = {"hdd": ["--hdd-bytes", "32m"], "iomix": ["--iomix-bytes", "16m"]}
# Not enough resources, or not implemented.
STRESS_LEFT_OUT = (3, 4)
FSX = """flen = 1048576
[opsize]
max = 131072
[weights]
close_open = 1
read = 10
write = 10
mapread = {maps}
mapwrite = {maps}
invalidate = {maps}
truncate = 5
fsync = 0.2
fdatasync = 0.2
posix_fallocate = 1
sendfile = 5
posix_fadvise = 1
copy_file_range = 3
"""
STARTED = "Ctrl-C stops it"

Case = collections.namedtuple("Case", "word message")
PASSED, SKIPPED, FAILED = "passed", "did not run", "failed"


class Suites:
    def __init__(self, stele, folder, log, operations):
        self.stele, self.folder, self.log, self.operations = stele, folder, log, operations
        self.data = folder / "data"
        self.env = {name: value for name, value in os.environ.items() if name != "STELE_DIR"}
        self.server, self.mounts, self.found = None, [], {}

    def run(self, command, seconds=600, **options):
        """Runs it, and ends all that it began if that takes too long. Answers its code and output."""
        words = [str(word) for word in command]
        options = {"env": self.env, "cwd": self.folder} | options
        child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, **options)
        try:
            said = child.communicate(timeout=seconds)[0]
        except BaseException as error:
            os.killpg(child.pid, signal.SIGKILL)
            said = child.communicate()[0]
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            said += f"\nended after {seconds} s\n".encode()
        text = re.sub("\x1b\\[[0-9;]*m", "", said.decode(errors="replace"))
        self.log.write(f"$ {' '.join(words)}\n{text}\n")
        self.log.flush()
        return child.returncode, text

    def must(self, *command, **options):
        code, said = self.run(command, **options)
        if code != 0:
            raise SystemExit(f"{' '.join(map(str, command))}: {said}")
        return said

    def call(self, *words):
        return self.must(self.stele, *words, "--dir", self.data)

    def programs(self):
        """The suites in these versions: from PATH, or built."""
        found = {}
        for name, version in VERSIONS.items():
            there = shutil.which(name)
            if not there or self.run([there, "--version"])[1].split()[-1:] != [version]:
                built = {"env": self.env | {"CARGO_TARGET_DIR": str(self.folder / "target")}, "seconds": 3600}
                self.must("cargo", "install", "--quiet", name, "--version", version, "--root", self.folder, **built)
                there = self.folder / "bin" / name
            found[name] = there
        return found

    def start(self):
        drives = [word for number in range(5) for word in ("--drive", f"{self.folder}/drive{number}@{number}")]
        self.call("pool", "create", "--data", "2+1", *drives, "--size", "2GiB", "--confirm-time")
        config = self.data / "stele.toml"
        text, changed = re.subn(r"127\.0\.0\.1:9000", "127.0.0.1:0", config.read_text())
        if not changed:
            raise SystemExit(f"{config}: no address of S3 is found")
        config.write_text(text)
        words = [str(self.stele), "serve", "--dir", str(self.data)]
        options = {"env": self.env, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "start_new_session": True}
        self.server = subprocess.Popen(words, **options)
        started = threading.Event()

        def listen():
            for line in self.server.stdout:
                self.log.write(line.decode(errors="replace"))
                if STARTED.encode() in line:
                    started.set()
            started.set()

        threading.Thread(target=listen, daemon=True).start()
        if not started.wait(120) or self.server.poll() is not None:
            raise SystemExit("the server does not start")
        for name, options in SHARES.items():
            self.call("share", "create", name, "--squash", "none", "--mode", "0777", "--archive-after", "1", *options)
            directory = self.folder / name
            directory.mkdir()
            self.mounts.append(directory)
            self.call("share", "mount", name, directory)

    def stop(self):
        for directory in self.mounts:
            subprocess.run(["umount", "-l", directory], capture_output=True, check=False)
        if self.server:
            self.server.terminate()
            try:
                self.server.wait(60)
            except subprocess.TimeoutExpired:
                self.server.kill()
                self.server.wait()

    def pjdfstest(self, program):
        users = [f'["{name}", "{grp.getgrgid(pwd.getpwnam(name).pw_gid).gr_name}"]' for name in ("nobody", "daemon")]
        features = "posix_fallocate = {}\nrename_ctime = {}\nutime_now = {}\nutimensat = {}\n"
        # A helper of mount(8) would be called for a mount of this type.
        helpers = self.folder / "helpers"
        helpers.mkdir()
        (helpers / "mount").write_text(f'#!/bin/sh\nexec {shutil.which("mount")} -i "$@"\n')
        (helpers / "mount").chmod(0o755)
        env = self.env | {"PATH": f"{helpers}:{self.env['PATH']}"}
        # The suite leaves a file open for writing, which a mount cannot be changed to read-only
        # beside. So these cases have a run of their own.
        for remounts, patterns in [("false", []), ("true", ["erofs"])]:
            config = self.folder / f"pjdfstest-{remounts}.toml"
            settings = f"[settings]\nnaptime = 0.01\nallow_remount = {remounts}\n"
            config.write_text(f"[features]\n{features}{settings}[dummy_auth]\nentries = [{', '.join(users)}]\n")
            for share in ("plain", "locked"):
                command = [program, "-c", config, "-p", self.folder / share, "-s", self.folder / "uncached", *patterns]
                self.note_cases(share, self.run(command, env=env)[1], is_first=not patterns)

    def note_cases(self, share, text, is_first):
        words = {"ok": PASSED, "skipped": SKIPPED, "FAILED": FAILED}
        lines = text.splitlines()
        for number, line in enumerate(lines):
            case = re.fullmatch(r"(\S+::\S+) +(ok|skipped|FAILED)", line)
            if case:
                message = " ".join(line.strip() for line in lines[number + 1 : number + 4] if line.startswith(("\t", " ")))
                self.found[f"pjdfstest:{share}:{case[1]}"] = Case(words[case[2]], message[:200])
        if "Summary:" not in text or is_first and len(self.found) < 300:
            self.found[f"pjdfstest:{share}"] = Case(FAILED, text[-300:])

    def fsx(self, program):
        for maps in (10, 0):
            config = self.folder / f"fsx-{maps}.toml"
            config.write_text(FSX.format(maps=maps))
            for share in ("plain", "uncached"):
                for seed in (1, 2):
                    name = f"fsx:{share}:{'maps' if maps else 'no-maps'}:{seed}"
                    file = self.folder / share / name.replace(":", "-")
                    command = [program, "-f", config, "-N", self.operations, "-S", seed, "-P", self.folder, file]
                    code, text = self.run(command, seconds=3600)
                    self.found[name] = Case(PASSED if code == 0 and "A-OK" in text else FAILED, text[-300:])

    def stress(self):
        if not shutil.which("stress-ng"):
            print("stress-ng is not installed; its stressors are left out")
            return
        place = self.folder / "plain" / "stress"
        place.mkdir()
        place.chmod(0o777)
        for stressor in STRESSORS:
            command = ["stress-ng", "--temp-path", place, f"--{stressor}", 2, "--timeout", "5s", "--verify"]
            code, text = self.run(command + SIZES.get(stressor, []), seconds=30)
            left_out = code in STRESS_LEFT_OUT or "skipping stress" in text
            word = SKIPPED if left_out else PASSED if code == 0 else FAILED
            said = [line for line in text.splitlines() if re.search("fail|error|warn|skipp|ended after", line)]
            self.found[f"stress-ng:{stressor}"] = Case(word, " ".join(said)[:300])

    def judge(self):
        """Compares what was found with the list. Answers whether nothing is amiss."""
        rows = (HERE / "posix-suites.tsv").read_text().splitlines()
        listed = dict(row.split("\t", 1) for row in rows if row and row[0] != "#")
        ran = {name.split(":")[0] for name in self.found}
        bad = 0
        for name, case in self.found.items():
            if case.word != PASSED and name not in listed:
                bad += 1
                print(f"{case.word.upper()} {name}: {case.message}")
            elif case.word == PASSED and name in listed:
                bad += 1
                print(f"PASSED {name}, which is listed: {listed[name]}")
        for name in sorted(listed.keys() - self.found.keys()):
            if name.split(":")[0] in ran:
                bad += 1
                print(f"UNKNOWN {name} is listed, and no suite has it")
        for suite in sorted(ran):
            words = collections.Counter(case.word for name, case in self.found.items() if name.split(":")[0] == suite)
            print(f"{suite}: {words[PASSED]} passed, {words[FAILED]} failed, {words[SKIPPED]} did not run")
        return bad == 0 and {"pjdfstest", "fsx"} <= ran


def main():
    parser = argparse.ArgumentParser(usage=__doc__.splitlines()[2].strip())
    parser.add_argument("stele", type=Path)
    parser.add_argument("--operations", type=int, default=50_000)
    parser.add_argument("--keep-log", type=Path, default=Path(os.devnull))
    asked = parser.parse_args()
    if os.geteuid() != 0 or not Path("/dev/fuse").exists():
        sys.exit("mounting needs root and /dev/fuse")
    # Ends as with Ctrl-C: what was begun is taken away.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with open(asked.keep_log, "w") as log, tempfile.TemporaryDirectory(prefix="stele-posix-") as folder:
        # Other users go through it.
        os.chmod(folder, 0o755)
        suites = Suites(asked.stele.resolve(strict=True), Path(folder), log, asked.operations)
        try:
            programs = suites.programs()
            suites.start()
            suites.pjdfstest(programs["pjdfstest"])
            suites.fsx(programs["fsx"])
            suites.stress()
            is_good = suites.judge()
        except KeyboardInterrupt:
            sys.exit(130)
        finally:
            suites.stop()
    sys.exit(0 if is_good else 1)


main()
