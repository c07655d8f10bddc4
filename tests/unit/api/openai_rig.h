/* SPDX-License-Identifier: Apache-2.0
 * openai_rig.h - for tests of the OpenAI API: a server on a socket with two models of a test backend. "words" has the
 * engine's contract (src/backends/README.md) and says "a", " b", " c"; what its prompt begins with makes it do
 * otherwise. "plain" has text_input, text_output, max_tokens and stream only. */
#ifndef PROA_TESTS_API_OPENAI_RIG_H
#define PROA_TESTS_API_OPENAI_RIG_H

#include "api/api.h"
#include "api/frontend.h"
#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"

#include <arpa/inet.h>
#include <ftw.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cmocka.h>

/* ---- the backend ---- */

static atomic_int oai_hanging, oai_cancelled;

static inline proa_str oai_text_of(const proa_infer *r, const char *name)
{
    const proa_tensor *t = proa_infer_input(r, name);
    size_t at = 0;
    proa_str s = {NULL, 0};
    if (t && t->type == PROA_TYPE_BYTES && !proa_tensor_next_string(t, &at, &s)) s = (proa_str){NULL, 0};
    return s;
}

static inline bool oai_flag_of(const proa_infer *r, const char *name)
{
    const proa_tensor *t = proa_infer_input(r, name);
    return t && t->bytes == 1 && t->data[0];
}

static inline void oai_strings(proa_reply *reply, const proa_infer *r, const char *name, const proa_str *s,
                               int64_t n, const int64_t *shape, int32_t rank)
{
    if (!proa_infer_wants(r, name)) return;
    proa_tensor *t = proa_reply_add_strings(reply, name, s, n);
    t->rank = rank;
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
}

static inline void oai_ints(proa_reply *reply, const proa_infer *r, const char *name, const int32_t *v, int64_t n)
{
    void *data;
    if (!proa_infer_wants(r, name)) return;
    proa_reply_add_array(reply, name, PROA_TYPE_INT32, &n, 1, &data);
    memcpy(data, v, (size_t)n * 4);
}

static inline void oai_floats(proa_reply *reply, const proa_infer *r, const char *name, const float *v,
                              const int64_t *shape, int32_t rank)
{
    void *data;
    if (!proa_infer_wants(r, name)) return;
    proa_tensor *t = proa_reply_add_array(reply, name, PROA_TYPE_FP32, shape, rank, &data);
    memcpy(data, v, t->bytes);
}

/* Sequences [first, first + S) with tokens [from, to) each. */
static inline proa_reply *oai_words(proa_infer *r, int32_t first, int32_t S, int from, int to, bool ends, int tops)
{
    static const proa_str said[] = {{"a", 1}, {" \xC3", 2}, {"\xA9", 1}}, alternative = {"z", 1};
    proa_str text[8], reason[8], tokens[24], top[48], prompt[2] = {{"p", 1}, {" q", 2}};
    float values[24], top_values[48], prompt_values[2] = {NAN, -0.5f};
    int32_t index[8], lengths[8], made[8], two = 2, L = to - from;
    for (int32_t s = 0; s < S; s++) {
        text[s] = from == 0   ? (to == 3 ? (proa_str){"a \xC3\xA9", 4} : (proa_str){"a", 1})
                  : from == 1 ? (proa_str){"", 0}
                              : (proa_str){" \xC3\xA9", 3};
        reason[s] = ends ? (proa_str){"length", 6} : (proa_str){"", 0};
        index[s] = first + s, lengths[s] = L, made[s] = to;
        for (int k = 0; k < L; k++) {
            tokens[s * L + k] = said[from + k];
            values[s * L + k] = -0.25f * (float)(from + k + 1);
            for (int m = 0; m < tops; m++) {
                top[(s * L + k) * tops + m] = m ? alternative : said[from + k];
                top_values[(s * L + k) * tops + m] = -0.25f * (float)(from + k + 1 + m);
            }
        }
    }
    proa_reply *reply = proa_reply_new(r);
    int64_t n = S;
    const int64_t pairs[] = {S, L}, cube[] = {S, L, tops}, prompt_shape[] = {2};
    oai_strings(reply, r, "text_output", text, S, &n, 1);
    oai_strings(reply, r, "finish_reason", reason, S, &n, 1);
    oai_ints(reply, r, "sequence_index", index, S);
    oai_ints(reply, r, "sequence_length", lengths, S);
    oai_ints(reply, r, "completion_tokens", made, S);
    oai_ints(reply, r, "prompt_tokens", &two, 1);
    if (proa_infer_wants(r, "output_log_probs") && r->outputs_count) {
        oai_floats(reply, r, "output_log_probs", values, pairs, 2);
        oai_strings(reply, r, "token_text", tokens, S * L, pairs, 2);
        if (tops) oai_floats(reply, r, "top_log_probs", top_values, cube, 3);
        if (tops) oai_strings(reply, r, "top_text", top, S * L * tops, cube, 3);
    }
    if (proa_infer_wants(r, "prompt_log_probs") && from == 0 && first == 0) {
        oai_floats(reply, r, "prompt_log_probs", prompt_values, prompt_shape, 1);
        oai_strings(reply, r, "prompt_text", prompt, 2, prompt_shape, 1);
    }
    return reply;
}

