/* SPDX-License-Identifier: Apache-2.0
 * test_inflight.c - several clients send small bodies that become large ones, over a socket, with the models of
 * openai_rig.h: what the running requests have counts against the limit of all bodies, until they end. */
#include "net/block.h"
#include "net/compress.h"
#include "openai_rig.h"

#include <poll.h>

enum { CLIENTS = 12, ROOM = 4, TEXT = 4 << 20 };

static oai_rig rig;

typedef struct bomb {
    const char *path, *headers;
    const char *begin, *end; /* of the body, around a text that makes the model wait */
    bool packed;
} bomb;

#define JSON_BEGIN "{\"inputs\":[{\"name\":\"text_input\",\"datatype\":\"BYTES\",\"shape\":[1],\"data\":[\""
#define JSON_END   "\"]}]}"
#define BINARY_BEGIN                                                                                         \
    "{\"inputs\":[{\"name\":\"text_input\",\"datatype\":\"BYTES\",\"shape\":[1],\"parameters\":{\"binary_"   \
    "data_size\":"                                                                                           \
    "4194308}}]}" /* with the length of the text */
#define INFER "/v2/models/words/infer"

static const bomb infer_json = {INFER, "Content-Encoding: gzip\r\n", JSON_BEGIN, JSON_END, true};
static const bomb infer_binary = {
    INFER, "Content-Encoding: deflate\r\nInference-Header-Content-Length: 107\r\n", BINARY_BEGIN, "", true};
static const bomb infer_plain = {INFER, "", JSON_BEGIN, JSON_END, false};
static const bomb completion = {"/v1/completions", "Content-Encoding: gzip\r\nContent-Type: application/json\r\n",
                                "{\"model\":\"words\",\"prompt\":\"", "\"}", true};

static const bomb generate = {"/v2/models/words/generate", "", "{\"text_input\":\"", "\"}", false};

/* The whole request. */
static void write_request(proa_buf *out, const bomb *b)
{
    const uint32_t len = TEXT;
    const proa_coding coding = strstr(b->headers, "deflate") ? PROA_CODING_DEFLATE : PROA_CODING_GZIP;
    proa_buf body, packed;
    char *text = proa_malloc(TEXT);
    memset(text, 'x', TEXT);
    memcpy(text, "hang", 4);
    proa_buf_init(&body, 2 * TEXT), proa_buf_init(&packed, 2 * TEXT), proa_buf_init(out, 2 * TEXT);
    proa_buf_append(&body, b->begin, strlen(b->begin));
    if (!*b->end) {
        assert_int_equal(body.len, 107); /* as its header says */
        proa_buf_append(&body, &len, sizeof len);
    }
    proa_buf_append(&body, text, TEXT);
    proa_buf_append(&body, b->end, strlen(b->end));
    if (b->packed) assert_int_equal(proa_compress(&packed, coding, 9, body.ptr, body.len, NULL), PROA_OK);
    const proa_buf *sent = b->packed ? &packed : &body;
    proa_buf_printf(out, "POST %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n%sContent-Length: %zu\r\n\r\n",
                    b->path, b->headers, sent->len);
    proa_buf_append(out, sent->ptr, sent->len);
    proa_buf_release(&body), proa_buf_release(&packed);
    free(text);
}

static void send_bytes(int fd, const proa_buf *bytes)
{
    for (size_t at = 0; at < bytes->len;) {
        ssize_t n = send(fd, bytes->ptr + at, bytes->len - at, MSG_NOSIGNAL);
        assert_true(n > 0);
        at += (size_t)n;
    }
}

static void wait_for(const atomic_int *count, int value)
{
    for (int i = 0; i < 2000 && atomic_load(count) != value; i++) usleep(10000);
    assert_int_equal(atomic_load(count), value);
}

static void expect_refusal(int fd)
{
    oai_answer a = oai_read_answer(fd);
    if (a.status != 503 || !strstr(a.body, "the server holds too many request bodies"))
        fail_msg("status %d: %s", a.status, a.body);
    oai_answer_free(&a);
}

/* The clients that get an answer are refused; returns how many wait: their connections, which stay open. */
static int take_answers(int *waiting, const int *fds, int wanted)
{
    struct pollfd polled[CLIENTS];
    int count = 0, refused = 0;
    for (int i = 0; i < CLIENTS; i++) polled[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
    while (refused < wanted) {
        assert_true(poll(polled, CLIENTS, 20000) > 0);
        for (int i = 0; i < CLIENTS; i++) {
            if (!polled[i].revents || polled[i].fd < 0) continue;
            expect_refusal(polled[i].fd);
            polled[i].fd = -1;
            refused++;
        }
    }
    for (int i = 0; i < CLIENTS; i++)
        if (polled[i].fd >= 0) waiting[count++] = polled[i].fd;
    return count;
}

/* Room for four of them is left of the limit. */
static void check_bombs(const bomb *b)
{
    int fds[CLIENTS], waiting[CLIENTS];
    void *hog = proa_block_get(1000); /* counting touches nothing */
    proa_buf request;
    write_request(&request, b);
    assert_true(proa_block_count(hog, (size_t)(PROA_INFLIGHT_BYTES_MAX - ROOM * (TEXT + PROA_MIB / 8))));
    for (int i = 0; i < CLIENTS; i++) fds[i] = oai_connect(&rig);
    for (int i = 0; i < CLIENTS; i++) send_bytes(fds[i], &request);
    assert_int_equal(take_answers(waiting, fds, CLIENTS - ROOM), ROOM);
    wait_for(&oai_hanging, ROOM);

    for (int i = 0; i < ROOM; i++) close(waiting[i]);
    wait_for(&oai_hanging, 0);
    int again = oai_connect(&rig);
    send_bytes(again, &request);
    wait_for(&oai_hanging, 1);
    close(again);
    wait_for(&oai_hanging, 0);
    proa_buf_release(&request);
    proa_block_free(hog);
}

static void test_infer(void **state)
{
    (void)state;
    check_bombs(&infer_json);
    check_bombs(&infer_binary);
}

/* Its body is freed when its tensors are made: one after the other, since both are counted for a moment. */
static void check_tensors(const bomb *b)
{
    proa_buf request;
    int first = oai_connect(&rig), second;
    void *hog = proa_block_get(1000);
    write_request(&request, b);
    send_bytes(first, &request);
    wait_for(&oai_hanging, 1);
    assert_false(proa_block_count(hog, (size_t)PROA_INFLIGHT_BYTES_MAX - TEXT));
    assert_true(proa_block_count(hog, (size_t)(PROA_INFLIGHT_BYTES_MAX - PROA_MIB) - TEXT - 4 - TEXT));
    second = oai_connect(&rig);
    send_bytes(second, &request);
    expect_refusal(second);
    close(first);
    wait_for(&oai_hanging, 0);
    proa_buf_release(&request);
    proa_block_free(hog);
}

static void test_tensors_of_json(void **state)
{
    (void)state;
    check_tensors(&infer_plain);
    check_tensors(&generate);
}

static void test_completions(void **state)
{
    (void)state;
    check_bombs(&completion);
}

static int start(void **state)
{
    (void)state;
    oai_start(&rig, NULL, 0);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    oai_stop(&rig);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_infer),
        cmocka_unit_test(test_tensors_of_json),
        cmocka_unit_test(test_completions),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
