/* SPDX-License-Identifier: Apache-2.0
 * infer_pb.c - reads a ModelInferRequest field by field into a request, without message structs. */
#include "api/grpc/infer_pb.h"

#include "api/frontend.h"
#include "api/grpc/infer_contents.h"
#include "api/grpc/pb_wire.h"
#include "base/limits.h"
#include <inttypes.h>
#include <string.h>

#define NO_KIND ((proa_infer_param_kind)-1) /* a parameter whose choice is not set */

/* ---- one level deep ---- */

static proa_status malformed_message(const char *what, proa_err *err)
{
    return PROA_FAIL(err, INVALID, "the message is not a ModelInferRequest: malformed %s", what);
}

static bool is_text(proa_str s)
{
    return !proa_str_has_nul(s) && proa_utf8_valid(s);
}

static bool list_add(proa_arena *arena, proa_pb_list *list, proa_str item, int32_t max)
{
    if (list->count == list->cap) {
        if (list->count >= max) return false;
        int32_t cap = list->cap ? 4 * list->cap : 4;
        proa_str *items = PROA_ARENA_NEW(arena, proa_str, cap);
        if (list->count) memcpy(items, list->items, (size_t)list->count * sizeof *items);
        list->items = items;
        list->cap = cap;
    }
    list->items[list->count++] = item;
    return true;
}

static proa_status scan_field(proa_infer_pb *m, proa_arena *arena, const pb_field *f, proa_err *err)
{
    bool ok = true;
    if (f->type != PB_BYTES) return PROA_OK; /* as all that is not known */
    switch (f->number) {
    case 1: m->model_name = f->bytes; break;
    case 2: m->version = f->bytes; break;
    case 3: m->id = f->bytes; break;
    case 4: ok = list_add(arena, &m->params, f->bytes, PROA_PARAMS_PER_REQUEST_MAX); break;
    case 5: ok = list_add(arena, &m->inputs, f->bytes, PROA_TENSORS_PER_REQUEST_MAX); break;
    case 6: ok = list_add(arena, &m->outputs, f->bytes, PROA_TENSORS_PER_REQUEST_MAX); break;
    case 7: ok = list_add(arena, &m->raw, f->bytes, PROA_TENSORS_PER_REQUEST_MAX); break;
    default: break;
    }
    if (ok) return PROA_OK;
    return PROA_FAIL(err, LIMIT, "the request has more than %d parameters or tensors",
                     PROA_TENSORS_PER_REQUEST_MAX);
}

proa_status proa_infer_pb_scan(proa_infer_pb *m, proa_infer *r, proa_err *err)
{
    pb_reader in = pb_read(m->bytes);
    pb_field f;
    while (pb_next(&in, &f)) PROA_TRY(scan_field(m, &r->arena, &f, err));
    if (in.bad) return malformed_message("fields", err);
    if (proa_str_has_nul(m->model_name)) return PROA_FAIL(err, INVALID, "the model's name has a NUL byte");
    if (!is_text(m->model_name) || !is_text(m->version) || !is_text(m->id))
        return malformed_message("strings", err);
    r->model_name = proa_arena_strdup(&r->arena, m->model_name);
    if (m->id.len) r->id = proa_arena_strdup(&r->arena, m->id);
    return PROA_OK;
}

/* ---- parameters ---- */

static bool read_choice(proa_infer_param *p, proa_str bytes)
{
    pb_reader in = pb_read(bytes);
    pb_field f;
    while (pb_next(&in, &f)) { /* of several the last one counts */
        if (pb_is(&f, 1, PB_VARINT)) p->kind = PROA_PARAM_BOOL, p->b = f.u != 0;
        else if (pb_is(&f, 2, PB_VARINT)) p->kind = PROA_PARAM_INT, p->i = (int64_t)f.u;
        else if (pb_is(&f, 3, PB_BYTES)) p->kind = PROA_PARAM_STRING, p->s = f.bytes;
        else if (pb_is(&f, 4, PB_FIXED64)) p->kind = PROA_PARAM_DOUBLE, memcpy(&p->d, &f.u, sizeof p->d);
        else if (pb_is(&f, 5, PB_VARINT)) p->kind = PROA_PARAM_UINT, p->u = f.u;
    }
    return !in.bad && (p->kind != PROA_PARAM_STRING || is_text(p->s));
}

