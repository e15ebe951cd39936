"""Threads that wait for ever, and what Python itself says of their stacks once all of them do.

Runs on CPython 3.8 to 3.15.
"""

import json
import os
import queue
import select
import sys
import threading
import time

# Nothing is ever written into it.
READ_END, WRITE_END = os.pipe()

# Functions that threads park in, each in another shape of stack.
SHAPES = []
# By native thread id: the kind of stack, and the thread.
PARKED = {}
# What keeps objects alive whose end would wake a thread.
KEPT = []


def shape(function):
    SHAPES.append(function)
    return function


def in_read():
    os.read(READ_END, 1)


def in_lock():
    lock = threading.Lock()
    lock.acquire()
    KEPT.append(lock)
    lock.acquire()


def in_sleep():
    time.sleep(86400)


def in_select():
    select.select([READ_END], [], [])


def in_epoll():
    epoll = select.epoll()
    KEPT.append(epoll)
    epoll.poll()


def in_event():
    event = threading.Event()
    KEPT.append(event)
    event.wait()


def in_queue():
    empty = queue.Queue()
    KEPT.append(empty)
    empty.get()


WAITS = [in_read, in_lock, in_sleep, in_select, in_epoll, in_event, in_queue]


def park():
    """Waits for ever, in another way in each thread."""
    here = threading.current_thread()
    PARKED[threading.get_native_id()] = here
    WAITS[getattr(here, "number", 0) % len(WAITS)]()


def start(number, name, function, stack=16 << 20):
    """Starts a thread that parks in `function`."""
    threading.stack_size(stack)
    thread = threading.Thread(target=function, args=(park,), name=name, daemon=True)
    thread.number = number
    thread.start()
    return thread


def frames_of(frame):
    """Returns name, file and line of each frame, innermost first."""
    found = []
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        found.append([name, code.co_filename, frame.f_lineno])
        frame = frame.f_back
    return found


def run_counters():
    """Returns by thread the counters that change when it runs."""
    found = {}
    for tid in PARKED:
        with open("/proc/self/task/%d/status" % tid) as status:
            lines = status.read().splitlines()
        found[tid] = [line for line in lines if line.startswith(("State", "voluntary", "nonvol"))]
    return found


def until_all_wait(count):
    """Returns when `count` threads have parked, sleep, and have not run for 200 ms.

    One that waits for Python's global lock runs every 5 ms.
    """
    before = None
    while True:
        time.sleep(0.2)
        if len(PARKED) < count:
            continue
        now = run_counters()
        if now == before and all("S (" in lines[0] for lines in now.values()):
            return
        before = now


def stacks(count):
    """Waits for `count` parked threads; returns what Python says of their stacks."""
    until_all_wait(count)
    by_ident = sys._current_frames()
    threads = [
        {"tid": tid, "name": thread.name, "frames": frames_of(by_ident[thread.ident])}
        for tid, thread in PARKED.items()
    ]
    version = "%d.%d" % sys.version_info[:2]
    return json.dumps({"version": version, "threads": threads})


def tell(count):
    """Prints `ready`, then the stacks of all parked threads in one line."""
    found = stacks(count)
    print("ready")
    print(found, flush=True)


def tell_and_park(count, tell=tell):
    """Tells from a thread of its own, so that the main thread can be one of those that park."""
    threading.stack_size(0)
    threading.Thread(target=lambda: (tell(count), in_read()), daemon=True).start()
    park()
