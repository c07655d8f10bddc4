/* SPDX-License-Identifier: Apache-2.0
 * message.c - the statistics of a version as the message of Triton's statistics extension. */
#include "serve/stats/internal.h"
#include <stdlib.h>

static Inference__StatisticDuration *duration_message(const proa_duration *d, proa_arena *arena)
{
    Inference__StatisticDuration *m = PROA_ARENA_NEW(arena, Inference__StatisticDuration, 1);
    inference__statistic_duration__init(m);
    m->count = d->count;
    m->ns = d->ns;
    return m;
}

static Inference__InferStatistics *infer_statistics(const proa_stats_sums *s, proa_arena *arena)
{
    Inference__InferStatistics *m = PROA_ARENA_NEW(arena, Inference__InferStatistics, 1);
    inference__infer_statistics__init(m);
    m->success = duration_message(&s->success, arena);
    m->fail = duration_message(&s->fail, arena);
    m->queue = duration_message(&s->queue, arena);
    m->compute_input = duration_message(&s->input, arena);
    m->compute_infer = duration_message(&s->infer, arena);
    m->compute_output = duration_message(&s->output, arena);
    m->cache_hit = duration_message(&s->hit, arena);
    m->cache_miss = duration_message(&s->miss, arena);
    return m;
}

static int by_size(const void *a, const void *b)
{
    int64_t x = ((const proa_batch_row *)a)->size, y = ((const proa_batch_row *)b)->size;
    return (x > y) - (x < y);
}

static void fill_batches(proa_model_stats *stats, Inference__ModelStatistics *m, proa_arena *arena)
{
    proa_batch_row *rows;
    int count = proa_stats_batches(stats, arena, &rows);
    qsort(rows, (size_t)count, sizeof *rows, by_size);
    m->batch_stats = PROA_ARENA_NEW(arena, Inference__InferBatchStatistics *, count);
    m->n_batch_stats = (size_t)count;
    for (int i = 0; i < count; i++) {
        Inference__InferBatchStatistics *b = PROA_ARENA_NEW(arena, Inference__InferBatchStatistics, 1);
        inference__infer_batch_statistics__init(b);
        b->batch_size = (uint64_t)rows[i].size;
        b->compute_input = duration_message(&rows[i].input, arena);
        b->compute_infer = duration_message(&rows[i].infer, arena);
        b->compute_output = duration_message(&rows[i].output, arena);
        m->batch_stats[i] = b;
    }
}

static Inference__ModelStatistics__ResponseStatsEntry *reply_entry(int index, const proa_reply_row *row,
                                                                   proa_arena *arena)
{
    Inference__ModelStatistics__ResponseStatsEntry *e = PROA_ARENA_NEW(
        arena, Inference__ModelStatistics__ResponseStatsEntry, 1);
    Inference__InferResponseStatistics *m = PROA_ARENA_NEW(arena, Inference__InferResponseStatistics, 1);
    inference__model_statistics__response_stats_entry__init(e);
    inference__infer_response_statistics__init(m);
    m->compute_infer = duration_message(&row->infer, arena);
    m->compute_output = duration_message(&row->output, arena);
    m->success = duration_message(&row->success, arena);
    m->fail = duration_message(&row->fail, arena);
    m->empty_response = duration_message(&row->empty, arena);
    m->cancel = duration_message(&row->cancel, arena);
    e->key = proa_arena_printf(arena, "%d", index);
    e->value = m;
    return e;
}

static void fill_replies(proa_model_stats *stats, Inference__ModelStatistics *m, proa_arena *arena)
{
    pthread_mutex_lock(&stats->lock);
    m->response_stats = PROA_ARENA_NEW(arena, Inference__ModelStatistics__ResponseStatsEntry *,
                                       stats->replies_count);
    for (int i = 0; i < stats->replies_count; i++)
        if (stats->replies[i].used)
            m->response_stats[m->n_response_stats++] = reply_entry(i, &stats->replies[i], arena);
    pthread_mutex_unlock(&stats->lock);
}

Inference__ModelStatistics *proa_stats_message(proa_model_stats *stats, const char *name, int64_t version,
                                               proa_arena *arena)
{
    Inference__ModelStatistics *m = PROA_ARENA_NEW(arena, Inference__ModelStatistics, 1);
    proa_stats_sums *sums = PROA_ARENA_NEW(arena, proa_stats_sums, 1);
    proa_stats_read(stats, sums);
    inference__model_statistics__init(m);
    m->name = proa_arena_strdup(arena, proa_str_c(name));
    m->version = proa_arena_printf(arena, "%lld", (long long)version);
    m->last_inference = sums->last_ms;
    m->inference_count = sums->inferences;
    m->execution_count = sums->executions;
    m->inference_stats = infer_statistics(sums, arena);
    fill_batches(stats, m, arena);
    fill_replies(stats, m, arena);
    return m;
}