/* An entry of a map of parameters; false: malformed. */
static bool read_param(proa_infer_param *p, proa_str entry)
{
    pb_reader in = pb_read(entry);
    pb_field f;
    bool ok = true;
    *p = (proa_infer_param){.name = {"", 0}, .kind = NO_KIND};
    while (ok && pb_next(&in, &f)) {
        if (pb_is(&f, 1, PB_BYTES)) p->name = f.bytes;
        else if (pb_is(&f, 2, PB_BYTES)) ok = read_choice(p, f.bytes);
    }
    return ok && !in.bad && is_text(p->name);
}

static proa_status wrong_kind(proa_str name, const char *expected, proa_err *err)
{
    return PROA_FAIL(err, INVALID, "invalid value type for '%.*s' parameter, expected %s.", (int)name.len,
                     name.ptr, expected);
}

static proa_status set_reserved(proa_infer_pb *m, const proa_infer_param *p, proa_err *err)
{
    if (!proa_str_is(p->name, "triton_enable_empty_final_response"))
        return PROA_FAIL(
            err, INVALID,
            "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following "
            "keys starting with 'triton_' are allowed: triton_enable_empty_final_response");
    if (p->kind != PROA_PARAM_BOOL) return wrong_kind(p->name, "bool_param", err);
    m->empty_final = p->b;
    return PROA_OK;
}

static bool is_flag(proa_str name)
{
    return proa_str_is(name, "sequence_id") || proa_str_is(name, "sequence_start") ||
           proa_str_is(name, "sequence_end") || proa_str_is(name, "priority") || proa_str_is(name, "timeout");
}

static proa_status set_param(proa_infer_pb *m, proa_infer *r, const proa_infer_param *p, proa_err *err)
{
    if (proa_str_starts(p->name, (proa_str){"triton_", 7})) return set_reserved(m, p, err);
    if (p->kind == NO_KIND && !is_flag(p->name))
        return wrong_kind(p->name, "int64_param, bool_param, or string_param", err);
    if (p->kind == PROA_PARAM_INT && p->i < 0 && proa_str_is(p->name, "priority"))
        return PROA_FAIL(err, INVALID, "invalid value for 'priority', expected value >= 0.");
    return proa_infer_set_param(r, p, err);
}

/* ---- shared memory and classes ---- */

/* What parameters of a tensor may say. */
typedef struct tensor_params {
    proa_infer_param region, offset, bytes, classes; /* name.ptr NULL: absent */
} tensor_params;

static bool note_param(tensor_params *t, proa_str entry)
{
    proa_infer_param p;
    if (!read_param(&p, entry)) return false;
    if (proa_str_is(p.name, "shared_memory_region")) t->region = p;
    else if (proa_str_is(p.name, "shared_memory_offset")) t->offset = p;
    else if (proa_str_is(p.name, "shared_memory_byte_size")) t->bytes = p;
    else if (proa_str_is(p.name, "classification")) t->classes = p;
    return true; /* others mean nothing */
}

static proa_status region_number(uint64_t *out, const proa_infer_param *p, const tensor_params *t,
                                 const char *tensor, proa_err *err)
{
    int len = (int)p->name.len;
    if (!p->name.ptr) return PROA_OK;
    if (!t->region.name.ptr)
        return PROA_FAIL(
            err, INVALID, "'%.*s' can not be specified without 'shared_memory_region' parameter for tensor '%s'",
            len, p->name.ptr, tensor);
    if (p->kind != PROA_PARAM_INT)
        return PROA_FAIL(err, INVALID,
                         "invalid value type for '%.*s' parameter for tensor '%s', expected int64_param.",
                         len, p->name.ptr, tensor);
    if (p->i < 0)
        return PROA_FAIL(err, INVALID, "invalid value for '%.*s' parameter for tensor '%s', expected value >= 0.",
                         len, p->name.ptr, tensor);
    *out = (uint64_t)p->i;
    return PROA_OK;
}

/* The part of shared memory that a tensor is in. */
typedef struct shared_part {
    proa_buffer *region; /* a new reference; NULL: the tensor is not in shared memory */
    uint64_t bytes;
} shared_part;

