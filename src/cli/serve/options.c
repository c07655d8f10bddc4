/* SPDX-License-Identifier: Apache-2.0
 * options.c - the table of options; plan.c splits and checks their values. */
#include "cli/serve/options.h"

#include "base/limits.h"

#define AT(field) offsetof(proa_serve_options, field)
#define DAY_MS    86400000

static const proa_arg model_rows[] = {
    {"[PATH]", PROA_ARG_OPERANDS, AT(paths),
     .help = "a Hugging Face folder, one Triton model, or a Triton model repository"},
    {"model-repository", PROA_ARG_LIST, AT(repositories), 0, 0, "PATH", NULL,
     "as PATH; may be given more than once"},
    {"model-store", PROA_ARG_LIST, AT(repositories), 0, 0, "PATH", NULL, "an alias of --model-repository"},
    {"model-control-mode", PROA_ARG_CHOICE, AT(control), 0, 0, "none|poll|explicit", "none",
     "none: load all at start; poll: follow file changes; explicit: load on request"},
    {"load-model", PROA_ARG_LIST, AT(load_models), 0, 0, "NAME", NULL,
     "with explicit: load this model at start; '*': all"},
    {"repository-poll-secs", PROA_ARG_INT, AT(poll_secs), 1, 86400, "N", "15",
     "with poll: seconds between two polls"},
    {"model-config-name", PROA_ARG_TEXT, AT(config_name), 0, 0, "NAME", NULL,
     "use a model's configs/NAME.pbtxt, if it exists, instead of config.pbtxt"},
    {"set", PROA_ARG_LIST, AT(fills), 0, 0, "NAME=VALUE", NULL,
     "replace ${NAME} in configurations, as fill_template.py does"},
    {"allow-external-paths", PROA_ARG_BOOL, AT(external_paths), 0, 0, "true|false", "false",
     "configurations in load requests may name paths outside the repositories"},
    {"strict-readiness", PROA_ARG_BOOL, AT(strict_readiness), 0, 0, "true|false", "true",
     "the server is ready only when every model is ready"},
    {"exit-on-error", PROA_ARG_BOOL, AT(exit_on_error), 0, 0, "true|false", "true",
     "exit if a model fails to load at start"},
    {"disable-auto-complete-config", PROA_ARG_BOOL, AT(no_auto_complete), 0, 0, "true|false", "false",
     "configurations must be complete"},
    {"model-namespacing", PROA_ARG_BOOL, AT(namespacing), 0, 0, "true|false", "false",
     "model names are unique only within their repository"},
    {"model-load-thread-count", PROA_ARG_INT, AT(load_threads), 1, 256, "N", "4", "models that load in parallel"},
    {"model-load-retry-count", PROA_ARG_INT, AT(load_retries), 0, 1000, "N", "0", "retries of a failed load"},
    {"backend-config", PROA_ARG_LIST, AT(settings), 0, 0, "[BACKEND,]KEY=VALUE", NULL, "a setting of a backend"},
    {"cache-config", PROA_ARG_LIST, AT(cache_config), 0, 0, "local,size=BYTES", NULL,
     "cache responses of models that enable response_cache"},
    {"response-cache-byte-size", PROA_ARG_INT, AT(cache_bytes), 0, INT64_MAX, "BYTES", "0",
     "older form of --cache-config"},
    {"rate-limit", PROA_ARG_CHOICE, AT(rate_limit), 0, 0, "off|execution_count", "off",
     "schedule instances by their rate_limiter settings"},
    {"rate-limit-resource", PROA_ARG_LIST, AT(rate_resources), 0, 0, "NAME:COUNT[:DEVICE]", NULL,
     "amount of a resource of the rate limiter"},
};
static const proa_arg_table model_args = PROA_ARG_TABLE("models", model_rows);

static const proa_arg engine_rows[] = {
    {"device", PROA_ARG_TEXT, AT(device), 0, 0, "cpu|cuda[:N]", NULL, "device of models that the engine runs"},
    {"dtype", PROA_ARG_CHOICE, AT(dtype), 0, 0, "auto|f32|bf16|f16", NULL, "type of their weights and arithmetic"},
    {"quant", PROA_ARG_CHOICE, AT(quant), 0, 0, "none|int8|fp8|int4", NULL,
     "quantize their weights at load; fp8 on GPUs only"},
    {"threads", PROA_ARG_INT, AT(engine_threads), 0, PROA_THREADS_MAX, "N", "0",
     "their worker threads; 0: all CPUs allowed to this process"},
    {"kv-dtype", PROA_ARG_CHOICE, AT(kv_dtype), 0, 0, "auto|f32|bf16|f16|fp8", NULL,
     "type of their KV cache; fp8 on GPUs only"},
    {"kv-tokens", PROA_ARG_INT, AT(kv_tokens), 0, (int64_t)1 << 40, "N", "0",
     "size of the KV cache in tokens; 0: automatic"},
    {"kv-cache-free-gpu-mem-fraction", PROA_ARG_TEXT, AT(kv_share), 0, 0, "X", NULL,
     "without --kv-tokens: KV cache share of the memory that the weights leave"},
    {"sequences", PROA_ARG_INT, AT(sequences), 0, PROA_SEQUENCES_MAX, "N", "0", "sequences that run concurrently"},
};
static const proa_arg_table engine_args = PROA_ARG_TABLE(
    "transformers (a model's own parameters win over these)", engine_rows);

