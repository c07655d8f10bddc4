/* SPDX-License-Identifier: Apache-2.0
 * state.c - what decoding a request needs: its sizes, and all memory of its sequences, search, logits processors and
 * grammar, so that steps allocate nothing. */
#include "engine/submit/submit.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "engine/engine.h"

/* transformers' do_sample with num_beams. */
static bool is_sampled_search(const proa_options *o)
{
    return o->beams > 1 && o->style == PROA_STYLE_HF && o->temperature > 0;
}

/* Arrays for M candidates of each row. */
static void make_candidates(proa_engine_request *req, int64_t candidates)
{
    size_t width = (size_t)req->width, length = (size_t)req->new_max + 1;
    req->search.candidates = candidates;
    req->search.ids = proa_calloc(width * (size_t)candidates, sizeof *req->search.ids);
    req->search.logprobs = proa_calloc(width * (size_t)candidates, sizeof *req->search.logprobs);
    req->search.parent = proa_calloc(width, sizeof *req->search.parent);
    req->search.token = proa_calloc(width, sizeof *req->search.token);
    if (is_sampled_search(&req->options))
        req->search.numbers = proa_calloc(width * (size_t)candidates, sizeof *req->search.numbers);
    if (!req->logits && !req->search.numbers) return;
    req->search.path = proa_calloc(width * length, sizeof *req->search.path);
    req->search.path_next = proa_calloc(width * length, sizeof *req->search.path_next);
}

static proa_status make_beams(const proa_engine *e, proa_engine_request *req, proa_err *err)
{
    const proa_options *o = &req->options;
    proa_beam_options b = {.beams = o->beams,
                           .vocab = e->model->plan.width[PROA_REG_OUT],
                           .max_new = req->new_max,
                           .length_penalty = o->length_penalty,
                           .early = o->early_stopping,
                           .end_ids = o->end_ids,
                           .end_ids_count = o->end_ids_count,
                           .returned = o->beams_returned,
                           .style = o->style,
                           .sampled = is_sampled_search(o),
                           .groups = o->beam_groups,
                           .diversity_penalty = o->diversity_penalty,
                           .pad_id = (int32_t)e->model->config.pad,
                           .diversity_rate = o->diversity_rate,
                           .pool = e->model->arch->kind == PROA_KIND_ENCODER_DECODER,
                           .prompt_tokens = req->prompt_count};
    PROA_TRY(proa_beam_new(&req->search.beam, &b, err));
    if (req->scores) req->search.scores_row = proa_malloc((size_t)b.vocab * sizeof *req->search.scores_row);
    make_candidates(req, proa_beam_candidates(req->search.beam));
    return PROA_OK;
}

static proa_status make_contrast(const proa_engine *e, proa_engine_request *req, proa_err *err)
{
    int64_t hidden = proa_model_hidden_width(e->model);
    proa_contrastive_options c = {.k = req->width,
                                  .alpha = req->options.penalty_alpha,
                                  .hidden = hidden,
                                  .tokens_max = req->prompt_count + req->new_max};
    PROA_TRY(proa_contrastive_new(&req->search.contrast, &c, err));
    make_candidates(req, req->width);
    req->search.probs = proa_calloc((size_t)req->width, sizeof *req->search.probs);
    req->search.hidden = proa_calloc((size_t)(req->width * hidden), sizeof *req->search.hidden);
    return PROA_OK;
}

/* The most pages that the request can hold at once: the full pages of the prompt once, and for each sequence or
 * beam the pages that it writes itself, a copy of the prompt's last page included. */
static int64_t pages_needed(const proa_engine_request *req)
{
    int64_t shared = req->prompt_count / PROA_PAGE_TOKENS;
    int64_t own = proa_kv_pages_for(req->prompt_count + req->new_max) - shared;
    return proa_kv_pages_for(req->input.count) + (req->prompt_count ? shared + own * req->width : 0);
}

/* max_tokens, or its default: max_length of a decoder's generation_config.json. Without one the output of an
 * encoder-decoder model is about as long as its input; one that has not ended by twice that length repeats itself,
 * so it is cut there. */
