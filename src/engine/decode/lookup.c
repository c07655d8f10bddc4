/* SPDX-License-Identifier: Apache-2.0
 * lookup.c - prompt lookup: an index of pairs of tokens, and how often its guesses are right. */
#include "engine/decode/lookup.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <stdlib.h>
#include <string.h>

/* Places of a pair that are looked at. */
enum { PROA_LOOKUP_WALK = 64 };

/* Least weight of a new guess, and how many guesses the first rates stand for. */
#define LEARN_SHARE (1.0F / 64)
#define FIRST_COUNT 4

void proa_lookup_init(proa_lookup *l, int64_t capacity)
{
    *l = (proa_lookup){.capacity = capacity, .slots = 16};
    while (l->slots < capacity) l->slots *= 2;
    l->text = proa_malloc((size_t)capacity * sizeof *l->text);
    l->earlier = proa_malloc((size_t)capacity * sizeof *l->earlier);
    l->newest = proa_malloc((size_t)l->slots * sizeof *l->newest);
    memset(l->newest, 0xff, (size_t)l->slots * sizeof *l->newest);
}

void proa_lookup_release(proa_lookup *l)
{
    free(l->text);
    free(l->earlier);
    free(l->newest);
    *l = (proa_lookup){0};
}

/* The entry of the pair that ends at text[i] (multiplicative hashing, Knuth). */
static int32_t *entry_of(const proa_lookup *l, int64_t i)
{
    uint64_t pair = (uint64_t)(uint32_t)l->text[i - 1] << 32 | (uint32_t)l->text[i];
    uint64_t hash = pair * UINT64_C(0x9e3779b97f4a7c15);
    return &l->newest[(hash >> 32) & (uint64_t)(l->slots - 1)];
}

void proa_lookup_append(proa_lookup *l, const int32_t *ids, int64_t count)
{
    for (int64_t n = 0; n < count && l->count < l->capacity; n++) {
        int64_t i = l->count++;
        l->text[i] = ids[n];
        l->earlier[i] = -1;
        if (i == 0) continue;
        int32_t *entry = entry_of(l, i);
        l->earlier[i] = *entry;
        *entry = (int32_t)i;
    }
    l->length = 0;
}

static int32_t match_length(const int32_t *text, int64_t a, int64_t b)
{
    int32_t n = 0;
    while (n < PROA_LOOKUP_MOST && a >= n && text[a - n] == text[b - n]) n++;
    return n;
}

void proa_lookup_find(proa_lookup *l)
{
    int64_t last = l->count - 1;
    l->length = 0;
    if (last < 1) return;
    int32_t longest = PROA_LOOKUP_LEAST - 1, walk = 0;
    for (int64_t i = l->earlier[last]; i >= 0 && walk < PROA_LOOKUP_WALK; i = l->earlier[i], walk++) {
        int32_t n = match_length(l->text, i, last);
        if (n > longest) longest = l->length = n, l->at = i;
        if (n == PROA_LOOKUP_MOST) break;
    }
}

int32_t proa_lookup_guess(const proa_lookup *l)
{
    return l->length ? l->text[l->at + 1] : -1;
}

int32_t proa_lookup_copy(const proa_lookup *l, int32_t *ids, int32_t size)
{
    if (l->length == 0) return 0;
    int32_t n = (int32_t)proa_min64(size, l->count - 1 - l->at);
    memcpy(ids, l->text + l->at + 1, (size_t)n * sizeof *ids);
    return n;
}

void proa_lookup_rates_init(proa_lookup_rates *r)
{
    memset(r, 0, sizeof *r);
    for (int32_t n = 0; n <= PROA_LOOKUP_MOST; n++)
        r->right[n] = 0.4F + 0.5F * (float)n / PROA_LOOKUP_MOST; /* between those of greedy and of sampled text */
}

void proa_lookup_learn(proa_lookup_rates *r, int32_t length, bool right)
{
    int32_t n = (int32_t)proa_min64(length, PROA_LOOKUP_MOST);
    float share = 1.0F / (float)(++r->seen[n] + FIRST_COUNT);
    if (share < LEARN_SHARE) share = LEARN_SHARE, r->seen[n]--;
    r->right[n] += share * ((right ? 1.0F : 0.0F) - r->right[n]);
}

int32_t proa_lookup_chances(const proa_lookup *l, const proa_lookup_rates *r, float luck, int32_t unknown,
                            float *chances, int32_t size)
{
    if (l->length == 0) return 0;
    int64_t found = proa_min64(size + unknown, l->count - 1 - l->at);
    float likely = 1;
    for (int32_t d = 0; d < found; d++) {
        float right = r->right[proa_min64(l->length + d, PROA_LOOKUP_MOST)] * luck;
        likely *= right < 1 ? right : 1;
        if (d >= unknown) chances[d - unknown] = likely;
    }
    return (int32_t)proa_max64(0, found - unknown);
}
