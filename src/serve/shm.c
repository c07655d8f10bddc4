/* SPDX-License-Identifier: Apache-2.0
 * shm.c - shared memory regions that clients register, and buffers over them. */
#include "base/alloc.h"
#include "base/guard.h"
#include "base/limits.h"
#include "serve/core.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Names of regions that Triton keeps for itself: clients may not register them. */
#define RESERVED_PREFIX "triton_python_backend_shm_region_"

/* A registered region. Tensors in it hold references; unregistering removes the name and drops the registry's
 * reference. */
struct proa_shm_region {
    atomic_int refs;
    char *name, *key;
    uint64_t offset, bytes;
    char *data;     /* the region's first byte */
    void *map;      /* where the mapping begins: on a page */
    size_t map_len; /* of the mapping */
    proa_guard *guard;
    proa_buffer *device; /* CUDA: the whole region, in place of the members from key on; NULL: of the system */
    int64_t device_id;
    proa_shm_region *next;
};

static void region_drop(void *arg)
{
    proa_shm_region *g = arg;
    if (atomic_fetch_sub_explicit(&g->refs, 1, memory_order_acq_rel) != 1) return;
    if (g->guard) proa_guard_remove(g->guard);
    proa_buffer_drop(g->device);
    if (g->map) munmap(g->map, g->map_len);
    free(g->name);
    free(g->key);
    free(g);
}

static proa_shm_region **find_region(proa_server *s, const char *name)
{
    proa_shm_region **at = &s->regions;
    while (*at && strcmp((*at)->name, name) != 0) at = &(*at)->next;
    return at;
}

/* A mapping begins on a page: that before the offset is mapped too. */
static proa_status map_region(proa_shm_region *g, int fd, proa_err *err)
{
    struct stat st;
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), skip = g->offset % page;
    if (fstat(fd, &st) != 0 || st.st_size < 0)
        return PROA_FAIL(err, INTERNAL, "Invalid shared memory region: '%s'", g->key);
    if (g->bytes == 0 || g->offset > (uint64_t)st.st_size || g->bytes > (uint64_t)st.st_size - g->offset)
        return PROA_FAIL(err, INVALID, "failed to register shared memory region '%s': invalid args", g->name);
    void *map = mmap(NULL, g->bytes + skip, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(g->offset - skip));
    if (map == MAP_FAILED)
        return PROA_FAIL(err, INVALID,
                         "failed to register shared memory region '%s': unable to process address space%s",
                         g->name, strerror(errno));
    g->map = map;
    g->map_len = g->bytes + skip;
    g->data = (char *)map + skip;
    g->guard = proa_guard_add(map, g->map_len);
    return PROA_OK;
}

static proa_shm_region *new_region(const char *name, uint64_t bytes)
{
    proa_shm_region *g = proa_calloc(1, sizeof *g);
    atomic_init(&g->refs, 1);
    g->name = proa_strdup(name);
    g->bytes = bytes;
    return g;
}

static proa_status open_region(proa_shm_region **out, const char *name, const char *key, uint64_t offset,
                               uint64_t bytes, proa_err *err)
{
    int fd = shm_open(key, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) return PROA_FAIL(err, INTERNAL, "Unable to open shared memory region: '%s'", key);
    proa_shm_region *g = new_region(name, bytes);
    g->key = proa_strdup(key);
    g->offset = offset;
    proa_status status = map_region(g, fd, err);
    close(fd);
    if (status != PROA_OK) region_drop(g);
    else *out = g;
    return status;
}

/* Lock held. */
static proa_status may_add(proa_server *server, const char *name, proa_err *err)
{
    if (*find_region(server, name))
        return PROA_FAIL(err, EXISTS, "shared memory region '%s' already in manager", name);
    if (server->regions_count >= PROA_SHM_REGIONS_MAX)
        return PROA_FAIL(err, LIMIT, "more than %d shared memory regions", PROA_SHM_REGIONS_MAX);
    return PROA_OK;
}

/* By name: the status is sorted. Lock held. */
static void add_region(proa_server *server, proa_shm_region *fresh)
{
    proa_shm_region **end = &server->regions;
    while (*end && strcmp((*end)->name, fresh->name) < 0) end = &(*end)->next;
    fresh->next = *end;
    *end = fresh;
    server->regions_count++;
}

