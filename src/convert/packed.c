/* SPDX-License-Identifier: Apache-2.0
 * packed.c - writes a packed folder: each weight as the model packs it when it is loaded (weights/packed.h has the
 * format of the file). One weight at a time is in memory. */
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

typedef struct packed_writer {
    const proa_convert_job *job;
    proa_device *device;
    proa_model *model;
    packed_weight *weight;   /* [count] in the order of the model's memory */
    proa_outfile_item *item; /* [count] */
    int64_t count;
    proa_buf header;
    proa_convert_progress progress;
    proa_err *err;
} packed_writer;

/* ---- the header ---- */

/* A table's type is what the model keeps it in; of other codes the type says nothing, and is f16. */
static const char *dtype_of(const packed_writer *w, const proa_tensor_source *s)
{
    if (proa_tensor_source_is_float(s)) return proa_dtype_name(s->view.dtype);
    bool f32 = w->model->formats.given && w->model->formats.main == PROA_WFMT_F32;
    return proa_dtype_name(f32 ? PROA_DTYPE_F32 : PROA_DTYPE_F16);
}

static void write_tensor(packed_writer *w, const proa_weights_tensor *t)
{
    proa_buf *out = &w->header;
    const proa_view *v = &t->source.view;
    proa_buf_json_str(out, proa_str_c(t->name));
    proa_buf_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", dtype_of(w, &t->source));
    for (int32_t i = 0; i < v->rank; i++)
        proa_buf_printf(out, "%s%lld", i ? "," : "", (long long)v->shape[i]);
    proa_buf_printf(out, "],\"final\":%s}", t->final ? "true" : "false");
}

/* The tensors that are bound to slots, each once. */
static void write_tensors(packed_writer *w)
{
    const proa_weights *weights = w->model->weights;
    bool *used = proa_calloc((size_t)proa_max64(proa_weights_count(weights), 1), sizeof *used), any = false;
    for (int s = 0; s < PROA_STACK_COUNT; s++) {
        const proa_params *p = &w->model->params[s];
        for (int64_t i = 0; i < (p->layers + 1) * PROA_SLOT_COUNT; i++)
            for (int32_t k = 0; k < p->param[i].parts; k++) {
                const proa_weight_part *part = &p->param[i].part[k];
                if (proa_encoding_is_computed(part->source.encoding)) continue;
                used[part->tensor - proa_weights_at(weights, 0)] = true;
            }
    }
    for (int64_t i = 0; i < proa_weights_count(weights); i++) {
        if (!used[i]) continue;
        if (any) proa_buf_char(&w->header, ',');
        write_tensor(w, proa_weights_at(weights, i));
        any = true;
    }
    free(used);
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

static proa_status write_header(packed_writer *w)
{
    const proa_convert_job *job = w->job;
    proa_buf *out = &w->header;
    char start[16] = PROA_PACKED_MAGIC;
    proa_buf_init(out, (size_t)PROA_ST_HEADER_BYTES_MAX + PROA_PACKED_ALIGNMENT);
    proa_buf_append(out, start, sizeof start);
    proa_buf_printf(out,
                    "{\"version\":%d,\"layout\":\"%s\",\"dtype\":\"%s\",\"quant\":\"%s\",\"main\":\"%s\","
                    "\"rank\":0,\"ranks\":1,\"block_bytes\":%lld,\"tensors\":{",
                    PROA_PACKED_VERSION, w->device->ops->layout,
                    job->dtype_given ? proa_dtype_name(job->dtype) : "auto", job->quant ? job->quant : "none",
                    proa_wfmt_name(w->model->formats.main), (long long)w->model->plan.weight_bytes);
    write_tensors(w);
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
    w->progress.total = at;
}

static proa_status make_weight(void *context, int64_t item, void *out, proa_err *err)
{
    const packed_writer *w = context;
    return proa_model_pack(w->model, w->weight[item].param, out, err);
}

static proa_status write_file(packed_writer *w, uint64_t key)
{
    char path[PROA_PATH_MAX];
    PROA_TRY(proa_path_join(path, w->job->out, PROA_PACKED_NAME, w->err));
    if (proa_file_exists(path)) return PROA_OK; /* an earlier run has finished it */
    proa_outfile f = {.path = path,
                      .header = proa_buf_view(&w->header),
                      .items = w->item,
                      .count = w->count,
                      .bytes = w->progress.total,
                      .key = key,
                      .make = make_weight,
                      .context = w};
    PROA_TRY(proa_model_pack_begin(w->model, w->err));
    return proa_outfile_write(&f, w->job, &w->progress, w->err);
}

/* ---- the folder ---- */

static proa_status prepare_model(packed_writer *w)
{
    const proa_convert_job *job = w->job;
    const proa_model_options options = {.dtype = job->dtype_given ? proa_dtype_name(job->dtype) : "auto",
                                        .quant = job->quant,
                                        .rows_max = 1,
                                        .head_rows = 1,
                                        .sampled_rows = 1,
                                        .detach = true};
    PROA_TRY(proa_device_open(&w->device, job->device, w->err));
    PROA_TRY(proa_model_prepare(&w->model, job->in, &options, w->device, job->pool, w->err));
    if (w->model->packed)
        return PROA_FAIL(w->err, INVALID, "'%s' is packed: give the model it was made from", job->in);
    return PROA_OK;
}

static proa_status write_folder(packed_writer *w)
{
    uint64_t key = proa_convert_key(w->job, "packed");
    PROA_TRY(prepare_model(w));
    PROA_TRY(write_header(w));
    place_items(w);
    PROA_TRY(proa_out_folder_begin(w->job, key, w->err));
    PROA_TRY(proa_out_folder_copy_files(w->job, w->err));
    PROA_TRY(write_file(w, key));
    PROA_TRY(proa_weights_check(w->model->weights, w->err));
    PROA_TRY(proa_out_folder_config(w->job, NULL, false, (proa_str){NULL, 0}, w->err));
    return proa_out_folder_end(w->job, w->err);
}

proa_status proa_convert_packed(const proa_convert_job *job, proa_err *err)
{
    packed_writer w = {.job = job, .err = err};
    proa_status status = write_folder(&w);
    proa_buf_release(&w.header);
    proa_model_free(w.model);
    proa_device_close(w.device);
    free(w.weight);
    free(w.item);
    return status;
}
