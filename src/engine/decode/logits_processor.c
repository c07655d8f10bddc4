/* SPDX-License-Identifier: Apache-2.0
 * logits_processor.c - the processors, one function each; the tables further down say which run, and in which order.
 *
 * Tokens of the history are counted in an array with one entry per column. An entry is valid only if its epoch is
 * the current one, so the array is never cleared and only entries of tokens that occur are touched. */
#include "engine/decode/logits_processor.h"

#include "base/alloc.h"
#include "base/arena.h"
#include "base/checked.h"
#include "base/options.h"
#include "engine/decode/word_tree.h"

#include <math.h>
#include <string.h>

typedef struct token_count {
    uint32_t epoch;
    int32_t count;
} token_count;

/* Working memory of one row. */
typedef struct scratch {
    uint32_t epoch;
    token_count *counts; /* [vocab] */
    int32_t last_job;    /* of the jobs that are run: the last one of this request so far; -1: none */
} scratch;

typedef struct processor {
    const char *name;
    bool (*wanted)(const proa_options *o);
    void (*apply)(const proa_logits_processor *l, float *row, const proa_history *h);
} processor;

enum { PROCESSORS_MAX = 20 }; /* of a style, and NULL */

struct proa_logits_processor {
    proa_arena arena;
    proa_options options; /* lists are copies */
    int64_t vocab;
    const processor *processors[PROCESSORS_MAX];
    int count;
    proa_word_tree words;       /* allowed */
    proa_matcher *grammar;      /* NULL: none */
    proa_matcher_place *places; /* [PROA_PLACES] of its sequences */
    uint32_t *mask; /* a bit for each column: tokens that the grammar or the words allow next; or NULL */
    scratch *scratch;
};

/* ---- the history ---- */

static int64_t length_of(const proa_history *h)
{
    return h->prompt_count + h->generated_count;
}

static int32_t token_at(const proa_history *h, int64_t i)
{
    return i < h->prompt_count ? h->prompt[i] : h->generated[i - h->prompt_count];
}

static bool is_column(const proa_logits_processor *l, int32_t id)
{
    return id >= 0 && id < l->vocab;
}

/* Whether the last n tokens of h are these. */
static bool ends_with(const proa_history *h, const int32_t *ids, int64_t n)
{
    int64_t length = length_of(h);
    if (n > length) return false;
    for (int64_t i = n; i-- > 0;)
        if (token_at(h, length - n + i) != ids[i]) return false;
    return true;
}

/* Whether the n tokens of h from position `at` on are the same as its last n. */
static bool repeats_end(const proa_history *h, int64_t at, int64_t n)
{
    int64_t length = length_of(h);
    for (int64_t i = n; i-- > 0;)
        if (token_at(h, at + i) != token_at(h, length - n + i)) return false;
    return true;
}

/* Words of a mask with a bit for each column. */
static int64_t mask_words(const proa_logits_processor *l)
{
    return (l->vocab + 31) / 32;
}

/* ---- counts ---- */

static void next_epoch(const proa_logits_processor *l)
{
    scratch *s = l->scratch;
    if (++s->epoch != 0) return;
    memset(s->counts, 0, (size_t)l->vocab * sizeof *s->counts); /* once in 2^32 */
    s->epoch = 1;
}

static token_count *count_of(const proa_logits_processor *l, int32_t id)
{
    token_count *m = &l->scratch->counts[id];
    if (m->epoch != l->scratch->epoch) *m = (token_count){l->scratch->epoch, 0};
    return m;
}

typedef void token_fn(const proa_options *o, float *logit, int32_t count);

/* Calls fn once for each distinct token of h from position `from` on, with its count. */
static void each_distinct(const proa_logits_processor *l, float *row, const proa_history *h, int64_t from,
                          token_fn *fn)
{
    int64_t end = length_of(h);
    next_epoch(l);
    for (int64_t i = from; i < end; i++)
        if (is_column(l, token_at(h, i))) count_of(l, token_at(h, i))->count++;
    for (int64_t i = from; i < end; i++) {
        int32_t id = token_at(h, i);
        if (!is_column(l, id)) continue;
        token_count *m = count_of(l, id);
        if (m->count > 0) fn(&l->options, &row[id], m->count);
        m->count = 0; /* done */
    }
}

/* ---- biases and penalties ---- */

static void logit_bias(const proa_logits_processor *l, float *row, const proa_history *h)
{
    PROA_UNUSED(h);
    const proa_options *o = &l->options;
    for (int32_t i = 0; i < o->logit_bias_count; i++) row[o->logit_bias[i].id] += o->logit_bias[i].value;
}

