/* SPDX-License-Identifier: Apache-2.0
 * malloc.c - the program's malloc: the C library's, with the reserve of base/alloc.h behind it.
 *
 * json-c, libevent, nghttp2, OpenSSL, PCRE2, zlib and the C library itself allocate too, and some of them end the
 * process when that fails. A program may define malloc and its kin (glibc manual, "Replacing malloc"); these pass each
 * call on to the next definition (the C library's, or that of a preloaded allocator). When it fails and is small, they
 * give a slice of the reserve back to the system and try again, so that running out of memory does not surprise a
 * library in the middle of its work; the server then refuses new work (proa_reserve_check). A large allocation fails:
 * its size comes from a request or a file, and the caller checks for NULL.
 * Sanitizers replace malloc themselves: nothing is defined there. */
#include "base/alloc.h"

#if defined(__GLIBC__) && !PROA_ASAN && !defined(__SANITIZE_THREAD__)

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#define SMALL_BYTES ((size_t)1 << 20)

/* The C library's headers use reserved parameter names. */
/* NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */

void *memalign(size_t align, size_t bytes);

static struct {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    void *(*memalign)(size_t, size_t);
    int (*posix_memalign)(void **, size_t, size_t);
} next;

/* dlsym returns functions as object pointers; ISO C has no such cast. */
static void find_function(void *function, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    *(void **)function = found;
}

/* The dynamic loader calls this before any other code of the program, the libraries' constructors excepted; those come
 * through `ready`. One thread runs until then. dlsym allocates nothing when it succeeds. */
__attribute__((constructor)) static void find_next(void)
{
    find_function(&next.malloc, "malloc");
    find_function(&next.calloc, "calloc");
    find_function(&next.realloc, "realloc");
    find_function(&next.aligned_alloc, "aligned_alloc");
    find_function(&next.memalign, "memalign");
    find_function(&next.posix_memalign, "posix_memalign");
}

static void make_ready(void)
{
    if (PROA_UNLIKELY(!next.posix_memalign)) find_next();
}

static bool try_again(size_t bytes)
{
    return bytes < SMALL_BYTES && proa_reserve_give();
}

void *malloc(size_t bytes)
{
    make_ready();
    void *ptr = next.malloc(bytes);
    while (PROA_UNLIKELY(!ptr) && try_again(bytes)) ptr = next.malloc(bytes);
    return ptr;
}

void *calloc(size_t count, size_t bytes)
{
    size_t all;
    make_ready();
    void *ptr = next.calloc(count, bytes);
    while (PROA_UNLIKELY(!ptr) && !__builtin_mul_overflow(count, bytes, &all) && try_again(all))
        ptr = next.calloc(count, bytes);
    return ptr;
}

void *realloc(void *old, size_t bytes)
{
    make_ready();
    void *ptr = next.realloc(old, bytes);
    while (PROA_UNLIKELY(!ptr) && bytes && try_again(bytes)) ptr = next.realloc(old, bytes);
    return ptr;
}

void *aligned_alloc(size_t align, size_t bytes)
{
    make_ready();
    void *ptr = next.aligned_alloc(align, bytes);
    while (PROA_UNLIKELY(!ptr) && errno == ENOMEM && try_again(bytes)) ptr = next.aligned_alloc(align, bytes);
    return ptr;
}

void *memalign(size_t align, size_t bytes)
{
    make_ready();
    void *ptr = next.memalign(align, bytes);
    while (PROA_UNLIKELY(!ptr) && errno == ENOMEM && try_again(bytes)) ptr = next.memalign(align, bytes);
    return ptr;
}

int posix_memalign(void **out, size_t align, size_t bytes)
{
    make_ready();
    int code = next.posix_memalign(out, align, bytes);
    while (PROA_UNLIKELY(code == ENOMEM) && try_again(bytes)) code = next.posix_memalign(out, align, bytes);
    return code;
}

/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

#endif
