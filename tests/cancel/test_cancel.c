/* SPDX-License-Identifier: Apache-2.0
 * test_cancel.c - 200 clients at once, of every protocol and with every kind of request, most of which cancel or
 * disconnect at a random point. When they are gone, no request runs or waits, no page, slot, session, adapter or
 * connection is held, and the server answers as before. CI runs it under ThreadSanitizer.
 * PROA_CANCEL=seed,clients makes it another run, or one of more clients. */
#include "api/api.h"
#include "backends/backends.h"
#include "base/clock.h"
#include "base/limits.h"
#include "proto/grpc_service.pb-c.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <cmocka.h>

#include "cancel/grpc_client.h"
#include "cancel/random_options.h"
#include "cancel/tiny_model.h"

enum { CLIENTS = 200, CLIENTS_MAX = 4000, TURNS = 2, SESSIONS = 8, WAIT_MS = 120000 };

/* ---- the server ---- */

static struct {
    char folder[64];
    proa_server *server;
    proa_api *api;
    int http, grpc, metrics; /* ports */
} rig;

/* Few slots, few pages, short steps: clients wait, are preempted, and are cancelled in every phase. */
static const char model_config[] =
    "backend: \"engine\"\n"
    "parameters { key: \"chat_template\" value { string_value: \"chatml\" } }\n"
    "parameters { key: \"tool_parser\" value { string_value: \"hermes\" } }\n"
    "parameters { key: \"dtype\" value { string_value: \"f32\" } }\n"
    "parameters { key: \"threads\" value { string_value: \"2\" } }\n"
    "parameters { key: \"sequences_max\" value { string_value: \"12\" } }\n"
    "parameters { key: \"step_tokens\" value { string_value: \"96\" } }\n"
    "parameters { key: \"kv_tokens\" value { string_value: \"960\" } }\n"
    "parameters { key: \"prefix_host_memory\" value { string_value: \"1M\" } }\n"
    "parameters { key: \"speculation\" value { string_value: \"ngram\" } }\n"
    "parameters { key: \"lora\" value { string_value: \"one=../../one,two=../../two\" } }\n"
    "parameters { key: \"lora_slots\" value { string_value: \"1\" } }\n"
    "parameters { key: \"lora_max\" value { string_value: \"2\" } }\n";

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

static void write_repository(char *repository, size_t size)
{
    char model[256], version[320], adapter[256];
    strcpy(rig.folder, "/tmp/proa-cancel-XXXXXX");
    assert_non_null(mkdtemp(rig.folder));
    for (int i = 1; i < MODELS; i++) {
        tiny_folder(adapter, sizeof adapter, rig.folder, models[i]);
        tiny_adapter(adapter, (uint32_t)i);
    }
    tiny_folder(repository, size, rig.folder, "models");
    tiny_folder(model, sizeof model, repository, BASE);
    tiny_text(model, "config.pbtxt", model_config);
    tiny_folder(version, sizeof version, model, "1");
    tiny_model(version, PROA_SOURCE_DIR "/models/classics-10m");
}

static int start(void **state)
{
    proa_err err = {0};
    char repository[128];
    const proa_port port = {.allow = true, .address = "127.0.0.1"};
    (void)state;
    write_repository(repository, sizeof repository);
    proa_server_options o = {.repositories = (const char *const[]){repository},
                             .repositories_count = 1,
                             .backends = proa_backends,
                             .exit_on_error = true};
    proa_api_options a = {.http = port, .grpc = port, .metrics = port, .threads = 2, .allow_adapters = true};
    if (proa_server_new(&rig.server, &o, &err) != PROA_OK) fail_msg("%s", err.text);
    if (proa_api_open(&rig.api, rig.server, &a, &err) != PROA_OK) fail_msg("%s", err.text);
    rig.http = proa_api_http_port(rig.api);
    rig.grpc = proa_api_grpc_port(rig.api);
    rig.metrics = proa_api_metrics_port(rig.api);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    assert_true(proa_api_drain(rig.api, 5000));
    assert_true(proa_server_stop(rig.server, 5000));
    proa_api_close(rig.api);
    proa_server_free(rig.server);
    nftw(rig.folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}

/* ---- what clients complain of ---- */

typedef enum ending {
    END_WHOLE,  /* reads the whole answer and checks it */
    END_BYTES,  /* leaves after some bytes of the answer */
    END_TIME,   /* after some time */
    END_HALF,   /* in the middle of its request */
    ENDINGS = 7 /* the others: END_TIME too */
} ending;

static pthread_mutex_t problems_lock = PTHREAD_MUTEX_INITIALIZER;
static char problem[2048]; /* the first one */
static int problems;

static void complain(const char *request, const char *answer)
{
    pthread_mutex_lock(&problems_lock);
    if (!problems++) snprintf(problem, sizeof problem, "%.900s\nwas answered\n%.900s", request, answer);
    pthread_mutex_unlock(&problems_lock);
}

static int dial(int port)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd, (struct sockaddr *)&to, sizeof to) != 0) complain("connect", strerror(errno));
    return fd;
}