static inline int64_t oai_option(const proa_infer *r, const char *name, int64_t otherwise)
{
    proa_json *json = NULL;
    if (proa_json_parse(&json, oai_text_of(r, "options"), "options", NULL) != PROA_OK) return otherwise;
    const proa_json *value = proa_json_get(json, name);
    if (value) otherwise = proa_json_int(value);
    proa_json_free(json);
    return otherwise;
}

/* One reply with one text, for the tests of what arrives. */
static inline void oai_say(proa_infer *r, proa_str text)
{
    const int32_t zero = 0, one = 1;
    const int64_t n = 1;
    proa_str reason = {"stop", 4};
    proa_reply *reply = proa_reply_new(r);
    oai_strings(reply, r, "text_output", &text, 1, &n, 1);
    oai_strings(reply, r, "finish_reason", &reason, 1, &n, 1);
    oai_ints(reply, r, "sequence_index", &zero, 1);
    oai_ints(reply, r, "completion_tokens", &one, 1);
    oai_ints(reply, r, "prompt_tokens", &one, 1);
    proa_infer_reply(r, reply, true);
}

static inline void oai_fail(proa_infer *r, proa_status status, const char *text)
{
    proa_err err = {0};
    proa_err_set(&err, status, __FILE__, __LINE__, "%s", text);
    proa_infer_fail(r, &err);
}

static inline void oai_on_cancel(proa_infer *r)
{
    atomic_fetch_sub(&oai_hanging, 1);
    atomic_fetch_add(&oai_cancelled, 1);
    oai_fail(r, PROA_CANCELLED, "cancelled");
}

static inline void oai_embed(proa_infer *r)
{
    static const float v[] = {0.6f, 0.8f, 0};
    const int64_t n = 3;
    const int32_t two = 2;
    proa_reply *reply = proa_reply_new(r);
    oai_floats(reply, r, "embedding", v, &n, 1);
    oai_ints(reply, r, "prompt_tokens", &two, 1);
    proa_infer_reply(r, reply, true);
}

static inline void oai_generate(proa_infer *r)
{
    int32_t n = (int32_t)oai_option(r, "n", 1);
    int tops = (int)oai_option(r, "top_logprobs", 0);
    if (!oai_flag_of(r, "stream")) {
        proa_infer_reply(r, oai_words(r, 0, n, 0, 3, true, tops), true);
        return;
    }
    for (int k = 0; k < 3; k++)
        for (int32_t s = 0; s < n; s++)
            proa_infer_reply(r, oai_words(r, s, 1, k, k + 1, k == 2, tops), k == 2 && s == n - 1);
}

/* 1 MiB after 1 MiB until it is cancelled; oai_floods counts them. */
static atomic_int oai_floods;

static inline void oai_flood(proa_infer *r)
{
    const int32_t zero = 0;
    const int64_t n = 1;
    char *much = proa_malloc(1 << 20);
    memset(much, 'x', 1 << 20);
    atomic_store(&oai_floods, 0);
    for (int i = 0; i < 400 && !proa_infer_cancelled(r); i++) {
        proa_reply *reply = proa_reply_new(r);
        oai_strings(reply, r, "text_output", &(proa_str){much, 1 << 20}, 1, &n, 1);
        oai_ints(reply, r, "sequence_index", &zero, 1);
        proa_infer_reply(r, reply, false);
        atomic_fetch_add(&oai_floods, 1);
    }
    free(much);
    oai_fail(r, PROA_CANCELLED, "cancelled");
}

