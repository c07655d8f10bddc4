/* SPDX-License-Identifier: Apache-2.0
 * test_comm.c - collectives of 1 to 5 ranks, and messages between them, in sizes below and above a slot, against what
 * one thread computes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/checked.h"
#include "comm/comm.h"
#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 5, WIDTH = 50003, ROUNDS = 200 };

/* Numbers that are not exact sums, so that another order would give other bits. */
static float value_of(int32_t rank, int64_t i, int round)
{
    return 1.0F / (float)(1 + (i * 31 + rank * 7 + round) % 1009) * (rank % 2 ? -1.0F : 1.0F);
}

static float sum_of(int32_t ranks, int64_t i, int round)
{
    float sum = value_of(0, i, round);
    for (int32_t r = 1; r < ranks; r++) sum += value_of(r, i, round);
    return sum;
}

typedef struct rank_job {
    proa_comm *comm;
    int64_t rows, width;
    int rounds;
    int64_t wrong;
} rank_job;

static proa_view rows_of(float *values, const rank_job *j, int64_t width)
{
    return proa_view_2d(values, PROA_DTYPE_F32, j->rows, width);
}

static void reduce(rank_job *j, int round)
{
    int64_t count = j->rows * j->width;
    float *values = malloc((size_t)(count + 1) * sizeof *values),
          *more = malloc((size_t)(count + 1) * sizeof *more);
    for (int64_t i = 0; i < count; i++) values[i] = value_of(j->comm->rank, i, round);
    proa_view x = rows_of(values, j, j->width), y = rows_of(more, j, j->width), none = {.rank = 0};
    for (int64_t i = 0; i < count; i++) more[i] = (float)i;
    j->comm->all_reduce(j->comm, y, x, round % 2 ? y : none);
    for (int64_t i = 0; i < count; i++) {
        float sum = sum_of(j->comm->ranks, i, round);
        if (round % 2) sum = (float)i + sum;
        j->wrong += memcmp(&more[i], &sum, sizeof sum) != 0;
    }
    free(values);
    free(more);
}

/* `cut` columns of the last rank's part are none of the result's. */
static void gather(rank_job *j, int round, int64_t cut)
{
    int64_t all = proa_max64(0, j->width * j->comm->ranks - cut);
    float *own = malloc((size_t)(j->rows * j->width + 1) * sizeof *own);
    float *to = malloc((size_t)(j->rows * all + 1) * sizeof *to);
    for (int64_t i = 0; i < j->rows * j->width; i++) own[i] = value_of(j->comm->rank, i, round);
    to[j->rows * all] = 7;
    j->comm->gather_columns(j->comm, rows_of(to, j, all), rows_of(own, j, j->width));
    for (int64_t t = 0; t < j->rows; t++)
        for (int64_t i = 0; i < all; i++) {
            int32_t rank = (int32_t)(i / j->width);
            j->wrong += to[t * all + i] != value_of(rank, t * j->width + i % j->width, round);
        }
    j->wrong += to[j->rows * all] != 7;
    free(own);
    free(to);
}

static void check_message(rank_job *j, const float *got, int32_t from, int round)
{
    for (int64_t i = 0; i < j->rows * j->width; i++) j->wrong += got[i] != value_of(from, i, round);
}

/* Rows go around the ranks; rank 0 is up to two messages ahead of who receives them. */
static void pass_on(rank_job *j, int round)
{
    proa_comm *c = j->comm;
    int32_t next = (c->rank + 1) % c->ranks, last = (c->rank + c->ranks - 1) % c->ranks;
    float *values = malloc((size_t)(j->rows * j->width + 1) * sizeof *values);
    proa_view x = rows_of(values, j, j->width);
    for (int k = 0; k < 2 && c->ranks > 1; k++) {
        for (int64_t i = 0; i < j->rows * j->width; i++) values[i] = value_of(c->rank, i, round + k);
        if (c->rank == 0) c->send(c, x, next);
    }
    for (int k = 0; k < 2 && c->ranks > 1; k++) {
        c->recv(c, x, last);
        check_message(j, values, last, round + k);
        for (int64_t i = 0; i < j->rows * j->width; i++) values[i] = value_of(c->rank, i, round + k);
        if (c->rank != 0) c->send(c, x, next);
    }
    free(values);
}

static void *run_rank(void *arg)
{
    rank_job *j = arg;
    for (int round = 0; round < j->rounds; round++) {
        reduce(j, round);
        gather(j, round, 0);
        gather(j, round, proa_min64(j->width, round % 3));
        pass_on(j, round);
    }
    proa_comm_close(j->comm);
    return NULL;
}

static void check_ranks(int32_t ranks, int64_t rows, int64_t width, int rounds)
{
    proa_comm *comm[RANKS];
    rank_job job[RANKS];
    pthread_t thread[RANKS];
    proa_err err = {0};
    assert_int_equal(proa_comm_open_threads(comm, ranks, &err), PROA_OK);
    for (int32_t r = 0; r < ranks; r++) {
        job[r] = (rank_job){comm[r], rows, width, rounds, 0};
        assert_int_equal(pthread_create(&thread[r], NULL, run_rank, &job[r]), 0);
    }
    for (int32_t r = 0; r < ranks; r++) {
        pthread_join(thread[r], NULL);
        assert_int_equal(job[r].wrong, 0);
    }
}

static void test_one_number(void **state)
{
    PROA_UNUSED(state);
    for (int32_t ranks = 1; ranks <= RANKS; ranks++) check_ranks(ranks, 1, 1, ROUNDS);
}

static void test_more_than_a_slot(void **state)
{
    PROA_UNUSED(state);
    for (int32_t ranks = 1; ranks <= RANKS; ranks++) check_ranks(ranks, 3, WIDTH, 3);
}

static void test_no_rows(void **state)
{
    PROA_UNUSED(state);
    check_ranks(3, 0, 5, 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_number),
        cmocka_unit_test(test_more_than_a_slot),
        cmocka_unit_test(test_no_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
