/* SPDX-License-Identifier: Apache-2.0
 * word_lists.c - lists of words as ids, from tensors of the three forms that clients send. */
#include "backends/tensors/word_lists.h"

#include "base/limits.h"
#include <string.h>

static proa_status bad_end(const proa_tensor *t, int64_t end, int64_t before, int64_t width, proa_err *err)
{
    return PROA_FAIL(err, INVALID, "input '%s': a word ends at %lld, must be above %lld and at most %lld",
                     t->name, (long long)end, (long long)before, (long long)width);
}

/* How many words, and where the last one ends. */
static proa_status count_words(const proa_tensor *t, int64_t ends_at, int64_t width, int64_t *words,
                               int64_t *ids, proa_err *err)
{
    *words = *ids = 0;
    for (int64_t i = 0; i < width; i++) {
        int64_t end = 0;
        if (!proa_element_int(t, ends_at + i, &end))
            return PROA_FAIL(err, INVALID, "input '%s' must be made of integers", t->name);
        if (end == -1) break;
        if (end < *ids || end > width) return bad_end(t, end, *ids, width, err);
        *words += end > *ids;
        *ids = end;
    }
    return PROA_OK;
}

proa_status proa_words_read(proa_words *out, proa_tensor_row in, proa_arena *arena, proa_err *err)
{
    const proa_tensor *t = in.t;
    int64_t each = proa_tensor_count(t) / in.rows, width = each / 2, at = in.row * each, words = 0, count = 0;
    if (each % 2 != 0)
        return PROA_FAIL(err, INVALID, "input '%s' has %lld numbers, a list of words has two rows", t->name,
                         (long long)each);
    if (width > PROA_WORD_IDS_MAX)
        return PROA_FAIL(err, LIMIT, "input '%s' has %lld ids, at most %d are taken", t->name,
                         (long long)width, PROA_WORD_IDS_MAX);
    PROA_TRY(count_words(t, at + width, width, &words, &count, err));
    int32_t *ids = PROA_ARENA_NEW(arena, int32_t, count), *ends = PROA_ARENA_NEW(arena, int32_t, words);
    *out = (proa_words){ids, ends, 0};
    for (int64_t i = 0, before = 0; i < width && out->count < words; i++) {
        int64_t end = 0, id = 0;
        proa_element_int(t, at + width + i, &end);
        for (int64_t k = before; k < end; k++) {
            proa_element_int(t, at + k, &id);
            if (id < 0 || id > PROA_VOCAB_MAX)
                return PROA_FAIL(err, INVALID, "input '%s' has the token id %lld", t->name, (long long)id);
            ids[k] = (int32_t)id;
        }
        if (end > before) ends[out->count++] = (int32_t)end;
        before = end;
    }
    return PROA_OK;
}

void proa_words_write(int32_t *to, int64_t width, const proa_ids *ids, const proa_ids *ends)
{
    for (int64_t i = 0; i < width; i++) {
        to[i] = i < ids->len ? ids->ptr[i] : 0;
        to[width + i] = i < ends->len ? ends->ptr[i] : -1;
    }
}
