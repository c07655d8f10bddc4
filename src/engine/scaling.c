/* SPDX-License-Identifier: Apache-2.0
 * scaling.c - the step time of a divided model from its shapes and from figures of links. */
#include "engine/scaling.h"

#include "base/checked.h"
#include "base/files.h"
#include "model/bind.h"
#include "model/synthetic.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Fitted to bench/results/ranks_gpu.csv and docs/lab/cuda-comm.md (two H100s); tests/cli/test_scaling.py compares. The
 * network is assumed: 400 Gb/s for each GPU and 5 us. */
const proa_scaling_figures proa_scaling_h100 = {.read_row = 3.1e12,
                                                .read_rows = 2.5e12,
                                                .flops = 6.5e14,
                                                .overhead_s = 17e-6,
                                                .memory = 80e9,
                                                .link_bytes_s = 2.3e11,
                                                .link_s = 5e-6,
                                                .net_bytes_s = 5e10,
                                                .net_s = 5e-6,
                                                .host_gpus = 8};

enum { FEW_ROWS = 4 }; /* steps of at most that many rows read weights at the higher rate */

/* Share of a GPU's memory that weights and pages may take. */
#define MEMORY_USED 0.92

/* ---- the shape of a model ---- */

typedef struct shape {
    const char *path, *name;
    double parameters;
    double whole, divided, experts; /* bytes of a layer's matrices: not divided, divided, and those of experts */
    double head;                    /* bytes of the output head */
    double active;                  /* parameters that a row is multiplied with */
    /* Means of the layers, some of which have none: keys and values of a token, recurrent states of a sequence. */
    double kv_bytes, state_bytes;
    int64_t kv_parts; /* ranks that keys and values can be divided among */
    int64_t layers, heads, hidden, experts_count, chosen;
    double sums; /* of a layer, the mean */
    double weight_bytes;
    bool eight_bits;
} shape;

static double weight_size(const proa_scaling_options *o, bool *eight_bits)
{
    const char *quant = o->quant ? o->quant : "none", *dtype = o->dtype ? o->dtype : "auto";
    *eight_bits = strcmp(quant, "fp8") == 0;
    if (strcmp(quant, "int4") == 0) return 0.5 + 2.0 / 128; /* a scale of 16 bits for 128 */
    if (strcmp(quant, "none") != 0) return 1;
    return strcmp(dtype, "f32") == 0 ? 4 : 2;
}

static double kv_size(const proa_scaling_options *o)
{
    const char *kv = o->kv_dtype ? o->kv_dtype : "auto";
    return strcmp(kv, "fp8") == 0 ? 1 : strcmp(kv, "f32") == 0 ? 4 : 2;
}

/* Adds a matrix of a layer. */
static void add_matrix(shape *s, const proa_param *p, proa_weight_slot slot, double size)
{
    double one = (double)p->rows * (double)p->cols, copies = p->experts ? (double)p->experts : 1;
    bool chosen = p->experts && !p->heads;
    s->active += chosen ? one * (double)s->chosen : one * copies;
    if (chosen) s->experts += one * copies * size;
    else if (proa_slot_split(slot) == PROA_SPLIT_NONE) s->whole += one * copies * size;
    else s->divided += one * copies * size;
}

/* Means over the layers, which may differ. */
static void read_layers(shape *s, const proa_params *p, double size)
{
    for (int64_t layer = 0; layer < p->layers; layer++)
        for (int slot = 0; slot < PROA_SLOT_COUNT; slot++) {
            const proa_param *param = proa_params_at(p, layer, (proa_weight_slot)slot);
            if (param->parts && param->cols) add_matrix(s, param, (proa_weight_slot)slot, size);
        }
    s->whole /= (double)p->layers, s->divided /= (double)p->layers, s->experts /= (double)p->layers;
}

/* Of keys and values, and of states, which are f32. */
static void read_caches(shape *s, const proa_config *c, const proa_scaling_options *o)
{
    double layers = (double)c->layers, width = 2.0 * (double)c->kv_heads * (double)c->head_dim;
    double other = 2.0 * (double)c->other_kv_heads * (double)c->other_head_dim;
    if (c->kv_lora > 0) width = (double)c->head_dim;
    double row = width * (double)proa_config_kv_layers(c, 0, c->layers, false) +
                 other * (double)proa_config_kv_layers(c, 0, c->layers, true);
    s->kv_bytes = row * kv_size(o) / layers;
    s->kv_parts = c->kv_lora > 0 ? 1 : proa_max64(1, c->kv_heads);
    s->state_bytes = 4.0 * (double)proa_config_layer_state(c) *
                     (double)proa_config_recurring(c, 0, c->layers) / layers;
}

