/* SPDX-License-Identifier: Apache-2.0
 * cmd_convert.c - `proa convert`: writes a model in another form, and compares the result with the source. */
#include "cli/convert/convert.h"

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "convert/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(convert_options, field)
static const proa_arg convert_rows[] = {
    {"MODEL", PROA_ARG_OPERAND, AT(common.model), 0, 0, NULL, NULL,
     "a folder of Hugging Face, OpenNMT-py or FasterTransformer, or a .gguf file"},
    {"OUT", PROA_ARG_OPERAND, AT(out), 0, 0, NULL, NULL, "the folder or file to write"},
    {"to", PROA_ARG_CHOICE, AT(to), 0, 0, "hf|gguf|ft", NULL,
     "the form: a folder of Hugging Face, a GGUF file, a folder of FasterTransformer (default: gguf if OUT "
     "ends so, "
     "else hf)"},
    {"type", PROA_ARG_CHOICE, AT(type), 0, 0, "f32|f16|bf16|q8_0|q4_0", NULL,
     "of the matrices of a GGUF file (default: --dtype)"},
    {"ranks", PROA_ARG_INT, AT(ranks), 1, 256, "N", "1", "of a folder of FasterTransformer: files for N GPUs"},
    {"dtype", PROA_ARG_CHOICE, AT(dtype), 0, 0, "f32|f16|bf16", NULL,
     "type of the written numbers; without it as stored, quantised ones as config.json says, or f16"},
    {"shard-size", PROA_ARG_TEXT, AT(shard_size), 0, 0, "SIZE", "5GB",
     "bytes of a safetensors file at most; 0: one file"},
    {"overwrite", PROA_ARG_FLAG, AT(overwrite), 0, 0, NULL, NULL, "replace what is at OUT"},
    {"threads", PROA_ARG_INT, AT(common.threads), 0, 1024, "N", NULL, "threads that decode (0: all CPUs)"},
};
static const proa_arg_table convert_args = PROA_ARG_TABLE("options", convert_rows);

/* "5GB", "500MB", "1.5GiB", "1000000": bytes. */
static proa_status parse_size(int64_t *out, const char *text, proa_err *err)
{
    static const struct {
        const char *name;
        double bytes;
    } units[] = {{"", 1},      {"B", 1},      {"KB", 1e3},        {"MB", 1e6},          {"GB", 1e9},
                 {"TB", 1e12}, {"KiB", 1024}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}};
    char *end;
    double number = strtod(text, &end);
    for (size_t i = 0; i < PROA_COUNT(units); i++) {
        double bytes = number * units[i].bytes;
        if (strcmp(end, units[i].name) != 0 || end == text || !(bytes >= 0 && bytes < 1e18)) continue;
        *out = (int64_t)bytes;
        return PROA_OK;
    }
    return PROA_FAIL(err, INVALID, "--shard-size '%.40s' is no size such as 5GB or 500MiB", text);
}

static bool show_progress(void *context, int64_t done, int64_t total)
{
    proa_progress *p = context;
    if (proa_progress_due(p)) {
        char have[16], all[16];
        proa_progress_show(p, total ? (double)done / (double)total : 1, "converting  %s of %s",
                           proa_output_bytes_text(have, (double)done),
                           proa_output_bytes_text(all, (double)total));
    }
    return !proa_interrupted();
}

static proa_status make_job(proa_convert_job *job, const convert_options *o, proa_err *err)
{
    *job = (proa_convert_job){.in = o->common.model, .out = o->out, .overwrite = o->overwrite};
    job->format = o->type, job->ranks = (int32_t)o->ranks;
    job->dtype_given = o->dtype && proa_dtype_find(proa_str_c(o->dtype), &job->dtype);
    return parse_size(&job->shard_bytes, o->shard_size, err);
}

/* The writer of the form that --to names, or that the ending of OUT means. */
static proa_status write_form(const convert_options *o, const proa_convert_job *job, proa_err *err)
{
    static const struct {
        const char *name;
        proa_status (*write)(const proa_convert_job *job, proa_err *err);
    } forms[] = {{"hf", proa_convert_hf}, {"gguf", proa_convert_gguf}, {"ft", proa_convert_ft}};
    bool gguf = proa_str_ends(proa_str_c(o->out), proa_str_c(".gguf"));
    const char *form = o->to ? o->to : gguf ? "gguf" : "hf";
    if (o->type && strcmp(form, "gguf") != 0)
        return PROA_FAIL(err, INVALID, "--type is for GGUF files; of other forms --dtype chooses");
    for (size_t i = 0; i < PROA_COUNT(forms); i++)
        if (strcmp(forms[i].name, form) == 0) return forms[i].write(job, err);
    return PROA_FAIL(err, INVALID, "--to '%s' is not known", form);
}

static proa_status write_out(const convert_options *o, proa_convert_job *job, proa_err *err)
{
    proa_weights *weights;
    proa_progress progress;
    PROA_TRY(proa_weights_open(&weights, o->common.model, err));
    proa_progress_init(&progress);
    job->weights = weights, job->files = proa_weights_files(weights);
    job->pool = proa_pool_new((int)o->common.threads);
    job->progress = show_progress, job->context = &progress;
    proa_status status = write_form(o, job, err);
    proa_progress_clear(&progress);
    proa_pool_free(job->pool);
    proa_weights_close(weights);
    return status;
}

static proa_status convert(const convert_options *o, proa_err *err)
{
    proa_convert_job job;
    PROA_TRY(make_job(&job, o, err));
    return write_out(o, &job, err);
}

static int convert_command(const proa_command *self, int argc, char **argv)
{
    convert_options o = {.out = NULL};
    proa_err err = {0};
    int exit_status = proa_args_parse(self, &o, argc, argv);
    if (exit_status >= 0) return exit_status;
    proa_interrupt_watch();
    return convert(&o, &err) == PROA_OK ? PROA_EXIT_OK : proa_cli_fail_err(&err);
}

static const proa_arg_table *const convert_tables[] = {&convert_args, NULL};
const proa_command proa_cmd_convert = {
    .name = "convert",
    .summary = "write a model in another form",
    .examples = "  proa convert model.gguf model-hf\n"
                "  proa convert models/llama-gptq models/llama-bf16 --dtype bf16\n"
                "  proa convert models/gpt-ft models/gpt2 --shard-size 2GB\n"
                "  proa convert models/llama llama-q8_0.gguf --type q8_0\n"
                "  proa convert models/gptj models/gptj-ft --to ft --ranks 2 --dtype f16\n",
    .tables = convert_tables,
    .run = convert_command,
};
