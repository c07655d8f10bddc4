/* SPDX-License-Identifier: Apache-2.0
 * stage.h - pipeline parallelism (GPipe, Huang et al. 2019; Megatron-LM, Narayanan et al. 2021): each stage has a range
 * of the layers of each stack, with their weights, keys and values. The first one embeds, the last one has the head.
 * The rows of the residual stream go from stage to stage, with other streams and the inputs of layers; what the head
 * gives goes back to the first one, where the scheduler is. A pass of many rows is divided into micro-batches, so that
 * all stages work at the same time: each has the same rows as one stage would, so a model gives the same bits in any
 * number of stages. */
#ifndef PROA_MODEL_STAGE_H
#define PROA_MODEL_STAGE_H

#include "model/model.h"

/* Which layers of a stack of `layers` a stage has: the first stages have one more where they do not divide. Layers that
 * read keys and values of earlier ones are in the last stage with these; the other stages share the layers before. */
proa_layer_range proa_stage_layers(const proa_config *c, int64_t layers, int32_t stage, int32_t stages);
/* Sets plan->layers and removes the weights of a bound model that other stages have. UNSUPPORTED if a stage would have
 * no layers. */
PROA_MUST_CHECK proa_status proa_stage_cut(proa_plan *plan, proa_params params[PROA_STACK_COUNT],
                                           const proa_arch *arch, const proa_config *c, proa_err *err);
/* Makes the programs of a plan those of its stage: what only other stages do is left out, and rows are received and
 * sent. Nothing changes if there is one stage. */
void proa_stage_steps(proa_plan *plan, const proa_config *c);

/* ---- in a pass; nothing if there is one stage ---- */

void proa_stage_make(proa_model *m);
void proa_stage_free(proa_model *m);
bool proa_stage_is_last(const proa_model *m);
/* Rows of another stage, behind tokens that are on their way to rank 0 (proa_sample_request.deferred). */
void proa_stage_receive(proa_model *m, proa_view rows, int32_t from);
/* Rows go from the last stage to the first, or to all others. */
void proa_stage_return(proa_model *m, proa_view rows);
void proa_stage_broadcast(proa_model *m, proa_view rows);

/* Spans of a pass in groups. */
typedef struct proa_micro_batches {
    int32_t count;
    int64_t end[PROA_MICRO_BATCHES_MAX];          /* where the spans of each end */
    int64_t segments_end[PROA_MICRO_BATCHES_MAX]; /* and the segments of adapters (proa_lora_divide) */
} proa_micro_batches;
/* Divides a pass, whose spans are on the host. Where long spans have to be cut, *batch gets other spans; they are valid
 * until the next call. causal: spans may be cut. */
void proa_micro_batches_make(proa_micro_batches *out, proa_model *m, proa_batch *batch, bool causal);

#endif