/* transformers' SequenceBiasLogitsProcessor: of a sequence of n tokens the last gets likelier where the n - 1 others
 * have just come; a single token always. */
static void sequence_bias(const proa_logits_processor *l, float *row, const proa_history *h)
{
    const proa_sequence_bias *b = &l->options.sequence_bias;
    for (int32_t i = 0, begin = 0; i < b->words.count; begin = b->words.ends[i++]) {
        int64_t n = b->words.ends[i] - begin;
        const int32_t *ids = b->words.ids + begin;
        if (n == 1 || (length_of(h) >= n && ends_with(h, ids, n - 1))) row[ids[n - 1]] += b->values[i];
    }
}

/* FasterTransformer's default is 1; 0 means "not given" unless it is marked in `given`. */
static float temperature_of(const proa_options *o)
{
    return o->temperature > 0 || o->given[PROA_OPTION_temperature] ? o->temperature : 1;
}

/* l / (T + 1e-6), by the inverse (FasterTransformer, batchApplyTemperaturePenalty; TensorRT-LLM, batchApplyPenalty). */
static void apply_temperature(const proa_logits_processor *l, float *row, const proa_history *h)
{
    PROA_UNUSED(h);
    float inverse = 1.0F / (temperature_of(&l->options) + 1e-6F);
    for (int64_t i = 0; i < l->vocab; i++) row[i] *= inverse;
}

/* Keskar et al. 2019 (CTRL), with the sign as transformers' RepetitionPenaltyLogitsProcessor has it. */
static void repeat_token(const proa_options *o, float *logit, int32_t count)
{
    PROA_UNUSED(count);
    *logit = *logit < 0 ? *logit * o->repetition_penalty : *logit / o->repetition_penalty;
}

static void repetition_penalty(const proa_logits_processor *l, float *row, const proa_history *h)
{
    /* FasterTransformer asks for step > 1, and step is the tokens so far. */
    if (l->options.style == PROA_STYLE_FT && length_of(h) <= 1) return;
    each_distinct(l, row, h, 0, repeat_token);
}

/* transformers' EncoderRepetitionPenaltyLogitsProcessor: the same with the inverse, for tokens of the input. */
static void encoder_repetition(const proa_logits_processor *l, float *row, const proa_history *h)
{
    float penalty = 1 / l->options.encoder_repetition_penalty;
    next_epoch(l);
    for (int64_t i = 0; i < h->source_count; i++) {
        int32_t id = h->source[i];
        if (!is_column(l, id) || count_of(l, id)->count++) continue;
        row[id] = row[id] < 0 ? row[id] * penalty : row[id] / penalty;
    }
}

/* OpenAI's formula, in vLLM's order of operations. */
static void frequency_first(const proa_options *o, float *logit, int32_t count)
{
    *logit -= o->frequency_penalty * (float)count;
    *logit -= o->presence_penalty;
}

static void presence_first(const proa_options *o, float *logit, int32_t count)
{
    *logit -= o->presence_penalty;
    *logit -= o->frequency_penalty * (float)count;
}

static void counts_of_output(const proa_logits_processor *l, float *row, const proa_history *h)
{
    each_distinct(l, row, h, h->prompt_count, frequency_first);
}

/* FasterTransformer's additive penalty, TensorRT-LLM's numOccurences: the prompt counts too. */
static void counts_of_all(const proa_logits_processor *l, float *row, const proa_history *h)
{
    if (l->options.style == PROA_STYLE_FT && length_of(h) <= 1) return;
    each_distinct(l, row, h, 0, presence_first);
}

/* ---- bans ---- */

/* transformers' NoRepeatNGramLogitsProcessor (Paulus et al. 2017): where the last n-1 tokens stood before, what
 * followed them. */
static void no_repeat_ngram(const proa_logits_processor *l, float *row, const proa_history *h)
{
    int64_t n = l->options.no_repeat_ngram, length = length_of(h);
    for (int64_t i = 0; i + n <= length; i++) {
        int32_t id = token_at(h, i + n - 1);
        if (repeats_end(h, i, n - 1) && is_column(l, id)) row[id] = -INFINITY;
    }
}

/* transformers' EncoderNoRepeatNGramLogitsProcessor: what followed the last n - 1 tokens in the input. */
static void encoder_no_repeat(const proa_logits_processor *l, float *row, const proa_history *h)
{
    int64_t n = l->options.encoder_no_repeat_ngram;
    for (int64_t i = 0; i + n <= h->source_count; i++) {
        int32_t id = h->source[i + n - 1];
        if (ends_with(h, h->source + i, n - 1) && is_column(l, id)) row[id] = -INFINITY;
    }
}