static proa_status find_region(shared_part *out, const proa_infer_pb *m, proa_arena *arena,
                               const tensor_params *t, const char *tensor, proa_err *err)
{
    uint64_t offset = 0;
    *out = (shared_part){.region = NULL};
    if (t->region.name.ptr && t->region.kind != PROA_PARAM_STRING)
        return PROA_FAIL(err, INVALID,
                         "invalid value type for 'shared_memory_region' parameter for tensor '%s', expected "
                         "string_param.",
                         tensor);
    PROA_TRY(region_number(&offset, &t->offset, t, tensor, err));
    PROA_TRY(region_number(&out->bytes, &t->bytes, t, tensor, err));
    if (!t->region.name.ptr) return PROA_OK;
    if (!t->bytes.name.ptr)
        return PROA_FAIL(
            err, INVALID,
            "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for "
            "tensor '%s'",
            tensor);
    return m->region(m->region_arg, proa_arena_strdup(arena, t->region.s), offset, out->bytes, &out->region, err);
}

/* ---- inputs ---- */

typedef struct input_parts {
    proa_str name, datatype, contents;
    bool has_contents;
    tensor_params params;
} input_parts;

static bool add_dimension(proa_tensor *t, uint64_t value)
{
    if (t->rank == PROA_SERVE_RANK_MAX) return false;
    t->shape[t->rank++] = (int64_t)value;
    return true;
}

static bool add_dimensions(proa_tensor *t, proa_str packed)
{
    pb_reader in = pb_read(packed);
    bool ok = true;
    while (ok && in.at < in.end) ok = add_dimension(t, pb_varint(&in));
    return ok && !in.bad;
}

/* Type and shape go into t at once. */
static bool read_input(input_parts *parts, proa_tensor *t, proa_str bytes)
{
    pb_reader in = pb_read(bytes);
    pb_field f;
    bool ok = true;
    while (ok && pb_next(&in, &f)) {
        if (pb_is(&f, 1, PB_BYTES)) parts->name = f.bytes;
        else if (pb_is(&f, 2, PB_BYTES)) parts->datatype = f.bytes;
        else if (pb_is(&f, 3, PB_BYTES)) ok = add_dimensions(t, f.bytes);
        else if (pb_is(&f, 3, PB_VARINT)) ok = add_dimension(t, f.u);
        else if (pb_is(&f, 4, PB_BYTES)) ok = note_param(&parts->params, f.bytes);
        else if (pb_is(&f, 5, PB_BYTES)) {
            ok = !parts->has_contents; /* two parts would have to be merged; no client writes that */
            parts->has_contents = true;
            parts->contents = f.bytes;
        }
    }
    return ok && !in.bad && is_text(parts->name);
}

static void put_slice(const proa_infer_pb *m, proa_tensor *t, proa_str bytes)
{
    if (!bytes.len) return;
    t->buffer = proa_buffer_hold(m->body);
    t->data = bytes.ptr;
    t->bytes = bytes.len;
}

static proa_status put_region(const proa_infer_pb *m, proa_infer *r, const input_parts *parts, proa_tensor *t,
                              proa_err *err)
{
    shared_part part;
    if (parts->has_contents)
        return PROA_FAIL(
            err, INVALID,
            "unexpected 'content' provided when using shared memory for input tensor '%s' for model '%s'",
            t->name, r->model_name);
    PROA_TRY(find_region(&part, m, &r->arena, &parts->params, t->name, err));
    if (part.bytes == 0) {
        proa_buffer_drop(part.region);
        return PROA_OK;
    }
    t->buffer = part.region;
    t->data = part.region->data;
    t->bytes = (size_t)part.bytes;
    return PROA_OK;
}

/* Data from where it is: shared memory, the typed fields, or the next of the raw ones. */
static proa_status put_data(const proa_infer_pb *m, proa_infer *r, const input_parts *parts, int32_t *raw,
                            proa_tensor *t, proa_err *err)
{
    const tensor_params *p = &parts->params;
    if (p->region.name.ptr || p->offset.name.ptr || p->bytes.name.ptr) return put_region(m, r, parts, t, err);
    if (parts->has_contents && m->raw.count)
        return PROA_FAIL(
            err, INVALID,
            "contents field must not be specified when using raw_input_contents for '%s' for model '%s'",
            t->name, r->model_name);
    if (parts->has_contents) return proa_contents_read(t, parts->contents, m->body, r->model_name, err);
    if (*raw == m->raw.count)
        return PROA_FAIL(err, INVALID, "unable to find data for input tensor '%s' for model '%s' in request.",
                         t->name, r->model_name);
    put_slice(m, t, m->raw.items[(*raw)++]);
    return PROA_OK;
}

