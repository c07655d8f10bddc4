/* SPDX-License-Identifier: Apache-2.0
 * serve_options.c - the rows; what is split from their values is in serve_plan.c. */
#include "cli/serve/options.h"

#include "base/limits.h"

#define AT(field) offsetof(proa_serve_options, field)
#define DAY_MS    86400000

static const proa_arg model_rows[] = {
    {"[PATH]", PROA_ARG_OPERANDS, AT(paths),
     .help = "a Hugging Face folder, one Triton model, or a Triton model repository"},
    {"model-repository", PROA_ARG_LIST, AT(repositories), 0, 0, "PATH", NULL, "the same; may come many times"},
    {"model-store", PROA_ARG_LIST, AT(repositories), 0, 0, "PATH", NULL, "another name of it"},
    {"model-control-mode", PROA_ARG_CHOICE, AT(control), 0, 0, "none|poll|explicit", "none",
     "none: load all at start; poll: follow the files; explicit: load what is named and asked for"},
    {"load-model", PROA_ARG_LIST, AT(load_models), 0, 0, "NAME", NULL, "explicit: load this at start; '*': all"},
    {"repository-poll-secs", PROA_ARG_INT, AT(poll_secs), 1, 86400, "N", "15", "poll: how often"},
    {"model-config-name", PROA_ARG_TEXT, AT(config_name), 0, 0, "NAME", NULL,
     "configs/NAME.pbtxt of a model where there is one, instead of config.pbtxt"},
    {"set", PROA_ARG_LIST, AT(fills), 0, 0, "NAME=VALUE", NULL,
     "fills ${NAME} in configurations, as fill_template.py does"},
    {"allow-external-paths", PROA_ARG_BOOL, AT(external_paths), 0, 0, "true|false", "false",
     "configurations of load requests may name paths outside of the repositories"},
    {"strict-readiness", PROA_ARG_BOOL, AT(strict_readiness), 0, 0, "true|false", "true",
     "ready only when every model is"},
    {"exit-on-error", PROA_ARG_BOOL, AT(exit_on_error), 0, 0, "true|false", "true",
     "a model that fails to load at start ends the server"},
    {"disable-auto-complete-config", PROA_ARG_BOOL, AT(no_auto_complete), 0, 0, "true|false", "false",
     "configurations must be whole"},
    {"model-namespacing", PROA_ARG_BOOL, AT(namespacing), 0, 0, "true|false", "false",
     "names belong to their repository"},
    {"model-load-thread-count", PROA_ARG_INT, AT(load_threads), 1, 256, "N", "4", "models loading at once"},
    {"model-load-retry-count", PROA_ARG_INT, AT(load_retries), 0, 1000, "N", "0", "further tries of a load"},
    {"backend-config", PROA_ARG_LIST, AT(settings), 0, 0, "[BACKEND,]KEY=VALUE", NULL, "a backend's setting"},
    {"cache-config", PROA_ARG_LIST, AT(cache_config), 0, 0, "local,size=BYTES", NULL,
     "keep replies of models that ask for it (response_cache)"},
    {"response-cache-byte-size", PROA_ARG_INT, AT(cache_bytes), 0, INT64_MAX, "BYTES", "0", "the same, older"},
    {"rate-limit", PROA_ARG_CHOICE, AT(rate_limit), 0, 0, "off|execution_count", "off",
     "instances run as their rate_limiter allows"},
    {"rate-limit-resource", PROA_ARG_LIST, AT(rate_resources), 0, 0, "NAME:COUNT[:DEVICE]", NULL,
     "how much of a resource there is"},
};
static const proa_arg_table model_args = PROA_ARG_TABLE("models", model_rows);

