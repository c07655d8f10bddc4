/* SPDX-License-Identifier: Apache-2.0
 * reply_native.c - replies of Proa's own contract (README.md): S sequences of L tokens, or an encoder's rows. */
#include "backends/llm/contract_native.h"

#include "backends/llm/tensor_write.h"
#include <math.h>
#include <string.h>

/* What one reply is made of. */
typedef struct answer {
    proa_llm_request *req;
    proa_prompt *p;
    proa_llm_output *const *output; /* [S] */
    int64_t S, L, M;
    proa_reply *reply;
} answer;

/* ---- texts and ids ---- */

/* The text of a sequence after the echo of its prompt, in the reply's arena. */
static proa_str copy_text(const answer *a, const proa_llm_output *s, proa_str echo)
{
    char *both = proa_arena_alloc(&a->reply->arena, echo.len + s->text.len + 1);
    if (echo.len) memcpy(both, echo.ptr, echo.len);
    if (s->text.len) memcpy(both + echo.len, s->text.ptr, s->text.len);
    return (proa_str){both, echo.len + s->text.len};
}

static void add_text(const answer *a)
{
    proa_str *texts = PROA_ARENA_NEW(&a->reply->arena, proa_str, a->S);
    if (!a->req->llm_model->tokenizer || !proa_infer_wants(a->req->infer, "text_output")) return;
    for (int64_t i = 0; i < a->S; i++) {
        const proa_llm_output *s = a->output[i];
        bool echo = s->emitted == PROA_EMITTED_NOTHING && a->p->echo.len > 0;
        texts[i] = echo ? copy_text(a, s, a->p->echo) : proa_buf_view(&s->text);
    }
    proa_reply_texts(a->req, a->reply, "text_output", texts, a->S);
}

static void add_ids(const answer *a)
{
    int32_t pad = a->req->llm_model->end_id >= 0 ? a->req->llm_model->end_id : 0;
    int32_t *ids = proa_reply_ints(a->req, a->reply, "output_ids", (int64_t[]){a->S, a->L}, 2, pad);
    int32_t *lengths = proa_reply_ints(a->req, a->reply, "sequence_length", &a->S, 1, 0);
    int32_t *index = proa_reply_ints(a->req, a->reply, "sequence_index", &a->S, 1, 0);
    int32_t *made = proa_reply_ints(a->req, a->reply, "completion_tokens", &a->S, 1, 0);
    for (int64_t i = 0; i < a->S; i++) {
        const proa_llm_output *s = a->output[i];
        if (ids && s->ids.len) memcpy(ids + i * a->L, s->ids.ptr, (size_t)s->ids.len * sizeof *ids);
        if (lengths) lengths[i] = (int32_t)s->ids.len;
        if (index) index[i] = s->index;
        if (made) made[i] = (int32_t)s->tokens;
    }
}

static void add_reasons(const answer *a)
{
    proa_str *reasons = PROA_ARENA_NEW(&a->reply->arena, proa_str, a->S);
    for (int64_t i = 0; i < a->S; i++)
        reasons[i] = proa_str_c(proa_generated_finish_name(a->output[i]->finish));
    proa_reply_texts(a->req, a->reply, "finish_reason", reasons, a->S);
}

/* ---- log-probabilities ---- */

/* Is there a row of `bytes` for each token? Not where they were not computed. */
static bool is_complete(const proa_llm_output *s, const proa_buf *of, size_t bytes)
{
    return of->len == (size_t)s->ids.len * bytes;
}

static void add_floats(const answer *a, const char *name, size_t at, int64_t columns)
{
    const int64_t shape[] = {a->S, a->L, columns};
    size_t row = (size_t)(columns ? columns : 1) * sizeof(float);
    for (int64_t i = 0; i < a->S; i++) {
        const proa_buf *buf = (const proa_buf *)(const void *)((const char *)a->output[i] + at);
        if (!is_complete(a->output[i], buf, row)) return;
    }
    float *to = proa_reply_floats(a->req, a->reply, name, shape, columns ? 3 : 2, 0);
    for (int64_t i = 0; i < a->S && to; i++) {
        const proa_buf *buf = (const proa_buf *)(const void *)((const char *)a->output[i] + at);
        if (buf->len) memcpy((char *)to + (size_t)(i * a->L) * row, buf->ptr, buf->len);
    }
}

