/* SPDX-License-Identifier: Apache-2.0
 * check.c - what a request may not ask for: ranges, ids outside of the vocabulary, contradictions. */
#include "options/options.h"

#include "base/limits.h"
#include <float.h>
#include <math.h>
#include <string.h>

/* The words of a list of words, or of the biases of such a list: proa_sequence_bias begins with them. */
static proa_status check_words(const proa_options *o, const proa_option_row *row, int64_t vocab, proa_err *err)
{
    const proa_words *w = proa_option_field(o, row);
    int32_t total = w->count > 0 ? w->ends[w->count - 1] : 0;
    if (w->count < 0 || total < 0 || total > PROA_WORD_IDS_MAX)
        return PROA_FAIL(err, LIMIT, "option '%s' has %d words of %d ids, at most %d are taken", row->name,
                         w->count, total, PROA_WORD_IDS_MAX);
    for (int32_t i = 0, begin = 0; i < w->count; begin = w->ends[i++])
        if (w->ends[i] <= begin || w->ends[i] > total)
            return PROA_FAIL(err, INVALID, "option '%s': word %d is empty", row->name, i);
    for (int32_t i = 0; i < total; i++)
        if (w->ids[i] < 0 || w->ids[i] >= vocab)
            return PROA_FAIL(err, INVALID, "option '%s': token id %d is outside of the vocabulary (0 to %lld)",
                             row->name, w->ids[i], (long long)vocab - 1);
    return PROA_OK;
}

static proa_status check_sequence_bias(const proa_options *o, const proa_option_row *row, int64_t vocab,
                                       proa_err *err)
{
    PROA_TRY(check_words(o, row, vocab, err));
    for (int32_t i = 0; i < o->sequence_bias.words.count; i++)
        if (!proa_option_in_range(row, (double)o->sequence_bias.values[i]))
            return proa_option_out_of_range(row, (double)o->sequence_bias.values[i], err);
    return PROA_OK;
}

static proa_status check_tokens(const proa_options *o, const proa_option_row *row, int64_t vocab, proa_err *err)
{
    const proa_tokens *t = proa_option_field(o, row);
    if (t->count < 0 || t->count > PROA_WORD_IDS_MAX)
        return PROA_FAIL(err, LIMIT, "option '%s' has %d ids, at most %d are taken", row->name, t->count,
                         PROA_WORD_IDS_MAX);
    for (int32_t i = 0; i < t->count; i++)
        if (t->ids[i] < 0 || t->ids[i] >= vocab)
            return PROA_FAIL(err, INVALID, "option '%s': token id %d is outside of the vocabulary (0 to %lld)",
                             row->name, t->ids[i], (long long)vocab - 1);
    return PROA_OK;
}

static proa_status check_strings(const proa_options *o, const proa_option_row *row, int64_t vocab, proa_err *err)
{
    const proa_strings *s = proa_option_field(o, row);
    PROA_UNUSED(vocab);
    if (s->count < 0 || s->count > PROA_STRINGS_MAX)
        return PROA_FAIL(err, LIMIT, "option '%s' has %d strings, at most %d are taken", row->name, s->count,
                         PROA_STRINGS_MAX);
    for (int32_t i = 0; i < s->count; i++)
        if (!s->text[i] || !*s->text[i])
            return PROA_FAIL(err, INVALID, "option '%s' has an empty string", row->name);
    return PROA_OK;
}

static proa_status check_text(const proa_options *o, const proa_option_row *row, int64_t vocab, proa_err *err)
{
    const char *text = *(const char *const *)proa_option_field(o, row);
    PROA_UNUSED(vocab);
    if (!text || strnlen(text, PROA_GRAMMAR_BYTES_MAX + 1) <= PROA_GRAMMAR_BYTES_MAX) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "option '%s' has more than %d bytes", row->name, PROA_GRAMMAR_BYTES_MAX);
}

