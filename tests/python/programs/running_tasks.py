"""Tasks that run, one after the other: `long` ones that exist all the time, or `short` ones, each of
which is at the address of one before.

Each has the name of the function in which it spends its time, or none of the program's.
"""

import asyncio
import sys
import time


def spend(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def red():
    spend(SECONDS)


def green():
    spend(SECONDS)


def blue():
    spend(SECONDS)


def nameless():
    spend(SECONDS)


async def runs_long(function):
    while True:
        function()
        await asyncio.sleep(0)


async def runs_short(function):
    function()


def begin(coroutine, function):
    name = None if function is nameless else function.__name__
    return asyncio.create_task(coroutine(function), name=name)


async def main():
    asyncio.current_task().set_name("Task-77")
    functions = [red, green, blue, nameless]
    print("ready", flush=True)
    if sys.argv[1] == "long":
        await asyncio.wait([begin(runs_long, function) for function in functions])
    while True:
        for function in functions:
            await begin(runs_short, function)


SECONDS = 0.005 if sys.argv[1] == "long" else 0.0004
asyncio.run(main())