static const proa_arg engine_rows[] = {
    {"device", PROA_ARG_TEXT, AT(device), 0, 0, "cpu|cuda[:N]", NULL, "where the engine's models compute"},
    {"dtype", PROA_ARG_CHOICE, AT(dtype), 0, 0, "auto|f32|bf16|f16", NULL, "their weights and arithmetic"},
    {"quant", PROA_ARG_CHOICE, AT(quant), 0, 0, "none|int8|fp8|int4", NULL,
     "quantise their weights at load; fp8 and int4 on GPUs"},
    {"threads", PROA_ARG_INT, AT(engine_threads), 0, PROA_THREADS_MAX, "N", "0",
     "their worker threads; 0: all CPUs allowed to this process"},
    {"kv-dtype", PROA_ARG_CHOICE, AT(kv_dtype), 0, 0, "auto|f32|bf16|f16|fp8", NULL,
     "type of their keys and values; fp8 on GPUs"},
    {"kv-tokens", PROA_ARG_INT, AT(kv_tokens), 0, (int64_t)1 << 40, "N", "0",
     "room for keys and values; 0: planned"},
    {"kv-cache-free-gpu-mem-fraction", PROA_ARG_TEXT, AT(kv_share), 0, 0, "X", NULL,
     "without --kv-tokens: keys and values get this share of what the weights leave"},
    {"sequences", PROA_ARG_INT, AT(sequences), 0, PROA_SEQUENCES_MAX, "N", "0", "sequences running at once"},
};
static const proa_arg_table engine_args = PROA_ARG_TABLE(
    "transformers (a model's own parameters win over these)", engine_rows);

static const proa_arg http_rows[] = {
    {"allow-http", PROA_ARG_BOOL, AT(allow_http), 0, 0, "true|false", "true", "KServe v2, OpenAI, the page at /"},
    {"http-address", PROA_ARG_TEXT, AT(http_address), 0, 0, "ADDRESS", "0.0.0.0", "or unix:/path"},
    {"http-port", PROA_ARG_INT, AT(http_port), 0, 65535, "N", "8000", "0: any free port; ports may be the same"},
    {"reuse-http-port", PROA_ARG_BOOL, AT(reuse_http), 0, 0, "true|false", "false",
     "share it with other processes"},
    {"http-thread-count", PROA_ARG_INT, AT(threads), 0, PROA_LOOPS_MAX, "N", "0",
     "event loops, of gRPC too; 0: by the number of CPUs"},
    {"http-max-input-size", PROA_ARG_INT, AT(max_input), 1, INT64_MAX, "BYTES", "67108864",
     "of one request over HTTP, and of one body or gRPC message once decompressed"},
    {"http-header-forward-pattern", PROA_ARG_TEXT, AT(forward_http), 0, 0, "REGEX", NULL,
     "headers that become parameters of the request"},
    {"http-restricted-api", PROA_ARG_LIST, AT(http_restricted), 0, 0, "APIS:KEY=VALUE", NULL,
     "these need the header KEY with VALUE"},
    {"http-cert", PROA_ARG_TEXT, AT(cert), 0, 0, "FILE", NULL, "PEM: TLS on the HTTP port"},
    {"http-key", PROA_ARG_TEXT, AT(key), 0, 0, "FILE", NULL, "its key"},
    {"http-client-ca", PROA_ARG_TEXT, AT(client_ca), 0, 0, "FILE", NULL,
     "clients must show a certificate of these"},
    {"api-key", PROA_ARG_LIST, AT(api_keys), 0, 0, "KEY", NULL, "only with 'Authorization: Bearer KEY'"},
    {"api-key-file", PROA_ARG_TEXT, AT(api_key_file), 0, 0, "FILE", NULL, "such keys, one a line"},
    {"allow-origin", PROA_ARG_LIST, AT(allow_origins), 0, 0, "ORIGIN", NULL,
     "requests of pages of https://HOST[:PORT], by a proxy, may control this server; '*': of all"},
    {"allow-host", PROA_ARG_LIST, AT(allow_hosts), 0, 0, "NAME", NULL,
     "a further name under which clients control this server; '*': any"},
    {"allow-client-shm", PROA_ARG_BOOL, AT(allow_shm), 0, 0, "true|false", "false",
     "clients may register shared memory"},
    {"strict-triton", PROA_ARG_BOOL, AT(strict_triton), 0, 0, "true|false", "false",
     "Triton's own statuses where Proa's are better"},
};
static const proa_arg_table http_args = PROA_ARG_TABLE("HTTP", http_rows);

