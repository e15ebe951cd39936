"""Threads blocked in stacks of many shapes, which Python itself prints (see parked.py)."""

import asyncio
import contextlib
import functools
import importlib
import sys
from itertools import chain

import parked
import shapes_called_by_c  # noqa: F401: these are shapes too
from parked import SHAPES, shape

# Functions, methods, closures.


@shape
def nested(park):
    def outer():
        def inner():
            # Further down than its definition.

            park()

        inner()

    outer()


class Base:
    def work(self, park):
        self.more(park)

    def more(self, park):
        raise NotImplementedError

    @classmethod
    def made(cls, park):
        return cls().work(park)

    @staticmethod
    def plain(park):
        Base.Inner().work(park)

    class Inner:
        def work(self, park):
            park()


class Derived(Base):
    def work(self, park):
        super().work(park)

    def more(self, park):
        self.park = park
        return self.waiting

    @property
    def waiting(self):
        return self.park()


@shape
def methods(park):
    Derived().work(park)


@shape
def class_method(park):
    Derived.made(park)


@shape
def static_method(park):
    Derived.plain(park)


@shape
def closure(park):
    def maker(n):
        def closed():
            return park() if n == 0 else maker(n - 1)()

        return closed

    maker(5)()


@shape
def lambdas(park):
    (lambda: (lambda x: x())(lambda: park()))()


@shape
def arguments(park):
    def variadic(*args, **kwargs):
        return args[0](**kwargs)

    def keyword_only(*, function, default=None):
        return function()

    variadic(keyword_only, function=park)


# Comprehensions and generators.


@shape
def comprehensions(park):
    return [
        {key: {park() for _ in range(1)} for key in range(1)}
        for row in range(2)
        if row or True
    ]


@shape
def nested_comprehension_in_lambda(park):
    return [f() for f in [lambda: [park() for _ in "a"]]]


@shape
def generator_expressions(park):
    return sum(len(str(x)) for x in (park() for _ in (i for i in range(3))))


@shape
def generator_chain(park):
    def numbers():
        yield 1
        yield 2
        park()
        yield 3

    def doubled(source):
        for n in source:
            yield n * 2

    def shifted(source):
        yield from (n + 1 for n in source)

    return list(chain(shifted(doubled(numbers()))))


@shape
def yield_from(park):
    def level(n):
        if n == 0:
            yield 0
            park()
        else:
            yield from level(n - 1)

    for _ in level(40):
        pass


@shape
def generator_throw(park):
    def catches():
        try:
            yield 1
        except ValueError:
            park()
        yield 2

    generator = catches()
    next(generator)
    generator.throw(ValueError("thrown in"))


# Coroutines.


class Once:
    def __await__(self):
        yield "once"


@shape
def coroutine(park):
    async def innermost():
        await Once()
        park()

    async def middle():
        return await innermost()

    async def outermost():
        await middle()

    running = outermost()
    running.send(None)
    running.send(None)


@shape
def asynchronous_generator(park):
    async def source():
        for n in range(3):
            await Once()
            yield n
            park()

    class Manager:
        async def __aenter__(self):
            async for _ in source():
                pass

        async def __aexit__(self, *_):
            pass

    async def reader():
        async with Manager():
            pass

    running = reader()
    for _ in range(3):
        running.send(None)


@shape
def event_loop(park):
    async def task():
        await asyncio.sleep(0)
        park()

    async def main():
        await asyncio.gather(asyncio.sleep(3600), task())

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())


# Decorators.


def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


class Decorator:
    def __init__(self, function):
        self.function = function

    def __call__(self, *args):
        return self.function(*args)


@shape
@logged
def decorated(park):
    @Decorator
    @logged
    @logged
    def inner(function):
        functools.partial(functools.partial(function))()

    @functools.lru_cache(maxsize=None)
    def cached(function):
        return inner(function)

    @functools.singledispatch
    def dispatched(function):
        return cached(function)

    dispatched(park)


# Code made at run time.


@shape
def executed(park):
    text = "def made():\n    return eval('park()', scope)\n\n\nmade()\n"
    scope = {"park": park}
    scope["scope"] = scope
    exec(compile(text, "/made/at/run time.py", "exec"), scope)


@shape
def executed_without_a_file(park):
    exec("def f():\n    exec('g()', {'g': p})\nf()", {"p": park})


@shape
def far_lines(park):
    # Steps of lines and of code that need the long forms of each version's table.
    wide = "    x = [" + ", ".join("str(%d)" % n for n in range(400)) + "]"
    lines = ["def far(park):", *[""] * 300, wide, *[""] * 70_000, "    y = 1", wide]
    lines += [*[""] * 200, "    late(", *["        x,"] * 150, "        park,", "    )", ""]
    lines += ["def late(*args):", *[""] * 129, "    args[-1]()", "", "far(park)"]
    exec(compile("\n".join(lines), "/far/away.py", "exec"), {"park": park})


@shape
def one_line_of_much_code(park):
    # A frame deep in code that is all of one line.
    text = "(" + ", ".join(["str(1)"] * 700) + ", park(), " + ", ".join(["str(2)"] * 300) + ")"
    eval(compile(text, "/wide.py", "eval"), {"park": park})


# Recursion.


def recursive(n, park):
    if n == 0:
        park()
    else:
        recursive(n - 1, park)


@shape
def recursion_300(park):
    recursive(300, park)


@shape
def recursion_3000(park):
    recursive(3000, park)


@shape
def mutual_recursion(park):
    def even(n):
        if n == 0:
            return park()
        return odd(n - 1)

    def odd(n):
        return even(n - 1)

    even(100)


# Names.


@shape
def unicode_names(park):
    def naïve():
        def δοκιμή():
            def 𒀀𒀁():
                名前 = "def f():\n    park()\nf()"
                exec(compile(名前, "/tmp/ñandú/файл/𒀀.py", "exec"), {"park": park})

            𒀀𒀁()

        δοκιμή()

    naïve()


# Statements over several lines.


@contextlib.contextmanager
def managed(park):
    try:
        yield
    finally:
        park()


@shape
def context_manager(park):
    with contextlib.ExitStack() as stack:
        stack.enter_context(
            managed(park),
        )
        del stack


@shape
def exceptions(park):
    def handles():
        try:
            try:
                raise KeyError("one")
            finally:
                for _ in range(1):
                    pass
        except KeyError as error:
            try:
                raise ValueError("two") from error
            except (TypeError, ValueError):
                finally_waits()

    def finally_waits():
        try:
            return 1
        finally:
            if park:
                park()

    handles()


@shape
def lines_of_a_call(park):
    def called(
        a,
        b=None,
    ):
        return (
            park
        )(
        )

    x = called(
        str(
            1
        ),

        b=called,
    )
    return x


@shape
def lines_of_an_expression(park):
    return (
        1
        + 2
        + len(
            [
                park()
            ]
        )
    )


@shape
def imports(park):
    importlib.import_module("shapes_package")


def main():
    sys.setrecursionlimit(20_000)
    # These have no Python frames of their own beside the thread's first ones.
    for number, function in enumerate(SHAPES):
        name = "import" if function is imports else "shape " + function.__name__
        parked.start(number, name, function, stack=64 << 20)
    # The pool's worker and the main thread.
    parked.tell_and_park(len(SHAPES) + 2)


if __name__ == "__main__":
    main()
