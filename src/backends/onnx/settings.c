/* SPDX-License-Identifier: Apache-2.0
 * settings.c - numbers and truth values of --backend-config and of `parameters` in config.pbtxt. */
#include "backends/onnx/onnx.h"
#include "serve/config/config.h"
#include <errno.h>
#include <string.h>

#define NAME "onnxruntime"

static bool read_number(int64_t *value, const char *text, int64_t max)
{
    char *end;
    errno = 0;
    long long n = strtoll(text, &end, 10);
    if (errno || end == text || *end || n < 0 || n > max) return false;
    *value = n;
    return true;
}

static bool read_truth(bool *value, const char *text)
{
    bool yes = !strcmp(text, "1") || !strcmp(text, "true") || !strcmp(text, "True");
    bool no = !strcmp(text, "0") || !strcmp(text, "false") || !strcmp(text, "False");
    *value = yes;
    return yes || no;
}

proa_status proa_onnx_setting_number(int64_t *value, const struct proa_server *server, const char *key,
                                     int64_t max, proa_err *err)
{
    const char *text = proa_backend_setting(server, NAME, key);
    if (!text || read_number(value, text, max)) return PROA_OK;
    return PROA_FAIL(err, INVALID, "--backend-config=" NAME ",%s must be a number from 0 to %lld, got '%s'",
                     key, (long long)max, text);
}

proa_status proa_onnx_setting_true(bool *value, const struct proa_server *server, const char *key, proa_err *err)
{
    const char *text = proa_backend_setting(server, NAME, key);
    if (!text || read_truth(value, text)) return PROA_OK;
    return PROA_FAIL(err, INVALID, "--backend-config=" NAME ",%s must be 0 or 1, got '%s'", key, text);
}

proa_status proa_onnx_parameter_number(int64_t *value, const Inference__ModelConfig *c, const char *key,
                                       int64_t max, proa_err *err)
{
    const char *text = proa_config_parameter(c, key);
    if (!text || read_number(value, text, max)) return PROA_OK;
    return PROA_FAIL(err, INVALID, "parameter '%s' of model '%s' must be a number from 0 to %lld, got '%s'",
                     key, c->name, (long long)max, text);
}

proa_status proa_onnx_parameter_true(bool *given, bool *value, const Inference__ModelConfig *c,
                                     const char *key, proa_err *err)
{
    const char *text = proa_config_parameter(c, key);
    *given = text != NULL;
    if (!text || read_truth(value, text)) return PROA_OK;
    return PROA_FAIL(err, INVALID, "parameter '%s' of model '%s' must be 0 or 1, got '%s'", key, c->name, text);
}
