/* SPDX-License-Identifier: Apache-2.0
 * infer_contents.c - the typed contents of a tensor in protobuf (InferTensorContents) as the bytes of a tensor. */
#include "api/grpc/infer_contents.h"

#include "api/grpc/pb_wire.h"

/* The fields of InferTensorContents by number. */
enum { BOOLS = 1, INTS, INT64S, UINTS, UINT64S, FP32S, FP64S, BYTESES, FIELDS };

/* wire: type of an unpacked element; bytes: size of an element of fixed size in the packed form */
static const struct {
    proa_type type;
    int wire;
    size_t bytes;
} fields[FIELDS] = {
    [BOOLS] = {PROA_TYPE_BOOL, PB_VARINT, 0},     [INTS] = {PROA_TYPE_INT32, PB_VARINT, 0},
    [INT64S] = {PROA_TYPE_INT64, PB_VARINT, 0},   [UINTS] = {PROA_TYPE_UINT32, PB_VARINT, 0},
    [UINT64S] = {PROA_TYPE_UINT64, PB_VARINT, 0}, [FP32S] = {PROA_TYPE_FP32, PB_FIXED32, 4},
    [FP64S] = {PROA_TYPE_FP64, PB_FIXED64, 8},    [BYTESES] = {PROA_TYPE_BYTES, PB_BYTES, 0},
};

/* What a first walk finds out. */
typedef struct tally {
    size_t count[FIELDS];
    size_t string_bytes;
    int pieces;    /* fields that are not empty */
    proa_str last; /* the last of them, if packed */
} tally;

static bool is_known(const pb_field *f)
{
    return f->number >= BOOLS && f->number < FIELDS &&
           (f->type == PB_BYTES || f->type == fields[f->number].wire);
}

/* Elements of a packed field; SIZE_MAX: malformed. */
static size_t packed_count(const pb_field *f)
{
    size_t n = 0, bytes = fields[f->number].bytes;
    if (bytes) return f->bytes.len % bytes ? SIZE_MAX : f->bytes.len / bytes;
    pb_reader in = pb_read(f->bytes);
    for (; in.at < in.end; n++) pb_varint(&in);
    return in.bad ? SIZE_MAX : n;
}

static bool count_elements(tally *t, proa_str contents)
{
    pb_reader in = pb_read(contents);
    pb_field f;
    while (pb_next(&in, &f)) {
        if (!is_known(&f)) continue;
        bool packed = f.type == PB_BYTES && f.number != BYTESES;
        size_t n = packed ? packed_count(&f) : 1;
        if (n == SIZE_MAX) return false;
        t->count[f.number] += n;
        if (f.number == BYTESES) t->string_bytes += f.bytes.len;
        if (n) {
            t->pieces++;
            t->last = packed ? f.bytes : (proa_str){NULL, 0};
        }
    }
    return !in.bad;
}

/* The narrow integers travel in the fields of 32 bits. */
static bool is_narrower(proa_type type, int field)
{
    if (field == INTS) return type == PROA_TYPE_INT8 || type == PROA_TYPE_INT16;
    return field == UINTS && (type == PROA_TYPE_UINT8 || type == PROA_TYPE_UINT16);
}

/* The one field that is filled and fits t; 0: none is filled. */
static proa_status choose_contents(int *field, const tally *c, const proa_tensor *t, const char *model,
                                   proa_err *err)
{
    *field = 0;
    for (int i = BOOLS; i < FIELDS; i++) {
        if (!c->count[i]) continue;
        if (*field)
            return PROA_FAIL(
                err, INVALID,
                "unexpected explicit tensor data for input tensor '%s' for model '%s', binary data was "
                "already supplied.",
                t->name, model);
        if (t->type != fields[i].type && !is_narrower(t->type, i))
            return PROA_FAIL(
                err, INVALID,
                "unexpected explicit tensor data for input tensor '%s' for model '%s' of type '%s', "
                "expected datatype '%s'",
                t->name, model, proa_type_name(fields[i].type), proa_type_name(t->type));
        *field = i;
    }
    return PROA_OK;
}

static char *put_element(char *to, uint64_t value, size_t bytes, bool flag)
{
    if (flag) value = value != 0;
    memcpy(to, &value, bytes); /* the lower bytes of what is little-endian */
    return to + bytes;
}

static char *put_string(char *to, proa_str s)
{
    uint32_t len = (uint32_t)s.len; /* a message has at most 2 GiB */
    memcpy(to, &len, sizeof len);
    if (s.len) memcpy(to + sizeof len, s.ptr, s.len);
    return to + sizeof len + s.len;
}

static char *put_packed(char *to, const pb_field *f, size_t bytes)
{
    if (fields[f->number].bytes) {
        memcpy(to, f->bytes.ptr, f->bytes.len);
        return to + f->bytes.len;
    }
    pb_reader in = pb_read(f->bytes);
    while (in.at < in.end) to = put_element(to, pb_varint(&in), bytes, f->number == BOOLS);
    return to;
}

/* The second walk: counted before, so that all fits. */
static void put_all(char *to, proa_str contents, int field, size_t bytes)
{
    pb_reader in = pb_read(contents);
    pb_field f;
    while (pb_next(&in, &f)) {
        if (!is_known(&f) || f.number != (uint32_t)field) continue;
        if (field == BYTESES) to = put_string(to, f.bytes);
        else if (f.type != PB_BYTES) to = put_element(to, f.u, bytes, field == BOOLS);
        else if (f.bytes.len) to = put_packed(to, &f, bytes);
    }
}

proa_status proa_contents_read(proa_tensor *t, proa_str contents, proa_buffer *body, const char *model,
                               proa_err *err)
{
    tally c = {.pieces = 0};
    int field;
    if (!count_elements(&c, contents))
        return PROA_FAIL(err, INVALID, "malformed contents of input tensor '%s' for model '%s'", t->name, model);
    PROA_TRY(choose_contents(&field, &c, t, model, err));
    if (!field) return PROA_OK;
    if (fields[field].bytes && c.pieces == 1 && c.last.ptr) {
        t->buffer = proa_buffer_hold(body);
        t->data = c.last.ptr;
        t->bytes = c.last.len;
        return PROA_OK;
    }
    size_t bytes = (size_t)proa_type_bytes(t->type);
    t->bytes = field == BYTESES ? c.count[field] * sizeof(uint32_t) + c.string_bytes : c.count[field] * bytes;
    PROA_TRY(proa_buffer_try(&t->buffer, t->bytes, err));
    t->data = t->buffer->data;
    put_all(t->buffer->data, contents, field, bytes);
    return PROA_OK;
}
