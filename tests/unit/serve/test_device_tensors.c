/* SPDX-License-Identifier: Apache-2.0
 * test_device_tensors.c - tensors in the memory of a device: between the steps of an ensemble, at models that want host
 * memory, at the response cache, in replies. The device is a page of this process that nobody may read but through
 * proa_device_memory: a reader that forgets so ends the program. */
#include "repo.h"
#include "rig.h"

#include "serve/cache.h"
#include <sys/mman.h>

/* ---- the device ---- */

static pthread_mutex_t device_lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int device_buffers;
static atomic_bool device_broken;

typedef struct page {
    char *data;
    size_t bytes;
} page;

static void page_open(const void *at, size_t bytes, bool open)
{
    uintptr_t from = (uintptr_t)at & ~(uintptr_t)4095;
    assert_int_equal(
        mprotect((void *)from, bytes + ((uintptr_t)at - from), open ? PROT_READ | PROT_WRITE : PROT_NONE), 0);
}

static proa_status device_read(const proa_device_memory *memory, void *to, const void *from, size_t bytes,
                               proa_err *err)
{
    if (atomic_load(&device_broken)) return PROA_FAIL(err, INTERNAL, "device '%s' is lost", memory->name);
    pthread_mutex_lock(&device_lock);
    page_open(from, bytes, true);
    memcpy(to, from, bytes);
    page_open(from, bytes, false);
    pthread_mutex_unlock(&device_lock);
    return PROA_OK;
}

static const proa_device_memory device = {.name = "test:0", .gpu = 0, .read = device_read};

static void page_free(void *arg)
{
    page *p = arg;
    munmap(p->data, p->bytes);
    free(p);
    atomic_fetch_sub(&device_buffers, 1);
}