/* Closes, one in three times with a reset. */
static void hang_up(client *c, int fd)
{
    struct linger reset = {.l_onoff = 1};
    if (one_in(c, 3)) setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
}

static ending choose_ending(client *c)
{
    ending how = (ending)dice(c, ENDINGS);
    return how > END_HALF ? END_TIME : how;
}

/* ---- HTTP ---- */

static const char *request_head(char *head, size_t size, const char *path, size_t len)
{
    snprintf(head, size,
             "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
             "Content-Length: %zu\r\n\r\n",
             path, len);
    return head;
}

/* False: the server has closed. */
static bool send_bytes(int fd, const char *bytes, size_t len)
{
    for (ssize_t n; len; bytes += n, len -= (size_t)n)
        if ((n = send(fd, bytes, len, MSG_NOSIGNAL)) <= 0) return false;
    return true;
}

/* Reads until the end, until so many bytes have come, or so much time has passed. False: by one of these limits. */
static bool read_answer(int fd, proa_buf *answer, size_t bytes_max, int64_t ms_max)
{
    char bytes[4096];
    int64_t end = proa_clock_ns() + ms_max * 1000000;
    while (answer->len < bytes_max) {
        int64_t left = (end - proa_clock_ns()) / 1000000;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        if (left <= 0 || poll(&p, 1, (int)left) <= 0) return false;
        ssize_t n = recv(fd, bytes, sizeof bytes, 0);
        if (n <= 0) return true;
        proa_buf_append(answer, bytes, (size_t)n);
    }
    return false;
}

/* 200; or a session that another client uses (503) or has ended (400). */
static bool is_expected(const char *answer)
{
    int status = 0;
    if (sscanf(answer, "HTTP/1.1 %d", &status) != 1) return false;
    if (status == 200) return !strstr(answer, "\"error\":{"); /* an event of a stream */
    return (status == 503 && strstr(answer, "session")) || (status == 400 && strstr(answer, "START"));
}

static void play_http(client *c, const char *path, const proa_buf *body)
{
    char head[512];
    proa_buf answer;
    ending how = choose_ending(c);
    int fd = dial(rig.http);
    proa_buf_init(&answer, 64 << 20);
    request_head(head, sizeof head, path, body->len);
    size_t len = how == END_HALF ? dice(c, (uint32_t)body->len) : body->len;
    bool sent = send_bytes(fd, head, strlen(head)) && send_bytes(fd, body->ptr, len);
    if (sent && how != END_HALF) {
        size_t bytes_max = how == END_BYTES ? 1 + dice(c, 3000) : SIZE_MAX;
        bool ended = read_answer(fd, &answer, bytes_max, how == END_TIME ? choose_time_ms(c) : WAIT_MS);
        proa_buf_char(&answer, '\0');
        if (how == END_WHOLE && (!ended || !is_expected(answer.ptr))) complain(body->ptr, answer.ptr);
        if (ended) c->whole++;
        else c->left++;
    } else {
        c->left++;
    }
    hang_up(c, fd);
    proa_buf_release(&answer);
}

static void begin_body(client *c, proa_buf *b, const char *length)
{
    proa_buf_init(b, 1 << 20);
    proa_buf_printf(b, "{\"model\":\"%s\",\"%s\":%u", choose_model(c), length, choose_length(c));
}

static void end_body(client *c, const char *path, proa_buf *b)
{
    proa_buf_char(b, '}');
    proa_buf_char(b, '\0');
    b->len--;
    play_http(c, path, b);
    proa_buf_release(b);
}

static void put_messages(client *c, proa_buf *b)
{
    char text[1024];
    choose_prompt(c, text, sizeof text);
    proa_buf_printf(b, ",\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]", text);
}

static void put_stream(client *c, proa_buf *b)
{
    if (one_in(c, 2)) proa_buf_printf(b, ",\"stream\":true");
}

