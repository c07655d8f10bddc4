/* SPDX-License-Identifier: Apache-2.0
 * test_traffic.c - random traffic: requests of every kind come, go on and are cancelled at random steps of an engine
 * with few slots, few pages and a small step. Many begin with the same tokens, so that they reuse cached pages. Each
 * hears, to the bit, what it hears alone without a cache; what was cancelled has heard the beginning of it; all pages
 * come back. PROA_TRAFFIC=seed,rounds makes it another run, or a longer one. */
#include "engine_test.h"

#include "base/checked.h"
#include "engine/engine.h"

enum { REQUESTS_MAX = 24, SEQUENCES = 20, WORDS = 40, KV_TOKENS = 16384 };

static uint32_t state;
static uint32_t dice(uint32_t below)
{
    state = state * 1664525u + 1013904223u;
    return (uint32_t)(((uint64_t)(state >> 4) * below) >> 28);
}
static bool one_in(uint32_t n)
{
    return dice(n) == 0;
}

/* ---- what a request hears: bytes, of each sequence apart, since chunks and turns may differ ---- */

typedef struct bytes {
    char *at;
    size_t len, room;
} bytes;

static void add(bytes *b, const void *from, size_t n)
{
    if (b->len + n > b->room) {
        b->room = 2 * (b->len + n);
        b->at = realloc(b->at, b->room);
    }
    if (n) memcpy(b->at + b->len, from, n);
    b->len += n;
}

#define ADD(b, value) add(b, &(value), sizeof(value))

typedef struct received {
    bytes sequence[SEQUENCES], rows, prompt, end;
    int64_t vocab, hidden;
    proa_status refused;
    proa_finish finish;
    bool done;
} received;

static void hear_token(received *h, const proa_event *e)
{
    bytes *b = &h->sequence[e->sequence];
    ADD(b, e->id), ADD(b, e->logprob), ADD(b, e->finish);
    for (int32_t i = 0; i < e->top_count; i++) ADD(b, e->top[i].id), ADD(b, e->top[i].logprob);
    if (e->logits) add(b, e->logits, (size_t)h->vocab * sizeof(float));
    if (e->hidden) add(b, e->hidden, (size_t)h->hidden * sizeof(float));
    add(b, e->text, e->text_len);
}

static void hear_prompt(received *h, const proa_event *e)
{
    for (int64_t i = 0; i < e->rows_count; i++) {
        int64_t at = e->rows_first + i;
        ADD(&h->prompt, at), ADD(&h->prompt, e->prompt_ids[i]), ADD(&h->prompt, e->prompt_logprobs[i]);
        for (int32_t k = 0; k < e->top_count; k++)
            ADD(&h->prompt, e->prompt_top[i * e->top_count + k].logprob);
    }
}

static void hear_end(received *h, const proa_event *e)
{
    h->done = true, h->finish = e->finish;
    ADD(&h->end, e->finish), ADD(&h->end, e->new_tokens), ADD(&h->end, e->prompt_tokens);
    ADD(&h->end, e->logprob_sum), ADD(&h->end, e->beams_count);
    for (int32_t i = 0; i < e->beams_count; i++) {
        const proa_beam_result *r = &e->beams[i];
        ADD(&h->end, r->score), ADD(&h->end, r->logprob_sum), ADD(&h->end, r->finish), ADD(&h->end, r->sequence);
        add(&h->end, r->ids, (size_t)r->count * sizeof *r->ids);
        if (r->text) add(&h->end, r->text, r->text_len);
    }
    add(&h->end, e->text, e->text_len);
    if (e->error) add(&h->end, e->error->text, strlen(e->error->text));
}

static void hear(const proa_event *e)
{
    received *h = e->arg;
    assert_false(h->done);
    if (e->kind == PROA_EVENT_TOKEN) hear_token(h, e);
    if (e->kind == PROA_EVENT_PROMPT) hear_prompt(h, e);
    if (e->kind == PROA_EVENT_DONE) hear_end(h, e);
    if (e->kind != PROA_EVENT_ROWS) return;
    if (e->rows) add(&h->rows, e->rows, (size_t)(e->rows_count * e->columns) * sizeof(float));
    if (e->pooled) add(&h->rows, e->pooled, (size_t)e->columns * sizeof(float));
}

