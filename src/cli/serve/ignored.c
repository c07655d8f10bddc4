/* SPDX-License-Identifier: Apache-2.0
 * ignored.c - tritonserver's options that have no effect here. Their values are checked all the same: a mistake in a
 * command line shows here as it does there. */
#include "base/str.h"
#include "cli/serve/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- forms of values; "" is an option without one ---- */

static bool is_any(const char *text)
{
    PROA_UNUSED(text);
    return true;
}

static bool is_bool(const char *text)
{
    static const char *const words[] = {"", "true", "false", "1", "0", "on", "off"};
    for (size_t i = 0; i < PROA_COUNT(words); i++)
        if (strcmp(text, words[i]) == 0) return true;
    return false;
}

static bool is_whole(const char *text)
{
    char *end;
    strtoll(text, &end, 10);
    return *text && !*end;
}

static bool is_number(const char *text)
{
    char *end;
    return isfinite(strtod(text, &end)) && *text && !*end;
}

/* GPU:VALUE. */
static bool is_of_gpu(const char *text, bool (*is_value)(const char *))
{
    char *end;
    return strtol(text, &end, 10) >= 0 && end > text && *end == ':' && is_value(end + 1);
}

static bool is_gpu_bytes(const char *text)
{
    return is_of_gpu(text, is_whole);
}

static bool is_gpu_share(const char *text)
{
    return is_of_gpu(text, is_number);
}

/* POLICY,SETTING=VALUE */
static bool is_policy(const char *text)
{
    const char *comma = strchr(text, ','), *equals = comma ? strchr(comma, '=') : NULL;
    return comma && comma > text && equals && equals > comma + 1;
}

static bool is_range(const char *text)
{
    char *end;
    long first = strtol(text, &end, 10);
    return end > text && *end == '-' && is_whole(end + 1) && first <= strtol(end + 1, NULL, 10);
}

static bool is_level(const char *text)
{
    static const char *const words[] = {"OFF", "MIN", "MAX", "TIMESTAMPS", "TENSORS"};
    for (size_t i = 0; i < PROA_COUNT(words); i++)
        if (strcmp(text, words[i]) == 0) return true;
    return false;
}

/* ---- the options ---- */

/* The place of the value, NAME, its form as a function and for people, why it does nothing here. */
#define PROA_IGNORED_LIST(X)                                                                                   \
    X(0, "cache-directory", is_any, "PATH", "the cache is built in")                                           \
    X(1, "pinned-memory-pool-byte-size", is_whole, "BYTES", "no pool is needed")                               \
    X(2, "cuda-memory-pool-byte-size", is_gpu_bytes, "GPU:BYTES", "they have 64 MiB each")                     \
    X(3, "cuda-virtual-address-size", is_gpu_bytes, "GPU:BYTES", "no pool is needed")                          \
    X(4, "min-supported-compute-capability", is_number, "X", "the engine checks the GPU itself")               \
    X(5, "enable-peer-access", is_bool, "true|false", "no copies between GPUs")                                \
    X(6, "buffer-manager-thread-count", is_whole, "N", "tensors are passed by reference")                      \
    X(7, "host-policy", is_policy, "POLICY,SETTING=VALUE", "set the process' affinity instead")                \
    X(8, "model-load-gpu-limit", is_gpu_share, "GPU:SHARE", "the engine plans its memory before it allocates") \
    X(9, "allow-cpu-metrics", is_bool, "true|false", "CPU metrics are always there")                           \
    X(10, "grpc-infer-thread-count", is_whole, "N", "see --http-thread-count")                                 \
    X(11, "grpc-infer-allocation-pool-size", is_whole, "N", "the pool of requests has no such limit")          \
    X(12, "grpc-max-response-pool-size", is_whole, "N", "the pool of requests has no such limit")              \
    X(13, "grpc-keepalive-permit-without-calls", is_any, "true|false", "pings are always answered")            \
    X(14, "grpc-http2-max-pings-without-data", is_whole, "N", "the limit is fixed")                            \
    X(15, "grpc-http2-min-recv-ping-interval-without-data", is_whole, "MS", "the limit is fixed")              \
    X(16, "grpc-http2-max-ping-strikes", is_whole, "N", "the limit is fixed")                                  \
    X(17, "allow-sagemaker", is_bool, "true|false", "not offered")                                             \
    X(18, "allow-vertex-ai", is_bool, "true|false", "not offered")                                             \
    X(19, "strict-model-config", is_bool, "true|false", "see --disable-auto-complete-config")                  \
    X(20, "trace-file", is_any, "FILE", "see --trace-config")                                                  \
    X(21, "trace-level", is_level, "LEVEL", "see --trace-config")                                              \
    X(22, "trace-rate", is_whole, "N", "see --trace-config")                                                   \
    X(23, "trace-count", is_whole, "N", "see --trace-config")                                                  \
    X(24, "trace-log-frequency", is_whole, "N", "see --trace-config")                                          \
    X(25, "sagemaker-port", is_whole, "N", "not offered")                                                      \
    X(26, "sagemaker-safe-port-range", is_range, "N-N", "not offered")                                         \
    X(27, "sagemaker-thread-count", is_whole, "N", "not offered")                                              \
    X(28, "vertex-ai-port", is_whole, "N", "not offered")                                                      \
    X(29, "vertex-ai-thread-count", is_whole, "N", "not offered")                                              \
    X(30, "vertex-ai-default-model", is_any, "NAME", "not offered")

static const proa_arg rows[] = {
#define PROA_IGNORED_ROW(i, name, is, form, why)                                                             \
    {name, PROA_ARG_OPTIONAL_TEXT, offsetof(proa_serve_options, ignored[i]), 0, 0, form, NULL, why},
    PROA_IGNORED_LIST(PROA_IGNORED_ROW)
#undef PROA_IGNORED_ROW
};
const proa_arg_table proa_serve_ignored_args = PROA_ARG_TABLE(
    "accepted for compatibility with tritonserver's command line, without effect", rows);

proa_status proa_serve_check_ignored(const proa_serve_options *options, proa_err *err)
{
    static bool (*const forms[])(const char *) = {
#define PROA_IGNORED_FORM(i, name, is, form, why) is,
        PROA_IGNORED_LIST(PROA_IGNORED_FORM)
#undef PROA_IGNORED_FORM
    };
    for (size_t i = 0; i < PROA_COUNT(rows); i++)
        if (options->ignored[i] && !forms[i](options->ignored[i]))
            return PROA_FAIL(err, INVALID, "--%s '%s' is not of the form %s", rows[i].name,
                             options->ignored[i], rows[i].value);
    return PROA_OK;
}

void proa_serve_warn_ignored(const proa_serve_options *options)
{
    for (size_t i = 0; i < PROA_COUNT(rows); i++)
        if (options->ignored[i]) PROA_LOG(WARNING, "--%s has no effect: %s", rows[i].name, rows[i].help);
}
