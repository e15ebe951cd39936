"""Python code that counts what it does: a thread of tiny functions, and threads that wait.

For each line on standard input it prints operations, its CPU time and the clock, ns. Arguments:
tight (functions of 50 ns), real (json, re, sort, generators) or deep (tight in two threads, below
400 frames), and the number of threads that wait.
"""

import json
import re
import sys
import threading
import time

DONE = [0]
RECORDS = [{"id": i, "name": "name %d" % i, "tags": ["a", str(i)]} for i in range(20)]
PATTERN = re.compile(r"(\w+) (\d+)")


def step(n):
    return n if n < 2 else step(n - 1) + 1


def tight():
    while True:
        for _ in range(100):
            step(13)
        DONE[0] += 100


def evens(numbers):
    for number in numbers:
        if number % 2 == 0:
            yield number


def real():
    while True:
        text = json.dumps(RECORDS)
        found = PATTERN.findall(text)
        sorted(found, key=lambda pair: -int(pair[1]))
        sum(evens(record["id"] for record in json.loads(text)))
        DONE[0] += 1


def waits(depth):
    if depth:
        waits(depth - 1)
    else:
        threading.Event().wait()


def deep(depth=400):
    deep(depth - 1) if depth else tight()


def main():
    kind, waiting = sys.argv[1], int(sys.argv[2])
    depth = 400 if kind == "deep" else 30
    for _ in range(waiting):
        threading.Thread(target=waits, args=(depth,), daemon=True).start()
    for _ in range(2 if kind == "deep" else 1):
        work = {"tight": tight, "real": real, "deep": deep}[kind]
        threading.Thread(target=work, daemon=True).start()
    print("ready", flush=True)
    for _ in sys.stdin:
        print(DONE[0], time.process_time_ns(), time.monotonic_ns(), flush=True)


if __name__ == "__main__":
    main()
