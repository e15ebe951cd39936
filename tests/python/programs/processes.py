"""Workers of `multiprocessing`, started by this method: fork, spawn or forkserver."""

import multiprocessing
import sys


def worker(number):
    while True:
        [leaf_one, leaf_two, leaf_three][number]()


def leaf_one():
    return sum(i * i for i in range(1000))


def leaf_two():
    x = 1
    for _ in range(1000):
        x = x * 48271 % 2147483647
    return x


def leaf_three():
    return sorted(range(2000), key=lambda n: -n)


def main():
    context = multiprocessing.get_context(sys.argv[1])
    workers = [context.Process(target=worker, args=(n,), daemon=True) for n in range(3)]
    print("ready", flush=True)
    sys.stdin.readline()
    for process in workers:
        process.start()
    sys.stdin.readline()


if __name__ == "__main__":
    main()
