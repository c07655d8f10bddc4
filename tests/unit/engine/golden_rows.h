/* SPDX-License-Identifier: Apache-2.0
 * golden_rows.h - ids and rows of a golden.json, compared with the engine's: for the tests of goldens and of
 * adapters. */
#ifndef PROA_TESTS_GOLDEN_ROWS_H
#define PROA_TESTS_GOLDEN_ROWS_H

#include "engine_test.h"

#define GOLDEN_TOLERANCE 1e-4 /* of the largest value of a row */

/* The caller frees them. */
static inline int32_t *golden_read_ids(const proa_json *list, int64_t *count)
{
    *count = proa_json_len(list);
    int32_t *ids = malloc((size_t)(*count ? *count : 1) * sizeof *ids);
    for (int64_t i = 0; i < *count; i++) ids[i] = (int32_t)proa_json_int(proa_json_at(list, i));
    return ids;
}

static inline void golden_compare_row(const char *what, const float *have, const proa_json *want, int64_t columns)
{
    double largest = 0, worst = 0;
    assert_int_equal(proa_json_len(want), columns);
    for (int64_t i = 0; i < columns; i++) {
        double w = proa_json_double(proa_json_at(want, i));
        largest = fmax(largest, fabs(w));
        worst = fmax(worst, fabs(w - (double)have[i]));
    }
    if (!(worst <= GOLDEN_TOLERANCE * largest))
        fail_msg("%s: differs by %.3g, %.3g of the largest", what, worst, worst / largest);
}

/* A case of an adapter's golden.json (tests/golden/adapters, prompt_tables): logits of the first and the last row of
 * input_ids, or of decoder_ids if there are any, and the greedy tokens behind them. */
static inline void golden_check_adapter(proa_engine *engine, const char *adapter, const proa_json *c)
{
    int64_t n, decoder_count, want_count;
    outcome rows = {0}, text = {0};
    int32_t *ids = golden_read_ids(proa_json_get(c, "input_ids"), &n);
    int32_t *decoder = golden_read_ids(proa_json_get(c, "decoder_ids"), &decoder_count);
    int32_t *want = golden_read_ids(proa_json_get(c, "greedy"), &want_count);
    proa_request r = {.task = PROA_TASK_ROWS, .ids = ids, .ids_count = n, .options = {.adapter = adapter}};
    if (decoder_count) r.decoder_ids = decoder, r.decoder_ids_count = decoder_count;
    run_request(engine, r, &rows);
    int64_t last = (decoder_count ? decoder_count : n) - 1;
    assert_int_equal(rows.rows_count, last + 1); /* none of a prompt table's tokens */
    golden_compare_row("logits_first", rows.rows, proa_json_get(c, "logits_first"), rows.columns);
    golden_compare_row("logits_last", rows.rows + last * rows.columns, proa_json_get(c, "logits_last"),
                       rows.columns);
    r.task = PROA_TASK_GENERATE;
    r.options = (proa_options){.max_tokens = (int32_t)want_count, .ignore_eos = true, .adapter = adapter};
    if (want_count) run_request(engine, r, &text); /* an encoder generates nothing */
    assert_int_equal(text.count, want_count);
    assert_memory_equal(text.ids, want, (size_t)want_count * sizeof *want);
    outcome_release(&rows), outcome_release(&text);
    free(ids), free(decoder), free(want);
}
#endif
