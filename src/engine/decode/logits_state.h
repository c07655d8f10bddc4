/* SPDX-License-Identifier: Apache-2.0
 * logits_state.h - the inside of logits processors, for logits_processor.c (the processors, their order and their
 * life), logits_mask.c (allowed words and grammars) and logits_entries.c (what a device applies).
 *
 * Tokens of the history are counted in an array with one entry per column. An entry is valid only if its epoch is
 * the current one, so the array is never cleared and only entries of tokens that occur are touched. */
#ifndef PROA_ENGINE_DECODE_LOGITS_STATE_H
#define PROA_ENGINE_DECODE_LOGITS_STATE_H

#include "base/arena.h"
#include "options/options.h"
#include "engine/decode/logits_processor.h"
#include "engine/decode/word_tree.h"
#include <string.h>

typedef struct proa_token_count {
    uint32_t epoch;
    int32_t count;
} proa_token_count;

/* Working memory of one request: its rows are processed one after the other. */
typedef struct proa_logits_scratch {
    uint32_t epoch;
    proa_token_count *counts; /* [vocab] */
    int32_t last_job;         /* of the jobs that are run: the last one of this request so far; -1: none */
} proa_logits_scratch;

/* One processor of a style. */
typedef struct proa_logits_rule {
    const char *name;
    bool (*wanted)(const proa_options *o);
    void (*apply)(const proa_logits_processor *l, float *row, const proa_history *h);
} proa_logits_rule;

enum { PROA_LOGITS_RULES_MAX = 20 }; /* of a style, and NULL */

struct proa_logits_processor {
    proa_arena arena;
    proa_options options; /* lists are copies */
    int64_t vocab;
    const proa_logits_rule *processors[PROA_LOGITS_RULES_MAX];
    int count;
    proa_word_tree words;       /* allowed */
    proa_matcher *grammar;      /* NULL: none */
    proa_matcher_place *places; /* [PROA_PLACES] of its sequences */
    uint32_t *mask; /* a bit for each column: tokens that the grammar or the words allow next; or NULL */
    proa_logits_scratch *scratch;
};

/* ---- masks: logits_mask.c ---- */

/* Processors: only the allowed words, or what the grammar allows, keep their logits. */
void proa_logits_apply_words(const proa_logits_processor *l, float *row, const proa_history *h);
void proa_logits_apply_grammar(const proa_logits_processor *l, float *row, const proa_history *h);

/* ---- shared rules: logits_processor.c ---- */

/* The token that must follow `generated` tokens after a prompt (of an encoder-decoder: the decoder's); -1: any may. */
int32_t proa_logits_forced_token(const proa_options *o, int64_t prompt_count, int64_t generated);
/* Whether these are the logits of the first token that is free. */
bool proa_logits_begins_here(const proa_options *o, const proa_history *h, int64_t generated);
/* Whether a word's last token is banned now. */
bool proa_logits_is_banned(const proa_options *o, const proa_history *h, const int32_t *ids, int64_t n);

/* ---- the history ---- */

static inline int64_t length_of(const proa_history *h)
{
    return h->prompt_count + h->generated_count;
}

static inline int32_t token_at(const proa_history *h, int64_t i)
{
    return i < h->prompt_count ? h->prompt[i] : h->generated[i - h->prompt_count];
}

static inline bool is_column(const proa_logits_processor *l, int32_t id)
{
    return id >= 0 && id < l->vocab;
}

/* Whether the last n tokens of h are these. */
static inline bool ends_with(const proa_history *h, const int32_t *ids, int64_t n)
{
    int64_t length = length_of(h);
    if (n > length) return false;
    for (int64_t i = n; i-- > 0;)
        if (token_at(h, length - n + i) != ids[i]) return false;
    return true;
}

