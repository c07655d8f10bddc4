/* SPDX-License-Identifier: Apache-2.0
 * hf.c - writes a folder of Hugging Face: safetensors in one file or several with an index, config.json, tokenizer.
 * The names of the files, the index and the header's metadata are those of transformers' save_pretrained; within a file
 * the tensors are in the order of the safetensors library: the widest type first, then by name. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/file.h"
#include "convert/calibrate/calibrate.h"
#include "convert/folder.h"
#include "convert/outfile.h"
#include "convert/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDEX "model.safetensors.index.json"

typedef struct shard_tensor {
    const proa_convert_tensor *t;
} shard_tensor;

/* One file. */
typedef struct shard {
    const proa_convert_job *job;
    shard_tensor *tensor;    /* [count] in the order of the file */
    proa_outfile_item *item; /* [count] */
    int64_t count, bytes;    /* bytes of the whole file */
    proa_buf header;
} shard;

typedef struct hf_writer {
    const proa_convert_job *job;
    proa_convert_tensors tensors;
    shard *shards; /* [count] */
    int64_t count;
    int64_t data_bytes;
    proa_calibrated calibrated;
    uint64_t key;
    proa_convert_progress progress;
    proa_err *err;
} hf_writer;

static const char *const type_names[PROA_DTYPE_COUNT] = {
#define ROW(name, text, st, bytes, floating, wire, number) st,
    PROA_DTYPE_LIST(ROW)
#undef ROW
};

/* ---- the plan ---- */

static int by_width_and_name(const void *a, const void *b)
{
    const proa_convert_tensor *x = ((const shard_tensor *)a)->t, *y = ((const shard_tensor *)b)->t;
    int64_t wide = proa_dtype_bytes(y->dtype) - proa_dtype_bytes(x->dtype);
    return wide ? (wide > 0 ? 1 : -1) : strcmp(x->name, y->name);
}

static void write_entry(proa_buf *out, const proa_convert_tensor *t, int64_t at)
{
    proa_buf_char(out, ',');
    proa_buf_json_str(out, proa_str_c(t->name));
    proa_buf_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", type_names[t->dtype]);
    for (int32_t i = 0; i < t->rank; i++)
        proa_buf_printf(out, "%s%lld", i ? "," : "", (long long)t->shape[i]);
    proa_buf_printf(out, "],\"data_offsets\":[%lld,%lld]}", (long long)at,
                    (long long)(at + proa_convert_tensor_bytes(t)));
}

/* The header: its length, then JSON that is padded so that the data begins at a multiple of 8. */
static proa_status write_header(const hf_writer *w, shard *s)
{
    int64_t at = 0;
    char length[8] = {0};
    proa_buf_init(&s->header, (size_t)PROA_ST_HEADER_BYTES_MAX + 8);
    proa_buf_append(&s->header, length, sizeof length);
    proa_buf_str(&s->header, proa_str_c("{\"__metadata__\":{\"format\":\"pt\"}"));
    for (int64_t i = 0; i < s->count; i++) {
        write_entry(&s->header, s->tensor[i].t, at);
        at += proa_convert_tensor_bytes(s->tensor[i].t);
    }
    proa_buf_char(&s->header, '}');
    while (s->header.len % 8 && !s->header.full) proa_buf_char(&s->header, ' ');
    if (s->header.full)
        return PROA_FAIL(w->err, LIMIT, "a header of more than %lld bytes: use a smaller --shard-size",
                         (long long)PROA_ST_HEADER_BYTES_MAX);
    for (int i = 0; i < 8; i++) s->header.ptr[i] = (char)((s->header.len - 8) >> (8 * i));
    s->bytes = (int64_t)s->header.len + at;
    return PROA_OK;
}

