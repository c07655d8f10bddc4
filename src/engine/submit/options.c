/* SPDX-License-Identifier: Apache-2.0
 * options.c - the options of a request: checked, and completed by the model's own. */
#include "engine/submit/submit.h"

#include "base/checked.h"
#include "options/options.h"
#include "engine/engine.h"
#include <string.h>

/* Appends the ids of a banned string to the list. Each string is added with and without a space before it, since most
 * tokenizers encode the two differently. */
static proa_status add_banned(const proa_engine *e, proa_ids *ids, proa_ids *ends, const char *prefix,
                              const char *text, proa_err *err)
{
    char word[1024];
    int32_t unknown = -1;
    int64_t before = ids->len;
    int n = snprintf(word, sizeof word, "%s%s", prefix, text);
    if (n < 0 || n >= (int)sizeof word)
        return PROA_FAIL(err, LIMIT, "option 'banned_strings': '%.40s...' is too long", text);
    PROA_TRY(proa_tokenizer_encode(e->tokenizer, proa_str_c(word), false, ids, err));
    bool known = ids->len > before;
    if (proa_tokenizer_find(e->tokenizer, proa_str_c("<unk>"), &unknown) ||
        proa_tokenizer_find(e->tokenizer, proa_str_c("[UNK]"), &unknown))
        for (int64_t i = before; i < ids->len; i++) known = known && ids->ptr[i] != unknown;
    if (!known)
        return PROA_FAIL(err, INVALID, "option 'banned_strings': '%s' is not in the vocabulary", text);
    proa_ids_push(ends, (int32_t)ids->len);
    return PROA_OK;
}

static proa_status ban_strings(const proa_engine *e, proa_engine_request *req, proa_err *err)
{
    proa_options *o = &req->options;
    proa_ids ids = {0}, ends = {0};
    proa_status status = PROA_OK;
    if (o->banned_strings.count == 0) return PROA_OK;
    if (!e->tokenizer)
        return PROA_FAIL(err, UNSUPPORTED, "option 'banned_strings' needs a tokenizer: give banned_words");
    for (int32_t i = 0, n = o->banned_words.count ? o->banned_words.ends[o->banned_words.count - 1] : 0;
         i < n; i++)
        proa_ids_push(&ids, o->banned_words.ids[i]);
    for (int32_t i = 0; i < o->banned_words.count; i++) proa_ids_push(&ends, o->banned_words.ends[i]);
    for (int32_t i = 0; i < o->banned_strings.count && status == PROA_OK; i++) {
        status = add_banned(e, &ids, &ends, "", o->banned_strings.text[i], err);
        if (status == PROA_OK) status = add_banned(e, &ids, &ends, " ", o->banned_strings.text[i], err);
    }
    if (status == PROA_OK) {
        proa_options words = {.banned_words = {ids.ptr, ends.ptr, (int32_t)ends.len}}, copy;
        proa_options_copy(&copy, &words, &req->arena);
        o->banned_words = copy.banned_words;
    }
    proa_ids_release(&ids);
    proa_ids_release(&ends);
    return status;
}

/* A request's kind of search replaces the model's default one. */
static void replace_search(proa_options *o, const proa_options *given)
{
    bool other = given->temperature > 0 || given->n > 1 || given->best_of > 1 || given->penalty_alpha > 0;
    if (other && given->beams == 0) o->beams = 1;
    if (given->beams > 1 && given->n == 0) o->n = 1;
    if (other || given->beams > 1) o->given[PROA_OPTION_penalty_alpha] = true;
}

/* The least number of new tokens of a decoder whose generation_config.json has min_length. */
static void take_length_min(proa_options *o, const proa_options *given, int64_t more)
{
    bool least_given = given->min_tokens || given->given[PROA_OPTION_min_tokens];
    if (!least_given && more > 0) o->min_tokens = (int32_t)proa_min64(more, PROA_CONTEXT_MAX);
}

static void resolve_options(proa_options *o, const proa_options *given, const proa_options *defaults)
{
    replace_search(o, given);
    proa_options_resolve(o, defaults);
    if (given->beams_returned == 0 && o->beams_returned > o->beams) o->beams_returned = 0;
    bool search = o->penalty_alpha > 0 || (o->beams > 1 && o->style == PROA_STYLE_HF);
    if (search && given->temperature == 0) o->temperature = 0;
}

static void take_end_ids(proa_options *o, const proa_config *c)
{
    bool endless = o->ignore_eos &&
                   !proa_options_constrain(o); /* a grammar's text ends by an end token all the same */
    if (endless) o->end_ids_count = 0;
    else if (o->end_ids_count == 0) {
        o->end_ids_count = c->end_count;
        memcpy(o->end_ids, c->end_ids, sizeof o->end_ids);
    }
}

proa_status proa_submit_read_options(const proa_engine *e, proa_engine_request *req,
                                     const proa_options *given, proa_err *err)
{
    proa_options *o = &req->options;
    const proa_config *c = &e->model->config;
    PROA_TRY(proa_options_check(given, c->vocab, e->sizes.sequences_max, err));
    proa_options_copy(o, given, &req->arena);
    resolve_options(o, given, &e->defaults);
    req->emits_logits = o->return_logits;
    o->return_logits = o->return_logits || req->rows.logits;
    bool model_side = (req->rows.memory.kind == PROA_MEMORY_HOST) == e->model->device->host;
    req->rows_in_place = model_side && !e->model->group && !req->emits_scores && !req->emits_logits;
    take_length_min(o, given, e->length_min - req->prompt_count);
    PROA_TRY(proa_options_check(o, c->vocab, e->sizes.sequences_max, err));
    take_end_ids(o, c);
    if (o->stop_strings.count && !e->tokenizer)
        return PROA_FAIL(err, UNSUPPORTED, "option 'stop_strings' needs a tokenizer: give stop_words");
    return ban_strings(e, req, err);
}