/* A buffer on the device that holds `bytes` bytes of the host. */
static proa_buffer *device_buffer(const void *from, size_t bytes)
{
    page *p = proa_calloc(1, sizeof *p);
    p->bytes = (bytes + 4095) / 4096 * 4096;
    p->data = mmap(NULL, p->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(p->data, MAP_FAILED);
    memcpy(p->data, from, bytes);
    page_open(p->data, bytes, false);
    atomic_fetch_add(&device_buffers, 1);
    return proa_buffer_wrap_memory(&device, p->data, bytes, page_free, p);
}

/* ---- backends ---- */

/* OUT is IN + 1, on the device. IN may be there, or is brought there. */
static void execute_device(void *state, proa_infer *const *requests, int count)
{
    PROA_UNUSED(state);
    for (int i = 0; i < count; i++) {
        const proa_tensor *in = proa_infer_input(requests[i], "IN");
        proa_reply *reply = proa_reply_new(requests[i]);
        int64_t values[16];
        assert_true(in->bytes <= sizeof values);
        if (proa_tensor_device(in))
            assert_int_equal(device_read(&device, values, in->data, in->bytes, NULL), PROA_OK);
        else memcpy(values, in->data, in->bytes), proa_device_copies_add(false, in->bytes);
        for (size_t k = 0; k < in->bytes / 8; k++) values[k]++;
        proa_tensor *out = proa_reply_add(reply, "OUT");
        const char *name = out->name;
        *out = *in;
        out->name = name;
        out->buffer = device_buffer(values, in->bytes);
        out->data = out->buffer->data;
        proa_infer_reply(requests[i], reply, true);
    }
}

static proa_status open_device(void **state, proa_served_model *model, proa_err *err)
{
    PROA_UNUSED(err);
    *state = NULL;
    proa_served_model_set_device_inputs(model);
    return PROA_OK;
}

/* OUT is IN + 1, as a backend that knows of no devices has it. */
static void execute_host(void *state, proa_infer *const *requests, int count)
{
    PROA_UNUSED(state);
    for (int i = 0; i < count; i++) {
        const proa_tensor *in = proa_infer_input(requests[i], "IN");
        proa_reply *reply = proa_reply_new(requests[i]);
        void *data;
        proa_reply_add_array(reply, "OUT", PROA_TYPE_INT64, in->shape, in->rank, &data);
        for (size_t k = 0; k < in->bytes / 8; k++) {
            int64_t x;
            memcpy(&x, in->data + 8 * k, 8);
            x++;
            memcpy((char *)data + 8 * k, &x, 8);
        }
        proa_infer_reply(requests[i], reply, true);
    }
}

static void execute_fail(void *state, proa_infer *const *requests, int count)
{
    proa_err err = {0};
    PROA_UNUSED(state);
    PROA_FAIL(&err, INTERNAL, "it broke");
    for (int i = 0; i < count; i++) proa_infer_fail(requests[i], &err);
}

static const proa_backend on_device = {.name = "device", .model_open = open_device, .execute = execute_device};
static const proa_backend on_host = {.name = "host", .flags = PROA_BACKEND_INLINE, .execute = execute_host};
static const proa_backend failing = {.name = "fail", .execute = execute_fail};
static proa_backend_list backends = {&on_device, &on_host, &failing, NULL};

/* ---- the server ---- */

static char folder[PROA_PATH_MAX];
static proa_server *server;

static void write_model(const char *name, const char *backend, const char *more)
{
    char file[PROA_PATH_MAX];
    snprintf(file, sizeof file, "%s/config.pbtxt", name);
    repo_write(folder, file,
               "backend: \"%s\" input { name: \"IN\" data_type: TYPE_INT64 dims: [ -1 ] } "
               "output { name: \"OUT\" data_type: TYPE_INT64 dims: [ -1 ] } %s",
               backend, more);
    snprintf(file, sizeof file, "%s/1/x", name);
    repo_write(folder, file, "x");
}

/* IN, through these models one after the other, to OUT. */
static void write_chain(const char *name, const char *const *models, int count)
{
    char file[PROA_PATH_MAX], steps[2048] = "";
    for (int i = 0; i < count; i++) {
        size_t at = strlen(steps);
        char from[16], to[16];
        snprintf(from, sizeof from, i ? "T%d" : "IN", i);
        snprintf(to, sizeof to, i + 1 < count ? "T%d" : "OUT", i + 1);
        snprintf(steps + at, sizeof steps - at,
                 "step { model_name: \"%s\" model_version: -1 input_map { key: \"IN\" value: \"%s\" } "
                 "output_map { key: \"OUT\" value: \"%s\" } } ",
                 models[i], from, to);
    }
    snprintf(file, sizeof file, "%s/config.pbtxt", name);
    repo_write(folder, file,
               "platform: \"ensemble\" input { name: \"IN\" data_type: TYPE_INT64 dims: [ -1 ] } "
               "output { name: \"OUT\" data_type: TYPE_INT64 dims: [ -1 ] } ensemble_scheduling { %s }",
               steps);
    snprintf(file, sizeof file, "%s/1/x", name);
    repo_write(folder, file, "x");
}

static int open_all(void **state)
{
    proa_err err = {0};
    const char *const folders[] = {folder};
    proa_server_options o = {
        .repositories = folders, .repositories_count = 1, .backends = backends, .cache_bytes = 1 << 20};
    PROA_UNUSED(state);
    repo_make(folder);
    write_model("gpu", "device", "");
    write_model("cpu", "host", "");
    write_model("fails", "fail", "");
    write_model("cached", "device", "response_cache { enable: true }");
    write_chain("device_only", (const char *const[]){"gpu", "gpu", "gpu"}, 3);
    write_chain("nested", (const char *const[]){"device_only", "gpu"}, 2);
    write_chain("host_between", (const char *const[]){"gpu", "cpu", "gpu"}, 3);
    write_chain("cache_between", (const char *const[]){"gpu", "cached", "cpu"}, 3);
    write_chain("failing_end", (const char *const[]){"gpu", "fails"}, 2);
    if (proa_server_new(&server, &o, &err) != PROA_OK) fail_msg("%s", err.text);
    if (proa_server_ready(server, &err) != PROA_OK) fail_msg("%s: %s", err.text, repo_index(server));
    return 0;
}

static int close_all(void **state)
{
    PROA_UNUSED(state);
    bool stopped = proa_server_stop(server, 10000);
    proa_server_free(server);
    repo_remove(folder);
    return stopped && atomic_load(&device_buffers) == 0 ? 0 : -1;
}

/* ---- requests ---- */

static proa_infer *request(const char *model, int64_t value, bool on_device_memory)
{
    proa_infer *r = proa_infer_new();
    proa_tensor *t = proa_infer_add_input(r, proa_str_c("IN"));
    r->model_name = model;
    r->on_reply = rig_on_reply;
    t->type = PROA_TYPE_INT64;
    t->rank = 1;
    t->shape[0] = 2;
    t->bytes = 16;
    const int64_t values[2] = {value, -value};
    t->buffer = on_device_memory ? device_buffer(values, 16) : proa_buffer_new(16);
    if (!on_device_memory) memcpy(t->buffer->data, values, 16);
    t->data = t->buffer->data;
    return r;
}

static void run(answer *a, proa_infer *r)
{
    proa_err err = {0};
    answer_init(a, r);
    if (proa_server_infer(server, r, &err) != PROA_OK) fail_msg("%s", err.text);
    assert_true(answer_wait(a));
}

/* Runs a model; the copies that it takes to a device and to the host. */
static void expect_copies(const char *model, int64_t plus, uint64_t to_device, uint64_t to_host)
{
    answer a;
    proa_device_copies before = proa_device_copies_count();
    run(&a, request(model, 40, false));
    proa_device_copies now = proa_device_copies_count();
    assert_int_equal(a.status, PROA_OK);
    assert_int_equal(a.value, 40 + plus);
    assert_null(proa_tensor_device(proa_reply_output(a.last, "OUT")));
    assert_int_equal(now.to_device - before.to_device, to_device);
    assert_int_equal(now.to_host - before.to_host, to_host);
    assert_int_equal(now.to_host_bytes - before.to_host_bytes, to_host * 16);
    answer_free(&a);
}

static void test_steps_on_one_device(void **state)
{
    PROA_UNUSED(state);
    expect_copies("gpu", 1, 1, 1);
    expect_copies("device_only", 3, 1, 1);
    expect_copies("nested", 4, 1, 1);
}

static void test_a_step_on_the_host(void **state)
{
    PROA_UNUSED(state);
    expect_copies("cpu", 1, 0, 0);
    expect_copies("host_between", 3, 2, 2);
}

/* The cache keys by the bytes of inputs and keeps those of outputs: both on the host. The second time it answers. */
static void test_the_cache(void **state)
{
    PROA_UNUSED(state);
    expect_copies("cached", 1, 1, 1);
    expect_copies("cached", 1, 0, 0);
    expect_copies("cache_between", 3, 2, 2); /* 41 is new to it */
    expect_copies("cache_between", 3, 1, 1);
}

/* Inputs that come in the memory of a device, as a client's shared memory would. */
static void test_device_inputs(void **state)
{
    PROA_UNUSED(state);
    static const struct {
        const char *model;
        int64_t plus;
        uint64_t to_host;
    } cases[] = {{"gpu", 1, 1}, {"cpu", 1, 1}, {"device_only", 3, 1}, {"host_between", 3, 2}};
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        answer a;
        proa_device_copies before = proa_device_copies_count();
        run(&a, request(cases[i].model, 7, true));
        assert_int_equal(a.status, PROA_OK);
        assert_int_equal(a.value, 7 + cases[i].plus);
        assert_int_equal(proa_device_copies_count().to_host - before.to_host, cases[i].to_host);
        answer_free(&a);
    }
}

