/* SPDX-License-Identifier: Apache-2.0
 * greeting.c - how ranks find out that they are the same program with the same model. */
#include "engine/ranks/greeting.h"

#include "base/checked.h"
#include "base/files.h"
#include "base/limits.h"
#include "model/ranks/call.h"
#include "proa/proa.h"
#include <stdio.h>
#include <string.h>

static const char magic[] = {'p', 'r', 'o', 'a', 'r', 'a', 'n', 'k'};

/* FNV-1a (Fowler, Noll, Vo), 64 bits. */
enum { PRINT_SAMPLES = 8, PRINT_BYTES = 64 };
#define PRINT_BEGIN 0xcbf29ce484222325u
#define PRINT_PRIME 0x100000001b3u

static uint64_t print_bytes(uint64_t print, const void *bytes, size_t size)
{
    const unsigned char *b = bytes;
    for (size_t i = 0; i < size; i++) print = (print ^ b[i]) * PRINT_PRIME;
    return print;
}

/* ---- versions ---- */

static uint32_t struct_sizes(void)
{
    const uint32_t sizes[] = {sizeof(proa_span),          sizeof(proa_inputs_embeds),
                              sizeof(proa_pending_beams), sizeof(proa_beam_params),
                              sizeof(proa_sample_params), sizeof(proa_logits_row),
                              sizeof(proa_logits_entry),  sizeof(proa_kv_copy),
                              sizeof(proa_state_copy),    sizeof(proa_rank_result)};
    return (uint32_t)print_bytes(PRINT_BEGIN, sizes, sizeof sizes);
}

void proa_rank_hello_make(proa_rank_hello *hello, int32_t rank, int32_t ranks, int32_t stages)
{
    *hello = (proa_rank_hello){
        .protocol = PROA_RANK_PROTOCOL, .structs = struct_sizes(), .rank = rank, .ranks = ranks, .stages = stages};
    memcpy(hello->magic, magic, sizeof magic);
    snprintf(hello->version, sizeof hello->version, "%s", proa_version());
}

proa_status proa_rank_hello_check(const proa_rank_hello *other, int32_t rank, proa_err *err)
{
    proa_rank_hello own;
    proa_rank_hello_make(&own, 0, 0, 0);
    int shown = (int)strnlen(other->version, sizeof other->version);
    if (memcmp(other->magic, magic, sizeof magic) != 0)
        return PROA_FAIL(err, INVALID, "rank %d is not proa", rank);
    if (strncmp(other->version, own.version, sizeof own.version) != 0 || other->protocol != own.protocol ||
        other->structs != own.structs)
        return PROA_FAIL(
            err, INVALID,
            "rank %d is proa %.*s (protocol %u.%08x), this rank is proa %s (protocol %u.%08x): all "
            "ranks must be the same build",
            rank, shown, other->version, other->protocol, other->structs, own.version, own.protocol,
            own.structs);
    return PROA_OK;
}

/* ---- how to open the model ---- */

void proa_rank_open_message(proa_rank_message *m, proa_rank_open *open)
{
    proa_model_options *o = &open->model;
    open->path = proa_rank_message_text(m, open->path);
    open->device = proa_rank_message_text(m, open->device);
    o->dtype = proa_rank_message_text(m, o->dtype);
    o->quant = proa_rank_message_text(m, o->quant);
    o->kv_dtype = proa_rank_message_text(m, o->kv_dtype);
    PROA_RANK_MESSAGE_VALUE(m, open->threads);
    PROA_RANK_MESSAGE_VALUE(m, open->node);
    PROA_RANK_MESSAGE_VALUE(m, open->wait_ms);
    PROA_RANK_MESSAGE_VALUE(m, o->rows_max);
    PROA_RANK_MESSAGE_VALUE(m, o->encoder_rows);
    PROA_RANK_MESSAGE_VALUE(m, o->head_rows);
    PROA_RANK_MESSAGE_VALUE(m, o->sampled_rows);
    PROA_RANK_MESSAGE_VALUE(m, o->device_head_rows);
    PROA_RANK_MESSAGE_VALUE(m, o->detach);
    PROA_RANK_MESSAGE_VALUE(m, o->rank);
    PROA_RANK_MESSAGE_VALUE(m, o->ranks);
    PROA_RANK_MESSAGE_VALUE(m, o->stages);
    PROA_RANK_MESSAGE_VALUE(m, o->whole_experts);
    PROA_RANK_MESSAGE_VALUE(m, o->whole_sums);
    PROA_RANK_MESSAGE_VALUE(m, o->lora_slots);
    PROA_RANK_MESSAGE_VALUE(m, o->lora_rank);
    PROA_RANK_MESSAGE_VALUE(m, o->lora_type);
}

/* ---- the same model ---- */

/* Numbers of a tensor that are stored as they are: its first ones, its last ones and some between. */
static uint64_t print_numbers(uint64_t print, const proa_tensor_source *source)
{
    const proa_view *v = &source->view;
    if (source->encoding != PROA_ENCODING_PLAIN || !v->data || !proa_view_dense(*v)) return print;
    int64_t size = proa_view_count(*v) * proa_dtype_bytes(v->dtype), last = size - PRINT_BYTES;
    if (last < 0) return print_bytes(print, v->data, (size_t)size);
    for (int64_t i = 0; i < PRINT_SAMPLES; i++)
        print = print_bytes(print, (const char *)v->data + last / (PRINT_SAMPLES - 1) * i, PRINT_BYTES);
    return print;
}

static uint64_t print_tensor(uint64_t print, const proa_weights_tensor *t)
{
    const proa_view *v = &t->source.view;
    print = print_bytes(print, t->name, strlen(t->name));
    print = print_bytes(print, &t->source.encoding, sizeof t->source.encoding);
    print = print_bytes(print, &v->dtype, sizeof v->dtype);
    print = print_bytes(print, v->shape, (size_t)v->rank * sizeof *v->shape);
    return print_numbers(print, &t->source);
}

uint64_t proa_rank_model_print(const proa_model *m)
{
    uint64_t print = PRINT_BEGIN;
    proa_buf config;
    proa_buf_init(&config, (size_t)PROA_CONFIG_BYTES_MAX);
    if (proa_files_read(&config, proa_model_files(m), "config.json", PROA_CONFIG_BYTES_MAX, NULL) == PROA_OK)
        print = print_bytes(print, config.ptr, config.len);
    proa_buf_release(&config);
    for (int64_t i = 0; m->weights && !m->packed && i < proa_weights_count(m->weights); i++)
        print = print_tensor(print, proa_weights_at(m->weights, i));
    return print;
}