static void add_sums(const answer *a)
{
    const proa_options *o = &a->p->request.options;
    bool whole = a->p->whole && a->p->finish != PROA_FINISH_NONE;
    if (o->logprobs || whole) {
        float *sums = proa_reply_floats(a->req, a->reply, "cum_log_probs", &a->S, 1, 0);
        for (int64_t i = 0; i < a->S && sums; i++) sums[i] = (float)a->output[i]->sum;
    }
    if (!whole) return;
    float *scores = proa_reply_floats(a->req, a->reply, "scores", &a->S, 1, 0);
    for (int64_t i = 0; i < a->S && scores; i++) scores[i] = a->output[i]->score;
}

static void add_token_texts(const answer *a)
{
    proa_token_bytes *token_bytes = a->req->llm_model->token_bytes;
    if (!token_bytes || !proa_infer_wants(a->req->infer, "token_text")) return;
    proa_str *texts = PROA_ARENA_NEW(&a->reply->arena, proa_str, a->S * a->L);
    for (int64_t i = 0; i < a->S; i++)
        for (int64_t k = 0; k < a->output[i]->ids.len; k++)
            texts[i * a->L + k] = proa_token_bytes_of(token_bytes, a->output[i]->ids.ptr[k]);
    proa_tensor *t = proa_reply_texts(a->req, a->reply, "token_text", texts, a->S * a->L);
    t->rank = 2;
    t->shape[0] = a->S;
    t->shape[1] = a->L;
}

/* [.., M] entries of ids, log-probabilities and texts. `rows` are those of `from`, the output has `all` rows; row i
 * goes to place[i]. */
static void add_tops(const answer *a, const char *const names[3], const int64_t *shape, int32_t rank,
                     const proa_logprob *const *from, int64_t all)
{
    int32_t *ids = proa_reply_ints(a->req, a->reply, names[0], shape, rank, -1);
    float *values = proa_reply_floats(a->req, a->reply, names[1], shape, rank, 0);
    proa_token_bytes *token_bytes = a->req->llm_model->token_bytes;
    bool texts = token_bytes && proa_infer_wants(a->req->infer, names[2]);
    proa_str *text = texts ? PROA_ARENA_NEW(&a->reply->arena, proa_str, all * a->M) : NULL;
    for (int64_t i = 0; i < all * a->M; i++) {
        const proa_logprob *top = from[i / a->M] ? from[i / a->M] + i % a->M : NULL;
        if (ids && top) ids[i] = top->id;
        if (values) values[i] = top ? top->logprob : NAN;
        if (text && top) text[i] = proa_token_bytes_of(token_bytes, top->id);
    }
    if (!text) return;
    proa_tensor *t = proa_reply_texts(a->req, a->reply, names[2], text, all * a->M);
    t->rank = rank;
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
}

static void add_alternatives(const answer *a)
{
    static const char *const names[3] = {"top_ids", "top_log_probs", "top_text"};
    const proa_logprob **from = PROA_ARENA_NEW(&a->reply->arena, const proa_logprob *, a->S * a->L);
    if (!a->M) return;
    for (int64_t i = 0; i < a->S; i++) {
        const proa_llm_output *s = a->output[i];
        if (!is_complete(s, &s->top, (size_t)a->M * sizeof(proa_logprob))) return;
        const proa_logprob *top = (const void *)s->top.ptr;
        for (int64_t k = 0; k < s->ids.len; k++) from[i * a->L + k] = top + k * a->M;
    }
    add_tops(a, names, (int64_t[]){a->S, a->L, a->M}, 3, from, a->S * a->L);
}

/* ---- the prompt's ---- */

static void add_prompt_alternatives(const answer *a, int64_t P)
{
    static const char *const names[3] = {"prompt_top_ids", "prompt_top_log_probs", "prompt_top_text"};
    const proa_logprob **from = PROA_ARENA_NEW(&a->reply->arena, const proa_logprob *, P);
    const proa_logprob *top = (const void *)a->p->top.ptr;
    if (!a->M || a->p->top.len != (size_t)((P - 1) * a->M) * sizeof *top) return;
    for (int64_t i = 1; i < P; i++) from[i] = top + (i - 1) * a->M;
    add_tops(a, names, (int64_t[]){P, a->M}, 2, from, P);
}

