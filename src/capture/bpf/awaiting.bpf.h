// SPDX-License-Identifier: GPL-2.0-only OR MIT OR Apache-2.0
//
// Objects of V8 that lead from an async function which was resumed to those that await it, taken in the interrupt that samples
// its thread. Promises are settled within microseconds, and their memory is used again. User space follows the same way through
// what was taken (src/runtimes/v8/promises.rs), and proves it; here nothing is proven.
//
// awaiting.rs and src/unwinder/awaiting.rs repeat the definitions.

// Maximum objects taken, promises followed, and awaiting functions: one more than are shown, so that it is known if there are more.
// Each takes at least 6 objects.
#define OBJECTS_MOST 136
#define PROMISES_MOST 64
#define AWAITING_MOST 17
// Bytes of the stack that are searched, innermost first.
#define SEARCHED_MOST (16 << 10)
#define SEARCHED_AT_ONCE 32
// Maximum places in a page that are tried.
#define TRIED_MOST 8

// Words of an object that are taken, and of one that is left of a suspended function.
#define OBJECT_WORDS 6
#define SUSPENDED_WORDS 11
// Words of the objects, equal in all versions; see promises.rs.
#define CONTEXT_LENGTH 1
#define CONTEXT_VARIABLE 4
#define AWAIT_LENGTH 3
#define SUSPENDED_FUNCTION 3
#define SUSPENDED_STATE 8
#define EXECUTING (~1u)
#define SUSPENDED_PROMISE 10
#define PROMISE_REACTIONS 3
#define PROMISE_FLAGS 4
#define PROMISE_STATUS 3
#define REACTION_FULFILLED 2
#define REACTION_RESULT 3
#define CAPABILITY_PROMISE 1
#define REQUEST_PROMISE 4
// Bytes below the link of a function's frame.
#define FRAME_CONTEXT 8
#define FRAME_FUNCTION 16

// See `AwaitLayout`.
struct await_layout {
    // The least and the greatest address in `await_returns`.
    u64 lowest, highest;
    // Types of objects.
    u64 function, generator, promise, reaction, capability, request, first_function, last_function;
    // Bytes in a map; words in a function and in a reaction.
    u64 instance_type, context, shared, next_reaction;
    // Bytes in what functions share: where the number of a built-in function may be; 0: there is no second place.
    u64 data, second_data;
    // The number of the one that resolves a promise; 0: it is not known.
    u64 resolve;
};
// By process, its id in the initial namespace.
struct {
    NUMBER(type, MAP_HASH);
    NUMBER(max_entries, 1024);
    TYPE(key, u32);
    TYPE(value, struct await_layout);
} await_layouts SECTION(".maps");

// Where built-in functions return to that have resumed a function. Each of V8's heaps may have built-in code of its own.
struct await_return {
    u64 address, process;
};
struct {
    NUMBER(type, MAP_LRU_HASH);
    NUMBER(max_entries, 8192);
    TYPE(key, struct await_return);
    TYPE(value, u32);
} await_returns SECTION(".maps");

struct taken_object {
    // The address that refers to it, and where it is: elsewhere if the collector has moved it, which updates references later.
    u64 at, now;
    u64 type;
    u64 words[SUSPENDED_WORDS];
};

struct taken_objects {
    struct of_sample of;
    // Where the frame of the built-in function has its link.
    u64 outer;
    struct taken_object objects[OBJECTS_MOST];
};

struct await_scratch {
    struct await_layout layout;
    // From where on the stack is searched, how many bytes of it were copied, how many words searched, and whether a frame was
    // found.
    u64 sp, copied, searched, found;
    // The number of the word that is tried; SEARCHED_MOST: none.
    u64 place;
    // The next promise to follow, as a word; the type of contexts that resume functions; the number of awaiting functions.
    u64 next, resuming, awaiting;
    u64 stack[SEARCHED_MOST / 8 + SEARCHED_AT_ONCE];
    struct taken_objects taken;
};
struct {
    NUMBER(type, MAP_PERCPU_ARRAY);
    NUMBER(max_entries, 1);
    TYPE(key, u32);
    TYPE(value, struct await_scratch);
} await_scratches SECTION(".maps");

