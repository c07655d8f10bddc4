/* SPDX-License-Identifier: Apache-2.0
 * streams.c - mix_streams, match_rms, threshold_rows and row_moments: sums in double, rounded once. */
#include "kernels/reference/reference.h"

#include "kernels/reference/view_at.h"
#include <math.h>

/* One column of a row: all streams are read before any is written, since y may be x. */
static void mix_column(proa_view y, proa_view x, proa_view w, float plus, int64_t t, int64_t j)
{
    int64_t n = y.shape[1], m = x.shape[1];
    double sums[PROA_STREAMS_MAX];
    for (int64_t i = 0; i < n; i++) {
        sums[i] = (double)*at_plane(y, t, i, j);
        for (int64_t k = 0; k < m; k++) {
            double weight = (double)plus + (w.rank ? (double)*at_row(w, t, i * m + k) : 0);
            sums[i] += weight * (double)*at_plane(x, t, k, j);
        }
    }
    for (int64_t i = 0; i < n; i++) *at_plane(y, t, i, j) = (float)sums[i];
}

void proa_mix_streams_reference(proa_ctx *c, proa_view y, proa_view x, proa_view w, float plus)
{
    PROA_UNUSED(c);
    PROA_DASSERT(y.shape[1] <= PROA_STREAMS_MAX);
    for (int64_t t = 0; t < y.shape[0]; t++)
        for (int64_t j = 0; j < y.shape[2]; j++) mix_column(y, x, w, plus, t, j);
}

static double mean_square(const float *x, int64_t d)
{
    double sum = 0;
    for (int64_t j = 0; j < d; j++) sum += (double)x[j] * (double)x[j];
    return sum / (double)d;
}

void proa_match_rms_reference(proa_ctx *c, proa_view y, proa_view x, proa_view r, float least)
{
    PROA_UNUSED(c);
    int64_t d = x.shape[2];
    for (int64_t t = 0; t < x.shape[0]; t++)
        for (int64_t i = 0; i < x.shape[1]; i++) {
            const float *from = at_plane(x, t, i, 0);
            double own = mean_square(from, d), factor = sqrt(mean_square(at_row(r, t, 0), d));
            factor /= sqrt(own < (double)least ? (double)least : own);
            for (int64_t j = 0; j < d; j++) at_plane(y, t, i, 0)[j] = (float)((double)from[j] * factor);
        }
}

typedef struct moments {
    double mean, variance;
} moments;

static moments moments_of(const float *row, int64_t d)
{
    moments m = {0, 0};
    for (int64_t j = 0; j < d; j++) m.mean += (double)row[j];
    m.mean /= (double)d;
    for (int64_t j = 0; j < d; j++) m.variance += ((double)row[j] - m.mean) * ((double)row[j] - m.mean);
    m.variance /= (double)d;
    return m;
}

/* Of a row whose parts have these: the mean of the means, and within and between the parts. */
static moments join_moments(const float *part, int64_t parts)
{
    moments m = {0, 0};
    double all = 0;
    for (int64_t i = 0; i < parts; i++) {
        all += (double)part[4 * i];
        m.mean += (double)part[4 * i] * (double)part[4 * i + 1];
    }
    m.mean /= all;
    for (int64_t i = 0; i < parts; i++) {
        double between = (double)part[4 * i + 1] - m.mean;
        m.variance += (double)part[4 * i] / all * ((double)part[4 * i + 2] + between * between);
    }
    return m;
}

void proa_row_moments_reference(proa_ctx *c, proa_view m, proa_view x)
{
    PROA_UNUSED(c);
    for (int64_t t = 0; t < x.shape[0]; t++) {
        moments of = moments_of(at_row(x, t, 0), x.shape[1]);
        float *to = at_row(m, t, 0);
        to[0] = (float)x.shape[1], to[1] = (float)of.mean, to[2] = (float)of.variance, to[3] = 0;
    }
}

void proa_threshold_rows_reference(proa_ctx *c, proa_view x, proa_view m, float deviations)
{
    PROA_UNUSED(c);
    int64_t d = x.shape[1];
    for (int64_t t = 0; t < x.shape[0]; t++) {
        float *row = at_row(x, t, 0);
        moments of = m.rank ? join_moments(at_row(m, t, 0), m.shape[1] / 4) : moments_of(row, d);
        double least = of.mean + (double)deviations * sqrt(of.variance);
        for (int64_t j = 0; j < d; j++) {
            double above = (double)row[j] - least;
            row[j] = above < 0 ? 0 : (float)above; /* NaN stays */
        }
    }
}
