/* SPDX-License-Identifier: Apache-2.0
 * value_heap.h - which of numbered things has the lowest value: a binary heap that knows the place of each of them.
 * Owner:   the caller.  Threads: one at a time. */
#ifndef PROA_KV_VALUE_HEAP_H
#define PROA_KV_VALUE_HEAP_H

#include <stdint.h>

typedef struct proa_value_heap {
    int64_t count; /* things in the heap */
    /* private */
    int32_t *item;   /* [count] the one with the lowest value first */
    int32_t *place;  /* [capacity] of each thing in item; -1: it is not in the heap */
    uint64_t *value; /* [capacity] */
} proa_value_heap;

int64_t proa_value_heap_bytes(int64_t capacity);
void proa_value_heap_init(proa_value_heap *h, int64_t capacity);
void proa_value_heap_release(proa_value_heap *h); /* a zero heap is fine */
/* Adds number `item` (0..capacity) with this value, or changes its value. */
void proa_value_heap_put(proa_value_heap *h, int32_t item, uint64_t value);
void proa_value_heap_remove(proa_value_heap *h, int32_t item); /* one that is not in the heap is fine */
/* The item with the lowest value; -1: the heap is empty. */
int32_t proa_value_heap_first(const proa_value_heap *h);

#endif