static inline void oai_execute_one(proa_infer *r)
{
    proa_str text = oai_text_of(r, "text_input"), task = oai_text_of(r, "task");
    const proa_infer_param *seed = proa_infer_find_param(r, "seed");
    char seen[4000];
    if (!text.ptr) text = oai_text_of(r, "messages");
    if (proa_str_is(task, "embed")) oai_embed(r);
    else if (proa_str_is(task, "score")) proa_infer_reply(r, oai_words(r, 0, 1, 0, 3, true, 0), true);
    else if (proa_str_starts(text, proa_str_c("fail"))) oai_fail(r, PROA_INVALID, "no such thing");
    else if (proa_str_starts(text, proa_str_c("busy")))
        oai_fail(r, PROA_UNAVAILABLE, "Exceeds maximum queue size");
    else if (proa_str_starts(text, proa_str_c("broken"))) oai_fail(r, PROA_INTERNAL, "it broke");
    else if (proa_str_starts(text, proa_str_c("late"))) {
        proa_infer_reply(r, oai_words(r, 0, 1, 0, 1, false, 0), false);
        oai_fail(r, PROA_INTERNAL, "it broke later");
    } else if (proa_str_starts(text, proa_str_c("hang"))) {
        atomic_fetch_add(&oai_hanging, 1);
        if (oai_flag_of(r, "stream")) proa_infer_reply(r, oai_words(r, 0, 1, 0, 1, false, 0), false);
        proa_infer_watch(r, oai_on_cancel);
    } else if (proa_str_starts(text, proa_str_c("flood"))) oai_flood(r);
    else if (proa_str_starts(text, proa_str_c("options"))) {
        proa_str o = oai_text_of(r, "options");
        int n = snprintf(seen, sizeof seen, "%.*s seed=%llu", (int)o.len, o.ptr,
                         seed ? (unsigned long long)seed->u : 0);
        oai_say(r, (proa_str){seen, (size_t)n});
    } else if (!text.ptr && proa_infer_input(r, "input_ids")) {
        const proa_tensor *t = proa_infer_input(r, "input_ids");
        int n = snprintf(seen, sizeof seen, "%d ids, the last %d", (int)t->shape[0],
                         ((const int32_t *)(const void *)t->data)[t->shape[0] - 1]);
        oai_say(r, (proa_str){seen, (size_t)n});
    } else if (proa_infer_input(r, "messages")) oai_say(r, text);
    else oai_generate(r);
}

static inline void oai_execute(void *state, proa_infer *const *requests, int count)
{
    (void)state;
    for (int i = 0; i < count; i++) oai_execute_one(requests[i]);
}

/* "plain": tells what it was given. */
static inline void oai_plain(void *state, proa_infer *const *requests, int count)
{
    (void)state;
    for (int i = 0; i < count; i++) {
        char said[200];
        proa_str text = oai_text_of(requests[i], "text_input");
        const proa_tensor *max = proa_infer_input(requests[i], "max_tokens");
        int32_t most = max ? ((const int32_t *)(const void *)max->data)[0] : -1;
        int n = snprintf(said, sizeof said, "%.*s max_tokens=%d stream=%d rank=%d", (int)text.len, text.ptr,
                         most, oai_flag_of(requests[i], "stream"), max ? (int)max->rank : 0);
        const int64_t shape[] = {1, 1};
        proa_reply *reply = proa_reply_new(requests[i]);
        oai_strings(reply, requests[i], "text_output", &(proa_str){said, (size_t)n}, 1, shape, 2);
        proa_infer_reply(requests[i], reply, true);
    }
}

static inline proa_status oai_open(void **state, proa_served_model *model, proa_err *err)
{
    (void)err;
    *state = model;
    return PROA_OK;
}

static inline void oai_close(void *state)
{
    (void)state;
}