static void forget(received *h)
{
    for (int i = 0; i < SEQUENCES; i++) free(h->sequence[i].at);
    free(h->rows.at), free(h->prompt.at), free(h->end.at);
    *h = (received){.done = false};
}

/* ---- random requests ---- */

typedef struct request_case {
    int32_t ids[1100], words[8], ends[4], drafted[12];
    proa_bias bias[3];
    const char *stops[2], *choices[2];
    proa_request request;
    int32_t comes, goes; /* the step before which it is submitted; is cancelled, -1: never */
} request_case;

static const char *const models[] = {GOLDEN "arch/bloom",
                                     GOLDEN "arch/gemma2",
                                     GOLDEN "arch/gpt2",
                                     GOLDEN "arch/gptj",
                                     GOLDEN "arch/llama",
                                     GOLDEN "arch/llama3",
                                     GOLDEN "arch/mistral",
                                     GOLDEN "arch/mpt",
                                     GOLDEN "arch/qwen2",
                                     GOLDEN "arch/qwen3",
                                     GOLDEN "arch/t5",
                                     GOLDEN "arch/t5_v1_1",
                                     GOLDEN "arch/bert",
                                     GOLDEN "arch/bert_mlm",
                                     GOLDEN "arch/bert_regress",
                                     STORIES,
                                     MODELS "m30k-t5",
                                     GOLDEN "arch/qwen3_next",
                                     GOLDEN "arch/qwen3_5",
                                     GOLDEN "arch/granitemoehybrid",
                                     GOLDEN "arch/lfm2",
                                     GOLDEN "arch/falcon_h1",
                                     GOLDEN "arch/nemotron_h_moe",
                                     GOLDEN "arch/mamba2",
                                     GOLDEN "arch/mamba",
                                     GOLDEN "arch/jamba",
                                     GOLDEN "arch/deepseek_v32",
                                     GOLDEN "arch/glm_moe_dsa",
                                     GOLDEN "arch/olmo_hybrid",
                                     GOLDEN "arch/kimi_linear",
                                     GOLDEN "arch/minimax",
                                     GOLDEN "arch/zamba2"};

static int64_t length_of(int64_t context)
{
    static const int64_t edges[] = {1, 2, 63, 64, 65, 127, 128, 129};
    int64_t most = proa_min64(context + 1, 200);
    if (one_in(3)) return proa_min64(edges[dice(8)], most);
    if (one_in(12)) return most - (int64_t)dice(3);
    return 1 + dice((uint32_t)proa_min64(most, 100));
}

static void random_words(request_case *a, proa_options *o, int32_t vocab, bool text)
{
    for (int i = 0; i < 8; i++) a->words[i] = (int32_t)dice((uint32_t)vocab);
    a->ends[0] = 1, a->ends[1] = 3, a->ends[2] = 6, a->ends[3] = 8;
    proa_words w = {a->words, a->ends, 1 + (int32_t)dice(4)};
    if (one_in(8)) o->banned_words = w;
    if (one_in(8)) o->stop_words = w;
    if (one_in(24)) o->allowed_words = w;
    else if (text && a->words[7] % 16 == 0) o->json_object = true;
    for (int i = 0; i < 3; i++) a->bias[i] = (proa_bias){(int32_t)dice((uint32_t)vocab), (float)dice(9) - 4};
    if (one_in(8)) o->logit_bias = a->bias, o->logit_bias_count = 1 + (int32_t)dice(3);
}

static void choose_draws(proa_options *o)
{
    o->temperature = 0.3F + 0.25F * (float)dice(8);
    o->seed = dice(1000);
    if (one_in(2)) o->top_k = 1 + (int32_t)dice(60);
    if (one_in(2)) o->top_p = 0.05F * (float)(1 + dice(20));
    if (one_in(4)) o->min_p = 0.02F * (float)dice(20);
    if (one_in(6)) o->typical_p = 0.05F * (float)(1 + dice(20));
    if (one_in(3)) o->n = 1 + (int32_t)dice(5);
    if (one_in(5)) o->best_of = (o->n ? o->n : 1) + (int32_t)dice(4);
    if (one_in(5)) o->style = (proa_style)dice(3);
    if (one_in(6)) o->top_p_decay = 0.9F;
}

