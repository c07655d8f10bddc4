/* SPDX-License-Identifier: Apache-2.0
 * fake_gpu.c - a plug-in in place of libproa_cuda.so (PROA_CUDA_PLUGIN names it): three GPUs whose memory is the host's
 * and whose data ops are the reference's. Addresses that the first two give out have a bit set that no address has, so
 * whoever reads their memory without the device ends the program; the data ops take the bit off. These two have no ops
 * for transformers. The third has the CPU's, which do not know the bit, so its addresses are plain.
 * Memory is a memfd each, whose handle is the name of its descriptor, so other processes open it: fake_cuda.c does.
 * With FAKE_GPU_SHARES=no there are no handles, with FAKE_GPU_FULL=yes the first two have no memory left.
 * Threads: as kernels/device.h. */
#include "base/alloc.h"
#include "kernels/data_ops.h"
#include "kernels/device.h"
#include "kernels/ipc.h"
#include "kernels/plugin.h"
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define GPUS        3
#define TRANSFORMER 2 /* the GPU that runs them */
#define MARK        ((uintptr_t)1 << 52)

static atomic_bool plain_in_use; /* the third GPU was opened */

static void *marked(void *p)
{
    return p ? (void *)((uintptr_t)p | MARK) : NULL;
}

/* The host's address of a device's; an address without the mark is not one, or is the third GPU's. */
static void *plain(const void *p)
{
    PROA_ASSERT(!p || ((uintptr_t)p & MARK) || atomic_load(&plain_in_use));
    return (void *)((uintptr_t)p & ~MARK);
}

/* ---- memory ---- */

/* In the first page of a memfd; the memory follows. */
typedef struct header {
    size_t bytes; /* of the memfd */
    int fd;
} header;

#define PAGE ((size_t)4096)

static void *shared_alloc(proa_device *d, int64_t bytes)
{
    header h = {.bytes = PAGE + (bytes > 0 ? (size_t)bytes : 1), .fd = memfd_create("fake-gpu", MFD_CLOEXEC)};
    PROA_UNUSED(d);
    if (h.fd < 0 || ftruncate(h.fd, (off_t)h.bytes) != 0) return close(h.fd), NULL;
    char *base = mmap(NULL, h.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, h.fd, 0);
    PROA_ASSERT(base != MAP_FAILED);
    memcpy(base, &h, sizeof h);
    return base + PAGE;
}

static void shared_free(proa_device *d, void *memory, int64_t bytes)
{
    header h;
    PROA_UNUSED(d);
    PROA_UNUSED(bytes);
    if (!memory) return;
    char *base = (char *)plain(memory) - PAGE;
    memcpy(&h, base, sizeof h);
    munmap(base, h.bytes);
    close(h.fd);
}

PROA_EXPORT proa_cuda_ipc_export_fn proa_cuda_ipc_export;
PROA_EXPORT proa_status proa_cuda_ipc_export(int gpu, void *memory, char *handle, proa_err *err)
{
    header h;
    const char *shares = getenv("FAKE_GPU_SHARES");
    if (shares && strcmp(shares, "no") == 0)
        return PROA_FAIL(err, UNSUPPORTED,
                         "device 'cuda:%d': its memory cannot be shared with other processes", gpu);
    memcpy(&h, (char *)plain(memory) - PAGE, sizeof h);
    memset(handle, 0, PROA_IPC_HANDLE_BYTES);
    snprintf(handle, PROA_IPC_HANDLE_BYTES, "/proc/%d/fd/%d", (int)getpid(), h.fd);
    return PROA_OK;
}

/* ---- the device ---- */

/* New memory is cleared in the stream of its device: when the next work of that stream is done, or waited for. */
static struct {
    proa_device *device;
    void *memory;
    size_t bytes;
} clearing[64];
static pthread_mutex_t clearing_lock = PTHREAD_MUTEX_INITIALIZER;

/* memory: only this, which is freed; NULL: all of the device. */
static void finish_clearing(proa_device *d, const void *memory)
{
    pthread_mutex_lock(&clearing_lock);
    for (size_t i = 0; i < PROA_COUNT(clearing); i++) {
        if (clearing[i].device != d || (memory && clearing[i].memory != memory)) continue;
        memset(plain(clearing[i].memory), 0, clearing[i].bytes);
        clearing[i].device = NULL;
    }
    pthread_mutex_unlock(&clearing_lock);
}