proa_status proa_shm_register(proa_server *server, const char *name, const char *key, uint64_t offset,
                              uint64_t bytes, proa_err *err)
{
    const char *bare = key + strspn(key, "/");
    if (*key && !*bare)
        return PROA_FAIL(err, INVALID, "cannot register shared memory region '%s' - invalid shm key '%s'",
                         name, key);
    if (strncmp(bare, RESERVED_PREFIX, sizeof RESERVED_PREFIX - 1) == 0)
        return PROA_FAIL(
            err, INVALID,
            "cannot register shared memory region '%s' with key '%s' as the key contains the reserved "
            "prefix '" RESERVED_PREFIX "'",
            name, key);
    proa_shm_region *fresh = NULL;
    pthread_mutex_lock(&server->shm_lock);
    proa_status status = may_add(server, name, err);
    if (status == PROA_OK) status = open_region(&fresh, name, key, offset, bytes, err);
    if (fresh) add_region(server, fresh);
    pthread_mutex_unlock(&server->shm_lock);
    return status;
}

/* A handle of no bytes more than its memory has: the device's memory decides. Without GPUs the text is that of a Triton
 * which was built so. */
proa_status proa_shm_register_cuda(proa_server *server, const char *name, proa_str handle, int64_t device,
                                   uint64_t bytes, proa_err *err)
{
    proa_buffer *memory = NULL;
    proa_err why = {.status = PROA_OK};
    proa_status status = PROA_UNSUPPORTED;
    if (server->options.open_cuda) status = server->options.open_cuda(&memory, device, handle, bytes, &why);
    if (status == PROA_UNSUPPORTED)
        return PROA_FAIL(err, INVALID,
                         "failed to register CUDA shared memory region: '%s', GPUs not supported", name);
    if (status != PROA_OK)
        return PROA_FAIL(err, INVALID, "failed to register CUDA shared memory region: '%s', %s", name, why.text);
    proa_shm_region *fresh = new_region(name, bytes);
    fresh->device = memory;
    fresh->device_id = device;
    fresh->data = memory->data;
    pthread_mutex_lock(&server->shm_lock);
    status = may_add(server, name, err);
    if (status == PROA_OK) add_region(server, fresh);
    pthread_mutex_unlock(&server->shm_lock);
    if (status != PROA_OK) region_drop(fresh);
    return status;
}

/* Triton's answer to a name that it does not know, or knows as the other kind, is success. */
static void remove_regions(proa_server *server, const char *name, bool cuda)
{
    proa_shm_region *gone = NULL;
    pthread_mutex_lock(&server->shm_lock);
    for (proa_shm_region **at = &server->regions, *g; (g = *at) != NULL;) {
        if (cuda != (g->device != NULL) || (*name && strcmp(g->name, name) != 0)) {
            at = &g->next;
            continue;
        }
        *at = g->next;
        g->next = gone;
        gone = g;
        server->regions_count--;
    }
    pthread_mutex_unlock(&server->shm_lock);
    for (proa_shm_region *next; gone; gone = next) {
        next = gone->next;
        region_drop(gone);
    }
}

proa_status proa_shm_unregister(proa_server *server, const char *name, proa_err *err)
{
    PROA_UNUSED(err);
    remove_regions(server, name, false);
    return PROA_OK;
}

proa_status proa_shm_unregister_cuda(proa_server *server, const char *name, proa_err *err)
{
    PROA_UNUSED(err);
    remove_regions(server, name, true);
    return PROA_OK;
}

proa_status proa_shm_status(proa_server *server, const char *name,
                            Inference__SystemSharedMemoryStatusResponse **out, proa_arena *arena, proa_err *err)
{
    Inference__SystemSharedMemoryStatusResponse *m = (void *)proa_message_new(
        &inference__system_shared_memory_status_response__descriptor, arena);
    pthread_mutex_lock(&server->shm_lock);
    for (proa_shm_region *g = server->regions; g; g = g->next) {
        if (g->device || (*name && strcmp(name, g->name) != 0)) continue;
        Inference__SystemSharedMemoryStatusResponse__RegionsEntry *e = (void *)proa_message_add(
            &m->base, "regions", arena);
        e->key = proa_arena_strdup(arena, proa_str_c(g->name));
        e->value = (void *)proa_message_new(
            &inference__system_shared_memory_status_response__region_status__descriptor, arena);
        e->value->name = e->key;
        e->value->key = proa_arena_strdup(arena, proa_str_c(g->key));
        e->value->offset = g->offset;
        e->value->byte_size = g->bytes;
    }
    pthread_mutex_unlock(&server->shm_lock);
    if (*name && m->n_regions == 0)
        return PROA_FAIL(err, NOT_FOUND, "Unable to find system shared memory region: '%s'", name);
    *out = m;
    return PROA_OK;
}

