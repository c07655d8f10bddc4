/* SPDX-License-Identifier: Apache-2.0
 * options.h - what `proa serve` takes: tritonserver's options by their names, and a few of our own.
 * Owner:   texts point into argv; what was split from them belongs to proa_serve_plan.
 * Threads: main's.
 * Way in:  proa_serve_tables for the help and the parser, then proa_serve_plan_make. */
#ifndef PROA_CLI_SERVE_OPTIONS_H
#define PROA_CLI_SERVE_OPTIONS_H

#include "api/api.h"
#include "base/arena.h"
#include "cli/args.h"
#include "hub/cloud/cloud.h"

enum { PROA_SERVE_IGNORED_MAX = 48 };

typedef struct proa_serve_options {
    const char *device, *dtype, *quant, *kv_dtype, *prefix_cache, *prefix_host_memory, *prefix_dir,
        *prefix_dir_size, *speculation, *draft_model, *expert_parallel, *rank_sums,
        *disaggregate; /* of the engine: as --backend-config engine,dtype=... */
    int64_t engine_threads, tensor_parallel, pipeline_parallel, replicas, kv_tokens, draft_tokens, sequences,
        prompt_rows, lora_slots, lora_max, lora_rank;
    proa_arg_list lora;
    const char *lora_dtype;
    const char *kv_share, *prompt_slowdown, *policy, *ranks, *chat_template, *tool_parser, *reasoning_parser;
    bool json, help;
    proa_arg_list paths, repositories; /* operands; --model-repository and --model-store */
    const char *id, *config_name, *cloud_cache, *backend_directory, *repoagent_directory, *control,
        *rate_limit, *log_format, *log_file;
    const char *http_address, *grpc_address, *metrics_address, *forward_http, *forward_grpc;
    const char *cert, *key, *client_ca, *grpc_cert, *grpc_key, *grpc_root, *compression, *api_key_file,
        *client_header;
    proa_arg_list load_models, settings, fills, rate_resources, http_restricted, grpc_restricted, api_keys,
        allow_origins, allow_hosts, metrics_config, cache_config, trace_config, isolate, in_process;
    int64_t exit_secs, poll_secs, load_threads, load_retries, verbose, http_port, grpc_port, metrics_port,
        threads, max_input, cache_bytes, cloud_cache_bytes, keepalive_ms, keepalive_timeout_ms, age_ms,
        grace_ms, metrics_interval_ms;
    bool allow_http, allow_grpc, allow_metrics, allow_gpu_metrics, reuse_http, reuse_grpc, exit_on_error,
        no_auto_complete, strict_readiness, namespacing, allow_shm, allow_adapters, grpc_ssl, grpc_ssl_mutual,
        log_info, log_warning, log_error, strict_triton, external_paths;
    const char *ignored[PROA_SERVE_IGNORED_MAX]; /* values of tritonserver's options that do nothing here */
} proa_serve_options;

extern const proa_arg_table *const proa_serve_tables[];
extern const proa_arg_table proa_serve_engine_args;  /* of models that the engine runs */
extern const proa_arg_table proa_serve_ignored_args; /* ignored.c */
extern const proa_remote_ops proa_serve_remote;      /* remote.c; its argument is a proa_cloud_options */

typedef struct proa_serve_plan {
    proa_arena arena;
    proa_server_options server;
    proa_cloud_options cloud; /* of repositories in object stores */
    proa_api_options api;
    proa_log_settings log;
    int64_t exit_ms;
    const char **trace_resource; /* api.trace.to.resource, which is added to */
} proa_serve_plan;

/* Checks what goes together and splits "name,key=value" and its like. The plan is released by proa_serve_plan_release,
 * also after a failure. */
PROA_MUST_CHECK proa_status proa_serve_plan_make(proa_serve_plan *plan, const proa_serve_options *options,
                                                 proa_err *err);
void proa_serve_plan_release(proa_serve_plan *plan);
/* INVALID if the value of an option that does nothing here is none that tritonserver would take. */
PROA_MUST_CHECK proa_status proa_serve_check_ignored(const proa_serve_options *options, proa_err *err);
/* One warning in the log for each option that was given and does nothing here. */
void proa_serve_warn_ignored(const proa_serve_options *options);
/* Logs a warning for each unknown backend name, and if --backend-directory is not a folder. */
void proa_serve_warn_unknown(proa_serve_plan *plan, const proa_serve_options *options);

#endif