static void put_tool(client *c, proa_buf *b)
{
    static const char *const choices[] = {"auto", "required", "none"};
    proa_buf_printf(
        b, ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"look\",\"parameters\":%s}}]", schema);
    put_text(b, "tool_choice", choices[dice(c, 3)]);
}

static void play_chat(client *c)
{
    proa_buf b;
    begin_body(c, &b, "max_tokens");
    put_messages(c, &b);
    put_salt(c, &b);
    put_stream(c, &b);
    if (one_in(c, 3)) put_tool(c, &b), put_sampling(c, &b, false);
    else put_options(c, &b, false);
    end_body(c, "/v1/chat/completions", &b);
}

static void play_completion(client *c)
{
    char text[1024];
    proa_buf b;
    begin_body(c, &b, "max_tokens");
    choose_prompt(c, text, sizeof text);
    proa_buf_printf(&b, ",\"prompt\":[\"%s\",\"It was\"]", text);
    if (one_in(c, 3)) proa_buf_printf(&b, ",\"logprobs\":2");
    else put_options(c, &b, false);
    put_salt(c, &b);
    put_stream(c, &b);
    end_body(c, "/v1/completions", &b);
}

static void play_response(client *c)
{
    char text[1024];
    proa_buf b;
    begin_body(c, &b, "max_output_tokens");
    choose_prompt(c, text, sizeof text);
    put_text(&b, "input", text);
    if (one_in(c, 3))
        proa_buf_printf(&b, ",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"s\",\"schema\":%s}}",
                        schema);
    put_salt(c, &b);
    put_stream(c, &b);
    end_body(c, "/v1/responses", &b);
}

static void play_message(client *c)
{
    proa_buf b;
    begin_body(c, &b, "max_tokens");
    put_messages(c, &b);
    put_stream(c, &b);
    if (one_in(c, 2)) put_text(&b, "speculation", "ngram");
    if (one_in(c, 3)) put_constraint(c, &b);
    end_body(c, "/v1/messages", &b);
}

static void put_adapter(client *c, proa_buf *b)
{
    const char *model = choose_model(c);
    if (model != models[0]) put_text(b, "adapter", model);
}

/* Returns whether the request is one of a session, and of which. */
static bool choose_session(client *c, int *session, bool *starts, bool *ends)
{
    *session = 1 + (int)dice(c, SESSIONS), *starts = !one_in(c, 3), *ends = one_in(c, 3);
    return one_in(c, 3);
}

static void put_session(proa_buf *b, int session, bool starts, bool ends)
{
    proa_buf_printf(b, ",\"sequence_id\":%d,\"sequence_start\":%s,\"sequence_end\":%s", session,
                    starts ? "true" : "false", ends ? "true" : "false");
}

/* The options as the text of one parameter. */
static void make_options(client *c, proa_buf *options, bool session)
{
    proa_buf_init(options, 1 << 20);
    proa_buf_printf(options, "{\"max_tokens\":%u", choose_length(c));
    put_options(c, options, session);
    put_adapter(c, options);
    proa_buf_str(options, proa_str_c("}"));
    proa_buf_char(options, '\0');
}

static void play_kserve(client *c)
{
    char text[1024];
    proa_buf b, options;
    int session;
    bool starts, ends, any = choose_session(c, &session, &starts, &ends);
    choose_prompt(c, text, sizeof text);
    make_options(c, &options, any);
    proa_buf_init(&b, 1 << 20);
    proa_buf_printf(
        &b,
        "{\"inputs\":[{\"name\":\"text_input\",\"datatype\":\"BYTES\",\"shape\":[1],\"data\":[\"%s\"]}],"
        "\"parameters\":{\"echo\":false",
        text);
    put_text(&b, "options", options.ptr);
    put_salt(c, &b);
    if (any) put_session(&b, session, starts, ends);
    proa_buf_char(&b, '}');
    end_body(c, "/v2/models/" BASE "/infer", &b);
    proa_buf_release(&options);
}

static void play_generate(client *c)
{
    char text[1024];
    proa_buf b;
    int session;
    bool starts, ends, any = choose_session(c, &session, &starts, &ends);
    choose_prompt(c, text, sizeof text);
    proa_buf_init(&b, 1 << 20);
    proa_buf_printf(&b, "{\"text_input\":\"%s\",\"max_tokens\":%u", text, choose_length(c));
    put_options(c, &b, any);
    put_salt(c, &b);
    put_adapter(c, &b);
    if (any) put_session(&b, session, starts, ends);
    bool streams = one_in(c, 2);
    end_body(c, streams ? "/v2/models/" BASE "/generate_stream" : "/v2/models/" BASE "/generate", &b);
}