/* The tokens that prompt outputs are about. */
static const proa_id_list *scored_ids(const proa_prompt *p)
{
    return p->decoder_ids.len ? &p->decoder_ids : &p->ids;
}

/* Prompt outputs are wanted, known, and in no earlier reply. */
static bool is_prompt_wanted(const proa_prompt *p)
{
    bool wanted = p->request.options.prompt_logprobs || p->request.task == PROA_TASK_SCORE;
    return wanted && !p->prompt_emitted && p->logprobs.len == (size_t)(scored_ids(p)->len - 1) * sizeof(float);
}

static void add_prompt(const answer *a)
{
    proa_prompt *p = a->p;
    const proa_id_list *ids = scored_ids(p);
    int64_t P = ids->len;
    if (!is_prompt_wanted(p)) return;
    p->prompt_emitted = true;
    int32_t *to = proa_reply_ints(a->req, a->reply, "prompt_ids", &P, 1, 0);
    if (to) memcpy(to, ids->ptr, (size_t)P * sizeof *to);
    float *values = proa_reply_floats(a->req, a->reply, "prompt_log_probs", &P, 1, NAN);
    if (values && P > 1) memcpy(values + 1, p->logprobs.ptr, p->logprobs.len);
    if (a->req->llm_model->token_bytes) {
        proa_str *texts = PROA_ARENA_NEW(&a->reply->arena, proa_str, P);
        for (int64_t i = 0; i < P; i++)
            texts[i] = proa_token_bytes_of(a->req->llm_model->token_bytes, ids->ptr[i]);
        proa_reply_texts(a->req, a->reply, "prompt_text", texts, P);
    }
    add_prompt_alternatives(a, P);
}

/* [columns], or [rows, columns] of a batch. */
static const int64_t *row_shape(const answer *a, int64_t columns, int64_t shape[2], int32_t *rank)
{
    bool batched = proa_served_model_config(a->req->llm_model->model)->max_batch_size > 0;
    shape[0] = a->req->count;
    shape[1] = columns;
    *rank = 1 + batched;
    return shape + !batched;
}

static int64_t count_prompt(const proa_prompt *p)
{
    return p->finish == PROA_FINISH_NONE ? p->ids.len + p->start_tokens : p->prompt_tokens;
}

static void add_prompt_tokens(const answer *a)
{
    int64_t shape[2];
    int32_t rank;
    const int64_t *of = row_shape(a, 1, shape, &rank);
    int32_t *to = proa_reply_ints(a->req, a->reply, "prompt_tokens", of, rank, 0);
    for (int64_t i = 0; i < a->req->count && to; i++) to[i] = (int32_t)count_prompt(&a->req->prompts[i]);
}

/* ---- typed replies ---- */

/* `count` tokens, of which the first `skip` have no log-probability: those of a prompt have none for their first. */
static void type_tokens(const answer *a, proa_generated_tokens *to, const int32_t *ids, int64_t count,
                        int64_t skip, const proa_buf *logprobs)
{
    proa_token_bytes *token_bytes = a->req->llm_model->token_bytes;
    proa_arena *arena = &a->reply->arena;
    float *values = PROA_ARENA_NEW(arena, float, count);
    for (int64_t i = 0; i < skip; i++) values[i] = NAN;
    if (count > skip) memcpy(values + skip, logprobs->ptr, (size_t)(count - skip) * sizeof *values);
    *to = (proa_generated_tokens){.count = count, .ids = ids, .logprobs = values};
    if (!token_bytes) return;
    proa_str *texts = PROA_ARENA_NEW(arena, proa_str, count);
    for (int64_t i = 0; i < count; i++) texts[i] = proa_token_bytes_of(token_bytes, ids[i]);
    to->texts = texts;
}

