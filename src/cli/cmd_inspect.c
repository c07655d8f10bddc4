/* SPDX-License-Identifier: Apache-2.0
 * cmd_inspect.c - `proa inspect`: the tensors of any checkpoint that can be read: types, shapes, ranges, NaNs. */
#include "base/alloc.h"
#include "base/checked.h"
#include "base/file.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/session.h"
#include "weights/packed.h"

#include <math.h>

typedef struct inspect_options {
    const char *path, *filter;
    bool no_values, json;
} inspect_options;

#define AT(field) offsetof(inspect_options, field)
static const proa_arg inspect_rows[] = {
    {"PATH", PROA_ARG_OPERAND, AT(path), PROA_ARG_MODEL, 0, NULL, NULL,
     "a model folder, one checkpoint file of any format, or ORG/NAME on a hub"},
    {"filter", PROA_ARG_TEXT, AT(filter), 0, 0, "TEXT", NULL, "only tensors whose name contains TEXT"},
    {"no-values", PROA_ARG_FLAG, AT(no_values), 0, 0, NULL, NULL, "names, types and shapes only: read no numbers"},
    {"json", PROA_ARG_FLAG, AT(json), 0, 0, NULL, NULL, "print JSON to standard output"},
};
static const proa_arg_table inspect_args = PROA_ARG_TABLE("options", inspect_rows);

/* What the numbers of a tensor are. */
typedef struct range {
    bool known; /* they were read */
    double least, most, sum_of_squares;
    int64_t count, nan, infinite;
} range;

static void add_number(range *r, float v)
{
    r->count++;
    if (isnan(v)) r->nan++;
    else if (isinf(v)) r->infinite++;
    else {
        r->least = fmin(r->least, (double)v);
        r->most = fmax(r->most, (double)v);
        r->sum_of_squares += (double)v * (double)v;
    }
}

/* A stored tensor as a matrix: all axes but the last are rows. An encoded one whose blocks are along another axis, and
 * a plain one with gaps, are not read. */
static bool as_matrix(proa_tensor_source *s)
{
    proa_view *v = &s->view;
    int64_t count = proa_view_count(*v), cols = v->rank ? v->shape[v->rank - 1] : 1;
    bool numbers = s->encoding != PROA_ENCODING_PLAIN || proa_dtype_floating(v->dtype);
    if (!proa_encoding_is_readable(s->encoding)) return false;
    if (!numbers || count == 0 || !proa_view_dense(*v)) return false;
    *v = proa_view_2d(v->data, v->dtype, count / cols, cols);
    return true;
}

static range read_range(const proa_weights_tensor *t)
{
    proa_tensor_source s = t->source;
    range r = {.least = INFINITY, .most = -INFINITY};
    if (!as_matrix(&s)) return r;
    int64_t rows = proa_tensor_source_rows(&s), cols = proa_tensor_source_cols(&s);
    float *row = proa_malloc((size_t)cols * sizeof *row);
    for (int64_t i = 0; i < rows && !proa_interrupted(); i++) {
        proa_tensor_source_read(&s, i, 0, cols, row);
        for (int64_t k = 0; k < cols; k++) add_number(&r, row[k]);
    }
    free(row);
    r.known = true;
    return r;
}

static const char *type_name(const proa_weights_tensor *t)
{
    const proa_tensor_source *s = &t->source;
    return s->encoding == PROA_ENCODING_PLAIN ? proa_dtype_name(s->view.dtype) : proa_encoding_name(s->encoding);
}

static double root_mean_square(const range *r)
{
    int64_t finite = r->count - r->nan - r->infinite;
    return finite > 0 ? sqrt(r->sum_of_squares / (double)finite) : 0;
}

static void print_json(proa_output *out, const proa_weights_tensor *t, const range *r, bool first)
{
    proa_output_str(out, first ? "{\"name\":" : ",{\"name\":");
    proa_output_json_str(out, proa_str_c(t->name));
    const int64_t *axes;
    int32_t rank = proa_weights_axes(t, &axes);
    proa_output_printf(out, ",\"type\":\"%s\",\"shape\":[", type_name(t));
    for (int32_t i = 0; i < rank; i++) proa_output_printf(out, "%s%lld", i ? "," : "", (long long)axes[i]);
    proa_output_printf(out, "],\"bytes\":%lld", (long long)proa_tensor_source_bytes(&t->source));
    if (r->known) {
        proa_output_str(out, ",\"min\":");
        proa_output_json_num(out, r->least);
        proa_output_str(out, ",\"max\":");
        proa_output_json_num(out, r->most);
        proa_output_str(out, ",\"rms\":");
        proa_output_json_num(out, root_mean_square(r));
        proa_output_printf(out, ",\"nan\":%lld,\"infinite\":%lld", (long long)r->nan, (long long)r->infinite);
    }
    proa_output_str(out, "}");
}

static void print_line(proa_output *out, const proa_weights_tensor *t, const range *r, int width)
{
    char shape[64], bytes[16];
    const int64_t *axes;
    int32_t rank = proa_weights_axes(t, &axes);
    proa_shape_text(shape, rank, axes);
    proa_output_printf(out, "%-*s  %-7s %-18s %9s", width, t->name, type_name(t), shape,
                       proa_output_bytes_text(bytes, (double)proa_tensor_source_bytes(&t->source)));
    if (r->known && r->count > r->nan + r->infinite)
        proa_output_printf(out, "  %10.4g %10.4g %10.4g", r->least, r->most, root_mean_square(r));
    if (r->nan) proa_output_printf(out, "  %lld NaN", (long long)r->nan);
    if (r->infinite) proa_output_printf(out, "  %lld infinite", (long long)r->infinite);
    proa_output_str(out, "\n");
}