static void choose_beams(proa_options *o)
{
    o->beams = 2 + (int32_t)dice(7);
    o->style = (proa_style)dice(3);
    o->early_stopping = (proa_early)dice(3);
    if (one_in(2))
        o->length_penalty = 0.25F * (float)dice(9) - 0.5F, o->given[PROA_OPTION_length_penalty] = true;
    if (o->style != PROA_STYLE_HF && one_in(4)) o->diversity_rate = 0.3F;
    if (one_in(5)) o->beams_returned = 1 + (int32_t)dice((uint32_t)o->beams);
    if (o->style == PROA_STYLE_HF && one_in(4))
        o->beams = 4, o->beam_groups = 2, o->diversity_penalty = 0.5F, o->beams_returned = 0;
}

static void choose_history(proa_options *o)
{
    if (one_in(6)) o->repetition_penalty = 1.3F;
    if (one_in(6)) o->presence_penalty = 0.7F;
    if (one_in(6)) o->frequency_penalty = 0.4F;
    if (one_in(6)) o->no_repeat_ngram = 1 + (int32_t)dice(3);
    if (one_in(6)) o->min_tokens = (int32_t)dice(12);
}

static void choose_told(proa_options *o)
{
    if (one_in(3)) o->logprobs = true;
    if (one_in(8)) o->top_logprobs = 1 + (int32_t)dice(5);
    if (one_in(8)) o->prompt_logprobs = true;
    if (one_in(10)) o->return_logits = true;
    if (one_in(10)) o->return_hidden = true;
}

static uint64_t constrained, adapted; /* requests of all rounds */

/* simple: of letters alone, which every vocabulary can write. */
static void choose_constraint(request_case *a, proa_options *o, bool simple)
{
    static const char *const schemas[] = {
        "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\"},\"b\":{\"type\":\"string\","
        "\"maxLength\":9}},"
        "\"required\":[\"a\"],\"additionalProperties\":false}",
        "{\"type\":\"array\",\"items\":{\"enum\":[true,null,\"x\"]},\"maxItems\":4}"};
    static const char *const regexes[] = {"[a-z ]{3,40}", "(yes|no|[0-9]+)(, (yes|no|[0-9]+))*"};
    switch (simple ? 2 + dice(2) : dice(4)) {
    case 0: o->json_schema = schemas[dice(2)]; break;
    case 1: o->grammar = "root ::= item+\nitem ::= \"- \" [a-z]+ \"\\n\""; break;
    case 2: o->regex = regexes[simple ? 0 : dice(2)]; break;
    default: a->choices[0] = "the sea", a->choices[1] = "the ship"; o->choice = (proa_strings){a->choices, 2};
    }
    constrained++;
}

static void random_options(request_case *a, int32_t vocab, bool text, bool simple)
{
    static const char *const stops[] = {"e", "the", " a", "ing", ". ", "\n", "nd", "r t"};
    proa_options *o = &a->request.options;
    uint32_t kind = dice(8);
    o->max_tokens = one_in(12) ? 0 : one_in(4) ? 1 + (int32_t)dice(3) : 1 + (int32_t)dice(80);
    if (kind >= 6) choose_beams(o);
    else if (kind == 5) o->penalty_alpha = 0.2F * (float)(1 + dice(4)), o->top_k = 2 + (int32_t)dice(5);
    else if (kind >= 2) choose_draws(o);
    if (one_in(3)) choose_history(o), random_words(a, o, vocab, text);
    if (one_in(3)) choose_told(o);
    o->ignore_eos = one_in(2);
    for (; one_in(3) && o->end_ids_count < 3;)
        o->end_ids[o->end_ids_count++] = (int32_t)dice((uint32_t)vocab);
    for (int i = 0; i < 2; i++) a->stops[i] = stops[dice(8)];
    if (text && one_in(5)) choose_constraint(a, o, simple);
    if (text && one_in(3)) o->stop_strings = (proa_strings){a->stops, 1 + (int32_t)dice(2)};
}

