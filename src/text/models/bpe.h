/* SPDX-License-Identifier: Apache-2.0
 * bpe.h - the table of merges; internal to this folder. */
#ifndef PROA_TEXT_MODELS_BPE_H
#define PROA_TEXT_MODELS_BPE_H

#include "text/pipeline.h"

#define PROA_BPE_UNK_MISSING (-2) /* unk_token is named, but no piece has that name */

const proa_merge *proa_bpe_merge(const proa_bpe *bpe, int32_t left, int32_t right); /* NULL: they do not merge */

#endif
