/* SPDX-License-Identifier: Apache-2.0
 * test_connect.c - what ranks tell each other of their GPUs, and how they choose between memory and NCCL. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "kernels/connect.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 3 };
static const proa_rank_line all_ranks = {0, 1, RANKS};

static void says(const proa_err *err, const char *text)
{
    if (!strstr(err->text, text)) fail_msg("'%s' does not say '%s'", err->text, text);
}

/* Ranks of one host with a GPU each. */
static void fill_cards(proa_gpu_card cards[RANKS])
{
    for (int i = 0; i < RANKS; i++) {
        proa_err err = {.status = PROA_OK};
        assert_int_equal(proa_gpu_card_make(&cards[i], &err), PROA_OK);
        cards[i].gpu[0] = (char)('a' + i);
        cards[i].nccl = 22809;
    }
}

static void test_words(void **state)
{
    proa_gpu_card card;
    proa_err err = {.status = PROA_OK};
    (void)state;
    setenv("PROA_COLLECTIVES", "nccl", 1);
    assert_int_equal(proa_gpu_card_make(&card, &err), PROA_OK);
    assert_int_equal(card.collectives, PROA_COLLECTIVES_NCCL);
    assert_true(strlen(card.host) > 8);
    setenv("PROA_COLLECTIVES", "smoke", 1);
    assert_int_equal(proa_gpu_card_make(&card, &err), PROA_INVALID);
    says(&err, "PROA_COLLECTIVES is 'smoke', must be auto, peer or nccl");
    unsetenv("PROA_COLLECTIVES");
}

static void test_wait(void **state)
{
    static const char *const wrong[] = {"0", "-1", "1.5", "86401", "soon", "8s"};
    proa_gpu_card card;
    (void)state;
    assert_int_equal(proa_gpu_card_make(&card, NULL), PROA_OK);
    assert_int_equal(card.wait_ms, 8000);
    setenv("PROA_COLLECTIVES_WAIT", "120", 1);
    assert_int_equal(proa_gpu_card_make(&card, NULL), PROA_OK);
    assert_int_equal(card.wait_ms, 120000);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        proa_err err = {.status = PROA_OK};
        setenv("PROA_COLLECTIVES_WAIT", wrong[i], 1);
        assert_int_equal(proa_gpu_card_make(&card, &err), PROA_INVALID);
        says(&err, "', must be 1 to 86400 seconds");
    }
    unsetenv("PROA_COLLECTIVES_WAIT");
}

static void test_choice(void **state)
{
    proa_gpu_card cards[RANKS];
    proa_err err = {.status = PROA_OK};
    bool peer = false;
    (void)state;
    fill_cards(cards);
    assert_int_equal(proa_gpu_cards_choose(&peer, cards, all_ranks, &err), PROA_OK);
    assert_true(peer);
    cards[0].collectives = PROA_COLLECTIVES_NCCL;
    assert_int_equal(proa_gpu_cards_choose(&peer, cards, all_ranks, &err), PROA_OK);
    assert_false(peer);
    cards[0].collectives = PROA_COLLECTIVES_AUTO, cards[1].collectives = PROA_COLLECTIVES_NCCL; /* rank 0's counts */
    assert_int_equal(proa_gpu_cards_choose(&peer, cards, all_ranks, &err), PROA_OK);
    assert_true(peer);
    strcpy(cards[2].host, "another");
    assert_int_equal(proa_gpu_cards_choose(&peer, cards, all_ranks, &err), PROA_OK);
    assert_false(peer);
    assert_int_equal(proa_gpu_cards_choose(&peer, cards, (proa_rank_line){0, 1, 2}, &err), PROA_OK);
    assert_true(peer);
    assert_int_equal(proa_gpu_cards_choose(&peer, cards, (proa_rank_line){0, 2, 2}, &err), PROA_OK);
    assert_false(peer);
    cards[0].collectives = PROA_COLLECTIVES_PEER;
    assert_int_equal(proa_gpu_cards_choose(&peer, cards, all_ranks, &err), PROA_INVALID);
    says(&err, "PROA_COLLECTIVES is 'peer', but ranks 0 and 2 are on different hosts");
}

