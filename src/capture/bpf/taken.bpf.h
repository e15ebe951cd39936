// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//
// What is taken of a thread in the interrupt that samples it, beside what perf takes. The thread stands still meanwhile, because
// the interrupt has its core. So it is of the same instant as perf's registers and stack, and nothing is stopped for it. Memory
// that is swapped out cannot be read there.
//
// taken.rs repeats the definitions.

#define INTERPRETER_FRAMES 1
#define GOROUTINE_STACK 2
#define GOROUTINE_LABELS 3
#define AWAITING_OBJECTS 4

// How each record begins. User space finds the sample that it belongs to.
struct of_sample {
    // CLOCK_MONOTONIC.
    u64 at;
    u32 processor;
    // The thread, in the initial namespace.
    u32 id;
    u32 what;
    // Frames visited; bytes; labels; objects.
    u32 count;
};

struct {
    NUMBER(type, MAP_RING);
    NUMBER(max_entries, 4 << 20);
} taken SECTION(".maps");

static __attribute__((always_inline)) void begin_record(struct of_sample *of, u32 what)
{
    of->at = bpf_ktime_get_ns();
    of->processor = bpf_get_smp_processor_id();
    of->id = bpf_get_current_pid_tgid();
    of->what = what;
    of->count = 0;
}

static __attribute__((always_inline)) u64 word_at(u64 address)
{
    u64 word = 0;

    bpf_probe_read_user(&word, sizeof(word), (const void *)address);
    return word;
}
