/* SPDX-License-Identifier: Apache-2.0
 * test_settings.c - trace settings: what models inherit, clearing, every refusal; logging settings and what they
 * change. */
#include "api/internal.h"
#include "base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <cmocka.h>

/* A server in which one model is ready. */
proa_status proa_server_model_ready(proa_server *server, const char *name, int64_t version, proa_err *err)
{
    (void)server;
    (void)version;
    if (strcmp(name, "m") == 0) return PROA_OK;
    return PROA_FAIL(err, NOT_FOUND, "Request for unknown model: '%s' is not found", name);
}

static proa_api api;
static proa_arena arena;
static proa_err err;

typedef Inference__TraceSettingRequest__SettingsEntry trace_entry;
typedef Inference__TraceSettingRequest__SettingValue trace_value;

/* values: separated by commas; NULL clears. */
static proa_status set(const char *model, const char *key, const char *values)
{
    char text[64], *list[8], *save = NULL;
    trace_value value = INFERENCE__TRACE_SETTING_REQUEST__SETTING_VALUE__INIT;
    trace_entry entry = INFERENCE__TRACE_SETTING_REQUEST__SETTINGS_ENTRY__INIT, *entries[] = {&entry};
    Inference__TraceSettingRequest in = INFERENCE__TRACE_SETTING_REQUEST__INIT;
    snprintf(text, sizeof text, "%s", values ? values : "");
    for (char *v = values ? strtok_r(text, ",", &save) : NULL; v; v = strtok_r(NULL, ",", &save))
        list[value.n_value++] = v;
    value.value = list;
    entry.key = (char *)(uintptr_t)key;
    entry.value = &value;
    in.settings = entries;
    in.n_settings = 1;
    proa_err_clear(&err);
    return proa_trace_set(&api, model, &in, &err);
}

static const char *get(const char *model, const char *key)
{
    Inference__TraceSettingResponse *out;
    assert_int_equal(proa_trace_get(&api, model, &out, &arena, &err), PROA_OK);
    for (size_t i = 0; i < out->n_settings; i++)
        if (strcmp(out->settings[i]->key, key) == 0)
            return out->settings[i]->value->n_value == 1
                       ? out->settings[i]->value->value[0]
                       : proa_arena_printf(&arena, "%s,%s", out->settings[i]->value->value[0],
                                           out->settings[i]->value->value[1]);
    return NULL;
}

static void test_inheritance(void **state)
{
    assert_string_equal(get("", "trace_level"), "OFF");
    assert_string_equal(get("", "trace_rate"), "1000");
    assert_string_equal(get("", "trace_count"), "-1");
    assert_string_equal(get("", "log_frequency"), "0");
    assert_string_equal(get("", "trace_file"), "t.json");
    assert_string_equal(get("", "trace_mode"), "triton");
    assert_int_equal(set("m", "trace_rate", "5"), PROA_OK);
    assert_int_equal(set("", "trace_rate", "7"), PROA_OK);
    assert_int_equal(set("", "trace_level", "TIMESTAMPS,TENSORS"), PROA_OK);
    assert_string_equal(get("m", "trace_rate"), "5");
    assert_string_equal(get("m", "trace_level"), "TIMESTAMPS,TENSORS");
    assert_int_equal(set("m", "trace_rate", NULL), PROA_OK);
    assert_string_equal(get("m", "trace_rate"), "7");
    assert_int_equal(set("", "trace_rate", NULL), PROA_OK);
    assert_string_equal(get("m", "trace_rate"), "1000");
    assert_int_equal(set("", "trace_level", NULL), PROA_OK);
    (void)state;
}

static void refused(const char *key, const char *value, proa_status status, const char *text)
{
    assert_int_equal(set("", key, value), status);
    assert_string_equal(err.text, text);
}

static void test_refusals(void **state)
{
    refused("trace_file", "x", PROA_UNSUPPORTED,
            "trace file location can not be updated through network protocol");
    refused("trace_rate", "x", PROA_INVALID, "Unable to parse 'trace_rate', got: x");
    refused("trace_rate", "-1", PROA_INVALID,
            "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: -1");
    refused(
        "trace_rate", "99999999999999999999", PROA_INVALID,
        "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: 99999999999999999999");
    refused("trace_rate", "1,2", PROA_INVALID, "expect only 1 value for 'trace_rate'");
    refused("trace_count", "-2", PROA_INVALID, "Unable to parse 'trace_count'. Expecting value >= -1, got:-2");
    refused("trace_level", "OFF,TENSORS", PROA_INVALID, "Expect only one trace level 'OFF' is specified");
    refused("trace_level", "LOUD", PROA_INVALID, "Unable to parse 'trace_level', got: LOUD");
    assert_int_equal(set("none", "trace_rate", "1"), PROA_NOT_FOUND);
    assert_int_equal(set("", "trace_rate", "0"), PROA_OK); /* while it is off */
    refused("trace_level", "TIMESTAMPS", PROA_INVALID,
            "Attempting to set invalid trace setting :sample rate must be non-zero");
    assert_string_equal(get("", "trace_level"), "OFF");
    assert_int_equal(set("", "trace_rate", NULL), PROA_OK);
    assert_int_equal(set("", "what", "1"), PROA_OK); /* passed over */
    (void)state;
}