static void test_refused(void **state)
{
    proa_gpu_card cards[RANKS];
    proa_err err = {.status = PROA_OK};
    bool peer;
    (void)state;
    fill_cards(cards);
    cards[2].gpu[0] = cards[1].gpu[0];
    assert_int_equal(proa_gpu_cards_choose(&peer, cards, all_ranks, &err), PROA_INVALID);
    says(&err,
         "ranks 1 and 2 have the same GPU (b): a host needs as many as it has ranks (CUDA_VISIBLE_DEVICES)");
    assert_int_equal(proa_gpu_cards_check_nccl(cards, all_ranks, NULL), PROA_OK);
    cards[1].nccl = 22304, err = (proa_err){.status = PROA_OK};
    assert_int_equal(proa_gpu_cards_check_nccl(cards, all_ranks, &err), PROA_UNSUPPORTED);
    says(&err, "rank 0 has NCCL 2.28.9, rank 1 has 2.23.4: all ranks need the same");
}

/* ---- the exchange ---- */

typedef struct rank {
    proa_comm *control;
    proa_gpu_card own, all[RANKS];
    proa_status status;
    proa_err err;
    pthread_t thread;
} rank;

static void *exchange(void *arg)
{
    rank *r = arg;
    r->status = proa_gpu_cards_exchange(r->all, &r->own, r->control, &r->err);
    return NULL;
}

static void run_ranks(rank *ranks, int count)
{
    for (int i = 0; i < count; i++) pthread_create(&ranks[i].thread, NULL, exchange, &ranks[i]);
    for (int i = 0; i < count; i++) pthread_join(ranks[i].thread, NULL);
}

/* Each knows what all have; the first failure of a line is named in all its ranks, and in no other. */
static void test_exchange(void **state)
{
    static rank ranks[RANKS];
    proa_comm *control[RANKS];
    proa_err why = {.status = PROA_OK};
    (void)state;
    assert_int_equal(proa_comm_open_threads(control, RANKS, NULL), PROA_OK);
    for (int i = 0; i < RANKS; i++) {
        ranks[i].control = control[i];
        assert_int_equal(proa_gpu_card_make(&ranks[i].own, &why), PROA_OK);
        memset(ranks[i].own.memory, 'a' + i, sizeof ranks[i].own.memory);
    }
    proa_gpu_card_fail(&ranks[2].own, PROA_FAIL(&why, NO_MEMORY, "GPU: no memory"), &why);
    proa_gpu_card_fail(&ranks[2].own, PROA_INTERNAL, &(proa_err){.text = "later"});
    run_ranks(ranks, RANKS);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(ranks[i].status, PROA_OK);
        for (int k = 0; k < RANKS; k++) assert_int_equal(ranks[i].all[k].memory[63], 'a' + k);
        assert_int_equal(proa_gpu_cards_failed(ranks[i].all, (proa_rank_line){0, 1, 2}, NULL), PROA_OK);
        assert_int_equal(proa_gpu_cards_failed(ranks[i].all, all_ranks, &ranks[i].err), PROA_NO_MEMORY);
        assert_string_equal(ranks[i].err.text, "rank 2: GPU: no memory");
    }
    for (int i = 0; i < RANKS; i++) proa_comm_close(control[i]);
}

/* A rank that has died never answers: the others return once the group is stopped. */
static void test_stopped(void **state)
{
    static rank ranks[RANKS];
    proa_comm *control[RANKS];
    int fd;
    (void)state;
    assert_int_equal(proa_comm_shared_file(&fd, RANKS, NULL), PROA_OK);
    for (int32_t i = 0; i < RANKS; i++) {
        assert_int_equal(proa_comm_open_shared(&control[i], fd, i, RANKS, NULL), PROA_OK);
        ranks[i].control = control[i];
    }
    control[2]->stop(control[2]);
    run_ranks(ranks, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ranks[i].status, PROA_UNAVAILABLE);
        assert_string_equal(ranks[i].err.text, "the other ranks have ended");
    }
    for (int i = 0; i < RANKS; i++) proa_comm_close(control[i]);
}

static void test_no_gpu(void **state)
{
    proa_device *d;
    proa_comm *control[1], *out;
    bool waits = true;
    proa_err err = {.status = PROA_OK};
    (void)state;
    assert_int_equal(proa_device_open(&d, "cpu", &err), PROA_OK);
    assert_int_equal(proa_comm_open_threads(control, 1, NULL), PROA_OK);
    proa_status status = proa_device_connect(&out, &waits, d, control[0], (proa_rank_line){0, 1, 1}, &err);
    assert_int_equal(status, PROA_UNSUPPORTED);
    assert_true(!out && !waits);
    says(&err, "device 'cpu' is not connected with others of other processes");
    proa_comm_close(control[0]);
    proa_device_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_words),   cmocka_unit_test(test_wait),     cmocka_unit_test(test_choice),
        cmocka_unit_test(test_refused), cmocka_unit_test(test_exchange), cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_no_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