static bool is_end(const proa_options *o, int32_t id)
{
    for (int32_t i = 0; i < o->end_ids_count && !o->ignore_eos; i++)
        if (o->end_ids[i] == id) return true;
    return false;
}

/* Whether a word's last token is banned now. hf: transformers' NoBadWordsLogitsProcessor. ft, trtllm:
 * ban_bad_words of ban_bad_words.cu and banBadWords.cu. */
static bool is_banned(const proa_options *o, const proa_history *h, const int32_t *ids, int64_t n)
{
    if (o->style != PROA_STYLE_HF) return ids[n - 1] > 0 && ends_with(h, ids, n - 1);
    if (n == 1) return !is_end(o, ids[0]);
    return length_of(h) >= n && ends_with(h, ids, n - 1);
}

static void banned_words(const proa_logits_processor *l, float *row, const proa_history *h)
{
    const proa_words *w = &l->options.banned_words;
    for (int32_t i = 0, begin = 0; i < w->count; begin = w->ends[i++])
        if (is_banned(&l->options, h, w->ids + begin, w->ends[i] - begin))
            row[w->ids[w->ends[i] - 1]] = -INFINITY;
}

/* transformers' MinNewTokensLengthLogitsProcessor; the others' min_length means the same. */
static void min_tokens(const proa_logits_processor *l, float *row, const proa_history *h)
{
    const proa_options *o = &l->options;
    if (h->generated_count >= o->min_tokens) return;
    for (int32_t i = 0; i < o->end_ids_count; i++)
        if (is_column(l, o->end_ids[i])) row[o->end_ids[i]] = -INFINITY;
}

/* ---- allowed words ---- */

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

static void allowed_words(const proa_logits_processor *l, float *row, const proa_history *h)
{
    mask_of_words(l, h, l->mask);
    apply_mask(l, row);
}

/* ---- forced tokens ---- */

static bool is_forced(const proa_options *o, int32_t id, proa_option option)
{
    return id > 0 || (id == 0 && o->given[option]);
}

/* The token that must follow `generated` tokens after a prompt (of an encoder-decoder: the decoder's); -1: any may.
 * max_tokens is the most that the request can generate. transformers' ForcedBOSTokenLogitsProcessor, which looks for a
 * sequence of one token, then its ForcedEOSTokenLogitsProcessor, which wins. */
static int32_t forced_token(const proa_options *o, int64_t prompt_count, int64_t generated)
{
    bool last = o->max_tokens > 0 && generated == o->max_tokens - 1 && !o->ignore_eos;
    if (last && is_forced(o, o->forced_eos_id, PROA_OPTION_forced_eos_id)) return o->forced_eos_id;
    bool first = prompt_count == 1 && generated == 0;
    if (first && is_forced(o, o->forced_bos_id, PROA_OPTION_forced_bos_id)) return o->forced_bos_id;
    return -1;
}

static void forced_tokens(const proa_logits_processor *l, float *row, const proa_history *h)
{
    int32_t id = forced_token(&l->options, h->prompt_count, h->generated_count);
    for (int64_t i = 0; i < l->vocab && id >= 0; i++) row[i] = i == id ? 0 : -INFINITY;
}

/* ---- after the forced tokens ---- */

/* transformers' ExponentialDecayLengthPenalty: l + |l| (factor^(new tokens - start) - 1) for end tokens. */
static void exponential_decay(const proa_logits_processor *l, float *row, const proa_history *h)
{
    const proa_options *o = &l->options;
    int64_t over = h->generated_count - o->exponential_decay_start;
    if (over <= 0) return;
    float more = powf(o->exponential_decay_factor, (float)over) - 1;
    for (int32_t i = 0; i < o->end_ids_count; i++) {
        float *logit = is_column(l, o->end_ids[i]) ? &row[o->end_ids[i]] : NULL;
        if (logit && isfinite(*logit)) *logit += fabsf(*logit) * more; /* what is banned stays so */
    }
}

static void ban_tokens(const proa_logits_processor *l, float *row, const proa_tokens *t)
{
    for (int32_t i = 0; i < t->count; i++)
        if (is_column(l, t->ids[i])) row[t->ids[i]] = -INFINITY;
}

static void suppress_tokens(const proa_logits_processor *l, float *row, const proa_history *h)
{
    PROA_UNUSED(h);
    ban_tokens(l, row, &l->options.suppress_tokens);
}

/* Whether these are the logits of the first token that is free: transformers counts a forced one that follows a single
 * token of the prompt as part of the beginning. */
static bool begins_here(const proa_options *o, const proa_history *h, int64_t generated)
{
    bool forced = is_forced(o, o->forced_bos_id, PROA_OPTION_forced_bos_id) && h->prompt_count <= 1;
    return generated == (forced ? 1 : 0);
}

