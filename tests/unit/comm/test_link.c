/* SPDX-License-Identifier: Apache-2.0
 * test_link.c - messages that are written and read; frames between two ends of a link, an end that closes, one that
 * sends what is no frame, and one that is silent; ranks in several processes over one file, of which one dies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/limits.h"
#include "comm/comm.h"
#include "comm/link.h"
#include "comm/rank_message.h"
#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- messages ---- */

typedef struct sample {
    int64_t count;
    const int32_t *numbers, *none;
    const char *text;
} sample;

static void sample_message(proa_rank_message *m, sample *s)
{
    PROA_RANK_MESSAGE_VALUE(m, s->count);
    PROA_RANK_MESSAGE_ARRAY(m, s->numbers, s->count);
    PROA_RANK_MESSAGE_ARRAY(m, s->none, s->count);
    s->text = proa_rank_message_text(m, s->text);
}

static void test_message(void **state)
{
    PROA_UNUSED(state);
    static const int32_t numbers[] = {3, 1, 4, 1, 5};
    sample from = {5, numbers, NULL, "ranks"}, to = {0};
    proa_rank_message m = {.bytes = NULL};
    proa_rank_message_write(&m);
    sample_message(&m, &from);
    int64_t size = m.size;
    proa_rank_message_read(&m, size);
    sample_message(&m, &to);
    assert_false(m.broken);
    assert_int_equal(to.count, 5);
    assert_memory_equal(to.numbers, numbers, sizeof numbers);
    assert_null(to.none);
    assert_string_equal(to.text, "ranks");
    for (int64_t cut = 0; cut < size; cut++) { /* each shorter message is broken, and nothing is read behind it */
        proa_rank_message_read(&m, cut);
        sample_message(&m, &to);
        assert_true(m.broken);
    }
    proa_rank_message_release(&m);
}

/* ---- links ---- */

typedef struct seen {
    atomic_int frames, lost, beats;
    char why[64];
    pthread_mutex_t lock;
} seen;

static void see_frame(void *arg, int32_t link, uint32_t kind, const void *bytes, int64_t size)
{
    seen *s = arg;
    PROA_UNUSED(link);
    if (kind == PROA_FRAME_FIRST && size == 3 && memcmp(bytes, "abc", 3) == 0)
        atomic_fetch_add(&s->frames, 1);
}

static void see_loss(void *arg, int32_t link, const char *why)
{
    seen *s = arg;
    PROA_UNUSED(link);
    pthread_mutex_lock(&s->lock);
    snprintf(s->why, sizeof s->why, "%s", why);
    pthread_mutex_unlock(&s->lock);
    atomic_fetch_add(&s->lost, 1);
}

static void see_beat(void *arg)
{
    seen *s = arg;
    atomic_fetch_add(&s->beats, 1);
}

static proa_links *open_link(int fd, seen *s)
{
    const proa_link_events events = {see_frame, see_loss, see_beat, s};
    proa_links *links;
    assert_int_equal(proa_links_open(&links, &fd, 1, &events, NULL), PROA_OK);
    return links;
}

static void wait_for(const atomic_int *value, int least)
{
    int64_t end = proa_clock_ns() + (int64_t)60 * 1000000000;
    while (atomic_load(value) < least && proa_clock_ns() < end) usleep(1000);
    assert_true(atomic_load(value) >= least);
}

static void expect_loss(seen *s, const char *why)
{
    wait_for(&s->lost, 1);
    pthread_mutex_lock(&s->lock);
    assert_string_equal(s->why, why);
    pthread_mutex_unlock(&s->lock);
}

static void test_frames(void **state)
{
    PROA_UNUSED(state);
    int pair[2];
    seen a = {.lock = PTHREAD_MUTEX_INITIALIZER}, b = {.lock = PTHREAD_MUTEX_INITIALIZER};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    proa_links *one = open_link(pair[0], &a), *two = open_link(pair[1], &b);
    for (int i = 0; i < 100; i++) proa_links_send(one, 0, PROA_FRAME_FIRST, "abc", 3);
    proa_links_send(two, 0, PROA_FRAME_FIRST, "abc", 3);
    wait_for(&b.frames, 100);
    wait_for(&a.frames, 1);
    proa_links_close(one);
    expect_loss(&b, "has ended");
    proa_links_send(two, 0, PROA_FRAME_FIRST, "abc", 3);
    proa_links_close(two);
    assert_int_equal(atomic_load(&a.lost), 0);
}

