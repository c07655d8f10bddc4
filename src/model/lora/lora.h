/* SPDX-License-Identifier: Apache-2.0
 * lora.h - low-rank adapters (LoRA, Hu et al. 2021) of the matrices of a decoder, or of an encoder alone: where the
 * numbers of an adapter are in memory, slots in which the model reads them, and the rows of a step grouped by adapter.
 * An image is all numbers of one adapter in the layout of kernels/op_lora.h (proa_lora), m->lora.bytes of them: the
 * same layout for all adapters of a model, made for the largest rank. A slot is what the kernels read: on a device
 * memory of its own, filled from an image; on the host the image itself. With several ranks a slot has what the rank
 * has of an image, copied from it.
 * Owner:   images are the caller's (proa_adapter_free).
 * Threads: proa_adapter_read may run beside passes; slots belong to the stepping thread. */
#ifndef PROA_MODEL_LORA_LORA_H
#define PROA_MODEL_LORA_LORA_H

#include "model/lora/prompt_table.h"
#include "model/ranks/stage.h"

/* The stack whose layers adapters change. */
static inline proa_stack_id proa_lora_stack_id(const proa_model *m)
{
    return m->arch->kind == PROA_KIND_ENCODER ? PROA_STACK_ENCODER : PROA_STACK_DECODER;
}
/* Lays out the images of a bound model, before its weights are cut for a rank: sets m->lora. Does nothing if
 * m->lora.slots is 0. An encoder-decoder gets no slots. */
PROA_MUST_CHECK proa_status proa_lora_plan(proa_model *m, proa_err *err);
/* Sets param->lora of each matrix of this rank that adapters can change: of a matrix that is cut by rows a rank has
 * these columns of B and all of A, of one that is cut by columns these of A and all of B. */
void proa_lora_plan_part(proa_model *m);
/* Takes the memory of the slots; and gives it back. */
PROA_MUST_CHECK proa_status proa_lora_make(proa_model *m, proa_err *err);
void proa_lora_free(proa_model *m);
/* Bytes on the model's device that the slots take, and of each image on the host. 0: no adapters. */
int64_t proa_lora_slot_bytes(const proa_model *m);
int64_t proa_lora_image_bytes(const proa_model *m);
/* A matrix with adapters behind it (kernels/op_lora.h, proa_lora_stack_b) takes a multiple of this: these end at any 16
 * bytes, and the next matrix would begin amid a cache line, so that each line of a tile of it were two requests. 256 is
 * what cuBLASLt takes for granted. */
#define PROA_LORA_MATRIX_ALIGN 256
/* Bytes of the second copy of adapters, behind the matrices. The plan of the weights includes them. */
int64_t proa_lora_stack_bytes(const proa_model *m);
/* And of the sums of one product while it runs, with what the adapters add. */
int64_t proa_lora_sums_bytes(const proa_model *m);
/* Puts an image into a slot of all ranks, in order with the passes. On the host the image must live until the slot is
 * set again. NULL: the slot is empty. */
void proa_model_set_adapter(proa_model *m, int32_t slot, const char *image);
/* The same in this rank, of what it has of an image: that is in place, or in host memory on its way to a device. */
void proa_lora_set_slot(proa_model *m, int32_t slot, const char *image);
/* One layer of it, in each rank: image: what layer_at says; NULL: the slot is empty. */
void proa_run_adapter(proa_model *m, int32_t slot, int64_t layer, const char *image);
/* Groups the rows of a batch by adapter. On the device the lists are in the staged batch (staging/staging.c). */
void proa_lora_group(proa_model *m, const proa_batch *batch, proa_lora_rows *out);
/* Groups them by micro-batch, and by adapter within each, where rows are counted from its first one: the segments of
 * each follow those of the one before. span: those of the divided pass. Valid until the next call. */
void proa_lora_divide(proa_model *m, proa_lora_rows *rows, const proa_span *span, proa_micro_batches *micro);
/* Those of micro-batch i, whose first row is `first`. */
proa_lora_rows proa_lora_rows_of(const proa_lora_rows *divided, const proa_micro_batches *micro, int32_t i,
                                 int64_t first);
/* Segments of a pass with that many rows at most: of those that are used the others are empty, so that passes of one
 * shape have one number. */
int64_t proa_lora_segments(const proa_model *m, int64_t rows);
/* The same of any pass, divided or not. */
int64_t proa_lora_segments_max(const proa_model *m);
/* Numbers of one piece of a matrix into an image: row j of A, [l->K]; of the row of B that makes column n of the piece
 * those from j on, [count]. */
void proa_lora_put_a(char *image, const proa_lora *l, int32_t piece, int32_t j, const float *row);
void proa_lora_put_b(char *image, const proa_lora *l, int32_t piece, int64_t n, int32_t j, int32_t count,
                     const float *row);

/* ---- adapter.c: adapters from files ---- */

/* Reads a folder of PEFT (adapter_config.json with adapter_model.safetensors or adapter_model.bin) into an image or, if
 * its type is one of these, a prompt table; the other is NULL. The caller frees them. INVALID, LIMIT or UNSUPPORTED in
 * one line with the folder, and the key or the tensor. */
PROA_MUST_CHECK proa_status proa_adapter_read(char **image, proa_prompt_table **table, const proa_model *m,
                                              const char *path, proa_err *err);
void proa_adapter_free(const proa_model *m, char *image); /* NULL is fine */
/* The same from tensors and the text of an adapter_config.json in memory; what: for errors. */
PROA_MUST_CHECK proa_status proa_adapter_read_tensors(char **image, const proa_model *m,
                                                      const proa_weights *tensors, const proa_json *config,
                                                      const char *what, proa_err *err);
/* The largest rank that the adapter_config.json of a folder names; 0: it is of a prompt table. */
PROA_MUST_CHECK proa_status proa_adapter_rank(int64_t *rank, const char *path, proa_err *err);
/* ---- trtllm.c: adapters from tensors of TensorRT-LLM ---- */

/* The same from lora_weights and lora_config, as proa_adapter_rows describes them. Errors name the row. */
PROA_MUST_CHECK proa_status proa_adapter_read_rows(char **image, const proa_model *m,
                                                   const proa_adapter_rows *rows, proa_err *err);

/* An image of random numbers with this rank, small enough that the text stays the model's own: for measurements.
 * modules: the last parts of the modules' names that it changes, "q_proj,v_proj"; NULL or empty: all. */
char *proa_adapter_random(const proa_model *m, const char *modules, int32_t rank, uint64_t seed);

#endif
