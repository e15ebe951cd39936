"""Waits by calls that a signal, or a stop, would end with EINTR: Python does not repeat those that
ctypes makes. One thread waits for long, one again and again, and one works.

For each line on standard input it prints: calls, calls that ended with EINTR, rounds of work.
"""

import ctypes
import errno
import os
import select
import sys
import threading

libc = ctypes.CDLL(None, use_errno=True)
counts = {"calls": 0, "interrupted": 0, "rounds": 0}


def waits(milliseconds):
    epoll = select.epoll()
    events = ctypes.create_string_buffer(12)
    reader, writer = os.pipe()
    epoll.register(reader, select.EPOLLIN)
    while True:
        found = libc.epoll_wait(epoll.fileno(), events, 1, milliseconds)
        counts["calls"] += 1
        if found < 0:
            assert ctypes.get_errno() == errno.EINTR
            counts["interrupted"] += 1


def works():
    x = 1
    while True:
        for _ in range(1000):
            x = x * 48271 % 2147483647
        counts["rounds"] += 1


def main():
    for function, arguments in [(waits, (-1,)), (waits, (3,)), (works, ())]:
        threading.Thread(target=function, args=arguments, daemon=True).start()
    print("ready", flush=True)
    for _ in sys.stdin:
        print("%(calls)d %(interrupted)d %(rounds)d" % counts, flush=True)


if __name__ == "__main__":
    main()
