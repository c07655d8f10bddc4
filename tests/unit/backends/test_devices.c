/* SPDX-License-Identifier: Apache-2.0
 * test_devices.c - memory of GPUs that a worker's process uses: what is passed on and what is copied, memory for
 * outputs, what a process may say of it, and that open memory is not given back to the driver. The GPUs are those of
 * tests/fake_gpu, where a handle is the name of a file that can be opened as long as the memory exists. */
#include "rig.h"

#include "backends/process/process.h"
#include "base/limits.h"
#include <fcntl.h>
#include <sys/mman.h>

#define BYTES ((size_t)1 << 20)
#define BEGIN PROA_CHANNEL_DATA_BEGIN

static proa_devices *devices;

static int use_fake_gpu(void **state)
{
    (void)state;
    setenv("PROA_CUDA_PLUGIN", PROA_FAKE_GPU, 1);
    devices = proa_devices_new();
    return 0;
}

static int free_devices(void **state)
{
    (void)state;
    proa_devices_free(devices);
    return 0;
}

static proa_tensor on_gpu(size_t bytes)
{
    proa_err err = {.status = PROA_OK};
    proa_tensor t = {.name = "x", .type = PROA_TYPE_UINT8, .rank = 1, .shape = {(int64_t)bytes}, .bytes = bytes};
    if (proa_gpu_buffer_on(0, &t.buffer, bytes, &err) != PROA_OK) fail_msg("%s", err.text);
    t.data = t.buffer->data;
    return t;
}

static void write_bytes(const proa_tensor *t, const void *from)
{
    const proa_device_memory *memory = proa_tensor_device(t);
    assert_int_equal(memory->write(memory, (void *)(uintptr_t)t->data, from, t->bytes, NULL), PROA_OK);
}

static bool exists(const proa_channel_device *place)
{
    int fd = open(place->handle, O_RDONLY | O_CLOEXEC);
    if (fd >= 0) close(fd);
    return fd >= 0;
}

/* ---- to the process ---- */

/* Where the process finds the tensor; *copied: not where it was. */
static proa_channel_device export_once(const proa_tensor *t, bool writable, bool *copied)
{
    proa_err err = {.status = PROA_OK};
    proa_exports e;
    assert_int_equal(proa_devices_export(devices, &e, t, 1, writable, &err), PROA_OK);
    proa_channel_device place = e.places[0];
    *copied = e.held[0] != t->buffer;
    if (*copied) {
        char have[8], want[8];
        const proa_device_memory *memory = e.held[0]->memory;
        assert_int_equal(memory->read(memory, have, e.held[0]->data, sizeof have, &err), PROA_OK);
        assert_int_equal(memory->read(memory, want, t->data, sizeof want, &err), PROA_OK);
        assert_memory_equal(have, want, sizeof want);
        assert_int_equal(place.offset, 0);
    }
    proa_exports_release(devices, &e, 1);
    return place;
}

static void test_what_others_read_is_copied(void **state)
{
    bool copied;
    proa_tensor t = on_gpu(64), part, host = {.name = "h", .bytes = 4, .data = "host"};
    proa_err err = {.status = PROA_OK};
    proa_exports e;
    (void)state;
    write_bytes(&t, "0123456789012345678901234567890123456789012345678901234567890123");
    proa_channel_device first = export_once(&t, true, &copied);
    assert_false(copied);
    assert_true(exists(&first));
    proa_tensor_share(&part, &t);
    part.data += 16, part.bytes = 8;
    export_once(&part, true, &copied);
    assert_true(copied);
    proa_channel_device place = export_once(&part, false, &copied);
    assert_false(copied);
    assert_int_equal(place.memory, first.memory);
    assert_int_equal(place.offset, first.offset + 16);
    assert_memory_equal(place.handle, first.handle, sizeof place.handle);
    assert_int_equal(proa_devices_export(devices, &e, &host, 1, true, &err), PROA_OK);
    assert_null(e.places);
    proa_tensor_release(&t), proa_tensor_release(&part);
}

/* A tensor of more than the memory that is kept for the next one. */
static proa_channel_device send_large(void)
{
    proa_err err = {.status = PROA_OK};
    proa_tensor t = on_gpu(((size_t)1 << 30) + 1);
    proa_exports e;
    assert_int_equal(proa_devices_export(devices, &e, &t, 1, true, &err), PROA_OK);
    proa_channel_device place = e.places[0];
    proa_buffer_drop(e.held[0]); /* the process has given the payload back */
    e.held[0] = NULL;
    proa_exports_release(devices, &e, 1);
    proa_tensor_release(&t);
    return place;
}

static void test_open_memory_stays(void **state)
{
    (void)state;
    proa_channel_device place = send_large();
    assert_true(exists(&place));
    proa_devices_closed(devices, place.memory + 1000, 1); /* of other memory, or of no place: nothing happens */
    proa_devices_closed(devices, place.memory, 0);
    proa_devices_closed(devices, place.memory, -1);
    assert_true(exists(&place));
    proa_devices_closed(devices, place.memory, 1);
    assert_false(exists(&place));
    place = send_large();
    proa_devices_clear(devices); /* its process has ended */
    assert_false(exists(&place));
}