static void begin_suppress(const proa_logits_processor *l, float *row, const proa_history *h)
{
    if (begins_here(&l->options, h, h->generated_count))
        ban_tokens(l, row, &l->options.begin_suppress_tokens);
}

/* transformers' LogitNormalization: log-softmax. */
static void renormalize_row(const proa_logits_processor *l, float *row, const proa_history *h)
{
    float largest = -INFINITY;
    double sum = 0;
    PROA_UNUSED(h);
    for (int64_t i = 0; i < l->vocab; i++) largest = fmaxf(largest, row[i]);
    if (!isfinite(largest)) return;
    for (int64_t i = 0; i < l->vocab; i++) sum += exp((double)row[i] - (double)largest);
    float all = largest + (float)log(sum);
    for (int64_t i = 0; i < l->vocab; i++) row[i] -= all;
}

/* ---- which processors, in which order ---- */

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

static void apply_grammar(const proa_logits_processor *l, float *row, const proa_history *h)
{
    if (!l->grammar) return;
    mask_of_grammar(l, h, l->mask);
    apply_mask(l, row);
}

static bool wants_bias(const proa_options *o)
{
    return o->logit_bias_count > 0;
}

/* ft divides whenever it adds (BaseSamplingLayer::forward), trtllm when T is not 1. */
static bool wants_temperature(const proa_options *o)
{
    return temperature_of(o) != 1 || (o->style == PROA_STYLE_FT && wants_bias(o));
}

static bool wants_repetition(const proa_options *o)
{
    return o->repetition_penalty > 0 && o->repetition_penalty != 1;
}

static bool wants_sequence_bias(const proa_options *o)
{
    return o->sequence_bias.words.count > 0;
}

static bool wants_encoder_repetition(const proa_options *o)
{
    return o->encoder_repetition_penalty > 0 && o->encoder_repetition_penalty != 1;
}

static bool wants_encoder_no_repeat(const proa_options *o)
{
    return o->encoder_no_repeat_ngram > 0;
}

static bool wants_decay(const proa_options *o)
{
    return o->exponential_decay_factor > 0 && o->exponential_decay_factor != 1 && o->end_ids_count > 0;
}

static bool wants_suppress(const proa_options *o)
{
    return o->suppress_tokens.count > 0;
}

static bool wants_begin_suppress(const proa_options *o)
{
    return o->begin_suppress_tokens.count > 0;
}

static bool wants_renormalize(const proa_options *o)
{
    return o->renormalize_logits;
}

static bool wants_counts(const proa_options *o)
{
    return o->presence_penalty != 0 || o->frequency_penalty != 0;
}

static bool wants_no_repeat(const proa_options *o)
{
    return o->no_repeat_ngram > 0;
}

static bool wants_banned(const proa_options *o)
{
    return o->banned_words.count > 0;
}

static bool wants_min(const proa_options *o)
{
    return o->min_tokens > 0 && o->end_ids_count > 0 && !o->ignore_eos;
}

static bool wants_allowed(const proa_options *o)
{
    return o->allowed_words.count > 0;
}

static bool wants_grammar(const proa_options *o)
{
    return proa_options_constrain(o);
}

static bool wants_mask(const proa_options *o)
{
    return wants_allowed(o) || wants_grammar(o);
}

static bool wants_forced(const proa_options *o)
{
    return is_forced(o, o->forced_bos_id, PROA_OPTION_forced_bos_id) ||
           is_forced(o, o->forced_eos_id, PROA_OPTION_forced_eos_id);
}

static const processor bias_step = {"logit_bias", wants_bias, logit_bias};
static const processor temperature_step = {"temperature", wants_temperature, apply_temperature};
static const processor repetition_step = {"repetition_penalty", wants_repetition, repetition_penalty};
static const processor output_step = {"frequency_presence_penalty", wants_counts, counts_of_output};
static const processor all_step = {"presence_frequency_penalty", wants_counts, counts_of_all};
static const processor no_repeat_step = {"no_repeat_ngram", wants_no_repeat, no_repeat_ngram};
static const processor banned_step = {"banned_words", wants_banned, banned_words};
static const processor min_step = {"min_tokens", wants_min, min_tokens};
static const processor allowed_step = {"allowed_words", wants_allowed, allowed_words};
static const processor grammar_step = {"grammar", wants_grammar, apply_grammar};
static const processor forced_step = {"forced_tokens", wants_forced, forced_tokens};
static const processor sequence_step = {"sequence_bias", wants_sequence_bias, sequence_bias};
static const processor encoder_step = {"encoder_repetition_penalty", wants_encoder_repetition,
                                       encoder_repetition};