static proa_status fill_input(const proa_infer_pb *m, proa_infer *r, proa_str bytes, int32_t *raw, proa_err *err)
{
    proa_tensor shape = {.rank = 0};
    input_parts parts = {.name = {"", 0}};
    if (!read_input(&parts, &shape, bytes)) return malformed_message("input (at most 16 dimensions)", err);
    proa_tensor *t = proa_infer_add_input(r, parts.name);
    PROA_ASSERT(t); /* scan has counted them */
    t->type = proa_type_find(parts.datatype);
    t->rank = shape.rank;
    memcpy(t->shape, shape.shape, sizeof t->shape);
    return put_data(m, r, &parts, raw, t, err);
}

/* ---- outputs ---- */

static bool read_output(proa_str *name, tensor_params *params, proa_str bytes)
{
    pb_reader in = pb_read(bytes);
    pb_field f;
    bool ok = true;
    while (ok && pb_next(&in, &f)) {
        if (pb_is(&f, 1, PB_BYTES)) *name = f.bytes;
        else if (pb_is(&f, 2, PB_BYTES)) ok = note_param(params, f.bytes);
    }
    return ok && !in.bad && is_text(*name);
}

static proa_status read_classes(int64_t *classes, const proa_infer_param *p, proa_err *err)
{
    if (!p->name.ptr) return PROA_OK;
    if (p->kind != PROA_PARAM_INT)
        return PROA_FAIL(err, INVALID, "invalid value type for 'classification' parameter, expected int64_param");
    if (p->i <= 0)
        return PROA_FAIL(err, INVALID, "invalid value for 'classification' parameter, expected >= 0");
    *classes = p->i;
    return PROA_OK;
}

static proa_status fill_output(proa_infer_pb *m, proa_infer *r, proa_str bytes, proa_err *err)
{
    proa_str name = {"", 0};
    tensor_params params = {.region = {.name = {NULL, 0}}};
    proa_pb_want want = {.classes = 0};
    shared_part part;
    if (!read_output(&name, &params, bytes)) return malformed_message("output", err);
    if (!proa_infer_add_output(r, name)) return malformed_message("output", err);
    want.output = r->outputs[r->outputs_count - 1];
    PROA_TRY(read_classes(&want.classes, &params.classes, err));
    if (params.region.name.ptr && want.classes)
        return PROA_FAIL(err, INVALID, "output can't set both 'shared_memory_region' and 'classification'");
    PROA_TRY(find_region(&part, m, &r->arena, &params, want.output, err));
    want.region = part.region, want.region_bytes = part.bytes;
    if (want.region && want.region->memory) r->device_replies = true; /* proa_reply_pb_apply takes them */
    if (!want.region && !want.classes) return PROA_OK;
    if (!m->wants) m->wants = PROA_ARENA_NEW(&r->arena, proa_pb_want, m->outputs.count);
    m->wants[m->wants_count++] = want;
    return PROA_OK;
}

proa_status proa_infer_pb_fill(proa_infer_pb *m, proa_infer *r, proa_err *err)
{
    int32_t raw = 0;
    for (int32_t i = 0; i < m->params.count; i++) {
        proa_infer_param p;
        if (!read_param(&p, m->params.items[i])) return malformed_message("parameter", err);
        PROA_TRY(set_param(m, r, &p, err));
    }
    for (int32_t i = 0; i < m->inputs.count; i++) PROA_TRY(fill_input(m, r, m->inputs.items[i], &raw, err));
    for (int32_t i = 0; i < m->outputs.count; i++) PROA_TRY(fill_output(m, r, m->outputs.items[i], err));
    return PROA_OK;
}

void proa_infer_pb_release(proa_infer_pb *m)
{
    for (int i = 0; i < m->wants_count; i++) proa_buffer_drop(m->wants[i].region);
    m->wants_count = 0;
}
