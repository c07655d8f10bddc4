/* SPDX-License-Identifier: Apache-2.0
 * windows.c - quantiles of the last minute. Six windows of ten seconds each count records in buckets that are a
 * sixteenth of an octave wide, so a quantile is right within 3 %. The oldest window is emptied and reused for the
 * newest. */
#include "base/alloc.h"
#include "base/clock.h"
#include "serve/stats/internal.h"
#include <string.h>

#define WINDOWS   6
#define WINDOW_NS ((int64_t)10 * 1000000000)
#define STEPS     16 /* buckets of an octave */
#define OCTAVES   38 /* up to 2^41 ns: 36 minutes */
#define BUCKETS   ((OCTAVES + 1) * STEPS)

typedef struct window {
    int64_t number; /* of its ten seconds */
    uint32_t counts[BUCKETS];
} window;

struct proa_windows {
    window ring[WINDOWS];
};

static int bucket_of(uint64_t v)
{
    if (v < STEPS) return (int)v;
    int shift = 63 - __builtin_clzll(v) - 4; /* the five highest bits stay: 16 to 31 */
    int at = (shift + 1) * STEPS + (int)((v >> shift) - STEPS);
    return at < BUCKETS ? at : BUCKETS - 1;
}

/* The middle of a bucket. */
static double value_of(int at)
{
    if (at < STEPS) return at;
    int shift = at / STEPS - 1;
    return ((double)(at % STEPS + STEPS) + 0.5) * (double)((uint64_t)1 << shift);
}

void proa_stats_summaries(proa_model_stats *stats)
{
    if (atomic_load(&stats->windows_on)) return;
    stats->windows = proa_calloc(PROA_LATENCY_COUNT, sizeof *stats->windows);
    atomic_store_explicit(&stats->windows_on, true, memory_order_release);
}

void proa_windows_free(proa_model_stats *stats)
{
    free(stats->windows);
}

void proa_windows_add(proa_model_stats *stats, proa_latency which, int64_t ns)
{
    int64_t number = proa_clock_ns() / WINDOW_NS;
    pthread_mutex_lock(&stats->lock);
    window *w = &stats->windows[which].ring[number % WINDOWS];
    if (w->number != number) {
        memset(w, 0, sizeof *w);
        w->number = number;
    }
    w->counts[bucket_of(ns > 0 ? (uint64_t)ns : 0)]++;
    pthread_mutex_unlock(&stats->lock);
}

static double quantile_of(const uint64_t *counts, uint64_t total, double share)
{
    double rank = share * (double)total;
    uint64_t seen = 0;
    for (int i = 0; i < BUCKETS; i++) {
        seen += counts[i];
        if (counts[i] && (double)seen >= rank) return value_of(i);
    }
    return -1;
}

bool proa_stats_quantiles(proa_model_stats *stats, proa_latency which, const double *shares, int count, double *ns)
{
    uint64_t counts[BUCKETS] = {0}, total = 0;
    if (!atomic_load_explicit(&stats->windows_on, memory_order_acquire)) return false;
    int64_t number = proa_clock_ns() / WINDOW_NS;
    pthread_mutex_lock(&stats->lock);
    for (int w = 0; w < WINDOWS; w++) {
        const window *from = &stats->windows[which].ring[w];
        if (from->number <= number - WINDOWS) continue;
        for (int i = 0; i < BUCKETS; i++) {
            counts[i] += from->counts[i];
            total += from->counts[i];
        }
    }
    pthread_mutex_unlock(&stats->lock);
    for (int i = 0; i < count; i++) ns[i] = total ? quantile_of(counts, total, shares[i]) : -1;
    return true;
}
