/* SPDX-License-Identifier: Apache-2.0
 * params.c - request parameters by name, and headers that become parameters. */
#include "api/internal.h"

#include "base/alloc.h"
#include <string.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* ---- parameters of a request ---- */

static proa_status wrong_kind(const proa_infer_param *p, const char *expected, proa_err *err)
{
    return PROA_FAIL(err, INVALID, "invalid value type for '%.*s' parameter, expected %s.", (int)p->name.len,
                     p->name.ptr, expected);
}

static bool as_uint(uint64_t *out, const proa_infer_param *p)
{
    if (p->kind == PROA_PARAM_UINT) *out = p->u;
    else if (p->kind == PROA_PARAM_INT && p->i >= 0) *out = (uint64_t)p->i;
    else return false;
    return true;
}

static proa_status set_uint(uint64_t *out, const proa_infer_param *p, proa_err *err)
{
    if (!as_uint(out, p)) return wrong_kind(p, "int64_param or uint64_param", err);
    return PROA_OK;
}

static proa_status set_bool(bool *out, const proa_infer_param *p, proa_err *err)
{
    if (p->kind != PROA_PARAM_BOOL) return wrong_kind(p, "bool_param", err);
    *out = p->b;
    return PROA_OK;
}

static proa_status set_sequence(proa_infer *r, const proa_infer_param *p, proa_err *err)
{
    if (p->kind == PROA_PARAM_STRING) {
        r->sequence_id = 0;
        r->sequence_name = p->s.len ? proa_arena_strdup(&r->arena, p->s) : NULL;
        return PROA_OK;
    }
    r->sequence_name = NULL;
    if (!as_uint(&r->sequence_id, p)) return wrong_kind(p, "int64_param or string_param", err);
    return PROA_OK;
}

static proa_status set_custom(proa_infer *r, const proa_infer_param *p, proa_err *err)
{
    static const char reserved[] = "triton_";
    if (proa_str_starts(p->name, (proa_str){reserved, sizeof reserved - 1}))
        return PROA_FAIL(
            err, INVALID,
            "parameter keys starting with 'triton_' are reserved for Triton usage and should not be "
            "specified.");
    proa_infer_param *own = proa_infer_add_param(r, p->name);
    if (!own)
        return PROA_FAIL(err, LIMIT, "more than %d parameters in a request", PROA_PARAMS_PER_REQUEST_MAX);
    proa_str name = own->name;
    *own = *p;
    own->name = name;
    if (p->kind == PROA_PARAM_STRING) own->s.ptr = proa_arena_strdup(&r->arena, p->s);
    return PROA_OK;
}

proa_status proa_infer_set_param(proa_infer *r, const proa_infer_param *param, proa_err *err)
{
    if (proa_str_is(param->name, "sequence_id")) return set_sequence(r, param, err);
    if (proa_str_is(param->name, "sequence_start")) return set_bool(&r->sequence_start, param, err);
    if (proa_str_is(param->name, "sequence_end")) return set_bool(&r->sequence_end, param, err);
    if (proa_str_is(param->name, "priority")) return set_uint(&r->priority, param, err);
    if (proa_str_is(param->name, "timeout")) return set_uint(&r->timeout_us, param, err);
    return set_custom(r, param, err);
}

/* ---- headers that become parameters ---- */

struct proa_forward {
    pcre2_code *code;
};

proa_status proa_forward_new(proa_forward **out, const char *pattern, proa_err *err)
{
    int code;
    PCRE2_SIZE at;
    *out = NULL;
    pcre2_code *compiled = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, PCRE2_CASELESS, &code,
                                         &at, NULL);
    if (!compiled) {
        PCRE2_UCHAR why[128];
        pcre2_get_error_message(code, why, sizeof why);
        return PROA_FAIL(err, INVALID, "header forward pattern '%s': %s at %zu", pattern, (const char *)why,
                         (size_t)at);
    }
    pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE); /* optional: only faster */
    *out = proa_malloc(sizeof **out);
    (*out)->code = compiled;
    return PROA_OK;
}

void proa_forward_free(proa_forward *forward)
{
    if (!forward) return;
    pcre2_code_free(forward->code);
    free(forward);
}

static bool matches_forward(const proa_forward *forward, proa_str name)
{
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    bool found = data && pcre2_match(forward->code, (PCRE2_SPTR)name.ptr, name.len, 0, 0, data, NULL) >= 0;
    pcre2_match_data_free(data);
    return found;
}

static bool is_reserved(proa_str name)
{
    static const char *const names[] = {"sequence_id", "sequence_start", "sequence_end",      "priority",
                                        "timeout",     "headers",        "binary_data_output"};
    for (size_t i = 0; i < PROA_COUNT(names); i++)
        if (proa_str_is(name, names[i])) return true;
    return proa_str_starts(name, proa_str_c("triton_"));
}

proa_status proa_infer_forward(const proa_api *api, bool grpc, proa_infer *r, proa_str name, proa_str value,
                               proa_err *err)
{
    const proa_forward *forward = api->forward[grpc];
    if (PROA_LIKELY(!forward) || !matches_forward(forward, name)) return PROA_OK;
    if (is_reserved(name))
        return PROA_FAIL(err, INVALID, "Header '%.*s' is reserved for Triton usage and cannot be forwarded.",
                         (int)name.len, name.ptr);
    proa_infer_param p = {.name = name, .kind = PROA_PARAM_STRING, .s = value};
    return set_custom(r, &p, err);
}