static bool is_wanted(const inspect_options *o, const proa_weights_tensor *t)
{
    return !o->filter || strstr(t->name, o->filter);
}

static int longest_name(const inspect_options *o, const proa_weights *w)
{
    size_t longest = 4;
    for (int64_t i = 0; i < proa_weights_count(w); i++) {
        size_t length = strlen(proa_weights_at(w, i)->name);
        if (is_wanted(o, proa_weights_at(w, i)) && length > longest) longest = length;
    }
    return (int)longest;
}

/* The totals; numbers that are not finite were found in `broken` tensors. */
static void print_totals(proa_output *out, const inspect_options *o, int64_t tensors, int64_t numbers,
                         double bytes, int64_t broken)
{
    char text[16];
    if (o->json) {
        proa_output_printf(out, "],\"tensors_count\":%lld,\"numbers\":%lld,\"not_finite\":%lld}\n",
                           (long long)tensors, (long long)numbers, (long long)broken);
        return;
    }
    proa_output_printf(out, "\n%lld tensors, %.3f M numbers, %s", (long long)tensors, (double)numbers * 1e-6,
                       proa_output_bytes_text(text, bytes));
    if (!o->no_values) proa_output_printf(out, "; %lld with NaN or infinite numbers", (long long)broken);
    proa_output_str(out, "\n");
}

static void print_all(proa_output *out, const inspect_options *o, const proa_weights *w)
{
    int width = longest_name(o, w);
    int64_t tensors = 0, numbers = 0, broken = 0;
    double bytes = 0;
    if (o->json) proa_output_str(out, "{\"tensors\":[");
    else
        proa_output_printf(out, "%-*s  %-7s %-18s %9s%s\n", width, "name", "type", "shape", "bytes",
                           o->no_values ? "" : "         min        max        rms");
    for (int64_t i = 0; i < proa_weights_count(w) && !proa_interrupted(); i++) {
        const proa_weights_tensor *t = proa_weights_at(w, i);
        range none = {.known = false};
        if (!is_wanted(o, t)) continue;
        range r = o->no_values ? none : read_range(t);
        if (o->json) print_json(out, t, &r, tensors == 0);
        else print_line(out, t, &r, width);
        tensors++, numbers += proa_view_count(t->source.view);
        bytes += (double)proa_tensor_source_bytes(&t->source);
        broken += r.nan + r.infinite > 0;
        proa_weights_drop(w, t);
    }
    print_totals(out, o, tensors, numbers, bytes, broken);
}

/* The file of each rank of a packed folder. */
static proa_status print_ranks(proa_output *out, const inspect_options *o, int32_t ranks, proa_err *err)
{
    for (int32_t rank = 0; rank < ranks; rank++) {
        char text[16];
        proa_weights *w;
        PROA_TRY(proa_weights_open_rank(&w, o->path, rank, err));
        const proa_packed_file *p = proa_weights_packed(w);
        proa_output_printf(out, "%s  rank %d of %d, %lld weights as %s, %s\n", p->name, p->rank, p->ranks,
                           (long long)p->count, p->main, proa_output_bytes_text(text, (double)p->block_bytes));
        proa_weights_close(w);
    }
    return PROA_OK;
}

static proa_status inspect_model(const inspect_options *o, proa_err *err)
{
    const proa_packed_file *packed;
    proa_weights *w;
    proa_output out;
    PROA_TRY(proa_weights_open(&w, o->path, err));
    proa_status status = proa_output_open(&out, NULL, err);
    if (status == PROA_OK) {
        print_all(&out, o, w);
        packed = proa_weights_packed(w);
        if (packed && !o->json && proa_dir_exists(o->path)) status = print_ranks(&out, o, packed->ranks, err);
        proa_status closed = proa_output_close(&out, status == PROA_OK ? err : NULL);
        if (status == PROA_OK) status = closed;
    }
    if (status == PROA_OK) status = proa_weights_check(w, err);
    proa_weights_close(w);
    return status;
}

static int inspect_command(const proa_command *self, int argc, char **argv)
{
    inspect_options o = {.path = NULL};
    proa_err err = {0};
    int exit_status = proa_args_parse(self, &o, argc, argv);
    if (exit_status >= 0) return exit_status;
    proa_interrupt_watch();
    return inspect_model(&o, &err) == PROA_OK ? PROA_EXIT_OK : proa_cli_fail_err(&err);
}

static const proa_arg_table *const inspect_tables[] = {&inspect_args, NULL};
const proa_command proa_cmd_inspect = {
    .name = "inspect",
    .summary = "list the tensors of a checkpoint: types, shapes, ranges, NaNs",
    .examples = "  proa inspect models/classics-10m\n  proa inspect model.gguf --filter attn_q\n"
                "  proa inspect pytorch_model.bin --no-values --json\n",
    .tables = inspect_tables,
    .run = inspect_command,
};
