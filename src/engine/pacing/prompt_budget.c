/* SPDX-License-Identifier: Apache-2.0
 * prompt_budget.c - how many rows of prompts a step with decoding rows gets. */
#include "engine/pacing/prompt_budget.h"

#include "base/checked.h"
#include <math.h>

/* Until times are known, prompts get 1/FIRST_PART of the largest number of rows. */
enum { FIRST_PART = 4 };
/* Every n-th step has no prompts, which measures the time without them. n: until times are known; while most sequences
 * decode; otherwise. */
enum { PLAIN_FIRST = 2, PLAIN_MANY = 16, PLAIN_FEW = 64 };
/* Share of decoding sequences below which the bound grows. With 0.5 in its place the simulation of
 * tests/unit/engine/test_prompt_budget.c has streams that are 10 % more even, and prompts that wait 20 % longer. */
static const double FEW_DECODE = 0.9;

/* What a step may take, in ns. */
static double bound_of(const proa_prompt_budget *b, const proa_step_times *times, const proa_prompt_load *load)
{
    proa_step_shape all = load->decode;
    double running = (double)(load->decoding + load->in_prompt);
    all.decode_rows += load->in_prompt;
    double few = FEW_DECODE * running / (double)proa_max64(load->decoding, 1);
    return b->slowdown * fmax(1, few) * proa_step_time_of(times, &all);
}

/* The most rows with which the step is expected to keep the bound; no more than twice what was tried, beyond which
 * times are a guess. */
static double rows_in_time(const proa_prompt_budget *b, const proa_step_times *times, const proa_prompt_load *load)
{
    if (!proa_step_time_is_known(times)) return (double)b->most / FIRST_PART;
    proa_step_shape one = load->decode, many = load->decode;
    const int64_t more = 256;
    one.prompt_rows = 1, one.prompt_work = load->row_work, one.prompt_pairs = load->row_pairs;
    many.prompt_rows = 1 + more, many.prompt_work = (double)(1 + more) * load->row_work;
    many.prompt_pairs = (double)(1 + more) * load->row_pairs;
    double bound = bound_of(b, times, load), first = proa_step_time_of(times, &one);
    double each = (proa_step_time_of(times, &many) - first) / (double)more, tried = 2 * times->prompt_rows_tried;
    if (bound <= first) return 0;
    return each > 0 ? fmin(tried, 1 + (bound - first) / each) : tried;
}

int64_t proa_prompt_budget_rows(proa_prompt_budget *b, const proa_step_times *times,
                                const proa_prompt_load *load, int64_t room)
{
    if (!(b->slowdown > 0)) return proa_min64(b->most, room);
    int32_t plain = load->decoding >= load->in_prompt ? PLAIN_MANY : PLAIN_FEW;
    if (!proa_step_time_is_known(times)) plain = PLAIN_FIRST;
    if (++b->run >= plain) return b->run = 0;
    double rows = fmin((double)b->most, fmax(PROA_PROMPT_ROWS_LEAST, rows_in_time(b, times, load)));
    return proa_min64((int64_t)rows / PROA_PROMPT_ROWS_LEAST * PROA_PROMPT_ROWS_LEAST, room);
}
