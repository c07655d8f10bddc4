/* SPDX-License-Identifier: Apache-2.0
 * v2_settings.c - the routes of the trace and logging settings. */
#include "api/http/v2.h"

#include <string.h>

enum { JSON_BYTES_MAX = 1 << 20 };

/* ---- trace ---- */

static void answer_trace(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    proa_err err = {.status = PROA_OK};
    Inference__TraceSettingResponse *reply;
    proa_buf out;
    if (proa_trace_get(api, path->model, &reply, x->arena, &err) != PROA_OK) {
        proa_http_fail(api, x, &err);
        return;
    }
    proa_buf_init(&out, JSON_BYTES_MAX);
    for (size_t i = 0; i < reply->n_settings; i++) {
        const Inference__TraceSettingResponse__SettingsEntry *e = reply->settings[i];
        bool list = strcmp(e->key, "trace_level") == 0;
        proa_buf_char(&out, i ? ',' : '{');
        proa_buf_json_str(&out, proa_str_c(e->key));
        proa_buf_printf(&out, list ? ":[" : ":");
        for (size_t v = 0; v < e->value->n_value; v++) {
            if (v) proa_buf_char(&out, ',');
            proa_buf_json_str(&out, proa_str_c(e->value->value[v]));
        }
        if (list) proa_buf_char(&out, ']');
    }
    proa_buf_char(&out, '}');
    proa_http_json(x, 200, &out);
}

/* null: no values, which clears. A level is an array, all else one string. */
static proa_status trace_values(proa_jread *j, const char *key,
                                Inference__TraceSettingRequest__SettingValue *out, proa_err *err)
{
    enum { VALUES_MAX = 8 };
    bool more;
    proa_str text;
    out->value = PROA_ARENA_NEW(j->arena, char *, VALUES_MAX);
    if (proa_jread_peek(j) == PROA_JREAD_NULL) return proa_jread_skip(j, err);
    if (strcmp(key, "trace_level") != 0) {
        PROA_TRY(proa_jread_name(j, "", &text, err));
        out->value[out->n_value++] = (char *)(uintptr_t)text.ptr;
        return PROA_OK;
    }
    PROA_TRY(proa_jread_expect(j, "", PROA_JREAD_ARRAY, err));
    for (proa_jread_begin(j);;) {
        PROA_TRY(proa_jread_element(j, &more, err));
        if (!more) return PROA_OK;
        if (out->n_value == VALUES_MAX)
            return PROA_FAIL(err, INVALID, "more than %d trace levels", VALUES_MAX);
        PROA_TRY(proa_jread_name(j, "", &text, err));
        out->value[out->n_value++] = (char *)(uintptr_t)text.ptr;
    }
}

enum { SETTINGS_MAX = 64 }; /* members of a body; there are six settings */

static proa_status read_trace(proa_jread *j, Inference__TraceSettingRequest *out, proa_err *err)
{
    bool more;
    proa_str key;
    out->settings = PROA_ARENA_NEW(j->arena, Inference__TraceSettingRequest__SettingsEntry *, SETTINGS_MAX);
    PROA_TRY(proa_jread_expect(j, "", PROA_JREAD_OBJECT, err));
    for (proa_jread_begin(j);;) {
        PROA_TRY(proa_jread_member(j, &key, &more, err));
        if (!more) return proa_jread_finish(j, err);
        if (!proa_str_starts(key, proa_str_c("trace_")) && !proa_str_is(key, "log_frequency")) {
            PROA_TRY(proa_jread_skip(j, err));
            continue;
        }
        if (out->n_settings == SETTINGS_MAX)
            return PROA_FAIL(err, INVALID, "more than %d settings", SETTINGS_MAX);
        Inference__TraceSettingRequest__SettingsEntry *e = PROA_ARENA_NEW(
            j->arena, Inference__TraceSettingRequest__SettingsEntry, 1);
        inference__trace_setting_request__settings_entry__init(e);
        e->key = proa_arena_strdup(j->arena, key);
        e->value = PROA_ARENA_NEW(j->arena, Inference__TraceSettingRequest__SettingValue, 1);
        inference__trace_setting_request__setting_value__init(e->value);
        PROA_TRY(trace_values(j, e->key, e->value, err));
        out->settings[out->n_settings++] = e;
    }
}

void proa_v2_trace_get(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    answer_trace(api, x, path);
}

void proa_v2_trace_set(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    proa_err err = {.status = PROA_OK};
    proa_jread j;
    Inference__TraceSettingRequest in = INFERENCE__TRACE_SETTING_REQUEST__INIT;
    proa_v2_body(api, x, &j);
    if (read_trace(&j, &in, &err) != PROA_OK || proa_trace_set(api, path->model, &in, &err) != PROA_OK)
        proa_http_fail(api, x, &err);
    else answer_trace(api, x, path);
}