static inline proa_status oai_instance(void **state, void *model_state, const proa_instance *instance,
                                       proa_err *err)
{
    (void)instance, (void)err;
    *state = model_state;
    return PROA_OK;
}

static const proa_backend oai_words_backend = {.name = "words",
                                               .flags = PROA_BACKEND_OWN_QUEUE | PROA_BACKEND_UNARY,
                                               .model_open = oai_open,
                                               .model_close = oai_close,
                                               .instance_open = oai_instance,
                                               .instance_close = oai_close,
                                               .execute = oai_execute};
static const proa_backend oai_plain_backend = {.name = "plain",
                                               .flags = PROA_BACKEND_INLINE,
                                               .model_open = oai_open,
                                               .model_close = oai_close,
                                               .instance_open = oai_instance,
                                               .instance_close = oai_close,
                                               .execute = oai_plain};
static const proa_backend *const oai_backends[] = {&oai_words_backend, &oai_plain_backend, NULL};

#define OAI_IN(name, type)                                                                                   \
    "input { name: \"" name "\" data_type: TYPE_" type " dims: [ -1 ] optional: true }\n"
#define OAI_OUT(name, type) "output { name: \"" name "\" data_type: TYPE_" type " dims: [ -1 ] }\n"
static const char oai_words_config[] =
    "backend: \"words\"\nmax_batch_size: 0\nmodel_transaction_policy { decoupled: true }\n" OAI_IN(
        "text_input", "STRING") OAI_IN("input_ids", "INT32") OAI_IN("messages", "STRING")
        OAI_IN("task", "STRING") OAI_IN("options", "STRING") OAI_IN("stream", "BOOL") OAI_IN("echo", "BOOL")
            OAI_OUT("text_output", "STRING") OAI_OUT("finish_reason", "STRING")
                OAI_OUT("sequence_index", "INT32") OAI_OUT("sequence_length", "INT32")
                    OAI_OUT("completion_tokens", "INT32") OAI_OUT("prompt_tokens", "INT32")
                        OAI_OUT("output_log_probs", "FP32") OAI_OUT("token_text", "STRING")
                            OAI_OUT("top_log_probs", "FP32") OAI_OUT("top_text", "STRING")
                                OAI_OUT("prompt_log_probs", "FP32") OAI_OUT("prompt_text", "STRING")
                                    OAI_OUT("prompt_top_log_probs", "FP32")
                                        OAI_OUT("prompt_top_text", "STRING") OAI_OUT("embedding", "FP32");
static const char oai_plain_config[] =
    "backend: \"plain\"\nmax_batch_size: 4\n"
    "input { name: \"text_input\" data_type: TYPE_STRING dims: [ 1 ] }\n"
    "input { name: \"max_tokens\" data_type: TYPE_INT32 dims: [ 1 ] optional: true }\n"
    "input { name: \"stream\" data_type: TYPE_BOOL dims: [ 1 ] optional: true }\n"
    "output { name: \"text_output\" data_type: TYPE_STRING dims: [ 1 ] }\n";

/* ---- the server ---- */

typedef struct oai_rig {
    char folder[64];
    proa_server *server;
    proa_api *api;
    int port;
} oai_rig;

static inline void oai_write(const char *folder, const char *model, const char *config)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, model);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/1", folder, model);
    mkdir(path, 0700);
    snprintf(path, sizeof path, "%s/%s/config.pbtxt", folder, model);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(config, f);
    fclose(f);
}

