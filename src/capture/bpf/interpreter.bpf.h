// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//
// Frames of an interpreter (CPython), taken in the interrupt that samples its thread. Pages that are not in memory end the list.
//
// interpreter.rs and src/unwinder/interpreted.rs repeat the definitions.

// An offset that this version of the interpreter does not have.
#define NONE (~0ull)

// Where the interpreter of a process keeps what; see `InterpreterLayout`.
struct layout {
    u64 interpreters, lock;
    u64 lock_holder, lock_locked;
    // Of interpreters that have locks of their own.
    u64 interpreter_lock;
    u64 next_interpreter, first_thread;
    u64 next_thread, thread_interpreter, pthread, innermost, indirect;
    // In a thread: the task that it executes; in a task: its name.
    u64 task, task_name;
    u64 frame_size, caller, code, position, short_position, owner, is_entry, copy, shim_owner;
    u64 code_size, file, name, lines, first_line;
};
// By process, its id in the initial namespace.
struct {
    NUMBER(type, MAP_HASH);
    NUMBER(max_entries, 1024);
    TYPE(key, u32);
    TYPE(value, struct layout);
} interpreters SECTION(".maps");

// The thread's structure in the interpreter, by the thread's id in the initial namespace. It is verified at each use.
struct {
    NUMBER(type, MAP_LRU_HASH);
    NUMBER(max_entries, 8192);
    TYPE(key, u32);
    TYPE(value, u64);
} interpreted SECTION(".maps");

struct taken_frame {
    u64 address, code, position, fingerprint;
    u32 owner, copy;
};

// Of deeper lists the innermost and the outermost frames are kept. A value of a map per processor has at most 32 KiB.
#define INNERMOST 400
#define OUTERMOST 396
// Maximum frames visited of one list.
#define DEEPEST 4096
// Maximum threads of an interpreter among which one is searched.
#define THREADS_MOST 1024

// Why a list ends.
#define ENDED 0
#define UNREADABLE 1
#define TOO_DEEP 2

// Bytes of an object that is a name.
#define NAME_MOST 160
#define PAGE_SIZE 4096

struct taken_frames {
    struct of_sample of;
    // Why there are no more frames.
    u64 end;
    // Whether the thread holds its interpreter's lock.
    u64 holds_lock;
    // The beginning of the name of the asyncio task that the thread executes. Zeros: there is none, or behind what could be read.
    u8 task_name[NAME_MOST];
    struct taken_frame frames[INNERMOST + OUTERMOST];
};

#define FRAME_MOST 128
#define CODE_MOST 256

// What a processor works with. Interrupts of perf do not nest.
struct scratch {
    struct layout layout;
    u8 frame[FRAME_MOST + 8];
    u8 code[CODE_MOST + 8];
    u64 fs_base;
    // The next interpreter, thread and frame to visit.
    u64 interpreter, thread, next;
    // A thread that was found, and its innermost frame.
    u64 found;
    struct taken_frames taken;
};
struct {
    NUMBER(type, MAP_PERCPU_ARRAY);
    NUMBER(max_entries, 1);
    TYPE(key, u32);
    TYPE(value, struct scratch);
} scratches SECTION(".maps");

static __attribute__((always_inline)) u64 word_of(const u8 *bytes, u64 offset, u64 most)
{
    return *(const u64 *)&bytes[offset & (most - 1)];
}

static __attribute__((always_inline)) u64 innermost_of(struct layout *layout, u64 thread)
{
    u64 frame = word_at(thread + layout->innermost);

    return layout->indirect == NONE || !frame ? frame : word_at(frame + layout->indirect);
}

static __attribute__((always_inline)) int holds_lock(struct layout *layout, u64 thread)
{
    u64 lock = layout->lock;

    if (layout->interpreter_lock != NONE)
        lock = word_at(word_at(thread + layout->thread_interpreter) + layout->interpreter_lock);
    if (!layout->lock || !lock)
        return 0;
    return word_at(lock + layout->lock_holder) == thread && (u32)word_at(lock + layout->lock_locked) == 1;
}

// Takes the name of the task that a thread executes. It is taken now because tasks may be short: another one would be found at its
// address later.
static __attribute__((always_inline)) void take_task_name(struct scratch *scratch, u64 thread)
{
    struct layout *layout = &scratch->layout;
    u8 *name = scratch->taken.task_name;
    u64 task = layout->task == NONE ? 0 : word_at(thread + layout->task), at, size;

    at = task ? word_at(task + layout->task_name) : 0;
    if (!at || !bpf_probe_read_user(name, NAME_MOST, (const void *)at))
        return;
    // The page behind it is not there.
    size = PAGE_SIZE - (at & (PAGE_SIZE - 1));
    if (size > NAME_MOST)
        return;
    bpf_probe_read_user(name, size, (const void *)at);
}

static long visit_thread(u32 index, void *nothing)
{
    u32 zero = 0;
    struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);
    struct layout *layout;

    if (!scratch)
        return 1;
    layout = &scratch->layout;
    if (!scratch->thread) {
        scratch->interpreter = word_at(scratch->interpreter + layout->next_interpreter);
        if (!scratch->interpreter)
            return 1;
        scratch->thread = word_at(scratch->interpreter + layout->first_thread);
        return 0;
    }
    // A thread that calls a function of another interpreter has several of these structures. New interpreters come first.
    if (word_at(scratch->thread + layout->pthread) == scratch->fs_base) {
        scratch->next = innermost_of(layout, scratch->thread);
        if (scratch->next || !scratch->found)
            scratch->found = scratch->thread;
        if (scratch->next)
            return 1;
    }
    scratch->thread = word_at(scratch->thread + layout->next_thread);
    return 0;
}