/* A sum follows the mixer of a layer (or both) and its FFN; one more is within Mamba-1's. */
static double count_sums(const proa_config *c)
{
    int64_t sums = 0;
    if (c->parallel) return 1;
    for (int64_t i = 0; i < c->layers; i++)
        sums += (proa_config_attends(c, i) || proa_config_recurs(c, i)) + proa_config_has_ffn(c, i) +
                (c->step_rank > 0 && proa_config_recurs(c, i));
    return (double)sums / (double)c->layers;
}

/* How many ranks can have heads of each kind that there is. */
static int64_t count_heads(const proa_config *c)
{
    int64_t heads = proa_config_attends(c, PROA_SOME_LAYER) ? c->heads : c->value_heads;
    return proa_config_recurs(c, PROA_SOME_LAYER) && c->value_heads ? proa_min64(heads, c->value_heads) : heads;
}

static void read_shape(shape *s, const proa_arch *arch, const proa_config *c, const proa_params *params,
                       const proa_scaling_options *o)
{
    const proa_params *p = &params[PROA_STACK_DECODER];
    double size = weight_size(o, &s->eight_bits), head = (double)c->vocab * (double)c->hidden;
    s->name = arch->name;
    s->parameters = (double)proa_plan_parameters(params, arch, c);
    s->layers = c->layers, s->heads = count_heads(c), s->hidden = c->hidden;
    s->experts_count = c->experts, s->chosen = c->router.chosen;
    read_layers(s, p, size);
    s->head = head * size;
    s->active += head;
    read_caches(s, c, o);
    s->sums = count_sums(c);
    s->weight_bytes = (s->whole + s->divided + s->experts) * (double)s->layers + s->head;
}

static proa_status read_config(proa_json **json, const char *path, proa_err *err)
{
    const char *text;
    proa_files files;
    if (proa_synthetic_is(path)) {
        PROA_TRY(proa_synthetic_config(&text, path, err));
        return proa_json_parse(json, proa_str_c(text), path, err);
    }
    files = proa_files_of(path);
    return proa_files_json(json, &files, "config.json", PROA_CONFIG_BYTES_MAX, err);
}

static proa_status open_shape(shape *s, const char *path, const proa_scaling_options *o, proa_arena *arena,
                              proa_err *err)
{
    const proa_arch *arch = NULL;
    proa_config c = {.vocab = 0};
    proa_params params[PROA_STACK_COUNT];
    proa_json *json = NULL;
    memset(params, 0, sizeof params);
    PROA_TRY(read_config(&json, path, err));
    proa_status status = proa_arch_configure(&arch, &c, json, NULL, arena, err);
    proa_json_free(json);
    if (status != PROA_OK) return status;
    if (arch->kind != PROA_KIND_DECODER)
        return PROA_FAIL(err, UNSUPPORTED, "'%s' is a %s: scaling is explained for decoders", path, arch->name);
    PROA_TRY(proa_bind(params, arch, &c, NULL, arena, err));
    s->path = path;
    read_shape(s, arch, &c, params, o);
    return PROA_OK;
}

/* ---- times ---- */

/* How a model is divided. */
typedef struct parallelism {
    int32_t tensors, stages;
} parallelism;

/* A step, in seconds and bytes; by the slowest stage. */
typedef struct step_cost {
    double weights_s, kv_s, products_s, overhead_s, sums_s, sends_s, step_s;
    double link_bytes, net_bytes; /* that a GPU sends in a step: to GPUs of its host, to other hosts */
    double gpu_bytes;             /* that it holds */
    bool fits;
} step_cost;

/* The sum of `bytes` over n GPUs of a host: every GPU writes to all others (one shot), or sums a part and sends it on
 * (two shots). *sent: what a GPU sends. */
static double host_sum(const proa_scaling_figures *f, double bytes, int32_t n, double *sent)
{
    double others = n - 1, one = f->link_s + others * bytes / f->link_bytes_s;
    double two = 2 * f->link_s + 2 * others / n * bytes / f->link_bytes_s;
    if (n == 1) return *sent = 0, 0;
    *sent = one <= two ? others * bytes : 2 * others / n * bytes;
    return one <= two ? one : two;
}

/* Over hosts: summed within each, then each GPU's part among hosts by a ring or by halving and doubling, then gathered
 * within each (NCCL's hierarchical algorithms). */
static double net_sum(const proa_scaling_figures *f, double bytes, int32_t hosts, double *sent)
{
    double steps = ceil(log2(hosts)), ring = 2.0 * (hosts - 1) * f->net_s, halving = 2 * steps * f->net_s;
    *sent = 2.0 * (hosts - 1) / hosts * bytes;
    return (ring < halving ? ring : halving) + *sent / f->net_bytes_s;
}

