/* SPDX-License-Identifier: Apache-2.0
 * device.c - the host as a device, and opening the CUDA plug-in. */
#include "kernels/device.h"

#include "base/alloc.h"
#include "kernels/connect.h"
#include "kernels/data_ops.h"
#include "kernels/device_name.h"
#include "kernels/ipc.h"
#include "kernels/plugin.h"
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the host ---- */

static void *host_alloc(proa_device *d, int64_t bytes)
{
    PROA_UNUSED(d);
    return proa_pages_alloc(bytes);
}

static void host_free(proa_device *d, void *memory, int64_t bytes)
{
    PROA_UNUSED(d);
    if (memory) proa_pages_free(memory, bytes);
}

static void *host_host_alloc(proa_device *d, int64_t bytes)
{
    PROA_UNUSED(d);
    return proa_realloc_try(NULL, (size_t)bytes);
}

static void host_host_free(proa_device *d, void *memory)
{
    PROA_UNUSED(d);
    free(memory);
}

static void host_copy(proa_device *d, void *dst, const void *src, int64_t bytes)
{
    PROA_UNUSED(d);
    if (bytes) memcpy(dst, src, (size_t)bytes); /* no bytes may have no address */
}

static void host_send(proa_device *d, void *dst, const void *src, int64_t bytes, int ticket)
{
    PROA_UNUSED(d), PROA_UNUSED(ticket);
    memcpy(dst, src, (size_t)bytes);
}

static void host_after_sent(proa_device *d)
{
    PROA_UNUSED(d);
}

static void host_sent(proa_device *d, int ticket)
{
    PROA_UNUSED(d), PROA_UNUSED(ticket);
}

static void host_copy_blocks(proa_device *d, void *dst, const void *src, const proa_blocks *b)
{
    PROA_UNUSED(d);
    for (int64_t i = 0; i < b->count[0]; i++)
        for (int64_t j = 0; j < b->count[1]; j++) {
            int64_t at = i * b->stride[0] + j * b->stride[1];
            memcpy((char *)dst + at, (const char *)src + at, (size_t)b->bytes);
        }
}

/* Copies on the host have ended when they return, so all have the number 0. */
static int64_t host_save_pieces(proa_device *d, void *host, const void *memory, int64_t bytes, int64_t count,
                                int64_t stride)
{
    PROA_UNUSED(d);
    for (int64_t i = 0; i < count; i++)
        memcpy((char *)host + i * bytes, (const char *)memory + i * stride, (size_t)bytes);
    return 0;
}

static int64_t host_load_pieces(proa_device *d, void *memory, const void *host, int64_t bytes, int64_t count,
                                int64_t stride)
{
    PROA_UNUSED(d);
    for (int64_t i = 0; i < count; i++)
        memcpy((char *)memory + i * stride, (const char *)host + i * bytes, (size_t)bytes);
    return 0;
}

static int64_t host_fetch_pages(proa_device *d, proa_device *from, const proa_page_move *m)
{
    PROA_UNUSED(d), PROA_UNUSED(from);
    for (int64_t k = 0; k < m->pages; k++)
        for (int64_t i = 0; i < m->count; i++)
            memcpy(m->to + m->to_page[k] * m->bytes + i * m->to_stride,
                   m->from + m->from_page[k] * m->bytes + i * m->from_stride, (size_t)m->bytes);
    return 0;
}

static int64_t host_pieces_done(proa_device *d)
{
    PROA_UNUSED(d);
    return 0;
}

static void host_wait_pieces(proa_device *d, int64_t nr)
{
    PROA_UNUSED(d), PROA_UNUSED(nr);
}

static int64_t host_available(proa_device *d)
{
    PROA_UNUSED(d);
    return proa_memory_available();
}

static proa_status host_check(proa_device *d, proa_err *err)
{
    PROA_UNUSED(d), PROA_UNUSED(err);
    return PROA_OK;
}

static void host_close(proa_device *d)
{
    free(d);
}

static proa_device *open_host(void)
{
    proa_device *d = proa_calloc(1, sizeof *d);
    *d = (proa_device){.name = "cpu",
                       .host = true,
                       .ops = proa_ops_cpu(proa_isa_choose()),
                       .alloc = host_alloc,
                       .free = host_free,
                       .host_alloc = host_host_alloc,
                       .host_free = host_host_free,
                       .upload = host_copy,
                       .download = host_copy,
                       .send = host_send,
                       .sent = host_sent,
                       .wait_copies_on_stream = host_after_sent,
                       .copy = host_copy_blocks,
                       .save_pieces = host_save_pieces,
                       .load_pieces = host_load_pieces,
                       .fetch_pages = host_fetch_pages,
                       .pieces_done = host_pieces_done,
                       .wait_pieces = host_wait_pieces,
                       .wait_pieces_on_stream = host_after_sent,
                       .available = host_available,
                       .check = host_check,
                       .failed = host_check,
                       .close = host_close,
                       .gpu = -1};
    return d;
}

/* ---- the plug-in ---- */

