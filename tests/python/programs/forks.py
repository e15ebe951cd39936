"""A process and the child that it has forked; both print their stacks, the child's pid before its.
"""

import os
import sys

import parked


def parent_side(pid, reader):
    with open(reader) as pipe:
        child = pipe.readline()

    def tell(count):
        found = parked.stacks(count)
        print("ready\n%s%d\n%s" % (found + "\n", pid, child), end="", flush=True)

    parked.tell_and_park(2, tell)


def child_side(writer):
    def tell(count):
        os.write(writer, (parked.stacks(count) + "\n").encode())

    # Only the thread that forked is in the child.
    parked.PARKED.clear()
    parked.start(1, "of the child", lambda park: park())
    parked.tell_and_park(2, tell)


def main():
    reader, writer = os.pipe()
    parked.start(2, "of the parent", lambda park: park())
    while len(parked.PARKED) < 1:
        pass
    pid = os.fork()
    if pid == 0:
        child_side(writer)
    parent_side(pid, reader)


if __name__ == "__main__":
    sys.exit(main())
