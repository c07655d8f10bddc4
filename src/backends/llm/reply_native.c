/* SPDX-License-Identifier: Apache-2.0
 * engine_own.c - replies of Proa's own contract (README.md): S sequences of L tokens, or an encoder's rows. */
#include "backends/engine_own.h"

#include "backends/llm/tensor_write.h"
#include <math.h>
#include <string.h>

/* What one reply is made of. */
typedef struct answer {
    proa_call *call;
    proa_prompt *p;
    proa_said *const *said; /* [S] */
    int64_t S, L, M;
    proa_reply *reply;
} answer;

static const proa_own *own_of(const proa_call *call)
{
    return call->own;
}

/* ---- texts and ids ---- */

static void add_text(const answer *a)
{
    proa_str *texts = PROA_ARENA_NEW(&a->reply->arena, proa_str, a->S);
    if (!a->call->served->tokenizer || !proa_infer_wants(a->call->infer, "text_output")) return;
    for (int64_t i = 0; i < a->S; i++) {
        const proa_said *s = a->said[i];
        texts[i] = proa_buf_view(&s->text);
        if (s->begun || !a->p->echo.len) continue;
        char *both = proa_arena_alloc(&a->reply->arena, a->p->echo.len + s->text.len + 1);
        memcpy(both, a->p->echo.ptr, a->p->echo.len);
        if (s->text.len) memcpy(both + a->p->echo.len, s->text.ptr, s->text.len);
        texts[i] = (proa_str){both, a->p->echo.len + s->text.len};
    }
    proa_reply_texts(a->call, a->reply, "text_output", texts, a->S);
}

static void add_ids(const answer *a)
{
    int32_t pad = a->call->served->end_id >= 0 ? a->call->served->end_id : 0;
    int32_t *ids = proa_reply_ints(a->call, a->reply, "output_ids", (int64_t[]){a->S, a->L}, 2, pad);
    int32_t *lengths = proa_reply_ints(a->call, a->reply, "sequence_length", &a->S, 1, 0);
    int32_t *index = proa_reply_ints(a->call, a->reply, "sequence_index", &a->S, 1, 0);
    int32_t *made = proa_reply_ints(a->call, a->reply, "completion_tokens", &a->S, 1, 0);
    for (int64_t i = 0; i < a->S; i++) {
        const proa_said *s = a->said[i];
        if (ids && s->ids.len) memcpy(ids + i * a->L, s->ids.ptr, (size_t)s->ids.len * sizeof *ids);
        if (lengths) lengths[i] = (int32_t)s->ids.len;
        if (index) index[i] = s->index;
        if (made) made[i] = (int32_t)s->tokens;
    }
}

static void add_reasons(const answer *a)
{
    proa_str *reasons = PROA_ARENA_NEW(&a->reply->arena, proa_str, a->S);
    for (int64_t i = 0; i < a->S; i++) reasons[i] = proa_str_c(proa_said_reason(a->said[i]->finish));
    proa_reply_texts(a->call, a->reply, "finish_reason", reasons, a->S);
}

/* ---- log-probabilities ---- */

static bool have(const answer *a, size_t bytes, const proa_buf *of, const proa_said *s)
{
    PROA_UNUSED(a);
    return of->len == (size_t)s->ids.len * bytes;
}

static void add_floats(const answer *a, const char *name, size_t at, int64_t columns)
{
    const int64_t shape[] = {a->S, a->L, columns};
    size_t row = (size_t)(columns ? columns : 1) * sizeof(float);
    for (int64_t i = 0; i < a->S; i++) {
        const proa_buf *buf = (const proa_buf *)(const void *)((const char *)a->said[i] + at);
        if (!have(a, row, buf, a->said[i])) return;
    }
    float *to = proa_reply_floats(a->call, a->reply, name, shape, columns ? 3 : 2, 0);
    for (int64_t i = 0; i < a->S && to; i++) {
        const proa_buf *buf = (const proa_buf *)(const void *)((const char *)a->said[i] + at);
        if (buf->len) memcpy((char *)to + (size_t)(i * a->L) * row, buf->ptr, buf->len);
    }
}

