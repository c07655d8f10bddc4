/* SPDX-License-Identifier: Apache-2.0
 * reply.c - replies of the model: each adds to one or more sequences of one prompt. */
#include "api/openai/openai.h"

#include <string.h>

/* Reasons as OpenAI has them; NULL: it runs. */
static const char *reason_of(proa_finish finish)
{
    if (finish == PROA_FINISH_NONE || finish == PROA_FINISH_CANCELLED) return NULL;
    return finish == PROA_FINISH_LENGTH ? "length" : "stop";
}

/* The echoed prompt precedes each of its sequences. */
static void begin_choice(proa_oai_choice *c, const proa_oai_choice *prompt)
{
    if (c->count > 0 || c->tokens.len > 0 || c->begun) return;
    proa_buf_str(&c->tokens, proa_buf_view(&prompt->tokens));
    proa_buf_str(&c->values, proa_buf_view(&prompt->values));
    proa_buf_str(&c->tops, proa_buf_view(&prompt->tops));
    proa_buf_str(&c->offsets, proa_buf_view(&prompt->offsets));
    c->characters = prompt->characters;
}

/* Adds what is new of a sequence to its choice. In a stream that is sent at once. */
static void take_sequence(proa_oai_prompt *p, const proa_generated_sequence *s, bool split)
{
    proa_oai *job = p->job;
    int64_t n = job->params.n, first = (p - job->prompts) * n;
    if (s->index < 0 || s->index >= n) return;
    proa_oai_choice *c = &job->choices[first + s->index];
    begin_choice(c, &p->echoed);
    if (s->tokens >= 0) c->count = s->tokens;
    proa_oai_take_logprobs(job, c, &s->added);
    if (job->form->begin_item) proa_oai_take_items(job, c, s, split);
    else if (split) proa_oai_take_parts(job, c, s);
    else proa_buf_str(&c->text, s->text);
    if (reason_of(s->finish)) c->finish = reason_of(s->finish);
    if (s->stop) c->stop = proa_arena_strdup(&job->arena, proa_str_c(s->stop));
    if (c->called && c->finish && strcmp(c->finish, "stop") == 0) c->finish = "tool_calls";
    if (job->stream && job->x) job->form->write_chunk(job, (int32_t)(first + s->index));
}

/* Only the prompt was scored: it is the whole answer, for each of n. */
static void take_score(proa_oai_prompt *p)
{
    proa_oai *job = p->job;
    int64_t n = job->params.n, first = (p - job->prompts) * n;
    for (int64_t i = first; i < first + n && job->x; i++) {
        proa_oai_choice *c = &job->choices[i];
        begin_choice(c, &p->echoed);
        proa_buf_str(&c->text, p->text.ptr ? p->text : proa_buf_view(&p->echoed.text));
        c->finish = "length";
        if (job->stream) job->form->write_chunk(job, (int32_t)i);
    }
}

static void take_tokens(proa_oai_prompt *p, const proa_generated *g)
{
    p->tokens = g->ids_count;
    if (p->job->kind != PROA_OAI_COUNT) proa_oai_take_tokens(p->job, g);
}

/* What there is instead of new tokens. */
static void take_result(proa_oai_prompt *p, const proa_generated *g)
{
    if (g->classes) p->relevance = g->classes->relevance;
    if (g->task == PROA_GENERATION_TOKENIZE || g->task == PROA_GENERATION_DETOKENIZE) take_tokens(p, g);
    if (!g->embedding) return;
    p->width = g->embedding_count;
    p->vector = PROA_ARENA_NEW(&p->job->arena, float, p->width);
    memcpy(p->vector, g->embedding, (size_t)p->width * sizeof(float));
}

/* A reply has counts of the prompt, and what is new of each sequence. An error ends the whole job. */
static void take_reply(proa_oai_prompt *p, proa_reply *reply)
{
    proa_oai *job = p->job;
    if (reply->error.status != PROA_OK) {
        proa_oai_error_of(&job->error, &reply->error);
        proa_oai_give_up(job);
        return;
    }
    const proa_generated *g = proa_oai_generated(job, reply);
    if (g->prompt_tokens >= 0) p->tokens = g->prompt_tokens;
    if (g->cached_tokens > 0) p->cached = g->cached_tokens;
    if (g->drafted_tokens > 0) p->drafted = g->drafted_tokens, p->accepted = g->accepted_tokens;
    if (!job->form->choices) {
        take_result(p, g);
        return;
    }
    if (g->prompt && !g->no_texts) proa_oai_take_prompt(job, p, g->prompt);
    if (job->params.score) take_score(p);
    else if (!g->no_texts)
        for (int64_t i = 0; i < g->count && job->x; i++) take_sequence(p, &g->sequences[i], g->split);
}

void proa_oai_on_reply(proa_sink *sink, proa_reply *reply, bool final)
{
    proa_oai_prompt *p = (proa_oai_prompt *)(void *)sink;
    proa_oai *job = p->job;
    if (reply && job->x) take_reply(p, reply);
    proa_reply_free(reply);
    if (!final) return;
    p->live = false;
    job->live--;
    if (job->live == 0 && job->x) proa_oai_write_end(job);
    else proa_oai_release(job);
}
