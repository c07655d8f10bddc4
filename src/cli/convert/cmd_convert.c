/* SPDX-License-Identifier: Apache-2.0
 * cmd_convert.c - `proa convert`: writes a model in another form, and compares the result with the source. */
#include "cli/convert/convert.h"

#include "cli/commands.h"
#include "cli/convert/probe.h"
#include "cli/output.h"

#include <stdlib.h>
#include <string.h>

#define AT(field) offsetof(convert_options, field)
static const proa_arg convert_rows[] = {
    {"MODEL", PROA_ARG_OPERAND, AT(common.model), PROA_ARG_MODEL, 0, NULL, NULL,
     "a folder of Hugging Face, OpenNMT-py or FasterTransformer, a .gguf file, or ORG/NAME on a hub"},
    {"OUT", PROA_ARG_OPERAND, AT(out), 0, 0, NULL, NULL, "the folder or file to write"},
    {"to", PROA_ARG_CHOICE, AT(to), 0, 0, "hf|packed|gguf|ft", NULL,
     "hf: a folder of Hugging Face; packed: weights in the layout of the kernels; gguf: one file; ft: a "
     "folder of "
     "FasterTransformer (default: gguf if OUT ends in .gguf, else hf)"},
    {"type", PROA_ARG_CHOICE, AT(type), 0, 0, "f32|f16|bf16|q8_0|q4_0", NULL,
     "gguf: type of the matrices (default: --dtype)"},
    {"ranks", PROA_ARG_INT, AT(ranks), 1, 256, "N", "1", "packed, ft: parts for N devices that share each layer"},
    {"dtype", PROA_ARG_CHOICE, AT(dtype), 0, 0, "f32|f16|bf16", NULL,
     "type of the written numbers; without it as stored, quantised ones as config.json says, or f16"},
    {"quant", PROA_ARG_CHOICE, AT(common.quant), 0, 0, "none|int8|fp8|int4", NULL,
     "packed: quantise the weights as 'proa run --quant' does; --calibrate: the codes (default: int4)"},
    {"device", PROA_ARG_DEVICE, AT(common.device), 0, 0, "cpu|cuda[:N]", "cpu",
     "packed: the device that it is for; the probe runs there"},
    {"shard-size", PROA_ARG_TEXT, AT(shard_size), 0, 0, "SIZE", "5GB",
     "hf: bytes of a safetensors file at most; 0: one file"},
    {"calibrate", PROA_ARG_TEXT, AT(calibrate), 0, 0, "FILE", NULL,
     "hf: quantise the matrices of the layers by what this text shows of their inputs: plain text for "
     "decoders, "
     "else one input a line (encoder-decoders: input, tab, output)"},
    {"method", PROA_ARG_CHOICE, AT(method), 0, 0, "rtn|gptq|awq|awq-gptq|smoothquant", NULL,
     "with --calibrate: how codes are chosen; awq is for int4, smoothquant for int8 (default: gptq)"},
    {"group", PROA_ARG_INT, AT(group), 32, 4096, "N", NULL,
     "with --calibrate and int4: inputs that share a scale (default: 32)"},
    {"zero-points", PROA_ARG_FLAG, AT(zero_points), 0, 0, NULL, NULL,
     "with --calibrate and int4: a zero point for each group"},
    {"prefix", PROA_ARG_TEXT, AT(prefix), 0, 0, "TEXT", NULL, "with --calibrate: put before each line"},
    {"calibrate-tokens", PROA_ARG_INT, AT(calibrate_tokens), 128, (int64_t)1 << 40, "N", "65536",
     "with --calibrate: tokens of the text at most"},
    {"overwrite", PROA_ARG_FLAG, AT(overwrite), 0, 0, NULL, NULL, "replace what is at OUT"},
    {"no-probe", PROA_ARG_FLAG, AT(no_probe), 0, 0, NULL, NULL, "do not compare the result with the source"},
    {"threads", PROA_ARG_INT, AT(common.threads), 0, PROA_THREADS_MAX, "N", "0",
     "worker threads; 0: all CPUs allowed to this process"},
    {"json", PROA_ARG_FLAG, AT(common.json), 0, 0, NULL, NULL, "print JSON to standard output"},
};
static const proa_arg_table convert_args = PROA_ARG_TABLE("options", convert_rows);

typedef struct form {
    const char *name;
    proa_status (*write)(const proa_convert_job *job, proa_err *err);
} form;

static const form forms[] = {{"hf", proa_convert_hf},
                             {"packed", proa_convert_packed},
                             {"gguf", proa_convert_gguf},
                             {"ft", proa_convert_ft}};