static void add_sums(const answer *a)
{
    const proa_options *o = &a->p->request.options;
    bool whole = a->p->whole && a->p->finish != PROA_FINISH_NONE;
    if (o->logprobs || whole) {
        float *sums = proa_reply_floats(a->call, a->reply, "cum_log_probs", &a->S, 1, 0);
        for (int64_t i = 0; i < a->S && sums; i++) sums[i] = (float)a->said[i]->sum;
    }
    if (!whole) return;
    float *scores = proa_reply_floats(a->call, a->reply, "scores", &a->S, 1, 0);
    for (int64_t i = 0; i < a->S && scores; i++) scores[i] = a->said[i]->score;
}

static void add_token_texts(const answer *a)
{
    proa_pieces *pieces = a->call->served->pieces;
    if (!pieces || !proa_infer_wants(a->call->infer, "token_text")) return;
    proa_str *texts = PROA_ARENA_NEW(&a->reply->arena, proa_str, a->S * a->L);
    for (int64_t i = 0; i < a->S; i++)
        for (int64_t k = 0; k < a->said[i]->ids.len; k++)
            texts[i * a->L + k] = proa_pieces_of(pieces, a->said[i]->ids.ptr[k]);
    proa_tensor *t = proa_reply_texts(a->call, a->reply, "token_text", texts, a->S * a->L);
    t->rank = 2;
    t->shape[0] = a->S;
    t->shape[1] = a->L;
}

/* [.., M] entries of ids, log-probabilities and texts. `rows` are those of `from`, the output has `all` rows; row i goes
 * to place[i]. */
static void add_tops(const answer *a, const char *const names[3], const int64_t *shape, int32_t rank,
                     const proa_logprob *const *from, int64_t all)
{
    int32_t *ids = proa_reply_ints(a->call, a->reply, names[0], shape, rank, -1);
    float *values = proa_reply_floats(a->call, a->reply, names[1], shape, rank, 0);
    proa_pieces *pieces = a->call->served->pieces;
    bool texts = pieces && proa_infer_wants(a->call->infer, names[2]);
    proa_str *text = texts ? PROA_ARENA_NEW(&a->reply->arena, proa_str, all * a->M) : NULL;
    for (int64_t i = 0; i < all * a->M; i++) {
        const proa_logprob *top = from[i / a->M] ? from[i / a->M] + i % a->M : NULL;
        if (ids && top) ids[i] = top->id;
        if (values) values[i] = top ? top->logprob : NAN;
        if (text && top) text[i] = proa_pieces_of(pieces, top->id);
    }
    if (!text) return;
    proa_tensor *t = proa_reply_texts(a->call, a->reply, names[2], text, all * a->M);
    t->rank = rank;
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
}

