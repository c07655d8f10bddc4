/* SPDX-License-Identifier: Apache-2.0
 * value_heap.h - a priority queue of numbered items: a binary heap that also records the place of each item, so that
 *                an item can be removed or get another value.
 * Owner:   the caller.  Threads: one at a time. */
#ifndef PROA_KV_VALUE_HEAP_H
#define PROA_KV_VALUE_HEAP_H

#include <stdint.h>

typedef struct proa_value_heap {
    int64_t count; /* items in the heap */
    /* private */
    int32_t *item;   /* [count] the one with the lowest value first */
    int32_t *place;  /* [capacity] index in `item` of each item; -1: it is not in the heap */
    uint64_t *value; /* [capacity] */
} proa_value_heap;

/* Bytes of a heap for items 0 to capacity - 1. */
int64_t proa_value_heap_bytes(int64_t capacity);
void proa_value_heap_init(proa_value_heap *h, int64_t capacity);
void proa_value_heap_release(proa_value_heap *h); /* a zero heap is fine */
/* Adds an item with this value, or changes the value of one that is in the heap. */
void proa_value_heap_put(proa_value_heap *h, int32_t item, uint64_t value);
void proa_value_heap_remove(proa_value_heap *h, int32_t item); /* no effect if it is not in the heap */
/* The item with the lowest value; -1: the heap is empty. */
int32_t proa_value_heap_first(const proa_value_heap *h);

#endif
