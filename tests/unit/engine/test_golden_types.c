/* SPDX-License-Identifier: Apache-2.0
 * test_golden_types.c - every row of the model table in the other types of weights and activations (f16, bf16, int8,
 * fp8, int4), against the same engine in f32. The checkpoints are those of tests/golden/arch, or of a folder given as
 * the first argument; further arguments are the names of those that run.
 *
 * The checkpoints are tiny and random: each rounding is visible, and one may choose other experts of a mixture, which
 * stays in a recurrent state for some rows. So what is compared is the median row's error over all cases: the root of
 * the mean square of the difference over that of the row. A step that reads or writes a wrong type or layout gives
 * errors near or above 1. */
#include "golden_folders.h"

#include <float.h>

/* Limits of the median row's error, twice as much where rows have few numbers, such as classes. A weight of
 * these checkpoints is one of 32 to 128 in its sum, so roundings do not average out as they do in models of real sizes;
 * with 4 bits only a number that is not finite is an error. */
typedef struct type_case {
    const char *dtype, *quant;
    bool on_host;
    double limit;
} type_case;

static const type_case types[] = {
    {"f16", NULL, false, 0.02},  {"bf16", NULL, false, 0.15},    {"f32", "int8", true, 0.25},
    {"f32", "fp8", false, 0.70}, {"f32", "int4", true, DBL_MAX},
};
enum { FEW_NUMBERS = 16 };

/* Their activations, of up to 1e6, are beyond f16, in which a device has those of f16 and of quantised weights. */
static const char *const beyond_f16[] = {"mamba", "mamba_biased"};

static bool fits_type(const char *name, const type_case *t)
{
    if (!getenv("PROA_TEST_DEVICE") || strcmp(t->dtype, "bf16") == 0) return true;
    for (size_t i = 0; i < sizeof beyond_f16 / sizeof *beyond_f16; i++)
        if (strcmp(name, beyond_f16[i]) == 0) return false;
    return true;
}

/* The rows of all cases. */
typedef struct row_list {
    float *numbers; /* [count][columns] */
    int64_t count, columns;
} row_list;

static void add_case(proa_engine *engine, const proa_json *c, row_list *list)
{
    int64_t n = 0, dn = 0, tn = 0;
    outcome o = {0};
    int32_t *ids = golden_read_ids(proa_json_get(c, "input_ids"), &n);
    int32_t *decoder = golden_read_ids(proa_json_get(c, "decoder_input_ids"), &dn);
    int32_t *token_types = golden_read_ids(proa_json_get(c, "token_type_ids"), &tn);
    proa_request r = {.task = PROA_TASK_ROWS, .ids = ids, .ids_count = n};
    if (tn) r.type_ids = token_types;
    if (dn) r.decoder_ids = decoder, r.decoder_ids_count = dn;
    run_request(engine, r, &o);
    assert_int_equal(o.finish, PROA_FINISH_END);
    size_t have = (size_t)(list->count * o.columns), more = (size_t)(o.rows_count * o.columns);
    list->numbers = realloc(list->numbers, (have + more) * sizeof(float));
    memcpy(list->numbers + have, o.rows, more * sizeof(float));
    list->count += o.rows_count, list->columns = o.columns;
    outcome_release(&o);
    free(ids), free(decoder), free(token_types);
}

/* False: the engine says that the model has no such type. */
static bool rows_in_type(const char *path, const type_case *type, const proa_json *cases, row_list *list)
{
    proa_engine *engine = NULL;
    proa_err err = {.status = PROA_OK};
    proa_engine_options options = {.dtype = type->dtype, .quant = type->quant};
    options.device = getenv("PROA_TEST_DEVICE"), options.kv_tokens = 2048;
    proa_status status = proa_engine_open(&engine, path, &options, &err);
    if (status == PROA_UNSUPPORTED || status == PROA_INVALID) return print_message("%s\n", err.text), false;
    if (status != PROA_OK) fail_msg("%s", err.text);
    for (int64_t i = 0; i < proa_json_len(cases); i++) add_case(engine, proa_json_at(cases, i), list);
    proa_engine_close(engine);
    return true;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_error(const row_list *have, const row_list *want)
{
    int64_t rows = want->count, columns = want->columns;
    assert_int_equal(have->count, rows);
    assert_int_equal(have->columns, columns);
    double *errors = malloc((size_t)(rows ? rows : 1) * sizeof *errors);
    for (int64_t i = 0; i < rows; i++) {
        double difference = 0, square = 0;
        for (int64_t j = i * columns; j < (i + 1) * columns; j++) {
            double w = (double)want->numbers[j], d = (double)have->numbers[j] - w;
            difference += d * d, square += w * w;
        }
        errors[i] = sqrt(difference / (square > 0 ? square : 1));
    }
    qsort(errors, (size_t)rows, sizeof *errors, by_value);
    double middle = rows ? errors[rows / 2] : 0;
    free(errors);
    return middle;
}

static void in_types(void **state)
{
    const char *name = *state;
    char path[PROA_PATH_MAX];
    proa_json *json = golden_open(name, path);
    const proa_json *cases = proa_json_get(json, "cases");
    row_list want = {0};
    int failed = 0;
    assert_true(rows_in_type(path, &(type_case){"f32", NULL, true, 0}, cases, &want));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const type_case *t = &types[i];
        row_list have = {0};
        if ((!t->on_host && !getenv("PROA_TEST_DEVICE")) || !fits_type(name, t)) continue;
        if (!rows_in_type(path, t, cases, &have)) continue;
        double error = median_error(&have, &want);
        print_message("%s %s: %.4f\n", name, t->quant ? t->quant : t->dtype, error);
        bool few = want.columns < FEW_NUMBERS;
        failed += !(error <= (few ? 2 : 1) * t->limit);
        free(have.numbers);
    }
    free(want.numbers);
    proa_json_free(json);
    assert_int_equal(failed, 0);
}

int main(int argc, char **argv)
{
    return golden_run_folders("golden_types", in_types, argc, argv);
}
