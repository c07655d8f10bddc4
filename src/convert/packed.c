/* SPDX-License-Identifier: Apache-2.0
 * packed.c - writes a packed folder: each weight as the model packs it when it is loaded (weights/packed.h has the
 * format of the files, one for each rank). One weight at a time is in memory. */
#include "weights/packed.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/file.h"
#include "convert/folder.h"
#include "convert/outfile.h"
#include "model/model.h"
#include "model/packed.h"

#include <stdlib.h>
#include <string.h>

typedef struct packed_weight {
    proa_param *param;
} packed_weight;

/* The file of one rank. */
typedef struct packed_writer {
    const proa_convert_job *job;
    proa_device *device;
    int32_t rank;
    proa_model *model;
    packed_weight *weight;   /* [count] in the order of the model's memory */
    proa_outfile_item *item; /* [count] */
    int64_t count, bytes;    /* bytes: of the file */
    proa_buf header;
    proa_err *err;
} packed_writer;

/* All ranks; what a tensor is to one of them it may not be to another. */
typedef struct packed_set {
    packed_writer rank[PROA_RANKS_MAX];
    int32_t count;
    bool *used; /* of the tensors of the checkpoint: it is bound to a slot of some rank */
} packed_set;

/* ---- the header ---- */

/* Tables have the type in which the model keeps them. Quantised tensors have no such type: it is given as f16. */
static const char *dtype_of(const packed_writer *w, const proa_tensor_source *s)
{
    if (proa_tensor_source_is_float(s)) return proa_dtype_name(s->view.dtype);
    bool f32 = w->model->formats.given && w->model->formats.main == PROA_WFMT_F32;
    return proa_dtype_name(f32 ? PROA_DTYPE_F32 : PROA_DTYPE_F16);
}

/* Columns that ranks do not part: those of a block of codes. */
static int64_t block_of(const proa_weights_tensor *t)
{
    if (t->source.view.rank < 2) return 1;
    proa_tensor_source matrix = t->source.view.rank == 3 ? proa_tensor_source_slice(&t->source, 0) : t->source;
    return proa_min64(proa_tensor_source_col_block(&matrix), PROA_PACKED_BLOCK_MAX);
}

static void write_tensor(packed_writer *w, const proa_weights_tensor *t)
{
    proa_buf *out = &w->header;
    const proa_view *v = &t->source.view;
    proa_buf_json_str(out, proa_str_c(t->name));
    proa_buf_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", dtype_of(w, &t->source));
    for (int32_t i = 0; i < v->rank; i++)
        proa_buf_printf(out, "%s%lld", i ? "," : "", (long long)v->shape[i]);
    proa_buf_printf(out, "],\"final\":%s,\"block\":%lld}", t->final ? "true" : "false", (long long)block_of(t));
}

/* The tensors that are bound to slots. */
static void mark_used(const packed_writer *w, bool *used)
{
    for (int s = 0; s < PROA_STACK_COUNT; s++) {
        const proa_params *p = &w->model->params[s];
        for (int64_t i = 0; i < (p->layers + 1) * PROA_SLOT_COUNT; i++)
            for (int32_t k = 0; k < p->param[i].parts; k++) {
                const proa_weight_part *part = &p->param[i].part[k];
                if (proa_encoding_is_computed(part->source.encoding)) continue;
                used[part->tensor - proa_weights_at(w->model->weights, 0)] = true;
            }
    }
}

static void write_tensors(packed_writer *w, const bool *used)
{
    const proa_weights *weights = w->model->weights;
    bool any = false;
    for (int64_t i = 0; i < proa_weights_count(weights); i++) {
        if (!used[i]) continue;
        if (any) proa_buf_char(&w->header, ',');
        write_tensor(w, proa_weights_at(weights, i));
        any = true;
    }
}

static void write_weights(packed_writer *w)
{
    proa_weight_walk walk = {.param = NULL};
    for (int64_t i = 0; proa_model_next_weight(w->model, &walk); i++) {
        char format[PROA_PACKED_FORMAT_MAX];
        proa_packed_format_name(format, walk.param);
        proa_buf_printf(&w->header, "%s[%d,%lld,\"%s\",\"%s\",%lld]", i ? "," : "", (int)walk.stack,
                        (long long)walk.layer, proa_slot_name(walk.slot), format, (long long)walk.param->bytes);
    }
}

static proa_status write_header(packed_writer *w, const bool *used)
{
    const proa_convert_job *job = w->job;
    proa_buf *out = &w->header;
    char start[16] = PROA_PACKED_MAGIC;
    proa_buf_init(out, (size_t)PROA_ST_HEADER_BYTES_MAX + PROA_PACKED_ALIGNMENT);
    proa_buf_append(out, start, sizeof start);
    proa_buf_printf(out,
                    "{\"version\":%d,\"layout\":\"%s\",\"dtype\":\"%s\",\"quant\":\"%s\",\"main\":\"%s\","
                    "\"rank\":%d,\"ranks\":%d,\"block_bytes\":%lld,\"tensors\":{",
                    PROA_PACKED_VERSION, w->device->ops->layout,
                    job->dtype_given ? proa_dtype_name(job->dtype) : "auto", job->quant ? job->quant : "none",
                    proa_wfmt_name(w->model->formats.main), w->rank, job->ranks,
                    (long long)w->model->plan.weight_bytes);
    write_tensors(w, used);
    proa_buf_str(out, proa_str_c("},\"weights\":["));
    write_weights(w);
    proa_buf_str(out, proa_str_c("]}"));
    uint64_t length = out->len - sizeof start;
    while (out->len % PROA_PACKED_ALIGNMENT && !out->full) proa_buf_char(out, '\0');
    if (out->full)
        return PROA_FAIL(w->err, LIMIT, "a header of more than %lld bytes", (long long)PROA_ST_HEADER_BYTES_MAX);
    for (int i = 0; i < 8; i++) out->ptr[8 + i] = (char)(length >> (8 * i));
    return PROA_OK;
}

