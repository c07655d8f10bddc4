/* SPDX-License-Identifier: Apache-2.0
 * generate_read.c - a request of the generate extension: free JSON whose keys are inputs of the model or parameters. */
#include "api/http/generate.h"

#include "api/trace.h"
#include "base/limits.h"
#include "net/block.h"
#include <string.h>

typedef struct reader {
    proa_jread j;
    proa_infer *r;
    const Inference__ModelConfig *config;
    bool typed; /* the model takes a typed generation: inputs are lists, not tensors */
    proa_jlist *lists;
    int lists_count, lists_cap;
    size_t bytes, bytes_max; /* of all tensors */
} reader;

static const Inference__ModelInput *find_input(const Inference__ModelConfig *config, proa_str name)
{
    for (size_t i = 0; i < config->n_input; i++)
        if (proa_str_is(name, config->input[i]->name)) return config->input[i];
    return NULL;
}

/* Elements of the next value, an array or one scalar, without moving on. */
static proa_status count_elements(const proa_jread *from, int64_t *count, proa_err *err)
{
    proa_jread j = *from;
    bool more;
    *count = 1;
    if (proa_jread_peek(&j) != PROA_JREAD_ARRAY) return PROA_OK;
    *count = 0;
    for (proa_jread_begin(&j);; ++*count) {
        PROA_TRY(proa_jread_element(&j, &more, err));
        if (!more) return PROA_OK;
        PROA_TRY(proa_jread_skip(&j, err));
    }
}

/* Divides the elements over the shape: fixed dimensions first, the innermost open dimension takes the rest. */
static proa_status fit_shape(proa_tensor *t, const Inference__ModelConfig *config,
                             const Inference__ModelInput *in, int64_t elements, proa_err *err)
{
    if (config->max_batch_size > 0) t->shape[t->rank++] = -1;
    for (size_t d = 0; d < in->n_dims && t->rank < PROA_SERVE_RANK_MAX; d++)
        t->shape[t->rank++] = in->dims[d];
    bool fits = true;
    for (int32_t d = t->rank; fits && d-- > 0;) {
        if (t->shape[d] < 0) continue;
        fits = t->shape[d] > 0 && elements % t->shape[d] == 0;
        if (fits) elements /= t->shape[d];
    }
    for (int32_t d = t->rank; fits && d-- > 0;) {
        if (t->shape[d] >= 0) continue;
        t->shape[d] = elements;
        elements = 1;
    }
    if (fits && elements == 1) return PROA_OK;
    return PROA_FAIL(err, INVALID, "The schema can not convert input '%s' to tensor with proper shape", t->name);
}

static proa_status too_large(const reader *rd, const char *name, size_t bytes, proa_err *err)
{
    return PROA_FAIL(err, INVALID,
                     "request size of %zu bytes with input '%s' of size %zu bytes exceeds the maximum "
                     "allowed input size of "
                     "%zu. Use --http-max-input-size to increase the limit.",
                     rd->bytes, name, bytes, rd->bytes_max);
}

static bool is_read(const reader *rd, const char *name)
{
    for (int i = 0; i < rd->lists_count; i++)
        if (strcmp(rd->lists[i].tensor.name, name) == 0) return true;
    return proa_infer_input(rd->r, name) != NULL;
}

static proa_jlist *add_list(reader *rd, const char *name)
{
    if (rd->lists_count == PROA_TENSORS_PER_REQUEST_MAX) return NULL;
    if (rd->lists_count == rd->lists_cap) {
        rd->lists_cap = rd->lists_cap ? 2 * rd->lists_cap : 8;
        proa_jlist *more = PROA_ARENA_NEW(&rd->r->arena, proa_jlist, rd->lists_cap);
        if (rd->lists_count) memcpy(more, rd->lists, (size_t)rd->lists_count * sizeof *more);
        rd->lists = more;
    }
    proa_jlist *list = &rd->lists[rd->lists_count++];
    list->tensor.name = proa_arena_strdup(&rd->r->arena, proa_str_c(name));
    return list;
}

/* The texts of Triton's reader do not name the input. Those of its models keep them as they are. */
static proa_status read_list(reader *rd, proa_jlist *list, proa_err *err)
{
    proa_status status = proa_jread_list(&rd->j, list, err);
    if (status != PROA_OK) proa_err_prefix(err, "input '%s'", list->tensor.name);
    return status;
}

