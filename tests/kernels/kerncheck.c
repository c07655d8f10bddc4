/* SPDX-License-Identifier: Apache-2.0
 * kerncheck.c - compares every op of every table that this CPU has with the plain reference; with --bench times
 * them. What is compared: values within one table of tolerances (int8, f32, bf16 and f16 products exactly), guard
 * bands, threads 1 to 3 and every batch bit for bit, in-place calls, NaN, infinite, huge and tiny numbers. */
#include "check.h"

#include "base/clock.h"
#include "kernels/peak.h"
#include <malloc.h>
#include <math.h>
#include <unistd.h>

/* Relative to the element and to the row's largest element. Why: EXACT is promised; an ELEMENT has up to two
 * roundings of 2^-24; MATH allows 4 ulp of exp and a product; NORM and ATTEND are f32 sums of up to 1024 and of 256
 * terms in another order, and STATE of 256 that cancel, so that a row counts as 1 at least; BF16DOT sums 5000 terms
 * in another order. */
static const double tolerances[TOL_COUNT] = {
    [TOL_EXACT] = 0,    [TOL_ELEMENT] = 1.2e-7, [TOL_MATH] = 6e-7,
    [TOL_GELU] = 6e-7,  [TOL_NORM] = 2e-6,      [TOL_ATTEND] = 4e-6,
    [TOL_STATE] = 2e-6, [TOL_BF16DOT] = 2e-5,   [TOL_BF16DOT_GELU] = 2e-5};

double tolerance_of(tolerance kind)
{
    return tolerances[kind];
}

tolerance tolerance_of_format(proa_wfmt format)
{
    return format == PROA_WFMT_BF16DOT ? TOL_BF16DOT : TOL_EXACT;
}

typedef void check_fn(tester *t);
static check_fn *const checks[] = {
#define PROA_OP(name, args) check_##name,
#include "kernels/ops.def"
#include "kernels/decode.def"
#undef PROA_OP
};

typedef struct options {
    const char *op, *table;
    const char *device; /* check its table instead of the CPU's */
    const char *narrow; /* its views of 16 bits: "f16", "bf16" */
    const char *format; /* of weights: linear and experts alone */
    bool bench, json, verbose;
    int threads, every, first;
} options;

/* Whether both tables have the same function for the i-th op, and it calls no other op of its table, which may be
 * another one. */
static bool is_same_op(const proa_ops *a, const proa_ops *b, int i)
{
    const bool same[] = {
#define PROA_OP(name, args) a->name == b->name,
#include "kernels/ops.def"
#undef PROA_OP
#define PROA_OP(name, args) a->decode->name == b->decode->name,
#include "kernels/decode.def"
#undef PROA_OP
    };
    static const char *const callers[] = {"linear",  "linear_lora", "heads_linear",
                                          "experts", "rope_append", "sample"};
    for (size_t k = 0; k < PROA_COUNT(callers); k++)
        if (strcmp(proa_op_names[i], callers[k]) == 0) return false;
    return same[i];
}

/* The table among those of lower levels whose function the op has: it was checked there; NULL: it has its own. */
static const proa_ops *find_checked(const proa_ops *ops, const proa_ops *const *below, int i)
{
    while (*below && !is_same_op(ops, *below, i)) below++;
    return *below;
}

/* The reference beside itself: what is left to see is that threads, batches and places change no bit of its loops.
 * Where wider tables are checked too, each 23rd case of its slow ops shows that; all of them took half of the whole
 * run. --op, --table and --every check what they say. */
static int64_t every_of(const options *o, const proa_ops *ops, const char *op)
{
    static const char *const slow[] = {"linear", "experts", "attend", "lora", "linear_lora", "heads_linear"};
    if (ops != proa_ops_cpu(PROA_ISA_GENERIC) || proa_isa_detect() == PROA_ISA_GENERIC) return o->every;
    if (o->op || o->table || o->every) return o->every;
    for (size_t k = 0; k < PROA_COUNT(slow); k++)
        if (strcmp(op, slow[k]) == 0) return 23;
    return o->every;
}

