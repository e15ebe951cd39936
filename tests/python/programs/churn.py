"""Code that comes and goes: functions that are made, run and dropped, of which each has a number.

Function N is in file /made/N.py; its lines begin at 10 times the rest of N by 1000, plus 10. It is
called by one of eight functions that stay: that of the rest of N by 8.
"""

import importlib
import os
import sys
import tempfile

TEXT = """
def made_%(n)06d(rounds):
    for _ in range(rounds):
        leaf_%(n)06d(rounds)


def leaf_%(n)06d(rounds):
    x = 1
    for i in range(50):
        x = x * 48271 %% 2147483647
    return x
"""


CALLERS = {}
for n in range(8):
    exec("def caller_%d(function, rounds):\n    function(rounds)\n" % n, CALLERS)


def call(n, function, rounds):
    CALLERS["caller_%d" % (n % 8)](function, rounds)


def text_of(n):
    return "\n" * (n % 1000 * 10 + 9) + TEXT % {"n": n}


def make(n):
    scope = {}
    text = text_of(n)
    exec(compile(text, "/made/%06d.py" % n, "exec"), scope)
    return scope["made_%06d" % n]


def reload(folder, n):
    """Writes a module again, and loads it again."""
    path = os.path.join(folder, "reloaded.py")
    with open(path, "w") as file:
        file.write(text_of(n))
    importlib.invalidate_caches()
    if "reloaded" in sys.modules:
        module = importlib.reload(sys.modules["reloaded"])
    else:
        module = importlib.import_module("reloaded")
    return getattr(module, "made_%06d" % n)


def turns(folder):
    kept = []
    for n in range(1, 1_000_000):
        call(n, make(n), 100)
        # Some live for 64 turns, in which others are made beside them.
        if n % 16 == 0:
            kept.append((n, reload(folder, n) if n % 64 == 0 else make(n)))
            call(*kept[0], 2000)
            del kept[:-4]


def main():
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        print("ready", flush=True)
        turns(folder)


if __name__ == "__main__":
    main()
