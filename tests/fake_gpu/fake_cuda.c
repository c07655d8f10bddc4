/* SPDX-License-Identifier: Apache-2.0
 * fake_cuda.c - in place of the driver's libcuda.so.1, for processes that open memory of fake_gpu.c: two GPUs whose
 * memory is the host's, at addresses with a bit that no address has. */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARK  ((uintptr_t)1 << 52)
#define PAGE  ((size_t)4096) /* of the header of fake_gpu.c */
#define FAKE  __attribute__((visibility("default")))
#define WRONG 1 /* CUDA_ERROR_INVALID_VALUE */

typedef struct handle {
    char text[64];
} handle;

static struct {
    char *base;
    size_t bytes;
} opened[256];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local int contexts;

static void *plain(uint64_t p)
{
    return p & MARK ? (void *)(uintptr_t)(p & ~MARK) : NULL;
}

FAKE int cuInit(unsigned flags)
{
    return flags ? WRONG : 0;
}

FAKE int cuDeviceGet(int *device, int index)
{
    *device = index;
    return index < 0 || index > 1 ? 101 : 0;
}

FAKE int cuDevicePrimaryCtxRetain(void **context, int device)
{
    static char names[2];
    *context = &names[device];
    return 0;
}

FAKE int cuCtxPushCurrent_v2(void *context)
{
    contexts++;
    return context ? 0 : WRONG;
}

FAKE int cuCtxPopCurrent_v2(void **context)
{
    *context = NULL;
    return contexts-- > 0 ? 0 : 201;
}

FAKE int cuCtxSynchronize(void)
{
    return contexts ? 0 : 201; /* CUDA_ERROR_INVALID_CONTEXT */
}

FAKE int cuGetErrorName(int status, const char **name)
{
    *name = status == WRONG ? "CUDA_ERROR_INVALID_VALUE"
            : status == 101 ? "CUDA_ERROR_INVALID_DEVICE"
                            : "CUDA_ERROR";
    return 0;
}

FAKE int cuIpcOpenMemHandle_v2(uint64_t *memory, handle h, unsigned flags)
{
    struct stat st;
    size_t at = 0;
    int fd = contexts && flags == 1 && !h.text[63] ? open(h.text, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0 || fstat(fd, &st) != 0) return WRONG;
    pthread_mutex_lock(&lock);
    while (at + 1 < sizeof opened / sizeof *opened && opened[at].base) at++;
    opened[at].bytes = (size_t)st.st_size;
    opened[at].base = mmap(NULL, opened[at].bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    *memory = (uintptr_t)(opened[at].base + PAGE) | MARK;
    pthread_mutex_unlock(&lock);
    close(fd);
    return 0;
}

FAKE int cuIpcCloseMemHandle(uint64_t memory)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof opened / sizeof *opened; i++) {
        if (!opened[i].base || opened[i].base + PAGE != (char *)plain(memory)) continue;
        munmap(opened[i].base, opened[i].bytes);
        opened[i].base = NULL;
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

/* For tests: how much memory of the server is open. */
FAKE int fake_opened(void)
{
    int count = 0;
    for (size_t i = 0; i < sizeof opened / sizeof *opened; i++) count += opened[i].base != NULL;
    return count;
}

FAKE int cuMemAlloc_v2(uint64_t *memory, size_t bytes)
{
    void *p = calloc(1, bytes);
    *memory = (uintptr_t)p | MARK;
    return p ? 0 : 2;
}

FAKE int cuMemFree_v2(uint64_t memory)
{
    free(plain(memory));
    return 0;
}

FAKE int cuMemcpyDtoD_v2(uint64_t to, uint64_t from, size_t bytes)
{
    if (!plain(to) || !plain(from)) return WRONG;
    memmove(plain(to), plain(from), bytes);
    return 0;
}

FAKE int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t bytes)
{
    if (!plain(from)) return WRONG;
    memcpy(to, plain(from), bytes);
    return 0;
}

FAKE int cuMemcpyHtoD_v2(uint64_t to, const void *from, size_t bytes)
{
    if (!plain(to)) return WRONG;
    memcpy(plain(to), from, bytes);
    return 0;
}