_Static_assert(sizeof(struct await_scratch) <= 32 << 10, "a value of a map per processor has at most 32 KiB");

static __attribute__((always_inline)) int is_suspendable(struct await_layout *layout, u64 type)
{
    return type == layout->function || type == layout->generator;
}

// Takes the object that a word refers to; 0: it refers to none, it cannot be read, or there are too many.
static __attribute__((noinline)) struct taken_object *take_object(struct await_scratch *scratch, u64 word)
{
    u32 number;
    u16 type;
    u64 at = word & ~3ull;
    struct taken_object *object;

    // The verifier knows the argument as one that may be 0.
    if (!scratch || !(word & 1) || !at)
        return 0;
    number = scratch->taken.of.count;
    __asm__ volatile("" : "+r"(number));
    if (number >= OBJECTS_MOST)
        return 0;
    object = &scratch->taken.objects[number];
    object->at = at;
    if (bpf_probe_read_user(object->words, OBJECT_WORDS * 8, (const void *)at))
        return 0;
    // Then the new address is in the place of the map.
    if (!(object->words[0] & 3) && object->words[0]) {
        at = object->words[0];
        if (bpf_probe_read_user(object->words, OBJECT_WORDS * 8, (const void *)at))
            return 0;
    }
    object->now = at;
    if (bpf_probe_read_user(&type, sizeof(type), (const void *)((object->words[0] & ~3ull) + scratch->layout.instance_type)))
        return 0;
    object->type = type;
    if (is_suspendable(&scratch->layout, type) &&
        bpf_probe_read_user(&object->words[OBJECT_WORDS], (SUSPENDED_WORDS - OBJECT_WORDS) * 8,
                            (const void *)(at + OBJECT_WORDS * 8)))
        return 0;
    scratch->taken.of.count = number + 1;
    return object;
}

// Returns a word of an object, by its number among the first ones.
static __attribute__((always_inline)) u64 nth_word(struct taken_object *object, u64 nth)
{
    return nth < OBJECT_WORDS ? object->words[nth] : 0;
}

// Returns the word that refers to the promise of the result which is due next; 0: there is none.
static __attribute__((always_inline)) u64 promise_of(struct await_scratch *scratch, struct taken_object *suspended)
{
    u64 promise = suspended->words[SUSPENDED_PROMISE];

    if (suspended->type == scratch->layout.function)
        return promise;
    suspended = take_object(scratch, promise);
    return suspended && suspended->type == scratch->layout.request ? suspended->words[REQUEST_PROMISE] : 0;
}

// Returns the number of the built-in function that a function executes; 0: none.
static __attribute__((noinline)) u32 builtin_of(struct await_scratch *scratch, u64 shared)
{
    u64 data;

    if (!scratch)
        return 0;
    shared &= ~3ull;
    data = word_at(shared + scratch->layout.data);
    if (((u32)data || !data) && scratch->layout.second_data)
        data = word_at(shared + scratch->layout.second_data);
    // Other functions have an object there.
    return (u32)data ? 0 : data >> 32;
}

// Takes the variables of the built-in function with this context, and returns the one that is followed: the object of a suspended
// function, a capability or a promise. 0: there is none.
static __attribute__((noinline)) struct taken_object *followed(struct await_scratch *scratch, u64 context, u32 builtin)
{
    struct taken_object *object, *first = 0, *second = 0;
    u64 length;

    if (!scratch)
        return 0;
    object = take_object(scratch, context);
    if (!object)
        return 0;
    length = object->words[CONTEXT_LENGTH] >> 32;
    if (length >= AWAIT_LENGTH)
        first = take_object(scratch, object->words[CONTEXT_VARIABLE]);
    if (length > AWAIT_LENGTH)
        second = take_object(scratch, object->words[CONTEXT_VARIABLE + 1]);
    if (second && second->type == scratch->layout.capability)
        return second;
    if (!first)
        return 0;
    if (!second && object->type == scratch->resuming && is_suspendable(&scratch->layout, first->type))
        return first;
    return first->type == scratch->layout.promise && builtin == scratch->layout.resolve ? first : 0;
}