static const form *find_form(const char *name)
{
    const form *f = forms;
    while (strcmp(f->name, name) != 0) f++; /* the parser takes no other names */
    return f;
}

/* ---- the job ---- */

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
    job->device = o->common.device, job->quant = o->common.quant;
    job->format = o->type, job->ranks = (int32_t)o->ranks;
    if (o->type && strcmp(o->to, "gguf") != 0)
        return PROA_FAIL(err, INVALID, "--type is for GGUF files; of other forms --dtype chooses");
    if (o->common.quant && !o->calibrate && strcmp(o->to, "packed") != 0)
        return PROA_FAIL(
            err, INVALID, "--quant is for packed folders and with --calibrate; the type of GGUF files is --type");
    if (o->calibrate && strcmp(o->to, "hf") != 0)
        return PROA_FAIL(err, INVALID, "--calibrate writes folders of Hugging Face (--to hf)");
    job->dtype_given = o->dtype && proa_dtype_find(proa_str_c(o->dtype), &job->dtype);
    return parse_size(&job->shard_bytes, o->shard_size, err);
}

static bool has_codes(const proa_weights *w)
{
    bool found = false;
    for (int64_t i = 0; i < proa_weights_count(w) && !found; i++)
        found = !proa_tensor_source_is_float(&proa_weights_at(w, i)->source);
    return found;
}

static proa_status write_form(const convert_options *o, convert_result *r, proa_err *err)
{
    proa_convert_job job;
    proa_weights *weights;
    proa_progress progress;
    PROA_TRY(make_job(&job, o, err));
    PROA_TRY(proa_weights_open(&weights, o->common.model, err));
    proa_progress_init(&progress);
    r->codes = has_codes(weights);
    job.weights = weights, job.files = proa_weights_files(weights);
    job.pool = proa_pool_new((int)o->common.threads);
    job.progress = show_progress, job.context = &progress;
    proa_status status = o->calibrate ? calibration_write(o, &job, err) : find_form(o->to)->write(&job, err);
    proa_progress_clear(&progress);
    r->seconds = proa_progress_seconds(&progress);
    proa_pool_free(job.pool);
    proa_weights_close(weights);
    return status;
}

/* ---- the comparison ---- */

/* How far the logits may be from the source's, as a part of the largest: 0 where the same kernels run on the same
 * numbers. Rounding changes each weight by up to 2^-12 (f16) or 2^-9 (bf16) of itself, which trained models make 0.001
 * and 0.01 of; the bounds leave room for models of random weights. */
static double bound_of(const convert_options *o, const convert_result *r)
{
    static const struct {
        const char *type;
        double bound;
    } bounds[] = {{"f32", 1e-4}, {"f16", 0.1}, {"bf16", 0.3}, {"q8_0", 0.3}, {"q4_0", 1}};
    const char *type = o->type ? o->type : o->dtype ? o->dtype : r->codes ? "bf16" : "f32";
    if (o->calibrate) type = !o->common.quant || strcmp(o->common.quant, "int4") == 0 ? "q4_0" : "q8_0";
    size_t i = 0;
    if (strcmp(o->to, "packed") == 0) return 0;
    while (strcmp(bounds[i].type, type) != 0) i++; /* the parser takes no other names */
    return bounds[i].bound;
}

/* A packed folder runs in what it is packed in; other forms are compared in f32, so that only the written numbers
 * differ, and in their own types where there is not the memory for it. */
static proa_engine_options probe_options(const convert_options *o, bool f32)
{
    bool packed = strcmp(o->to, "packed") == 0;
    proa_engine_options options = {.threads = (int32_t)o->common.threads, .sequences_max = 1, .kv_tokens = 256};
    options.device = o->common.device;
    options.dtype = packed ? o->dtype : f32 ? "f32" : "exact";
    options.quant = packed ? o->common.quant : "none";
    options.tensor_parallel = packed ? (int32_t)o->ranks : 0;
    return options;
}

static proa_status run_probes(proa_probe pair[2], const convert_options *o, bool f32, proa_err *err)
{
    const char *models[2] = {o->common.model, o->out};
    proa_engine_options options = probe_options(o, f32);
    for (int i = 0; i < 2; i++) {
        if (proa_interrupted()) return PROA_FAIL(err, CANCELLED, "interrupted; '%s' is whole", o->out);
        PROA_TRY(proa_probe_run(&pair[i], models[i], &options, err));
    }
    return PROA_OK;
}

