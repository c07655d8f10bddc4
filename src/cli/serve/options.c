/* SPDX-License-Identifier: Apache-2.0
 * options.c - the table of options; plan.c splits and checks their values. */
#include "cli/serve/options.h"

#include "base/limits.h"

#define AT(field) offsetof(proa_serve_options, field)
/* Rows of a proa_arg table. preset: the default as text; NULL: none. */
/* clang-format off */
#define BOOL(name, field, preset, help)           {name, PROA_ARG_BOOL, AT(field), 0, 0, "true|false", preset, help}
#define MODEL(name, field, value, help) \
    {name, PROA_ARG_TEXT, AT(field), PROA_ARG_MODEL, 0, value, NULL, help}
#define MODELS(name, field, value, help) \
    {name, PROA_ARG_LIST, AT(field), PROA_ARG_MODEL, 0, value, NULL, help}
#define TEXT(name, field, value, preset, help)    {name, PROA_ARG_TEXT, AT(field), 0, 0, value, preset, help}
#define CHOICE(name, field, values, preset, help) {name, PROA_ARG_CHOICE, AT(field), 0, 0, values, preset, help}
#define LIST(name, field, value, help)            {name, PROA_ARG_LIST, AT(field), 0, 0, value, NULL, help}
#define INT(name, field, min, max, unit, preset, help) \
    {name, PROA_ARG_INT, AT(field), min, max, unit, preset, help}
/* clang-format on */

static const proa_arg model_rows[] = {
    {"[PATH]", PROA_ARG_OPERANDS, AT(paths),
     .help = "a Hugging Face folder, one Triton model, a Triton model repository, either of them at an "
             "address s3://, "
             "gs:// or as://, or ORG/NAME on a hub",
     .min = PROA_ARG_REPOSITORY},
    {"model-repository", PROA_ARG_LIST, AT(repositories), PROA_ARG_REPOSITORY, 0, "PATH", NULL,
     "as PATH; may be given more than once"},
    LIST("model-store", repositories, "PATH", "an alias of --model-repository"),
    CHOICE("model-control-mode", control, "none|poll|explicit", "none",
           "none: load all at start; poll: follow file changes; explicit: load on request"),
    LIST("load-model", load_models, "NAME", "with explicit: load this model at start; '*': all"),
    INT("repository-poll-secs", poll_secs, 1, 86400, "N", "15", "with poll: seconds between two polls"),
    TEXT("cloud-cache", cloud_cache, "FOLDER", NULL,
         "keep files of repositories in clouds here; without it ~/.cache/proa/cloud"),
    INT("cloud-cache-size", cloud_cache_bytes, 1, INT64_MAX, "BYTES", "107374182400",
        "of the files of one such repository that are kept at most"),
    TEXT("model-config-name", config_name, "NAME", NULL,
         "use a model's configs/NAME.pbtxt, if it exists, instead of config.pbtxt"),
    LIST("set", fills, "NAME=VALUE", "replace ${NAME} in configurations, as fill_template.py does"),
    BOOL("allow-external-paths", external_paths, "false",
         "configurations in load requests may name paths outside the repositories"),
    BOOL("strict-readiness", strict_readiness, "true", "the server is ready only when every model is ready"),
    BOOL("exit-on-error", exit_on_error, "true", "exit if a model fails to load at start"),
    BOOL("disable-auto-complete-config", no_auto_complete, "false", "configurations must be complete"),
    BOOL("model-namespacing", namespacing, "false", "model names are unique only within their repository"),
    INT("model-load-thread-count", load_threads, 1, 256, "N", "4", "models that load in parallel"),
    INT("model-load-retry-count", load_retries, 0, 1000, "N", "0", "retries of a failed load"),
    TEXT("backend-directory", backend_directory, "PATH",
         NULL, "load backends that are not built in from PATH/NAME: libproa_NAME.so, or Triton's libtriton_NAME.so"),
    TEXT("repoagent-directory", repoagent_directory, "PATH", NULL,
         "load repository agents from PATH/NAME/libtritonrepoagent_NAME.so"),
    LIST("isolate", isolate, "BACKEND", "run a built-in backend in processes of its own, as libraries do"),
    LIST("in-process", in_process, "BACKEND",
         "run a backend that is a library (pytorch too) in the server's process; 'all': all of them"),
    LIST("backend-config", settings, "[BACKEND,]KEY=VALUE", "a setting of a backend"),
    LIST("cache-config", cache_config, "local,size=BYTES", "cache responses of models that enable response_cache"),
    INT("response-cache-byte-size", cache_bytes, 0, INT64_MAX, "BYTES", "0", "older form of --cache-config"),
    CHOICE("rate-limit", rate_limit, "off|execution_count", "off",
           "schedule instances by their rate_limiter settings"),
    LIST("rate-limit-resource", rate_resources, "NAME:COUNT[:DEVICE]", "amount of a resource of the rate limiter"),
};
static const proa_arg_table model_args = PROA_ARG_TABLE("models", model_rows);