// Follows one promise.
static long follow_promise(u32 index, void *nothing)
{
    u32 zero = 0, builtin = 0;
    struct await_scratch *scratch = bpf_map_lookup_elem(&await_scratches, &zero);
    struct taken_object *object, *then = 0;
    u64 result, next;

    if (!scratch)
        return 1;
    object = take_object(scratch, scratch->next);
    if (!object || object->type != scratch->layout.promise || object->words[PROMISE_FLAGS] >> 32 & PROMISE_STATUS)
        return 1;
    object = take_object(scratch, object->words[PROMISE_REACTIONS]);
    if (!object || object->type != scratch->layout.reaction)
        return 1;
    next = scratch->layout.next_reaction;
    result = nth_word(object, next + REACTION_RESULT);
    object = take_object(scratch, nth_word(object, next + REACTION_FULFILLED));
    if (!object)
        return 1;
    if (is_suspendable(&scratch->layout, object->type))
        then = object;
    else if (object->type >= scratch->layout.first_function && object->type <= scratch->layout.last_function) {
        builtin = builtin_of(scratch, nth_word(object, scratch->layout.shared));
        if (builtin)
            then = followed(scratch, nth_word(object, scratch->layout.context), builtin);
    }
    // The promise that `then` has returned.
    if (!then)
        then = take_object(scratch, result);
    if (!then)
        return 1;
    if (is_suspendable(&scratch->layout, then->type)) {
        if (!take_object(scratch, then->words[SUSPENDED_FUNCTION]) || ++scratch->awaiting >= AWAITING_MOST)
            return 1;
        scratch->next = promise_of(scratch, then);
        return 0;
    }
    scratch->next = then->type == scratch->layout.capability ? then->words[CAPABILITY_PROMISE] : then->at | 1;
    return 0;
}

// Takes the objects of the frame that has returned to the word with this index on the stack. Returns 0 if it has resumed a function.
static __attribute__((noinline)) int take_resumed(struct await_scratch *scratch, u64 index)
{
    struct taken_object *object;
    u64 at, outer, word, context;

    if (!scratch || !index || index >= SEARCHED_MOST / 8)
        return 1;
    at = scratch->sp + 8ull * index;
    outer = scratch->stack[index - 1];
    if (outer <= at || outer & 7)
        return 1;
    scratch->taken.of.count = 0;
    scratch->taken.outer = outer;
    object = take_object(scratch, word_at(outer - FRAME_FUNCTION));
    if (!object)
        return 1;
    // The frame may refer to the same objects by other addresses, if the collector has moved them.
    word = word_at(outer - FRAME_CONTEXT);
    context = nth_word(object, scratch->layout.context);
    if (word != context)
        take_object(scratch, word);
    object = take_object(scratch, context);
    if (!object || object->words[CONTEXT_LENGTH] >> 32 != AWAIT_LENGTH)
        return 1;
    scratch->resuming = object->type;
    object = take_object(scratch, object->words[CONTEXT_VARIABLE]);
    // What is left of a frame that was there before may refer to a function that is suspended, or has settled its promise.
    if (!object || !is_suspendable(&scratch->layout, object->type) || object->words[SUSPENDED_STATE] >> 32 != EXECUTING)
        return 1;
    word = word_at(at - 8 - FRAME_FUNCTION);
    if (word != object->words[SUSPENDED_FUNCTION]) {
        take_object(scratch, word);
        take_object(scratch, object->words[SUSPENDED_FUNCTION]);
    }
    scratch->awaiting = 0;
    scratch->next = promise_of(scratch, object);
    object = take_object(scratch, scratch->next);
    if (object && object->type == scratch->layout.promise && object->words[PROMISE_FLAGS] >> 32 & PROMISE_STATUS)
        return 1;
    bpf_loop(PROMISES_MOST, follow_promise, 0, 0);
    return 0;
}

