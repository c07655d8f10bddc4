/* SPDX-License-Identifier: Apache-2.0
 * value_heap.c - a binary heap with the place of each item. */
#include "kv/value_heap.h"

#include "base/alloc.h"

#include <stdbool.h>
#include <stdlib.h>

int64_t proa_value_heap_bytes(int64_t capacity)
{
    return capacity * (int64_t)(2 * sizeof(int32_t) + sizeof(uint64_t));
}

void proa_value_heap_init(proa_value_heap *h, int64_t capacity)
{
    *h = (proa_value_heap){.count = 0};
    h->item = proa_calloc((size_t)capacity, sizeof *h->item);
    h->place = proa_calloc((size_t)capacity, sizeof *h->place);
    h->value = proa_calloc((size_t)capacity, sizeof *h->value);
    for (int64_t i = 0; i < capacity; i++) h->place[i] = -1;
}

void proa_value_heap_release(proa_value_heap *h)
{
    free(h->item);
    free(h->place);
    free(h->value);
    *h = (proa_value_heap){.count = 0};
}

static bool is_less(const proa_value_heap *h, int64_t a, int64_t b)
{
    return h->value[h->item[a]] < h->value[h->item[b]];
}

static void swap_places(proa_value_heap *h, int64_t a, int64_t b)
{
    int32_t item = h->item[a];
    h->item[a] = h->item[b];
    h->item[b] = item;
    h->place[h->item[a]] = (int32_t)a;
    h->place[h->item[b]] = (int32_t)b;
}

static void sift_up(proa_value_heap *h, int64_t at)
{
    for (; at > 0 && is_less(h, at, (at - 1) / 2); at = (at - 1) / 2) swap_places(h, at, (at - 1) / 2);
}

static void sift_down(proa_value_heap *h, int64_t at)
{
    for (int64_t least = at;; at = least) {
        for (int64_t child = 2 * at + 1; child <= 2 * at + 2 && child < h->count; child++)
            if (is_less(h, child, least)) least = child;
        if (least == at) return;
        swap_places(h, at, least);
    }
}

void proa_value_heap_put(proa_value_heap *h, int32_t item, uint64_t value)
{
    if (h->place[item] < 0) {
        h->item[h->count] = item;
        h->place[item] = (int32_t)h->count++;
    }
    h->value[item] = value;
    sift_up(h, h->place[item]);
    sift_down(h, h->place[item]);
}

void proa_value_heap_remove(proa_value_heap *h, int32_t item)
{
    int64_t at = h->place[item];
    if (at < 0) return;
    swap_places(h, at, --h->count);
    h->place[item] = -1;
    if (at == h->count) return;
    sift_up(h, at);
    sift_down(h, at);
}

int32_t proa_value_heap_first(const proa_value_heap *h)
{
    return h->count ? h->item[0] : -1;
}