static void test_no_file(void **state)
{
    proa_settings *with_file = api.settings;
    assert_int_equal(proa_settings_new(&api.settings, &(proa_api_options){.threads = 0}, &err), PROA_OK);
    refused("trace_level", "TIMESTAMPS", PROA_INVALID,
            "Attempting to set invalid trace setting :trace file name is not given");
    proa_settings_free(api.settings);
    api.settings = with_file;
    (void)state;
}

typedef Inference__LogSettingsRequest__SettingsEntry log_entry;
typedef Inference__LogSettingsRequest__SettingValue log_value;
enum { LOG_BOOL = 1, LOG_UINT = 2, LOG_STRING = 3 };

static proa_status set_log(const char *key, int kind, uint32_t number, const char *text)
{
    log_value value = INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__INIT;
    log_entry entry = INFERENCE__LOG_SETTINGS_REQUEST__SETTINGS_ENTRY__INIT, *entries[] = {&entry};
    Inference__LogSettingsRequest in = INFERENCE__LOG_SETTINGS_REQUEST__INIT;
    value.parameter_choice_case = (Inference__LogSettingsRequest__SettingValue__ParameterChoiceCase)kind;
    if (kind == LOG_BOOL) value.bool_param = number != 0;
    else if (kind == LOG_UINT) value.uint32_param = number;
    else value.string_param = (char *)(uintptr_t)text;
    entry.key = (char *)(uintptr_t)key;
    entry.value = &value;
    in.settings = entries;
    in.n_settings = 1;
    proa_err_clear(&err);
    return proa_logging_set(&api, &in, &err);
}

static void test_logging(void **state)
{
    Inference__LogSettingsResponse *out;
    proa_log_settings before, now;
    proa_log_get(&before);
    assert_int_equal(set_log("log_info", LOG_BOOL, 0, NULL), PROA_OK);
    assert_false(proa_log_on(PROA_LOG_INFO));
    assert_int_equal(set_log("log_verbose_level", LOG_UINT, 2, NULL), PROA_OK);
    assert_int_equal(set_log("log_format", LOG_STRING, 0, "ISO8601"), PROA_OK);
    proa_log_get(&now);
    assert_int_equal(now.verbose, 2);
    assert_int_equal(now.format, PROA_LOG_ISO8601);
    assert_int_equal(proa_logging_get(&api, &out, &arena, &err), PROA_OK);
    static const char *const keys[] = {"log_file",  "log_info",          "log_warning",
                                       "log_error", "log_verbose_level", "log_format"};
    assert_int_equal(out->n_settings, 6);
    for (size_t i = 0; i < 6; i++) assert_string_equal(out->settings[i]->key, keys[i]);
    assert_int_equal(out->settings[4]->value->uint32_param, 2);
    assert_string_equal(out->settings[5]->value->string_param, "ISO8601");
    assert_int_equal(set_log("log_format", LOG_STRING, 0, "nice"), PROA_UNAVAILABLE);
    assert_string_equal(err.text, "invalid argument for log_format, got: nice");
    assert_int_equal(set_log("log_file", LOG_STRING, 0, "x"), PROA_UNSUPPORTED);
    assert_string_equal(err.text, "log file location can not be updated through network protocol");
    assert_int_equal(set_log("log_error", LOG_STRING, 0, "x"), PROA_INVALID);
    assert_string_equal(err.text, "expect boolean for 'log_error'");
    assert_int_equal(set_log("log_verbose_level", LOG_UINT, UINT32_MAX, NULL), PROA_INVALID);
    assert_int_equal(proa_log_set(&before, &err), PROA_OK);
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inheritance),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_file),
        cmocka_unit_test(test_logging),
    };
    proa_arena_init(&arena);
    const proa_api_options options = {.trace = {.to = {.file = "t.json"}}};
    assert_int_equal(proa_settings_new(&api.settings, &options, &err), PROA_OK);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    proa_settings_free(api.settings);
    proa_arena_release(&arena);
    return failed;
}