/* The alternatives of these tokens, if there are M for each but the first `skip`. */
static void type_tops(const answer *a, proa_generated_tokens *to, int64_t skip, const proa_buf *top)
{
    proa_token_bytes *token_bytes = a->req->llm_model->token_bytes;
    proa_arena *arena = &a->reply->arena;
    const proa_logprob *from = (const void *)top->ptr;
    int64_t n = to->count * a->M, first = skip * a->M;
    if (!a->M || top->len != (size_t)(n - first) * sizeof *from) return;
    int32_t *ids = PROA_ARENA_NEW(arena, int32_t, n);
    float *values = PROA_ARENA_NEW(arena, float, n);
    proa_str *texts = token_bytes ? PROA_ARENA_NEW(arena, proa_str, n) : NULL;
    for (int64_t i = 0; i < n; i++) {
        const proa_logprob *one = i < first ? NULL : &from[i - first];
        ids[i] = one ? one->id : -1;
        values[i] = one ? one->logprob : NAN;
        if (one && texts) texts[i] = proa_token_bytes_of(token_bytes, one->id);
    }
    to->tops = a->M, to->top_ids = ids, to->top_logprobs = values, to->top_texts = texts;
}

static void type_prompt(const answer *a, proa_generated *g)
{
    proa_prompt *p = a->p;
    const proa_id_list *ids = scored_ids(p);
    if (!is_prompt_wanted(p)) return;
    p->prompt_emitted = true;
    proa_generated_tokens *tokens = PROA_ARENA_NEW(&a->reply->arena, proa_generated_tokens, 1);
    int32_t *copy = PROA_ARENA_NEW(&a->reply->arena, int32_t, ids->len); /* those of a text end with the request */
    memcpy(copy, ids->ptr, (size_t)ids->len * sizeof *copy);
    type_tokens(a, tokens, copy, ids->len, 1, &p->logprobs);
    type_tops(a, tokens, 1, &p->top);
    g->prompt = tokens;
}

/* Rows of a sequence, copied: the sequence is cleared when the reply is sent. */
static const void *copy_rows(const answer *a, const proa_buf *from)
{
    char *to = proa_arena_alloc(&a->reply->arena, from->len + 1);
    if (from->len) memcpy(to, from->ptr, from->len);
    return to;
}

static void type_sequence(const answer *a, const proa_generated *g, proa_generated_sequence *to,
                          proa_llm_output *s)
{
    int32_t *ids = PROA_ARENA_NEW(&a->reply->arena, int32_t, s->ids.len);
    if (s->ids.len) memcpy(ids, s->ids.ptr, (size_t)s->ids.len * sizeof *ids);
    *to = (proa_generated_sequence){.index = s->index, .finish = s->finish, .tokens = s->tokens};
    to->text = copy_text(a, s, s->emitted == PROA_EMITTED_NOTHING ? a->p->echo : (proa_str){NULL, 0});
    to->ids = ids, to->ids_count = s->ids.len;
    to->stop = s->stop;
    to->sum = (float)s->sum, to->score = s->score;
    if (g->split) proa_llm_split_text(a->p, s, to, &a->reply->arena);
    if (a->p->request.options.logprobs && is_complete(s, &s->logprobs, sizeof(float))) {
        type_tokens(a, &to->added, ids, s->ids.len, 0, &s->logprobs);
        type_tops(a, &to->added, 0, &s->top);
    }
    if (g->logits_columns) to->logits = copy_rows(a, &s->logits);
    if (g->hidden_columns) to->hidden = copy_rows(a, &s->hidden);
}

static proa_generated *type_reply(const answer *a)
{
    const proa_llm_model *s = a->req->llm_model;
    proa_generated *g = PROA_ARENA_NEW(&a->reply->arena, proa_generated, 1);
    g->prompt_tokens = count_prompt(a->p);
    g->cached_tokens = a->p->cached_tokens;
    g->drafted_tokens = a->p->drafted_tokens, g->accepted_tokens = a->p->accepted_tokens;
    g->task = a->p->generation->task;
    g->pad_id = s->end_id >= 0 ? s->end_id : 0;
    g->no_texts = !s->tokenizer;
    g->split = a->p->split;
    a->reply->generated = g;
    return g;
}

/* Is there a row of `bytes` for each token of all sequences? */
static bool all_complete(const answer *a, size_t at, size_t bytes)
{
    bool complete = true;
    for (int64_t i = 0; i < a->S && complete; i++)
        complete = is_complete(a->output[i], (const void *)((const char *)a->output[i] + at), bytes);
    return complete;
}