static const proa_arg http_rows[] = {
    {"allow-http", PROA_ARG_BOOL, AT(allow_http), 0, 0, "true|false", "true",
     "serve KServe v2, the OpenAI API and the page at /"},
    {"http-address", PROA_ARG_TEXT, AT(http_address), 0, 0, "ADDRESS", "0.0.0.0",
     "address to listen on, or unix:/path"},
    {"http-port", PROA_ARG_INT, AT(http_port), 0, 65535, "N", "8000",
     "0: any free port; HTTP, gRPC and metrics may share one port"},
    {"reuse-http-port", PROA_ARG_BOOL, AT(reuse_http), 0, 0, "true|false", "false",
     "share the port with other processes"},
    {"http-thread-count", PROA_ARG_INT, AT(threads), 0, PROA_LOOPS_MAX, "N", "0",
     "event loops, for HTTP and gRPC; 0: by the number of CPUs"},
    {"http-max-input-size", PROA_ARG_INT, AT(max_input), 1, INT64_MAX, "BYTES", "67108864",
     "largest HTTP body, and largest body or gRPC message after decompression"},
    {"http-header-forward-pattern", PROA_ARG_TEXT, AT(forward_http), 0, 0, "REGEX", NULL,
     "headers whose name matches become request parameters"},
    {"http-restricted-api", PROA_ARG_LIST, AT(http_restricted), 0, 0, "APIS:KEY=VALUE", NULL,
     "these APIs require the header KEY with VALUE"},
    {"http-cert", PROA_ARG_TEXT, AT(cert), 0, 0, "FILE", NULL, "PEM certificate: use TLS on the HTTP port"},
    {"http-key", PROA_ARG_TEXT, AT(key), 0, 0, "FILE", NULL, "PEM key of --http-cert"},
    {"http-client-ca", PROA_ARG_TEXT, AT(client_ca), 0, 0, "FILE", NULL,
     "require client certificates that these CAs signed"},
    {"api-key", PROA_ARG_LIST, AT(api_keys), 0, 0, "KEY", NULL, "require 'Authorization: Bearer KEY'"},
    {"api-key-file", PROA_ARG_TEXT, AT(api_key_file), 0, 0, "FILE", NULL, "file with API keys, one per line"},
    {"allow-origin", PROA_ARG_LIST, AT(allow_origins), 0, 0, "ORIGIN", NULL,
     "web origin https://HOST[:PORT] whose pages may control this server through a proxy; '*': all"},
    {"allow-host", PROA_ARG_LIST, AT(allow_hosts), 0, 0, "NAME", NULL,
     "additional host name by which clients may control this server; '*': any"},
    {"allow-client-shm", PROA_ARG_BOOL, AT(allow_shm), 0, 0, "true|false", "false",
     "allow clients to register shared memory"},
    {"strict-triton", PROA_ARG_BOOL, AT(strict_triton), 0, 0, "true|false", "false",
     "use Triton's status codes also where Proa's are more precise"},
};
static const proa_arg_table http_args = PROA_ARG_TABLE("HTTP", http_rows);

