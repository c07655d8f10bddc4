/* SPDX-License-Identifier: Apache-2.0
 * options.c - options from tensors, by rows of a batch (serve/generation_read.h has the names and the setters). */
#include "backends/llm/contract.h"

#include "backends/tensors/word_lists.h"
#include "base/limits.h"

static proa_status must_be(const proa_option_row *row, const char *what, proa_err *err)
{
    return PROA_FAIL(err, INVALID, "option '%s' must be %s", row->name, what);
}

static proa_status read_texts(proa_options *o, const proa_option_row *row, proa_tensor_row in,
                              proa_arena *arena, proa_err *err)
{
    int64_t each = proa_tensor_count(in.t) / in.rows, begin = in.row * each, found = 0;
    proa_str *list = PROA_ARENA_NEW(arena, proa_str, each), text;
    size_t at = 0;
    for (int64_t i = 0; i < begin + each && proa_tensor_next_string(in.t, &at, &text); i++)
        if (i >= begin) list[found++] = text;
    return proa_option_set_texts(o, row, list, found, arena, err);
}

/* A bias for each token of the vocabulary, of which most are 0. */
static proa_status read_dense_bias(proa_options *o, const proa_option_row *row, proa_tensor_row in,
                                   proa_arena *arena, proa_err *err)
{
    int64_t each = proa_tensor_count(in.t) / in.rows, n = 0, begin = in.row * each;
    double value = 0;
    for (int64_t i = 0; i < each; i++) n += proa_element_double(in.t, begin + i, &value) && value != 0;
    if (n > PROA_WORD_IDS_MAX)
        return PROA_FAIL(err, LIMIT, "option '%s' has %lld entries", row->name, (long long)n);
    proa_bias *list = PROA_ARENA_NEW(arena, proa_bias, n);
    o->logit_bias = list;
    o->logit_bias_count = 0;
    for (int64_t i = 0; i < each; i++) {
        if (!proa_element_double(in.t, begin + i, &value) || value == 0) continue;
        if (!proa_option_in_range(row, value)) return proa_option_out_of_range(row, value, err);
        list[o->logit_bias_count++] = (proa_bias){(int32_t)i, (float)value};
    }
    if (n) o->given[PROA_OPTION_logit_bias] = true;
    return PROA_OK;
}

/* end_ids and lists of tokens. */
static proa_status read_ids(proa_options *o, const proa_option_row *row, proa_tensor_row in,
                            proa_arena *arena, proa_err *err)
{
    int64_t each = proa_tensor_count(in.t) / in.rows, id = 0;
    if (each > PROA_WORD_IDS_MAX)
        return PROA_FAIL(err, LIMIT, "option '%s' has %lld ids, at most %d are taken", row->name,
                         (long long)each, PROA_WORD_IDS_MAX);
    int32_t *ids = PROA_ARENA_NEW(arena, int32_t, each);
    for (int64_t i = 0; i < each; i++) {
        if (!proa_element_int(in.t, in.row * each + i, &id)) return must_be(row, "made of token ids", err);
        if (id < INT32_MIN || id > INT32_MAX)
            return PROA_FAIL(err, INVALID, "option '%s' has the token id %lld", row->name, (long long)id);
        ids[i] = (int32_t)id;
    }
    return proa_option_set_ids(o, row, ids, each, arena, err);
}

static proa_status read_number(proa_options *o, const proa_option_row *row, proa_tensor_row in,
                               proa_arena *arena, proa_err *err)
{
    int64_t at = in.row * (proa_tensor_count(in.t) / in.rows), seed = 0;
    double value = 0;
    if (row->kind == PROA_OPTION_KIND_U64) {
        if (!proa_element_int(in.t, at, &seed)) return must_be(row, "an integer", err);
        proa_option_set_seed(o, row, (uint64_t)seed);
        return PROA_OK;
    }
    if (row->kind == PROA_OPTION_KIND_TEXT) {
        if (!proa_element_int(in.t, at, &seed)) return must_be(row, "a text or an integer", err);
        return proa_option_set_integer_text(o, row, seed, arena, err);
    }
    if (!proa_element_double(in.t, at, &value)) return must_be(row, "a number", err);
    return proa_option_set_number(o, row, value, err);
}

proa_status proa_option_read(proa_options *o, const proa_option_row *row, proa_tensor_row in,
                             proa_arena *arena, proa_err *err)
{
    int64_t count = proa_tensor_count(in.t);
    if (count <= 0) return PROA_OK;
    if (count % in.rows != 0 && count != 1)
        return PROA_FAIL(err, INVALID, "input '%s' has %lld elements for a batch of %lld", in.t->name,
                         (long long)count, (long long)in.rows);
    if (count == 1) in.row = 0, in.rows = 1; /* the same for all rows */
    if (in.t->type == PROA_TYPE_BYTES) return read_texts(o, row, in, arena, err);
    switch (row->kind) {
    case PROA_OPTION_KIND_WORDS: {
        proa_status status = proa_words_read(proa_option_field(o, row), in, arena, err);
        if (status == PROA_OK) o->given[row->option] = true;
        return status;
    }
    case PROA_OPTION_KIND_BIAS: return read_dense_bias(o, row, in, arena, err);
    case PROA_OPTION_KIND_TOKENS:
    case PROA_OPTION_KIND_IDS: return read_ids(o, row, in, arena, err);
    default: return read_number(o, row, in, arena, err);
    }
}
