"""Greenlets that switch all the time. Functions of `a` and of `b` never call each other."""

import sys

sys.path.insert(0, sys.argv[1])

from greenlet import greenlet  # noqa: E402


def a_start():
    while True:
        a_one(6)


def a_one(n):
    return a_two(n - 1) if n else b.switch()


def a_two(n):
    return a_one(n - 1) if n else b.switch()


def b_start():
    while True:
        b_one(4)


def b_one(n):
    x = 1
    for _ in range(20):
        x = x * 48271 % 2147483647
    return b_one(n - 1) if n else a.switch()


def main():
    print("ready", flush=True)
    a.switch()


a = greenlet(a_start)
b = greenlet(b_start)

if __name__ == "__main__":
    main()
