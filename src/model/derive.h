/* SPDX-License-Identifier: Apache-2.0
 * derive.h - rows that are made of other rows: the same layers under another head, under none, or as a decoder alone.
 * A row names its other classes (arch.h: stems, forms). Of these each gets a row of its own, with the keys, the tensors
 * and the layers of its origin:
 *   of a decoder           without a head, or with labels in place of it: an encoder whose attention is causal
 *   of an encoder-decoder  with labels: an encoder that decodes its input, the decoder's rows have the head;
 *                          or the decoder alone, without cross-attention
 *   of a masked language model  the decoder of the same layers, which sees one side
 *   of an encoder          behind its pooler: a number, or whether one text follows another;
 *                          of its classifier: the number, too
 * The head of each form is written here once.
 * Owner: the rows live until the process ends.  Threads: any; the rows are made at the first call. */
#ifndef PROA_MODEL_DERIVE_H
#define PROA_MODEL_DERIVE_H

#include "model/arch.h"

/* All rows, NULL-terminated: those of PROA_ARCH_LIST, behind them those that are made of these, and of each family of
 * multimodal classes that over its usual text model (multimodal.h). */
const proa_arch *const *proa_arch_rows(void);
/* The row of that form that is made of a row; NULL: there is none. */
const proa_arch *proa_arch_of_form(const proa_arch *origin, proa_head_form form);
/* What a row that is made of another sets after the `finish` of that: whose layers they are, and the labels. json: the
 * keys of the layers; outer: config.json itself, which has the labels, and holds json where the model is multimodal. */
PROA_MUST_CHECK proa_status proa_arch_finish_form(const proa_arch *arch, proa_config *c, const proa_json *json,
                                                  const proa_json *outer, proa_err *err);

#endif