static inline int oai_remove(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static inline void oai_start(oai_rig *g, const char *const *keys, int keys_count)
{
    proa_err err = {0};
    const char *folders[] = {g->folder};
    proa_server_options o = {
        .repositories = folders, .repositories_count = 1, .backends = oai_backends, .exit_on_error = true};
    proa_api_options a = {.http = {.allow = true, .address = "127.0.0.1"},
                          .threads = 1,
                          .api_keys = keys,
                          .api_keys_count = keys_count};
    strcpy(g->folder, "/tmp/proa-openai-XXXXXX");
    assert_non_null(mkdtemp(g->folder));
    oai_write(g->folder, "words", oai_words_config);
    oai_write(g->folder, "plain", oai_plain_config);
    if (proa_server_new(&g->server, &o, &err) != PROA_OK) fail_msg("%s", err.text);
    if (proa_api_open(&g->api, g->server, &a, &err) != PROA_OK) fail_msg("%s", err.text);
    g->port = proa_api_http_port(g->api);
}

static inline void oai_stop(oai_rig *g)
{
    assert_true(proa_api_drain(g->api, 5000));
    assert_true(proa_server_stop(g->server, 5000));
    proa_api_close(g->api);
    proa_server_free(g->server);
    nftw(g->folder, oai_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- a client ---- */

typedef struct oai_answer {
    int status;
    char *all, *body; /* headers and body; the body alone, chunks joined */
    proa_json *json;  /* NULL if it is none */
} oai_answer;

static inline int oai_connect(const oai_rig *g)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)g->port)};
    struct timeval limit = {.tv_sec = 10};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    return fd;
}

static inline void oai_send(int fd, const char *method, const char *path, const char *headers, const char *body)
{
    char *text;
    int n = asprintf(&text, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%sContent-Length: %zu\r\n\r\n%s",
                     method, path, headers, strlen(body), body);
    assert_int_equal(write(fd, text, (size_t)n), n);
    free(text);
}

/* Chunks behind each other, in place. */
static inline void oai_join(char *body)
{
    char *from = body, *to = body, *end;
    for (unsigned long n; (n = strtoul(from, &end, 16)) > 0 && end != from;) {
        from = strstr(end, "\r\n") + 2;
        memmove(to, from, n);
        to += n;
        from += n + 2;
    }
    *to = '\0';
}

static inline oai_answer oai_read_answer(int fd)
{
    proa_buf buf;
    char bytes[4096];
    oai_answer a = {0};
    proa_buf_init(&buf, 1 << 24);
    for (ssize_t n; (n = read(fd, bytes, sizeof bytes)) > 0;) proa_buf_append(&buf, bytes, (size_t)n);
    close(fd);
    assert_non_null(buf.ptr);
    a.all = buf.ptr;
    assert_int_equal(sscanf(a.all, "HTTP/1.1 %d", &a.status), 1);
    a.body = strstr(a.all, "\r\n\r\n");
    assert_non_null(a.body);
    bool chunked = memmem(a.all, (size_t)(a.body - a.all), "chunked", 7) != NULL;
    a.body += 4;
    if (chunked) oai_join(a.body);
    if (proa_json_parse(&a.json, proa_str_c(a.body), "answer", NULL) != PROA_OK) a.json = NULL;
    return a;
}

static inline oai_answer oai_ask(const oai_rig *g, const char *method, const char *path, const char *headers,
                                 const char *body)
{
    int fd = oai_connect(g);
    oai_send(fd, method, path, headers, body);
    return oai_read_answer(fd);
}

static inline void oai_answer_free(oai_answer *a)
{
    proa_json_free(a->json);
    free(a->all);
}

/* The value at "choices.0.text" as JSON's text; "" if there is none. */
static inline const char *oai_at(const oai_answer *a, const char *path)
{
    static char text[4096];
    const proa_json *j = a->json;
    char name[64];
    while (*path) {
        size_t n = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        j = proa_json_kind(j) == PROA_JSON_ARRAY ? proa_json_at(j, atoi(name)) : proa_json_get(j, name);
        path += n + (path[n] == '.');
    }
    switch (proa_json_kind(j)) {
    case PROA_JSON_STRING: snprintf(text, sizeof text, "%s", proa_json_str(j).ptr); break;
    case PROA_JSON_INT: snprintf(text, sizeof text, "%lld", (long long)proa_json_int(j)); break;
    case PROA_JSON_DOUBLE: snprintf(text, sizeof text, "%g", proa_json_double(j)); break;
    case PROA_JSON_BOOL: snprintf(text, sizeof text, "%s", proa_json_bool(j) ? "true" : "false"); break;
    case PROA_JSON_NULL: text[0] = '\0'; break;
    default: snprintf(text, sizeof text, "[%lld]", (long long)proa_json_len(j));
    }
    return text;
}

static inline bool oai_wait(atomic_int *value, int want)
{
    for (int i = 0; i < 500 && atomic_load(value) != want; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return atomic_load(value) == want;
}

#endif