static int32_t common[1100]; /* what many requests of a round begin with */

/* A part of the common tokens, or all of a common input, in place of the request's own. */
static void begin_alike(request_case *a)
{
    if (one_in(2)) return;
    size_t count = 64 * (size_t)(1 + dice(3)) + dice(20);
    if (one_in(3)) a->request.ids_count = 70;
    memcpy(a->ids, common, (one_in(3) ? 1100 : count) * sizeof *common);
}

/* Who drafts, and from what; what else is asked for does not depend on it. */
static void choose_drafts(request_case *a, int32_t vocab)
{
    static const char *const names[] = {"none", "ngram", "ngram"};
    proa_options *o = &a->request.options;
    for (int i = 0; i < 12; i++) a->drafted[i] = (int32_t)dice((uint32_t)vocab);
    if (one_in(3)) o->speculation = names[dice(3)];
    if (one_in(4)) o->draft_tokens = 1 + (int32_t)dice(6);
    if (one_in(6)) o->draft_ids = (proa_tokens){a->drafted, 1 + (int32_t)dice(12)};
}

static void choose_client(proa_request *r)
{
    static const char *const clients[] = {NULL, "", "one", "two"};
    r->client = clients[dice(4)];
    if (one_in(4)) r->options.priority = (int32_t)dice(3) - 1;
}

static void choose_adapter(proa_request *r, bool any)
{
    if (!any || one_in(2)) return;
    r->options.adapter = one_in(2) ? "a" : "b";
    adapted++;
}

static void random_request(request_case *a, const proa_info *info, bool adapters, received *h)
{
    proa_request *r = &a->request;
    memset(a, 0, sizeof *a);
    for (int i = 0; i < 1100; i++) a->ids[i] = (int32_t)dice((uint32_t)info->vocab);
    r->ids = a->ids, r->ids_count = length_of(info->context);
    begin_alike(a);
    if (one_in(6)) r->cache_salt = "salt";
    if (info->kind == PROA_KIND_ENCODER_DECODER && one_in(3))
        r->decoder_ids = a->ids + 500, r->decoder_ids_count = one_in(3) ? length_of(130) : 1 + dice(4);
    if (info->kind == PROA_KIND_ENCODER) r->task = PROA_TASK_ROWS;
    else if (one_in(8)) r->task = one_in(2) ? PROA_TASK_ROWS : PROA_TASK_SCORE;
    if (info->kind != PROA_KIND_DECODER && one_in(8)) r->task = PROA_TASK_ENCODE;
    if (r->task == PROA_TASK_GENERATE)
        random_options(a, info->vocab, info->has_tokenizer, info->kind == PROA_KIND_ENCODER_DECODER),
            choose_drafts(a, info->vocab);
    if (r->task == PROA_TASK_SCORE && one_in(2)) r->options.top_logprobs = 3;
    choose_adapter(r, adapters);
    choose_client(r);
    r->on_event = hear, r->arg = h;
    a->comes = (int32_t)dice(40);
    a->goes = one_in(5) ? a->comes + (int32_t)dice(40) : -1;
}

/* ---- engines ---- */

typedef struct round {
    const char *model;
    proa_engine_options options;
    const char *ahead;
    int count;
} round_of;

static proa_engine *open_as(const round_of *r, const proa_engine_options *options, const char *ahead)
{
    setenv("PROA_AHEAD", ahead, 1);
    proa_engine *engine = open_or_fail(r->model, options);
    unsetenv("PROA_AHEAD");
    return engine;
}

static void submit_request(proa_engine *engine, const request_case *a, received *h, uint64_t *id)
{
    proa_err err = {.status = PROA_OK};
    proa_info info;
    proa_engine_info(engine, &info);
    h->vocab = info.outputs, h->hidden = info.hidden;
    proa_request r = a->request;
    r.arg = h;
    h->refused = proa_engine_submit(engine, &r, id, &err);
    if (h->refused != PROA_OK) *id = 0;
}

