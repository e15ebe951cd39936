"""Threads that wait for each kind of lock, and at last for the interpreter's own.

It prints `ready` when all wait. After a line of input its main thread sleeps in C and keeps the
interpreter's lock; threads that were sleeping then want it.
"""

import ctypes
import queue
import sys
import threading
import time

LOCK, RLOCK, CONDITION = threading.Lock(), threading.RLock(), threading.Condition()
QUEUE, EVENT = queue.Queue(), threading.Event()
HELD = threading.Event()


def holds():
    with LOCK, RLOCK:
        HELD.set()
        time.sleep(1000)


def wants_lock():
    with LOCK:
        pass


def wants_rlock():
    with RLOCK:
        pass


def wants_condition():
    with CONDITION:
        CONDITION.wait()


def wants_queue():
    QUEUE.get()


def wants_event():
    EVENT.wait()


def wants_end():
    HOLDER.join()


def start(function):
    thread = threading.Thread(target=function, name=function.__name__, daemon=True)
    thread.start()
    return thread


def wants_gil():
    time.sleep(0.2)


HOLDER = start(holds)
HELD.wait()
for function in [wants_lock, wants_rlock, wants_condition, wants_queue, wants_event, wants_end]:
    start(function)
time.sleep(0.3)
print("ready", flush=True)
sys.stdin.readline()
for _ in range(2):
    start(wants_gil)
# Calls by PyDLL keep the lock. The program is told outside of Python when they are in it.
c = ctypes.PyDLL(None)
c.puts(b"keeps the lock")
c.fflush(None)
c.sleep(1000)
