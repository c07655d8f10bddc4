/* SPDX-License-Identifier: Apache-2.0
 * collective.h - puts the collective steps into the programs of a rank (tensor parallelism; Megatron-LM, Shoeybi et al.
 * 2019). A product by columns (proa_slot_split) gives each rank a term of the whole sum: an all_reduce follows before
 * the sum is read. The head's product by rows gives each rank some columns of the outputs, which are gathered. */
#ifndef PROA_MODEL_COLLECTIVE_H
#define PROA_MODEL_COLLECTIVE_H

#include "model/plan.h"

/* Changes the program for a rank. Products that give terms write them to register PART; the all_reduce adds their sum
 * to the residual. Products that add to one register without a step between that reads it share one all_reduce, as in
 * layers whose attention and FFN are parallel. A norm of groups that several ranks have becomes steps between which
 * ranks add what each gives to the means of squares. c: of the rank; layers: how many run the program, 0: it is not of
 * layers. head_split: the last product of the head is by rows.
 * Where c->sum_split is not 0, no rank has a term. Each gathers the inputs of the product and makes whole sums for some
 * columns, in the order of one rank, and these columns are gathered: the bits are those of one rank. */
void proa_collective_steps(proa_program *p, const proa_config *c, int64_t layers, bool head_split);
/* Whether a product gives a rank only a term of the sum. */
bool proa_step_is_partial(const proa_step *s);

#endif