static const proa_arg engine_rows[] = {
    {"device", PROA_ARG_DEVICE, AT(device), 0, 0, "cpu|cuda[:N]", NULL, "device of models that the engine runs"},
    CHOICE("dtype", dtype, "auto|exact|f32|bf16|f16", NULL, "type of their weights and arithmetic"),
    CHOICE("quant", quant, "none|int8|fp8|int4", NULL, "quantize their weights at load; fp8 on GPUs only"),
    INT("threads", engine_threads, 0, PROA_THREADS_MAX, "N", "0",
        "their worker threads; 0: all CPUs allowed to this process"),
    INT("tp", tensor_parallel, 0, PROA_RANKS_MAX, "N", "0",
        "ranks that share each of their layers (tensor parallelism), on as many GPUs; 0: one, or those of "
        "a packed folder"),
    INT("pp", pipeline_parallel, 0, PROA_RANKS_MAX, "N", "0",
        "stages that have ranges of their layers (pipeline parallelism), each with the GPUs of --tp"),
    CHOICE("expert-parallel", expert_parallel, "on|off", NULL,
           "the ranks of --tp have different experts of a mixture, not a part of each (default off)"),
    CHOICE("rank-sums", rank_sums, "terms|whole", NULL,
           "what the ranks of --tp add: terms of each sum (the default), or nothing: whole sums with the "
           "bits of "
           "one rank (CPU)"),
    INT("replicas", replicas, 0, PROA_REPLICAS_MAX, "N", "0",
        "copies of each model, on GPUs of their own or with their part of the threads; requests go where "
        "their "
        "prefix is cached, else where least is queued; 0: as instance_group says"),
    CHOICE(
        "ranks", ranks, "thread|process|mpi", NULL,
        "what their ranks are: threads of the server (the default), or processes of their own, spread over "
        "the NUMA nodes"),
    TEXT("disaggregate", disaggregate, "prefill=N,decode=M", NULL,
         "N of N + M replicas run long prompts for the others, which generate; keys and values are copied"),
    CHOICE("kv-dtype", kv_dtype, "auto|f32|bf16|f16|fp8", NULL, "type of their KV cache; fp8 on GPUs only"),
    CHOICE("speculation", speculation, "none|ngram|draft|medusa|eagle", NULL,
           "draft tokens; ngram: from the sequence's own text; draft, medusa, eagle: from what --draft-model "
           "holds (the default with it)"),
    MODEL("draft-model", draft_model, "FOLDER",
          "a smaller model with the same vocabulary, which drafts tokens, or Medusa or EAGLE heads"),
    INT("draft-tokens", draft_tokens, 0, PROA_TREE_MAX, "N", "0",
        "draft tokens of a sequence in a step at most; 0: " PROA_STR(PROA_DRAFT_MAX) ", in a tree " PROA_STR(
            PROA_TREE_MAX)),
    INT("kv-tokens", kv_tokens, 0, (int64_t)1 << 40, "N", "0", "size of the KV cache in tokens; 0: automatic"),
    TEXT("kv-cache-free-gpu-mem-fraction", kv_share, "X", NULL,
         "without --kv-tokens: KV cache share of the memory that the weights leave"),
    CHOICE("prefix-cache", prefix_cache, "on|off", NULL,
           "requests that begin alike share cached keys and values (default on)"),
    TEXT("prefix-host-memory", prefix_host_memory, "auto|off|BYTES", NULL,
         "host memory for cached prefixes that the KV cache has no room for, such as 512M; auto: 4G on a GPU "
         "(default off)"),
    TEXT("prefix-dir", prefix_dir, "FOLDER", NULL,
         "keep cached prefixes as files of a private folder, for later runs and other servers"),
    TEXT("prefix-dir-size", prefix_dir_size, "BYTES", NULL,
         "its files at most, such as 512M; those used least recently go first (default 16G)"),
    INT("sequences", sequences, 0, PROA_SEQUENCES_MAX, "N", "0", "sequences that run concurrently"),
    INT("prompt-rows", prompt_rows, 0, PROA_STEP_TOKENS_MAX, "N", "0",
        "rows of prompts at most beside decoding ones; 0: planned, and as --prompt-slowdown allows"),
    TEXT("prompt-slowdown", prompt_slowdown, "X",
         NULL, "steps with prompts take at most X times as long as without; default 1.5, no bound with --prompt-rows"),
    CHOICE("scheduler-policy", policy, "max_utilization|guaranteed_no_evict", NULL,
           "when sequences start: with room for the tokens they have, and are preempted when room runs out, "
           "or with "
           "room for all they can need"),
    TEXT("chat-template", chat_template, "FILE|chatml|plain", NULL,
         "their chat template, in place of their folders'"),
    CHOICE("tool-parser", tool_parser, "auto|hermes|llama3_json|mistral|qwen3_coder|openai|none", "auto",
           "form of their tool calls; auto: by the chat template"),
    CHOICE("reasoning-parser", reasoning_parser, "auto|deepseek_r1|qwen3|mistral|openai_gptoss|none", "auto",
           "form of their reasoning; auto: by the chat template"),
    MODELS("lora", lora, "NAME=PATH", "load an adapter (a folder of PEFT), a model of its own to clients"),
    INT("lora-slots", lora_slots, 0, PROA_LORA_SLOTS_MAX, "N", "0",
        "different low-rank adapters in one batch; 0: as many as --lora loads"),
    INT("lora-max", lora_max, 0, PROA_LORA_ADAPTERS_MAX, "N", "0",
        "adapters loaded at one time; 0: as many as --lora-slots"),
    INT("lora-rank", lora_rank, 0, PROA_LORA_RANK_MAX, "N", "0",
        "largest rank of an adapter; 0: that of those loaded, at least 16"),
    CHOICE("lora-dtype", lora_dtype, "auto|exact|fp8", NULL,
           "exact: adapters in 16 bits beside weights in fp8, too; auto: in fp8 as these are"),
};
const proa_arg_table proa_serve_engine_args = PROA_ARG_TABLE(
    "transformers (a model's own parameters win over these)", engine_rows);