/* ---- the weights ---- */

static void place_items(packed_writer *w)
{
    proa_weight_walk walk = {.param = NULL};
    int64_t at = (int64_t)w->header.len;
    while (proa_model_next_weight(w->model, &walk)) w->count++;
    w->weight = proa_calloc((size_t)proa_max64(w->count, 1), sizeof *w->weight);
    w->item = proa_calloc((size_t)proa_max64(w->count, 1), sizeof *w->item);
    walk = (proa_weight_walk){.param = NULL};
    for (int64_t i = 0; proa_model_next_weight(w->model, &walk); i++) {
        w->weight[i].param = walk.param;
        w->item[i] = (proa_outfile_item){at, walk.param->bytes, walk.param->bytes};
        at += walk.param->bytes;
    }
    w->bytes = at;
}

static proa_status make_weight(void *context, int64_t item, void *out, proa_err *err)
{
    const packed_writer *w = context;
    return proa_model_pack(w->model, w->weight[item].param, out, err);
}

static proa_status write_file(packed_writer *w, uint64_t key, proa_convert_progress *progress)
{
    char path[PROA_PATH_MAX], name[64] = PROA_PACKED_NAME;
    if (w->job->ranks > 1) snprintf(name, sizeof name, PROA_PACKED_PART, w->rank + 1, w->job->ranks);
    PROA_TRY(proa_path_join(path, w->job->out, name, w->err));
    if (proa_file_exists(path)) { /* an earlier run has finished it */
        progress->done += w->bytes;
        return PROA_OK;
    }
    proa_outfile f = {.path = path,
                      .header = proa_buf_view(&w->header),
                      .items = w->item,
                      .count = w->count,
                      .bytes = w->bytes,
                      .key = key + (uint64_t)w->rank,
                      .make = make_weight,
                      .context = w};
    PROA_TRY(proa_model_pack_begin(w->model, w->err));
    return proa_outfile_write(&f, w->job, progress, w->err);
}

/* ---- the folder ---- */

static proa_status prepare_rank(packed_writer *w)
{
    const proa_convert_job *job = w->job;
    const proa_model_options options = {.dtype = job->dtype_given ? proa_dtype_name(job->dtype) : "auto",
                                        .quant = job->quant,
                                        .rows_max = 1,
                                        .head_rows = 1,
                                        .sampled_rows = 1,
                                        .rank = w->rank,
                                        .ranks = job->ranks,
                                        .detach = true};
    return proa_model_prepare(&w->model, job->in, &options, w->device, job->pool, w->err);
}

static proa_status prepare_ranks(packed_set *set, const proa_convert_job *job, proa_device *device, proa_err *err)
{
    if (proa_model_ranks(job->in) > 1 || proa_weights_packed(job->weights))
        return PROA_FAIL(err, INVALID, "'%s' is packed: give the model it was made from", job->in);
    if (job->ranks > PROA_RANKS_MAX)
        return PROA_FAIL(err, INVALID, "--ranks %d: a packed folder has at most %d", job->ranks, PROA_RANKS_MAX);
    for (; set->count < job->ranks; set->count++) {
        packed_writer *w = &set->rank[set->count];
        *w = (packed_writer){.job = job, .device = device, .rank = set->count, .err = err};
        proa_status status = prepare_rank(w);
        if (status != PROA_OK) return status;
    }
    set->used = proa_calloc((size_t)proa_max64(proa_weights_count(set->rank[0].model->weights), 1),
                            sizeof *set->used);
    for (int32_t i = 0; i < set->count; i++) mark_used(&set->rank[i], set->used);
    return PROA_OK;
}

static proa_status write_files(packed_set *set, uint64_t key)
{
    proa_convert_progress progress = {.total = 0};
    for (int32_t i = 0; i < set->count; i++) {
        packed_writer *w = &set->rank[i];
        PROA_TRY(write_header(w, set->used));
        place_items(w);
        progress.total += w->bytes;
    }
    for (int32_t i = 0; i < set->count; i++) {
        PROA_TRY(write_file(&set->rank[i], key, &progress));
        PROA_TRY(proa_weights_check(set->rank[i].model->weights, set->rank[i].err));
    }
    return PROA_OK;
}

static proa_status write_folder(packed_set *set, const proa_convert_job *job, proa_device *device, proa_err *err)
{
    uint64_t key = proa_convert_key(job, "packed");
    PROA_TRY(prepare_ranks(set, job, device, err));
    PROA_TRY(proa_out_folder_begin(job, key, err));
    PROA_TRY(proa_out_folder_copy_files(job, err));
    PROA_TRY(write_files(set, key));
    PROA_TRY(proa_out_folder_config(job, NULL, false, (proa_str){NULL, 0}, err));
    return proa_out_folder_end(job, err);
}

static void release_rank(packed_writer *w)
{
    proa_buf_release(&w->header);
    proa_model_free(w->model);
    free(w->weight);
    free(w->item);
}

proa_status proa_convert_packed(const proa_convert_job *job, proa_err *err)
{
    proa_device *device = NULL;
    PROA_TRY(proa_device_open(&device, job->device, err));
    packed_set *set = proa_calloc(1, sizeof *set);
    proa_status status = write_folder(set, job, device, err);
    for (int32_t i = 0; i < PROA_RANKS_MAX; i++) release_rank(&set->rank[i]);
    free(set->used);
    free(set);
    proa_device_close(device);
    return status;
}