/* ---- gRPC ---- */

typedef Inference__InferParameter parameter;
typedef Inference__ModelInferRequest__ParametersEntry entry;
#define S(text) ((char *)(uintptr_t)(text)) /* protobuf-c's structs are not const */

typedef struct infer_message { /* a request and what it points to */
    Inference__ModelInferRequest request;
    Inference__ModelInferRequest__InferInputTensor input, *inputs[1];
    Inference__InferTensorContents contents;
    ProtobufCBinaryData text;
    int64_t shape[1];
    parameter values[6];
    entry entries[6], *list[6];
} infer_message;

static parameter *add_parameter(infer_message *m, const char *name)
{
    size_t i = m->request.n_parameters++;
    inference__infer_parameter__init(&m->values[i]);
    inference__model_infer_request__parameters_entry__init(&m->entries[i]);
    m->entries[i].key = S(name), m->entries[i].value = &m->values[i];
    m->list[i] = &m->entries[i];
    return &m->values[i];
}

static void add_text(infer_message *m, const char *name, const char *text)
{
    parameter *p = add_parameter(m, name);
    p->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_STRING_PARAM;
    p->string_param = S(text);
}

static void add_flag(infer_message *m, const char *name, bool value)
{
    parameter *p = add_parameter(m, name);
    p->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_BOOL_PARAM;
    p->bool_param = value;
}

static void make_message(infer_message *m, const char *text, const char *options)
{
    inference__model_infer_request__init(&m->request);
    inference__model_infer_request__infer_input_tensor__init(&m->input);
    inference__infer_tensor_contents__init(&m->contents);
    m->text = (ProtobufCBinaryData){strlen(text), (uint8_t *)(uintptr_t)text};
    m->shape[0] = 1;
    m->contents.n_bytes_contents = 1, m->contents.bytes_contents = &m->text;
    m->input.name = S("text_input"), m->input.datatype = S("BYTES");
    m->input.n_shape = 1, m->input.shape = m->shape, m->input.contents = &m->contents;
    m->inputs[0] = &m->input;
    m->request.model_name = S(BASE), m->request.n_inputs = 1, m->request.inputs = m->inputs;
    m->request.parameters = m->list;
    add_text(m, "options", options);
}

/* One request of the call; several of a stream run beside each other. */
static void add_request(client *c, grpc_client *g, bool streams)
{
    char text[1024];
    uint8_t packed[8192];
    infer_message m;
    proa_buf options;
    int session;
    bool starts, ends, any = choose_session(c, &session, &starts, &ends);
    choose_prompt(c, text, sizeof text);
    make_options(c, &options, any);
    make_message(&m, text, options.ptr);
    if (streams) add_flag(&m, "stream", true);
    if (one_in(c, 4)) add_text(&m, "cache_salt", "one");
    if (any) {
        parameter *id = add_parameter(&m, "sequence_id");
        id->parameter_choice_case = INFERENCE__INFER_PARAMETER__PARAMETER_CHOICE_INT64_PARAM;
        id->int64_param = session;
        add_flag(&m, "sequence_start", starts);
        add_flag(&m, "sequence_end", ends);
    }
    grpc_message(g, packed, inference__model_infer_request__pack(&m.request, packed));
    proa_buf_release(&options);
}

static bool is_expected_grpc(const grpc_client *g)
{
    if (strcmp(g->status, "0") == 0) return true;
    return strstr(g->message, "session") != NULL || strstr(g->message, "START") != NULL;
}

/* Reads as long as the client does. */
static void read_stream(client *c, grpc_client *g, ending how)
{
    int64_t end = proa_clock_ns() + 1000000 * (int64_t)(how == END_WHOLE ? WAIT_MS : choose_time_ms(c));
    size_t bytes_max = how == END_BYTES ? 1 + dice(c, 2000) : SIZE_MAX;
    while (!g->ended && g->received < bytes_max && proa_clock_ns() < end) grpc_read(g, 20);
}