/* Whether the n tokens of h from position `at` on are the same as its last n. */
static inline bool repeats_end(const proa_history *h, int64_t at, int64_t n)
{
    int64_t length = length_of(h);
    for (int64_t i = n; i-- > 0;)
        if (token_at(h, at + i) != token_at(h, length - n + i)) return false;
    return true;
}

/* Words of a mask with a bit for each column. */
static inline int64_t mask_words(const proa_logits_processor *l)
{
    return (l->vocab + 31) / 32;
}

/* ---- counts ---- */

static inline void next_epoch(const proa_logits_processor *l)
{
    proa_logits_scratch *s = l->scratch;
    if (++s->epoch != 0) return;
    memset(s->counts, 0, (size_t)l->vocab * sizeof *s->counts); /* once in 2^32 */
    s->epoch = 1;
}

static inline proa_token_count *count_of(const proa_logits_processor *l, int32_t id)
{
    proa_token_count *m = &l->scratch->counts[id];
    if (m->epoch != l->scratch->epoch) *m = (proa_token_count){l->scratch->epoch, 0};
    return m;
}

/* ---- which options want which processor ---- */

/* FasterTransformer's default is 1; 0 means "not given" unless it is marked in `given`. */
static inline float temperature_of(const proa_options *o)
{
    return o->temperature > 0 || o->given[PROA_OPTION_temperature] ? o->temperature : 1;
}

static inline bool is_forced(const proa_options *o, int32_t id, proa_option option)
{
    return id > 0 || (id == 0 && o->given[option]);
}

static inline bool wants_bias(const proa_options *o)
{
    return o->logit_bias_count > 0;
}

/* ft divides whenever it adds (BaseSamplingLayer::forward), trtllm when T is not 1. */
static inline bool wants_temperature(const proa_options *o)
{
    return temperature_of(o) != 1 || (o->style == PROA_STYLE_FT && wants_bias(o));
}

static inline bool wants_repetition(const proa_options *o)
{
    return o->repetition_penalty > 0 && o->repetition_penalty != 1;
}

static inline bool wants_sequence_bias(const proa_options *o)
{
    return o->sequence_bias.words.count > 0;
}

static inline bool wants_encoder_repetition(const proa_options *o)
{
    return o->encoder_repetition_penalty > 0 && o->encoder_repetition_penalty != 1;
}

static inline bool wants_encoder_no_repeat(const proa_options *o)
{
    return o->encoder_no_repeat_ngram > 0;
}

static inline bool wants_decay(const proa_options *o)
{
    return o->exponential_decay_factor > 0 && o->exponential_decay_factor != 1 && o->end_ids_count > 0;
}

static inline bool wants_suppress(const proa_options *o)
{
    return o->suppress_tokens.count > 0;
}

static inline bool wants_begin_suppress(const proa_options *o)
{
    return o->begin_suppress_tokens.count > 0;
}

static inline bool wants_renormalize(const proa_options *o)
{
    return o->renormalize_logits;
}

static inline bool wants_counts(const proa_options *o)
{
    return o->presence_penalty != 0 || o->frequency_penalty != 0;
}

static inline bool wants_no_repeat(const proa_options *o)
{
    return o->no_repeat_ngram > 0;
}

static inline bool wants_banned(const proa_options *o)
{
    return o->banned_words.count > 0;
}

static inline bool wants_min(const proa_options *o)
{
    return o->min_tokens > 0 && o->end_ids_count > 0 && !o->ignore_eos;
}

static inline bool wants_allowed(const proa_options *o)
{
    return o->allowed_words.count > 0;
}

static inline bool wants_grammar(const proa_options *o)
{
    return proa_options_constrain(o);
}

static inline bool wants_mask(const proa_options *o)
{
    return wants_allowed(o) || wants_grammar(o);
}

static inline bool wants_forced(const proa_options *o)
{
    return is_forced(o, o->forced_bos_id, PROA_OPTION_forced_bos_id) ||
           is_forced(o, o->forced_eos_id, PROA_OPTION_forced_eos_id);
}

#endif