static void place_items(shard *s)
{
    int64_t at = (int64_t)s->header.len;
    for (int64_t i = 0; i < s->count; i++) {
        const proa_convert_tensor *t = s->tensor[i].t;
        int64_t bytes = proa_convert_tensor_bytes(t);
        s->item[i] = (proa_outfile_item){at, bytes, t->row_numbers * proa_dtype_bytes(t->dtype)};
        at += bytes;
    }
}

/* The tensors [first, first + count) of the list become a file. */
static proa_status add_shard(hf_writer *w, int64_t first, int64_t count)
{
    shard *s = &w->shards[w->count++];
    *s = (shard){.job = w->job, .count = count};
    s->tensor = proa_calloc((size_t)proa_max64(count, 1), sizeof *s->tensor);
    s->item = proa_calloc((size_t)proa_max64(count, 1), sizeof *s->item);
    for (int64_t i = 0; i < count; i++) s->tensor[i].t = &w->tensors.at[first + i];
    qsort(s->tensor, (size_t)count, sizeof *s->tensor, by_width_and_name);
    PROA_TRY(write_header(w, s));
    place_items(s);
    w->progress.total += s->bytes;
    return PROA_OK;
}

/* A file takes tensors until the next one would make it larger than job->shard_bytes. */
static proa_status plan_shards(hf_writer *w)
{
    int64_t first = 0, bytes = 0, most = w->job->shard_bytes ? w->job->shard_bytes : INT64_MAX;
    w->shards = proa_calloc((size_t)proa_max64(w->tensors.count, 1), sizeof *w->shards);
    for (int64_t i = 0; i < w->tensors.count; i++) {
        int64_t more = proa_convert_tensor_bytes(&w->tensors.at[i]);
        if (i > first && more > most - bytes) {
            PROA_TRY(add_shard(w, first, i - first));
            first = i, bytes = 0;
        }
        bytes += more, w->data_bytes += more;
    }
    PROA_TRY(add_shard(w, first, w->tensors.count - first));
    if (w->count <= PROA_SHARDS_MAX) return PROA_OK;
    return PROA_FAIL(w->err, LIMIT, "%lld files, at most %d are read: use a larger --shard-size",
                     (long long)w->count, PROA_SHARDS_MAX);
}

static void shard_name(char name[64], const hf_writer *w, int64_t i)
{
    if (w->count == 1) snprintf(name, 64, "model.safetensors");
    else snprintf(name, 64, "model-%05lld-of-%05lld.safetensors", (long long)i + 1, (long long)w->count);
}

/* ---- the files ---- */

static void fill_piece(void *context, int64_t item, int64_t from, int64_t bytes, void *out)
{
    const shard *s = context;
    const proa_convert_tensor *t = s->tensor[item].t;
    int64_t each = proa_dtype_bytes(t->dtype);
    proa_convert_tensor_read(t, from / each, bytes / each, out);
}

static void item_done(void *context, int64_t item)
{
    const shard *s = context;
    proa_convert_tensor_drop(s->job, s->tensor[item].t);
}

static proa_status write_shard(hf_writer *w, int64_t i)
{
    char name[64], path[PROA_PATH_MAX];
    shard *s = &w->shards[i];
    shard_name(name, w, i);
    PROA_TRY(proa_path_join(path, w->job->out, name, w->err));
    if (proa_file_exists(path)) { /* the folder is this job's own: an earlier run has finished the file */
        w->progress.done += s->bytes;
        return PROA_OK;
    }
    proa_outfile f = {.path = path,
                      .header = proa_buf_view(&s->header),
                      .items = s->item,
                      .count = s->count,
                      .bytes = s->bytes,
                      .key = w->key,
                      .fill = fill_piece,
                      .item_done = item_done,
                      .context = s};
    return proa_outfile_write(&f, w->job, &w->progress, w->err);
}