/* below: the tables that have been checked, NULL-terminated. */
static void check_table(tester *t, const options *o, proa_pool *const *pools, const proa_ops *ops,
                        const proa_ops *const *below, int64_t *failures)
{
    const proa_ctx_need need = {.rows = 600,
                                .inputs = 5000,
                                .heads = 16,
                                .head_dim = 256,
                                .columns = 1024,
                                .experts = 128,
                                .chosen = 8,
                                .expert_width = 2048,
                                .expert_ffn = 2 * 768,
                                .keys = 256,
                                .lora = 128};
    proa_err err = {0};
    bool ready = proa_ctx_init(&t->reference, proa_ops_cpu(PROA_ISA_GENERIC), pools[0], &need, &err) == PROA_OK;
    for (int n = 0; n < CHECK_THREADS; n++)
        ready = ready && proa_ctx_init(&t->tables[n], ops, pools[n], &need, &err) == PROA_OK;
    t->tables[CHECK_THREADS - 1].one_stream = true; /* the same bits */
    if (!ready) {
        fprintf(stderr, "kerncheck: %s\n", err.text);
        exit(1);
    }
    for (int i = 0; proa_op_names[i]; i++) {
        if (o->op && strcmp(o->op, proa_op_names[i]) != 0) continue;
        const proa_ops *checked = find_checked(ops, below, i);
        if (checked) {
            printf("same %-12s %-12s as %s\n", ops->name, proa_op_names[i], checked->name);
            continue;
        }
        int64_t before = t->failures, start = proa_clock_ns();
        device_mode.limit = 4e-6, device_mode.floor = 0;
        t->op = proa_op_names[i], t->checks = 0, t->worst = 0;
        t->every = every_of(o, ops, t->op);
        checks[i](t);
        printf("%-4s %-12s %-12s %7lld checks, worst %5.2f of the tolerance, %5.2f s\n",
               t->failures == before ? "ok" : "FAIL", ops->name, t->op, (long long)t->checks, t->worst,
               (double)(proa_clock_ns() - start) * 1e-9);
        fflush(stdout);
    }
    *failures += t->failures;
    proa_ctx_release(&t->reference);
    for (int n = 0; n < CHECK_THREADS; n++) proa_ctx_release(&t->tables[n]);
}

/* The ceilings: plausible, ordered by level, and progress that ends at 1. */
static void last_share(void *arg, double share)
{
    double *last = arg;
    if (share >= *last) *last = share;
    else *last = 2; /* went back */
}

static int check_ceilings(void)
{
    proa_pool *pool = proa_pool_new(2);
    double share = 0, read = proa_peak_read_bandwidth(pool, 64 * PROA_MIB, last_share, &share);
    int failures = !(read > 1e8 && read < 1e13) + !(share == 1.0);
    for (int isa = 0; isa <= (int)proa_isa_detect(); isa++) {
        proa_peak_rates rates = proa_peak_compute(pool, (proa_isa)isa);
        failures += !(rates.f32 > 1e7 && rates.f32 < 1e14);
        failures += (rates.i8 > 0) != (isa >= PROA_ISA_VNNI) || (rates.bf16 > 0) != (isa >= PROA_ISA_BF16);
    }
    proa_pool_free(pool);
    printf("%-4s ceilings\n", failures ? "FAIL" : "ok");
    return failures;
}

/* The tables of this CPU that are asked for; how many there were. */
static int check_cpu(const options *o, proa_pool *const *pools, int64_t *failures)
{
    const proa_ops *checked[PROA_ISA_COUNT + 1] = {NULL};
    int tables = 0;
    for (int isa = 0; isa < PROA_ISA_COUNT; isa++) {
        const proa_ops *ops = proa_ops_cpu((proa_isa)isa);
        if (!ops) printf("skip %-12s this CPU lacks it\n", proa_isa_name((proa_isa)isa));
        if (!ops || (o->table && strcmp(o->table, ops->name) != 0)) continue;
        tester t = {.verbose = o->verbose, .format = o->format, .every = o->every, .cases = o->every - o->first};
        t.below = tables ? checked[tables - 1] : NULL;
        check_table(&t, o, pools, ops, checked, failures);
        checked[tables++] = ops;
    }
    if (!tables) fprintf(stderr, "kerncheck: no table is named '%s'\n", o->table ? o->table : "");
    return tables;
}

