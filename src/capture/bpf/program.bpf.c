// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//
// The programs that run inside the kernel; assets/build-bpf compiles them into assets/sampletop.bpf.o.
//
// `look` is called for each thread of a process while its iterator is read (Linux 5.18: sleepable iterators that copy user
// memory). It writes no row for a thread that was off its core at its last row and has not been put on one since. For any other
// it writes a `struct row`; off its core with registers and stack. It does not stop or signal a thread.
//
// `visit` does the same for a list of threads in one call (Linux 6.2: kernel functions that find a thread by its id).
//
// `is_target` is the filter of perf's cpu-clock events. It drops samples of other processes before they take room in our
// rings, and wakes user space if that has asked for it. `takes_more` is the same, and takes the frames of interpreters' threads
// (interpreter.bpf.h), the stacks of goroutines (goroutine.bpf.h) and their labels (labels.bpf.h). `takes_most` also takes objects
// that lead to awaiting functions (awaiting.bpf.h). If a kernel refuses one, the others remain.
//
// Only x86-64. What it shares with the other program is in kernel.bpf.h.

#include "../../process/kernel.bpf.h"

// How clang and the loader describe a map: each field is a pointer whose type holds the value.
#define NUMBER(name, value) int(*name)[value]
#define TYPE(name, type) typeof(type) *name

// Values of enum bpf_map_type and of map flags (include/uapi/linux/bpf.h).
#define MAP_HASH 1
#define MAP_ARRAY 2
#define MAP_PERCPU_ARRAY 6
#define MAP_LRU_HASH 9
#define MAP_RING 27
#define MAP_TASK_STORAGE 29
#define MAP_NO_PREALLOC (1 << 0)
#define MAP_MMAPABLE (1 << 10)
#define STORAGE_CREATE 1
#define RING_NO_WAKE (1 << 0)
#define RING_WAKE (1 << 1)

static void *(*bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*bpf_map_update_elem)(void *map, const void *key, const void *value, u64 flags) = (void *)2;
static u64 (*bpf_ktime_get_ns)(void) = (void *)5;
static u32 (*bpf_get_smp_processor_id)(void) = (void *)8;
static u64 (*bpf_get_current_pid_tgid)(void) = (void *)14;
static long (*bpf_probe_read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*bpf_get_task_stack)(void *task, void *to, u32 size, u64 flags) = (void *)141;
static void *(*bpf_task_storage_get)(void *map, void *task, void *value, u64 flags) = (void *)156;
static void *(*bpf_task_pt_regs)(void *task) = (void *)175;
static long (*bpf_find_vma)(void *task, u64 address, void *callback, void *context, u64 flags) = (void *)180;
static long (*bpf_loop)(u32 times, void *callback, void *context, u64 flags) = (void *)181;
static long (*bpf_ringbuf_output)(void *map, const void *data, u64 size, u64 flags) = (void *)130;
static long (*bpf_copy_from_user_task)(void *to, u32 size, const void *from, void *task, u64 flags) = (void *)191;

struct sched_entity {
    u64 sum_exec_runtime;
    // The run time when the thread was put on its core.
    u64 prev_sum_exec_runtime;
} RELOCATED;
struct sched_info {
    u64 pcount;
    u64 run_delay;
    // When the thread was last put on a core, by the scheduler's clock.
    u64 last_arrival;
} RELOCATED;
struct thread_struct {
    u64 fsbase;
} RELOCATED;
struct vm_area_struct {
    u64 vm_end;
} RELOCATED;
struct mm_struct;
struct signal_struct {
    int nr_threads;
} RELOCATED;
struct task_struct {
    u32 __state;
    int exit_state;
    int on_cpu;
    int pid;
    int tgid;
    struct task_struct *group_leader;
    u64 start_boottime;
    char comm[16];
    struct sched_entity se;
    struct sched_info sched_info;
    struct thread_struct thread;
    struct mm_struct *mm;
    struct signal_struct *signal;
} RELOCATED;
struct pt_regs {
    u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, sp;
} RELOCATED;
struct bpf_iter__task {
    struct bpf_iter_meta *meta;
    struct task_struct *task;
} RELOCATED;

