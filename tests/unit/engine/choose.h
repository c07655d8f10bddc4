/* SPDX-License-Identifier: Apache-2.0
 * choose.h - one token by the sampler, for tests of it. After cmocka. */
#ifndef PROA_TESTS_CHOOSE_H
#define PROA_TESTS_CHOOSE_H

#include "engine/decode/sampler.h"

/* The token at `position` of logits[n], by the seed of the options. */
static inline proa_sample choose(proa_sampler_scratch *s, const float *logits, int64_t n, int64_t position,
                                 const proa_options *o)
{
    proa_sampler_row row = {
        .logits = logits, .position = position, .options = o, .seed = o->seed, .logprobs = o->logprobs};
    assert_int_equal(proa_sampler_choose(s, &row, n), PROA_OK);
    return row.out;
}

#endif