static void play_grpc(client *c, bool streams)
{
    grpc_client g;
    ending how = choose_ending(c);
    int fd = dial(rig.grpc);
    grpc_open(&g, fd);
    for (uint32_t i = 0, count = streams ? 1 + dice(c, 3) : 1; i < count; i++) add_request(c, &g, streams);
    if (how == END_HALF) g.sends.len = dice(c, (uint32_t)g.sends.len); /* a message that is cut */
    grpc_call(&g, streams ? "/inference.GRPCInferenceService/ModelStreamInfer"
                          : "/inference.GRPCInferenceService/ModelInfer");
    read_stream(c, &g, how);
    if (how == END_WHOLE && !is_expected_grpc(&g)) complain(g.sends.ptr + 5, g.ended ? g.message : "nothing");
    if (g.ended) c->whole++;
    else c->left++;
    if (!g.ended && one_in(c, 2)) grpc_cancel(&g);
    grpc_close(&g);
    hang_up(c, fd);
}

/* ---- all clients ---- */

static void play_turn(client *c, int kind)
{
    switch (kind) {
    case 0: play_chat(c); break;
    case 1: play_completion(c); break;
    case 2: play_response(c); break;
    case 3: play_message(c); break;
    case 4: play_kserve(c); break;
    case 5: play_generate(c); break;
    case 6: play_grpc(c, true); break;
    default: play_grpc(c, false);
    }
}

static void *play(void *arg)
{
    enum { KINDS = 8 };
    client *c = arg;
    for (int turn = 0; turn < TURNS; turn++) play_turn(c, (c->index + turn * 3) % KINDS);
    return NULL;
}

/* ---- at rest ---- */

/* The sum of a metric's lines that begin so; -1 if there is none. */
static double metric(const char *text, const char *begin)
{
    double sum = 0;
    bool any = false;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, begin, strlen(begin)) != 0) continue;
        const char *value = strstr(line, "} ");
        if (!value || value > strchrnul(line, '\n')) value = strchr(line, ' ') - 1;
        sum += strtod(value + 2, NULL);
        any = true;
    }
    return any ? sum : -1;
}

static void ask(proa_buf *answer, int port, const char *method, const char *path, const char *body)
{
    char request[2048];
    int fd = dial(port);
    int n = snprintf(
        request, sizeof request,
        "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s", method,
        path, strlen(body), body);
    proa_buf_init(answer, 64 << 20);
    assert_true(send_bytes(fd, request, (size_t)n));
    assert_true(read_answer(fd, answer, SIZE_MAX, WAIT_MS));
    proa_buf_char(answer, '\0');
    close(fd);
}

/* Posts and requires success. */
static void ask_ok(proa_buf *answer, const char *path, const char *body)
{
    ask(answer, rig.http, "POST", path, body);
    if (strncmp(answer->ptr, "HTTP/1.1 200", 12) != 0) fail_msg("%s %s: %s", path, body, answer->ptr);
}