/* The process has closed memory of which one more place was on its way. */
static void test_closed_too_early(void **state)
{
    proa_err err = {.status = PROA_OK};
    proa_tensor t = on_gpu(((size_t)1 << 30) + 1);
    proa_channel_device place = {.memory = 0};
    (void)state;
    for (int i = 0; i < 2; i++) {
        proa_exports e;
        assert_int_equal(proa_devices_export(devices, &e, &t, 1, false, &err), PROA_OK);
        place = e.places[0];
        proa_buffer_drop(e.held[0]);
        e.held[0] = NULL;
        proa_exports_release(devices, &e, 1);
    }
    proa_tensor_release(&t);
    proa_devices_closed(devices, place.memory, 1);
    assert_true(exists(&place));
    proa_devices_closed(devices, place.memory, 1);
    assert_false(exists(&place));
}

/* ---- memory for outputs ---- */

static uint64_t lease_of(size_t bytes)
{
    proa_err err = {.status = PROA_OK};
    proa_tensor t;
    uint64_t number;
    if (proa_devices_lease(devices, &t, &number, 0, bytes, &err) != PROA_OK) fail_msg("%s", err.text);
    proa_tensor_release(&t);
    return number;
}

static void test_lent(void **state)
{
    static const struct {
        int64_t gpu;
        uint64_t bytes;
    } refused[] = {{-1, 8}, {PROA_GPUS_MAX, 8}, {INT64_MAX, 8}, {7, 8}, {0, UINT64_MAX}};
    proa_err err = {.status = PROA_OK};
    proa_tensor t;
    uint64_t number = lease_of(24);
    (void)state;
    proa_buffer *b = proa_devices_take_lease(devices, number, 24);
    assert_non_null(b);
    proa_buffer_drop(b);
    assert_null(proa_devices_take_lease(devices, number, 24));
    b = proa_devices_take_lease(devices, lease_of(24), 7); /* a batch that is smaller than the memory for it */
    assert_non_null(b);
    proa_buffer_drop(b);
    number = lease_of(24);
    assert_null(proa_devices_take_lease(devices, number, 25));
    assert_null(proa_devices_take_lease(devices, number, 24)); /* it was wrong once: it is gone */
    number = lease_of(24);
    proa_devices_return_lease(devices, number);
    proa_devices_return_lease(devices, number + 5);
    assert_null(proa_devices_take_lease(devices, number, 24));
    for (size_t i = 0; i < PROA_COUNT(refused); i++)
        assert_int_not_equal(proa_devices_lease(devices, &t, &number, refused[i].gpu, refused[i].bytes, &err),
                             PROA_OK);
    for (int i = 0; i < PROA_PROCESS_LEASES_MAX; i++) lease_of(1);
    assert_int_equal(proa_devices_lease(devices, &t, &number, 0, 1, &err), PROA_LIMIT);
    proa_devices_clear(devices);
    proa_devices_return_lease(devices, lease_of(1));
}

/* ---- from the process ---- */

typedef struct rows_rig {
    proa_shared_view *view;
    char *theirs;
    proa_infer *r; /* input 0 on the GPU, 16 bytes; input 1 on the host, 16 bytes */
} rows_rig;

static void open_rows(rows_rig *g)
{
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_shared_view_new(&g->view, BYTES, &err), PROA_OK);
    g->theirs = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, proa_shared_view_fd(g->view), 0);
    assert_ptr_not_equal(g->theirs, MAP_FAILED);
    g->r = proa_infer_new();
    proa_tensor *first = proa_infer_add_input(g->r, proa_str_c("a"));
    *first = on_gpu(16);
    proa_tensor *second = proa_infer_add_input(g->r, proa_str_c("b"));
    *second = (proa_tensor){.name = "b", .type = PROA_TYPE_UINT8, .rank = 1, .shape = {16}, .bytes = 16};
    second->buffer = proa_buffer_new(16);
    second->data = second->buffer->data;
}

/* Reads one tensor that the process sends. */
static proa_status read_row(rows_rig *g, proa_channel_tensor row, bool answers, proa_tensor *t)
{
    struct {
        proa_channel_payload head;
        proa_channel_tensor row;
        char name[8];
    } payload = {{.tensors = 1}, row, "y"};
    const proa_channel_message m = {.at = BEGIN, .bytes = sizeof payload};
    proa_err err = {.status = PROA_OK};
    proa_payload w;
    proa_str name;
    payload.row.name_at = sizeof payload.head + sizeof payload.row, payload.row.name_bytes = 1;
    memcpy(g->theirs + BEGIN, &payload, sizeof payload);
    assert_int_equal(proa_payload_open(&w, g->view, &m, &err), PROA_OK);
    w.devices = devices;
    w.answered = answers ? g->r : NULL;
    *t = (proa_tensor){.name = NULL};
    proa_status status = proa_payload_tensor(t, &name, &w, 0, &err);
    assert_true((status == PROA_OK) == (t->buffer != NULL));
    proa_payload_close(&w);
    return status;
}