static const proa_arg grpc_rows[] = {
    {"allow-grpc", PROA_ARG_BOOL, AT(allow_grpc), 0, 0, "true|false", "true",
     "serve inference.GRPCInferenceService"},
    {"grpc-address", PROA_ARG_TEXT, AT(grpc_address), 0, 0, "ADDRESS", "0.0.0.0",
     "address to listen on, or unix:/path"},
    {"grpc-port", PROA_ARG_INT, AT(grpc_port), 0, 65535, "N", "8001", "0: any free port"},
    {"reuse-grpc-port", PROA_ARG_BOOL, AT(reuse_grpc), 0, 0, "true|false", "false",
     "share the port with other processes"},
    {"grpc-header-forward-pattern", PROA_ARG_TEXT, AT(forward_grpc), 0, 0, "REGEX", NULL, "as the option for HTTP"},
    {"grpc-restricted-protocol", PROA_ARG_LIST, AT(grpc_restricted), 0, 0, "APIS:KEY=VALUE", NULL,
     "as the option for HTTP"},
    {"grpc-use-ssl", PROA_ARG_BOOL, AT(grpc_ssl), 0, 0, "true|false", "false", "use TLS"},
    {"grpc-use-ssl-mutual", PROA_ARG_BOOL, AT(grpc_ssl_mutual), 0, 0, "true|false", "false",
     "also require client certificates"},
    {"grpc-server-cert", PROA_ARG_TEXT, AT(grpc_cert), 0, 0, "FILE", NULL, "PEM"},
    {"grpc-server-key", PROA_ARG_TEXT, AT(grpc_key), 0, 0, "FILE", NULL, "PEM"},
    {"grpc-root-cert", PROA_ARG_TEXT, AT(grpc_root), 0, 0, "FILE", NULL, "PEM certificates of the CAs of clients"},
    {"grpc-infer-response-compression-level", PROA_ARG_CHOICE, AT(compression), 0, 0, "none|low|medium|high",
     "none", "compression of responses"},
    {"grpc-keepalive-time", PROA_ARG_INT, AT(keepalive_ms), 0, INT32_MAX, "MS", "7200000",
     "time between keepalive pings of the server"},
    {"grpc-keepalive-timeout", PROA_ARG_INT, AT(keepalive_timeout_ms), 0, INT32_MAX, "MS", "20000",
     "time to wait for the reply to a ping"},
    {"grpc-max-connection-age", PROA_ARG_INT, AT(age_ms), 0, INT32_MAX, "MS", "0",
     "longest life of a connection; 0: no limit"},
    {"grpc-max-connection-age-grace", PROA_ARG_INT, AT(grace_ms), 0, INT32_MAX, "MS", "0",
     "time that calls get to finish after that age"},
};
static const proa_arg_table grpc_args = PROA_ARG_TABLE("gRPC", grpc_rows);

static const proa_arg other_rows[] = {
    {"allow-metrics", PROA_ARG_BOOL, AT(allow_metrics), 0, 0, "true|false", "true", "serve Prometheus metrics"},
    {"metrics-address", PROA_ARG_TEXT, AT(metrics_address), 0, 0, "ADDRESS", NULL, "default: the address of HTTP"},
    {"metrics-port", PROA_ARG_INT, AT(metrics_port), 0, 65535, "N", "8002", "0: any free port"},
    {"metrics-config", PROA_ARG_LIST, AT(metrics_config), 0, 0, "KEY=VALUE", NULL,
     "counter_latencies, histogram_latencies, summary_latencies: true or false"},
    {"trace-config", PROA_ARG_LIST, AT(trace_config), 0, 0, "KEY=VALUE", NULL,
     "file, level (OFF, TIMESTAMPS, TENSORS), rate (trace one request in N), count, log-frequency"},
    {"id", PROA_ARG_TEXT, AT(id), 0, 0, "NAME", "triton", "server name in the server metadata"},
    {"exit-timeout-secs", PROA_ARG_INT, AT(exit_secs), 0, 86400, "N", "30",
     "seconds that running requests get to finish at shutdown"},
    {"log-verbose", PROA_ARG_INT, AT(verbose), 0, 100, "LEVEL", "0", "verbose level; 0: off"},
    {"log-info", PROA_ARG_BOOL, AT(log_info), 0, 0, "true|false", "true", "log informational messages"},
    {"log-warning", PROA_ARG_BOOL, AT(log_warning), 0, 0, "true|false", "true", "log warnings"},
    {"log-error", PROA_ARG_BOOL, AT(log_error), 0, 0, "true|false", "true", "log errors"},
    {"log-format", PROA_ARG_CHOICE, AT(log_format), 0, 0, "default|ISO8601|json", "default", "format of log lines"},
    {"log-file", PROA_ARG_TEXT, AT(log_file), 0, 0, "FILE", NULL,
     "write the log to FILE instead of standard error"},
    {"json", PROA_ARG_FLAG, AT(json), 0, 0, NULL, NULL,
     "print the table of models at start as JSON to standard output"},
    /* taken by the parser before it is stored */
    {"help", PROA_ARG_FLAG, AT(help), 0, 0, NULL, NULL, "print this text"},
};
static const proa_arg_table other_args = PROA_ARG_TABLE("metrics, tracing, logging, shutdown", other_rows);

const proa_arg_table *const proa_serve_tables[] = {
    &model_args, &engine_args, &http_args, &grpc_args, &other_args, &proa_serve_ignored_args, NULL};
