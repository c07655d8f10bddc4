/* SPDX-License-Identifier: Apache-2.0
 * openai_reply.c - replies of the model: each tells of one or more sequences of one prompt. */
#include "api/openai/openai.h"

#include <string.h>

static int64_t int_at(const proa_reply *reply, const char *name, int64_t i, int64_t otherwise)
{
    const proa_tensor *t = proa_reply_output(reply, name);
    if (!t || t->type != PROA_TYPE_INT32 || t->bytes < (size_t)(i + 1) * 4) return otherwise;
    return ((const int32_t *)(const void *)t->data)[i];
}

/* Reasons as OpenAI has them; NULL: it runs. */
static const char *reason_of(proa_str reason)
{
    if (reason.len == 0 || proa_str_is(reason, "cancelled")) return NULL;
    return proa_str_is(reason, "length") ? "length" : "stop";
}

/* What was said of the prompt stands before each of its sequences. */
static void begin_choice(proa_oai_choice *c, const proa_oai_choice *prompt)
{
    if (c->count > 0 || c->tokens.len > 0 || c->begun) return;
    proa_buf_str(&c->tokens, proa_buf_view(&prompt->tokens));
    proa_buf_str(&c->values, proa_buf_view(&prompt->values));
    proa_buf_str(&c->tops, proa_buf_view(&prompt->tops));
    proa_buf_str(&c->offsets, proa_buf_view(&prompt->offsets));
    c->characters = prompt->characters;
}

typedef struct cursor { /* over the strings of an output that a reply may lack */
    const proa_tensor *tensor;
    size_t at;
} cursor;

static cursor cursor_of(const proa_reply *reply, const char *name)
{
    const proa_tensor *t = proa_reply_output(reply, name);
    return (cursor){t && t->type == PROA_TYPE_BYTES ? t : NULL, 0};
}

static proa_str next_of(cursor *c)
{
    proa_str s = {"", 0};
    if (c->tensor && !proa_tensor_next_string(c->tensor, &c->at, &s)) s = (proa_str){"", 0};
    return s;
}

static void take_sequence(proa_oai_prompt *p, const proa_reply *reply, int64_t row, int64_t count,
                          proa_str text, proa_str reason)
{
    proa_oai *job = p->job;
    int64_t n = job->params.n, first = (p - job->prompts) * n, index = int_at(reply, "sequence_index", row, row);
    if (index < 0 || index >= n) return;
    proa_oai_choice *c = &job->choices[first + index];
    begin_choice(c, &p->said);
    proa_buf_str(&c->text, text);
    c->count = int_at(reply, "completion_tokens", row, c->count);
    proa_oai_take_logprobs(job, c, reply, row, count);
    if (reason_of(reason)) c->finish = reason_of(reason);
    if (job->stream) proa_oai_write_chunk(job, (int32_t)(first + index));
}

static void take_texts(proa_oai_prompt *p, const proa_reply *reply)
{
    const proa_tensor *texts = proa_reply_output(reply, "text_output");
    int64_t count = texts && texts->type == PROA_TYPE_BYTES ? proa_shape_elements(texts->shape, texts->rank) : 0;
    cursor text = cursor_of(reply, "text_output"), reason = cursor_of(reply, "finish_reason");
    for (int64_t i = 0; i < count && p->job->x; i++) {
        proa_str said = next_of(&text);
        take_sequence(p, reply, i, count, said, next_of(&reason));
    }
}

/* Only the prompt was asked about: it is the whole answer, for each of n. */
static void take_score(proa_oai_prompt *p)
{
    proa_oai *job = p->job;
    int64_t n = job->params.n, first = (p - job->prompts) * n;
    for (int64_t i = first; i < first + n && job->x; i++) {
        proa_oai_choice *c = &job->choices[i];
        begin_choice(c, &p->said);
        proa_buf_str(&c->text, p->text.ptr ? p->text : proa_buf_view(&p->said.text));
        c->finish = "length";
        if (job->stream) proa_oai_write_chunk(job, (int32_t)i);
    }
}

static void take_vector(proa_oai_prompt *p, const proa_reply *reply)
{
    const proa_tensor *t = proa_reply_output(reply, "embedding");
    if (!t || t->type != PROA_TYPE_FP32) return;
    p->width = (int64_t)(t->bytes / sizeof(float));
    p->vector = PROA_ARENA_NEW(&p->job->arena, float, p->width);
    memcpy(p->vector, t->data, t->bytes);
}

static void take(proa_oai_prompt *p, const proa_reply *reply)
{
    proa_oai *job = p->job;
    if (reply->error.status != PROA_OK) {
        proa_oai_error_of(&job->error, &reply->error);
        proa_oai_give_up(job);
        return;
    }
    p->tokens = int_at(reply, "prompt_tokens", 0, p->tokens);
    if (job->kind == PROA_OAI_EMBEDDING) take_vector(p, reply);
    else {
        proa_oai_take_prompt(job, p, reply);
        if (job->params.score) take_score(p);
        else take_texts(p, reply);
    }
}

void proa_oai_on_reply(proa_sink *sink, proa_reply *reply, bool final)
{
    proa_oai_prompt *p = (proa_oai_prompt *)(void *)sink;
    proa_oai *job = p->job;
    if (reply && job->x) take(p, reply);
    proa_reply_free(reply);
    if (!final) return;
    p->live = false;
    job->live--;
    if (job->live == 0 && job->x) proa_oai_write_end(job);
    else proa_oai_release(job);
}
