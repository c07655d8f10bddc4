/* SPDX-License-Identifier: Apache-2.0
 * cmd_explain.c - `proa explain`: prints the program, the memory plan and the time floor of a model. */
#include "base/limits.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"
#include "engine/explain.h"
#include "engine/scaling.h"
#include <stdlib.h>

typedef struct explain_options {
    proa_common common; /* first: see session.h */
    double bandwidth;
    bool no_measure;
    int64_t hosts, host_gpus, context; /* of the scaling of a model over many GPUs; hosts 0: its program is shown */
    const char *batches;
    double read, flops, memory, link, link_us, net, net_us;
} explain_options;

static const proa_arg explain_rows[] = {
    PROA_MODEL_ARG,
    {"bandwidth", PROA_ARG_REAL, offsetof(explain_options, bandwidth), 0, 1000000, "GB/s", "0",
     "read bandwidth for the floor; 0: measure it"},
    {"no-measure", PROA_ARG_FLAG, offsetof(explain_options, no_measure), 0, 0, NULL, NULL,
     "no floor: read nothing but the model's files"},
};
static const proa_arg_table explain_args = PROA_ARG_TABLE("options", explain_rows);

/* clang-format off */
#define FIGURE(name, field, unit, help) \
    {name, PROA_ARG_REAL, offsetof(explain_options, field), 0, 1000000, unit, "0", help}
/* clang-format on */
static const proa_arg scaling_rows[] = {
    {"hosts", PROA_ARG_INT, offsetof(explain_options, hosts), 0, PROA_SCALING_GPUS_MAX, "N", "0",
     "not the program, but step times of a decoder on the GPUs of --tp and --pp in N hosts, and on 1 to 512 "
     "GPUs, by "
     "measured and assumed figures of H100s (docs/scaling.md)"},
    {"host-gpus", PROA_ARG_INT, offsetof(explain_options, host_gpus), 1, PROA_SCALING_GPUS_MAX, "N", "8",
     "GPUs of a host"},
    {"batches", PROA_ARG_TEXT, offsetof(explain_options, batches), 0, 0, "N,...", "1,16,64,256",
     "sequences that decode in a step"},
    {"context", PROA_ARG_INT, offsetof(explain_options, context), 1, PROA_CONTEXT_MAX, "N", "2048",
     "tokens of each of them"},
    FIGURE("gpu-bandwidth", read, "GB/s", "what a GPU reads; 0: 3100 in steps of up to 4 rows, else 2500"),
    FIGURE("gpu-flops", flops, "TFLOP/s", "of 16-bit products; 0: 650, twice as many in fp8"),
    FIGURE("gpu-memory", memory, "GB", "0: 80"),
    FIGURE("link-bandwidth", link, "GB/s", "that a sum moves between GPUs of a host, one way; 0: 230"),
    FIGURE("link-latency", link_us, "US", "least time of a sum between them; 0: 5"),
    FIGURE("net-bandwidth", net, "Gb/s", "of each GPU to other hosts; 0: 400"),
    FIGURE("net-latency", net_us, "US", "of a message to another host; 0: 5"),
};
static const proa_arg_table scaling_args = PROA_ARG_TABLE("many GPUs, on paper", scaling_rows);

static proa_status write_text(proa_buf *text, proa_err *err)
{
    proa_output out;
    PROA_TRY(proa_output_open(&out, NULL, err));
    proa_output_bytes(&out, text->ptr, text->len);
    if (text->len && text->ptr[text->len - 1] != '\n') proa_output_str(&out, "\n");
    return proa_output_close(&out, err);
}

static void set_figure(double *figure, double given, double unit)
{
    if (given > 0) *figure = given * unit;
}