// Kernel functions without a helper number. User space replaces these numbers by the functions' BTF ids (load.rs, `FUNCTIONS`).
// If the kernel lacks one, it does not load `visit`.
static struct task_struct *(*bpf_task_from_pid)(int id) = (void *)0x7a5c0001;
static void (*bpf_task_release)(struct task_struct *task) = (void *)0x7a5c0002;

// load.rs and rows.rs repeat the definitions that follow.

// A slot holds the stack of one thread. A read of the iterator returns at most 32 KiB, 132 rows, and user space frees all slots
// after each read. So there are always enough slots.
#define SLOT (64 << 10)
#define SLOTS 160
// Maximum bytes copied of a stack; perf's samples have the same maximum.
#define LARGEST (63 << 10)

// The rest of a slot holds the addresses of the kernel's own stack.
struct slot {
    u8 bytes[LARGEST];
    u8 kernel[SLOT - LARGEST];
};
struct {
    NUMBER(type, MAP_ARRAY);
    NUMBER(max_entries, SLOTS);
    NUMBER(map_flags, MAP_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, struct slot);
} stacks SECTION(".maps");

// Request of user space. It is written between reads only.
struct order {
    // Threads that were reported under another number are reported again.
    u32 generation;
    // Number of threads in `again`; AGAIN_ALL: every visited thread is reported again.
    u32 again;
    // Number of slots in use.
    u32 used;
    // Number of threads visited, for the tests.
    u32 visited;
    // The process to report. Before 6.1 an iterator walks all threads of the machine, and the program skips those of other
    // processes. 0 if the iterator selects the process.
    u32 only;
    // For visits of single threads: their process, by its id in the initial namespace. The id of an exited thread may have been
    // given to a thread of another process, which we may not read. 0: not checked.
    u32 process;
    // Number of threads in `list`.
    u32 listed;
    // Number of rows that `visit` has written to `listed_rows`.
    u32 rows;
    // Not 0: runnable threads that are off the core are read too.
    u32 runnable;
    // Not 0: the next sample wakes user space, and resets this.
    u32 wakeup;
    // The least of CLOCK_MONOTONIC minus the time at which the reader itself was put on its core, by the scheduler's clock: never
    // less than the distance of these clocks.
    u64 ahead;
    // Number of threads of `process` as of the last `visit`; 0: unknown.
    u32 threads;
};
struct {
    NUMBER(type, MAP_ARRAY);
    NUMBER(max_entries, 1);
    NUMBER(map_flags, MAP_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, struct order);
} orders SECTION(".maps");

#define AGAIN_ALL 0xffffffff
// Threads to report again, by their ids in the namespace of user space.
struct {
    NUMBER(type, MAP_HASH);
    NUMBER(max_entries, 1024);
    TYPE(key, u32);
    TYPE(value, u32);
} again SECTION(".maps");

// Maximum threads of a list.
#define LISTED_MOST 128
struct listed {
    // In the initial namespace.
    u32 id;
    // Not 0: reported even if it has not run.
    u32 again;
};
struct {
    NUMBER(type, MAP_ARRAY);
    NUMBER(max_entries, LISTED_MOST);
    NUMBER(map_flags, MAP_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, struct listed);
} list SECTION(".maps");

#include "taken.bpf.h"
#include "labels.bpf.h"
#include "goroutine.bpf.h"
#include "interpreter.bpf.h"
#include "awaiting.bpf.h"

// User space polls this ring. Its contents have no meaning.
struct {
    NUMBER(type, MAP_RING);
    NUMBER(max_entries, 4096);
} wakeups SECTION(".maps");

// Sampled processes, by their ids in the initial namespace.
struct {
    NUMBER(type, MAP_HASH);
    NUMBER(max_entries, 1024);
    TYPE(key, u32);
    TYPE(value, u32);
} targets SECTION(".maps");

