/* SPDX-License-Identifier: Apache-2.0
 * test_shm.c - shared memory regions: registering, bounds, Triton's texts, and unregistering what is in use. */
#include "repo.h"

#include <sys/mman.h>

static char folder[PROA_PATH_MAX], key[64], other_key[64];
static proa_server *server;
static char *bytes; /* the test's own view of key: 3 pages */
#define SIZE 12288

static char *make_region(const char *name, size_t size)
{
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)size), 0);
    char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(p, MAP_FAILED);
    close(fd);
    return p;
}

static int set_up(void **state)
{
    repo_make(folder);
    server = repo_serve(folder, PROA_CONTROL_NONE);
    snprintf(key, sizeof key, "/proa-test-%d", (int)getpid());
    snprintf(other_key, sizeof other_key, "/proa-test-%d-other", (int)getpid());
    bytes = make_region(key, SIZE);
    (void)state;
    return 0;
}

static int tear_down(void **state)
{
    munmap(bytes, SIZE);
    shm_unlink(key);
    repo_stop(server);
    repo_remove(folder);
    (void)state;
    return 0;
}

static void refused(const char *name, const char *k, uint64_t offset, uint64_t size, proa_status status,
                    const char *text)
{
    proa_err err = {0};
    assert_int_equal(proa_shm_register(server, name, k, offset, size, &err), status);
    assert_string_equal(err.text, text);
}

static void test_register(void **state)
{
    assert_int_equal(proa_shm_register(server, "r", key, 0, SIZE, NULL), PROA_OK);
    refused("r", key, 0, SIZE, PROA_EXISTS, "shared memory region 'r' already in manager");
    refused("x", "/proa-no-such-key", 0, 8, PROA_INTERNAL,
            "Unable to open shared memory region: '/proa-no-such-key'");
    refused("x", key, 0, SIZE + 1, PROA_INVALID, "failed to register shared memory region 'x': invalid args");
    refused("x", key, SIZE, 1, PROA_INVALID, "failed to register shared memory region 'x': invalid args");
    refused("x", key, UINT64_MAX, 2, PROA_INVALID, "failed to register shared memory region 'x': invalid args");
    refused("x", key, 0, 0, PROA_INVALID, "failed to register shared memory region 'x': invalid args");
    refused("x", key, 16, UINT64_MAX - 8, PROA_INVALID,
            "failed to register shared memory region 'x': invalid args");
    refused("x", "///", 0, 8, PROA_INVALID, "cannot register shared memory region 'x' - invalid shm key '///'");
    refused(
        "x", "/triton_python_backend_shm_region_1", 0, 8, PROA_INVALID,
        "cannot register shared memory region 'x' with key '/triton_python_backend_shm_region_1' as the key "
        "contains the reserved prefix 'triton_python_backend_shm_region_'");
    assert_int_equal(proa_shm_unregister(server, "r", NULL), PROA_OK);
    assert_int_equal(proa_shm_unregister(server, "r", NULL), PROA_OK); /* unknown: no error, as in Triton */
    (void)state;
}

static void test_buffers(void **state)
{
    proa_buffer *b;
    proa_err err = {0};
    strcpy(bytes + 5000, "in the middle");
    assert_int_equal(proa_shm_register(server, "r", key, 4999, 100, NULL), PROA_OK); /* not on a page */
    assert_int_equal(proa_shm_buffer(server, "r", 1, 14, &b, NULL), PROA_OK);
    assert_string_equal(b->data, "in the middle");
    memcpy(b->data, "written", 8);
    assert_string_equal(bytes + 5000, "written");
    proa_buffer *whole;
    assert_int_equal(proa_shm_buffer(server, "r", 0, 100, &whole, NULL), PROA_OK);
    proa_buffer_drop(whole);
    assert_int_equal(proa_shm_buffer(server, "r", 1, 100, &whole, &err), PROA_INVALID);
    assert_string_equal(err.text, "Invalid offset + byte size for shared memory region: 'r'");
    assert_null(whole);
    proa_err_clear(&err);
    assert_int_equal(proa_shm_buffer(server, "r", 100, 1, &whole, &err), PROA_INVALID);
    assert_string_equal(err.text, "Invalid offset for shared memory region: 'r'");
    assert_int_equal(proa_shm_buffer(server, "r", 2, UINT64_MAX, &whole, NULL), PROA_INVALID);
    proa_err_clear(&err);
    assert_int_equal(proa_shm_buffer(server, "none", 0, 1, &whole, &err), PROA_NOT_FOUND);
    assert_string_equal(err.text, "Unable to find shared memory region: 'none'");
    /* unregistered while a tensor holds it: the name is free at once, the memory stays until the tensor goes */
    assert_int_equal(proa_shm_unregister(server, "r", NULL), PROA_OK);
    assert_int_equal(proa_shm_register(server, "r", key, 0, 8, NULL), PROA_OK);
    assert_string_equal(b->data, "written");
    b->data[0] = 'W';
    assert_string_equal(bytes + 5000, "Written");
    proa_buffer_drop(b);
    assert_int_equal(proa_shm_unregister(server, "", NULL), PROA_OK);
    (void)state;
}

