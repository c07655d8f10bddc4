/* SPDX-License-Identifier: Apache-2.0
 * job.c - life of a job: made for an exchange, freed when it was answered and all its requests have ended. */
#include "api/openai/openai.h"

#include "base/alloc.h"
#include <sys/random.h>
#include <time.h>

/* SplitMix64 over a state that each thread seeds from the system once: ids must differ, not be secret. */
uint64_t proa_oai_random(void)
{
    static _Thread_local uint64_t state;
    if (!state && getrandom(&state, sizeof state, 0) != sizeof state) state = (uint64_t)time(NULL);
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* The client has gone. */
static void on_disconnect(proa_http_exchange *x)
{
    proa_oai *job = x->user;
    job->x = NULL;
    proa_oai_cancel(job);
    proa_oai_release(job);
}

proa_oai *proa_oai_new(proa_api *api, proa_http_exchange *x, proa_oai_kind kind, const proa_oai_form *form)
{
    proa_oai *job = proa_calloc(1, sizeof *job);
    *job = (proa_oai){.api = api, .x = x, .kind = kind, .form = form, .live = 1};
    proa_arena_init(&job->arena);
    job->created = (int64_t)time(NULL);
    job->client = proa_http_client(api, x, &job->arena);
    proa_buf_init(&job->out, (size_t)PROA_OPENAI_ANSWER_MAX);
    job->id = proa_arena_printf(&job->arena, "%s%016llx%08x", form->id, (unsigned long long)proa_oai_random(),
                                (unsigned)(proa_oai_random() >> 32));
    x->user = job;
    proa_http_on_disconnect(x, on_disconnect);
    return job;
}

void proa_oai_choice_init(proa_oai_choice *c)
{
    proa_buf *const bufs[] = {&c->text,   &c->reasoning, &c->calls, &c->arguments,
                              &c->tokens, &c->values,    &c->tops,  &c->offsets};
    for (size_t i = 0; i < PROA_COUNT(bufs); i++) proa_buf_init(bufs[i], (size_t)PROA_OPENAI_ANSWER_MAX);
}

static void release_choice(proa_oai_choice *c)
{
    proa_buf_release(&c->text);
    proa_buf_release(&c->reasoning);
    proa_buf_release(&c->calls);
    proa_buf_release(&c->arguments);
    proa_buf_release(&c->tokens);
    proa_buf_release(&c->values);
    proa_buf_release(&c->tops);
    proa_buf_release(&c->offsets);
}

static void release_items(proa_oai *job)
{
    for (int32_t i = 0; i < job->items_count; i++) {
        proa_buf_release(&job->items[i].text);
        proa_buf_release(&job->items[i].logprobs);
    }
}

void proa_oai_release(proa_oai *job)
{
    if (job->live > 0 || job->x) return;
    for (int32_t i = 0; i < job->choices_count; i++) release_choice(&job->choices[i]);
    for (int32_t i = 0; job->prompts && i < job->prompts_count; i++) release_choice(&job->prompts[i].echoed);
    if (job->model) proa_served_model_drop(job->model);
    proa_json_free(job->body);
    proa_json_free(job->chat);
    proa_buf_release(&job->out);
    release_items(job);
    proa_arena_release(&job->arena);
    free(job);
}

/* A cancel may end a request at once, and with it the job: the caller of this holds the job by `live` or `x`. */
void proa_oai_cancel(proa_oai *job)
{
    job->live++;
    for (int32_t i = 0; job->prompts && i < job->prompts_count; i++)
        if (job->prompts[i].live) proa_infer_cancel(job->prompts[i].sink.infer);
    job->live--;
}
