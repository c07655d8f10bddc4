/* SPDX-License-Identifier: Apache-2.0
 * step_time.c - how long a decoder's pass takes, learnt from the passes that ran. */
#include "engine/pacing/step_time.h"

#include <math.h>
#include <string.h>

/* What is left of the weight of a measurement when the next one of its kind arrives. */
#define KEPT  0.97
/* Part by which the diagonal is raised, so that terms that always grow together share their part of the time. */
#define RIDGE 1e-4
/* Measurements of both kinds after which times are known. */
enum { KNOWN_AFTER = 4 };

/* A pass of usual size. Terms are divided by it, so that all are about 1 and RIDGE weighs them alike. */
#define USUAL_DECODE_ROWS   64.0
#define USUAL_CONTEXT       1024.0 /* tokens of one decoding row */
#define USUAL_PROMPT_ROWS   256.0
#define USUAL_PROMPT_TOKENS 4096.0 /* context of one row of a prompt */

/* What the time of a pass is a sum over, with one share for each (step_time.h). */
static void terms_of(double x[PROA_STEP_TERMS], const proa_step_shape *s)
{
    x[0] = 1; /* the pass itself */
    x[1] = (double)s->decode_rows / USUAL_DECODE_ROWS;
    x[2] = (double)s->decode_tokens / (USUAL_DECODE_ROWS * USUAL_CONTEXT);
    x[3] = s->prompt_rows > 0;
    x[4] = s->prompt_work / USUAL_PROMPT_ROWS;
    x[5] = s->prompt_pairs / (USUAL_PROMPT_ROWS * USUAL_PROMPT_TOKENS);
}

/* Solves a y = b for the terms that are `used`, by Cholesky's method; the others are 0. `a` is overwritten. */
static void solve_normal(double y[PROA_STEP_TERMS], double a[PROA_STEP_TERMS][PROA_STEP_TERMS],
                         const double b[PROA_STEP_TERMS], const bool used[PROA_STEP_TERMS])
{
    enum { N = PROA_STEP_TERMS };
    int at[N], n = 0;
    for (int i = 0; i < N; i++) {
        y[i] = 0;
        if (used[i]) at[n++] = i;
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            double sum = a[at[i]][at[j]];
            for (int k = 0; k < j; k++) sum -= a[at[i]][at[k]] * a[at[j]][at[k]];
            a[at[i]][at[j]] = i == j ? sqrt(fmax(sum, 1e-300)) : sum / a[at[j]][at[j]];
        }
    for (int i = 0; i < n; i++) {
        double sum = b[at[i]];
        for (int k = 0; k < i; k++) sum -= a[at[i]][at[k]] * y[at[k]];
        y[at[i]] = sum / a[at[i]][at[i]];
    }
    for (int i = n - 1; i >= 0; i--) {
        double sum = y[at[i]];
        for (int k = i + 1; k < n; k++) sum -= a[at[k]][at[i]] * y[at[k]];
        y[at[i]] = sum / a[at[i]][at[i]];
    }
}

/* The term with the smallest share is left out as long as that is negative. */
static void fit_shares(proa_step_times *t)
{
    enum { N = PROA_STEP_TERMS };
    double a[N][N], b[N], loaded[N][N];
    bool used[N];
    for (int i = 0; i < N; i++) {
        b[i] = t->sums[0][i] + t->sums[1][i];
        for (int j = 0; j < N; j++) a[i][j] = t->products[0][i][j] + t->products[1][i][j];
        used[i] = a[i][i] > 0;
        a[i][i] *= 1 + RIDGE;
    }
    for (int least = 0; least >= 0;) {
        memcpy(loaded, a, sizeof a);
        solve_normal(t->share, loaded, b, used);
        least = -1;
        for (int i = 0; i < N; i++)
            if (t->share[i] < 0 && (least < 0 || t->share[i] < t->share[least])) least = i;
        if (least >= 0) used[least] = false;
    }
}

void proa_step_time_add(proa_step_times *t, const proa_step_shape *shape, double ns)
{
    double x[PROA_STEP_TERMS];
    int kind = shape->prompt_rows > 0;
    if (!(ns > 0)) return;
    terms_of(x, shape);
    /* relative errors: the sum of the shares over ns is to be 1 */
    for (int i = 0; i < PROA_STEP_TERMS; i++) {
        t->sums[kind][i] = KEPT * t->sums[kind][i] + x[i] / ns;
        for (int j = 0; j < PROA_STEP_TERMS; j++)
            t->products[kind][i][j] = KEPT * t->products[kind][i][j] + x[i] / ns * (x[j] / ns);
    }
    t->count[kind]++;
    if (kind) t->prompt_rows_tried = fmax(KEPT * t->prompt_rows_tried, (double)shape->prompt_rows);
    fit_shares(t);
}

bool proa_step_time_is_known(const proa_step_times *t)
{
    return t->count[0] >= KNOWN_AFTER && t->count[1] >= KNOWN_AFTER;
}

double proa_step_time_of(const proa_step_times *t, const proa_step_shape *shape)
{
    double x[PROA_STEP_TERMS], ns = 0;
    terms_of(x, shape);
    for (int i = 0; i < PROA_STEP_TERMS; i++) ns += t->share[i] * x[i];
    return ns;
}
