/* SPDX-License-Identifier: Apache-2.0
 * logits_mask.c - allowed words and grammars: a bit for each token that may come next, applied on the host or given to
 * a device. */
#include "engine/decode/logits_state.h"

#include <math.h>

/* ---- bits ---- */

static void set_bit(const proa_logits_processor *l, uint32_t *mask, int32_t id, bool on)
{
    uint32_t bit = (uint32_t)1 << (id & 31);
    if (!is_column(l, id)) return;
    mask[id >> 5] = on ? mask[id >> 5] | bit : mask[id >> 5] & ~bit;
}

static void set_end_bits(const proa_logits_processor *l, uint32_t *mask, bool on)
{
    for (int32_t i = 0; i < l->options.end_ids_count; i++) set_bit(l, mask, l->options.end_ids[i], on);
}

/* A rule of Proa; in transformers it would be a prefix_allowed_tokens_fn, after all other processors. */
static void mask_of_words(const proa_logits_processor *l, const proa_history *h, uint32_t *mask)
{
    if (proa_word_tree_mask(&l->words, h->generated, h->generated_count, mask, l->vocab))
        set_end_bits(l, mask, true);
}

/* n columns, at most 32, of which only those with a bit stay. */
static void apply_mask_word(float *row, uint32_t bits, int64_t n)
{
    float kept[32];
    memcpy(kept, row, (size_t)n * sizeof *row);
    for (int64_t k = 0; k < n; k++) row[k] = -INFINITY;
    for (; bits; bits &= bits - 1) row[PROA_LOWEST_BIT32(bits)] = kept[PROA_LOWEST_BIT32(bits)];
}

/* Most words of a mask are full, inside texts, or empty; of the others most allow few tokens, or ban few. */
static void apply_mask(const proa_logits_processor *l, float *row)
{
    int64_t whole = l->vocab / 32, rest = l->vocab % 32;
    for (int64_t i = 0; i < whole; i++) {
        uint32_t bits = l->mask[i];
        if (PROA_POPCOUNT32(bits) < 16) apply_mask_word(row + 32 * i, bits, 32);
        else
            for (uint32_t banned = ~bits; banned; banned &= banned - 1)
                row[32 * i + PROA_LOWEST_BIT32(banned)] = -INFINITY;
    }
    if (rest) apply_mask_word(row + 32 * whole, l->mask[whole] & (((uint32_t)1 << rest) - 1), rest);
}

void proa_logits_apply_words(const proa_logits_processor *l, float *row, const proa_history *h)
{
    mask_of_words(l, h, l->mask);
    apply_mask(l, row);
}

/* ---- a grammar ---- */

static bool allows_any(const proa_logits_processor *l, const uint32_t *mask)
{
    uint32_t any = 0;
    for (int64_t i = 0; i < mask_words(l); i++) any |= mask[i];
    return any != 0;
}

/* End tokens are allowed where the grammar may end, and nowhere else; with ignore_eos only where it must. A state that
 * the grammar does not know, or that does not fit, allows nothing: the sampler then ends the sequence with an error. */
static void mask_of_grammar(const proa_logits_processor *l, const proa_history *h, uint32_t *mask)
{
    bool may_end = false;
    int64_t words = proa_matcher_words(l->grammar);
    if (proa_matcher_mask(l->grammar, l->places, h->generated, h->generated_count, mask, &may_end, NULL) != PROA_OK)
        words = 0, may_end = false;
    memset(mask + words, 0, (size_t)(mask_words(l) - words) * sizeof *mask);
    set_end_bits(l, mask, false);
    set_end_bits(l, mask, may_end && !(l->options.ignore_eos && allows_any(l, mask)));
}

void proa_logits_apply_grammar(const proa_logits_processor *l, float *row, const proa_history *h)
{
    if (!l->grammar) return;
    mask_of_grammar(l, h, l->mask);
    apply_mask(l, row);
}

bool proa_logits_processor_has_mask(const proa_logits_processor *l)
{
    return l && l->mask;
}

/* Both kinds of masks do not go together (proa_options_check). */
void proa_logits_processor_mask(const proa_logits_processor *l, const proa_history *history, uint32_t *mask)
{
    if (l->grammar) mask_of_grammar(l, history, mask);
    else mask_of_words(l, history, mask);
}

static const char *constraint_name(const proa_options *o)
{
    if (o->json_schema) return "json_schema";
    if (o->json_object) return "json_object";
    if (o->regex) return "regex";
    if (o->grammar) return "grammar";
    return o->choice.count ? "choice" : "allowed_words";
}

proa_status proa_logits_processor_check(const proa_logits_processor *l, const proa_history *history, proa_err *err)
{
    bool ends;
    proa_err why = {.status = PROA_OK};
    if (!l || !l->mask) return PROA_OK;
    const char *name = constraint_name(&l->options);
    if (l->grammar && proa_matcher_mask(l->grammar, l->places, history->generated, history->generated_count,
                                        NULL, &ends, &why) != PROA_OK)
        return PROA_FAIL(err, LIMIT, "option '%s': %s", name, why.text);
    proa_logits_processor_mask(l, history, l->mask);
    if (allows_any(l, l->mask)) return PROA_OK;
    return PROA_FAIL(err, INVALID, "option '%s': no token of the vocabulary can follow after %lld tokens",
                     name, (long long)history->generated_count);
}