static const processor encoder_ngram_step = {"encoder_no_repeat_ngram", wants_encoder_no_repeat,
                                             encoder_no_repeat};
static const processor decay_step = {"exponential_decay", wants_decay, exponential_decay};
static const processor suppress_step = {"suppress_tokens", wants_suppress, suppress_tokens};
static const processor begin_step = {"begin_suppress_tokens", wants_begin_suppress, begin_suppress};
static const processor renormalize_step = {"renormalize_logits", wants_renormalize, renormalize_row};

/* hf: transformers 5.17.0, generation/utils.py, _get_logits_processor. ft: FasterTransformer, DynamicDecodeLayer.cc
 * (bad words first), then BaseSamplingLayer.cc. trtllm: TensorRT-LLM, penaltyKernels.cu, then banRepeatNgram.cu and
 * banBadWords.cu. */
static const processor *const processors_of[][PROCESSORS_MAX] = {
    [PROA_STYLE_HF] = {&bias_step, &sequence_step, &encoder_step, &repetition_step, &output_step,
                       &no_repeat_step, &encoder_ngram_step, &banned_step, &min_step, &allowed_step,
                       &grammar_step, &forced_step, &decay_step, &suppress_step, &begin_step, &renormalize_step},
    [PROA_STYLE_FT] = {&banned_step, &no_repeat_step, &encoder_ngram_step, &bias_step, &sequence_step,
                       &temperature_step, &encoder_step, &repetition_step, &all_step, &min_step, &allowed_step,
                       &grammar_step, &forced_step, &decay_step, &suppress_step, &begin_step, &renormalize_step},
    [PROA_STYLE_TRTLLM] = {&bias_step, &sequence_step, &temperature_step, &encoder_step, &repetition_step,
                           &all_step, &min_step, &no_repeat_step, &encoder_ngram_step, &banned_step,
                           &allowed_step, &grammar_step, &forced_step, &decay_step, &suppress_step,
                           &begin_step, &renormalize_step}};