static void test_no_frame(void **state)
{
    PROA_UNUSED(state);
    int pair[2];
    seen a = {.lock = PTHREAD_MUTEX_INITIALIZER};
    const uint32_t wrong[2] = {PROA_FRAME_FIRST, PROA_RANK_FRAME_MAX + 1};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    proa_links *links = open_link(pair[0], &a);
    assert_int_equal(write(pair[1], wrong, sizeof wrong), sizeof wrong);
    expect_loss(&a, "sent what is no frame");
    proa_links_close(links);
    close(pair[1]);
}

static void test_silence(void **state)
{
    PROA_UNUSED(state);
    int pair[2];
    seen a = {.lock = PTHREAD_MUTEX_INITIALIZER};
    int64_t begin = proa_clock_ns();
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    proa_links *links = open_link(pair[0], &a);
    expect_loss(&a, "has not answered for 6 s");
    assert_true(proa_clock_ns() - begin < (int64_t)60 * 1000000000);
    assert_true(atomic_load(&a.beats) >= 4);
    proa_links_close(links);
    close(pair[1]);
}

/* ---- ranks of several processes ---- */

/* Sums until the group is stopped, or for some rounds. The exit status says whether all sums were right. */
static void run_rank(int fd, int32_t rank, int rounds)
{
    proa_comm *c;
    if (proa_comm_open_shared(&c, fd, rank, 3, NULL) != PROA_OK) _exit(2);
    bool right = true;
    for (int i = 0; i < rounds && right; i++) {
        float value = (float)(rank + i), sum = 0;
        proa_view x = proa_view_2d(&value, PROA_DTYPE_F32, 1, 1), y = proa_view_2d(&sum, PROA_DTYPE_F32, 1, 1);
        c->all_reduce(c, y, x, (proa_view){.rank = 0});
        if (c->stopped(c)) _exit(3);
        right = sum == (float)(3 + 3 * i);
    }
    proa_comm_close(c);
    _exit(right ? 0 : 1);
}

static int start_ranks(pid_t pid[3], int rounds)
{
    int fd;
    assert_int_equal(proa_comm_shared_file(&fd, 3, NULL), PROA_OK);
    for (int32_t rank = 0; rank < 3; rank++)
        if ((pid[rank] = fork()) == 0)
            run_rank(fd, rank, rank == 2 && rounds == 0 ? 100 : rounds ? rounds : 1 << 30);
    return fd;
}

static int status_of(pid_t pid)
{
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_processes(void **state)
{
    PROA_UNUSED(state);
    pid_t pid[3];
    int fd = start_ranks(pid, 2000);
    for (int i = 0; i < 3; i++) assert_int_equal(status_of(pid[i]), 0);
    close(fd);
}

/* One rank ends after 100 rounds. The others wait for it until somebody stops the group. */
static void test_stop(void **state)
{
    PROA_UNUSED(state);
    pid_t pid[3];
    proa_comm *c;
    int fd = start_ranks(pid, 0);
    assert_int_equal(status_of(pid[2]), 0);
    assert_int_equal(proa_comm_open_shared(&c, fd, 2, 3, NULL), PROA_OK);
    usleep(200000);
    assert_int_equal(waitpid(pid[0], NULL, WNOHANG), 0);
    c->stop(c);
    assert_int_equal(status_of(pid[0]), 3);
    assert_int_equal(status_of(pid[1]), 3);
    proa_comm_close(c);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_message), cmocka_unit_test(test_processes), cmocka_unit_test(test_stop),
        cmocka_unit_test(test_frames),  cmocka_unit_test(test_no_frame),  cmocka_unit_test(test_silence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