static void add_alternatives(const answer *a)
{
    static const char *const names[3] = {"top_ids", "top_log_probs", "top_text"};
    const proa_logprob **from = PROA_ARENA_NEW(&a->reply->arena, const proa_logprob *, a->S * a->L);
    if (!a->M) return;
    for (int64_t i = 0; i < a->S; i++) {
        const proa_said *s = a->said[i];
        if (!have(a, (size_t)a->M * sizeof(proa_logprob), &s->top, s)) return;
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

static void add_prompt(const answer *a)
{
    proa_prompt *p = a->p;
    const proa_ids *ids = p->decoder_ids.len ? &p->decoder_ids : &p->ids;
    int64_t P = ids->len;
    bool asked = p->request.options.prompt_logprobs || p->request.task == PROA_TASK_SCORE;
    if (!asked || p->told || p->logprobs.len != (size_t)(P - 1) * sizeof(float)) return;
    p->told = true;
    int32_t *to = proa_reply_ints(a->call, a->reply, "prompt_ids", &P, 1, 0);
    if (to) memcpy(to, ids->ptr, (size_t)P * sizeof *to);
    float *values = proa_reply_floats(a->call, a->reply, "prompt_log_probs", &P, 1, NAN);
    if (values && P > 1) memcpy(values + 1, p->logprobs.ptr, p->logprobs.len);
    if (a->call->served->pieces) {
        proa_str *texts = PROA_ARENA_NEW(&a->reply->arena, proa_str, P);
        for (int64_t i = 0; i < P; i++) texts[i] = proa_pieces_of(a->call->served->pieces, ids->ptr[i]);
        proa_reply_texts(a->call, a->reply, "prompt_text", texts, P);
    }
    add_prompt_alternatives(a, P);
}

/* [columns], or [rows, columns] of a batch. */
static const int64_t *row_shape(const answer *a, int64_t columns, int64_t shape[2], int32_t *rank)
{
    bool batched = proa_model_config(a->call->served->model)->max_batch_size > 0;
    shape[0] = a->call->count;
    shape[1] = columns;
    *rank = 1 + batched;
    return shape + !batched;
}

static void add_prompt_tokens(const answer *a)
{
    int64_t shape[2];
    int32_t rank;
    const int64_t *of = row_shape(a, 1, shape, &rank);
    int32_t *to = proa_reply_ints(a->call, a->reply, "prompt_tokens", of, rank, 0);
    for (int64_t i = 0; i < a->call->count && to; i++) {
        const proa_prompt *p = &a->call->prompts[i];
        int64_t running = p->ids.len + own_of(a->call)->start_tokens;
        to[i] = (int32_t)(p->finish == PROA_FINISH_NONE ? running : p->prompt_tokens);
    }
}

/* ---- whole replies ---- */

static void reply_generated(proa_call *call, proa_prompt *p, proa_said *const *said, int64_t count, bool final)
{
    answer a = {.call = call, .p = p, .said = said, .S = count, .M = p->request.options.top_logprobs};
    for (int64_t i = 0; i < count; i++)
        if (said[i]->ids.len > a.L) a.L = said[i]->ids.len;
    a.reply = proa_reply_new(call->infer);
    add_text(&a);
    add_ids(&a);
    add_reasons(&a);
    add_prompt_tokens(&a);
    add_sums(&a);
    if (p->request.options.logprobs) {
        add_floats(&a, "output_log_probs", offsetof(proa_said, logprobs), 0);
        add_token_texts(&a);
        add_alternatives(&a);
    }
    if (p->request.options.return_logits)
        add_floats(&a, "logits", offsetof(proa_said, logits), call->served->info.outputs);
    if (p->request.options.return_hidden)
        add_floats(&a, "hidden", offsetof(proa_said, hidden), call->served->info.hidden);
    add_prompt(&a);
    proa_call_reply(call, a.reply, final);
}

void proa_own_tell(proa_call *call, proa_prompt *p, proa_said *said, int32_t count, bool final)
{
    PROA_UNUSED(count); /* one: beams are not bundled */
    reply_generated(call, p, &said, 1, final);
}

/* ---- rows ---- */

static void reply_rows(const answer *a)
{
    const proa_prompt *p = a->p;
    int64_t columns = p->columns ? p->columns : 1, n = (int64_t)(p->rows.len / sizeof(float)) / columns;
    float *to = proa_reply_floats(a->call, a->reply, "rows", (int64_t[]){n, columns}, 2, 0);
    if (to) memcpy(to, p->rows.ptr, p->rows.len);
}

static const float *pool(const answer *a, const proa_prompt *p, float *mean, int64_t n, int64_t columns)
{
    const float *rows = (const void *)p->rows.ptr;
    switch (own_of(a->call)->pooling) {
    case PROA_POOLING_POOLER: return (const void *)p->pooled.ptr;
    case PROA_POOLING_CLS: return rows;
    case PROA_POOLING_LAST: return rows + (n - 1) * columns;
    case PROA_POOLING_MEAN: break;
    }
    for (int64_t k = 0; k < columns; k++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += (double)rows[i * columns + k];
        mean[k] = (float)(sum / (double)n);
    }
    return mean;
}

static void normalize(float *v, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)v[i] * (double)v[i];
    for (int64_t i = 0; i < n && sum > 0; i++) v[i] = (float)((double)v[i] / sqrt(sum));
}

static void embed_row(const answer *a, proa_prompt *p, float *to, int64_t columns)
{
    if (p->request.task == PROA_TASK_GENERATE && p->said_count) /* a decoder's */
        proa_buf_append(&p->rows, p->said[0].hidden.ptr, p->said[0].hidden.len);
    int64_t n = (int64_t)(p->rows.len / sizeof(float)) / columns;
    float *mean = PROA_ARENA_NEW(&a->reply->arena, float, columns);
    memcpy(to, pool(a, p, mean, n, columns), (size_t)columns * sizeof *to);
    if (own_of(a->call)->normalize) normalize(to, columns);
}

static void reply_embedding(const answer *a)
{
    int64_t columns = a->call->served->info.hidden, shape[2];
    int32_t rank;
    const int64_t *of = row_shape(a, columns, shape, &rank);
    float *to = proa_reply_floats(a->call, a->reply, "embedding", of, rank, 0);
    for (int64_t i = 0; i < a->call->count && to; i++)
        embed_row(a, &a->call->prompts[i], to + i * columns, columns);
}

static void scores_of(float *to, const float *logits, int64_t n, const proa_served *s)
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
    proa_tensor *t = proa_reply_texts(a->call, a->reply, name, labels, a->call->count * columns);
    if (!t) return;
    t->rank = rank;
    memcpy(t->shape, of, (size_t)rank * sizeof *of);
}

