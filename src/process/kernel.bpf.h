// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//
// What the programs for the kernel have in common. The kernel's structures are declared by hand, with the used fields only.
// The loader finds where each field lies in the running kernel (CO-RE); it takes a name without what follows `___`.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;

#define SECTION(name) __attribute__((section(name), used))
#define RELOCATED __attribute__((preserve_access_index))

static long (*bpf_probe_read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*bpf_seq_write)(void *seq, const void *data, u32 size) = (void *)127;
static void *(*bpf_get_current_task_btf)(void) = (void *)158;

struct pid_namespace;
struct upid {
    int nr;
    struct pid_namespace *ns;
} RELOCATED;
struct pid {
    u32 level;
    struct upid numbers[1];
} RELOCATED;
struct task_struct___ids {
    struct pid *thread_pid;
} RELOCATED;

struct seq_file;
struct bpf_iter_meta {
    struct seq_file *seq;
} RELOCATED;

// Returns the thread's id in the pid namespace of the reader; 0 if it has none there.
static __attribute__((noinline)) u32 id_here(void *thread)
{
    struct task_struct___ids *task = thread, *reader = bpf_get_current_task_btf();
    u32 level = reader->thread_pid->level;
    struct pid *pid = 0;
    struct upid id = {};
    u64 size = __builtin_preserve_type_info(*(struct upid *)0, 1);
    const void *numbers;

    bpf_probe_read_kernel(&pid, sizeof(pid), &task->thread_pid);
    if (!pid)
        return 0;
    numbers = (const void *)__builtin_preserve_access_index(&pid->numbers[0]);
    if (bpf_probe_read_kernel(&id, sizeof(id), numbers + level * size))
        return 0;
    return id.nr;
}