proa_status proa_shm_status_cuda(proa_server *server, const char *name,
                                 Inference__CudaSharedMemoryStatusResponse **out, proa_arena *arena,
                                 proa_err *err)
{
    Inference__CudaSharedMemoryStatusResponse *m = (void *)proa_message_new(
        &inference__cuda_shared_memory_status_response__descriptor, arena);
    pthread_mutex_lock(&server->shm_lock);
    for (proa_shm_region *g = server->regions; g; g = g->next) {
        if (!g->device || (*name && strcmp(name, g->name) != 0)) continue;
        Inference__CudaSharedMemoryStatusResponse__RegionsEntry *e = (void *)proa_message_add(&m->base,
                                                                                              "regions", arena);
        e->key = proa_arena_strdup(arena, proa_str_c(g->name));
        e->value = (void *)proa_message_new(
            &inference__cuda_shared_memory_status_response__region_status__descriptor, arena);
        e->value->name = e->key;
        e->value->device_id = (uint64_t)g->device_id;
        e->value->byte_size = g->bytes;
    }
    pthread_mutex_unlock(&server->shm_lock);
    if (*name && m->n_regions == 0)
        return PROA_FAIL(err, NOT_FOUND, "Unable to find cuda shared memory region: '%s'", name);
    *out = m;
    return PROA_OK;
}

static proa_status region_shortened(const proa_shm_region *g, proa_err *err)
{
    return PROA_FAIL(
        err, INVALID,
        "shared memory region '%s' is shorter than the %llu bytes that were registered; register it again",
        g->name, (unsigned long long)g->bytes);
}

proa_status proa_shm_check(const proa_buffer *buffer, proa_err *err)
{
    if (PROA_LIKELY(!proa_guards_any_broken()) || !buffer || buffer->free_data != region_drop) return PROA_OK;
    const proa_shm_region *g = buffer->arg;
    return g->guard && proa_guard_broken(g->guard) ? region_shortened(g, err) : PROA_OK;
}

proa_status proa_shm_check_bytes(const proa_buffer *buffer, const char *data, size_t bytes, proa_err *err)
{
    if (PROA_LIKELY(!buffer || buffer->free_data != region_drop || buffer->memory)) return PROA_OK;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (size_t at = 0; at < bytes; at += page) (void)*(const volatile char *)(data + at);
    if (bytes) (void)*(const volatile char *)(data + bytes - 1);
    return proa_shm_check(buffer, err);
}

proa_status proa_shm_buffer(proa_server *server, const char *region, uint64_t offset, uint64_t bytes,
                            proa_buffer **out, proa_err *err)
{
    proa_status status = PROA_OK;
    *out = NULL;
    pthread_mutex_lock(&server->shm_lock);
    proa_shm_region *g = *find_region(server, region);
    if (!g) {
        status = PROA_FAIL(err, NOT_FOUND, "Unable to find shared memory region: '%s'", region);
    } else if (g->guard && proa_guard_broken(g->guard)) {
        status = region_shortened(g, err);
    } else if (offset >= g->bytes) {
        status = PROA_FAIL(err, INVALID, "Invalid offset for shared memory region: '%s'", region);
    } else if (bytes > g->bytes - offset) {
        status = PROA_FAIL(err, INVALID, "Invalid offset + byte size for shared memory region: '%s'", region);
    } else {
        atomic_fetch_add_explicit(&g->refs, 1, memory_order_relaxed);
        *out = proa_buffer_wrap_memory(g->device ? g->device->memory : NULL, g->data + offset, bytes,
                                       region_drop, g);
    }
    pthread_mutex_unlock(&server->shm_lock);
    return status;
}