/* Draws near a border and log-probabilities have the rounding of where they are made (test_inflight compares both
 * places): such requests run alone as they do together, all others on the host. */
static bool rounded(const proa_options *o)
{
    return o->temperature > 0 || o->logprobs || o->top_logprobs > 0 || o->best_of > 1;
}

static void run_alone(const round_of *r, const request_case *all, received *alone, bool as_together)
{
    const char *speculation = r->options.speculation;
    bool heads = speculation && (strcmp(speculation, "medusa") == 0 || strcmp(speculation, "eagle") == 0);
    const proa_engine_options plain = {.threads = 1,
                                       .sequences_max = SEQUENCES,
                                       .kv_tokens = KV_TOKENS,
                                       .dtype = r->options.dtype,
                                       .quant = r->options.quant,
                                       .prefix_cache = "off",
                                       /* a draft model decides how tokens are drawn */
                                       .draft_model = heads ? NULL : r->options.draft_model,
                                       .speculation = "none",
                                       .adapters = r->options.adapters,
                                       .adapters_count = r->options.adapters_count,
                                       .kv_dtype = r->options.kv_dtype};
    proa_engine *engine = open_as(r, &plain, as_together ? r->ahead : "host");
    for (int i = 0; i < r->count; i++) {
        uint64_t id;
        if (rounded(&all[i].request.options) != as_together) continue;
        request_case plain_case = all[i];
        plain_case.request.options.speculation = "none";
        submit_request(engine, &plain_case, &alone[i], &id);
        proa_engine_run(engine);
        assert_true(alone[i].done || alone[i].refused != PROA_OK);
    }
    proa_engine_close(engine);
}

static uint64_t prefix_hits, host_hits, preemptions, drafts_accepted, drafts_wrong; /* of all rounds */

static void run_together(const round_of *r, const request_case *all, received *together)
{
    proa_engine *engine = open_as(r, &r->options, r->ahead);
    uint64_t id[REQUESTS_MAX] = {0};
    proa_stats stats;
    bool more = true;
    for (int step = 0; step < 90 || more; step++) {
        for (int i = 0; i < r->count; i++) {
            if (all[i].comes == step) submit_request(engine, &all[i], &together[i], &id[i]);
            if (all[i].goes == step && id[i]) proa_engine_cancel(engine, id[i]);
        }
        more = proa_engine_step(engine);
    }
    proa_engine_stats(engine, &stats);
    assert_int_equal(stats.pages_used, 0);
    prefix_hits += stats.prefix_hits, host_hits += stats.prefix_hits_host;
    drafts_accepted += stats.accepted;
    drafts_wrong += stats.drafted - stats.accepted;
    assert_int_equal(stats.running + stats.waiting, 0);
    assert_int_equal(engine->async.entries_reserved, 0);
    for (int32_t i = 0; i < r->options.sequences_max; i++) assert_false(engine->slots.used[i]);
    for (int i = 0; i < PROA_CLIENT_BUCKETS; i++) assert_null(engine->shared.clients[i]);
    if (r->options.policy) assert_int_equal(stats.preemptions, 0);
    preemptions += stats.preemptions;
    proa_engine_close(engine);
}

/* ---- comparing ---- */

static uint32_t round_seed;

static void same_bytes(const bytes *a, const bytes *b, bool part, const round_of *r, int i, const char *what)
{
    size_t n = part && a->len < b->len ? a->len : b->len;
    if (a->len == n && (n == 0 || memcmp(a->at, b->at, n) == 0)) return;
    size_t at = 0;
    while (at < n && at < a->len && a->at[at] == b->at[at]) at++;
    fail_msg("seed %u, %s, ahead %s, request %d: other %s, %zu and %zu bytes, from byte %zu on", round_seed,
             r->model, r->ahead, i, what, a->len, b->len, at);
}

