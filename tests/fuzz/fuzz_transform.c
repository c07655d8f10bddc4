/* SPDX-License-Identifier: Apache-2.0
 * Any bytes up to a NUL as the steps of a transform, those behind it as its file of n-grams and as the text of a
 * request. What is read must run or say why not, and each output has the type, the shape and the bytes that were
 * promised. */
#include "fuzz.h"

#include "backends/transform/transform.h"
#include "base/alloc.h"
#include "base/file.h"
#include "proto/pbtxt.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char config_text[] =
    "name: \"m\" max_batch_size: 4 "
    "input [ { name: \"A\" data_type: TYPE_FP32 dims: -1 }, { name: \"B\" data_type: TYPE_INT64 dims: [ 3, 2 "
    "] },"
    "        { name: \"C\" data_type: TYPE_FP16 dims: 6 }, { name: \"T\" data_type: TYPE_STRING dims: 1 } ]";

static char folder[] = "/tmp/proa_fuzz_transform_XXXXXX";
static Inference__ModelConfig *config;

static void remove_folder(void)
{
    char path[PROA_PATH_MAX];
    snprintf(path, sizeof path, "%s/f", folder);
    unlink(path);
    rmdir(folder);
}

static void set_up(void)
{
    static proa_arena arena;
    ProtobufCMessage *m = NULL;
    proa_arena_init(&arena);
    PROA_ASSERT(mkdtemp(folder) != NULL);
    atexit(remove_folder);
    PROA_ASSERT(proa_pbtxt_parse(&m, &inference__model_config__descriptor, proa_str_c(config_text), "config",
                                 &arena, NULL) == PROA_OK);
    config = (Inference__ModelConfig *)m;
}

static void write_file(proa_str text)
{
    char path[PROA_PATH_MAX];
    snprintf(path, sizeof path, "%s/f", folder);
    FILE *f = fopen(path, "w");
    PROA_ASSERT(f && fwrite(text.ptr, 1, text.len, f) == text.len);
    PROA_ASSERT(fclose(f) == 0);
}

static void put(proa_infer *r, const char *name, proa_type type, const void *data, size_t bytes, int32_t rank,
                const int64_t *shape)
{
    proa_tensor *t = proa_infer_add_input(r, proa_str_c(name));
    t->type = type;
    t->rank = rank;
    memcpy(t->shape, shape, (size_t)rank * sizeof *shape);
    t->bytes = bytes;
    t->buffer = proa_buffer_new(bytes);
    t->data = memcpy(t->buffer->data, data, bytes);
}

static proa_infer *request(proa_str text)
{
    proa_infer *r = proa_infer_new();
    static const float a[5] = {1, -2, 3e30f, 0, 1e-30f};
    static const int64_t b[6] = {1, -1, INT64_MAX, INT64_MIN, 0, 1 << 20};
    static const uint16_t c[6] = {0, 0x3c00, 0x7c00, 0xfe00, 0x8001, 0xfbff};
    char *framed = proa_malloc(text.len + 4);
    uint32_t len = (uint32_t)text.len;
    memcpy(framed, &len, 4);
    if (text.len) memcpy(framed + 4, text.ptr, text.len);
    put(r, "A", PROA_TYPE_FP32, a, sizeof a, 2, (int64_t[]){1, 5});
    put(r, "B", PROA_TYPE_INT64, b, sizeof b, 3, (int64_t[]){1, 3, 2});
    put(r, "C", PROA_TYPE_FP16, c, sizeof c, 2, (int64_t[]){1, 6});
    put(r, "T", PROA_TYPE_BYTES, framed, text.len + 4, 2, (int64_t[]){1, 1});
    free(framed);
    r->batch = 1;
    return r;
}

static void check_output(const proa_transform_program *p, const proa_transform_output *o, const proa_reply *reply)
{
    const proa_transform_value *v = &p->values[o->value];
    const proa_tensor *t = proa_reply_output(reply, o->name);
    PROA_ASSERT(t && t->type == v->type && t->rank == v->rank + 1 && t->shape[0] == 1);
    for (int32_t i = 0; i < v->rank; i++) PROA_ASSERT(v->shape[i] == -1 || v->shape[i] == t->shape[i + 1]);
    if (t->type == PROA_TYPE_BYTES) return;
    PROA_ASSERT((int64_t)t->bytes == proa_shape_elements(t->shape, t->rank) * proa_type_bytes(t->type));
    unsigned char sum = 0; /* every byte is there */
    for (size_t i = 0; i < t->bytes; i++) sum = (unsigned char)(sum + (unsigned char)t->data[i]);
    (void)sum;
}

static void run(const proa_transform_program *p, proa_str text)
{
    proa_infer *r = request(text);
    proa_reply *reply = proa_reply_new(r);
    proa_err err = {.status = PROA_OK};
    proa_status status = proa_transform_run(p, r, reply, &err);
    PROA_ASSERT(status == err.status);
    for (int32_t i = 0; i < p->outputs_count && status == PROA_OK; i++)
        check_output(p, &p->outputs[i], reply);
    proa_reply_free(reply);
    proa_infer_drop(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data, *end = size ? memchr(text, 0, size) : NULL;
    size_t len = end ? (size_t)(end - text) : size;
    proa_str file = {end ? end + 1 : "", end ? size - len - 1 : 0};
    proa_transform_program p = {.model_name = "m", .model_path = folder, .version_path = folder};
    proa_err err = {.status = PROA_OK};
    proa_arena arena;
    if (!config) set_up();
    if (file.len) write_file(file);
    proa_arena_init(&arena);
    proa_status status = proa_transform_read(&p, (proa_str){text, len}, config, &arena, &err);
    PROA_ASSERT(status == err.status);
    if (status == PROA_OK) run(&p, file);
    else PROA_ASSERT(strlen(err.text) > 0);
    proa_transform_close(&p);
    proa_arena_release(&arena);
    return 0;
}