static void type_sequences(const answer *a)
{
    const proa_options *o = &a->p->request.options;
    const proa_info *info = &a->req->llm_model->info;
    proa_generated *g = type_reply(a);
    proa_generated_sequence *list = PROA_ARENA_NEW(&a->reply->arena, proa_generated_sequence, a->S);
    size_t of_logits = (size_t)info->outputs * sizeof(float), of_hidden = (size_t)info->hidden * sizeof(float);
    g->scores = a->p->whole && a->p->finish != PROA_FINISH_NONE;
    g->sums = o->logprobs || g->scores;
    g->logprobs = o->logprobs && all_complete(a, offsetof(proa_llm_output, logprobs), sizeof(float));
    if (o->logprobs && all_complete(a, offsetof(proa_llm_output, top), (size_t)a->M * sizeof(proa_logprob)))
        g->tops = a->M;
    if (o->return_logits && all_complete(a, offsetof(proa_llm_output, logits), of_logits))
        g->logits_columns = info->outputs;
    if (o->return_hidden && all_complete(a, offsetof(proa_llm_output, hidden), of_hidden))
        g->hidden_columns = info->hidden;
    for (int64_t i = 0; i < a->S; i++) type_sequence(a, g, &list[i], a->output[i]);
    g->sequences = list;
    g->count = a->S;
    type_prompt(a, g);
}

/* ---- whole replies ---- */

static void add_sequences(const answer *a)
{
    const proa_options *o = &a->p->request.options;
    add_text(a);
    add_ids(a);
    add_reasons(a);
    add_prompt_tokens(a);
    add_sums(a);
    if (o->logprobs) {
        add_floats(a, "output_log_probs", offsetof(proa_llm_output, logprobs), 0);
        add_token_texts(a);
        add_alternatives(a);
    }
    if (o->return_logits)
        add_floats(a, "logits", offsetof(proa_llm_output, logits), a->req->llm_model->info.outputs);
    if (o->return_hidden)
        add_floats(a, "hidden", offsetof(proa_llm_output, hidden), a->req->llm_model->info.hidden);
    add_prompt(a);
}

static void reply_generated(proa_llm_request *req, proa_prompt *p, proa_llm_output *const *output,
                            int64_t count, bool final)
{
    answer a = {.req = req, .p = p, .output = output, .S = count, .M = p->request.options.top_logprobs};
    for (int64_t i = 0; i < count; i++)
        if (output[i]->ids.len > a.L) a.L = output[i]->ids.len;
    a.reply = proa_reply_new(req->infer);
    if (req->infer->generation) type_sequences(&a);
    else add_sequences(&a);
    proa_llm_reply(req, a.reply, final);
}

void proa_native_emit(proa_llm_request *req, proa_prompt *p, proa_llm_output *output, int32_t count, bool final)
{
    PROA_UNUSED(count); /* one: beams are not bundled */
    reply_generated(req, p, &output, 1, final);
}

/* ---- rows ---- */

static void reply_rows(const answer *a)
{
    const proa_prompt *p = a->p;
    int64_t columns = p->columns ? p->columns : 1, n = (int64_t)(p->rows.len / sizeof(float)) / columns;
    float *to = proa_reply_floats(a->req, a->reply, "rows", (int64_t[]){n, columns}, 2, 0);
    if (to) memcpy(to, p->rows.ptr, p->rows.len);
}

static const float *pool_rows(const proa_prompt *p, float *mean, int64_t n, int64_t columns)
{
    const float *rows = (const void *)p->rows.ptr;
    switch (proa_llm_pooling(p)) {
    case PROA_POOLING_POOLER: return (const void *)p->pooled.ptr;
    case PROA_POOLING_CLS: return rows;
    case PROA_POOLING_LAST: return rows + (n - 1) * columns;
    case PROA_POOLING_MEAN:
    case PROA_POOLING_DEFAULT: break;
    }
    for (int64_t k = 0; k < columns; k++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += (double)rows[i * columns + k];
        mean[k] = (float)(sum / (double)n);
    }
    return mean;
}