static long search_some(u32 index, void *nothing)
{
    u32 zero = 0, nth;
    struct await_scratch *scratch = bpf_map_lookup_elem(&await_scratches, &zero);
    struct await_return key;
    u64 first, count, lowest, distance, least = ~0ull;

    if (!scratch)
        return 1;
    first = scratch->searched;
    count = scratch->copied / 8;
    __asm__ volatile("" : "+r"(first));
    if (first >= SEARCHED_MOST / 8 || first >= count)
        return 1;
    scratch->searched = first + SEARCHED_AT_ONCE < count ? first + SEARCHED_AT_ONCE : count;
    // Hardly any word is near to the addresses. This way to find that out is the fastest that the verifier follows.
    lowest = scratch->layout.lowest;
#pragma unroll
    for (nth = 0; nth < SEARCHED_AT_ONCE; nth++) {
        distance = scratch->stack[first + nth] - lowest;
        least = distance < least ? distance : least;
    }
    if (least > scratch->layout.highest - lowest)
        return 0;
    key.process = bpf_get_current_pid_tgid() >> 32;
    scratch->place = SEARCHED_MOST;
    for (nth = 0; nth < SEARCHED_AT_ONCE; nth++) {
        key.address = scratch->stack[first + nth];
        if (first + nth < count && bpf_map_lookup_elem(&await_returns, &key)) {
            scratch->place = first + nth;
            break;
        }
    }
    if (scratch->place == SEARCHED_MOST)
        return 0;
    // The search goes on behind it if that is no such frame.
    scratch->searched = scratch->place + 1;
    scratch->found = !take_resumed(scratch, scratch->place);
    return scratch->found ? 1 : 0;
}

// Copies the stack to the end of its page, as what follows may be unmapped, and searches it.
static long search_page(u32 index, void *nothing)
{
    u32 zero = 0;
    struct await_scratch *scratch = bpf_map_lookup_elem(&await_scratches, &zero);
    u64 at, size;

    if (!scratch)
        return 1;
    at = scratch->copied;
    __asm__ volatile("" : "+r"(at));
    if (at >= SEARCHED_MOST)
        return 1;
    size = PAGE_SIZE - ((scratch->sp + at) & (PAGE_SIZE - 1));
    if (size > SEARCHED_MOST - at)
        size = SEARCHED_MOST - at;
    __asm__ volatile("" : "+r"(size));
    if (size > PAGE_SIZE || bpf_probe_read_user((u8 *)scratch->stack + at, size, (const void *)(scratch->sp + at)))
        return 1;
    scratch->copied = at + size;
    bpf_loop(PAGE_SIZE / 8 / SEARCHED_AT_ONCE + TRIED_MOST, search_some, 0, 0);
    return scratch->found ? 1 : 0;
}

// Takes the objects that lead from the innermost function which was resumed to those that await it.
static __attribute__((always_inline)) void take_awaiting(u32 process)
{
    u32 zero = 0, count;
    struct await_layout *layout = bpf_map_lookup_elem(&await_layouts, &process);
    struct await_scratch *scratch;
    struct pt_regs *regs;
    u64 size;

    if (!layout)
        return;
    scratch = bpf_map_lookup_elem(&await_scratches, &zero);
    regs = bpf_task_pt_regs(bpf_get_current_task_btf());
    if (!scratch || !regs || regs->sp & 7)
        return;
    scratch->layout = *layout;
    scratch->sp = regs->sp;
    scratch->copied = scratch->searched = scratch->found = 0;
    begin_record(&scratch->taken.of, AWAITING_OBJECTS);
    bpf_loop(SEARCHED_MOST / PAGE_SIZE + 1, search_page, 0, 0);
    if (!scratch->found)
        return;
    count = scratch->taken.of.count;
    size = sizeof(scratch->taken) - sizeof(scratch->taken.objects) + count * sizeof(struct taken_object);
    // The compiler knows that this holds, the kernel's verifier does not.
    __asm__ volatile("" : "+r"(size));
    if (size > sizeof(scratch->taken))
        return;
    bpf_ringbuf_output(&taken, &scratch->taken, size, RING_NO_WAKE);
}
