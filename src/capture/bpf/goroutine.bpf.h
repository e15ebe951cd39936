// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//
// Stacks of goroutines. Go's runtime executes much of its own code, and all C, on the stack of the thread while the goroutine that
// called it waits on its own. Perf copies the thread's stack only. So the goroutine's is copied in the interrupt that samples the
// thread, and is of the same instant.
//
// goroutine.rs repeats the definitions.

// In `runtime.g`: its stack (low, high), its thread's `m`, and where it left its stack (`sched.sp`). In `runtime.m`: the goroutine
// whose stack is the thread's (`g0`), and the one that the thread executes (`curg`). Go 1.18 to 1.27; `curg` moved in 1.25.
#define G_LOW 0
#define G_HIGH 8
#define G_THREAD 48
#define G_LEFT_AT 56
#define M_G0 0
#define M_CURRENT 184
#define M_CURRENT_BEFORE 192
// The thread's variable with its goroutine, from the base of the segment fs.
#define TLS_G (-8l)

// Maximum bytes copied. A value of a map per processor has at most 32 KiB.
#define GOROUTINE_MOST (28 << 10)

struct goroutine_stack {
    struct of_sample of;
    u64 base;
    u8 bytes[GOROUTINE_MOST];
};
struct {
    NUMBER(type, MAP_PERCPU_ARRAY);
    NUMBER(max_entries, 1);
    TYPE(key, u32);
    TYPE(value, struct goroutine_stack);
} goroutine_stacks SECTION(".maps");

// What is known of a process, by its id in the initial namespace. If nothing is known yet, the stack is taken: a process without
// goroutines has none that waits. The bits: it is a Go program; its sets of labels are lists; from LABELS_SHIFT on, where in
// `runtime.g` the address of the set is, 0: the program has none, or it is not known.
#define IS_GO 1
#define LABELS_IN_LIST 2
#define LABELS_SHIFT 8
struct {
    NUMBER(type, MAP_HASH);
    NUMBER(max_entries, 1024);
    TYPE(key, u32);
    TYPE(value, u32);
} go_programs SECTION(".maps");

// Returns the goroutine that the thread executes whose goroutine may be `g`, or which waits for it; 0: `g` is none. Each pointer is
// verified by one that leads back.
static __attribute__((always_inline)) u64 executed_goroutine(u64 g)
{
    u64 thread = g ? word_at(g + G_THREAD) : 0, g0, current;

    if (!thread)
        return 0;
    g0 = word_at(thread + M_G0);
    if (!g0 || word_at(g0 + G_THREAD) != thread)
        return 0;
    current = word_at(thread + M_CURRENT);
    if (!current || current == g0 || word_at(current + G_THREAD) != thread)
        current = word_at(thread + M_CURRENT_BEFORE);
    if (!current || current == g0 || word_at(current + G_THREAD) != thread)
        return 0;
    return current;
}

// Copies the labels of the goroutine that the interrupted thread executes, and its stack if it waits for that thread.
static __attribute__((always_inline)) void take_goroutine(u32 process)
{
    struct task_struct *task;
    struct goroutine_stack *stack;
    struct pt_regs *regs;
    u32 zero = 0, *known;
    u64 goroutine, low, high, sp, left, size;

    known = bpf_map_lookup_elem(&go_programs, &process);
    if (known && !*known)
        return;
    task = bpf_get_current_task_btf();
    regs = bpf_task_pt_regs(task);
    stack = bpf_map_lookup_elem(&goroutine_stacks, &zero);
    if (!regs || !stack)
        return;
    // Code of Go keeps its goroutine in r14; C may use it for something else.
    goroutine = executed_goroutine(word_at(task->thread.fsbase + TLS_G));
    if (!goroutine)
        goroutine = executed_goroutine(regs->r14);
    if (!goroutine)
        return;
    if (known && *known >> LABELS_SHIFT)
        take_labels(goroutine, *known >> LABELS_SHIFT, *known & LABELS_IN_LIST);
    low = word_at(goroutine + G_LOW);
    high = word_at(goroutine + G_HIGH);
    if (low >= high || (low <= regs->sp && regs->sp < high))
        return;
    // Functions that call the vDSO do not store where they left the stack, but keep it in r12. Signal handlers do neither. If C
    // has called back into Go, what is stored is where the stack was left for C, further out.
    sp = word_at(goroutine + G_LEFT_AT);
    left = regs->r12;
    if (sp < low || sp >= high || (low <= left && left < sp && high - left <= GOROUTINE_MOST))
        sp = left;
    if (sp < low || sp >= high)
        sp = high - low > GOROUTINE_MOST ? high - GOROUTINE_MOST : low;
    size = high - sp;
    if (size > GOROUTINE_MOST)
        size = GOROUTINE_MOST;
    if (bpf_probe_read_user(stack->bytes, size, (const void *)sp))
        return;
    begin_record(&stack->of, GOROUTINE_STACK);
    stack->of.count = size;
    stack->base = sp;
    bpf_ringbuf_output(&taken, stack, sizeof(*stack) - GOROUTINE_MOST + size, RING_NO_WAKE);
}