/* Text comes in pieces that what was cut off ends early, so that is not compared there. */
static void compare(const received *a, const received *b, const round_of *r, int i)
{
    bool cut = a->finish == PROA_FINISH_CANCELLED;
    bool narrow = r->options.sequences_max < SEQUENCES;
    if (b->refused == PROA_OK && (a->refused == PROA_LIMIT || (a->refused == PROA_INVALID && narrow)))
        return; /* fewer pages, fewer slots */
    if (a->refused != b->refused)
        fail_msg("seed %u, request %d: status %d, %d", round_seed, i, a->refused, b->refused);
    if (a->refused != PROA_OK) return;
    if (!a->done) fail_msg("seed %u, request %d is not done", round_seed, i);
    for (int k = 0; k < SEQUENCES; k++) same_bytes(&a->sequence[k], &b->sequence[k], cut, r, i, "tokens");
    same_bytes(&a->rows, &b->rows, cut, r, i, "rows");
    same_bytes(&a->prompt, &b->prompt, cut, r, i, "prompt");
    if (!cut) same_bytes(&a->end, &b->end, false, r, i, "end");
}

/* A model drafts well for itself. The random decoders, the first DECODERS models, have one vocabulary, so that each can
 * draft for the others, if seldom with luck. NULL: it takes no draft model. */
static const char *choose_draft_model(const char *model)
{
    enum { DECODERS = 10 };
    bool random = false;
    for (int i = 0; i < DECODERS; i++) random = random || strcmp(models[i], model) == 0;
    if (random) return one_in(2) ? model : models[dice(DECODERS)];
    return strcmp(model, STORIES) == 0 ? model : NULL;
}

static void choose_speculation(proa_engine_options *o, const char *model)
{
    uint32_t kind = dice(4);
    if (kind == 1) o->speculation = "ngram";
    if (kind < 2) return;
    o->draft_model = choose_draft_model(model);
    if (strcmp(model, GOLDEN "arch/llama") == 0 && one_in(2)) {
        static const char *const heads[] = {GOLDEN "medusa/a", GOLDEN "eagle/one", GOLDEN "eagle/three"};
        uint32_t which = dice(PROA_COUNT(heads));
        o->speculation = which ? "eagle" : "medusa", o->draft_model = heads[which];
    }
    if (one_in(2)) o->draft_tokens = 1 + (int32_t)dice(8);
}

/* Adapters a and b of the golden models that have some, in one or two slots. */
static void choose_adapters(proa_engine_options *o, const char *model)
{
    static const char *const adaptable[] = {"bloom", "gemma2", "gpt2", "gptj", "llama", "mpt", "qwen3"};
    static char path[2][300];
    static proa_adapter_source sources[2];
    const char *name = strrchr(model, '/') + 1;
    bool any = false;
    for (size_t i = 0; i < PROA_COUNT(adaptable); i++) any = any || strcmp(adaptable[i], name) == 0;
    if (!any || !one_in(2)) return;
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%sadapters/%s/%c", GOLDEN, name, 'a' + i);
        sources[i] = (proa_adapter_source){i ? "b" : "a", path[i]};
    }
    o->adapters = sources, o->adapters_count = 2;
    o->adapter_slots = 1 + (int32_t)dice(2);
}