// The last report of a thread. It is stored with the kernel's object of the thread: it is freed with that object, and another
// thread of the same id has its own.
struct told {
    // How often the thread had been put on a core.
    u64 runs;
    u32 generation;
    u32 what;
};
#define TOLD_NOTHING 0
// Blocked or exited: not reported again until it runs.
#define TOLD_ALL 1
// Uninterruptible or stopped: reported in every pass, its stack once.
#define TOLD_HELD 2
struct {
    NUMBER(type, MAP_TASK_STORAGE);
    NUMBER(map_flags, MAP_NO_PREALLOC);
    TYPE(key, int);
    TYPE(value, struct told);
} tellings SECTION(".maps");

// On a core, or runnable: no registers, no stack.
#define RUNS 1
// It has not run since its stack was reported.
#define HELD 2
// It ran while it was read.
#define TORN 4
// Its registers are valid, its stack could not be copied.
#define NO_STACK 8
// No slot was left.
#define LATE 16
// With RUNS: it waits for a core, and its row has registers and stack.
#define READY 32

struct row {
    // CLOCK_MONOTONIC.
    u64 at;
    // Since boot, suspension included.
    u64 start_ns;
    u64 run_ns, delay_ns, runs;
    // When it left its core, by the scheduler's clock.
    u64 left_core;
    // In the pid namespace of the reader.
    u32 tid;
    // In the initial namespace: the process, the thread.
    u32 process, id;
    u32 state, exit_state;
    u32 flags;
    u32 slot;
    u16 stack_bytes, kernel_bytes;
    char comm[16];
    u64 ip, sp, bp;
    u64 ax, bx, cx, dx, si, di, r8, r9, r10, r11, r12, r13, r14, r15;
    u64 orig_ax, fs_base;
};

// The rows of a list. User space reads them here, which spares it a call.
struct {
    NUMBER(type, MAP_ARRAY);
    NUMBER(max_entries, LISTED_MOST);
    NUMBER(map_flags, MAP_MMAPABLE);
    TYPE(key, u32);
    TYPE(value, struct row);
} listed_rows SECTION(".maps");

#define TASK_INTERRUPTIBLE 1
#define TASK_UNINTERRUPTIBLE 2
#define TASK_STOPPED_OR_TRACED (4 | 8)
#define TASK_NOLOAD 0x400
#define FRESH_READS __asm__ volatile("" ::: "memory")

static long end_of_mapping(struct task_struct *task, struct vm_area_struct *mapping, u64 *end)
{
    *end = mapping->vm_end;
    return 0;
}

// Copies the stack into a free slot.
static __attribute__((always_inline)) void copy_stack(struct task_struct *task, struct order *order, struct row *row)
{
    u32 number = order->used;
    struct slot *slot = bpf_map_lookup_elem(&stacks, &number);
    u64 end = 0, size;

    if (!slot) {
        row->flags |= LATE;
        return;
    }
    // If one page cannot be read the whole copy fails, so it ends at the mapping's end. The lookup also fails while a thread
    // changes mappings; user space then reads the stack itself.
    if (bpf_find_vma(task, row->sp, end_of_mapping, &end, 0) || end <= row->sp) {
        row->flags |= NO_STACK;
        return;
    }
    size = end - row->sp;
    if (size > LARGEST)
        size = LARGEST;
    if (bpf_copy_from_user_task(slot->bytes, size, (const void *)row->sp, task, 0)) {
        row->flags |= NO_STACK;
        return;
    }
    row->slot = number;
    row->stack_bytes = size;
}

static __attribute__((always_inline)) void registers(struct task_struct *task, struct row *row)
{
    struct pt_regs *regs = bpf_task_pt_regs(task);

    if (!regs)
        return;
    row->ip = regs->ip;
    row->sp = regs->sp;
    row->bp = regs->bp;
    row->ax = regs->ax;
    row->bx = regs->bx;
    row->cx = regs->cx;
    row->dx = regs->dx;
    row->si = regs->si;
    row->di = regs->di;
    row->r8 = regs->r8;
    row->r9 = regs->r9;
    row->r10 = regs->r10;
    row->r11 = regs->r11;
    row->r12 = regs->r12;
    row->r13 = regs->r13;
    row->r14 = regs->r14;
    row->r15 = regs->r15;
    row->orig_ax = regs->orig_ax;
    row->fs_base = task->thread.fsbase;
}

