/* SPDX-License-Identifier: Apache-2.0
 * file.c - the model's file, and where its external data is: an .onnx file names further files, which must not lead
 * out of its folder.
 *
 * The file is a protobuf message (onnx.proto: ModelProto). Only the fields that lead to a TensorProto's external_data
 * are followed; all others are skipped by their length, so that the weights are not read. */
#include "backends/onnx/onnx.h"
#include "base/file.h"
#include "base/str.h"
#include <string.h>

typedef enum kind { MODEL, TRAINING, FUNCTION, GRAPH, NODE, ATTRIBUTE, SPARSE, TENSOR, ENTRY } kind;

/* Field numbers of onnx.proto that lead on. */
static const struct {
    kind from;
    uint64_t field;
    kind to;
} steps[] = {
    {MODEL, 7, GRAPH},       {MODEL, 20, TRAINING},  {MODEL, 25, FUNCTION},   {TRAINING, 1, GRAPH},
    {TRAINING, 2, GRAPH},    {FUNCTION, 7, NODE},    {GRAPH, 1, NODE},        {GRAPH, 5, TENSOR},
    {GRAPH, 15, SPARSE},     {NODE, 5, ATTRIBUTE},   {ATTRIBUTE, 5, TENSOR},  {ATTRIBUTE, 6, GRAPH},
    {ATTRIBUTE, 10, TENSOR}, {ATTRIBUTE, 11, GRAPH}, {ATTRIBUTE, 22, SPARSE}, {ATTRIBUTE, 23, SPARSE},
    {SPARSE, 1, TENSOR},     {SPARSE, 2, TENSOR},    {TENSOR, 13, ENTRY},
};

/* Bytes that are left of a message. */
typedef struct cursor {
    const unsigned char *at, *end;
} cursor;

static bool read_varint(cursor *c, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && c->at < c->end; shift += 7) {
        unsigned char byte = *c->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) return true;
    }
    return false;
}

/* The next field: its number, and for a length-delimited one its bytes (else inner->at is NULL). */
static bool read_field(cursor *c, uint64_t *field, cursor *inner)
{
    enum { VARINT, FIXED64, BYTES, FIXED32 = 5 };
    uint64_t tag, n;
    if (!read_varint(c, &tag)) return false;
    *field = tag >> 3;
    *inner = (cursor){NULL, NULL};
    switch (tag & 7) {
    case VARINT: return read_varint(c, &n);
    case FIXED64: n = 8; break;
    case FIXED32: n = 4; break;
    case BYTES:
        if (!read_varint(c, &n) || n > (uint64_t)(c->end - c->at)) return false;
        *inner = (cursor){c->at, c->at + n};
        break;
    default: return false;
    }
    if (n > (uint64_t)(c->end - c->at)) return false;
    c->at += n;
    return true;
}

static proa_status fail_damaged(proa_err *err)
{
    return PROA_FAIL(err, CORRUPT, "is no ONNX model, or is damaged: a field is cut");
}

static proa_status check_location(const cursor *value, proa_err *err)
{
    char path[PROA_ONNX_LOCATION_MAX];
    size_t len = (size_t)(value->end - value->at);
    if (len >= sizeof path || memchr(value->at, 0, len))
        return PROA_FAIL(err, INVALID, "names external data with a path that no file can have");
    memcpy(path, value->at, len);
    path[len] = 0;
    if (path[0] == '/' || proa_path_climbs(path))
        return PROA_FAIL(err, INVALID, "names external data '%s' outside of its folder", path);
    return PROA_OK;
}

/* A StringStringEntryProto: key 1, value 2. */
static proa_status check_entry(cursor c, proa_err *err)
{
    cursor key = {NULL, NULL}, value = {NULL, NULL}, inner;
    uint64_t field;
    while (c.at < c.end) {
        if (!read_field(&c, &field, &inner)) return fail_damaged(err);
        if (field == 1) key = inner;
        if (field == 2) value = inner;
    }
    bool location = key.at && key.end - key.at == 8 && memcmp(key.at, "location", 8) == 0;
    return location && value.at ? check_location(&value, err) : PROA_OK;
}

static bool find_step(kind from, uint64_t field, kind *to)
{
    for (size_t i = 0; i < PROA_COUNT(steps); i++)
        if (steps[i].from == from && steps[i].field == field) {
            *to = steps[i].to;
            return true;
        }
    return false;
}

static proa_status check_message(kind what, cursor c, int depth, proa_err *err)
{
    cursor inner;
    uint64_t field;
    kind to;
    if (what == ENTRY) return check_entry(c, err);
    if (depth == PROA_ONNX_DEPTH_MAX)
        return PROA_FAIL(err, LIMIT, "has graphs nested deeper than %d", PROA_ONNX_DEPTH_MAX);
    while (c.at < c.end) {
        if (!read_field(&c, &field, &inner)) return fail_damaged(err);
        if (inner.at && find_step(what, field, &to)) PROA_TRY(check_message(to, inner, depth + 1, err));
    }
    return PROA_OK;
}

proa_status proa_onnx_check_external(const unsigned char *bytes, size_t count, proa_err *err)
{
    if (count == 0) return PROA_FAIL(err, CORRUPT, "is empty");
    if (count > 8 && memcmp(bytes + 4, "ORTM", 4) == 0)
        return PROA_OK; /* ONNX Runtime's own format: a flatbuffer */
    return check_message(MODEL, (cursor){bytes, bytes + count}, 0, err);
}

static proa_status check_file(const char *path, proa_err *err)
{
    proa_mmap map;
    PROA_TRY(proa_mmap_open(&map, path, err));
    proa_status status = proa_onnx_check_external(map.ptr, (size_t)map.bytes, err);
    if (status != PROA_OK) proa_err_prefix(err, "'%s'", path);
    if (status == PROA_OK) status = proa_mmap_check(&map, path, err);
    proa_mmap_close(&map);
    return status;
}

proa_status proa_onnx_file(char *path, const Inference__ModelConfig *config, const char *version_path,
                           bool external, proa_err *err)
{
    const char *name = config->default_model_filename[0] ? config->default_model_filename : "model.onnx";
    char folder[PROA_PATH_MAX];
    PROA_TRY(proa_path_join(path, version_path, name, err));
    if (proa_dir_exists(path)) {
        snprintf(folder, sizeof folder, "%s", path);
        PROA_TRY(proa_path_join(path, folder, "model.onnx", err));
    }
    if (!proa_file_exists(path))
        return PROA_FAIL(err, NOT_FOUND, "unable to find '%s' for model '%s'", path, config->name);
    return external ? PROA_OK : check_file(path, err);
}
