/* SPDX-License-Identifier: Apache-2.0
 * steps.h - inside model/: the registers of a pass, and a program that runs over some of its rows.
 *
 * Threads: those of model.h. Registers belong to the model and hold until a later step or pass writes them. */
#ifndef PROA_MODEL_STEPS_STEPS_H
#define PROA_MODEL_STEPS_STEPS_H

#include "model/model.h"
#include "model/ranks/stage.h"

/* The context of a program that runs: the model, the pass, the layer, the rows. */
typedef struct proa_step_frame {
    proa_model *m;
    const proa_kv *kv;
    const proa_batch *batch;
    proa_stack_id stack;
    int64_t layer;
    int64_t first, rows;                     /* rows [first, first + rows) of the registers that it writes */
    const int32_t *gather;                   /* GATHER: the rows that the head reads */
    const proa_inputs_embeds *inputs_embeds; /* rows whose embeddings the caller gave */
    int64_t inputs_embeds_count;
    const proa_batch *host_batch; /* the batch in host memory; `batch` may be on the device */
    proa_micro_batches micro;
    proa_dtype narrow; /* type of most registers: f32, or 16 bits on a device */
} proa_step_frame;

/* A frame for that many rows of a stack, with the type that its registers have for them. */
proa_step_frame proa_frame_make(proa_model *m, proa_stack_id stack, int64_t rows);
/* Rows [0, rows) of a register, [rows, its width], as spans count them. */
proa_view proa_frame_rows(const proa_step_frame *f, proa_reg r, int64_t rows);
/* The rows of a register that the frame writes: [f->rows, its width]. */
proa_view proa_frame_register(const proa_step_frame *f, proa_reg r);
/* Whether an encoder's attention reads keys and values directly from QKV (or CKV) instead of pages: they must have the
 * pages' type. On the host only up to one page, since longer contexts are read faster from pages than from rows
 * far apart. The results are the same to the bit. */
bool proa_frame_attends_without_pages(const proa_step_frame *f);
/* Overwrites rows of a register with the caller's input embeddings of one kind: of the embedding table (multiplied by
 * scale), or of the stream. */
void proa_frame_upload_embeds(const proa_step_frame *f, proa_reg r, bool of_table, float scale);
/* Runs the steps of a program. The caller sets f->layer for those that depend on it. */
void proa_frame_run(const proa_step_frame *f, const proa_program *program);

#endif