static int check_device(const options *o, proa_pool *const *pools, int64_t *failures)
{
    proa_err err = {0};
    tester t = {.verbose = o->verbose, .format = o->format, .every = o->every, .cases = o->every - o->first};
    const proa_ops *ops = hosted_table(o->device, &err);
    device_mode.on = true;
    device_mode.narrow = !o->narrow                       ? PROA_DTYPE_F32
                         : strcmp(o->narrow, "bf16") == 0 ? PROA_DTYPE_BF16
                                                          : PROA_DTYPE_F16;
    if (ops) check_table(&t, o, pools, ops, &(const proa_ops *){NULL}, failures);
    else fprintf(stderr, "kerncheck: %s\n", err.text);
    hosted_close();
    return ops != NULL;
}

static int check_all(const options *o)
{
    proa_pool *pools[CHECK_THREADS];
    for (int n = 0; n < CHECK_THREADS; n++) pools[n] = proa_pool_new(n + 1);
    int64_t failures = 0;
    int tables = o->device ? check_device(o, pools, &failures) : check_cpu(o, pools, &failures);
    for (int n = 0; n < CHECK_THREADS; n++) proa_pool_free(pools[n]);
    if (!o->op && !o->table && !o->device) failures += check_ceilings();
    if (tables) printf("%lld failures\n", (long long)failures);
    else puts("nothing was checked");
    return failures || !tables;
}

bool checked_below(const tester *t, proa_wfmt format)
{
    return t->below && same_product(t->tables[0].ops, t->below, format);
}

bool takes_turn(tester *t)
{
    return t->every < 2 || t->cases++ % t->every == 0;
}

static int usage(void)
{
    puts("kerncheck [--op NAME] [--table NAME]            compare with the reference\n"
         "kerncheck --device cuda [--op NAME]             the table of a GPU\n"
         "kerncheck --device cuda --narrow f16|bf16       its views of 16 bits\n"
         "kerncheck --op linear|experts --format fp8 ...  weights of one format\n"
         "kerncheck --every N [--first K] ...             only each Nth case, from the Kth on: N processes "
         "do all\n"
         "kerncheck --bench [--op NAME] [--threads N] [--json]   time every table");
    return 2;
}

static bool op_exists(const char *name)
{
    for (int i = 0; proa_op_names[i]; i++)
        if (strcmp(name, proa_op_names[i]) == 0) return true;
    return false;
}

/* False: not an option. */
static bool read_option(options *o, int argc, char **argv, int *i)
{
    const struct {
        const char *name, **value;
    } named[] = {{"--op", &o->op},
                 {"--device", &o->device},
                 {"--table", &o->table},
                 {"--narrow", &o->narrow},
                 {"--format", &o->format}};
    for (size_t k = 0; k < PROA_COUNT(named) && *i + 1 < argc; k++)
        if (strcmp(argv[*i], named[k].name) == 0) return *named[k].value = argv[++*i], true;
    if (strcmp(argv[*i], "--bench") == 0) return o->bench = true;
    if (strcmp(argv[*i], "--json") == 0) return o->json = true;
    if (*i + 1 == argc) return false;
    if (strcmp(argv[*i], "--threads") == 0) return o->threads = atoi(argv[++*i]), true;
    if (strcmp(argv[*i], "--every") == 0) return o->every = atoi(argv[++*i]), true;
    if (strcmp(argv[*i], "--first") == 0) return o->first = atoi(argv[++*i]), true;
    return false;
}

int main(int argc, char **argv)
{
    options o = {0};
    mallopt(M_MMAP_THRESHOLD, 1 << 30); /* a canvas that was freed is used again, not cleared by the kernel */
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    for (int i = 1; i < argc; i++)
        if (!read_option(&o, argc, argv, &i)) return usage();
    if (o.op && !op_exists(o.op)) {
        fprintf(stderr, "kerncheck: no op is named '%s'\n", o.op);
        return 2;
    }
    if (o.bench) return bench_run(o.op, o.json, o.threads) ? 0 : 1;
    return check_all(&o);
}