/* ---- logging ---- */

static void log_value(proa_buf *out, const Inference__LogSettingsResponse__SettingValue *v)
{
    switch (v->parameter_choice_case) {
    case INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_BOOL_PARAM:
        proa_buf_printf(out, v->bool_param ? "true" : "false");
        break;
    case INFERENCE__LOG_SETTINGS_RESPONSE__SETTING_VALUE__PARAMETER_CHOICE_UINT32_PARAM:
        proa_uint_json(out, v->uint32_param);
        break;
    default: proa_buf_json_str(out, proa_str_c(v->string_param)); break;
    }
}

void proa_v2_logging_get(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    proa_err err = {.status = PROA_OK};
    Inference__LogSettingsResponse *reply;
    proa_buf out;
    PROA_UNUSED(path);
    if (proa_logging_get(api, &reply, x->arena, &err) != PROA_OK) {
        proa_http_fail(api, x, &err);
        return;
    }
    proa_buf_init(&out, JSON_BYTES_MAX);
    for (size_t i = 0; i < reply->n_settings; i++) {
        proa_buf_char(&out, i ? ',' : '{');
        proa_buf_json_str(&out, proa_str_c(reply->settings[i]->key));
        proa_buf_char(&out, ':');
        log_value(&out, reply->settings[i]->value);
    }
    proa_buf_char(&out, '}');
    proa_http_json(x, 200, &out);
}

static proa_status read_log_value(proa_jread *j, Inference__LogSettingsRequest__SettingValue *v, proa_err *err)
{
    bool b;
    uint64_t u;
    proa_str text;
    switch (proa_jread_peek(j)) {
    case PROA_JREAD_BOOL:
        PROA_TRY(proa_jread_bool(j, &b, err));
        v->parameter_choice_case = INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_BOOL_PARAM;
        v->bool_param = b;
        return PROA_OK;
    case PROA_JREAD_NUMBER:
        PROA_TRY(proa_jread_uint(j, "", &u, err));
        v->parameter_choice_case = INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_UINT32_PARAM;
        v->uint32_param = u < UINT32_MAX ? (uint32_t)u : UINT32_MAX; /* refused there */
        return PROA_OK;
    default:
        PROA_TRY(proa_jread_name(j, "", &text, err));
        v->parameter_choice_case = INFERENCE__LOG_SETTINGS_REQUEST__SETTING_VALUE__PARAMETER_CHOICE_STRING_PARAM;
        v->string_param = (char *)(uintptr_t)text.ptr;
        return PROA_OK;
    }
}

static proa_status read_logging(proa_jread *j, Inference__LogSettingsRequest *out, proa_err *err)
{
    bool more;
    proa_str key;
    out->settings = PROA_ARENA_NEW(j->arena, Inference__LogSettingsRequest__SettingsEntry *, SETTINGS_MAX);
    PROA_TRY(proa_jread_expect(j, "", PROA_JREAD_OBJECT, err));
    for (proa_jread_begin(j);;) {
        PROA_TRY(proa_jread_member(j, &key, &more, err));
        if (!more) return proa_jread_finish(j, err);
        if (proa_jread_peek(j) == PROA_JREAD_NULL || !proa_str_starts(key, proa_str_c("log_"))) {
            PROA_TRY(proa_jread_skip(j, err));
            continue;
        }
        if (out->n_settings == SETTINGS_MAX)
            return PROA_FAIL(err, INVALID, "more than %d settings", SETTINGS_MAX);
        Inference__LogSettingsRequest__SettingsEntry *e = PROA_ARENA_NEW(
            j->arena, Inference__LogSettingsRequest__SettingsEntry, 1);
        inference__log_settings_request__settings_entry__init(e);
        e->key = proa_arena_strdup(j->arena, key);
        e->value = PROA_ARENA_NEW(j->arena, Inference__LogSettingsRequest__SettingValue, 1);
        inference__log_settings_request__setting_value__init(e->value);
        PROA_TRY(read_log_value(j, e->value, err));
        out->settings[out->n_settings++] = e;
    }
}

void proa_v2_logging_set(proa_api *api, proa_http_exchange *x, const proa_v2_path *path)
{
    proa_err err = {.status = PROA_OK};
    proa_jread j;
    Inference__LogSettingsRequest in = INFERENCE__LOG_SETTINGS_REQUEST__INIT;
    proa_v2_body(api, x, &j);
    if (read_logging(&j, &in, &err) != PROA_OK || proa_logging_set(api, &in, &err) != PROA_OK)
        proa_http_fail(api, x, &err);
    else proa_v2_logging_get(api, x, path);
}