static double sum_time(const proa_scaling_figures *f, double bytes, int32_t n, double *link, double *net)
{
    int32_t local = n < f->host_gpus ? n : f->host_gpus, hosts = (n + local - 1) / local;
    *net = 0;
    double time = host_sum(f, bytes, local, link);
    if (hosts == 1) return time;
    double among = net_sum(f, bytes / local, hosts, net), within = local > 1 ? 2 * f->link_s : 0;
    *link = 2.0 * (local - 1) / local * bytes;
    return within + *link / f->link_bytes_s + among;
}

/* The experts that that many rows choose, if each chooses at random: E (1 - (1 - k/E)^rows). */
static double experts_read(const shape *s, double rows)
{
    if (!s->experts_count) return 0;
    return 1 - pow(1 - (double)s->chosen / (double)s->experts_count, rows);
}

/* Of a sequence in one layer of a rank: keys and values of the context, and its state so many times. */
static double cache_bytes(const shape *s, const proa_scaling_options *o, parallelism d, double states)
{
    double kv_parts = d.tensors < s->kv_parts ? d.tensors : (double)s->kv_parts;
    return (double)o->context * s->kv_bytes / kv_parts + states * s->state_bytes / d.tensors;
}

/* One stage with that many rows. */
static void stage_cost(step_cost *t, const shape *s, const proa_scaling_options *o, parallelism d, double rows)
{
    const proa_scaling_figures *f = &o->figures;
    double layers = ceil((double)s->layers / d.stages), rate = rows <= FEW_ROWS ? f->read_row : f->read_rows;
    double head = s->head / d.tensors,
           each = s->whole + (s->divided + s->experts * experts_read(s, rows)) / d.tensors;
    double kv = rows * cache_bytes(s, o, d, 2), link = 0, net = 0; /* states are read and written */
    t->weights_s = (layers * each + head) / rate;
    t->kv_s = layers * kv / rate;
    t->products_s = 2 * rows * s->active / d.stages / d.tensors / (f->flops * (s->eight_bits ? 2 : 1));
    t->overhead_s = layers * f->overhead_s;
    double sum = sum_time(f, rows * (double)s->hidden * 2, d.tensors, &link, &net);
    t->sums_s = layers * s->sums * sum;
    t->link_bytes = layers * s->sums * link, t->net_bytes = layers * s->sums * net;
}

/* From one stage to the next: over the network if the stages of a host are fewer. */
static double send_time(const proa_scaling_figures *f, parallelism d, double bytes, step_cost *t)
{
    bool net = d.tensors * d.stages > f->host_gpus && d.tensors * 2 > f->host_gpus;
    if (d.stages == 1) return 0;
    *(net ? &t->net_bytes : &t->link_bytes) += bytes;
    return net ? f->net_s + bytes / f->net_bytes_s : f->link_s + bytes / f->link_bytes_s;
}

static step_cost cost_of(const shape *s, const proa_scaling_options *o, parallelism d, int32_t batch)
{
    step_cost t = {.step_s = 0};
    double parts = batch < d.stages ? batch : d.stages, rows = batch / parts;
    stage_cost(&t, s, o, d, rows);
    t.link_bytes *= parts, t.net_bytes *= parts;
    t.sends_s = send_time(&o->figures, d, rows / d.tensors * (double)s->hidden * 2, &t);
    double read = t.weights_s + t.kv_s, stage = read > t.products_s ? read : t.products_s;
    t.step_s = d.stages * (stage + t.overhead_s + t.sums_s + t.sends_s);
    double layer = s->whole + (s->divided + s->experts) / d.tensors + batch * cache_bytes(s, o, d, 1);
    t.gpu_bytes = ceil((double)s->layers / d.stages) * layer + 2 * s->head / d.tensors; /* the table of tokens too */
    t.fits = t.gpu_bytes <= o->figures.memory * MEMORY_USED;
    return t;
}

static bool is_possible(const shape *s, parallelism d)
{
    return d.tensors <= s->heads && d.stages <= s->layers;
}

/* The division of n GPUs with the shortest step, of those that fit. False: none does. */
static bool best_division(const shape *s, const proa_scaling_options *o, int32_t n, int32_t batch,
                          parallelism *best, step_cost *cost)
{
    bool found = false;
    for (int32_t tensors = 1; tensors <= n; tensors *= 2) {
        parallelism d = {tensors, n / tensors};
        if (!is_possible(s, d)) continue;
        step_cost t = cost_of(s, o, d, batch);
        if (!t.fits || (found && t.step_s >= cost->step_s)) continue;
        found = true, *best = d, *cost = t;
    }
    return found;
}