static proa_status read_input(reader *rd, const Inference__ModelInput *in, proa_err *err)
{
    int64_t elements;
    if (is_read(rd, in->name))
        return PROA_FAIL(err, INVALID, "input '%s' already exists in request", in->name);
    PROA_TRY(count_elements(&rd->j, &elements, err));
    proa_jlist *list = rd->typed ? add_list(rd, in->name) : NULL;
    proa_tensor *t = list        ? &list->tensor
                     : rd->typed ? NULL
                                 : proa_infer_add_input(rd->r, proa_str_c(in->name));
    if (!t) return PROA_FAIL(err, LIMIT, "more than %d inputs in a request", PROA_TENSORS_PER_REQUEST_MAX);
    t->type = (proa_type)in->data_type;
    /* of BYTES the least: a text's own bytes are known after the walk */
    int64_t each = t->type != PROA_TYPE_BYTES ? proa_type_bytes(t->type)
                   : rd->typed                ? (int64_t)sizeof(proa_str)
                                              : (int64_t)sizeof(uint32_t);
    size_t bytes = (size_t)(elements * each);
    if (rd->bytes + bytes > rd->bytes_max) return too_large(rd, in->name, bytes, err);
    PROA_TRY(fit_shape(t, rd->config, in, elements, err));
    PROA_TRY(list ? read_list(rd, list, err) : proa_jread_data(&rd->j, t, err));
    bytes = list ? list->bytes : t->bytes;
    if (rd->bytes + bytes > rd->bytes_max) return too_large(rd, in->name, bytes, err);
    rd->bytes += bytes;
    return PROA_OK;
}

static proa_status read_members(reader *rd, bool nested, proa_err *err);

static proa_status read_nested(reader *rd, proa_err *err)
{
    if (find_input(rd->config, proa_str_c("parameters")))
        return PROA_FAIL(err, INVALID, "Keyword 'parameters' for nested schema also given as input tensor name");
    PROA_TRY(proa_jread_expect(&rd->j, "Expected JSON object for keyword: 'parameters'", PROA_JREAD_OBJECT, err));
    proa_status status = read_members(rd, true, err);
    if (status != PROA_OK) proa_err_prefix(err, "Converting keyword: 'parameters'");
    return status;
}

static proa_status read_member(reader *rd, proa_str key, bool nested, proa_err *err)
{
    const Inference__ModelInput *in = find_input(rd->config, key);
    if (!nested && proa_str_is(key, "parameters")) return read_nested(rd, err);
    if (in) return read_input(rd, in, err);
    if (nested || !proa_str_is(key, "id")) return proa_infer_json_param(&rd->j, rd->r, key, NULL, err);
    proa_str id;
    PROA_TRY(proa_jread_name(&rd->j, "Unable to parse 'id'", &id, err));
    rd->r->id = id.ptr;
    return PROA_OK;
}

static proa_status read_members(reader *rd, bool nested, proa_err *err) // NOLINT(misc-no-recursion): one level
{
    for (proa_jread_begin(&rd->j);;) {
        proa_str key;
        bool more;
        PROA_TRY(proa_jread_member(&rd->j, &key, &more, err));
        if (!more) return PROA_OK;
        PROA_TRY(read_member(rd, key, nested, err));
    }
}

static bool has_output(const Inference__ModelConfig *config, const char *name)
{
    for (size_t i = 0; i < config->n_output; i++)
        if (strcmp(config->output[i]->name, name) == 0) return true;
    return false;
}

static proa_status read_body(proa_api *api, proa_http_exchange *x, proa_infer *r,
                             const Inference__ModelConfig *config, proa_err *err)
{
    reader rd = {.r = r, .config = config, .bytes_max = (size_t)api->options.http_max_input};
    proa_str text = {x->body_len ? x->body : "", x->body_len};
    rd.typed = proa_served_model_takes_generation(r->model) && !proa_trace_shows_tensors();
    /* the limit of one tensor is above that of all tensors together, which is checked here, with Triton's text */
    proa_jread_init(&rd.j, text, &r->arena, api->options.strict_triton, 16 * (size_t)api->options.http_max_input);
    if (proa_jread_peek(&rd.j) == PROA_JREAD_END)
        return proa_jread_fail(&rd.j, "The document is empty.", err);
    PROA_TRY(proa_jread_expect(&rd.j, "", PROA_JREAD_OBJECT, err));
    PROA_TRY(read_members(&rd, false, err));
    PROA_TRY(proa_jread_finish(&rd.j, err));
    PROA_TRY(proa_block_hold(&r->arena, rd.bytes, err)); /* net counts the body alone, which ends earlier */
    PROA_TRY(proa_v2_forward(api, x, r, err));
    if (!rd.typed) return PROA_OK;
    return proa_generate_type(r, rd.lists, rd.lists_count, has_output(config, "text_output"), err);
}

proa_status proa_generate_read(proa_api *api, proa_http_exchange *x, proa_infer *r, proa_err *err)
{
    proa_str encoding = proa_http_get(x, "content-encoding");
    PROA_TRY(proa_server_find_model(api->server, r, err));
    if (encoding.len && !proa_str_is(encoding, "identity"))
        return PROA_FAIL(err, INVALID, "Unsupported content-encoding, only 'identity' is supported.");
    return read_body(api, x, r, proa_served_model_config(r->model), err);
}