// Returns whether /proc would show the thread as uninterruptible.
static __attribute__((always_inline)) int is_held_by_kernel(struct row *row)
{
    return row->state & TASK_UNINTERRUPTIBLE && !(row->state & TASK_NOLOAD);
}

// Copies return addresses on the kernel's own stack, innermost first. The system call alone does not show what an
// uninterruptible thread waits for.
static __attribute__((always_inline)) void kernel_stack(struct task_struct *task, struct order *order, struct row *row)
{
    u32 number = order->used;
    struct slot *slot = bpf_map_lookup_elem(&stacks, &number);
    long size;

    if (!slot)
        return;
    size = bpf_get_task_stack(task, slot->kernel, sizeof(slot->kernel), 0);
    if (size > 0) {
        row->slot = number;
        row->kernel_bytes = size;
    }
}

// Reads registers and stack of a thread that is off its core. Returns what to store as its report. A runnable one was preempted or
// woken: its registers are saved until it is put on a core, and `pcount` counts that before it runs.
static __attribute__((always_inline)) u32 read_off_core(struct task_struct *task, struct order *order, struct row *row)
{
    if (task->mm)
        registers(task, row);
    if (row->sp && row->ip)
        copy_stack(task, order, row);
    if (is_held_by_kernel(row))
        kernel_stack(task, order, row);
    FRESH_READS;
    if (task->on_cpu || task->sched_info.pcount != row->runs)
        row->flags |= TORN;
    if (!row->state) {
        row->flags |= row->flags & (TORN | LATE) ? RUNS : RUNS | READY;
        return TOLD_NOTHING;
    }
    if (row->flags & (TORN | LATE) || !(row->sp && row->ip))
        return TOLD_NOTHING;
    if (row->state & TASK_STOPPED_OR_TRACED)
        return TOLD_HELD;
    return is_held_by_kernel(row) ? TOLD_HELD : TOLD_ALL;
}

// Writes a row: of the threads of a list to `listed_rows`, else to the iterator's output. Returns 0 if it fitted, as those of a list
// always do.
static __attribute__((always_inline)) long write(struct seq_file *rows, struct order *order, struct row *row, int of_list)
{
    u32 number = order->rows;
    struct row *listed;

    if (!of_list)
        return bpf_seq_write(rows, row, sizeof(*row));
    listed = bpf_map_lookup_elem(&listed_rows, &number);
    if (!listed)
        return 1;
    *listed = *row;
    return 0;
}

// Visits a thread: writes a row if it has to be reported. `again`: even if it has not run.
static __attribute__((always_inline)) void tell(struct seq_file *rows, struct task_struct *task, struct order *order,
                                                u32 again, int of_list)
{
    struct row row = {};
    struct told *told;
    struct task_struct *reader = bpf_get_current_task_btf();
    u64 ahead;
    u32 what = TOLD_NOTHING;

    row.runs = task->sched_info.pcount;
    told = bpf_task_storage_get(&tellings, task, 0, 0);
    if (told && (again || told->generation != order->generation || told->runs != row.runs))
        told = 0;
    // A thread that is off the core does not run until it is put on one, and each time is counted in `pcount`.
    if (told && told->what == TOLD_ALL) {
        order->visited++;
        return;
    }

    row.at = bpf_ktime_get_ns();
    row.tid = id_here(task);
    row.process = task->tgid;
    row.id = task->pid;
    row.start_ns = task->start_boottime;
    row.state = task->__state;
    row.exit_state = task->exit_state;
    row.run_ns = task->se.sum_exec_runtime;
    row.delay_ns = task->sched_info.run_delay;
    row.left_core = task->sched_info.last_arrival + row.run_ns - task->se.prev_sum_exec_runtime;
    ahead = row.at - reader->sched_info.last_arrival;
    if (ahead < order->ahead)
        order->ahead = ahead;
    bpf_probe_read_kernel(row.comm, sizeof(row.comm), &task->comm);
    if (row.exit_state) {
        what = TOLD_ALL;
    } else if (task->on_cpu || (!row.state && !order->runnable)) {
        row.flags |= RUNS;
    } else if (told && told->what == TOLD_HELD) {
        row.flags |= HELD;
        what = TOLD_HELD;
    } else {
        what = read_off_core(task, order, &row);
    }
    // A row that does not fit is visited again by the next read, so only a written row counts as reported.
    if (write(rows, order, &row, of_list))
        return;
    order->visited++;
    order->rows++;
    if (row.stack_bytes || row.kernel_bytes)
        order->used = row.slot + 1;
    told = bpf_task_storage_get(&tellings, task, 0, STORAGE_CREATE);
    if (told) {
        told->runs = row.runs;
        told->generation = order->generation;
        told->what = what;
    }
}