/* ---- as a table ---- */

static void text_head(const shape *s, const proa_scaling_options *o, proa_buf *out)
{
    const proa_scaling_figures *f = &o->figures;
    double state = s->state_bytes * (double)s->layers;
    proa_buf_printf(out,
                    "%s: %s, %.1f billion parameters, %.1f of them for each row\n"
                    "%.1f GB of weights, %.0f bytes of keys and values a token",
                    s->path, s->name, s->parameters / 1e9, s->active / 1e9, s->weight_bytes / 1e9,
                    s->kv_bytes * (double)s->layers);
    if (state > 0) proa_buf_printf(out, ", %.1f MB of states a sequence", state / 1e6);
    proa_buf_printf(out, "; sequences of %lld tokens\n", (long long)o->context);
    proa_buf_printf(out,
                    "a GPU reads %.0f GB/s, %.0f for more than %d rows, multiplies %.0f TFLOP/s, holds %.0f "
                    "GB, takes %.0f "
                    "us more for each layer\n",
                    f->read_row / 1e9, f->read_rows / 1e9, FEW_ROWS,
                    f->flops / 1e12 * (s->eight_bits ? 2 : 1), f->memory / 1e9, f->overhead_s * 1e6);
    proa_buf_printf(out,
                    "a sum within a host of %d GPUs takes %.1f us and %.0f GB/s; between hosts a GPU has "
                    "%.0f Gb/s and %.1f "
                    "us (assumed)\n",
                    f->host_gpus, f->link_s * 1e6, f->link_bytes_s / 1e9, f->net_bytes_s * 8 / 1e9,
                    f->net_s * 1e6);
}

static void text_step(const shape *s, const proa_scaling_options *o, proa_buf *out)
{
    parallelism d = {o->tensors, o->stages};
    proa_buf_printf(out, "\ntp %d, pp %d: %d GPUs of %d hosts. Milliseconds of a step; MB that a GPU sends in it\n",
                    d.tensors, d.stages, d.tensors * d.stages, o->hosts);
    proa_buf_printf(out, "  %6s %9s %9s %8s %9s %9s %9s %8s %9s %10s %10s %8s\n", "batch", "step", "tokens/s",
                    "weights", "k and v", "products", "overhead", "sums", "sends", "in a host", "to others",
                    "GB");
    for (int32_t i = 0; i < o->batches_count; i++) {
        step_cost t = cost_of(s, o, d, o->batches[i]);
        double n = d.stages * 1e3;
        proa_buf_printf(out, "  %6d %9.3f %9.1f %8.3f %9.3f %9.3f %9.3f %8.3f %9.3f %10.3f %10.3f %8.1f%s\n",
                        o->batches[i], t.step_s * 1e3, o->batches[i] / t.step_s, t.weights_s * n, t.kv_s * n,
                        t.products_s * n, t.overhead_s * n, t.sums_s * n, t.sends_s * n, t.link_bytes / 1e6,
                        t.net_bytes / 1e6, t.gpu_bytes / 1e9, t.fits ? "" : " does not fit");
    }
}

/* Twice as many GPUs pay while the step gets shorter by this factor at least. */
#define DOUBLING_SPEEDUP_MIN 1.2

static void text_sweep(const shape *s, const proa_scaling_options *o, int32_t batch, proa_buf *out)
{
    double before = 0;
    int32_t stops = 0, last = 0;
    proa_buf_printf(out, "\nbatch %d: the division with the shortest step\n", batch);
    proa_buf_printf(out, "  %5s %5s %5s %9s %9s %12s %9s\n", "GPUs", "tp", "pp", "step ms", "tokens/s",
                    "tokens/s/GPU", "speed-up");
    for (int32_t n = 1; n <= PROA_SCALING_GPUS_MAX; n *= 2) {
        parallelism d;
        step_cost t;
        if (!best_division(s, o, n, batch, &d, &t)) {
            if (!before) proa_buf_printf(out, "  %5d does not fit\n", n);
            continue;
        }
        double rate = batch / t.step_s, gain = before > 0 ? before / t.step_s : 0;
        proa_buf_printf(out, "  %5d %5d %5d %9.3f %9.1f %12.2f", n, d.tensors, d.stages, t.step_s * 1e3, rate,
                        rate / n);
        if (gain > 0) proa_buf_printf(out, " %9.2f\n", gain);
        else proa_buf_printf(out, " %9s\n", "-");
        if (gain > 0 && gain < DOUBLING_SPEEDUP_MIN && !stops) stops = last;
        before = t.step_s, last = n;
    }
    if (stops)
        proa_buf_printf(
            out, "  more than %d GPUs do not pay: twice as many make the step less than %.1f times faster\n",
            stops, DOUBLING_SPEEDUP_MIN);
}