static const proa_arg http_rows[] = {
    BOOL("allow-http", allow_http, "true", "serve KServe v2, the OpenAI API and the console at /"),
    TEXT("http-address", http_address, "ADDRESS", "0.0.0.0", "address to listen on, or unix:/path"),
    INT("http-port", http_port, 0, 65535, "N", "8000",
        "0: any free port; HTTP, gRPC and metrics may share one port"),
    BOOL("reuse-http-port", reuse_http, "false", "share the port with other processes"),
    INT("http-thread-count", threads, 0, PROA_LOOPS_MAX, "N", "0",
        "event loops, for HTTP and gRPC; 0: by the number of CPUs"),
    INT("http-max-input-size", max_input, 1, INT64_MAX, "BYTES", "67108864",
        "largest HTTP body, and largest body or gRPC message after decompression"),
    TEXT("http-header-forward-pattern", forward_http, "REGEX", NULL,
         "headers whose name matches become request parameters"),
    LIST("http-restricted-api", http_restricted, "APIS:KEY=VALUE", "these APIs require the header KEY with VALUE"),
    TEXT("http-cert", cert, "FILE", NULL, "PEM certificate: use TLS on the HTTP port"),
    TEXT("http-key", key, "FILE", NULL, "PEM key of --http-cert"),
    TEXT("http-client-ca", client_ca, "FILE", NULL, "require client certificates that these CAs signed"),
    LIST("api-key", api_keys, "KEY", "require 'Authorization: Bearer KEY'"),
    TEXT("api-key-file", api_key_file, "FILE", NULL, "file with API keys, one per line"),
    TEXT("client-header", client_header, "NAME", PROA_CLIENT_HEADER,
         "header that names the client, beside its API key: clients of a transformer take turns; '': none"),
    LIST("allow-origin", allow_origins, "ORIGIN",
         "web origin https://HOST[:PORT] whose pages may control this server through a proxy; '*': all"),
    LIST("allow-host", allow_hosts, "NAME",
         "additional host name by which clients may control this server; '*': any"),
    BOOL("allow-client-shm", allow_shm, "false", "allow clients to register shared memory"),
    BOOL("allow-lora-updates", allow_adapters, "false", "allow clients to load and unload low-rank adapters"),
    BOOL("strict-triton", strict_triton, "false", "use Triton's status codes also where Proa's are more precise"),
};
static const proa_arg_table http_args = PROA_ARG_TABLE("HTTP", http_rows);