/* Beside the program, in the library folder next to it, or where the system finds libraries. */
static void *open_plugin(void)
{
    static const char *const places[] = {"", "../", "../lib/", "../lib/x86_64-linux-gnu/"};
    char path[PATH_MAX + 64];
    ssize_t len = readlink("/proc/self/exe", path, PATH_MAX);
    const char *named = getenv("PROA_CUDA_PLUGIN");
    if (named) return dlopen(named, RTLD_NOW | RTLD_LOCAL);
    char *slash = len > 0 ? (path[len] = 0, strrchr(path, '/')) : NULL;
    for (size_t i = 0; slash && i < PROA_COUNT(places); i++) {
        snprintf(slash + 1, sizeof path - (size_t)(slash + 1 - path), "%s%s", places[i], PROA_CUDA_PLUGIN);
        if (access(path, R_OK) == 0) return dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    return dlopen(PROA_CUDA_PLUGIN, RTLD_NOW | RTLD_LOCAL);
}

/* name: as the caller wrote it, for messages. */
static proa_status open_cuda(proa_device **out, const char *name, int index, proa_err *err)
{
    void *plugin = open_plugin();
    if (!plugin) {
        const char *why = dlerror();
        if (why &&
            strcmp(why, PROA_CUDA_PLUGIN ": cannot open shared object file: No such file or directory") == 0)
            return PROA_FAIL(err, UNSUPPORTED,
                             "device '%s': no plug-in " PROA_CUDA_PLUGIN
                             " beside the program: a build makes it where nvcc is (docs/gpu.md)",
                             name);
        return PROA_FAIL(err, UNSUPPORTED, "device '%s': the plug-in %s cannot be opened: %s", name,
                         PROA_CUDA_PLUGIN, why ? why : "unknown reason");
    }
    proa_cuda_open_fn *entry;
    *(void **)&entry = dlsym(plugin, PROA_CUDA_ENTRY);
    if (!entry)
        return PROA_FAIL(err, UNSUPPORTED, "device '%s': %s is not Proa's plug-in", name, PROA_CUDA_PLUGIN);
    return entry(proa_cuda_version(), out, index, err); /* the plug-in stays open: its code may be in use */
}

proa_status proa_device_parse(int *gpu, const char *name, proa_err *err)
{
    *gpu = -1;
    if (!name || strcmp(name, "cpu") == 0) return PROA_OK;
    const char *rest = name + 4;
    bool cuda = strncmp(name, "cuda", 4) == 0, numbered = cuda && *rest == ':' && rest[1] && strlen(rest) < 6;
    if (cuda && !*rest) return *gpu = 0, PROA_OK;
    if (numbered && strspn(rest + 1, "0123456789") == strlen(rest + 1))
        return *gpu = (int)strtol(rest + 1, NULL, 10), PROA_OK;
    return PROA_FAIL(err, INVALID, "device '%s' is none of cpu, cuda, cuda:N", name);
}

proa_status proa_device_open(proa_device **out, const char *name, proa_err *err)
{
    int gpu;
    *out = NULL;
    PROA_TRY(proa_device_parse(&gpu, name, err));
    if (gpu < 0) return *out = open_host(), PROA_OK;
    return open_cuda(out, name, gpu, err);
}

void proa_device_close(proa_device *d)
{
    if (d) d->close(d);
}

proa_status proa_device_data_ops(const proa_data_ops **out, const proa_device *d, proa_err *err)
{
    *out = &proa_data_ops_reference;
    if (d->host) return PROA_OK;
    proa_cuda_data_ops_fn *entry = NULL;
    void *plugin = open_plugin(); /* the same as before, and it stays open */
    if (plugin) *(void **)&entry = dlsym(plugin, PROA_CUDA_DATA_ENTRY);
    *out = entry ? entry(PROA_CUDA_DATA_VERSION) : NULL;
    if (*out) return PROA_OK;
    return PROA_FAIL(err, UNSUPPORTED, "device 'cuda:%d': the plug-in %s is of another version", d->gpu,
                     PROA_CUDA_PLUGIN);
}

static void *find_entry(const char *name)
{
    void *plugin = open_plugin(); /* the same as before, and it stays open */
    return plugin ? dlsym(plugin, name) : NULL;
}

proa_status proa_device_open_handle(const proa_device *d, const char *handle, void **out, int64_t *bytes,
                                    proa_err *err)
{
    proa_cuda_ipc_open_fn *entry = NULL;
    *out = NULL;
    if (!d->host) *(void **)&entry = find_entry(PROA_CUDA_IPC_OPEN);
    if (entry) return entry(d->gpu, handle, out, bytes, err);
    return PROA_FAIL(err, UNSUPPORTED, "device '%s' opens no memory of other processes", d->name);
}

void proa_device_close_handle(const proa_device *d, void *memory)
{
    proa_cuda_ipc_close_fn *entry = NULL;
    *(void **)&entry = find_entry(PROA_CUDA_IPC_CLOSE);
    if (entry) entry(d->gpu, memory);
}

proa_status proa_device_export_handle(const proa_device *d, void *memory, char *handle, proa_err *err)
{
    proa_cuda_ipc_export_fn *entry = NULL;
    if (!d->host) *(void **)&entry = find_entry(PROA_CUDA_IPC_EXPORT);
    if (entry) return entry(d->gpu, memory, handle, err);
    return PROA_FAIL(err, UNSUPPORTED, "device '%s' shares no memory with other processes", d->name);
}

proa_status proa_device_connect(proa_comm **out, bool *waits, proa_device *d, proa_comm *control,
                                proa_rank_line line, proa_err *err)
{
    proa_cuda_connect_fn *entry = NULL;
    *out = NULL, *waits = false;
    if (!d->host) *(void **)&entry = find_entry(PROA_CUDA_CONNECT);
    if (entry) return entry(out, waits, d, control, line, err);
    return PROA_FAIL(err, UNSUPPORTED, "device '%s' is not connected with others of other processes", d->name);
}

int32_t proa_device_visible(void)
{
    proa_cuda_visible_fn *entry;
    *(void **)&entry = find_entry(PROA_CUDA_VISIBLE);
    return entry ? entry() : 0;
}
