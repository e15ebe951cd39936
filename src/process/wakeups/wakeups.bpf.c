// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//
// The program that counts who wakes the threads of watched processes; assets/build-bpf compiles it into assets/wakeups.bpf.o.
//
// `count` is called for each wakeup of a sleeping thread of the host, on the core and in the context of the one that wakes it. It
// reads nothing of the processes' memory. Wakeups of other processes cost a look-up of their number.
//
// What it shares with the other programs is in kernel.bpf.h.

// `id_here` is of no use in a wakeup: the present thread is not the reader.
#pragma clang diagnostic ignored "-Wunused-function"
#include "../kernel.bpf.h"

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static u64 (*bpf_get_current_task)(void) = (void *)35;
static struct pt_regs *(*bpf_task_pt_regs)(void *task) = (void *)175;

struct task_struct {
    int pid, tgid;
    u32 flags;
    struct task_struct *group_leader;
    char comm[16];
    struct pid *thread_pid;
    void *stack;
} RELOCATED;
struct pt_regs {
    u64 orig_ax;
} RELOCATED;
struct ns_common {
    u32 inum;
} RELOCATED;
struct pid_namespace {
    struct ns_common ns;
} RELOCATED;

#define PF_IO_WORKER 0x00000010
#define PF_KTHREAD 0x00200000
#define BPF_NOEXIST 1

// Size of a thread's stack in the kernel (arch/x86/include/asm/page_64_types.h).
#define STACK (16 << 10)

// program.rs repeats the definitions that follow.

// Maximum pairs; wakeups by others are counted together.
#define PAIRS 8192
// Who wakes, where it is no call of a thread.
#define INTERRUPT -1
#define KERNEL_THREAD -2
struct pair {
    // Process and thread that wake. 0 for an interrupt, and for a thread that has no number here.
    u32 waker, waker_thread;
    u32 woken, woken_thread;
    // Number of the waker's system call, or one of the above.
    int call;
    u32 unused;
};
struct waker {
    u64 count;
    char thread[16], process[16];
};
struct totals {
    // Of all threads of the host, of watched processes, and of these without a place in `pairs`.
    u64 seen, counted, lost;
};

#define NUMBER(name, number) int(*name)[number]
#define TYPE(name, type) type *name
#define MAP_HASH 1
#define MAP_ARRAY 2
#define MAP_PERCPU_ARRAY 6

struct {
    NUMBER(type, MAP_HASH);
    NUMBER(max_entries, PAIRS);
    TYPE(key, struct pair);
    TYPE(value, struct waker);
} pairs SECTION(".maps");
// The watched processes.
struct {
    NUMBER(type, MAP_HASH);
    NUMBER(max_entries, 1024);
    TYPE(key, u32);
    TYPE(value, u32);
} targets SECTION(".maps");
struct {
    NUMBER(type, MAP_PERCPU_ARRAY);
    NUMBER(max_entries, 1);
    TYPE(key, u32);
    TYPE(value, struct totals);
} totals SECTION(".maps");
// The pid namespace of user space; 0: the initial one.
struct {
    NUMBER(type, MAP_ARRAY);
    NUMBER(max_entries, 1);
    TYPE(key, u32);
    TYPE(value, u32);
} namespaces SECTION(".maps");

// Deepest namespace searched, below the initial one; the kernel allows 32.
#define DEEPEST 8

// Returns the thread's id in the namespace, or 0.
static __attribute__((noinline)) u32 id_in(void *thread, u32 namespace)
{
    struct pid *pid = 0;
    u64 size = __builtin_preserve_type_info(*(struct upid *)0, 1);
    const void *numbers;
    u32 level = 0;

    bpf_probe_read_kernel(&pid, sizeof(pid), &((struct task_struct *)thread)->thread_pid);
    if (!pid)
        return 0;
    bpf_probe_read_kernel(&level, sizeof(level), &pid->level);
    numbers = (const void *)__builtin_preserve_access_index(&pid->numbers[0]);
    for (u32 at = 1; at <= DEEPEST; at++) {
        struct upid id = {};
        u32 inode = 0;

        if (at > level)
            return 0;
        if (bpf_probe_read_kernel(&id, sizeof(id), numbers + at * size) || !id.ns)
            return 0;
        bpf_probe_read_kernel(&inode, sizeof(inode), &id.ns->ns.inum);
        if (inode == namespace)
            return id.nr;
    }
    return 0;
}

