/* SPDX-License-Identifier: Apache-2.0
 * cmd_bench.c - `proa bench`: its options, and the loop over batch sizes. */
#include "base/checked.h"
#include "base/cpu.h"
#include "base/limits.h"
#include "base/thread.h"
#include "cli/bench/bench.h"
#include "cli/commands.h"
#include "engine/access.h"
#include "model/model.h"
#include "engine/memory.h"
#include <math.h>
#include <string.h>

enum { WARM_UP_STEPS = 16 };

#define AT(field) offsetof(proa_bench, field)
static const proa_arg bench_rows[] = {
    PROA_MODEL_ARG,
    {"batches", PROA_ARG_TEXT, AT(batches_text), 0, 0, "N,N,...", "1,4,16,64", "batch sizes to measure"},
    {"prompt", PROA_ARG_INT, AT(prompt), 1, PROA_CONTEXT_MAX, "N", "128",
     "prompt length in tokens (random tokens from --seed)"},
    {"tokens", PROA_ARG_INT, AT(tokens), 1, PROA_CONTEXT_MAX, "N", "64", "decoding steps to time"},
    {"repeats", PROA_ARG_INT, AT(repeats), 1, 100, "N", "3", "runs of each batch size; the median is reported"},
    {"temperature", PROA_ARG_REAL, AT(temperature), 0, 100, "X", "0", "sampling temperature; 0: greedy"},
    {"top-k", PROA_ARG_INT, AT(top_k), 0, PROA_VOCAB_MAX, "N", "0",
     "sample among the N most likely tokens; 0: all"},
    {"adapters", PROA_ARG_INT, AT(adapters), 0, PROA_LORA_SLOTS_MAX, "N", "0",
     "N random low-rank adapters, sequence i with number i modulo N (--lora-rank, 16 if 0)"},
    {"adapter-modules", PROA_ARG_TEXT, AT(adapter_modules), 0, 0, "NAME,...", NULL,
     "modules that they change, like q_proj,v_proj; without it all"},
    {"plot", PROA_ARG_TEXT, AT(plot), 0, 0, "FILE.svg", NULL,
     "plot the rate by batch size under the measured limit"},
    {"csv", PROA_ARG_FLAG, AT(csv), 0, 0, NULL, NULL, "print CSV with a header line"},
};
#undef AT
static const proa_arg_table bench_args = PROA_ARG_TABLE("options", bench_rows);

/* exact f32 does not run on tensor cores, so there is no peak rate to measure */
static double matrix_rate(proa_device *d, proa_wfmt format)
{
    if (!d->matrix_rate || format == PROA_WFMT_F32) return 0;
    double fp8 = format == PROA_WFMT_FP8 ? d->matrix_rate(d, PROA_DTYPE_FP8) : 0;
    return fp8 > 0 ? fp8 : d->matrix_rate(d, format == PROA_WFMT_BF16 ? PROA_DTYPE_BF16 : PROA_DTYPE_F16);
}

/* The plan knows what a step reads: it is made again without loading the model. */
static proa_status read_plan(proa_bench *b, proa_info *info, proa_err *err)
{
    proa_model *model = NULL;
    proa_device *device;
    proa_pool *pool = proa_pool_new(1);
    proa_model_options options = {.dtype = b->common.dtype,
                                  .quant = b->common.quant,
                                  .kv_dtype = b->common.kv_dtype,
                                  .rows_max = 1,
                                  .head_rows = 1};
    proa_status status = proa_device_open(&device, b->common.device, err);
    if (status == PROA_OK) status = proa_model_prepare(&model, b->common.model, &options, device, pool, err);
    if (status == PROA_OK) {
        proa_bench_cost_of(&b->cost, model);
        b->matrix_rate = matrix_rate(device, model->formats.main);
        info->kind = model->arch->kind;
        info->context = (int32_t)model->config.context;
    }
    proa_model_free(model);
    proa_device_close(device);
    proa_pool_free(pool);
    return status;
}

static int64_t largest_batch(const proa_bench *b)
{
    int64_t most = 0;
    for (int64_t i = 0; i < b->count; i++) most = proa_max64(most, b->batches[i]);
    return most;
}

static proa_status check_context(const proa_bench *b, proa_err *err)
{
    int64_t most = largest_batch(b), context = b->session->info.context;
    int64_t need = b->prompt;
    if (b->session->info.kind == PROA_KIND_DECODER) need += proa_bench_max_tokens(b, most);
    if (need <= context) return PROA_OK;
    return PROA_FAIL(err, INVALID,
                     "--prompt %lld and --tokens %lld with a batch of %lld take %lld tokens a sequence, the "
                     "context has %lld",
                     (long long)b->prompt, (long long)b->tokens, (long long)most, (long long)need,
                     (long long)context);
}

/* The engine is opened for the largest batch unless the user set its size. */
static proa_status engine_options(proa_bench *b, const proa_info *info, proa_engine_options *options,
                                  proa_err *err)
{
    proa_session not_open = {.info = *info}; /* enough for the sums: nothing is loaded yet */
    b->session = &not_open;
    int64_t most = largest_batch(b);
    bool encoder = info->kind == PROA_KIND_ENCODER;
    if (encoder) most = proa_min64(2 * most, PROA_SEQUENCES_MAX); /* the next batch is queued too */
    if (!options->sequences_max) options->sequences_max = (int32_t)most;
    if (!options->policy)
        options->policy = "guaranteed_no_evict"; /* there is room for just these sequences */
    if (!options->step_tokens && !encoder)       /* given, it holds for prompts beside tokens, too */
        options->step_tokens = proa_sizes_step_tokens(options->device, false);
    if (!options->prefix_cache)
        options->prefix_cache = "off"; /* all prompts are alike, and are to be computed */
    if (!options->kv_tokens && !(options->kv_share > 0))
        options->kv_tokens = most * proa_bench_sequence_tokens(b, most);
    proa_status status = check_context(b, err);
    b->session = NULL;
    return status;
}

