"""A process that waits for a lock which another client holds, and the signals that end its wait.

Argument: the file. Each line of input is an order, and each answer is a line.
"""

import fcntl
import os
import signal
import sys
import threading

path = sys.argv[1]


class Alarm(Exception):
    pass


def ring(*_):
    raise Alarm


def wait_for_the_lock(rings):
    """Waits for the lock. Where it `rings`, an alarm is to end that."""
    file = os.open(path, os.O_RDWR)
    if rings:
        signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX)
    except Alarm:
        return "ended"
    except OSError as error:
        return str(error)
    finally:
        os.close(file)
    return "locked"


def killed():
    """A process that waits is killed once it does."""
    began, begins = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(begins, b"!")
        wait_for_the_lock(False)
        os._exit(1)
    os.read(began, 1)
    while state_of(child) == "R":
        os.sched_yield()
    os.kill(child, signal.SIGKILL)
    return "ended" if os.WIFSIGNALED(os.waitpid(child, 0)[1]) else "not ended"


def state_of(process):
    with open(f"/proc/{process}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


for line in sys.stdin:
    order = line.strip()
    if order == "kill":
        answer = killed()
    elif order == "alarm among threads":
        threading.Thread(target=threading.Event().wait, daemon=True).start()
        answer = wait_for_the_lock(True)
    else:
        answer = wait_for_the_lock(order == "alarm")
    print(answer, flush=True)
