// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//
// Labels of goroutines (Go's `runtime/pprof.Do`), taken in the interrupt that samples their thread. The program does not change a
// set once a goroutine has it, and its collector keeps it as long. So what is copied is the set of that instant.
//
// labels.rs repeats the definitions.

// Maximum labels of a set; of one with more none is taken. Bytes that are taken of a key and of a value.
#define LABELS_MOST 16
#define KEY_MOST 64
#define VALUE_MOST 184

// A set is a list of keys and values since Go 1.24: the address of the first, and their number. Before it is a map: the number of
// its entries, the logarithm of the number of its buckets, their address, and that of the buckets before it grew.
#define LIST_FIRST 0
#define LIST_COUNT 8
#define LISTED_VALUE 16
#define LISTED_SIZE 32
#define MAP_COUNT 0
#define MAP_LOGARITHM 9
#define MAP_BUCKETS 16
#define MAP_OLD_BUCKETS 24
// A bucket has a mark for each of 8 entries, their keys, their values, and the address of a further bucket. Entries with marks
// below this one are empty.
#define BUCKET_ENTRIES 8
#define MARK_LEAST 5
#define BUCKET_KEYS 8
#define BUCKET_VALUES 136
#define BUCKET_MORE 264
#define BUCKET_SIZE 272
// Maximum buckets visited, and of these that are no further ones. A map of 16 entries has two, and does not grow step by step.
#define BUCKETS_MOST 8
#define LOGARITHM_MOST 2

struct go_string {
    u64 at, size;
};

struct taken_label {
    // Of the whole texts, at most one more than is taken.
    u32 key_size, value_size;
    u8 key[KEY_MOST], value[VALUE_MOST];
};

struct taken_labels {
    struct of_sample of;
    // Number of labels in the set. It is whole if all were taken.
    u64 found;
    struct taken_label labels[LABELS_MOST];
};

struct labels_scratch {
    // The next label of a list; the bucket of a map.
    u64 next;
    // Of a map: the first bucket, the number of buckets, that of the present one, and its marks.
    u64 first, buckets, nth, marks;
    struct taken_labels taken;
};
struct {
    NUMBER(type, MAP_PERCPU_ARRAY);
    NUMBER(max_entries, 1);
    TYPE(key, u32);
    TYPE(value, struct labels_scratch);
} labels_scratches SECTION(".maps");

// Takes the text at `from`. Returns its size, at most `most` + 1; NOT_READ: it cannot be read.
#define NOT_READ (~0u)
static __attribute__((always_inline)) u32 take_text(u8 *to, u64 from, u32 most)
{
    struct go_string text;
    u64 size;

    if (bpf_probe_read_user(&text, sizeof(text), (const void *)from))
        return NOT_READ;
    size = text.size;
    if (size > most)
        size = most;
    if (bpf_probe_read_user(to, size, (const void *)text.at))
        return NOT_READ;
    return text.size > most ? most + 1 : text.size;
}

// Takes a label: its key and its value are described at these addresses. Returns 0 if it was taken.
static __attribute__((always_inline)) int take_label(struct labels_scratch *scratch, u64 key, u64 value)
{
    u32 number = scratch->taken.of.count;
    struct taken_label *label;

    __asm__ volatile("" : "+r"(number));
    if (number >= LABELS_MOST)
        return 1;
    label = &scratch->taken.labels[number];
    label->key_size = take_text(label->key, key, KEY_MOST);
    label->value_size = take_text(label->value, value, VALUE_MOST);
    if (label->key_size == NOT_READ || label->value_size == NOT_READ)
        return 1;
    scratch->taken.of.count = number + 1;
    return 0;
}

static long take_listed(u32 index, void *nothing)
{
    u32 zero = 0;
    struct labels_scratch *scratch = bpf_map_lookup_elem(&labels_scratches, &zero);

    if (!scratch || take_label(scratch, scratch->next, scratch->next + LISTED_VALUE))
        return 1;
    scratch->next += LISTED_SIZE;
    return 0;
}

static long take_entry(u32 index, void *nothing)
{
    u32 zero = 0, entry = index % BUCKET_ENTRIES;
    struct labels_scratch *scratch = bpf_map_lookup_elem(&labels_scratches, &zero);
    u64 bucket;

    if (!scratch || !scratch->next)
        return 1;
    bucket = scratch->next;
    if (!entry)
        scratch->marks = word_at(bucket);
    if ((u8)(scratch->marks >> (8 * entry)) >= MARK_LEAST &&
        take_label(scratch, bucket + BUCKET_KEYS + entry * sizeof(struct go_string),
                   bucket + BUCKET_VALUES + entry * sizeof(struct go_string)))
        return 1;
    if (entry < BUCKET_ENTRIES - 1)
        return 0;
    scratch->next = word_at(bucket + BUCKET_MORE);
    if (!scratch->next && ++scratch->nth < scratch->buckets)
        scratch->next = scratch->first + scratch->nth * BUCKET_SIZE;
    return 0;
}

// Takes the labels of a goroutine. `offset`: where its structure has the address of the set; `in_list`: the set is a list.
static __attribute__((always_inline)) void take_labels(u64 goroutine, u64 offset, int in_list)
{
    u32 zero = 0, count;
    struct labels_scratch *scratch;
    u64 at = word_at(goroutine + offset), found = ~0ull, size, logarithm;

    if (!at)
        return;
    scratch = bpf_map_lookup_elem(&labels_scratches, &zero);
    if (!scratch)
        return;
    if (!in_list)
        at = word_at(at);
    bpf_probe_read_user(&found, sizeof(found), (const void *)(at + (in_list ? LIST_COUNT : MAP_COUNT)));
    if (!found)
        return;
    begin_record(&scratch->taken.of, GOROUTINE_LABELS);
    scratch->taken.found = found;
    if (in_list && found <= LABELS_MOST) {
        scratch->next = word_at(at + LIST_FIRST);
        bpf_loop(found, take_listed, 0, 0);
    }
    if (!in_list && found <= LABELS_MOST) {
        logarithm = (u8)word_at(at + MAP_LOGARITHM);
        scratch->first = scratch->next = word_at(at + MAP_BUCKETS);
        scratch->buckets = 1ull << (logarithm & 7);
        scratch->nth = 0;
        if (logarithm <= LOGARITHM_MOST && !word_at(at + MAP_OLD_BUCKETS))
            bpf_loop(BUCKETS_MOST * BUCKET_ENTRIES, take_entry, 0, 0);
    }
    count = scratch->taken.of.count;
    size = sizeof(scratch->taken) - sizeof(scratch->taken.labels) + count * sizeof(struct taken_label);
    // The compiler knows that this holds, the kernel's verifier does not.
    __asm__ volatile("" : "+r"(size));
    if (size > sizeof(scratch->taken))
        return;
    bpf_ringbuf_output(&taken, &scratch->taken, size, RING_NO_WAKE);
}