static void reply_classes(const answer *a)
{
    const proa_served *s = a->call->served;
    int64_t rows = a->call->count, n = a->p->columns, shape[2];
    int32_t rank;
    const int64_t *of = row_shape(a, n, shape, &rank);
    proa_str *labels = PROA_ARENA_NEW(&a->reply->arena, proa_str, rows * n);
    proa_str *best = PROA_ARENA_NEW(&a->reply->arena, proa_str, rows);
    float *to = proa_reply_floats(a->call, a->reply, "logits", of, rank, 0);
    float *scores = proa_reply_floats(a->call, a->reply, "scores", of, rank, 0);
    for (int64_t i = 0; i < rows; i++) {
        const float *logits = (const void *)a->call->prompts[i].rows.ptr;
        if (to) memcpy(to + i * n, logits, (size_t)n * sizeof *to);
        if (scores) scores_of(scores + i * n, logits, n, s);
        for (int64_t k = 0; k < n; k++) labels[i * n + k] = proa_str_c(s->label[k]);
        best[i] = labels[i * n + best_of(logits, n)];
    }
    add_labels(a, "label", best, 1);
    add_labels(a, "labels", labels, n);
}

void proa_own_end(proa_call *call)
{
    proa_prompt *p = &call->prompts[0];
    const proa_own *own = own_of(call);
    if (own->task == PROA_OWN_GENERATE) {
        proa_said **said = PROA_ARENA_NEW(&call->arena, proa_said *, p->said_count);
        for (int32_t i = 0; i < p->said_count; i++) said[i] = &p->said[i];
        reply_generated(call, p, said, p->said_count, true);
        return;
    }
    answer a = {.call = call, .p = p, .M = p->request.options.top_logprobs};
    a.reply = proa_reply_new(call->infer);
    add_prompt_tokens(&a);
    switch (own->task) {
    case PROA_OWN_ROWS: reply_rows(&a); break;
    case PROA_OWN_EMBED: reply_embedding(&a); break;
    case PROA_OWN_CLASSIFY: reply_classes(&a); break;
    default: add_prompt(&a); break;
    }
    proa_call_reply(call, a.reply, true);
}