static const proa_arg grpc_rows[] = {
    {"allow-grpc", PROA_ARG_BOOL, AT(allow_grpc), 0, 0, "true|false", "true", "inference.GRPCInferenceService"},
    {"grpc-address", PROA_ARG_TEXT, AT(grpc_address), 0, 0, "ADDRESS", "0.0.0.0", "or unix:/path"},
    {"grpc-port", PROA_ARG_INT, AT(grpc_port), 0, 65535, "N", "8001", NULL},
    {"reuse-grpc-port", PROA_ARG_BOOL, AT(reuse_grpc), 0, 0, "true|false", "false",
     "share it with other processes"},
    {"grpc-header-forward-pattern", PROA_ARG_TEXT, AT(forward_grpc), 0, 0, "REGEX", NULL, "as for HTTP"},
    {"grpc-restricted-protocol", PROA_ARG_LIST, AT(grpc_restricted), 0, 0, "APIS:KEY=VALUE", NULL, "as for HTTP"},
    {"grpc-use-ssl", PROA_ARG_BOOL, AT(grpc_ssl), 0, 0, "true|false", "false", "TLS"},
    {"grpc-use-ssl-mutual", PROA_ARG_BOOL, AT(grpc_ssl_mutual), 0, 0, "true|false", "false", "and of clients too"},
    {"grpc-server-cert", PROA_ARG_TEXT, AT(grpc_cert), 0, 0, "FILE", NULL, "PEM"},
    {"grpc-server-key", PROA_ARG_TEXT, AT(grpc_key), 0, 0, "FILE", NULL, "PEM"},
    {"grpc-root-cert", PROA_ARG_TEXT, AT(grpc_root), 0, 0, "FILE", NULL, "PEM: whose certificates clients show"},
    {"grpc-infer-response-compression-level", PROA_ARG_CHOICE, AT(compression), 0, 0, "none|low|medium|high",
     "none", "of answers"},
    {"grpc-keepalive-time", PROA_ARG_INT, AT(keepalive_ms), 0, INT32_MAX, "MS", "7200000", "between our pings"},
    {"grpc-keepalive-timeout", PROA_ARG_INT, AT(keepalive_timeout_ms), 0, INT32_MAX, "MS", "20000",
     "for an answer"},
    {"grpc-max-connection-age", PROA_ARG_INT, AT(age_ms), 0, INT32_MAX, "MS", "0", "0: no limit"},
    {"grpc-max-connection-age-grace", PROA_ARG_INT, AT(grace_ms), 0, INT32_MAX, "MS", "0", NULL},
};
static const proa_arg_table grpc_args = PROA_ARG_TABLE("gRPC", grpc_rows);

static const proa_arg other_rows[] = {
    {"allow-metrics", PROA_ARG_BOOL, AT(allow_metrics), 0, 0, "true|false", "true", "Prometheus"},
    {"metrics-address", PROA_ARG_TEXT, AT(metrics_address), 0, 0, "ADDRESS", NULL, "default: that of HTTP"},
    {"metrics-port", PROA_ARG_INT, AT(metrics_port), 0, 65535, "N", "8002", NULL},
    {"metrics-config", PROA_ARG_LIST, AT(metrics_config), 0, 0, "KEY=VALUE", NULL,
     "counter_latencies, histogram_latencies, summary_latencies: true or false"},
    {"trace-config", PROA_ARG_LIST, AT(trace_config), 0, 0, "KEY=VALUE", NULL,
     "file, level (OFF, TIMESTAMPS, TENSORS), rate (one request of so many), count, log-frequency"},
    {"id", PROA_ARG_TEXT, AT(id), 0, 0, "NAME", "triton", "the server's name in its metadata"},
    {"exit-timeout-secs", PROA_ARG_INT, AT(exit_secs), 0, 86400, "N", "30",
     "how long running work may take at the end"},
    {"log-verbose", PROA_ARG_INT, AT(verbose), 0, 100, "LEVEL", "0", "0: none"},
    {"log-info", PROA_ARG_BOOL, AT(log_info), 0, 0, "true|false", "true", NULL},
    {"log-warning", PROA_ARG_BOOL, AT(log_warning), 0, 0, "true|false", "true", NULL},
    {"log-error", PROA_ARG_BOOL, AT(log_error), 0, 0, "true|false", "true", NULL},
    {"log-format", PROA_ARG_CHOICE, AT(log_format), 0, 0, "default|ISO8601|json", "default", NULL},
    {"log-file", PROA_ARG_TEXT, AT(log_file), 0, 0, "FILE", NULL, "instead of standard error"},
    {"json", PROA_ARG_FLAG, AT(json), 0, 0, NULL, NULL, "the table of models at start as JSON on standard output"},
    {"help", PROA_ARG_FLAG, AT(help), 0, 0, NULL, NULL, "this text"}, /* taken by the parser before it is stored */
};
static const proa_arg_table other_args = PROA_ARG_TABLE("metrics, traces, log, end", other_rows);

const proa_arg_table *const proa_serve_tables[] = {
    &model_args, &engine_args, &http_args, &grpc_args, &other_args, &proa_serve_ignored_args, NULL};