static proa_channel_tensor row_of(uint64_t place, uint64_t at, uint64_t bytes)
{
    return (proa_channel_tensor){
        .place = place, .at = at, .bytes = bytes, .type = PROA_TYPE_UINT8, .rank = 1, .shape = {(int64_t)bytes}};
}

static void test_rows_of_a_process(void **state)
{
    rows_rig g;
    proa_tensor t;
    (void)state;
    open_rows(&g);
    uint64_t number = lease_of(16);
    assert_int_equal(read_row(&g, row_of(PROA_CHANNEL_LEASED, number, 16), true, &t), PROA_OK);
    assert_non_null(proa_tensor_device(&t));
    proa_tensor_release(&t);
    assert_int_equal(read_row(&g, row_of(PROA_CHANNEL_INPUT, 0, 16), true, &t), PROA_OK);
    assert_ptr_equal(t.data, g.r->inputs[0].data);
    proa_tensor_release(&t);
    const struct {
        proa_channel_tensor row;
        bool answers;
    } wrong[] = {
        {row_of(PROA_CHANNEL_LEASED, number, 16), true},       /* once more */
        {row_of(PROA_CHANNEL_LEASED, lease_of(16), 17), true}, /* of another size */
        {row_of(PROA_CHANNEL_LEASED, UINT64_MAX, 16), true},   /* never leased */
        {row_of(PROA_CHANNEL_INPUT, 0, 16), false},            /* the answer to no request */
        {row_of(PROA_CHANNEL_INPUT, 0, 15), true},             /* a part */
        {row_of(PROA_CHANNEL_INPUT, 1, 16), true},             /* on the host */
        {row_of(PROA_CHANNEL_INPUT, 2, 16), true},             /* none */
        {row_of(PROA_CHANNEL_INPUT, UINT64_MAX, 16), true},
        {row_of(PROA_CHANNEL_DEVICE, BEGIN, 16), true}, /* only the server sends it */
        {row_of(6, 0, 16), true},
    };
    for (size_t i = 0; i < PROA_COUNT(wrong); i++)
        assert_int_equal(read_row(&g, wrong[i].row, wrong[i].answers, &t), PROA_INVALID);
    proa_channel_tensor strings = row_of(PROA_CHANNEL_LEASED, lease_of(16), 16);
    strings.type = PROA_TYPE_BYTES;
    assert_int_equal(read_row(&g, strings, true, &t), PROA_INVALID); /* the host reads their lengths */
    proa_infer_drop(g.r);
    munmap(g.theirs, BYTES);
    proa_shared_view_release(g.view);
}

/* ---- in the process ---- */

static bool opens; /* else open_place fails */

static proa_status open_place(proa_buffer **out, const char **data, const proa_channel_device *place,
                              uint64_t bytes, proa_buffer *holder, proa_err *err)
{
    assert_int_equal(place->memory, 12);
    assert_int_equal(bytes, 16);
    proa_buffer_drop(holder);
    if (!opens) return PROA_FAIL(err, INVALID, "no");
    *out = proa_buffer_new(bytes);
    *data = (*out)->data;
    return PROA_OK;
}

/* A place is read from the payload's own block only, and only by a process. */
static void test_places_of_the_server(void **state)
{
    struct {
        proa_channel_payload head;
        proa_channel_tensor row;
        proa_channel_device place;
    } payload = {{.tensors = 1}, row_of(PROA_CHANNEL_DEVICE, 0, 16), {.memory = 12}};
    const proa_channel_message m = {.at = BEGIN, .bytes = sizeof payload};
    const uint64_t inside = BEGIN + sizeof payload.head + sizeof payload.row;
    const struct {
        uint64_t at;
        bool process, opens, good;
    } cases[] = {{inside, true, true, true},     {inside, true, false, false},
                 {inside, false, true, false},   {inside + 1, true, true, false},
                 {BEGIN - 8, true, true, false}, {UINT64_MAX, true, true, false}};
    rows_rig g;
    proa_str name;
    (void)state;
    open_rows(&g);
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        proa_err err = {.status = PROA_OK};
        proa_payload w;
        proa_tensor t = {.name = NULL};
        payload.row.at = cases[i].at;
        opens = cases[i].opens;
        memcpy(g.theirs + BEGIN, &payload, sizeof payload);
        assert_int_equal(proa_payload_open(&w, g.view, &m, &err), PROA_OK);
        if (cases[i].process) w.open_device = open_place;
        assert_true((proa_payload_tensor(&t, &name, &w, 0, &err) == PROA_OK) == cases[i].good);
        proa_tensor_release(&t);
        proa_payload_close(&w);
    }
    proa_infer_drop(g.r);
    munmap(g.theirs, BYTES);
    proa_shared_view_release(g.view);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_others_read_is_copied), cmocka_unit_test(test_open_memory_stays),
        cmocka_unit_test(test_closed_too_early),           cmocka_unit_test(test_lent),
        cmocka_unit_test(test_rows_of_a_process),          cmocka_unit_test(test_places_of_the_server),
    };
    return cmocka_run_group_tests(tests, use_fake_gpu, free_devices);
}
