"""Threads blocked in functions of Python that C called. See shapes.py."""

import ctypes
import functools
import gc
import json
import re
import sys
from concurrent.futures import ThreadPoolExecutor

from parked import shape


class Hooks:
    def __init__(self, park):
        self.__dict__["park"] = park

    def __getattr__(self, name):
        return self[name]

    def __getitem__(self, index):
        return self + index

    def __add__(self, other):
        return self == other

    def __eq__(self, other):
        return other in self

    def __contains__(self, item):
        return list(self)

    def __iter__(self):
        return self

    def __next__(self):
        return self()

    def __call__(self):
        return bool(self)

    def __bool__(self):
        return format(self)

    def __format__(self, how):
        return str(self)

    def __str__(self):
        return repr(self)

    def __repr__(self):
        return -self

    def __neg__(self):
        return len(self)

    def __len__(self):
        return hash(self)

    def __hash__(self):
        return self.__dict__["park"]()


@shape
def operators(park):
    return Hooks(park).anything


@shape
def callbacks(park):
    def compare(a, b):
        return functools.reduce(added, [a, b])

    def added(a, b):
        return list(map(mapped, [a]))

    def mapped(a):
        return max([a, 1], key=keyed)

    def keyed(a):
        return re.sub("b", replaced, "abc")

    def replaced(match):
        return list(filter(lambda _: park(), "x"))

    return sorted([3, 1, 2], key=functools.cmp_to_key(compare))


@shape
def alternating(park):
    # Each level is another evaluation by C.
    def level(n):
        return park() if n == 0 else list(map(level, [n - 1]))

    level(100)


@shape
def json_hook(park):
    return json.loads('{"a": [1, {"b": 2}]}', object_hook=lambda found: park())


@shape
def json_default(park):
    class Encoder(json.JSONEncoder):
        def default(self, value):
            park()

    return Encoder().encode({"a": [object()]})


@shape
def ctypes_callback(park):
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)

    def compare(a, b):
        park()
        return 0

    numbers = (ctypes.c_int * 3)(3, 1, 2)
    ctypes.CDLL(None).qsort(numbers, 3, 4, kind(compare))


@shape
def finaliser(park):
    class Finalised:
        def __del__(self):
            park()

    cycle = [Finalised()]
    cycle.append(cycle)
    del cycle
    gc.collect()


@shape
def class_creation(park):
    class Descriptor:
        def __set_name__(self, owner, name):
            owner.register()

    class Parent:
        @classmethod
        def register(cls):
            park()

    class Child(Parent):
        field = Descriptor()


@shape
def profile_hook(park):
    def hook(frame, event, argument):
        sys.setprofile(None)
        park()

    def watched():
        pass

    sys.setprofile(hook)
    watched()


@shape
def trace_hook(park):
    def hook(frame, event, argument):
        if event == "line":
            sys.settrace(None)
            park()
        return hook

    def watched():
        x = 1
        return x

    sys.settrace(hook)
    watched()


@shape
def pool(park):
    with ThreadPoolExecutor(1) as executor:
        executor.submit(park)
        park()
