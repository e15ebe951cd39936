"""Threads that wait inside subinterpreters. Prints the stacks, those inside before those that
called them."""

import json
import os
import sys
import threading

import parked

try:
    import _interpreters as interpreters

    run = interpreters.exec
except ImportError:
    import _xxsubinterpreters as interpreters

    run = interpreters.run_string

SCRIPT = """
import os


def inside():
    os.write(%d, inside.__code__.co_filename.encode())
    os.read(%d, 1)


inside()
"""
INSIDE = [["inside", 7], ["<module>", 10]]

THREADS = []
BEGUN, BEGINS = os.pipe()


def enters(interpreter):
    script = SCRIPT % (BEGINS, parked.READ_END)
    note = lambda: THREADS.append((threading.get_native_id(), outer(sys._getframe(1))))
    note(), run(interpreter, script)


def outer(frame):
    return parked.frames_of(frame)


def main():
    created = [interpreters.create() for _ in range(3)]
    for interpreter in created:
        thread = threading.Thread(target=enters, args=(interpreter,), daemon=True)
        thread.start()
        file = os.read(BEGUN, 100).decode()
    parked.PARKED.update((tid, None) for tid, _ in THREADS)
    parked.until_all_wait(3)
    inside = [[name, file, line] for name, line in INSIDE]
    threads = [
        {"tid": tid, "name": "inside %d" % number, "frames": inside + frames}
        for number, (tid, frames) in enumerate(THREADS)
    ]
    print("ready")
    print(json.dumps({"threads": threads}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