static int64_t new_tokens_wanted(const proa_engine *e, const proa_engine_request *req)
{
    if (req->options.max_tokens) return req->options.max_tokens;
    if (e->length_max) return proa_max64(1, e->length_max - req->prompt_count);
    return req->input.ids ? proa_max64(64, 2 * (req->input.count - req->input.virtual_count)) : INT32_MAX;
}

static void make_seqs(proa_engine_request *req)
{
    req->seq = proa_calloc((size_t)req->width, sizeof *req->seq);
    for (int32_t i = 0; i < req->width; i++)
        req->seq[i] = (proa_seq){.req = req,
                                 .index = i,
                                 .known = req->prompt_count,
                                 .sampled_at = -1,
                                 .rows_valid = INT64_MAX,
                                 .seed = proa_seed_of(req->options.seed, i)};
}

/* What a sequence needs that emits tokens. */
static void make_output(const proa_engine *e, const proa_engine_request *req, proa_seq *seq)
{
    seq->ids = proa_malloc((size_t)req->new_max * sizeof *seq->ids);
    proa_stop_init(&seq->stop, req->options.stop_strings);
    proa_buf_init(&seq->piece, PROA_TEXT_BYTES_MAX);
    proa_buf_init(&seq->shown, PROA_TEXT_BYTES_MAX);
    if (!e->tokenizer) return;
    seq->detok = proa_detok_new(e->tokenizer, true);
    proa_detok_show(seq->detok, req->visible, req->visible_count);
    int64_t text = req->sequences > 1 ? proa_min64(8 * req->new_max, 64 * PROA_KIB) : 0;
    proa_buf_reserve(&seq->piece, 1024); /* the decode loop allocates nothing */
    proa_buf_reserve(&seq->shown, (size_t)text + 1024);
}

/* The grammar of the options; which option it is. False: none. */
static bool grammar_of(const proa_options *o, proa_grammar_source *source, const char **option)
{
    const char *text = NULL;
    *source = (proa_grammar_source){.choices = o->choice.text, .choices_count = o->choice.count};
    if (o->json_schema)
        source->kind = PROA_GRAMMAR_JSON_SCHEMA, text = o->json_schema, *option = "json_schema";
    else if (o->regex) source->kind = PROA_GRAMMAR_REGEX, text = o->regex, *option = "regex";
    else if (o->grammar) source->kind = PROA_GRAMMAR_EBNF, text = o->grammar, *option = "grammar";
    else if (o->json_object) source->kind = PROA_GRAMMAR_JSON_OBJECT, *option = "json_object";
    else if (o->choice.count) source->kind = PROA_GRAMMAR_CHOICE, *option = "choice";
    else return false;
    source->text = proa_str_c(text);
    return true;
}

/* Compiles the request's grammar, or finds it among those that were used before. */
static proa_status make_grammar(const proa_engine *e, proa_engine_request *req, proa_err *err)
{
    proa_grammar_source source;
    proa_matcher *grammar;
    const char *option;
    if (!grammar_of(&req->options, &source, &option)) return PROA_OK;
    if (!e->grammars)
        return PROA_FAIL(err, UNSUPPORTED,
                         "option '%s' needs a tokenizer, which the model's folder does not have", option);
    if (req->options.end_ids_count == 0)
        return PROA_FAIL(err, INVALID, "option '%s' needs an end token: give end_ids", option);
    proa_status status = proa_grammars_get(e->grammars, &source, &grammar, err);
    if (status == PROA_OK) proa_logits_processor_set_grammar(req->logits, grammar);
    else proa_err_prefix(err, "option '%s'", option);
    return status;
}