void proa_logits_processor_apply(const proa_logits_processor *l, float *row, const proa_history *history)
{
    for (int i = 0; l && i < l->count; i++) l->processors[i]->apply(l, row, history);
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

/* ---- the rows of a step ---- */

static void do_job(const proa_logits_job *job)
{
    if (job->row) {
        if (job->row != job->raw)
            memcpy(job->row, job->raw, (size_t)job->processor->vocab * sizeof *job->row);
        proa_logits_processor_apply(job->processor, job->row, &job->history);
    }
    if (job->mask) proa_logits_processor_mask(job->processor, &job->history, job->mask);
}

static void do_jobs(void *arg, int64_t begin, int64_t end, int worker)
{
    const proa_logits_job *jobs = arg;
    PROA_UNUSED(worker);
    for (int64_t i = begin; i < end; i++)
        for (int64_t k = jobs[i].first ? i : -1; k >= 0; k = jobs[k].next) do_job(&jobs[k]);
}

/* Rows of one request share its scratch. */
static void link_jobs(proa_logits_job *jobs, int64_t count)
{
    for (int64_t i = 0; i < count; i++) jobs[i].processor->scratch->last_job = -1;
    for (int64_t i = 0; i < count; i++) {
        scratch *s = jobs[i].processor->scratch;
        jobs[i].first = s->last_job < 0;
        jobs[i].next = -1;
        if (!jobs[i].first) jobs[s->last_job].next = (int32_t)i;
        s->last_job = (int32_t)i;
    }
}

void proa_logits_jobs_run(proa_pool *pool, proa_logits_job *jobs, int64_t count)
{
    link_jobs(jobs, count);
    proa_pool_run(pool, count, 1, do_jobs, jobs);
}

bool proa_logits_processor_changes(const proa_logits_processor *l, int64_t prompt_count, int64_t generated)
{
    bool changes = false;
    for (int i = 0; l && i < l->count; i++) {
        const processor *p = l->processors[i];
        bool idle = (p == &forced_step && forced_token(&l->options, prompt_count, generated) < 0) ||
                    (p == &min_step && generated >= l->options.min_tokens) ||
                    (p == &begin_step && generated > 1) ||
                    (p == &decay_step && generated <= l->options.exponential_decay_start);
        changes = changes || !idle;
    }
    return changes;
}

void proa_logits_processor_names(const proa_logits_processor *l, char out[512])
{
    size_t at = 0;
    out[0] = 0;
    for (int i = 0; l && i < l->count; i++) {
        size_t n = strlen(l->processors[i]->name);
        if (at + n + 2 > 512) return;
        if (at) out[at++] = ' ';
        memcpy(out + at, l->processors[i]->name, n + 1);
        at += n;
    }
}

/* ---- the same for a device: a mask, and entries ---- */

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

int64_t proa_logits_processor_entries_max(const proa_logits_processor *l, int64_t length)
{
    const proa_options *o = &l->options;
    int64_t counts = wants_repetition(o) || wants_counts(o) ? length : 0;
    int64_t bans = o->banned_words.count + (wants_min(o) ? o->end_ids_count : 0) +
                   (wants_no_repeat(o) ? length : 0) + o->suppress_tokens.count + o->begin_suppress_tokens.count;
    bool on_host = wants_sequence_bias(o) || wants_encoder_repetition(o) || wants_encoder_no_repeat(o) ||
                   wants_decay(o) || wants_renormalize(o);
    if (on_host) return -1;
    next_epoch(l);
    for (int32_t i = 0; i < o->logit_bias_count; i++)
        if (count_of(l, o->logit_bias[i].id)->count++) return -1;
    return o->logit_bias_count + counts + bans;
}

/* Each distinct token with its count, from the position from which the style counts. */
static int32_t put_counts(const proa_logits_processor *l, const proa_history *h, bool unknown,
                          proa_logits_row *row, proa_logits_entry *entries)
{
    const proa_options *o = &l->options;
    bool hf = o->style == PROA_STYLE_HF, repeats = wants_repetition(o), counts = wants_counts(o);
    int64_t from = hf ? h->prompt_count : 0, length = length_of(h);
    int32_t n = 0;
    if (!(repeats || counts) || (o->style == PROA_STYLE_FT && length + unknown <= 1)) return 0;
    if (repeats) row->repetition = o->repetition_penalty;
    if (counts) row->presence = o->presence_penalty, row->frequency = o->frequency_penalty;
    row->presence_first = !hf;
    row->last = unknown;
    next_epoch(l);
    for (int64_t i = repeats ? 0 : from; i < length; i++) {
        int32_t id = token_at(h, i);
        if (!is_column(l, id)) continue;
        token_count *m = count_of(l, id); /* 1 + index of its entry */
        if (!m->count) entries[n] = (proa_logits_entry){.id = id, .number = 0}, m->count = ++n;
        entries[m->count - 1].number += i >= from;
    }
    return n;
}

/* Tokens that would complete an n-gram of the known history. */
static int32_t put_known_ngram_bans(const proa_logits_processor *l, const proa_history *h,
                                    proa_logits_entry *entries)
{
    int64_t n = l->options.no_repeat_ngram, length = length_of(h);
    int32_t count = 0;
    for (int64_t i = 0; i + n <= length; i++) {
        int32_t id = token_at(h, i + n - 1);
        if (repeats_end(h, i, n - 1) && is_column(l, id))
            entries[count++] = (proa_logits_entry){.id = id, .number = -1};
    }
    return count;
}

/* The same if one more token u follows the known history. For n > 1 the n-gram at i bans its last token if its
 * first n - 2 tokens are the last known ones and u is its last but one; so that token is the entry's condition.
 * The n-gram that ends with u itself bans u. For n == 1 all tokens are banned, u too. */
static int32_t put_ngram_bans(const proa_logits_processor *l, const proa_history *h, bool unknown,
                              proa_logits_entry *entries)
{
    int64_t n = l->options.no_repeat_ngram, length = length_of(h);
    if (!unknown) return put_known_ngram_bans(l, h, entries);
    if (n == 1) {
        int32_t known = put_known_ngram_bans(l, h, entries);
        entries[known] = (proa_logits_entry){.id = PROA_LOGITS_LAST_TOKEN, .number = -1};
        return known + 1;
    }
    int32_t count = 0;
    for (int64_t i = 0; i + n <= length + 1; i++) {
        int32_t u = token_at(h, i + n - 2);
        int32_t id = i + n <= length ? token_at(h, i + n - 1) : u;
        if (repeats_end(h, i, n - 2) && is_column(l, id))
            entries[count++] = (proa_logits_entry){.id = id, .number = u};
    }
    return count;
}

/* Last tokens of banned words that are about to come. With an unknown token u the condition is that u is the
 * word's last but one. */
static int32_t put_word_bans(const proa_logits_processor *l, const proa_history *h, bool unknown,
                             proa_logits_entry *entries)
{
    const proa_options *o = &l->options;
    const proa_words *w = &o->banned_words;
    int32_t count = 0;
    for (int32_t i = 0, begin = 0; i < w->count; begin = w->ends[i++]) {
        const int32_t *ids = w->ids + begin;
        int64_t n = w->ends[i] - begin;
        bool may = o->style == PROA_STYLE_HF ? length_of(h) + 1 >= n : ids[n - 1] > 0;
        if (!unknown || n == 1) {
            if (is_banned(o, h, ids, n))
                entries[count++] = (proa_logits_entry){.id = ids[n - 1], .number = -1};
        } else if (may && ends_with(h, ids, n - 2))
            entries[count++] = (proa_logits_entry){.id = ids[n - 1], .number = ids[n - 2]};
    }
    return count;
}

static int32_t put_end_bans(const proa_logits_processor *l, const proa_history *h, bool unknown,
                            proa_logits_entry *entries)
{
    const proa_options *o = &l->options;
    int32_t count = 0;
    if (!wants_min(o) || h->generated_count + unknown >= o->min_tokens) return 0;
    for (int32_t i = 0; i < o->end_ids_count; i++)
        if (is_column(l, o->end_ids[i]))
            entries[count++] = (proa_logits_entry){.id = o->end_ids[i], .number = -1};
    return count;
}

/* suppress_tokens, and begin_suppress_tokens where they count. */
static int32_t put_suppressed(const proa_logits_processor *l, const proa_history *h, bool unknown,
                              proa_logits_entry *entries)
{
    const proa_options *o = &l->options;
    bool begins = begins_here(o, h, h->generated_count + unknown);
    const proa_tokens *lists[] = {&o->suppress_tokens, &o->begin_suppress_tokens};
    int32_t count = 0;
    for (int k = 0; k < 1 + begins; k++)
        for (int32_t i = 0; i < lists[k]->count; i++)
            if (is_column(l, lists[k]->ids[i]))
                entries[count++] = (proa_logits_entry){.id = lists[k]->ids[i], .number = -1};
    return count;
}

/* One order fits all styles: a token that is banned, or that the mask excludes, stays at -infinity whatever else is
 * applied to it. */
void proa_logits_processor_entries(const proa_logits_processor *l, const proa_history *history, bool unknown,
                                   proa_logits_row *row, proa_logits_entry *entries)
{
    const proa_options *o = &l->options;
    const int32_t first = row->first;
    *row = (proa_logits_row){.first = first, .bias_count = o->logit_bias_count, .scale = 1};
    if (o->style != PROA_STYLE_HF && wants_temperature(o)) row->scale = 1.0F / (temperature_of(o) + 1e-6F);
    for (int32_t i = 0; i < o->logit_bias_count; i++)
        entries[i] = (proa_logits_entry){.id = o->logit_bias[i].id, .value = o->logit_bias[i].value};
    entries += row->bias_count;
    row->seen_count = put_counts(l, history, unknown, row, entries);
    entries += row->seen_count;
    if (wants_no_repeat(o)) row->mask_count = put_ngram_bans(l, history, unknown, entries);
    row->mask_count += put_word_bans(l, history, unknown, entries + row->mask_count);
    row->only = 1 + forced_token(o, history->prompt_count, history->generated_count + unknown);
    row->mask_count += put_end_bans(l, history, unknown, entries + row->mask_count);
    row->mask_count += put_suppressed(l, history, unknown, entries + row->mask_count);
}

/* ---- life ---- */

static proa_status check_id(const char *name, int32_t id, int64_t vocab, proa_err *err)
{
    if (id >= 0 && id < vocab) return PROA_OK;
    return PROA_FAIL(err, INVALID, "%s has id %d, must lie in 0..%lld", name, (int)id, (long long)vocab - 1);
}

static proa_status check_words(const char *name, const proa_words *w, int64_t vocab, proa_err *err)
{
    for (int32_t i = 0, begin = 0; i < w->count; begin = w->ends[i++]) {
        if (w->ends[i] <= begin) return PROA_FAIL(err, INVALID, "%s: word %d has no tokens", name, (int)i);
        for (int32_t k = begin; k < w->ends[i]; k++) PROA_TRY(check_id(name, w->ids[k], vocab, err));
    }
    return PROA_OK;
}

static proa_status check_bounds(const proa_options *o, int64_t vocab, proa_err *err)
{
    for (int32_t i = 0; i < o->logit_bias_count; i++)
        PROA_TRY(check_id("logit_bias", o->logit_bias[i].id, vocab, err));
    PROA_TRY(check_words("banned_words", &o->banned_words, vocab, err));
    if (o->forced_bos_id > 0) PROA_TRY(check_id("forced_bos_id", o->forced_bos_id, vocab, err));
    if (o->forced_eos_id > 0) PROA_TRY(check_id("forced_eos_id", o->forced_eos_id, vocab, err));
    PROA_TRY(check_words("allowed_words", &o->allowed_words, vocab, err));
    PROA_TRY(check_words("sequence_bias", &o->sequence_bias.words, vocab, err));
    if (o->style == PROA_STYLE_FT && wants_repetition(o) && o->presence_penalty != 0)
        return PROA_FAIL(err, INVALID,
                         "presence_penalty is %g with repetition_penalty %g, style ft takes one of them",
                         (double)o->presence_penalty, (double)o->repetition_penalty);
    return PROA_OK;
}

static proa_words copy_words(const proa_words *w, proa_arena *arena)
{
    if (w->count <= 0) return (proa_words){0};
    int32_t *ids = PROA_ARENA_NEW(arena, int32_t, w->ends[w->count - 1]);
    int32_t *ends = PROA_ARENA_NEW(arena, int32_t, w->count);
    memcpy(ids, w->ids, (size_t)w->ends[w->count - 1] * sizeof *ids);
    memcpy(ends, w->ends, (size_t)w->count * sizeof *ends);
    return (proa_words){ids, ends, w->count};
}

static proa_tokens copy_tokens(const proa_tokens *t, proa_arena *arena)
{
    if (t->count <= 0) return (proa_tokens){0};
    int32_t *ids = PROA_ARENA_NEW(arena, int32_t, t->count);
    memcpy(ids, t->ids, (size_t)t->count * sizeof *ids);
    return (proa_tokens){ids, t->count};
}

static proa_sequence_bias copy_sequence_bias(const proa_sequence_bias *b, proa_arena *arena)
{
    if (b->words.count <= 0) return (proa_sequence_bias){.values = NULL};
    float *values = PROA_ARENA_NEW(arena, float, b->words.count);
    memcpy(values, b->values, (size_t)b->words.count * sizeof *values);
    return (proa_sequence_bias){copy_words(&b->words, arena), values};
}

static void copy_lists(proa_logits_processor *l)
{
    proa_options *o = &l->options;
    if (o->logit_bias_count > 0) {
        proa_bias *bias = PROA_ARENA_NEW(&l->arena, proa_bias, o->logit_bias_count);
        memcpy(bias, o->logit_bias, (size_t)o->logit_bias_count * sizeof *bias);
        o->logit_bias = bias;
    }
    o->banned_words = copy_words(&o->banned_words, &l->arena);
    o->suppress_tokens = copy_tokens(&o->suppress_tokens, &l->arena);
    o->begin_suppress_tokens = copy_tokens(&o->begin_suppress_tokens, &l->arena);
    o->sequence_bias = copy_sequence_bias(&o->sequence_bias, &l->arena);
    /* the caller's lists that no processor reads */
    o->stop_words = (proa_words){0};
    o->stop_strings = o->banned_strings = (proa_strings){0};
    o->choice.text = NULL;
}

static void make_words(proa_logits_processor *l)
{
    proa_words *w = &l->options.allowed_words;
    if (w->count <= 0) return;
    proa_word_tree_make(&l->words, w, &l->arena);
    w->ids = w->ends = NULL; /* the caller's */
}

void proa_logits_processor_set_grammar(proa_logits_processor *l, proa_matcher *grammar)
{
    l->grammar = grammar;
    l->places = PROA_ARENA_NEW(&l->arena, proa_matcher_place, PROA_PLACES);
}

static void make_scratch(proa_logits_processor *l)
{
    l->scratch = PROA_ARENA_NEW(&l->arena, scratch, 1);
    *l->scratch = (scratch){.counts = proa_calloc((size_t)l->vocab, sizeof(token_count))};
}

proa_status proa_logits_processor_new(proa_logits_processor **out, const proa_options *options, int64_t vocab,
                                      proa_err *err)
{
    *out = NULL;
    PROA_TRY(check_bounds(options, vocab, err));
    int count = 0;
    const processor *processors[PROCESSORS_MAX];
    for (const processor *const *s = processors_of[options->style]; *s; s++)
        if ((*s)->wanted(options)) processors[count++] = *s;
    if (!count) return PROA_OK;
    proa_logits_processor *l = *out = proa_malloc(sizeof *l);
    *l = (proa_logits_processor){.options = *options, .vocab = vocab, .count = count};
    for (int32_t i = 0; i < count; i++) l->processors[i] = processors[i];
    proa_arena_init(&l->arena);
    copy_lists(l);
    make_words(l);
    if (wants_mask(options)) l->mask = PROA_ARENA_NEW(&l->arena, uint32_t, mask_words(l));
    make_scratch(l);
    return PROA_OK;
}

void proa_logits_processor_free(proa_logits_processor *l)
{
    if (!l) return;
    proa_matcher_release(l->grammar);
    free(l->scratch->counts);
    proa_arena_release(&l->arena);
    free(l);
}
