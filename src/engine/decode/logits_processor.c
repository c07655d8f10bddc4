/* SPDX-License-Identifier: Apache-2.0
 * logits_processor.c - the processors, one function each; the tables further down say which run, and in which order. */
#include "engine/decode/logits_processor.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "engine/decode/logits_state.h"

#include <math.h>
#include <string.h>

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
        proa_token_count *m = count_of(l, id);
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
    /* FasterTransformer applies it if step > 1, and step is the tokens so far. */
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
bool proa_logits_is_banned(const proa_options *o, const proa_history *h, const int32_t *ids, int64_t n)
{
    if (o->style != PROA_STYLE_HF) return ids[n - 1] > 0 && ends_with(h, ids, n - 1);
    if (n == 1) return !is_end(o, ids[0]);
    return length_of(h) >= n && ends_with(h, ids, n - 1);
}

static void banned_words(const proa_logits_processor *l, float *row, const proa_history *h)
{
    const proa_words *w = &l->options.banned_words;
    for (int32_t i = 0, begin = 0; i < w->count; begin = w->ends[i++])
        if (proa_logits_is_banned(&l->options, h, w->ids + begin, w->ends[i] - begin))
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

/* ---- forced tokens ---- */

/* The token that must follow `generated` tokens after a prompt (of an encoder-decoder: the decoder's); -1: any may.
 * max_tokens is the most that the request can generate. transformers' ForcedBOSTokenLogitsProcessor, which looks for a
 * sequence of one token, then its ForcedEOSTokenLogitsProcessor, which wins. */
int32_t proa_logits_forced_token(const proa_options *o, int64_t prompt_count, int64_t generated)
{
    bool last = o->max_tokens > 0 && generated == o->max_tokens - 1 && !o->ignore_eos;
    if (last && is_forced(o, o->forced_eos_id, PROA_OPTION_forced_eos_id)) return o->forced_eos_id;
    bool first = prompt_count == 1 && generated == 0;
    if (first && is_forced(o, o->forced_bos_id, PROA_OPTION_forced_bos_id)) return o->forced_bos_id;
    return -1;
}

static void forced_tokens(const proa_logits_processor *l, float *row, const proa_history *h)
{
    int32_t id = proa_logits_forced_token(&l->options, h->prompt_count, h->generated_count);
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
bool proa_logits_begins_here(const proa_options *o, const proa_history *h, int64_t generated)
{
    bool forced = is_forced(o, o->forced_bos_id, PROA_OPTION_forced_bos_id) && h->prompt_count <= 1;
    return generated == (forced ? 1 : 0);
}

static void begin_suppress(const proa_logits_processor *l, float *row, const proa_history *h)
{
    if (proa_logits_begins_here(&l->options, h, h->generated_count))
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

static const proa_logits_rule bias_processor = {"logit_bias", wants_bias, logit_bias};
static const proa_logits_rule temperature_processor = {"temperature", wants_temperature, apply_temperature};
static const proa_logits_rule repetition_processor = {"repetition_penalty", wants_repetition, repetition_penalty};
static const proa_logits_rule output_processor = {"frequency_presence_penalty", wants_counts, counts_of_output};
static const proa_logits_rule all_processor = {"presence_frequency_penalty", wants_counts, counts_of_all};
static const proa_logits_rule no_repeat_processor = {"no_repeat_ngram", wants_no_repeat, no_repeat_ngram};
static const proa_logits_rule banned_processor = {"banned_words", wants_banned, banned_words};
static const proa_logits_rule min_processor = {"min_tokens", wants_min, min_tokens};
static const proa_logits_rule allowed_processor = {"allowed_words", wants_allowed, proa_logits_apply_words};
static const proa_logits_rule grammar_processor = {"grammar", wants_grammar, proa_logits_apply_grammar};
static const proa_logits_rule forced_processor = {"forced_tokens", wants_forced, forced_tokens};
static const proa_logits_rule sequence_processor = {"sequence_bias", wants_sequence_bias, sequence_bias};
static const proa_logits_rule encoder_processor = {"encoder_repetition_penalty", wants_encoder_repetition,
                                                   encoder_repetition};
static const proa_logits_rule encoder_ngram_processor = {"encoder_no_repeat_ngram", wants_encoder_no_repeat,
                                                         encoder_no_repeat};
static const proa_logits_rule decay_processor = {"exponential_decay", wants_decay, exponential_decay};
static const proa_logits_rule suppress_processor = {"suppress_tokens", wants_suppress, suppress_tokens};
static const proa_logits_rule begin_processor = {"begin_suppress_tokens", wants_begin_suppress, begin_suppress};
static const proa_logits_rule renormalize_processor = {"renormalize_logits", wants_renormalize, renormalize_row};

/* hf: transformers 5.17.0, generation/utils.py, _get_logits_processor. ft: FasterTransformer, DynamicDecodeLayer.cc
 * (bad words first), then BaseSamplingLayer.cc. trtllm: TensorRT-LLM, penaltyKernels.cu, then banRepeatNgram.cu and
 * banBadWords.cu. */
static const proa_logits_rule *const processors_of[][PROA_LOGITS_RULES_MAX] = {
    [PROA_STYLE_HF] = {&bias_processor, &sequence_processor, &encoder_processor, &repetition_processor,
                       &output_processor, &no_repeat_processor, &encoder_ngram_processor, &banned_processor,
                       &min_processor, &allowed_processor, &grammar_processor, &forced_processor,
                       &decay_processor, &suppress_processor, &begin_processor, &renormalize_processor},
    [PROA_STYLE_FT] = {&banned_processor, &no_repeat_processor, &encoder_ngram_processor, &bias_processor,
                       &sequence_processor, &temperature_processor, &encoder_processor, &repetition_processor,
                       &all_processor, &min_processor, &allowed_processor, &grammar_processor, &forced_processor,
                       &decay_processor, &suppress_processor, &begin_processor, &renormalize_processor},
    [PROA_STYLE_TRTLLM] = {&bias_processor, &sequence_processor, &temperature_processor, &encoder_processor,
                           &repetition_processor, &all_processor, &min_processor, &no_repeat_processor,
                           &encoder_ngram_processor, &banned_processor, &allowed_processor,
                           &grammar_processor, &forced_processor, &decay_processor, &suppress_processor,
                           &begin_processor, &renormalize_processor}};

void proa_logits_processor_apply(const proa_logits_processor *l, float *row, const proa_history *history)
{
    for (int i = 0; l && i < l->count; i++) l->processors[i]->apply(l, row, history);
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
        proa_logits_scratch *s = jobs[i].processor->scratch;
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
        const proa_logits_rule *p = l->processors[i];
        bool idle = (p == &forced_processor &&
                     proa_logits_forced_token(&l->options, prompt_count, generated) < 0) ||
                    (p == &min_processor && generated >= l->options.min_tokens) ||
                    (p == &begin_processor && generated > 1) ||
                    (p == &decay_processor && generated <= l->options.exponential_decay_start);
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
    l->scratch = PROA_ARENA_NEW(&l->arena, proa_logits_scratch, 1);
    *l->scratch = (proa_logits_scratch){.counts = proa_calloc((size_t)l->vocab, sizeof(proa_token_count))};
}

proa_status proa_logits_processor_new(proa_logits_processor **out, const proa_options *options, int64_t vocab,
                                      proa_err *err)
{
    *out = NULL;
    PROA_TRY(check_bounds(options, vocab, err));
    int count = 0;
    const proa_logits_rule *processors[PROA_LOGITS_RULES_MAX];
    for (const proa_logits_rule *const *s = processors_of[options->style]; *s; s++)
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
