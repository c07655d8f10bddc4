/* SPDX-License-Identifier: Apache-2.0
 * cmd_tune.c - `proa tune`: on a GPU runs the model at every bucket of rows, so that the plug-in times the
 * matrix products and stores the fastest algorithms; on the CPU compares instruction set levels (tune_cpu.c). */
#include "base/checked.h"
#include "base/limits.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/bench/tune.h"
#include "engine/access.h"
#include "kernels/device.h"
#include "kernels/tune.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

enum { DECODING_MAX = 256, WARM_TOKENS = 3, ROWS_DEFAULT = 2048 };

#define AT(field) offsetof(proa_tuner, field)
static const proa_arg tune_rows[] = {
    PROA_MODEL_ARG,
    {"rows", PROA_ARG_INT, AT(rows), 1, PROA_STEP_TOKENS_MAX, "N", "2048",
     "token rows of the widest pass that is tuned for (on the CPU: at most 64)"},
    {"again", PROA_ARG_FLAG, AT(again), 0, 0, NULL, NULL,
     "forget what was timed before, of other models on this GPU too"},
};
#undef AT
static const proa_arg_table tune_args = PROA_ARG_TABLE("options", tune_rows);

/* ---- passes of every width ---- */

static void on_event(const proa_event *e)
{
    bool *failed = e->arg;
    if (e->kind == PROA_EVENT_DONE && e->error) *failed = true;
}

/* `count` sequences of `rows` tokens together; each then decodes `tokens` times. */
static proa_status run_pass(const proa_session *s, int64_t rows, int64_t count, int32_t tokens, proa_err *err)
{
    bool failed = false;
    for (int64_t i = 0; i < count; i++) {
        int64_t n = rows / count + (i < rows % count), given = 0;
        int32_t ids[PROA_STEP_TOKENS_MAX];
        uint64_t id;
        for (; given < n; given++) ids[given] = (int32_t)((given * 7919 + i * 104729 + 17) % s->info.vocab);
        proa_engine_end_prompt(s->engine, ids, n);
        proa_request request = {.task = s->info.kind == PROA_KIND_ENCODER ? PROA_TASK_ROWS : PROA_TASK_GENERATE,
                                .ids = ids,
                                .ids_count = n,
                                .on_event = on_event,
                                .arg = &failed,
                                .options = {.max_tokens = tokens, .ignore_eos = true}};
        PROA_TRY(proa_engine_submit(s->engine, &request, &id, err));
    }
    while (proa_engine_step(s->engine))
        if (proa_interrupted()) return PROA_FAIL(err, CANCELLED, "cancelled");
    return failed ? PROA_FAIL(err, INTERNAL, "a pass of %lld rows failed", (long long)rows) : PROA_OK;
}

/* Prompts cover every width; sequences that decode together cover decode steps and the head. */
static proa_status run_passes(const proa_tuner *t, const proa_session *s, proa_err *err)
{
    proa_progress progress;
    proa_progress_init(&progress);
    proa_status status = PROA_OK;
    int64_t longest = proa_max64(1, (int64_t)s->info.context - WARM_TOKENS);
    for (int64_t rows = 2; rows <= t->rows && status == PROA_OK; rows = proa_tune_bucket(rows + 1)) {
        proa_progress_show(&progress, (double)rows / (double)t->rows, "timing products of %lld rows",
                           (long long)rows);
        status = run_pass(s, rows, proa_ceil_div(rows, longest), 1, err);
        if (status == PROA_OK && s->info.kind != PROA_KIND_ENCODER && rows <= DECODING_MAX)
            status = run_pass(s, rows, rows, WARM_TOKENS, err);
    }
    proa_progress_clear(&progress);
    return status;
}

/* ---- the report ---- */

/* Sums between ranks in processes: tune.h. */
static void show_sums(const proa_tune_entry *e, proa_output *out)
{
    if (e->algorithm[0] == UINT64_MAX)
        proa_output_printf(out, "sums of %lld ranks: memory (%.1f us, NCCL %.1f us for the largest)\n",
                           (long long)e->key[2], (double)e->first_us, (double)e->us);
    else
        proa_output_printf(
            out, "sums of %lld ranks: NCCL from %llu bytes on (%.1f us, memory %.1f us for the largest)\n",
            (long long)e->key[2], (unsigned long long)e->algorithm[0], (double)e->us, (double)e->first_us);
}

static bool is_product(const proa_tune_entry *e)
{
    return e->key[1] > 0;
}

static void show_entries(const proa_tune *now, const proa_tune *before, proa_output *out)
{
    double gain = 0;
    int64_t new_choices = 0, better = 0;
    for (int64_t i = 0; i < now->count; i++) {
        const proa_tune_entry *e = &now->entry[i];
        if (proa_tune_find(before, e->key)) continue;
        if (!is_product(e)) {
            show_sums(e, out);
            continue;
        }
        if (!new_choices++)
            proa_output_str(out, "   rows        N        K   first guess, us   chosen, us   gain\n");
        double part = 1 - (double)e->us / (double)e->first_us;
        proa_output_printf(out, "%7lld  %7lld  %7lld  %16.1f  %11.1f  %4.0f %%\n", (long long)e->key[0],
                           (long long)e->key[1], (long long)e->key[2], (double)e->first_us, (double)e->us,
                           part * 100);
        gain += part;
        better += e->us < e->first_us;
    }
    if (new_choices)
        proa_output_printf(out,
                           "\n%lld products timed, %lld of them faster than the library's first guess, "
                           "by %.0f %% in the mean of all\n",
                           (long long)new_choices, (long long)better, 100 * gain / (double)new_choices);
    else proa_output_str(out, "every product of this model had been timed before\n");
}

