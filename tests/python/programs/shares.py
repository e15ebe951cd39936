"""Work whose parts it measures itself, by the CPU clock of the thread that does it.

`shares.py KIND`: pure, library, native, pool or asyncio. For each line on standard input it prints
the CPU time of each part so far, ns.
"""

import asyncio
import hashlib
import itertools
import json
import random
import re
import sys
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

SPENT = {}
LOCK = threading.Lock()


def some(source, n):
    """Lengths that follow no beat: a sampler's must not meet it."""
    return n * (1 + source.randrange(4)) + source.randrange(n)


def red(n):
    x = n
    for i in range(n):
        x = x * 6364136223846793005 + (x >> 17) & 0xFFFFFFFFFFFF
    return x


def green(n):
    x = 0
    while n:
        x ^= n << 3
        n -= 1
    return x


def blue(n):
    return sum(i * i for i in range(n))


RECORDS = [{"id": i, "name": "name %d" % i, "tags": ["a", "b", str(i)]} for i in range(200)]
TEXT = json.dumps(RECORDS)
PATTERN = re.compile(r"(\w+) (\d+)(?=\")")
NUMBERS = [(i * 7919) % 10007 for i in range(5000)]
DATA = bytes(range(256)) * 4096


def encodes(n):
    for _ in range(n):
        json.loads(json.dumps(RECORDS))


def matches(n):
    for _ in range(n):
        PATTERN.findall(TEXT)


def sorts(n):
    for _ in range(n):
        sorted(NUMBERS, key=lambda x: -x)


def hashes(n):
    for _ in range(n):
        hashlib.sha256(DATA).digest()


def compresses(n):
    for _ in range(n):
        zlib.compress(DATA, 1)


def copies(n):
    # Holds the global lock.
    for _ in range(n):
        DATA.count(b"\x01\x01")


# By kind, the parts and a length for each: about six, three and one of ten parts of the time.
PARTS = {
    "pure": [(red, 6000), (green, 4000), (blue, 1200)],
    "library": [(encodes, 3), (matches, 4), (sorts, 1)],
    "native": [(hashes, 2), (compresses, 1), (copies, 2)],
    "pool": [(red, 6000), (hashes, 1), (encodes, 1)],
    "asyncio": [(red, 6000), (green, 4000), (compresses, 1)],
}


def timed(function, n):
    begin = time.thread_time_ns()
    function(n)
    spent = time.thread_time_ns() - begin
    with LOCK:
        SPENT[function.__name__] += spent


def turns(kind, seed):
    source = random.Random(seed)
    for function, n in PARTS[kind]:
        timed(function, some(source, n))
    return source.random()


async def task(kind, seed):
    while True:
        seed = turns(kind, seed)
        await asyncio.sleep(0)


async def tasks(kind):
    await asyncio.gather(*[task(kind, seed) for seed in range(5)])


def work(kind):
    if kind == "asyncio":
        asyncio.new_event_loop().run_until_complete(tasks(kind))
    seed = 7
    pool = ThreadPoolExecutor(4)
    for turn in itertools.count():
        if kind == "pool":
            list(pool.map(turns, [kind] * 4, range(turn * 4, turn * 4 + 4)))
        else:
            seed = turns(kind, seed)


def main():
    kind = sys.argv[1]
    SPENT.update((function.__name__, 0) for function, _ in PARTS[kind])
    threading.Thread(target=work, args=(kind,), daemon=True).start()
    print("ready", flush=True)
    for _ in sys.stdin:
        with LOCK:
            print(json.dumps(SPENT), flush=True)


if __name__ == "__main__":
    main()