static void test_status(void **state)
{
    proa_arena arena;
    proa_err err = {0};
    Inference__SystemSharedMemoryStatusResponse *m;
    proa_arena_init(&arena);
    assert_int_equal(proa_shm_register(server, "b", key, 16, 32, NULL), PROA_OK);
    assert_int_equal(proa_shm_register(server, "a", key, 0, 8, NULL), PROA_OK);
    assert_int_equal(proa_shm_register(server, "c", key, 0, 8, NULL), PROA_OK);
    assert_int_equal(proa_shm_status(server, "", &m, &arena, NULL), PROA_OK);
    assert_int_equal(m->n_regions, 3);
    assert_string_equal(m->regions[0]->key, "a");
    assert_string_equal(m->regions[1]->value->name, "b");
    assert_string_equal(m->regions[1]->value->key, key);
    assert_int_equal(m->regions[1]->value->offset, 16);
    assert_int_equal(m->regions[1]->value->byte_size, 32);
    assert_int_equal(proa_shm_status(server, "c", &m, &arena, NULL), PROA_OK);
    assert_int_equal(m->n_regions, 1);
    assert_int_equal(proa_shm_status(server, "d", &m, &arena, &err), PROA_NOT_FOUND);
    assert_string_equal(err.text, "Unable to find system shared memory region: 'd'");
    assert_int_equal(proa_shm_unregister(server, "", NULL), PROA_OK);
    assert_int_equal(proa_shm_status(server, "", &m, &arena, NULL), PROA_OK);
    assert_int_equal(m->n_regions, 0);
    proa_arena_release(&arena);
    (void)state;
}

static void test_many(void **state)
{
    char name[32];
    proa_err err = {0};
    for (int i = 0; i < PROA_SHM_REGIONS_MAX; i++) {
        snprintf(name, sizeof name, "%d", i);
        assert_int_equal(proa_shm_register(server, name, key, 0, 8, NULL), PROA_OK);
    }
    assert_int_equal(proa_shm_register(server, "one more", key, 0, 8, &err), PROA_LIMIT);
    assert_int_equal(proa_shm_unregister(server, "", NULL), PROA_OK);
    assert_int_equal(proa_shm_register(server, "one more", key, 0, 8, NULL), PROA_OK); /* left for the server to free */
    (void)state;
}

/* Threads register, take buffers and unregister the same name: each buffer stays good while it is held. */
static void *hammer(void *arg)
{
    (void)arg;
    for (int i = 0; i < 2000; i++) {
        proa_buffer *b = NULL;
        (void)proa_shm_register(server, "shared", key, 0, 64, NULL);
        if (proa_shm_buffer(server, "shared", 0, 8, &b, NULL) == PROA_OK) {
            char copy[8];
            memcpy(copy, b->data, 8);
            if (memcmp(copy, "stays ok", 8) != 0) return arg;
        }
        (void)proa_shm_unregister(server, "shared", NULL);
        proa_buffer_drop(b);
    }
    return NULL;
}

static void test_threads(void **state)
{
    pthread_t threads[3];
    memcpy(bytes, "stays ok", 8);
    for (int i = 0; i < 3; i++) assert_int_equal(pthread_create(&threads[i], NULL, hammer, bytes), 0);
    for (int i = 0; i < 3; i++) {
        void *failed;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    (void)state;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_register), cmocka_unit_test(test_buffers), cmocka_unit_test(test_status),
        cmocka_unit_test(test_many),     cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
