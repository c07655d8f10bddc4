/* SPDX-License-Identifier: Apache-2.0
 * curl.c - opens libcurl and finds its functions. */
#include "hub/curl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>

#define LIBCURL         "libcurl.so.4"

#define CURL_NAME(name) "curl_" #name,
static const char *const curl_names[] = {PROA_CURL_LIST(CURL_NAME)};
_Static_assert(offsetof(proa_curl, handle) == sizeof curl_names, "a pointer for each name");

static proa_curl curl;
static proa_err curl_error;
static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static proa_status load_library(proa_curl *c, proa_err *err)
{
    c->handle = dlopen(LIBCURL, RTLD_NOW | RTLD_LOCAL);
    if (!c->handle)
        return PROA_FAIL(err, UNSUPPORTED, "%s is not installed, which downloads models (Debian: libcurl4)",
                         LIBCURL);
    for (size_t i = 0; i < sizeof curl_names / sizeof *curl_names; i++) {
        void *symbol = dlsym(c->handle, curl_names[i]);
        if (!symbol)
            return PROA_FAIL(err, UNSUPPORTED, "%s has no %s: 7.66 or newer is needed", LIBCURL, curl_names[i]);
        memcpy((char *)c + i * sizeof symbol, &symbol, sizeof symbol);
    }
    if (c->global_init(CURL_GLOBAL_DEFAULT) != 0)
        return PROA_FAIL(err, INTERNAL, "%s does not start", LIBCURL);
    return PROA_OK;
}

static void load_once(void)
{
    proa_status status = load_library(&curl, &curl_error);
    PROA_UNUSED(status); /* curl_error has it */
}

proa_status proa_curl_open(const proa_curl **out, proa_err *err)
{
    pthread_once(&curl_once, load_once);
    *out = &curl;
    return proa_err_copy(err, &curl_error);
}
