/* SPDX-License-Identifier: Apache-2.0
 * infer.c - a job's prompts as requests of inference: typed generations, or tensors for models that take none. */
#include "api/openai/openai.h"

#include "api/trace.h"
#include <string.h>

/* ---- typed generations ---- */

static void set_prompt(proa_generation *g, proa_arena *arena, const proa_json *prompt)
{
    proa_str text = proa_json_str(prompt);
    int64_t count = proa_json_len(prompt);
    if (proa_json_kind(prompt) == PROA_JSON_STRING) {
        g->text = (proa_str){proa_arena_strdup(arena, text), text.len};
        g->prompt_bytes = text.len;
        return;
    }
    int32_t *ids = PROA_ARENA_NEW(arena, int32_t, count);
    for (int64_t i = 0; i < count; i++) ids[i] = (int32_t)proa_json_int(proa_json_at(prompt, i));
    g->ids = ids;
    g->ids_count = count;
}

/* The chat moves into the request, which frees it. */
static void set_chat(proa_generation *g, proa_oai *job, proa_arena *arena)
{
    g->chat = job->chat;
    g->message = job->message;
    g->message.tool.ptr = proa_arena_strdup(arena, job->message.tool);
    g->prompt_bytes = job->chat ? job->chat_bytes : job->chat_text.len;
    job->chat = NULL;
    if (!g->chat) g->chat_text = (proa_str){proa_arena_strdup(arena, job->chat_text), job->chat_text.len};
}

static void set_options(const proa_oai *job, proa_generation *g, proa_arena *arena)
{
    const proa_oai_params *p = &job->params;
    proa_options_copy(&g->options, &job->options, arena);
    if (p->score) return;
    g->echo = p->echo;
    g->stream = job->stream;
    if (p->cache_salt) g->cache_salt = proa_arena_strdup(arena, proa_str_c(p->cache_salt));
    g->options.seed = p->seeded ? (uint64_t)p->seed : proa_oai_random();
    g->options.given[PROA_OPTION_seed] = true;
    if (g->options.n == 0) g->options.n = 1; /* a model may have another default */
}

static void set_generation(proa_oai *job, proa_infer *r, const proa_oai_input *input)
{
    proa_generation *g = proa_infer_generate(r);
    g->task = job->task;
    if (input) set_prompt(g, &r->arena, input->prompt);
    else set_chat(g, job, &r->arena);
    if (input && input->pair) {
        proa_str text = proa_json_str(input->pair);
        g->text_pair = (proa_str){proa_arena_strdup(&r->arena, text), text.len};
        g->prompt_bytes += text.len;
    }
    g->special = job->params.special;
    g->pooling = job->params.pooling;
    g->normalize = !job->params.plain_vectors;
    if (job->form->choices) set_options(job, g, &r->arena);
    if (job->adapter) g->options.adapter = proa_arena_strdup(&r->arena, proa_str_c(job->adapter));
}

/* ---- sending ---- */

static proa_infer *make_request(proa_oai *job, int32_t i)
{
    proa_infer *r = proa_infer_new();
    const proa_oai_input *input = job->inputs ? &job->inputs[i] : NULL;
    const proa_json *prompt = input ? input->prompt : NULL;
    r->id = proa_arena_strdup(&r->arena, proa_str_c(job->id));
    r->model_name = proa_served_model_name(job->model);
    r->model_version = -1;
    r->times.received = job->x->start_ns;
    proa_trace_http(job->x, job->form->operation, r);
    if (job->client) r->client = proa_arena_strdup(&r->arena, proa_str_c(job->client));
    r->model = proa_served_model_hold(job->model);
    if (job->params.score) {
        proa_str text = proa_json_str(prompt);
        bool given = proa_json_kind(prompt) == PROA_JSON_STRING;
        if (given) job->prompts[i].text = (proa_str){proa_arena_strdup(&job->arena, text), text.len};
    }
    if (job->typed) set_generation(job, r, input);
    else proa_oai_add_tensors(job, r, prompt);
    return r;
}

static bool ids_for_text_model(const proa_oai *job)
{
    for (int32_t i = 0; job->contract == PROA_OAI_TEXT && i < job->prompts_count; i++)
        if (proa_json_kind(job->inputs[i].prompt) == PROA_JSON_ARRAY) return true;
    return false;
}

static void send_one(proa_oai *job, int32_t i)
{
    proa_oai_prompt *p = &job->prompts[i];
    proa_infer *r = make_request(job, i);
    proa_err err = {.status = PROA_OK};
    p->job = job;
    proa_oai_choice_init(&p->echoed);
    proa_sink_init(&p->sink, proa_http_loop(job->x), r, proa_oai_on_reply);
    p->live = true;
    job->live++;
    if (proa_server_infer(proa_api_server(job->api), r, &err) == PROA_OK) return;
    p->live = false;
    job->live--;
    proa_sink_abandon(&p->sink);
    if (job->failed) return;
    proa_oai_error_of(&job->error, &err);
    proa_oai_give_up(job);
}

/* Typed, unless the model takes tensors only, or a trace may show them. */
static bool prepare_job(proa_oai *job)
{
    bool chat = !job->inputs, generates = job->form->choices;
    bool takes = job->contract == PROA_OAI_NATIVE && proa_served_model_takes_generation(job->model);
    job->typed = takes && (job->form->typed || !proa_trace_shows_tensors());
    if (chat && !proa_oai_check_chat(job)) return false;
    if (!chat && ids_for_text_model(job))
        return proa_oai_bad(&job->error, "prompt", "The model '%.200s' takes texts only.", job->name.ptr);
    if (generates && job->typed && !proa_oai_set_options(job)) return false;
    if (generates && !job->typed) proa_oai_print_options(job);
    return !chat || proa_oai_take_chat(job);
}

void proa_oai_send(proa_oai *job)
{
    if (!prepare_job(job)) {
        proa_oai_give_up(job);
        return;
    }
    job->prompts = PROA_ARENA_NEW(&job->arena, proa_oai_prompt, job->prompts_count);
    for (int32_t i = 0; i < job->prompts_count && job->x; i++) send_one(job, i);
}