static proa_status read_batches(proa_scaling_options *s, const char *text, proa_err *err)
{
    const char *at = text;
    while (s->batches_count < PROA_SCALING_BATCHES_MAX) {
        char *end;
        long n = strtol(at, &end, 10);
        if (end == at || n < 1 || n > PROA_SEQUENCES_MAX || (*end && *end != ',')) break;
        s->batches[s->batches_count++] = (int32_t)n;
        if (!*end) return PROA_OK;
        at = end + 1;
    }
    return PROA_FAIL(err, INVALID,
                     "option 'batches' is '%.80s', must be 1 to %d numbers from 1 to %d, with commas", text,
                     PROA_SCALING_BATCHES_MAX, PROA_SEQUENCES_MAX);
}

static proa_status explain_scaling(const explain_options *o, const proa_engine_options *engine,
                                   proa_buf *text, proa_err *err)
{
    proa_scaling_options s = {.hosts = (int32_t)o->hosts,
                              .tensors = engine->tensor_parallel ? engine->tensor_parallel : 1,
                              .stages = engine->pipeline_parallel ? engine->pipeline_parallel : 1,
                              .context = o->context,
                              .dtype = engine->dtype,
                              .quant = engine->quant,
                              .kv_dtype = engine->kv_dtype,
                              .figures = proa_scaling_h100};
    PROA_TRY(read_batches(&s, o->batches, err));
    set_figure(&s.figures.read_row, o->read, 1e9), set_figure(&s.figures.read_rows, o->read, 1e9);
    set_figure(&s.figures.flops, o->flops, 1e12);
    set_figure(&s.figures.memory, o->memory, 1e9);
    set_figure(&s.figures.link_bytes_s, o->link, 1e9), set_figure(&s.figures.link_s, o->link_us, 1e-6);
    set_figure(&s.figures.net_bytes_s, o->net, 1e9 / 8), set_figure(&s.figures.net_s, o->net_us, 1e-6);
    s.figures.host_gpus = (int32_t)o->host_gpus;
    return proa_scaling_explain(text, o->common.model, &s, o->common.json, err);
}

/* The program; at first without a measurement, which takes a second, so that errors in the model are reported at
 * once. */
static proa_status explain_program(const explain_options *o, const proa_engine_options *engine,
                                   proa_buf *text, proa_err *err)
{
    double bandwidth = o->bandwidth * 1e9;
    proa_status status = proa_explain(text, o->common.model, engine, bandwidth, o->common.json, err);
    if (status != PROA_OK || bandwidth > 0 || o->no_measure) return status;
    proa_buf_clear(text);
    return proa_explain(text, o->common.model, engine, proa_session_bandwidth(&o->common), o->common.json, err);
}

static proa_status explain_model(const explain_options *o, proa_err *err)
{
    proa_engine_options options;
    PROA_TRY(proa_session_options(&options, &o->common, err));
    proa_buf text;
    proa_buf_init(&text, (size_t)(64 * PROA_MIB));
    proa_status status = o->hosts ? explain_scaling(o, &options, &text, err)
                                  : explain_program(o, &options, &text, err);
    if (status == PROA_OK) status = write_text(&text, err);
    proa_buf_release(&text);
    return status;
}

static int explain_command(const proa_command *self, int argc, char **argv)
{
    explain_options o = {.bandwidth = 0};
    proa_err err = {0};
    int exit_status = proa_args_parse(self, &o, argc, argv);
    if (exit_status >= 0) return exit_status;
    proa_interrupt_watch();
    return explain_model(&o, &err) == PROA_OK ? PROA_EXIT_OK : proa_cli_fail_err(&err);
}

static const proa_arg_table *const explain_tables[] = {&explain_args, &scaling_args, &proa_engine_args,
                                                       &proa_common_args, NULL};
const proa_command proa_cmd_explain = {
    .name = "explain",
    .summary = "show how a model runs: its program with shapes, its memory plan, the least time per step on "
               "this machine",
    .examples =
        "  proa explain models/classics-10m\n  proa explain models/m30k-t5 --dtype bf16 --json\n"
        "  proa explain synthetic:llama3-70b --quant fp8 --tp 8 --hosts 1     on paper, on many GPUs\n",
    .tables = explain_tables,
    .run = explain_command,
};