/* The first batch from which doubling gives less than a fifth more. */
static int find_knee(const proa_bench *b)
{
    for (int i = 1; i < b->count; i++) {
        const proa_bench_row *r = &b->row[i], *before = &b->row[i - 1];
        double doublings = log2((double)r->batch / (double)before->batch);
        double gain = (r->decode_rate + r->sequence_rate) / (before->decode_rate + before->sequence_rate);
        if (doublings > 0 && pow(gain, 1 / doublings) < 1.2) return i - 1;
    }
    return -1;
}

static proa_status measure_all(proa_bench *b, proa_err *err)
{
    proa_progress progress;
    proa_progress_init(&progress);
    proa_status status = PROA_OK;
    /* The first run touches memory for the first time, and in the second a device records its CUDA graphs:
     * neither counts. */
    int warm_ups = b->common.device && strcmp(b->common.device, "cpu") != 0 ? 2 : 1;
    proa_bench few = *b;
    few.tokens = proa_min64(b->tokens, WARM_UP_STEPS);
    few.repeats = 1;
    proa_bench_row warm_up = {.batch = b->batches[0]};
    for (int i = 0; i < warm_ups && status == PROA_OK; i++) status = proa_bench_measure(&few, &warm_up, err);
    for (int64_t i = 0; i < b->count && status == PROA_OK; i++) {
        proa_progress_show(&progress, (double)i / (double)b->count, "batch %d", b->batches[i]);
        b->row[i] = (proa_bench_row){.batch = b->batches[i]};
        status = proa_bench_measure(b, &b->row[i], err);
    }
    proa_progress_clear(&progress);
    b->knee = find_knee(b);
    return status;
}

static proa_status write_plot(const proa_bench *b, proa_err *err)
{
    proa_output out;
    PROA_TRY(proa_output_open(&out, b->plot, err));
    proa_bench_show_plot(b, &out);
    return proa_output_close(&out, err);
}

static proa_status bench_with(proa_bench *b, proa_err *err)
{
    const proa_info *i = &b->session->info;
    proa_output out;
    b->token_bytes = i->kv_tokens > 0 ? (double)i->kv_bytes / (double)i->kv_tokens : 0;
    b->cache_bytes = proa_cpu_cache_bytes();
    PROA_TRY(measure_all(b, err));
    PROA_TRY(proa_output_open(&out, NULL, err));
    if (b->common.json) proa_bench_show_json(b, &out);
    else if (b->csv) proa_bench_show_csv(b, &out);
    else proa_bench_show_table(b, &out);
    PROA_TRY(proa_output_close(&out, err));
    return b->plot ? write_plot(b, err) : PROA_OK;
}

static proa_status bench_batches(proa_bench *b, proa_err *err)
{
    proa_info info = {.context = 0};
    proa_engine_options options;
    proa_session session;
    PROA_TRY(proa_args_numbers(&b->batches, &b->count, b->batches_text, "--batches", 1, PROA_SEQUENCES_MAX,
                               PROA_BENCH_BATCHES_MAX, err));
    if (b->count == 0) return PROA_FAIL(err, INVALID, "--batches is empty");
    PROA_TRY(proa_output_check(b->plot, err));                 /* before measuring, which may take minutes */
    PROA_TRY(proa_session_options(&options, &b->common, err)); /* a wrong device is reported before anything is read */
    PROA_TRY(read_plan(b, &info, err));
    PROA_TRY(engine_options(b, &info, &options, err));
    if (b->adapters) options.adapter_slots = options.adapters_max = (int32_t)b->adapters;
    b->bandwidth = proa_session_bandwidth(&b->common);
    PROA_TRY(proa_session_open(&session, &b->common, &options, err));
    b->session = &session;
    int32_t rank = b->common.lora_rank ? (int32_t)b->common.lora_rank : 16;
    proa_status status = proa_engine_random_adapters(session.engine, (int32_t)b->adapters, b->adapter_modules,
                                                     rank, err);
    if (status == PROA_OK) status = bench_with(b, err);
    proa_session_close(&session);
    return status;
}

static int bench_command(const proa_command *self, int argc, char **argv)
{
    proa_bench b = {.knee = -1};
    proa_err err = {0};
    int exit_status = proa_args_parse(self, &b, argc, argv);
    if (exit_status >= 0) return exit_status;
    proa_interrupt_watch();
    proa_status status = bench_batches(&b, &err);
    free(b.batches);
    return status == PROA_OK ? PROA_EXIT_OK : proa_cli_fail_err(&err);
}

static const proa_arg_table *const bench_tables[] = {&bench_args, &proa_engine_args, &proa_common_args, NULL};
const proa_command proa_cmd_bench = {
    .name = "bench",
    .summary = "measure latency and throughput by batch size, compared with the measured read bandwidth",
    .examples = "  proa bench models/classics-10m\n"
                "  proa bench models/classics-10m --batches 1,2,4,8,16,32,64 --plot decode.svg\n"
                "  proa bench models/polarity-bert --prompt 64 --json\n",
    .tables = bench_tables,
    .run = bench_command,
};
