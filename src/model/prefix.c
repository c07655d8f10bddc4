/* SPDX-License-Identifier: Apache-2.0
 * prefix.c - finds the prefix and the blank of a prompt, and the positions that follow from them. */
#include "model/prefix.h"

#include "base/limits.h"

/* Index of the first such id, or -1. */
static int64_t find_id(const int32_t *ids, int64_t count, int64_t id)
{
    for (int64_t i = 0; i < count; i++)
        if (ids[i] == id) return i;
    return -1;
}

proa_status proa_prefix_find(proa_prefix *out, const proa_config *c, const int32_t *ids, int64_t count,
                             proa_err *err)
{
    *out = (proa_prefix){.used = false};
    if (c->prefix_end < 0) return PROA_OK;
    int64_t rows = find_id(ids, count, c->prefix_end), blank = find_id(ids, count, c->blank_ids[0]);
    if (blank < 0) blank = find_id(ids, count, c->blank_ids[1]);
    if (rows < 0 || blank < 0)
        return PROA_FAIL(err, INVALID,
                         "the prompt needs a blank (id %lld or %lld), and id %lld, which begins the answer",
                         (long long)c->blank_ids[0], (long long)c->blank_ids[1], (long long)c->prefix_end);
    if (rows > PROA_STEP_TOKENS_MAX)
        return PROA_FAIL(err, LIMIT, "the prompt has %lld tokens before the answer, at most %d are taken",
                         (long long)rows, (int)PROA_STEP_TOKENS_MAX);
    *out = (proa_prefix){true, (int32_t)rows, (int32_t)blank};
    return PROA_OK;
}

int64_t proa_prefix_position(const proa_prefix *p, int64_t index)
{
    return !p->used || index < p->rows ? index : p->blank;
}

int64_t proa_prefix_block_position(const proa_prefix *p, int64_t index)
{
    return !p->used || index < p->rows ? 0 : index - p->rows + 1;
}
