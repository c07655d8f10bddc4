/* SPDX-License-Identifier: Apache-2.0
 * openai.c - OpenAI's API: paths, models, and the way of a request through the files of this folder. */
#include "api/openai/openai.h"

#include "api/responses/responses.h"
#include "base/alloc.h"
#include <pthread.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

/* ---- ids, seeds, times ---- */

static int64_t started;

static void note_start(void)
{
    started = (int64_t)time(NULL);
}

int64_t proa_oai_started(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, note_start);
    return started;
}

/* ---- jobs ---- */

/* {"id":...,"choices":[ : what each chunk, or the whole answer, begins with. */
static void write_head(proa_oai *job)
{
    static const char *const objects[][2] = {{"text_completion", "text_completion"},
                                             {"chat.completion", "chat.completion.chunk"}};
    uint64_t print = proa_str_hash(job->name) ^ (uint64_t)proa_served_model_version(job->model) ^
                     proa_str_hash(proa_str_c(PROA_VERSION));
    proa_buf out;
    proa_buf_init(&out, (size_t)64 << 10);
    proa_buf_printf(&out, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", job->id,
                    objects[job->form->chat][job->stream], (long long)job->created);
    proa_buf_json_str(&out, job->name);
    proa_buf_printf(&out, ",\"system_fingerprint\":\"fp_%010llx\",\"choices\":[",
                    (unsigned long long)(print >> 24));
    job->head = (proa_str){proa_arena_strdup(&job->arena, proa_buf_view(&out)), out.len};
    proa_buf_release(&out);
}

static void make_choices(proa_oai *job)
{
    if (!job->form->choices) return;
    int32_t n = job->prompts_count * (int32_t)job->params.n;
    job->choices = PROA_ARENA_NEW(&job->arena, proa_oai_choice, n);
    job->choices_count = n;
    for (int32_t i = 0; i < n; i++) proa_oai_choice_init(&job->choices[i]);
    write_head(job);
}

static void start_job(proa_api *api, proa_http_exchange *x, proa_oai_kind kind)
{
    proa_oai *job = proa_oai_new(api, x, kind, &proa_oai_forms[kind]);
    if (!proa_oai_read(job)) proa_oai_give_up(job);
    else {
        make_choices(job);
        proa_oai_send(job);
    }
    proa_json_free(job->body);
    job->body = NULL;
    job->live--; /* what held it while it was sent */
    if (job->live == 0 && job->x) proa_oai_write_end(job);
    else proa_oai_release(job);
}

/* ---- models ---- */

static const proa_oai_form *const openai_form = &proa_oai_forms[PROA_OAI_CHAT]; /* of errors without an operation */

static bool takes_text(proa_api *api, const char *name)
{
    proa_served_model *model;
    if (proa_oai_find_model(api, name, &model, NULL, NULL) != PROA_OK) return false;
    bool text = proa_oai_has_input(model, "text_input");
    proa_served_model_drop(model);
    return text;
}

static void put_model(proa_buf *out, const char *name)
{
    proa_buf_str(out, proa_str_c("{\"id\":"));
    proa_buf_json_str(out, proa_str_c(name));
    proa_buf_printf(out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"proa\"}",
                    (long long)proa_oai_started());
}

typedef struct adapter_list {
    proa_buf *out;
    const char *model;
} adapter_list;

static void put_adapter(void *arg, const char *name, const char *path)
{
    const adapter_list *list = arg;
    proa_buf_str(list->out, proa_str_c(",{\"id\":"));
    proa_buf_json_str(list->out, proa_str_c(name));
    proa_buf_printf(list->out, ",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"proa\",\"root\":",
                    (long long)proa_oai_started());
    proa_buf_json_str(list->out, proa_str_c(path));
    proa_buf_str(list->out, proa_str_c(",\"parent\":"));
    proa_buf_json_str(list->out, proa_str_c(list->model));
    proa_buf_char(list->out, '}');
}

/* The model's adapters, after it in the list. */
static void put_adapters(proa_api *api, proa_buf *out, const char *name)
{
    adapter_list list = {out, name};
    proa_served_model *model;
    if (proa_server_find(proa_api_server(api), name, -1, &model, NULL) != PROA_OK) return;
    proa_served_model_adapters(model, put_adapter, &list);
    proa_served_model_drop(model);
}

/* Models that are ready and take a text, each name once, and their adapters. */
static void list_models(proa_api *api, proa_http_exchange *x)
{
    Inference__RepositoryIndexResponse *index;
    proa_err err = {.status = PROA_OK};
    proa_oai_error e;
    proa_buf body;
    const char *last = "";
    if (proa_server_index(proa_api_server(api), true, &index, x->arena, &err) != PROA_OK) {
        proa_oai_error_of(&e, &err);
        proa_oai_fail(x, openai_form, &e);
        return;
    }
    proa_buf_init(&body, (size_t)PROA_OPENAI_ANSWER_MAX);
    proa_buf_str(&body, proa_str_c("{\"object\":\"list\",\"data\":["));
    for (size_t i = 0; i < index->n_models; i++) {
        const char *name = index->models[i]->name;
        if (strcmp(name, last) == 0 || !takes_text(api, name)) continue;
        if (*last) proa_buf_char(&body, ',');
        put_model(&body, name);
        put_adapters(api, &body, name);
        last = name;
    }
    proa_buf_str(&body, proa_str_c("]}"));
    proa_http_json(x, 200, &body);
    proa_buf_release(&body);
}

