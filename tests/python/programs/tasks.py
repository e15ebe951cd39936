"""Tasks of event loops that wait for each other in all ways, and one that runs.

After a line of input it prints, as JSON, what asyncio says of its tasks: of each its name, its
coroutines with their lines, the innermost first, and the tasks that await it. Then its main thread
goes on to wait in C, with a named task that executes: nothing changes any more.
"""

import asyncio
import json
import sys
import threading
import time
import types


async def sleeps():
    await asyncio.sleep(1000)


async def awaits_task(task):
    await task


async def awaits_many(*tasks):
    await asyncio.gather(*tasks)


async def has_group():
    async with asyncio.TaskGroup() as group:
        group.create_task(sleeps(), name="first of group")
        group.create_task(sleeps())


async def generates():
    await asyncio.sleep(1000)
    yield 1


async def iterates():
    async for _ in generates():
        pass


class Awaitable:
    def __await__(self):
        yield from asyncio.sleep(1000).__await__()


@types.coroutine
def generator():
    yield from asyncio.get_running_loop().create_future()


async def awaits_objects():
    await Awaitable()


async def awaits_generator():
    await generator()


async def not_begun():
    await sleeps()


async def deep(depth):
    if depth:
        await deep(depth - 1)
    else:
        await asyncio.Event().wait()


class NamedTask(asyncio.Task):
    """Its objects are of another type."""


async def other_loop(begun):
    asyncio.create_task(sleeps(), name="in another thread")
    asyncio.create_task(awaits_objects(), name="größe Ω 𝔘")
    await asyncio.sleep(0.1)
    begun.set()
    await asyncio.Event().wait()


def coroutines(task):
    """The coroutines of a task as Python itself follows them, the innermost first."""
    found, one = [], task.get_coro()
    while one is not None:
        frame = next((getattr(one, at) for at in ("cr_frame", "gi_frame", "ag_frame") if hasattr(one, at)), None)
        if frame is not None:
            found.insert(0, [frame.f_code.co_qualname, frame.f_lineno])
        awaits = [getattr(one, at) for at in ("cr_await", "gi_yieldfrom", "ag_await") if hasattr(one, at)]
        if not awaits:
            # What it is has no attribute that leads on.
            import gc
            behind = [of for of in gc.get_referents(one) if type(of).__name__ in ("coroutine", "async_generator")]
            awaits = behind[:1]
        one = awaits[0] if awaits else None
    return found


def awaited_by(task):
    """The tasks that await a task, as asyncio's own graph of calls has them."""
    names, level = set(), list(task._asyncio_awaited_by or ())
    while level:
        one = level.pop()
        if isinstance(one, asyncio.Task):
            names.add(one.get_name())
        else:
            level.extend(one._asyncio_awaited_by or ())
    return sorted(names)


def truth(loops):
    return json.dumps([
        [task.get_name(), coroutines(task), awaited_by(task)]
        for loop in loops
        for task in asyncio.all_tasks(loop)
    ])


def tell(loops):
    sys.stdin.readline()
    print(truth(loops), flush=True)
    time.sleep(1000)


async def main():
    loop = asyncio.get_running_loop()
    loops, begun = [loop], threading.Event()

    def run():
        with asyncio.Runner() as runner:
            loops.append(runner.get_loop())
            runner.run(other_loop(begun))

    threading.Thread(target=run, daemon=True).start()
    begun.wait()
    sleeping = [asyncio.create_task(sleeps(), name=f"sleeps {nth}") for nth in range(3)]
    kept = [
        asyncio.create_task(awaits_task(sleeping[0]), name="awaits one"),
        asyncio.create_task(awaits_many(*sleeping[1:]), name="awaits many"),
        asyncio.create_task(has_group(), name="has a group"),
        asyncio.create_task(iterates()),
        asyncio.create_task(awaits_objects()),
        asyncio.create_task(awaits_generator()),
        asyncio.create_task(deep(30), name="deep"),
        NamedTask(sleeps(), loop=loop, name="of its own type"),
    ]
    kept.extend(asyncio.create_task(sleeps()) for _ in range(20))
    await asyncio.sleep(0.1)
    kept.append(asyncio.create_task(not_begun(), name="not begun"))
    asyncio.current_task().set_name("reads orders")
    print("ready", flush=True)
    tell(loops)


asyncio.run(main())