static proa_status check_end_ids(const proa_options *o, const proa_option_row *row, int64_t vocab, proa_err *err)
{
    if (o->end_ids_count < 0 || o->end_ids_count > PROA_END_IDS_MAX)
        return PROA_FAIL(err, INVALID, "option '%s' has %d ids, must be 0 to %d", row->name, o->end_ids_count,
                         PROA_END_IDS_MAX);
    for (int32_t i = 0; i < o->end_ids_count; i++)
        if (o->end_ids[i] < 0 || o->end_ids[i] >= vocab)
            return PROA_FAIL(err, INVALID, "option '%s': token id %d is outside of the vocabulary (0 to %lld)",
                             row->name, o->end_ids[i], (long long)vocab - 1);
    return PROA_OK;
}

static proa_status check_bias(const proa_options *o, const proa_option_row *row, int64_t vocab, proa_err *err)
{
    for (int32_t i = 0; i < o->logit_bias_count; i++) {
        const proa_bias *b = &o->logit_bias[i];
        if (b->id >= 0 && b->id < vocab && proa_option_in_range(row, (double)b->value)) continue;
        return PROA_FAIL(err, INVALID, "option '%s': token %d with %g, ids are 0 to %lld, values %.10g to %.10g",
                         row->name, b->id, (double)b->value, (long long)vocab - 1, row->min, row->max);
    }
    return PROA_OK;
}

static proa_status check_number(const proa_options *o, const proa_option_row *row, int64_t vocab, proa_err *err)
{
    double value = proa_option_number(o, row);
    bool given = o->given[row->option];
    PROA_UNUSED(vocab);
    if ((!given && value == 0) || proa_option_in_range(row, value)) return PROA_OK;
    return proa_option_out_of_range(row, value, err);
}

static proa_status check_choice(const proa_options *o, const proa_option_row *row, int64_t vocab, proa_err *err)
{
    int value = row->kind == PROA_OPTION_KIND_STYLE ? (int)o->style : (int)o->early_stopping;
    PROA_UNUSED(vocab);
    if (value >= 0 && value <= 2) return PROA_OK;
    return PROA_FAIL(err, INVALID, "option '%s' is %d, must be 0 to 2", row->name, value);
}

typedef proa_status check_fn(const proa_options *o, const proa_option_row *row, int64_t vocab, proa_err *err);
static check_fn *const checks[] = {[PROA_OPTION_KIND_INT] = check_number,
                                   [PROA_OPTION_KIND_FLOAT] = check_number,
                                   [PROA_OPTION_KIND_U64] = NULL,
                                   [PROA_OPTION_KIND_BOOL] = NULL,
                                   [PROA_OPTION_KIND_STYLE] = check_choice,
                                   [PROA_OPTION_KIND_EARLY] = check_choice,
                                   [PROA_OPTION_KIND_IDS] = check_end_ids,
                                   [PROA_OPTION_KIND_WORDS] = check_words,
                                   [PROA_OPTION_KIND_STRINGS] = check_strings,
                                   [PROA_OPTION_KIND_BIAS] = check_bias,
                                   [PROA_OPTION_KIND_TOKENS] = check_tokens,
                                   [PROA_OPTION_KIND_SEQUENCE_BIAS] = check_sequence_bias,
                                   [PROA_OPTION_KIND_TEXT] = check_text};

static proa_status fail_contradiction(const char *a, double x, const char *b, double y, const char *why,
                                      proa_err *err)
{
    return PROA_FAIL(err, INVALID, "options '%s' %g and '%s' %g contradict: %s", a, x, b, y, why);
}

static proa_status check_beams(const proa_options *o, proa_err *err)
{
    if (o->beam_groups > 1 && o->temperature > 0 && o->style == PROA_STYLE_HF)
        return fail_contradiction("beam_groups", o->beam_groups, "temperature", (double)o->temperature,
                                  "groups of beams do not sample", err);
    if (o->n > 1 || o->best_of > 1)
        return fail_contradiction("beams", o->beams, "n", o->n > 1 ? o->n : o->best_of,
                                  "beams_returned tells how many", err);
    if (o->beams_returned > o->beams)
        return fail_contradiction("beams_returned", o->beams_returned, "beams", o->beams,
                                  "there are not so many", err);
    if (o->beam_groups > 1 && o->beams % o->beam_groups != 0)
        return fail_contradiction("beam_groups", o->beam_groups, "beams", o->beams,
                                  "beams must be a multiple", err);
    if (o->beam_groups > 1 && o->style != PROA_STYLE_HF)
        return fail_contradiction("beam_groups", o->beam_groups, "style", o->style, "groups are of style hf",
                                  err);
    if (o->diversity_penalty > 0 && o->beam_groups <= 1)
        return fail_contradiction("diversity_penalty", (double)o->diversity_penalty, "beam_groups",
                                  o->beam_groups, "it works between groups", err);
    if (o->penalty_alpha > 0)
        return fail_contradiction("penalty_alpha", (double)o->penalty_alpha, "beams", o->beams,
                                  "contrastive search has no beams", err);
    return PROA_OK;
}

