/* SPDX-License-Identifier: Apache-2.0
 * derive.h - rows that are made of the rows of decoders: the same layers under another head, or under none.
 * A decoder's row names its other classes (arch.h: stems, forms). Of these each gets a row of its own, whose keys,
 * tensors and layers are those of the decoder, without the head of the language model: it is an encoder whose attention
 * is causal. The head of each form is written here once.
 * Owner: the rows live until the process ends.  Threads: any; the rows are made at the first call. */
#ifndef PROA_MODEL_DERIVE_H
#define PROA_MODEL_DERIVE_H

#include "model/arch.h"

/* All rows, NULL-terminated: those of PROA_ARCH_LIST, behind them those that are made of its decoders. */
const proa_arch *const *proa_arch_rows(void);
/* The row of that form that is made of a decoder's row; NULL: there is none. */
const proa_arch *proa_arch_of_form(const proa_arch *decoder, proa_head_form form);
/* What a row that is made of a decoder's sets after that decoder's `finish`: the layers are an encoder's. */
PROA_MUST_CHECK proa_status proa_arch_finish_form(const proa_arch *arch, proa_config *c,
                                                  const proa_json *json, proa_err *err);

#endif