static const proa_arg grpc_rows[] = {
    BOOL("allow-grpc", allow_grpc, "true", "serve inference.GRPCInferenceService"),
    TEXT("grpc-address", grpc_address, "ADDRESS", "0.0.0.0", "address to listen on, or unix:/path"),
    INT("grpc-port", grpc_port, 0, 65535, "N", "8001", "0: any free port"),
    BOOL("reuse-grpc-port", reuse_grpc, "false", "share the port with other processes"),
    TEXT("grpc-header-forward-pattern", forward_grpc, "REGEX", NULL, "as the option for HTTP"),
    LIST("grpc-restricted-protocol", grpc_restricted, "APIS:KEY=VALUE", "as the option for HTTP"),
    BOOL("grpc-use-ssl", grpc_ssl, "false", "use TLS"),
    BOOL("grpc-use-ssl-mutual", grpc_ssl_mutual, "false", "also require client certificates"),
    TEXT("grpc-server-cert", grpc_cert, "FILE", NULL, "PEM"),
    TEXT("grpc-server-key", grpc_key, "FILE", NULL, "PEM"),
    TEXT("grpc-root-cert", grpc_root, "FILE", NULL, "PEM certificates of the CAs of clients"),
    CHOICE("grpc-infer-response-compression-level", compression, "none|low|medium|high", "none",
           "compression of responses"),
    INT("grpc-keepalive-time", keepalive_ms, 0, INT32_MAX, "MS", "7200000",
        "time between keepalive pings of the server"),
    INT("grpc-keepalive-timeout", keepalive_timeout_ms, 0, INT32_MAX, "MS", "20000",
        "time to wait for the reply to a ping"),
    INT("grpc-max-connection-age", age_ms, 0, INT32_MAX, "MS", "0", "longest life of a connection; 0: no limit"),
    INT("grpc-max-connection-age-grace", grace_ms, 0, INT32_MAX, "MS", "0",
        "time that calls get to finish after that age"),
};
static const proa_arg_table grpc_args = PROA_ARG_TABLE("gRPC", grpc_rows);

static const proa_arg other_rows[] = {
    BOOL("allow-metrics", allow_metrics, "true", "serve Prometheus metrics"),
    TEXT("metrics-address", metrics_address, "ADDRESS", NULL, "default: the address of HTTP"),
    INT("metrics-port", metrics_port, 0, 65535, "N", "8002", "0: any free port"),
    BOOL("allow-gpu-metrics", allow_gpu_metrics, "true", "and in it the use of NVIDIA GPUs, where a driver is"),
    INT("metrics-interval-ms", metrics_interval_ms, 1, 3600000, "MS", "2000", "how often GPUs are read"),
    LIST("metrics-config", metrics_config, "KEY=VALUE",
         "counter_latencies, histogram_latencies, summary_latencies: true or false"),
    LIST(
        "trace-config", trace_config, "KEY=VALUE",
        "level (OFF, TIMESTAMPS, TENSORS), rate (trace one request in N), count, mode (triton, "
        "opentelemetry); "
        "triton,file=..., triton,log-frequency=...; opentelemetry,url=..., opentelemetry,resource=KEY=VALUE"),
    TEXT("id", id, "NAME", "triton", "server name in the server metadata"),
    INT("exit-timeout-secs", exit_secs, 0, 86400, "N", "30",
        "seconds that running requests get to finish at shutdown"),
    INT("log-verbose", verbose, 0, 100, "LEVEL", "0", "verbose level; 0: off"),
    BOOL("log-info", log_info, "true", "log informational messages"),
    BOOL("log-warning", log_warning, "true", "log warnings"),
    BOOL("log-error", log_error, "true", "log errors"),
    CHOICE("log-format", log_format, "default|ISO8601|json", "default", "format of log lines"),
    TEXT("log-file", log_file, "FILE", NULL, "write the log to FILE instead of standard error"),
    {"json", PROA_ARG_FLAG, AT(json), 0, 0, NULL, NULL,
     "print the table of models at start as JSON to standard output"},
    /* taken by the parser before it is stored */
    {"help", PROA_ARG_FLAG, AT(help), 0, 0, NULL, NULL, "print this text"},
};
static const proa_arg_table other_args = PROA_ARG_TABLE("metrics, tracing, logging, shutdown", other_rows);

const proa_arg_table *const proa_serve_tables[] = {
    &model_args, &proa_serve_engine_args,  &http_args, &grpc_args,
    &other_args, &proa_serve_ignored_args, NULL};