static proa_status check_contrastive(const proa_options *o, proa_err *err)
{
    double alpha = (double)o->penalty_alpha;
    if (o->top_k < 2)
        return fail_contradiction("penalty_alpha", alpha, "top_k", o->top_k,
                                  "contrastive search needs top_k > 1", err);
    if (o->temperature > 0)
        return fail_contradiction("penalty_alpha", alpha, "temperature", (double)o->temperature,
                                  "contrastive search does not sample", err);
    if (o->return_logits || o->return_hidden || o->top_logprobs)
        return fail_contradiction("penalty_alpha", alpha, "top_logprobs", o->top_logprobs,
                                  "contrastive search gives no logits, hidden states or alternatives", err);
    if (o->n > 1 || o->best_of > 1)
        return fail_contradiction("penalty_alpha", alpha, "n", o->n, "contrastive search has one sequence", err);
    return PROA_OK;
}

/* One grammar at most. */
static proa_status check_grammars(const proa_options *o, proa_err *err)
{
    static const proa_option all[] = {PROA_OPTION_json_schema, PROA_OPTION_json_object, PROA_OPTION_regex,
                                      PROA_OPTION_grammar, PROA_OPTION_choice};
    const bool given[] = {o->json_schema != NULL, o->json_object, o->regex != NULL, o->grammar != NULL,
                          o->choice.count > 0};
    int first = -1;
    for (int i = 0; i < (int)PROA_COUNT(all); i++) {
        if (!given[i]) continue;
        if (first >= 0)
            return PROA_FAIL(err, INVALID, "options '%s' and '%s' contradict: one grammar constrains the output",
                             proa_option_rows[all[first]].name, proa_option_rows[all[i]].name);
        first = i;
    }
    if (first < 0) return PROA_OK;
    if (o->allowed_words.count)
        return PROA_FAIL(err, INVALID,
                         "options '%s' and 'allowed_words' contradict: one grammar constrains the output",
                         proa_option_rows[all[first]].name);
    return PROA_OK;
}

static proa_status check_together(const proa_options *o, int64_t sequences_max, proa_err *err)
{
    int32_t width = o->beams > 1 ? o->beams : o->best_of > o->n ? o->best_of : o->n;
    if (o->penalty_alpha > 0) width = o->top_k;
    if (width > sequences_max)
        return PROA_FAIL(err, INVALID, "options ask for %d sequences at once, at most %lld run (--sequences)",
                         width, (long long)sequences_max);
    if (o->beams > 1) return check_beams(o, err);
    if (o->best_of > 0 && o->best_of < o->n)
        return fail_contradiction("best_of", o->best_of, "n", o->n, "best_of must not be less", err);
    return o->penalty_alpha > 0 ? check_contrastive(o, err) : PROA_OK;
}

proa_status proa_options_check(const proa_options *o, int64_t vocab, int64_t sequences_max, proa_err *err)
{
    for (int i = 0; i < PROA_OPTION_COUNT; i++) {
        const proa_option_row *row = &proa_option_rows[i];
        if (checks[row->kind]) PROA_TRY(checks[row->kind](o, row, vocab, err));
    }
    bool penalties = o->repetition_penalty != 0 && o->repetition_penalty != 1 && o->presence_penalty != 0;
    if (o->style == PROA_STYLE_FT && penalties)
        return fail_contradiction("repetition_penalty", (double)o->repetition_penalty, "presence_penalty",
                                  (double)o->presence_penalty, "FasterTransformer takes one of them", err);
    PROA_TRY(check_grammars(o, err));
    return check_together(o, sequences_max, err);
}