static void normalize_vector(float *v, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)v[i] * (double)v[i];
    for (int64_t i = 0; i < n && sum > 0; i++) v[i] = (float)((double)v[i] / sqrt(sum));
}

/* The folder's own embedding ends with a module that normalises. */
static bool folder_normalizes(const proa_prompt *p)
{
    return p->generation->pooling == PROA_POOLING_DEFAULT && p->req->llm_model->modules.normalize;
}

/* The dense layers of the folder's own embedding; NULL: none. */
static const proa_sentence_dense *folder_dense(const proa_prompt *p)
{
    return p->generation->pooling == PROA_POOLING_DEFAULT ? p->req->llm_model->modules.dense : NULL;
}

static int64_t embedding_width(const proa_prompt *p)
{
    const proa_llm_model *s = p->req->llm_model;
    return folder_dense(p) ? s->modules.width : s->info.hidden;
}

/* Labels need the host; without them the logits and scores of classes may stay on a GPU, as an embedding may. */
proa_llm_place proa_native_places(const proa_llm_request *req)
{
    const proa_prompt *p = &req->prompts[0];
    const proa_engine *engine = req->llm_model->engine;
    bool classes = p->generation->task == PROA_GENERATION_CLASSIFY,
         pooler = proa_llm_pooling(p) == PROA_POOLING_POOLER;
    if (classes && proa_engine_has_head_row(engine) && !proa_infer_wants(req->infer, "label"))
        return PROA_LLM_PLACE_HEAD;
    if (p->generation->task != PROA_GENERATION_EMBED || folder_dense(p)) return PROA_LLM_PLACE_HOST;
    if (pooler) return proa_engine_has_pooler(engine) ? PROA_LLM_PLACE_POOLED : PROA_LLM_PLACE_HOST;
    return proa_engine_is_headless(engine) ? PROA_LLM_PLACE_ROWS : PROA_LLM_PLACE_HOST;
}

static bool wants_unit(const proa_prompt *p)
{
    return p->generation->normalize || folder_normalizes(p);
}

/* x: the pooled states; what the dense layers make of them. */
static const float *apply_dense(const answer *a, const proa_prompt *p, const float *x)
{
    for (const proa_sentence_dense *d = folder_dense(p); d; d = d->next) {
        float *y = PROA_ARENA_NEW(&a->reply->arena, float, d->layer.outputs);
        proa_dense_apply(&d->layer, y, x);
        x = y;
    }
    return x;
}

static void embed_row(const answer *a, proa_prompt *p, float *to)
{
    int64_t columns = p->req->llm_model->info.hidden, width = embedding_width(p);
    if (p->request.task == PROA_TASK_GENERATE && p->output_count) /* a decoder's */
        proa_buf_append(&p->rows, p->output[0].hidden.ptr, p->output[0].hidden.len);
    int64_t n = (int64_t)(p->rows.len / sizeof(float)) / columns;
    float *mean = PROA_ARENA_NEW(&a->reply->arena, float, columns);
    memcpy(to, apply_dense(a, p, pool_rows(p, mean, n, columns)), (size_t)width * sizeof *to);
    if (wants_unit(p)) normalize_vector(to, width);
}

/* An output that is on the GPU. */
static void add_placed(const answer *a, const char *name, const int64_t *shape, int32_t rank, proa_buffer *rows)
{
    if (proa_infer_wants(a->req->infer, name))
        proa_gpu_output(a->reply, &(proa_output_spec){name, PROA_TYPE_FP32, shape, rank}, rows, 0);
}

static void add_placed_embedding(const answer *a, const int64_t *shape, int32_t rank)
{
    const proa_prompt *p = &a->req->prompts[0];
    proa_pooling pooling = proa_llm_pooling(p);
    proa_pool_mode mode = pooling == PROA_POOLING_LAST                                    ? PROA_POOL_LAST
                          : pooling == PROA_POOLING_CLS || pooling == PROA_POOLING_POOLER ? PROA_POOL_FIRST
                                                                                          : PROA_POOL_MEAN;
    proa_buffer *vectors = NULL;
    if (proa_llm_places_pool(a->req, mode, wants_unit(p), &vectors, &a->reply->error) == PROA_OK)
        add_placed(a, "embedding", shape, rank, vectors);
    proa_buffer_drop(vectors);
}

