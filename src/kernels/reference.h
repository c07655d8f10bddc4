/* SPDX-License-Identifier: Apache-2.0
 * reference.h - the plain table: what every other table is compared with, and what an unknown CPU runs.
 * Shapes:  as in ops.def.  Threads: as ops.h. */
#ifndef PROA_KERNELS_REFERENCE_H
#define PROA_KERNELS_REFERENCE_H

#include "kernels/ops.h"

/* Sets every entry of the table. */
void proa_reference_fill(proa_ops *ops);

/* The ops edit, choose, pick and take_ids (reference_choose.c). */
proa_choose_fn proa_choose_reference;
proa_edit_fn proa_edit_reference;
proa_pick_fn proa_pick_reference;
proa_take_ids_fn proa_take_ids_reference;

/* The ops search and follow (reference_search.c). */
proa_search_fn proa_search_reference;
proa_follow_fn proa_follow_reference;

/* One activation in double precision, rounded once: act's formula as PROA_ACT_LIST states it. */
float proa_act_reference(proa_act act, float x);

#endif