static void show_model(proa_api *api, proa_http_exchange *x, proa_str encoded)
{
    const char *name = proa_arena_url_decode(x->arena, encoded);
    proa_buf body;
    if (!name || !takes_text(api, name)) {
        proa_oai_error e = {
            .status = 404, .type = "invalid_request_error", .param = "model", .code = "model_not_found"};
        int shown = (int)(encoded.len < 200 ? encoded.len : 200);
        if (name) snprintf(e.text, sizeof e.text, "The model '%.200s' does not exist", name);
        else snprintf(e.text, sizeof e.text, "The model '%.*s' does not exist", shown, encoded.ptr);
        proa_oai_fail(x, openai_form, &e);
        return;
    }
    proa_buf_init(&body, (size_t)64 << 10);
    put_model(&body, name);
    proa_http_json(x, 200, &body);
    proa_buf_release(&body);
}

/* ---- paths ---- */

static void refuse_path(proa_http_exchange *x, const proa_oai_form *form, bool method)
{
    proa_oai_error e;
    int path = (int)(x->path.len < 200 ? x->path.len : 200),
        verb = (int)(x->method.len < 20 ? x->method.len : 20);
    proa_oai_bad(&e, NULL, method ? "Not allowed to %.*s on %.*s." : "Unknown request URL: %.*s %.*s.", verb,
                 x->method.ptr, path, x->path.ptr);
    e.status = method ? 405 : 404;
    e.code = method ? "method_not_supported" : "unknown_url";
    proa_oai_fail(x, form, &e);
}

static bool post_request(proa_api *api, proa_http_exchange *x, proa_oai_kind kind)
{
    if (!proa_str_is(x->method, "POST")) refuse_path(x, &proa_oai_forms[kind], true);
    else if (proa_http_allowed(api, x, PROA_CATEGORY_INFERENCE)) start_job(api, x, kind);
    return true;
}

static bool post_adapter(proa_api *api, proa_http_exchange *x, bool load)
{
    if (!proa_str_is(x->method, "POST")) refuse_path(x, openai_form, true);
    else if (proa_http_allowed(api, x, PROA_CATEGORY_MODEL_REPOSITORY)) proa_oai_change_adapter(api, x, load);
    return true;
}

static bool route_models(proa_api *api, proa_http_exchange *x, proa_str name)
{
    if (!proa_str_is(x->method, "GET")) refuse_path(x, openai_form, true);
    else if (!proa_http_allowed(api, x, PROA_CATEGORY_METADATA)) return true;
    else if (name.len == 0) list_models(api, x);
    else show_model(api, x, name);
    return true;
}

static const struct {
    const char *path;
    proa_oai_kind kind;
} operations[] = {{"/v1/chat/completions", PROA_OAI_CHAT},
                  {"/v1/completions", PROA_OAI_COMPLETION},
                  {"/v1/embeddings", PROA_OAI_EMBEDDING},
                  {"/v1/messages", PROA_OAI_MESSAGE},
                  {"/v1/responses", PROA_OAI_RESPONSE},
                  {"/v1/messages/count_tokens", PROA_OAI_COUNT},
                  {"/v1/rerank", PROA_OAI_RERANK},
                  {"/rerank", PROA_OAI_RERANK},
                  {"/v2/rerank", PROA_OAI_RERANK},
                  {"/v1/score", PROA_OAI_SCORE},
                  {"/score", PROA_OAI_SCORE},
                  {"/tokenize", PROA_OAI_TOKENIZE},
                  {"/detokenize", PROA_OAI_DETOKENIZE}};

/* Paths of these operations that are not below /v1. */
bool proa_openai_other(proa_api *api, proa_http_exchange *x)
{
    for (size_t i = 0; i < PROA_COUNT(operations); i++)
        if (proa_str_is(x->path, operations[i].path)) return post_request(api, x, operations[i].kind);
    return false;
}

bool proa_openai(proa_api *api, proa_http_exchange *x)
{
    static const char prefix[] = "/v1/models/", responses[] = "/v1/responses/";
    proa_str path = x->path, name = {"", 0};
    if (proa_openai_other(api, x)) return true;
    if (proa_str_is(path, "/v1/load_lora_adapter")) return post_adapter(api, x, true);
    if (proa_str_is(path, "/v1/unload_lora_adapter")) return post_adapter(api, x, false);
    if (proa_str_is(path, "/v1/models")) return route_models(api, x, name);
    if (proa_str_starts(path, proa_str_c(prefix)) && path.len >= sizeof prefix) {
        name = (proa_str){path.ptr + sizeof prefix - 1, path.len - (sizeof prefix - 1)};
        return route_models(api, x, name);
    }
    if (proa_str_starts(path, proa_str_c(responses)) && path.len >= sizeof responses &&
        !memchr(path.ptr + sizeof responses - 1, '/', path.len - (sizeof responses - 1))) {
        proa_resp_stored(api, x, (proa_str){path.ptr + sizeof responses - 1, path.len - (sizeof responses - 1)});
        return true;
    }
    refuse_path(x, openai_form, false);
    return true;
}