static void reply_embedding(const answer *a)
{
    int64_t columns = embedding_width(&a->req->prompts[0]), shape[2];
    int32_t rank;
    const int64_t *of = row_shape(a, columns, shape, &rank);
    if (a->req->rows) {
        add_placed_embedding(a, of, rank);
        return;
    }
    float *to = proa_reply_floats(a->req, a->reply, "embedding", of, rank, 0);
    for (int64_t i = 0; i < a->req->count && to; i++) embed_row(a, &a->req->prompts[i], to + i * columns);
}

static void scores_of(float *to, const float *logits, int64_t n, const proa_llm_model *s)
{
    float most = logits[0];
    double sum = 0;
    for (int64_t i = 1; i < n; i++) most = logits[i] > most ? logits[i] : most;
    for (int64_t i = 0; i < n; i++) sum += exp((double)(logits[i] - most));
    for (int64_t i = 0; i < n; i++) {
        if (s->scores == PROA_SCORES_PLAIN) to[i] = logits[i];
        else if (s->scores == PROA_SCORES_SIGMOID) to[i] = (float)(1 / (1 + exp(-(double)logits[i])));
        else to[i] = (float)(exp((double)(logits[i] - most)) / sum);
    }
}

static int64_t best_of(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

static void add_labels(const answer *a, const char *name, const proa_str *labels, int64_t columns)
{
    int64_t shape[2];
    int32_t rank;
    const int64_t *of = row_shape(a, columns, shape, &rank);
    proa_tensor *t = proa_reply_texts(a->req, a->reply, name, labels, a->req->count * columns);
    if (!t) return;
    t->rank = rank;
    memcpy(t->shape, of, (size_t)rank * sizeof *of);
}

/* Logits and scores on the GPU, and the names of the classes. */
static void reply_placed_classes(const answer *a)
{
    const proa_llm_model *s = a->req->llm_model;
    int64_t rows = a->req->count, n = s->info.outputs, shape[2];
    int32_t rank;
    const int64_t *of = row_shape(a, n, shape, &rank);
    proa_str *labels = PROA_ARENA_NEW(&a->reply->arena, proa_str, rows * n);
    proa_buffer *scores = NULL;
    for (int64_t i = 0; i < rows * n; i++) labels[i] = proa_str_c(s->label[i % n]);
    add_placed(a, "logits", of, rank, a->req->rows);
    if (proa_infer_wants(a->req->infer, "scores") &&
        proa_llm_places_scores(a->req, &scores, &a->reply->error) == PROA_OK)
        add_placed(a, "scores", of, rank, scores);
    proa_buffer_drop(scores);
    add_labels(a, "labels", labels, n);
}

static void reply_classes(const answer *a)
{
    const proa_llm_model *s = a->req->llm_model;
    int64_t rows = a->req->count, n = a->p->columns, shape[2];
    int32_t rank;
    const int64_t *of = row_shape(a, n, shape, &rank);
    proa_str *labels = PROA_ARENA_NEW(&a->reply->arena, proa_str, rows * n);
    proa_str *best = PROA_ARENA_NEW(&a->reply->arena, proa_str, rows);
    float *to = proa_reply_floats(a->req, a->reply, "logits", of, rank, 0);
    float *scores = proa_reply_floats(a->req, a->reply, "scores", of, rank, 0);
    for (int64_t i = 0; i < rows; i++) {
        const float *logits = (const void *)a->req->prompts[i].rows.ptr;
        if (to) memcpy(to + i * n, logits, (size_t)n * sizeof *to);
        if (scores) scores_of(scores + i * n, logits, n, s);
        for (int64_t k = 0; k < n; k++) labels[i * n + k] = proa_str_c(s->label[k]);
        best[i] = labels[i * n + best_of(logits, n)];
    }
    add_labels(a, "label", best, 1);
    add_labels(a, "labels", labels, n);
}

/* ---- typed replies without new tokens ---- */

static void type_rows(const answer *a, proa_generated *g)
{
    const proa_prompt *p = a->p;
    g->rows_columns = p->columns ? p->columns : 1;
    g->rows_count = (int64_t)(p->rows.len / sizeof(float)) / g->rows_columns;
    g->rows = copy_rows(a, &p->rows);
}

static void type_embedding(const answer *a, proa_generated *g)
{
    int64_t columns = embedding_width(a->p);
    float *to = PROA_ARENA_NEW(&a->reply->arena, float, columns);
    embed_row(a, a->p, to);
    g->embedding = to;
    g->embedding_count = columns;
}

/* As the CrossEncoder of sentence-transformers computes it. */
static float relevance_of(const proa_llm_model *s, const float *logits)
{
    if (s->labels != 1) return NAN;
    return s->plain_relevance ? logits[0] : (float)(1 / (1 + exp(-(double)logits[0])));
}

static void type_classes(const answer *a, proa_generated *g)
{
    const proa_llm_model *s = a->req->llm_model;
    int64_t n = a->p->columns;
    proa_generated_classes *classes = PROA_ARENA_NEW(&a->reply->arena, proa_generated_classes, 1);
    float *scores = PROA_ARENA_NEW(&a->reply->arena, float, n);
    const float *logits = copy_rows(a, &a->p->rows);
    scores_of(scores, logits, n, s);
    *classes = (proa_generated_classes){n,      best_of(logits, n), logits,
                                        scores, s->label,           relevance_of(s, logits)};
    g->classes = classes;
}

/* Copied: the tokens of a prompt end with its request. */
static void type_ids(const answer *a, proa_generated *g)
{
    const proa_id_list *ids = &a->p->ids;
    const proa_tokenizer *tok = a->req->llm_model->tokenizer;
    int32_t *copy = PROA_ARENA_NEW(&a->reply->arena, int32_t, ids->len);
    if (ids->len) memcpy(copy, ids->ptr, (size_t)ids->len * sizeof *copy);
    g->ids = copy;
    g->ids_count = ids->len;
    g->context = a->req->llm_model->info.context;
    if (!tok) return;
    proa_str *pieces = PROA_ARENA_NEW(&a->reply->arena, proa_str, ids->len);
    for (int64_t i = 0; i < ids->len; i++) pieces[i] = proa_tokenizer_token(tok, copy[i]);
    g->pieces = pieces;
}

static void type_text(const answer *a, proa_generated *g)
{
    const proa_str *text = &a->p->decoded;
    g->text = (proa_str){proa_arena_strdup(&a->reply->arena, *text), text->len};
}

static void type_other(const answer *a)
{
    proa_generated *g = type_reply(a);
    switch (g->task) {
    case PROA_GENERATION_ROWS: type_rows(a, g); break;
    case PROA_GENERATION_EMBED: type_embedding(a, g); break;
    case PROA_GENERATION_CLASSIFY: type_classes(a, g); break;
    case PROA_GENERATION_TOKENIZE: type_ids(a, g); break;
    case PROA_GENERATION_DETOKENIZE: type_text(a, g); break;
    default: type_prompt(a, g); break;
    }
}

void proa_native_end(proa_llm_request *req)
{
    proa_prompt *p = &req->prompts[0];
    proa_generation_task task = p->generation->task;
    if (task == PROA_GENERATION_TEXT) {
        proa_llm_output **output = PROA_ARENA_NEW(&req->arena, proa_llm_output *, p->output_count);
        for (int32_t i = 0; i < p->output_count; i++) output[i] = &p->output[i];
        reply_generated(req, p, output, p->output_count, true);
        return;
    }
    answer a = {.req = req, .p = p, .M = p->request.options.top_logprobs};
    a.reply = proa_reply_new(req->infer);
    if (req->infer->generation) {
        type_other(&a);
        proa_llm_reply(req, a.reply, true);
        return;
    }
    add_prompt_tokens(&a);
    switch (task) {
    case PROA_GENERATION_ROWS: reply_rows(&a); break;
    case PROA_GENERATION_EMBED: reply_embedding(&a); break;
    case PROA_GENERATION_CLASSIFY: req->rows ? reply_placed_classes(&a) : reply_classes(&a); break;
    default: add_prompt(&a); break;
    }
    proa_llm_reply(req, a.reply, true);
}