static void show_json(const proa_tune *now, const proa_tune *before, const char *path, proa_output *out)
{
    bool first = true;
    proa_output_str(out, "{\"file\":");
    proa_output_json_str(out, proa_str_c(path));
    proa_output_str(out, ",\"timed_on\":");
    proa_output_json_str(out, proa_str_c(now->identity));
    proa_output_printf(out, ",\"known\":%lld,\"timed\":[", (long long)now->count);
    for (int64_t i = 0; i < now->count; i++) {
        const proa_tune_entry *e = &now->entry[i];
        if (!is_product(e) || proa_tune_find(before, e->key)) continue;
        proa_output_printf(out, "%s{\"rows\":%lld,\"N\":%lld,\"K\":%lld,\"us\":%.3f,\"first_us\":%.3f}",
                           first ? "" : ",", (long long)e->key[0], (long long)e->key[1], (long long)e->key[2],
                           (double)e->us, (double)e->first_us);
        first = false;
    }
    proa_output_str(out, "]}\n");
}

static proa_status show_tuner(const proa_tuner *t, const char *path, const proa_tune *before, proa_err *err)
{
    proa_tune now;
    proa_output out;
    proa_status status = proa_tune_look(&now, path, err);
    if (status == PROA_OK) status = proa_output_open(&out, NULL, err);
    if (status == PROA_OK) {
        if (t->common.json) show_json(&now, before, path, &out);
        else {
            show_entries(&now, before, &out);
            proa_output_printf(&out, "kept in %s\n(%s)\n", path, now.identity);
        }
        status = proa_output_close(&out, err);
    }
    proa_tune_release(&now);
    return status;
}

/* ---- the command ---- */

static proa_status find_file(char path[PROA_PATH_MAX], const char *name, proa_err *err)
{
    proa_device *d;
    PROA_TRY(proa_device_open(&d, name, err));
    bool found = d->tuning != NULL;
    if (found) snprintf(path, PROA_PATH_MAX, "%s", d->tuning);
    proa_device_close(d);
    return found ? PROA_OK
                 : PROA_FAIL(err, NOT_FOUND,
                             "there is no folder to keep what is timed in: set XDG_CACHE_HOME or HOME");
}

static proa_status run_on_gpu(const proa_tuner *t, proa_engine_options *options, proa_err *err)
{
    proa_session session;
    int64_t decoding = proa_min64(t->rows, DECODING_MAX), each = 2 * PROA_PAGE_TOKENS;
    if (!options->step_tokens) options->step_tokens = (int32_t)proa_max64(t->rows, 1);
    if (!options->sequences_max) options->sequences_max = (int32_t)decoding;
    if (!options->prefix_cache) options->prefix_cache = "off"; /* all prompts are to be computed */
    if (!options->kv_tokens && !(options->kv_share > 0))
        options->kv_tokens = proa_max64(2 * t->rows, decoding * each) + each;
    PROA_TRY(proa_session_open(&session, &t->common, options, err));
    proa_status status = run_passes(t, &session, err);
    proa_session_close(&session); /* writes the file */
    return status;
}

static proa_status tune_gpu(const proa_tuner *t, proa_err *err)
{
    char path[PROA_PATH_MAX];
    proa_tune before;
    proa_engine_options options;
    PROA_TRY(proa_session_options(&options, &t->common, err));
    setenv("PROA_TUNE", "all", 1); /* read by the plug-in when it opens the device */
    PROA_TRY(find_file(path, t->common.device, err));
    if (t->again && unlink(path) != 0 && errno != ENOENT)
        return PROA_FAIL(err, IO, "cannot remove '%s': %s", path, strerror(errno));
    if (proa_tune_look(&before, path, NULL) != PROA_OK)
        proa_tune_release(&before); /* none, or one that is ignored */
    proa_status status = run_on_gpu(t, &options, err);
    if (status == PROA_OK) status = show_tuner(t, path, &before, err);
    proa_tune_release(&before);
    return status;
}

static int tune_command(const proa_command *self, int argc, char **argv)
{
    proa_tuner t = {.rows = ROWS_DEFAULT};
    proa_err err = {0};
    int exit_status = proa_args_parse(self, &t, argc, argv);
    if (exit_status >= 0) return exit_status;
    proa_interrupt_watch();
    proa_status status = strcmp(t.common.device, "cpu") == 0 ? proa_tune_cpu(&t, &err) : tune_gpu(&t, &err);
    return status == PROA_OK ? PROA_EXIT_OK : proa_cli_fail_err(&err);
}

static const proa_arg_table *const tune_tables[] = {&tune_args, &proa_engine_args, &proa_common_args, NULL};
const proa_command proa_cmd_tune = {
    .name = "tune",
    .summary = "time the matrix products of a model and store the fastest algorithms for this GPU",
    .examples = "  proa tune models/m30k-t5 --device cuda\n"
                "  proa tune --synthetic gptj-6b --device cuda --rows 4096\n"
                "  proa tune models/classics-10m\n",
    .tables = tune_tables,
    .run = tune_command,
};
