/* SPDX-License-Identifier: Apache-2.0
 * state_slots.c - the recurrent states of sequences: memory, copies, the order of beams. */
#include "kv/state_slots.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <stdlib.h>

int64_t proa_state_slots_bytes(int64_t count, int64_t numbers)
{
    int64_t bytes;
    return proa_mul(count, numbers, &bytes) && proa_mul(bytes, (int64_t)sizeof(float), &bytes) ? bytes : -1;
}

/* Slots without sequences. */
static proa_status allocate_slots(proa_state_slots *s, proa_device *device, const proa_state_counts *counts,
                                  int64_t numbers, proa_err *err)
{
    int64_t bytes = proa_state_slots_bytes(proa_state_counts_all(counts), numbers);
    *s = (proa_state_slots){.count = 0};
    if (bytes == 0) return PROA_OK;
    float *memory = bytes > 0 ? device->alloc(device, bytes) : NULL;
    if (!memory)
        return PROA_FAIL(err, NO_MEMORY, "recurrent states of %lld sequences need %.1f MB (--sequences)",
                         (long long)counts->sequences, (double)bytes / 1e6);
    *s = (proa_state_slots){.count = counts->sequences,
                            .marks = counts->marks ? counts->sequences : 0,
                            .kept = counts->kept,
                            .numbers = numbers,
                            .memory = memory,
                            .device = device};
    return PROA_OK;
}

proa_status proa_state_slots_init(proa_state_slots *s, proa_device *device, const proa_state_counts *counts,
                                  int64_t numbers, proa_err *err)
{
    const int64_t count = counts->sequences;
    PROA_TRY(allocate_slots(s, device, counts, numbers, err));
    if (!s->memory) return PROA_OK;
    s->slot_of = proa_calloc((size_t)count, sizeof *s->slot_of);
    s->next = proa_calloc((size_t)count, sizeof *s->next);
    s->claimed = proa_calloc((size_t)count, sizeof *s->claimed);
    if (s->marks) s->mark_of = proa_calloc((size_t)count, sizeof *s->mark_of);
    for (int64_t i = 0; i < count; i++) s->slot_of[i] = (int32_t)i;
    for (int64_t i = 0; i < s->marks; i++) s->mark_of[i] = (int32_t)(count + i);
    return PROA_OK;
}

proa_status proa_state_slots_init_attached(proa_state_slots *attached, proa_state_slots *s,
                                           proa_device *device, int64_t numbers, proa_err *err)
{
    const proa_state_counts counts = {s->count, s->kept, s->marks > 0};
    PROA_TRY(allocate_slots(attached, device, &counts, numbers, err));
    while (s->attached) s = s->attached;
    s->attached = attached;
    return PROA_OK;
}

void proa_state_slots_release(proa_state_slots *s)
{
    if (s->memory)
        s->device->free(s->device, s->memory, proa_state_slots_bytes(s->count + s->marks + s->kept, s->numbers));
    free(s->slot_of);
    free(s->next);
    free(s->mark_of);
    free(s->claimed);
    *s = (proa_state_slots){.count = 0};
}

int32_t proa_state_slots_of(const proa_state_slots *s, int64_t sequence)
{
    return s->numbers ? s->slot_of[sequence] : 0;
}

void proa_state_slots_set_copied(proa_state_slots *s, proa_state_copied *copied, void *arg)
{
    s->copied = copied, s->copied_arg = arg;
}

void proa_state_slots_set_settle(proa_state_slots *s, proa_state_settle *settle, void *arg)
{
    s->settle = settle, s->settle_arg = arg;
}

void proa_state_slots_copy(const proa_state_slots *s, const proa_state_copy *copy)
{
    const proa_state_slots *first = s;
    if (s->settle) s->settle(s->settle_arg);
    for (; s; s = s->attached) {
        const proa_blocks one = {.bytes = s->numbers * (int64_t)sizeof(float), .count = {1, 1}};
        s->device->copy(s->device, s->memory + copy->to * s->numbers, s->memory + copy->from * s->numbers, &one);
    }
    if (first->copied) first->copied(first->copied_arg, copy);
}

static void copy_slot(proa_state_slots *s, int64_t to, int64_t from)
{
    proa_state_slots_copy(s, &(proa_state_copy){to, from});
    s->copies++;
}

void proa_state_slots_share(proa_state_slots *s, int64_t to, int64_t from)
{
    if (s->numbers) copy_slot(s, s->slot_of[to], s->slot_of[from]);
}

void proa_state_slots_mark(proa_state_slots *s, int64_t sequence)
{
    copy_slot(s, s->mark_of[sequence], s->slot_of[sequence]);
}

void proa_state_slots_undo(proa_state_slots *s, int64_t sequence)
{
    int32_t spoiled = s->slot_of[sequence];
    s->slot_of[sequence] = s->mark_of[sequence];
    s->mark_of[sequence] = spoiled;
}

static int64_t kept_slot(const proa_state_slots *s, int64_t i)
{
    return s->count + s->marks + i;
}

void proa_state_slots_save(proa_state_slots *s, int64_t i, int64_t sequence)
{
    copy_slot(s, kept_slot(s, i), s->slot_of[sequence]);
}

void proa_state_slots_load(proa_state_slots *s, int64_t sequence, int64_t i)
{
    copy_slot(s, s->slot_of[sequence], kept_slot(s, i));
}

void proa_state_slots_reorder(proa_state_slots *s, int64_t first, const int32_t *parent, int32_t count)
{
    int32_t *slot = s->slot_of + first, spare = 0;
    if (s->numbers == 0) return;
    for (int32_t i = 0; i < count; i++) s->claimed[i] = false;
    for (int32_t i = 0; i < count; i++) {
        s->next[i] = s->claimed[parent[i]] ? -1 : slot[parent[i]];
        s->claimed[parent[i]] = true;
    }
    for (int32_t i = 0; i < count; i++) {
        if (s->next[i] >= 0) continue;
        while (s->claimed[spare]) spare++;
        s->next[i] = slot[spare++];
        copy_slot(s, s->next[i], slot[parent[i]]);
    }
    for (int32_t i = 0; i < count; i++) slot[i] = s->next[i];
}