SECTION("iter.s/task")
int look(struct bpf_iter__task *context)
{
    struct task_struct *task = context->task;
    struct order *order;
    u32 zero = 0, tid, named;

    if (!task)
        return 0;
    order = bpf_map_lookup_elem(&orders, &zero);
    if (!order)
        return 0;
    if (order->process && (u32)task->tgid != order->process)
        return 0;
    if (order->only && id_here(task->group_leader) != order->only)
        return 0;
    named = order->again == AGAIN_ALL;
    if (order->again && !named) {
        tid = id_here(task);
        named = bpf_map_lookup_elem(&again, &tid) != 0;
    }
    tell(context->meta->seq, task, order, named, 0);
    return 0;
}

static long visit_listed(u32 index, void *nothing)
{
    struct listed *listed = bpf_map_lookup_elem(&list, &index);
    u32 zero = 0;
    struct order *order = bpf_map_lookup_elem(&orders, &zero);
    struct task_struct *task;

    if (!listed || !order)
        return 1;
    task = bpf_task_from_pid(listed->id);
    if (!task)
        return 0;
    if ((u32)task->tgid == order->process)
        tell(0, task, order, listed->again, 1);
    bpf_task_release(task);
    return 0;
}

// The kernel calls this for every thread of the machine, which is ignored. User space reads one byte: one call visits the list.
// Making an iterator costs as much as visiting fifty threads.
SECTION("iter.s/task")
int visit(struct bpf_iter__task *context)
{
    struct task_struct *leader;
    struct order *order;
    u32 zero = 0;
    u8 mark = 0;

    if (!context->task)
        return 0;
    order = bpf_map_lookup_elem(&orders, &zero);
    if (!order)
        return 0;
    bpf_seq_write(context->meta->seq, &mark, sizeof(mark));
    order->threads = 0;
    leader = bpf_task_from_pid(order->process);
    if (leader) {
        if ((u32)leader->tgid == order->process)
            order->threads = leader->signal->nr_threads;
        bpf_task_release(leader);
    }
    bpf_loop(order->listed, visit_listed, 0, 0);
    return 0;
}

static __attribute__((always_inline)) int filter(int takes)
{
    u32 process = bpf_get_current_pid_tgid() >> 32, zero = 0;
    struct order *order;

    if (!bpf_map_lookup_elem(&targets, &process))
        return 0;
    if (takes) {
        take_frames(process);
        take_goroutine(process);
    }
    if (takes > 1)
        take_awaiting(process);
    order = bpf_map_lookup_elem(&orders, &zero);
    if (order && order->wakeup) {
        order->wakeup = 0;
        bpf_ringbuf_output(&wakeups, &zero, sizeof(zero), RING_WAKE);
    }
    return 1;
}

SECTION("perf_event")
int is_target(void *context)
{
    return filter(0);
}

SECTION("perf_event")
int takes_more(void *context)
{
    return filter(1);
}

SECTION("perf_event")
int takes_most(void *context)
{
    return filter(2);
}

char terms[] SECTION("license") = "GPL";