static void *fake_alloc(proa_device *d, int64_t bytes)
{
    const char *full = getenv("FAKE_GPU_FULL");
    void *memory = full && strcmp(full, "yes") == 0 ? NULL : marked(shared_alloc(d, bytes));
    pthread_mutex_lock(&clearing_lock);
    for (size_t i = 0; memory && i < PROA_COUNT(clearing); i++) {
        if (clearing[i].device) continue;
        clearing[i].device = d, clearing[i].memory = memory, clearing[i].bytes = (size_t)bytes;
        break;
    }
    pthread_mutex_unlock(&clearing_lock);
    return memory;
}

static void fake_free(proa_device *d, void *memory, int64_t bytes)
{
    finish_clearing(d, memory);
    shared_free(d, memory, bytes);
}

static void fake_sent(proa_device *d, int ticket)
{
    PROA_UNUSED(ticket);
    finish_clearing(d, NULL);
}

static void fake_upload(proa_device *d, void *dst, const void *src, int64_t bytes)
{
    finish_clearing(d, NULL);
    if (bytes) memcpy(plain(dst), src, (size_t)bytes);
}

static void fake_download(proa_device *d, void *dst, const void *src, int64_t bytes)
{
    finish_clearing(d, NULL);
    if (bytes) memcpy(dst, plain(src), (size_t)bytes);
}

static void fake_copy(proa_device *d, void *dst, const void *src, const proa_blocks *b)
{
    finish_clearing(d, NULL);
    PROA_ASSERT(b->count[0] == 1 && b->count[1] == 1);
    memmove(plain(dst), plain(src), (size_t)b->bytes);
}

/* ---- the third GPU: the CPU's ops, which expect scratch memory that a model has on the host only ---- */

static const proa_ops *cpu_ops;

static void give_scratch(proa_ctx *c)
{
    static _Thread_local _Alignas(64) char memory[16 << 20];
    if (!c->scratch) c->scratch = memory, c->scratch_bytes = sizeof memory;
}

static void scratch_linear(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e)
{
    give_scratch(c);
    cpu_ops->linear(c, y, x, w, e);
}

static void scratch_attend(proa_ctx *c, proa_view y, proa_view q, const proa_kv *kv, const proa_spans *spans,
                           const proa_attention *a)
{
    give_scratch(c);
    cpu_ops->attend(c, y, q, kv, spans, a);
}

static void fill_transformer(proa_device *d)
{
    static proa_ops ops;
    cpu_ops = proa_ops_cpu(proa_isa_choose());
    ops = *cpu_ops;
    ops.linear = scratch_linear, ops.attend = scratch_attend;
    d->ops = &ops;
    atomic_store(&plain_in_use, true);
}

PROA_EXPORT proa_status proa_cuda_open(int version, proa_device **out, int index, proa_err *err);
PROA_EXPORT proa_status proa_cuda_open(int version, proa_device **out, int index, proa_err *err)
{
    *out = NULL;
    if (version != proa_cuda_version()) return PROA_FAIL(err, UNSUPPORTED, "another version");
    if (index >= GPUS) return PROA_FAIL(err, UNSUPPORTED, "device 'cuda:%d': there are %d GPUs", index, GPUS);
    PROA_TRY(proa_device_open(out, "cpu", err));
    proa_device *d = *out;
    d->name = "fake GPU";
    d->host = false;
    d->gpu = index;
    if (index == TRANSFORMER) {
        d->alloc = shared_alloc, d->free = shared_free;
        fill_transformer(d);
        return PROA_OK;
    }
    d->alloc = fake_alloc, d->free = fake_free, d->upload = fake_upload, d->download = fake_download;
    d->copy = fake_copy, d->sent = fake_sent;
    return PROA_OK;
}

/* A handle is the name of a system shared memory object, which stands for the memory of a client, or what another
 * process has exported. */
static struct {
    void *data;
    size_t bytes, page; /* before data */
} opened[256];

PROA_EXPORT proa_status proa_cuda_ipc_open(int gpu, const char *handle, void **out, int64_t *bytes,
                                           proa_err *err);
PROA_EXPORT proa_status proa_cuda_ipc_open(int gpu, const char *handle, void **out, int64_t *bytes, proa_err *err)
{
    struct stat st;
    size_t at = 0;
    int fd = -1;
    bool name = handle[0] == '/' && !handle[PROA_IPC_HANDLE_BYTES - 1],
         exported = strncmp(handle, "/proc/", 6) == 0;
    if (name && exported) fd = open(handle, O_RDWR | O_CLOEXEC);
    else if (name) fd = shm_open(handle, O_RDWR | O_CLOEXEC, 0);
    PROA_UNUSED(gpu);
    if (fd < 0 || fstat(fd, &st) != 0)
        return PROA_FAIL(err, INVALID, "failed to open CUDA IPC handle: invalid argument");
    while (at + 1 < PROA_COUNT(opened) && opened[at].data) at++;
    char *base = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    PROA_ASSERT(base != MAP_FAILED);
    opened[at].page = exported ? PAGE : 0;
    opened[at].data = base + opened[at].page;
    opened[at].bytes = (size_t)st.st_size;
    *out = marked(opened[at].data);
    *bytes = (int64_t)(opened[at].bytes - opened[at].page);
    return PROA_OK;
}