/* Allocates all that decoding needs, so that steps allocate nothing. */
static proa_status make_state(const proa_engine *e, proa_engine_request *req, proa_err *err)
{
    const proa_options *o = &req->options;
    int64_t vocab = e->model->plan.width[PROA_REG_OUT];
    proa_options processed = *o;
    processed.max_tokens = (int32_t)req->new_max;
    PROA_TRY(proa_logits_processor_new(&req->logits, &processed, vocab, err));
    PROA_TRY(make_grammar(e, req, err));
    int64_t tops = (int64_t)o->top_logprobs * proa_max64(req->width, o->prompt_logprobs ? PROA_HEAD_ROWS : 1);
    if (tops) req->top = proa_calloc((size_t)tops, sizeof *req->top);
    if (o->beams > 1) return make_beams(e, req, err);
    req->sequences = o->penalty_alpha > 0 ? 1 : req->width;
    req->running = req->sequences;
    for (int32_t i = 0; i < req->sequences; i++) make_output(e, req, &req->seq[i]);
    return o->penalty_alpha > 0 ? make_contrast(e, req, err) : PROA_OK;
}

/* Rows of a decoding step. Candidates are distinct tokens of one row, so there are at most as many as outputs. */
static int32_t width_of(const proa_options *o, int64_t outputs)
{
    if (o->penalty_alpha > 0) return (int32_t)proa_min64(o->top_k, outputs);
    return o->beams > 1 ? o->beams : o->best_of > 1 ? o->best_of : 1;
}

/* Task ENCODE: room for the hidden states of its event. */
static void make_encoded(const proa_engine *e, proa_engine_request *req)
{
    if (req->task != PROA_TASK_ENCODE || req->rows.hidden) return;
    req->encoded = proa_malloc((size_t)(req->input.count * e->model->config.hidden) * sizeof *req->encoded);
}

/* Whether the model can do it at all. */
static proa_status check_task(const proa_arch *arch, proa_task task, proa_err *err)
{
    if (arch->kind == PROA_KIND_ENCODER && task != PROA_TASK_ROWS && task != PROA_TASK_ENCODE)
        return PROA_FAIL(err, UNSUPPORTED, "a %s does not generate: ask for rows", arch->name);
    if (task == PROA_TASK_ENCODE && arch->kind == PROA_KIND_DECODER)
        return PROA_FAIL(err, UNSUPPORTED, "a %s has no encoder", arch->name);
    if (task == PROA_TASK_ENCODE && proa_arch_decodes_input(arch))
        return PROA_FAIL(err, UNSUPPORTED, "a %s gives rows of its decoder, not of its encoder: ask for rows",
                         arch->name);
    return PROA_OK;
}

proa_status proa_submit_plan(const proa_engine *e, proa_engine_request *req, const proa_options *options,
                             proa_err *err)
{
    int64_t room = e->model->config.context - req->prompt_count;
    bool encoder = e->model->arch->kind == PROA_KIND_ENCODER;
    req->width = 1;
    PROA_TRY(check_task(e->model->arch, req->task, err));
    if (req->task == PROA_TASK_ENCODE && proa_arch_projects(e->model->arch)) req->task = PROA_TASK_ROWS;
    if (!encoder && req->task != PROA_TASK_ENCODE) PROA_TRY(proa_submit_read_options(e, req, options, err));
    make_encoded(e, req);
    if (req->task == PROA_TASK_GENERATE) {
        req->new_max = proa_min64(new_tokens_wanted(e, req), room);
        req->width = width_of(&req->options, e->model->plan.width[PROA_REG_OUT]);
        make_seqs(req);
        PROA_TRY(make_state(e, req, err));
    } else if (req->options.top_logprobs) {
        req->top = proa_calloc((size_t)req->options.top_logprobs * PROA_HEAD_ROWS, sizeof *req->top);
    }
    if (!req->seq) make_seqs(req);
    req->options.priority = options->priority, req->options.timeout_ms = options->timeout_ms;
    proa_async_step_prepare(e, req);
    PROA_TRY(proa_speculate_prepare(e, req, err));
    req->reserved = pages_needed(req);
    req->keeps_pages = !e->sizes.evicts || req->search.candidates || req->new_max == 0;
    if (req->reserved > e->pages.count)
        return PROA_FAIL(
            err, LIMIT, "needs room for %lld tokens of keys and values, there is room for %lld (--kv-tokens)",
            (long long)req->reserved * PROA_PAGE_TOKENS, (long long)e->pages.count * PROA_PAGE_TOKENS);
    return PROA_OK;
}
