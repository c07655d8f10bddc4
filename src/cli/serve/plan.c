/* SPDX-License-Identifier: Apache-2.0
 * plan.c - converts the options of the command line to those of the server, the protocols and the log. */
#include "backends/agents/agents.h"
#include "backends/backends.h"
#include "backends/gpu/gpu.h"
#include "backends/isolate/isolate.h"
#include "backends/triton/triton.h"
#include "base/file.h"
#include "base/limits.h"
#include "cli/output.h"
#include "cli/serve/options.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { KEYS_MAX = 1024 };

/* "a=b" in two, copied. */
static proa_status split_pair(proa_arena *arena, const char *what, const char *text, size_t len,
                              const char **key, const char **value, proa_err *err)
{
    const char *equals = memchr(text, '=', len);
    if (!equals || equals == text)
        return PROA_FAIL(err, INVALID, "--%s '%s' is not of the form KEY=VALUE", what, text);
    *key = proa_arena_strdup(arena, (proa_str){text, (size_t)(equals - text)});
    *value = proa_arena_strdup(arena, (proa_str){equals + 1, len - (size_t)(equals + 1 - text)});
    return PROA_OK;
}

/* "engine,dtype=f32"; without a backend's name it is for all. */
static proa_status split_setting(proa_arena *arena, const char *text, proa_setting *out, proa_err *err)
{
    const char *comma = strchr(text, ','), *equals = strchr(text, '=');
    out->backend = "";
    if (comma && (!equals || comma < equals)) {
        out->backend = proa_arena_strdup(arena, (proa_str){text, (size_t)(comma - text)});
        text = comma + 1;
    }
    return split_pair(arena, "backend-config", text, strlen(text), &out->key, &out->value, err);
}