static int open_files(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

typedef struct counters {
    double running, waiting, pages, in_flight, pending, http, grpc, free_pages;
    int files;
} counters;

static counters read_counters(void)
{
    proa_buf text;
    ask(&text, rig.metrics, "GET", "/metrics", "");
    counters n = {.running = metric(text.ptr, "proa_engine_running{"),
                  .waiting = metric(text.ptr, "proa_engine_waiting{"),
                  .pages = metric(text.ptr, "proa_engine_pages_used{"),
                  .free_pages = metric(text.ptr, "proa_engine_pages_free{"),
                  .in_flight = metric(text.ptr, "proa_requests_in_flight "),
                  .pending = metric(text.ptr, "nv_inference_pending_request_count{"),
                  .http = metric(text.ptr, "proa_connections{face=\"http\"}"),
                  .grpc = metric(text.ptr, "proa_connections{face=\"grpc\"}")};
    proa_buf_release(&text);
    n.files = open_files();
    return n;
}

/* before: what was free and open at the beginning; NULL: anything. */
static bool at_rest(const counters *n, const counters *before)
{
    bool zero = n->running == 0 && n->waiting == 0 && n->pages == 0 && n->in_flight == 0 && n->pending == 0 &&
                n->http == 0 && n->grpc == 0;
    return zero && (!before || (n->free_pages == before->free_pages && n->files <= before->files));
}

static counters wait_for_rest(const counters *before)
{
    counters n = read_counters();
    for (int i = 0; i < 300 && !at_rest(&n, before); i++) {
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
        n = read_counters();
    }
    if (!at_rest(&n, before))
        fail_msg("running %g, waiting %g, pages %g used and %g free, requests in flight %g, pending %g, "
                 "connections %g and %g, %d files; before %g pages free, %d files",
                 n.running, n.waiting, n.pages, n.free_pages, n.in_flight, n.pending, n.http, n.grpc, n.files,
                 before ? before->free_pages : 0, before ? before->files : 0);
    return n;
}

/* No session is in use: each can begin anew. */
static void check_sessions(void)
{
    char body[256];
    proa_buf answer;
    for (int i = 1; i <= SESSIONS; i++) {
        snprintf(body, sizeof body,
                 "{\"text_input\":\"It\",\"max_tokens\":1,\"sequence_id\":%d,\"sequence_start\":true,"
                 "\"sequence_end\":true}",
                 i);
        ask_ok(&answer, "/v2/models/" BASE "/generate", body);
        proa_buf_release(&answer);
    }
}

/* No request holds an adapter: it can be unloaded, and loaded again. */
static void reload_adapters(void)
{
    char body[256];
    proa_buf answer;
    for (int i = 1; i < MODELS; i++) {
        snprintf(body, sizeof body, "{\"lora_name\":\"%s\"}", models[i]);
        ask_ok(&answer, "/v1/unload_lora_adapter", body);
        proa_buf_release(&answer);
        snprintf(body, sizeof body, "{\"lora_name\":\"%s\",\"lora_path\":\"%s/%s\"}", models[i], rig.folder,
                 models[i]);
        ask_ok(&answer, "/v1/load_lora_adapter", body);
        proa_buf_release(&answer);
    }
}

typedef char sample_texts[MODELS][2048];

/* The text of each model: a copy of the answer from "text" on. The adapters take the only slot from each other. */
static void read_samples(sample_texts texts)
{
    char body[512];
    proa_buf answer;
    for (int i = 0; i < MODELS; i++) {
        snprintf(body, sizeof body,
                 "{\"model\":\"%s\",\"prompt\":\"the sea ship and was night a dark the sea ship and\","
                 "\"max_tokens\":40,\"temperature\":0,\"ignore_eos\":true}",
                 models[i]);
        ask_ok(&answer, "/v1/completions", body);
        const char *found = strstr(answer.ptr, "\"text\"");
        assert_non_null(found);
        snprintf(texts[i], sizeof texts[i], "%.*s", (int)strcspn(found, "]"), found);
        proa_buf_release(&answer);
    }
}

static void run_clients(client *clients, int count, uint32_t seed)
{
    int whole = 0, left = 0;
    for (int i = 0; i < count; i++) {
        clients[i] = (client){.index = i, .state = seed * 7919u + (uint32_t)i * 104729u};
        for (int k = 0; k < 4; k++) dice(&clients[i], 2);
        assert_int_equal(pthread_create(&clients[i].thread, NULL, play, &clients[i]), 0);
    }
    for (int i = 0; i < count; i++) {
        pthread_join(clients[i].thread, NULL);
        whole += clients[i].whole, left += clients[i].left;
    }
    if (problems) fail_msg("%d wrong answers; the first:\n%s", problems, problem);
    assert_true(whole > count / 4 && left > count / 2); /* so both were tested */
}

static void all_counters_return(void **state)
{
    static client clients[CLIENTS_MAX];
    static sample_texts before, after;
    const char *wanted = getenv("PROA_CANCEL");
    unsigned seed = 1, count = CLIENTS;
    (void)state;
    if (wanted) sscanf(wanted, "%u,%u", &seed, &count);
    read_samples(before);
    assert_string_not_equal(before[0], before[1]);
    counters rest = wait_for_rest(NULL);
    run_clients(clients, count < CLIENTS_MAX ? (int)count : CLIENTS_MAX, seed);
    wait_for_rest(&rest);
    check_sessions();
    for (int again = 0; again < 2; again++) {
        read_samples(after);
        assert_memory_equal(after, before, sizeof before);
        reload_adapters();
    }
    wait_for_rest(&rest);
}

static void every_kind_was_cancelled(void **state)
{
    proa_buf text;
    (void)state;
    ask(&text, rig.metrics, "GET", "/metrics", "");
    print_message("%g cancelled, %g preemptions\n", metric(text.ptr, "proa_engine_cancelled{"),
                  metric(text.ptr, "proa_engine_preemptions{"));
    assert_true(metric(text.ptr, "proa_engine_cancelled{") > 20);
    assert_true(metric(text.ptr, "proa_engine_prefix_cache_hits{") > 0);
    assert_true(metric(text.ptr, "proa_engine_accepted_draft_tokens{") > 0);
    proa_buf_release(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_counters_return),
                                       cmocka_unit_test(every_kind_was_cancelled)};
    return cmocka_run_group_tests_name("cancel", tests, start, stop);
}