/* Recurrent states, which neither drafts nor cached prefixes go with. */
static bool has_states(const char *model)
{
    static const char *const names[] = {
        "qwen3_next", "qwen3_5", "granitemoehybrid", "lfm2",        "falcon_h1", "nemotron_h_moe",
        "mamba",      "jamba",   "olmo_hybrid",      "kimi_linear", "minimax",   "zamba2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strstr(model, names[i])) return true;
    return false;
}

static void choose_round(round_of *r, const char *model)
{
    static const char *const dtypes[] = {NULL, "f32", "f16", "bf16"};
    static const char *const aheads[] = {"host", "1", "1"}, *const host[] = {"300K", "2M", "64M"};
    proa_engine_options *o = &r->options;
    *r = (round_of){.model = model, .ahead = aheads[dice(3)], .count = 4 + (int)dice(REQUESTS_MAX - 4)};
    o->threads = 1 + (int32_t)dice(3);
    o->sequences_max = one_in(4) ? SEQUENCES : 1 + (int32_t)dice(SEQUENCES);
    o->step_tokens = one_in(2) ? 1 + (int32_t)dice(40) : 1 + (int32_t)dice(600);
    o->kv_tokens = 64 * (1 + (int64_t)dice(one_in(2) ? 12 : 40));
    o->dtype = dtypes[dice(4)];
    if (one_in(5)) o->quant = "int8";
    if (one_in(5)) o->prefix_cache = "off";
    else if (one_in(2)) o->prefix_host_memory = host[dice(3)];
    if (one_in(2)) o->prompt_slowdown = 1 + 0.25F * (float)dice(8);
    if (one_in(4)) o->prompt_rows = 1 + (int32_t)dice(100);
    choose_speculation(o, model);
    choose_adapters(o, model);
    if (one_in(3)) o->kv_dtype = dtypes[1 + dice(3)];
    if (has_states(model))
        o->speculation = o->draft_model = o->prefix_host_memory = NULL, o->draft_tokens = 0;
    if (one_in(4)) o->policy = "guaranteed_no_evict";
}

static void play(uint32_t seed, const char *model)
{
    static request_case all[REQUESTS_MAX];
    static received alone[REQUESTS_MAX], together[REQUESTS_MAX];
    round_of r;
    proa_info info;
    state = round_seed = seed;
    for (int i = 0; i < 4; i++) dice(2);
    choose_round(&r, model);
    proa_engine *engine = open_or_fail(model, NULL);
    proa_engine_info(engine, &info);
    proa_engine_close(engine);
    for (int i = 0; i < 1100; i++) common[i] = (int32_t)dice((uint32_t)info.vocab);
    for (int i = 0; i < r.count; i++)
        random_request(&all[i], &info, r.options.adapters_count > 0, &together[i]);
    for (int i = 0; i < r.count && has_states(model); i++) all[i].request.options.speculation = NULL;
    /* Without a limit a request would run as far as the context, of Mamba-2 a million tokens. */
    for (int i = 0; i < r.count && info.context > KV_TOKENS; i++)
        if (all[i].request.options.max_tokens == 0) all[i].request.options.max_tokens = 80;
    /* Alone a request runs on one thread: the thread sanitizer has nothing to see there. Other builds compare. */
    bool compared = !PROA_SANITIZED || PROA_ASAN;
    if (compared) run_alone(&r, all, alone, false), run_alone(&r, all, alone, true);
    run_together(&r, all, together);
    for (int i = 0; i < r.count; i++) {
        if (compared) compare(&together[i], &alone[i], &r, i);
        forget(&together[i]), forget(&alone[i]);
    }
}

static void play_models(unsigned seed, size_t step, const char *only)
{
    for (size_t m = 0; m < PROA_COUNT(models); m += step)
        if (!only || strstr(models[m], only)) play(seed * 1000 + (uint32_t)m, models[m]);
}

/* What is compared has been drawn: a third of the models need not draw an adapter at once. */
static void assert_all_drawn(unsigned seed)
{
    for (uint32_t i = 1; adapted == 0 && i < 10; i++) play(seed * 1000 + 100 * i, GOLDEN "arch/llama");
    assert_true(prefix_hits > 0 && drafts_accepted > 0 && drafts_wrong > 0);
    assert_true(constrained > 0 && adapted > 0);
}

static void each_hears_what_it_hears_alone(void **unused)
{
    const char *wanted = getenv("PROA_TRAFFIC"), *only = getenv("PROA_TRAFFIC_MODEL");
    unsigned seed = 1, rounds = 1;
    PROA_UNUSED(unused);
    if (getenv("PROA_TEST_DEVICE")) skip(); /* there a row's bits depend on who shares its step */
    if (wanted) sscanf(wanted, "%u,%u", &seed, &rounds);
    for (unsigned i = 0; i < rounds; i++) play_models(seed + i, wanted ? 1 : PART_OF(1, 3), only);
    if (!only) assert_all_drawn(seed);
    if (wanted)
        print_message("%llu preemptions, %llu tokens from host memory\n", (unsigned long long)preemptions,
                      (unsigned long long)host_hits);
    else assert_true(preemptions > 0); /* so what is compared has been preempted */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_hears_what_it_hears_alone)};
    return cmocka_run_group_tests_name("traffic", tests, NULL, NULL);
}