PROA_EXPORT void proa_cuda_ipc_close(int gpu, void *memory);
PROA_EXPORT void proa_cuda_ipc_close(int gpu, void *memory)
{
    PROA_UNUSED(gpu);
    for (size_t i = 0; i < PROA_COUNT(opened); i++) {
        if (opened[i].data != plain(memory)) continue;
        munmap((char *)opened[i].data - opened[i].page, opened[i].bytes);
        opened[i].data = NULL;
    }
}

/* ---- data ops ---- */

static void fake_forest(proa_ctx *c, float *out, double *sums, const float *x, int64_t rows, const proa_trees *of)
{
    proa_trees f = *of;
    f.nodes = plain(f.nodes), f.trees = plain(f.trees), f.tiles = plain(f.tiles), f.leaves = plain(f.leaves);
    f.leaves64 = plain(f.leaves64), f.sets = plain(f.sets), f.words = plain(f.words), f.lines = plain(f.lines);
    f.terms = plain(f.terms), f.slopes = plain(f.slopes), f.base = plain(f.base), f.divisor = plain(f.divisor);
    f.target_classes = plain(f.target_classes);
    proa_forest_reference(c, plain(out), plain(sums), plain(x), rows, &f);
}

static proa_elements plain_elements(const proa_elements *e)
{
    proa_elements of = *e;
    for (int32_t i = 0; i < of.args; i++) of.data[i] = plain(of.data[i]);
    of.out = plain(of.out);
    return of;
}

static void fake_map_elements(proa_ctx *c, const proa_elements *e)
{
    const proa_elements of = plain_elements(e);
    proa_map_elements_reference(c, &of);
}

static void fake_softmax_elements(proa_ctx *c, const proa_elements *e, int64_t width)
{
    const proa_elements of = plain_elements(e);
    proa_softmax_elements_reference(c, &of, width);
}

static void fake_copy_rows(proa_ctx *c, char *to, int64_t to_row, const char *from, int64_t from_row,
                           int64_t bytes, int64_t rows)
{
    proa_copy_rows_reference(c, plain(to), to_row, plain(from), from_row, bytes, rows);
}

static void fake_pool_rows(proa_ctx *c, float *out, const float *x, const int64_t *first, int64_t count,
                           int64_t width, proa_pool_mode mode, bool unit)
{
    proa_pool_rows_reference(c, plain(out), plain(x), plain(first), count, width, mode, unit);
}

static void fake_text_features(proa_ctx *c, float *out, const char *bytes, const proa_text_row *rows,
                               int64_t count, char *scratch, const proa_text_plan *plan)
{
    proa_text_plan p = *plan;
    p.letters.page = plain(p.letters.page), p.letters.kind = plain(p.letters.kind);
    p.letters.lower = plain(p.letters.lower), p.counts = plain(p.counts), p.weights = plain(p.weights);
    for (int32_t i = 0; i < p.lists_count; i++)
        p.lists[i].slots = plain(p.lists[i].slots), p.lists[i].text = plain(p.lists[i].text);
    p.vocabulary.slots = plain(p.vocabulary.slots), p.vocabulary.text = plain(p.vocabulary.text);
    p.lexicon.slots = plain(p.lexicon.slots), p.lexicon.text = plain(p.lexicon.text);
    proa_text_features_reference(c, plain(out), plain(bytes), plain(rows), count, plain(scratch), &p);
}

PROA_EXPORT const proa_data_ops *proa_cuda_data_ops(int version);
PROA_EXPORT const proa_data_ops *proa_cuda_data_ops(int version)
{
    static const proa_data_ops table = {.name = "fake",
                                        .forest = fake_forest,
                                        .map_elements = fake_map_elements,
                                        .softmax_elements = fake_softmax_elements,
                                        .copy_rows = fake_copy_rows,
                                        .pool_rows = fake_pool_rows,
                                        .text_features = fake_text_features};
    return version == PROA_CUDA_DATA_VERSION ? &table : NULL;
}
