/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as what a server answers to `proa client`, `proa top` and `proa chat`: the first byte chooses the command,
 * the rest is sent as it is. The command prints, or fails with a text; nothing is read behind what has come. */
#include "fuzz.h"

#include "base/alloc.h"
#include "cli/chat/chat.h"
#include "cli/commands.h"
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

enum { READ_BYTES = 4096 };

static struct {
    int listener;
    char http[64], grpc[64]; /* URLs */
    pthread_mutex_t lock;    /* of the answer */
    proa_str answer;
} server = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Sends `all` whatever is asked, and reads until the client closes. */
static void send_answer(int fd, proa_str all)
{
    char bytes[READ_BYTES];
    bool ended = false;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = (short)(POLLIN | (ended ? 0 : POLLOUT))};
        if (poll(&p, 1, -1) < 0) return;
        if ((p.revents & POLLIN) && read(fd, bytes, sizeof bytes) <= 0) return;
        if (p.revents & (POLLERR | POLLHUP)) return;
        if (!(p.revents & POLLOUT)) continue;
        ssize_t n = all.len ? send(fd, all.ptr, all.len, MSG_NOSIGNAL | MSG_DONTWAIT) : 0;
        if (n < 0) return;
        all.ptr += n, all.len -= (size_t)n;
        if (!all.len) ended = true, shutdown(fd, SHUT_WR);
    }
}

/* With a copy, since the command may end, and the input with it, before everything is sent. */
static void answer_one(int fd)
{
    pthread_mutex_lock(&server.lock);
    proa_str all = {proa_str_copy(server.answer), server.answer.len};
    pthread_mutex_unlock(&server.lock);
    send_answer(fd, all);
    free((char *)(uintptr_t)all.ptr);
}

static void *serve(void *arg)
{
    for (;;) {
        int fd = accept(server.listener, NULL, NULL);
        if (fd < 0) return arg;
        answer_one(fd);
        close(fd);
    }
}

static void start_server(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    pthread_t thread;
    if (server.http[0]) return;
    server.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    PROA_ASSERT(server.listener >= 0 && bind(server.listener, (struct sockaddr *)&a, sizeof a) == 0 &&
                listen(server.listener, 16) == 0 &&
                getsockname(server.listener, (struct sockaddr *)&a, &len) == 0);
    snprintf(server.http, sizeof server.http, "http://127.0.0.1:%u", ntohs(a.sin_port));
    snprintf(server.grpc, sizeof server.grpc, "grpc://127.0.0.1:%u", ntohs(a.sin_port));
    PROA_ASSERT(pthread_create(&thread, NULL, serve, NULL) == 0 && pthread_detach(thread) == 0);
}

/* What commands print is not wanted. Sanitizers and libFuzzer keep the file that standard error has been. */
static void silence(void)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
    PROA_ASSERT(null >= 0 && dup2(null, STDOUT_FILENO) >= 0);
    stderr = fdopen(null, "w");
}

static void run_command(const proa_command *command, const char *const *arguments, int count)
{
    char *argv[16];
    for (int i = 0; i < count; i++) argv[i] = (char *)(uintptr_t)arguments[i];
    argv[count] = NULL;
    (void)command->run(command, count, argv);
}

static void chat(void)
{
    proa_talk talk = {.quiet = true};
    proa_decoding decoding = {.texts = {NULL}};
    proa_err err = {.status = PROA_OK};
    bool grpc;
    proa_chat_init(&talk);
    talk.decoding = &decoding;
    talk.target.timeout_ms = 1000;
    PROA_ASSERT(proa_target_parse(&talk.target, &grpc, server.http, &err) == PROA_OK);
    PROA_ASSERT(proa_output_open(&talk.out, NULL, &err) == PROA_OK);
    if (proa_chat_find_model(&talk, &err) != PROA_OK) {
        PROA_ASSERT(err.text[0]);
        talk.model = proa_strdup("m");
        err = (proa_err){.status = PROA_OK};
    }
    if (proa_chat_say(&talk, "hello", &err) != PROA_OK) PROA_ASSERT(err.text[0]);
    proa_chat_release(&talk);
}

#define RUN(command, ...)                                                                                    \
    run_command(&(command), (const char *const[]){__VA_ARGS__},                                              \
                (int)(sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)))

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!server.http[0]) silence();
    start_server();
    if (size == 0) return 0;
    pthread_mutex_lock(&server.lock);
    server.answer = (proa_str){(const char *)data + 1, size - 1};
    pthread_mutex_unlock(&server.lock);
    switch (data[0] % 8) {
    case 0: RUN(proa_cmd_client, "m", "text", "--url", server.http, "--timeout", "1"); break;
    case 1: RUN(proa_cmd_client, "m", "text", "--url", server.http, "--timeout", "1", "--stream"); break;
    case 2:
        RUN(proa_cmd_client, "m", "--input", "A=INT32:1,2", "--url", server.http, "--timeout", "1");
        break;
    case 3:
        RUN(proa_cmd_client, "m", "text", "--url", server.http, "--timeout", "1", "--stream",
            "--endpoint-type", "chat");
        break;
    case 4:
        RUN(proa_cmd_client, "m", "--input", "A=INT32:1,2", "--url", server.grpc, "--timeout", "1");
        break;
    case 5: RUN(proa_cmd_client, "m", "text", "--url", server.grpc, "--timeout", "1", "--stream"); break;
    case 6: RUN(proa_cmd_top, server.http, "--count", "2", "--interval", "0"); break;
    default: chat(); break;
    }
    return 0;
}