/* A model's parameters may be anything, since clients read them too; settings are for us alone. */
static proa_status check_setting(const proa_setting *set, proa_err *err)
{
    size_t count = 0;
    if (strcmp(set->backend, "engine") != 0) return PROA_OK;
    for (; proa_engine_setting_names[count]; count++)
        if (strcmp(set->key, proa_engine_setting_names[count]) == 0) return PROA_OK;
    const char *near = proa_args_nearest(set->key, proa_engine_setting_names, count);
    return PROA_FAIL(err, INVALID, "--backend-config engine,%s: backend 'engine' has no such setting%s%s%s",
                     set->key, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

/* NULL: it is empty. */
static const char *join_list(proa_arena *arena, const proa_arg_list *list)
{
    const char *text = NULL;
    for (int i = 0; i < list->count; i++)
        text = text ? proa_arena_printf(arena, "%s,%s", text, list->items[i]) : list->items[i];
    return text;
}

/* The engine's options of the command line, and the settings of the backend that they are. */
typedef enum setting_kind { TEXT, NUMBER, LIST } setting_kind;
#define AT(field) offsetof(proa_serve_options, field)
static const struct engine_setting {
    const char *key;
    setting_kind kind;
    size_t at; /* of a const char *, an int64_t or a proa_arg_list */
} engine_settings[] = {
    {"device", TEXT, AT(device)},
    {"dtype", TEXT, AT(dtype)},
    {"quant", TEXT, AT(quant)},
    {"kv_dtype", TEXT, AT(kv_dtype)},
    {"speculation", TEXT, AT(speculation)},
    {"draft_model", TEXT, AT(draft_model)},
    {"draft_tokens", NUMBER, AT(draft_tokens)},
    {"threads", NUMBER, AT(engine_threads)},
    {"tp", NUMBER, AT(tensor_parallel)},
    {"pp", NUMBER, AT(pipeline_parallel)},
    {"expert_parallel", TEXT, AT(expert_parallel)},
    {"rank_sums", TEXT, AT(rank_sums)},
    {"replicas", NUMBER, AT(replicas)},
    {"ranks", TEXT, AT(ranks)},
    {"disaggregate", TEXT, AT(disaggregate)},
    {"kv_tokens", NUMBER, AT(kv_tokens)},
    {"kv_cache_free_gpu_mem_fraction", TEXT, AT(kv_share)},
    {"batch_scheduler_policy", TEXT, AT(policy)},
    {"prefix_cache", TEXT, AT(prefix_cache)},
    {"prefix_host_memory", TEXT, AT(prefix_host_memory)},
    {"prefix_dir", TEXT, AT(prefix_dir)},
    {"prefix_dir_size", TEXT, AT(prefix_dir_size)},
    {"sequences_max", NUMBER, AT(sequences)},
    {"prompt_rows", NUMBER, AT(prompt_rows)},
    {"prompt_slowdown", TEXT, AT(prompt_slowdown)},
    {"chat_template", TEXT, AT(chat_template)},
    {"tool_parser", TEXT, AT(tool_parser)},
    {"reasoning_parser", TEXT, AT(reasoning_parser)},
    {"lora", LIST, AT(lora)},
    {"lora_slots", NUMBER, AT(lora_slots)},
    {"lora_max", NUMBER, AT(lora_max)},
    {"lora_rank", NUMBER, AT(lora_rank)},
    {"lora_dtype", TEXT, AT(lora_dtype)},
};
#undef AT

/* NULL: the option is not given. */
static const char *setting_text(proa_arena *arena, const struct engine_setting *row, const proa_serve_options *o)
{
    const void *field = (const char *)o + row->at;
    if (row->kind == TEXT) return *(const char *const *)field;
    if (row->kind == LIST) return join_list(arena, field);
    int64_t number = *(const int64_t *)field;
    return number ? proa_arena_printf(arena, "%lld", (long long)number) : NULL;
}

static proa_status plan_settings(proa_serve_plan *p, const proa_serve_options *o, proa_err *err)
{
    const int64_t most = PROA_ARG_LIST_MAX + (int64_t)PROA_COUNT(engine_settings);
    proa_setting *list = PROA_ARENA_NEW(&p->arena, proa_setting, most);
    p->server.settings = list;
    for (size_t i = 0; i < PROA_COUNT(engine_settings); i++) {
        const char *value = setting_text(&p->arena, &engine_settings[i], o);
        if (value) list[p->server.settings_count++] = (proa_setting){"engine", engine_settings[i].key, value};
    }
    for (int i = 0; i < o->settings.count; i++) {
        proa_setting *set = &list[p->server.settings_count++];
        PROA_TRY(split_setting(&p->arena, o->settings.items[i], set, err));
        PROA_TRY(check_setting(set, err));
    }
    return PROA_OK;
}

/* --set KEY=VALUE: what placeholders of configurations are filled with. */
static proa_status plan_fills(proa_serve_plan *p, const proa_serve_options *o, proa_err *err)
{
    proa_setting *fills = PROA_ARENA_NEW(&p->arena, proa_setting, PROA_ARG_LIST_MAX);
    p->server.fills = fills;
    for (int i = 0; i < o->fills.count; i++) {
        proa_setting *fill = &fills[p->server.fills_count++];
        PROA_TRY(split_pair(&p->arena, "set", o->fills.items[i], strlen(o->fills.items[i]), &fill->key,
                            &fill->value, err));
    }
    return PROA_OK;
}

static proa_status plan_metrics(proa_serve_plan *p, const proa_serve_options *o, proa_err *err)
{
    p->server.no_gpu_metrics = !o->allow_gpu_metrics;
    p->server.metrics_interval_ms = o->metrics_interval_ms;
    for (int i = 0; i < o->metrics_config.count; i++) {
        const char *key = NULL, *value = NULL, *text = o->metrics_config.items[i];
        PROA_TRY(split_pair(&p->arena, "metrics-config", text, strlen(text), &key, &value, err));
        bool on = strcmp(value, "true") == 0;
        if (!on && strcmp(value, "false") != 0)
            return PROA_FAIL(err, INVALID, "--metrics-config '%s': true or false", text);
        if (strcmp(key, "counter_latencies") == 0) p->server.no_counter_latencies = !on;
        else if (strcmp(key, "histogram_latencies") == 0) p->server.histogram_latencies = on;
        else if (strcmp(key, "summary_latencies") == 0) p->server.summary_latencies = on;
        else
            return PROA_FAIL(err, INVALID,
                             "--metrics-config '%s' is none of counter_latencies, histogram_latencies, "
                             "summary_latencies",
                             text);
    }
    return PROA_OK;
}

static proa_status plan_cache(proa_serve_plan *p, const proa_serve_options *o, proa_err *err)
{
    if (o->cache_bytes && o->cache_config.count)
        return PROA_FAIL(
            err, INVALID,
            "Incompatible flags --response-cache-byte-size and --cache-config both provided. Please "
            "provide one or the other.");
    p->server.cache_bytes = o->cache_bytes;
    for (int i = 0; i < o->cache_config.count; i++) {
        const char *text = o->cache_config.items[i];
        char *end = NULL;
        long long bytes = strncmp(text, "local,size=", 11) == 0 ? strtoll(text + 11, &end, 10) : -1;
        if (bytes < 1 || !end || end == text + 11 || *end)
            return PROA_FAIL(err, INVALID, "--cache-config '%s' is not of the form local,size=BYTES", text);
        p->server.cache_bytes = bytes;
    }
    return PROA_OK;
}

static proa_status plan_repositories(proa_serve_plan *p, const proa_serve_options *o, proa_err *err)
{
    const char **paths = PROA_ARENA_NEW(&p->arena, const char *, 2L * PROA_ARG_LIST_MAX);
    proa_server_options *s = &p->server;
    for (int i = 0; i < o->paths.count; i++) paths[s->repositories_count++] = o->paths.items[i];
    for (int i = 0; i < o->repositories.count; i++) paths[s->repositories_count++] = o->repositories.items[i];
    if (s->repositories_count == 0)
        return PROA_FAIL(err, INVALID, "no model named: give a folder, or --model-repository PATH");
    s->repositories = paths;
    p->cloud = (proa_cloud_options){.cache = o->cloud_cache, .cache_bytes = o->cloud_cache_bytes};
    s->remote = &proa_serve_remote, s->remote_arg = &p->cloud;
    if (o->config_name && !*o->config_name)
        return PROA_FAIL(err, INVALID, "empty argument for --model-config-name");
    s->config_name = o->config_name;
    return PROA_OK;
}

/* What the server calls and must not know: backends, repository agents, memory of GPUs. */
static proa_status plan_backends(proa_serve_plan *p, const proa_serve_options *o, proa_err *err)
{
    proa_server_options *s = &p->server;
    s->agents = proa_repository_agents;
    s->open_cuda = proa_gpu_open_handle;
    if (o->backend_directory && !*o->backend_directory)
        return PROA_FAIL(err, INVALID, "empty argument for --backend-directory");
    s->find_backend = proa_isolate_find, s->backend_directory = o->backend_directory;
    if (o->repoagent_directory && !*o->repoagent_directory)
        return PROA_FAIL(err, INVALID, "empty argument for --repoagent-directory");
    s->find_agent = proa_triton_find_agent, s->repoagent_directory = o->repoagent_directory;
    const proa_isolate_policy policy = {.in_process = o->in_process.items,
                                        .in_process_count = o->in_process.count,
                                        .isolated = o->isolate.items,
                                        .isolated_count = o->isolate.count};
    return proa_isolate_configure(&s->backends, &policy, &p->arena, err);
}

static proa_status plan_control(proa_server_options *s, const proa_serve_options *o, proa_err *err)
{
    s->control = strcmp(o->control, "poll") == 0       ? PROA_CONTROL_POLL
                 : strcmp(o->control, "explicit") == 0 ? PROA_CONTROL_EXPLICIT
                                                       : PROA_CONTROL_NONE;
    s->load_models = o->load_models.items, s->load_models_count = o->load_models.count;
    if (s->load_models_count && s->control != PROA_CONTROL_EXPLICIT)
        return PROA_FAIL(err, INVALID, "--load-model needs --model-control-mode explicit");
    s->poll_secs = (int)o->poll_secs;
    s->load_threads = (int)o->load_threads, s->load_retries = (int)o->load_retries;
    return PROA_OK;
}

static proa_status plan_server(proa_serve_plan *p, const proa_serve_options *o, proa_err *err)
{
    proa_server_options *s = &p->server;
    PROA_TRY(plan_repositories(p, o, err));
    PROA_TRY(plan_backends(p, o, err));
    PROA_TRY(plan_control(s, o, err));
    s->id = o->id;
    s->exit_on_error = o->exit_on_error, s->no_strict_readiness = !o->strict_readiness;
    s->no_auto_complete = o->no_auto_complete, s->namespacing = o->namespacing;
    s->allow_external_paths = o->external_paths;
    s->rate_limit = strcmp(o->rate_limit, "off") != 0;
    s->rate_resources = o->rate_resources.items, s->rate_resources_count = o->rate_resources.count;
    PROA_TRY(plan_settings(p, o, err));
    PROA_TRY(plan_fills(p, o, err));
    PROA_TRY(plan_metrics(p, o, err));
    return plan_cache(p, o, err);
}

static bool category_of(const char *name, size_t len, proa_category *category)
{
    static const char *const names[] = {
#define PROA_CATEGORY_NAME(name, text) text,
        PROA_CATEGORY_LIST(PROA_CATEGORY_NAME)
#undef PROA_CATEGORY_NAME
    };
    for (int i = 0; i < PROA_CATEGORY_COUNT; i++)
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
            return *category = (proa_category)i, true;
    return false;
}

/* "health,metadata:key=value", each category at most once. */
static proa_status plan_restriction(proa_serve_plan *p, proa_restriction *list, int *count, const char *what,
                                    const char *text, proa_err *err)
{
    const char *colon = strchr(text, ':'), *key = NULL, *value = NULL;
    if (!colon || colon == text)
        return PROA_FAIL(err, INVALID, "--%s '%s' is not of the form APIS:KEY=VALUE", what, text);
    PROA_TRY(split_pair(&p->arena, what, colon + 1, strlen(colon + 1), &key, &value, err));
    for (const char *name = text; name < colon;) {
        size_t len = strcspn(name, ",:");
        proa_category category;
        if (!category_of(name, len, &category))
            return PROA_FAIL(err, INVALID, "--%s: '%.*s' is not the name of an API", what, (int)len, name);
        for (int i = 0; i < *count; i++)
            if (list[i].category == category)
                return PROA_FAIL(err, INVALID, "--%s: '%.*s' is given twice", what, (int)len, name);
        list[(*count)++] = (proa_restriction){category, key, value};
        name += len + 1;
    }
    return PROA_OK;
}

static proa_status plan_restrictions(proa_serve_plan *p, proa_port *port, const char *what,
                                     const proa_arg_list *given, proa_err *err)
{
    proa_restriction *list = PROA_ARENA_NEW(&p->arena, proa_restriction, PROA_CATEGORY_COUNT);
    port->restrictions = list;
    for (int i = 0; i < given->count; i++)
        PROA_TRY(plan_restriction(p, list, &port->restrictions_count, what, given->items[i], err));
    return PROA_OK;
}

static proa_status plan_keys(proa_serve_plan *p, const proa_serve_options *o, proa_err *err)
{
    const char **keys = PROA_ARENA_NEW(&p->arena, const char *, KEYS_MAX);
    p->api.api_keys = keys;
    p->api.client_header = o->client_header;
    for (int i = 0; i < o->api_keys.count; i++) {
        if (!*o->api_keys.items[i]) return PROA_FAIL(err, INVALID, "empty argument for --api-key");
        keys[p->api.api_keys_count++] = o->api_keys.items[i];
    }
    if (!o->api_key_file) return PROA_OK;
    proa_buf text;
    proa_status status = proa_file_read(&text, o->api_key_file, PROA_MIB, err);
    char *save = NULL;
    for (char *word = text.ptr ? strtok_r(text.ptr, " \t\r\n", &save) : NULL; word && status == PROA_OK;
         word = strtok_r(NULL, " \t\r\n", &save)) {
        if (p->api.api_keys_count == KEYS_MAX)
            status = PROA_FAIL(err, LIMIT, "'%s' has more than %d keys", o->api_key_file, KEYS_MAX);
        else keys[p->api.api_keys_count++] = proa_arena_strdup(&p->arena, proa_str_c(word));
    }
    proa_buf_release(&text);
    if (status == PROA_OK && p->api.api_keys_count == 0)
        status = PROA_FAIL(err, INVALID, "'%s' has no key", o->api_key_file);
    return status;
}

static proa_status trace_number(int64_t *out, const char *key, const char *value, int64_t min, int64_t max,
                                proa_err *err)
{
    char *end;
    long long number = strtoll(value, &end, 10);
    if (end == value || *end || number < min || number > max)
        return PROA_FAIL(err, INVALID, "--trace-config %s=%s: must be %lld to %lld", key, value,
                         (long long)min, (long long)max);
    *out = number;
    return PROA_OK;
}

static proa_status trace_level(unsigned *out, const char *value, proa_err *err)
{
    if (strcmp(value, "TIMESTAMPS") == 0) *out |= PROA_TRACE_TIMESTAMPS;
    else if (strcmp(value, "TENSORS") == 0) *out |= PROA_TRACE_TENSORS;
    else if (strcmp(value, "OFF") != 0)
        return PROA_FAIL(err, INVALID, "--trace-config level=%s: OFF, TIMESTAMPS or TENSORS", value);
    else *out = 0;
    return PROA_OK;
}

static proa_status plan_collector(proa_serve_plan *p, const char *key, const char *value, proa_err *err)
{
    proa_telemetry_options *to = &p->api.trace.to;
    const struct {
        const char *key;
        int64_t *value;
        int64_t max;
    } numbers[] = {{"bsp_max_queue_size", &to->bsp_max_queue_size, PROA_OTLP_QUEUE_MAX},
                   {"bsp_schedule_delay", &to->bsp_schedule_delay, PROA_OTLP_DELAY_MS_MAX},
                   {"bsp_max_export_batch_size", &to->bsp_max_export_batch_size, PROA_OTLP_QUEUE_MAX}};
    if (strcmp(key, "url") == 0) return to->url = value, PROA_OK;
    for (size_t i = 0; i < PROA_COUNT(numbers); i++)
        if (strcmp(key, numbers[i].key) == 0)
            return trace_number(numbers[i].value, key, value, 1, numbers[i].max, err);
    if (strcmp(key, "resource") != 0)
        return PROA_FAIL(err, INVALID,
                         "--trace-config opentelemetry,%s is none of url, resource, bsp_max_queue_size, "
                         "bsp_schedule_delay, bsp_max_export_batch_size",
                         key);
    if (to->resource_count == PROA_OTLP_HEADERS_MAX)
        return PROA_FAIL(err, LIMIT, "--trace-config resource: more than %d attributes", PROA_OTLP_HEADERS_MAX);
    if (!p->trace_resource)
        p->trace_resource = PROA_ARENA_NEW(&p->arena, const char *, PROA_OTLP_HEADERS_MAX);
    p->trace_resource[to->resource_count++] = value;
    to->resource = p->trace_resource;
    return PROA_OK;
}

/* 0: only requests that come with a context. */
static proa_status trace_rate(int64_t *out, const char *value, proa_err *err)
{
    PROA_TRY(trace_number(out, "rate", value, 0, UINT32_MAX, err));
    if (*out == 0) *out = -1;
    return PROA_OK;
}

static proa_status trace_mode(proa_trace_mode *out, const char *value, proa_err *err)
{
    if (strcasecmp(value, "triton") == 0) return *out = PROA_TRACE_TRITON, PROA_OK;
    if (strcasecmp(value, "opentelemetry") == 0) return *out = PROA_TRACE_OPENTELEMETRY, PROA_OK;
    return PROA_FAIL(err, INVALID, "--trace-config mode=%s: triton or opentelemetry", value);
}

/* "[triton,]KEY=VALUE", "opentelemetry,KEY=VALUE"; levels add up. */
static proa_status plan_trace(proa_serve_plan *p, const char *text, proa_err *err)
{
    static const char triton[] = "triton,", otel[] = "opentelemetry,";
    proa_trace_options *t = &p->api.trace;
    const char *key = NULL, *value = NULL, *whole = text;
    bool collector = strncasecmp(text, otel, sizeof otel - 1) == 0;
    if (collector) text += sizeof otel - 1;
    else if (strncasecmp(text, triton, sizeof triton - 1) == 0) text += sizeof triton - 1;
    PROA_TRY(split_pair(&p->arena, "trace-config", text, strlen(text), &key, &value, err));
    if (collector) return plan_collector(p, key, value, err);
    if (strcmp(key, "file") == 0) return t->to.file = value, PROA_OK;
    if (strcmp(key, "level") == 0) return trace_level(&t->level, value, err);
    if (strcmp(key, "rate") == 0) return trace_rate(&t->rate, value, err);
    if (strcmp(key, "count") == 0) return trace_number(&t->count, key, value, -1, UINT32_MAX, err);
    if (strcmp(key, "log-frequency") == 0)
        return trace_number(&t->log_frequency, key, value, 0, UINT32_MAX, err);
    if (strcmp(key, "mode") == 0) return trace_mode(&t->to.mode, value, err);
    return PROA_FAIL(err, INVALID,
                     "--trace-config '%s' is none of file, level, rate, count, log-frequency, mode", whole);
}

static proa_status plan_traces(proa_serve_plan *p, const proa_serve_options *o, proa_err *err)
{
    proa_trace_options *t = &p->api.trace;
    for (int i = 0; i < o->trace_config.count; i++) PROA_TRY(plan_trace(p, o->trace_config.items[i], err));
    if (t->to.mode == PROA_TRACE_OPENTELEMETRY) return PROA_OK;
    if (t->rate < 0)
        return PROA_FAIL(err, INVALID, "--trace-config rate=0: needs mode=opentelemetry, or must be 1 to %lld",
                         (long long)UINT32_MAX);
    if (t->level && !t->to.file)
        return PROA_FAIL(err, INVALID, "--trace-config level needs --trace-config file=PATH");
    return proa_output_check(t->to.file, err); /* now, not at the first trace */
}

static int compression_of(const char *name)
{
    static const char *const names[] = {"none", "low", "medium", "high"};
    int level = 3;
    while (level > 0 && strcmp(names[level], name) != 0) level--;
    return level;
}

/* Metrics have no certificate of their own: on HTTP's port they come after HTTP's. */
static bool metrics_join_http(const proa_api_options *a)
{
    bool same_port = a->metrics.port == a->http.port || strncmp(a->http.address, "unix:", 5) == 0;
    return a->http.allow && same_port && strcmp(a->metrics.address, a->http.address) == 0;
}

static proa_status plan_tls(proa_api_options *a, const proa_serve_options *o, proa_err *err)
{
    bool grpc = o->grpc_ssl || o->grpc_ssl_mutual;
    if ((o->cert == NULL) != (o->key == NULL))
        return PROA_FAIL(err, INVALID, "--http-cert and --http-key go together");
    if (grpc && !(o->grpc_cert && o->grpc_key))
        return PROA_FAIL(err, INVALID, "--grpc-use-ssl needs --grpc-server-cert and --grpc-server-key");
    if (o->grpc_ssl_mutual && !o->grpc_root)
        return PROA_FAIL(err, INVALID, "--grpc-use-ssl-mutual needs --grpc-root-cert");
    a->http.cert = o->cert, a->http.key = o->key, a->http.client_ca = o->client_ca;
    if (grpc) a->grpc.cert = o->grpc_cert, a->grpc.key = o->grpc_key;
    if (o->grpc_ssl_mutual) a->grpc.client_ca = o->grpc_root;
    if (metrics_join_http(a))
        a->metrics.cert = o->cert, a->metrics.key = o->key, a->metrics.client_ca = o->client_ca;
    return PROA_OK;
}

/* What a browser sends has a scheme, a host and no path: anything else would never match. */
static proa_status check_origins(const proa_api_options *a, proa_err *err)
{
    for (int i = 0; i < a->allow_origins_count; i++) {
        const char *origin = a->allow_origins[i], *host = strstr(origin, "://");
        if (strcmp(origin, "*") != 0 && (!host || host == origin || !host[3] || strchr(host + 3, '/')))
            return PROA_FAIL(err, INVALID, "--allow-origin '%s' is not of the form https://HOST[:PORT]", origin);
    }
    return PROA_OK;
}

static proa_status plan_api(proa_serve_plan *p, const proa_serve_options *o, proa_err *err)
{
    proa_api_options *a = &p->api;
    a->http = (proa_port){.allow = o->allow_http,
                          .address = o->http_address,
                          .port = (int)o->http_port,
                          .reuse = o->reuse_http,
                          .forward_pattern = o->forward_http};
    a->grpc = (proa_port){.allow = o->allow_grpc,
                          .address = o->grpc_address,
                          .port = (int)o->grpc_port,
                          .reuse = o->reuse_grpc,
                          .forward_pattern = o->forward_grpc};
    a->metrics = (proa_port){.allow = o->allow_metrics,
                             .port = (int)o->metrics_port,
                             .address = o->metrics_address ? o->metrics_address : o->http_address};
    PROA_TRY(plan_tls(a, o, err));
    PROA_TRY(plan_traces(p, o, err));
    a->threads = (int)o->threads, a->http_max_input = o->max_input;
    a->allow_client_shm = o->allow_shm, a->allow_adapters = o->allow_adapters,
    a->strict_triton = o->strict_triton;
    a->grpc_keepalive_ms = o->keepalive_ms, a->grpc_keepalive_timeout_ms = o->keepalive_timeout_ms;
    a->grpc_age_ms = o->age_ms, a->grpc_grace_ms = o->grace_ms;
    a->grpc_compression = compression_of(o->compression);
    a->allow_origins = o->allow_origins.items, a->allow_origins_count = o->allow_origins.count;
    a->allow_hosts = o->allow_hosts.items, a->allow_hosts_count = o->allow_hosts.count;
    PROA_TRY(check_origins(a, err));
    PROA_TRY(plan_restrictions(p, &a->http, "http-restricted-api", &o->http_restricted, err));
    PROA_TRY(plan_restrictions(p, &a->grpc, "grpc-restricted-protocol", &o->grpc_restricted, err));
    return plan_keys(p, o, err);
}

proa_status proa_serve_plan_make(proa_serve_plan *p, const proa_serve_options *o, proa_err *err)
{
    *p = (proa_serve_plan){.exit_ms = 1000 * o->exit_secs};
    proa_arena_init(&p->arena);
    p->log = (proa_log_settings){
        .error = o->log_error, .warning = o->log_warning, .info = o->log_info, .verbose = (int)o->verbose};
    p->log.format = strcmp(o->log_format, "json") == 0      ? PROA_LOG_JSON
                    : strcmp(o->log_format, "ISO8601") == 0 ? PROA_LOG_ISO8601
                                                            : PROA_LOG_DEFAULT;
    if (o->log_file) snprintf(p->log.file, sizeof p->log.file, "%s", o->log_file);
    PROA_TRY(proa_serve_check_ignored(o, err));
    PROA_TRY(plan_server(p, o, err));
    return plan_api(p, o, err);
}

void proa_serve_plan_release(proa_serve_plan *p)
{
    proa_arena_release(&p->arena);
}
