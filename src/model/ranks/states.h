/* SPDX-License-Identifier: Apache-2.0
 * states.h - hidden states of a pass for draft heads (heads/), which run in rank 0. In a pipeline the last stage has
 * what the head reads, and each stage the stream before its own layers: they send the rows that are wanted to rank 0.
 * Owner:   the model. Threads: the stepping thread; what ranks do for a call, those of the ranks. */
#ifndef PROA_MODEL_STATES_H
#define PROA_MODEL_STATES_H

#include "model/ranks/call.h"

/* The type in which a model keeps states: that of its activations. */
proa_dtype proa_states_dtype(const proa_model *m);

/* `rows` of the last pass of rank 0's model, on the host, to memory where rank 0 runs, of any type. What the last
 * product of the head would read: to [count, proa_model_hidden_width]. */
void proa_states_hidden(proa_model *m, const int32_t *rows, int64_t count, proa_view to);
/* The taps of m->taps: to [count, taps.count * hidden]. */
void proa_states_tapped(proa_model *m, const int32_t *rows, int64_t count, proa_view to);

/* While a model is loaded: takes the memory that a stage needs for the taps of rank 0, which come with the call. */
PROA_MUST_CHECK proa_status proa_states_make(proa_model *m, const proa_rank_call *load, proa_err *err);
void proa_states_free(proa_model *m);
/* What a rank does for HIDDEN and TAPPED. */
void proa_run_hidden_states(proa_model *m, proa_rank_call *call);
void proa_run_tapped_states(proa_model *m, proa_rank_call *call);

#endif