// Returns the address of our own stack, counted from that of the present thread's description: their difference is a number, which
// an address is not. A function of its own, with little on its stack: since Linux 6.13 others get a stack elsewhere.
static __attribute__((noinline)) u64 own_stack(void *thread)
{
    u64 from_thread;

    asm volatile("%0 = r10\n%0 -= %1" : "=&r"(from_thread) : "r"(thread));
    return from_thread;
}

// Returns whether a call makes the network deliver: the kernel does that in a softirq, in the course of the call. In other calls an
// interrupt is a device's or a timer's, that came just then.
static __attribute__((always_inline)) int delivers(int call)
{
    switch (call) {
    case 0: // read, recvfrom, recvmsg, readv: room for the one that sends
    case 45:
    case 47:
    case 19:
    case 1: // write, writev, sendto, sendmsg, sendmmsg, sendfile, splice
    case 20:
    case 44:
    case 46:
    case 307:
    case 40:
    case 275:
    case 3: // close, connect, shutdown, exit, exit_group, io_uring_enter
    case 42:
    case 48:
    case 60:
    case 231:
    case 426:
        return 1;
    }
    return 0;
}

// Returns whether a call waits for what the network may bring: not for a lock, a time or a child.
static __attribute__((always_inline)) int receives(int call)
{
    switch (call) {
    case 35: // nanosleep, clock_nanosleep
    case 230:
    case 202: // futex, futex_waitv, futex_wait
    case 449:
    case 455:
    case 61: // wait4, waitid
    case 247:
        return 0;
    }
    return call >= 0;
}

SECTION("tp_btf/sched_waking")
int count(u64 *context)
{
    struct task_struct *woken = (void *)context[0], *waker = bpf_get_current_task_btf();
    struct pair pair = {};
    struct waker *known, first = {};
    struct totals *total;
    struct pt_regs *registers;
    u32 zero = 0, *namespace;
    int call, is_own;

    total = bpf_map_lookup_elem(&totals, &zero);
    namespace = bpf_map_lookup_elem(&namespaces, &zero);
    if (!total || !namespace)
        return 0;
    total->seen++;
    pair.woken = *namespace ? id_in(woken->group_leader, *namespace) : woken->tgid;
    // A thread that is about to sleep may end that itself.
    if (!bpf_map_lookup_elem(&targets, &pair.woken) || waker == woken)
        return 0;
    pair.woken_thread = *namespace ? id_in(woken, *namespace) : woken->pid;

    // Interrupts have a stack of their own, unless they came while the thread was in user space. Then its registers tell of no call.
    is_own = own_stack(waker) + bpf_get_current_task() - (u64)waker->stack < STACK;
    pair.call = INTERRUPT;
    if (waker->flags & (PF_KTHREAD | PF_IO_WORKER)) {
        // In the idle thread, 0, only interrupts wake.
        if (is_own && waker->pid)
            pair.call = KERNEL_THREAD;
    } else {
        registers = bpf_task_pt_regs(waker);
        call = registers->orig_ax;
        registers = bpf_task_pt_regs(woken);
        if (call >= 0 && (is_own || (delivers(call) && receives(registers->orig_ax))))
            pair.call = call;
    }
    if (pair.call != INTERRUPT) {
        pair.waker = *namespace ? id_in(waker->group_leader, *namespace) : waker->tgid;
        pair.waker_thread = *namespace ? id_in(waker, *namespace) : waker->pid;
    }

    total->counted++;
    known = bpf_map_lookup_elem(&pairs, &pair);
    if (known) {
        __sync_fetch_and_add(&known->count, 1);
        return 0;
    }
    first.count = 1;
    if (pair.call != INTERRUPT) {
        bpf_probe_read_kernel(first.thread, sizeof(first.thread), &waker->comm);
        bpf_probe_read_kernel(first.process, sizeof(first.process), &waker->group_leader->comm);
    }
    if (!bpf_map_update_elem(&pairs, &pair, &first, BPF_NOEXIST))
        return 0;
    // Another core may have been first.
    known = bpf_map_lookup_elem(&pairs, &pair);
    if (known)
        __sync_fetch_and_add(&known->count, 1);
    else
        total->lost++;
    return 0;
}

char terms[] SECTION("license") = "GPL";