/* The index lists the tensors by name. */
static void write_map(const hf_writer *w, proa_buf *out)
{
    int64_t at = 0;
    proa_buf_printf(out, "{\n  \"metadata\": {\n    \"total_size\": %lld\n  },\n  \"weight_map\": {",
                    (long long)w->data_bytes);
    for (int64_t i = 0; i < w->count; i++) {
        char name[64];
        shard_name(name, w, i);
        for (int64_t k = 0; k < w->shards[i].count; k++, at++) {
            proa_buf_str(out, proa_str_c(at ? ",\n    " : "\n    "));
            proa_buf_json_str(out, proa_str_c(w->tensors.at[at].name));
            proa_buf_printf(out, ": \"%s\"", name);
        }
    }
    proa_buf_str(out, proa_str_c("\n  }\n}\n"));
}

static proa_status write_index(const hf_writer *w)
{
    char path[PROA_PATH_MAX];
    proa_buf text;
    if (w->count == 1) return PROA_OK;
    PROA_TRY(proa_path_join(path, w->job->out, INDEX, w->err));
    proa_buf_init(&text, (size_t)PROA_ST_INDEX_BYTES_MAX);
    write_map(w, &text);
    proa_status status = text.full ? PROA_FAIL(w->err, LIMIT, INDEX " would be longer than %lld bytes",
                                               (long long)PROA_ST_INDEX_BYTES_MAX)
                                   : proa_outfile_put(path, proa_buf_view(&text), w->err);
    proa_buf_release(&text);
    return status;
}

/* transformers' name of the type that most numbers have. */
static const char *main_dtype(const hf_writer *w)
{
    int64_t count[PROA_DTYPE_COUNT] = {0};
    for (int64_t i = 0; i < w->tensors.count; i++) count[w->tensors.at[i].dtype] += w->tensors.at[i].count;
    int64_t f32 = count[PROA_DTYPE_F32], f16 = count[PROA_DTYPE_F16], bf16 = count[PROA_DTYPE_BF16];
    if (f32 + f16 + bf16 == 0) return NULL;
    if (bf16 >= f32 && bf16 >= f16) return "bfloat16";
    return f16 >= f32 ? "float16" : "float32";
}

static proa_status write_folder(hf_writer *w)
{
    const proa_calibrate *calibrate = w->job->calibrate;
    PROA_TRY(proa_convert_tensors_open(&w->tensors, w->job, w->err));
    w->key = proa_convert_key(w->job, "hf");
    if (calibrate && w->tensors.config.input_bits > 0)
        return PROA_FAIL(w->err, UNSUPPORTED,
                         "a model whose products read rounded rows (BitNet) cannot be quantised by a text");
    if (calibrate) {
        w->key = proa_calibrate_key(calibrate, w->key);
        PROA_TRY(proa_out_folder_begin(w->job, w->key, w->err)); /* refused before the work, not after it */
        PROA_TRY(proa_calibrate_tensors(&w->calibrated, &w->tensors, w->job, w->err));
    }
    PROA_TRY(plan_shards(w));
    PROA_TRY(proa_out_folder_begin(w->job, w->key, w->err));
    PROA_TRY(proa_out_folder_copy_files(w->job, w->err));
    for (int64_t i = 0; i < w->count; i++) PROA_TRY(write_shard(w, i));
    PROA_TRY(proa_weights_check(w->job->weights, w->err));
    PROA_TRY(write_index(w));
    /* without a config.json it is no model, so that comes last */
    PROA_TRY(proa_out_folder_config(w->job, main_dtype(w), w->tensors.decoded,
                                    proa_buf_view(&w->calibrated.config), w->err));
    return proa_out_folder_end(w->job, w->err);
}

proa_status proa_convert_hf(const proa_convert_job *job, proa_err *err)
{
    hf_writer w = {.job = job, .err = err};
    proa_status status = write_folder(&w);
    for (int64_t i = 0; i < w.count; i++) {
        proa_buf_release(&w.shards[i].header);
        free(w.shards[i].tensor);
        free(w.shards[i].item);
    }
    free(w.shards);
    proa_calibrated_release(&w.calibrated);
    proa_convert_tensors_close(&w.tensors);
    return status;
}