// Finds the thread's structure in the interpreter, and its innermost frame. Returns 0 if it has none.
static __attribute__((always_inline)) u64 find_thread(struct scratch *scratch, u32 id)
{
    struct layout *layout = &scratch->layout;
    u64 first = word_at(layout->interpreters), *known, holder = 0;
    int several = word_at(first + layout->next_interpreter) != 0;

    scratch->found = 0;
    scratch->next = 0;
    if (!first)
        return 0;
    if (!several) {
        if (layout->lock)
            holder = word_at(layout->lock + layout->lock_holder);
        if (!holder || word_at(holder + layout->pthread) != scratch->fs_base) {
            known = bpf_map_lookup_elem(&interpreted, &id);
            holder = known ? *known : 0;
        }
        if (holder && word_at(holder + layout->pthread) == scratch->fs_base) {
            scratch->next = innermost_of(layout, holder);
            return holder;
        }
    }
    scratch->interpreter = first;
    scratch->thread = word_at(first + layout->first_thread);
    bpf_loop(THREADS_MOST, visit_thread, 0, 0);
    if (scratch->found && !several)
        bpf_map_update_elem(&interpreted, &id, &scratch->found, 0);
    return scratch->found;
}

#define PRIME 0x100000001b3ull

static __attribute__((always_inline)) u64 fingerprint(struct scratch *scratch, u64 code)
{
    struct layout *layout = &scratch->layout;
    u64 size = layout->code_size, hash = 0xcbf29ce484222325ull;

    if (size > CODE_MOST)
        size = CODE_MOST;
    if (bpf_probe_read_user(scratch->code, size, (const void *)code))
        return 0;
    hash = (hash ^ word_of(scratch->code, layout->file, CODE_MOST)) * PRIME;
    hash = (hash ^ word_of(scratch->code, layout->name, CODE_MOST)) * PRIME;
    hash = (hash ^ word_of(scratch->code, layout->lines, CODE_MOST)) * PRIME;
    hash = (hash ^ (u32)word_of(scratch->code, layout->first_line, CODE_MOST)) * PRIME;
    return hash;
}

static long take_frame(u32 index, void *nothing)
{
    u32 zero = 0, place = index;
    struct scratch *scratch = bpf_map_lookup_elem(&scratches, &zero);
    struct layout *layout;
    struct taken_frame *frame;
    u64 size;

    if (!scratch || !scratch->next)
        return 1;
    layout = &scratch->layout;
    if (place >= INNERMOST)
        place = INNERMOST + (place - INNERMOST) % OUTERMOST;
    // The compiler knows that this holds, the kernel's verifier does not.
    __asm__ volatile("" : "+r"(place));
    if (place >= INNERMOST + OUTERMOST)
        return 1;
    size = layout->frame_size;
    if (size > FRAME_MOST)
        size = FRAME_MOST;
    if (bpf_probe_read_user(scratch->frame, size, (const void *)scratch->next)) {
        scratch->taken.end = UNREADABLE;
        return 1;
    }
    frame = &scratch->taken.frames[place];
    frame->address = scratch->next;
    // The lowest bits are tags.
    frame->code = word_of(scratch->frame, layout->code, FRAME_MOST) & ~3ull;
    frame->position = word_of(scratch->frame, layout->position, FRAME_MOST);
    if (layout->short_position)
        frame->position = (u64)(long)(int)frame->position;
    frame->owner = layout->owner == NONE ? 0 : (u8)word_of(scratch->frame, layout->owner, FRAME_MOST);
    if (layout->is_entry != NONE && (u8)word_of(scratch->frame, layout->is_entry, FRAME_MOST))
        frame->owner |= 1 << 8;
    frame->copy = layout->copy == NONE ? 0 : (u32)word_of(scratch->frame, layout->copy, FRAME_MOST);
    frame->fingerprint = (frame->owner & 0xff) >= layout->shim_owner ? 0 : fingerprint(scratch, frame->code);
    scratch->next = word_of(scratch->frame, layout->caller, FRAME_MOST);
    scratch->taken.of.count = index + 1;
    return 0;
}

// Takes the frames of the interrupted thread, if its process has an interpreter.
static __attribute__((always_inline)) void take_frames(u32 process)
{
    struct layout *layout = bpf_map_lookup_elem(&interpreters, &process);
    u32 zero = 0, frames;
    struct task_struct *task;
    struct scratch *scratch;
    u64 size, thread;

    if (!layout)
        return;
    scratch = bpf_map_lookup_elem(&scratches, &zero);
    if (!scratch)
        return;
    scratch->layout = *layout;
    task = bpf_get_current_task_btf();
    scratch->fs_base = task->thread.fsbase;
    begin_record(&scratch->taken.of, INTERPRETER_FRAMES);
    scratch->taken.end = ENDED;
    scratch->taken.holds_lock = 0;
    __builtin_memset(scratch->taken.task_name, 0, NAME_MOST);
    thread = find_thread(scratch, scratch->taken.of.id);
    if (thread && scratch->next) {
        scratch->taken.holds_lock = holds_lock(&scratch->layout, thread);
        take_task_name(scratch, thread);
        bpf_loop(DEEPEST, take_frame, 0, 0);
        if (scratch->next && scratch->taken.end == ENDED)
            scratch->taken.end = TOO_DEEP;
    }
    frames = scratch->taken.of.count;
    __asm__ volatile("" : "+r"(frames));
    if (frames > INNERMOST + OUTERMOST)
        frames = INNERMOST + OUTERMOST;
    size = sizeof(scratch->taken) - sizeof(scratch->taken.frames) + frames * sizeof(struct taken_frame);
    if (size > sizeof(scratch->taken))
        return;
    bpf_ringbuf_output(&taken, &scratch->taken, size, RING_NO_WAKE);
}