/* Who takes replies in device memory gets them so. */
static void test_device_replies(void **state)
{
    answer a;
    proa_infer *r = request("device_only", 5, true);
    proa_device_copies before = proa_device_copies_count();
    PROA_UNUSED(state);
    r->device_replies = true;
    run(&a, r);
    const proa_tensor *out = proa_reply_output(a.last, "OUT");
    int64_t values[2];
    assert_ptr_equal(proa_tensor_device(out), &device);
    assert_int_equal(proa_device_copies_count().to_host, before.to_host);
    assert_int_equal(device_read(&device, values, out->data, 16, NULL), PROA_OK);
    assert_int_equal(values[0], 8);
    assert_int_equal(values[1], -2);
    answer_free(&a);
}

static void test_failures(void **state)
{
    answer a;
    PROA_UNUSED(state);
    run(&a, request("failing_end", 1, false));
    assert_int_equal(a.status, PROA_INTERNAL);
    answer_free(&a);
    atomic_store(&device_broken, true);
    run(&a, request("cpu", 1, false)); /* needs no device */
    assert_int_equal(a.status, PROA_OK);
    answer_free(&a);
    proa_infer *r = request("cpu", 1, true);
    proa_err err = {0};
    answer_init(&a, r);
    assert_int_equal(proa_server_infer(server, r, &err), PROA_INTERNAL);
    assert_string_equal(err.text, "device 'test:0' is lost");
    answer_free(&a);
    atomic_store(&device_broken, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_on_one_device), cmocka_unit_test(test_a_step_on_the_host),
        cmocka_unit_test(test_the_cache),           cmocka_unit_test(test_device_inputs),
        cmocka_unit_test(test_device_replies),      cmocka_unit_test(test_failures),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
