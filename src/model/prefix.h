/* SPDX-License-Identifier: Apache-2.0
 * prefix.h - prompts of models that fill in blanks (GLM, Du et al. 2022): a prefix whose tokens see each other both
 *            ways, and two positions for each token.
 *
 * A prompt is a text with a blank in it ([MASK], or [gMASK] at its end), then the token that begins the answer (<sop>).
 * The tokens before that one are the prefix. Those after it see the whole prefix and each other causally:
 *
 *     token           a    b  [MASK]   c  <sop>   x    y          rows = 4, blank = 2
 *     position        0    1     2     3     2    2    2          of the blank, from <sop> on
 *     block position  0    0     0     0     1    2    3          within the answer */
#ifndef PROA_MODEL_PREFIX_H
#define PROA_MODEL_PREFIX_H

#include "model/config.h"

typedef struct proa_prefix {
    bool used;     /* false: the model has no blanks, and a token's position is its index */
    int32_t rows;  /* tokens of the prefix */
    int32_t blank; /* position of the blank */
} proa_prefix;

/* Finds the prefix of a prompt; in a model without blanks there is none. INVALID if the prompt has no blank or no token
 * that begins the answer; LIMIT if the prefix is longer than PROA_STEP_TOKENS_MAX. */
PROA_MUST_CHECK proa_status proa_prefix_find(proa_prefix *out, const proa_config *c, const int32_t *ids,
                                             int64_t count, proa_err *err);
/* The positions of the token with this index in the sequence. */
int64_t proa_prefix_position(const proa_prefix *p, int64_t index);
int64_t proa_prefix_block_position(const proa_prefix *p, int64_t index);

#endif