/* ---- as JSON ---- */

static void json_step(const step_cost *t, parallelism d, int32_t batch, proa_buf *out)
{
    proa_buf_printf(
        out,
        "{\"gpus\":%d,\"tp\":%d,\"pp\":%d,\"batch\":%d,\"step_s\":%.6g,\"tokens_s\":%.6g,\"weights_s\":%.6g,"
        "\"kv_s\":%.6g,\"products_s\":%.6g,\"overhead_s\":%.6g,\"sums_s\":%.6g,\"sends_s\":%.6g,",
        d.tensors * d.stages, d.tensors, d.stages, batch, t->step_s, batch / t->step_s, t->weights_s, t->kv_s,
        t->products_s, t->overhead_s, t->sums_s, t->sends_s);
    proa_buf_printf(out, "\"link_bytes\":%.6g,\"net_bytes\":%.6g,\"gpu_bytes\":%.6g,\"fits\":%s}",
                    t->link_bytes, t->net_bytes, t->gpu_bytes, t->fits ? "true" : "false");
}

static void json_all(const shape *s, const proa_scaling_options *o, proa_buf *out)
{
    const char *comma = "";
    proa_buf_printf(out, "{\"model\":");
    proa_buf_json_str(out, proa_str_c(s->path));
    proa_buf_printf(out,
                    ",\"arch\":\"%s\",\"parameters\":%.0f,\"weight_bytes\":%.0f,\"state_bytes\":%.0f,"
                    "\"context\":%lld,\"steps\":[",
                    s->name, s->parameters, s->weight_bytes, s->state_bytes * (double)s->layers,
                    (long long)o->context);
    for (int32_t i = 0; i < o->batches_count; i++, comma = ",") {
        parallelism d = {o->tensors, o->stages};
        step_cost t = cost_of(s, o, d, o->batches[i]);
        proa_buf_printf(out, "%s", comma);
        json_step(&t, d, o->batches[i], out);
    }
    comma = "";
    proa_buf_printf(out, "],\"best\":[");
    for (int32_t i = 0; i < o->batches_count; i++)
        for (int32_t n = 1; n <= PROA_SCALING_GPUS_MAX; n *= 2) {
            parallelism d;
            step_cost t;
            if (!best_division(s, o, n, o->batches[i], &d, &t)) continue;
            proa_buf_printf(out, "%s", comma);
            json_step(&t, d, o->batches[i], out);
            comma = ",";
        }
    proa_buf_printf(out, "]}\n");
}

/* ---- all ---- */

static proa_status check_division(const shape *s, const proa_scaling_options *o, proa_err *err)
{
    int64_t gpus = (int64_t)o->tensors * o->stages, host = o->figures.host_gpus;
    if (o->tensors < 1 || o->stages < 1 || o->hosts < 1)
        return PROA_FAIL(err, INVALID, "options 'tp', 'pp' and 'hosts' are %d, %d and %d, must be 1 or more",
                         o->tensors, o->stages, o->hosts);
    if (gpus > host * o->hosts || gpus <= host * (o->hosts - 1))
        return PROA_FAIL(err, INVALID,
                         "option 'hosts' is %d: tp %d and pp %d take %lld GPUs, with %lld in a host",
                         o->hosts, o->tensors, o->stages, (long long)gpus, (long long)host);
    if (is_possible(s, (parallelism){o->tensors, o->stages})) return PROA_OK;
    return PROA_FAIL(err, INVALID,
                     "options 'tp' and 'pp' are %d and %d, at most %lld heads and %lld layers can be divided",
                     o->tensors, o->stages, (long long)s->heads, (long long)s->layers);
}

proa_status proa_scaling_explain(proa_buf *out, const char *path, const proa_scaling_options *options,
                                 bool json, proa_err *err)
{
    shape s = {.path = path};
    proa_arena arena;
    proa_arena_init(&arena);
    proa_status status = open_shape(&s, path, options, &arena, err);
    if (status == PROA_OK) status = check_division(&s, options, err);
    if (status == PROA_OK && json) json_all(&s, options, out);
    if (status == PROA_OK && !json) {
        text_head(&s, options, out);
        text_step(&s, options, out);
        for (int32_t i = 0; i < options->batches_count; i++)
            text_sweep(&s, options, options->batches[i], out);
    }
    proa_arena_release(&arena);
    return status;
}