static proa_status compare_models(const convert_options *o, convert_result *r, proa_err *err)
{
    proa_probe pair[2] = {{.values = NULL}, {.values = NULL}};
    proa_err first = {.status = PROA_OK};
    proa_status status = run_probes(pair, o, true, &first);
    if (status == PROA_NO_MEMORY && strcmp(o->to, "packed") != 0) {
        for (int i = 0; i < 2; i++) proa_probe_release(&pair[i]);
        status = run_probes(pair, o, false, err);
    } else if (status != PROA_OK) *err = first;
    if (status == PROA_OK) status = proa_probe_compare(&r->probe, &pair[0], &pair[1], err);
    for (int i = 0; i < 2; i++) proa_probe_release(&pair[i]);
    if (status != PROA_OK) proa_err_prefix(err, "'%.100s' is written, but cannot be compared", o->out);
    return status;
}

static proa_status check_bound(const convert_options *o, const convert_result *r, proa_err *err)
{
    if (r->probe.difference <= r->bound) return PROA_OK; /* not so if it is NaN */
    return PROA_FAIL(
        err, INTERNAL,
        "'%.100s' differs from the source: logits by %.3g of the largest (at most %.3g was expected), "
        "%lld of %lld greedy tokens are the same",
        o->out, r->probe.difference, r->bound, (long long)r->probe.same, (long long)r->probe.tokens);
}

/* ---- the command ---- */

static void print_json(proa_output *out, const convert_options *o, const convert_result *r)
{
    proa_output_str(out, "{\"out\":");
    proa_output_json_str(out, proa_str_c(o->out));
    proa_output_printf(out, ",\"to\":\"%s\",\"seconds\":", o->to);
    proa_output_json_num(out, r->seconds);
    if (!o->no_probe) {
        proa_output_str(out, ",\"logit_difference\":");
        proa_output_json_num(out, r->probe.difference);
        proa_output_str(out, ",\"logit_bound\":");
        proa_output_json_num(out, r->bound);
        proa_output_printf(out, ",\"tokens\":%lld,\"tokens_same\":%lld", (long long)r->probe.tokens,
                           (long long)r->probe.same);
    }
    proa_output_str(out, "}\n");
}

static void print_text(proa_output *out, const convert_options *o, const convert_result *r)
{
    proa_output_printf(out, "%s: written in %.1f s\n", o->out, r->seconds);
    if (o->no_probe) return;
    proa_output_printf(out, "compared with the source: logits differ by %.3g of the largest",
                       r->probe.difference);
    if (r->probe.tokens)
        proa_output_printf(out, ", %lld of %lld greedy tokens are the same", (long long)r->probe.same,
                           (long long)r->probe.tokens);
    proa_output_str(out, "\n");
}

static proa_status print_result(const convert_options *o, const convert_result *r, proa_err *err)
{
    proa_output out;
    PROA_TRY(proa_output_open(&out, NULL, err));
    if (o->common.json) print_json(&out, o, r);
    else print_text(&out, o, r);
    return proa_output_close(&out, err);
}

static proa_status run_convert(const convert_options *o, proa_err *err)
{
    convert_result r = {.bound = 0};
    PROA_TRY(write_form(o, &r, err));
    r.bound = bound_of(o, &r);
    if (!o->no_probe) PROA_TRY(compare_models(o, &r, err));
    PROA_TRY(print_result(o, &r, err));
    return o->no_probe ? PROA_OK : check_bound(o, &r, err);
}

static int convert_command(const proa_command *self, int argc, char **argv)
{
    convert_options o = {.out = NULL};
    proa_err err = {0};
    int exit_status = proa_args_parse(self, &o, argc, argv);
    if (exit_status >= 0) return exit_status;
    bool gguf = proa_str_ends(proa_str_c(o.out), proa_str_c(".gguf"));
    if (!o.to) o.to = gguf ? "gguf" : "hf";
    proa_interrupt_watch();
    return run_convert(&o, &err) == PROA_OK ? PROA_EXIT_OK : proa_cli_fail_err(&err);
}

static const proa_arg_table *const convert_tables[] = {&convert_args, NULL};
const proa_command proa_cmd_convert = {
    .name = "convert",
    .summary = "write a model in another form, and compare the result",
    .examples = "  proa convert model.gguf model-hf\n"
                "  proa convert models/llama-gptq models/llama-bf16 --dtype bf16\n"
                "  proa convert models/gpt-ft models/gpt2 --shard-size 2GB\n"
                "  proa convert models/llama models/llama-int8 --to packed --quant int8\n"
                "  proa convert models/llama llama-q8_0.gguf --type q8_0\n"
                "  proa convert models/gptj models/gptj-ft --to ft --ranks 2 --dtype f16\n",
    .tables = convert_tables,
    .run = convert_command,
};
