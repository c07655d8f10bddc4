/* SPDX-License-Identifier: Apache-2.0
 * common.cpp - failures, and the parameters of a model. */
#include "common.h"

#include <algorithm>
#include <cctype>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace proa_torch
{

const proa_backend_host *host;

void fail(proa_status status, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    throw Failure(status, text);
}

/* ---- texts of torch ---- */

static std::string trim(const std::string &text)
{
    auto space = [](unsigned char c) { return std::isspace(c) != 0; };
    auto begin = std::find_if_not(text.begin(), text.end(), space);
    auto end = std::find_if_not(text.rbegin(), std::make_reverse_iterator(begin), space).base();
    return {begin, end};
}

/* What follows the traceback: `RuntimeError: TEXT` of an operation, `builtins.NAME: TEXT` of a raise. */
static std::string after_traceback(const std::string &text)
{
    size_t operation = text.rfind("\nRuntimeError: "), raised = text.rfind("\nbuiltins.");
    if (operation != std::string::npos) return text.substr(operation);
    return raised != std::string::npos ? text.substr(raised + strlen("\nbuiltins.")) : text;
}

std::string reason_of(const std::string &what)
{
    std::string text = what.substr(0, what.find("\nException raised from"));
    if (text.find("TorchScript interpreter") != std::string::npos) text = after_traceback(text);
    std::string line;
    for (char c : trim(text)) {
        bool space = std::isspace(static_cast<unsigned char>(c)) != 0;
        if (!space || (!line.empty() && line.back() != ' ')) line += space ? ' ' : c;
    }
    return line;
}

/* ---- parameters ---- */

static std::optional<bool> read_bool(const proa_backend_model *model, const char *key)
{
    const char *given = host->model_parameter(model, key);
    if (!given) return std::nullopt;
    std::string text = given;
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    if (text == "true" || text == "1") return true;
    if (text == "false" || text == "0") return false;
    fail(PROA_INVALID, "parameter '%s' of model '%s' must be 'true' or 'false', got '%s'", key,
         host->model_name(model), given);
}

static int read_threads(const proa_backend_model *model, const char *key)
{
    const long most = 4096;
    const char *given = host->model_parameter(model, key);
    if (!given) return 0;
    char *end;
    long n = std::strtol(given, &end, 10);
    if (*end || n < 1 || n > most)
        fail(PROA_INVALID, "parameter '%s' of model '%s' must be a number from 1 to %ld, got '%s'", key,
             host->model_name(model), most, given);
    return static_cast<int>(n);
}

Settings read_settings(const proa_backend_model *model)
{
    Settings s;
    s.optimized = !read_bool(model, "DISABLE_OPTIMIZED_EXECUTION").value_or(false);
    s.inference_mode = read_bool(model, "INFERENCE_MODE").value_or(true);
    s.cudnn = !read_bool(model, "DISABLE_CUDNN").value_or(false);
    s.cache_cleaning = read_bool(model, "ENABLE_CACHE_CLEANING").value_or(false);
    s.weight_sharing = read_bool(model, "ENABLE_WEIGHT_SHARING").value_or(false);
    s.tensor_fuser = read_bool(model, "ENABLE_TENSOR_FUSER");
    s.jit_profiling = read_bool(model, "ENABLE_JIT_PROFILING");
    s.jit_executor = read_bool(model, "ENABLE_JIT_EXECUTOR");
    s.intra_op_threads = read_threads(model, "INTRA_OP_THREAD_COUNT");
    s.inter_op_threads = read_threads(model, "INTER_OP_THREAD_COUNT");
    return s;
}

} // namespace proa_torch
