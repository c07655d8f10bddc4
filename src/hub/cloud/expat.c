/* SPDX-License-Identifier: Apache-2.0
 * expat.c - opens libexpat and finds its functions. */
#include "hub/cloud/expat.h"

#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#define LIBEXPAT         "libexpat.so.1"

#define EXPAT_NAME(name) "XML_" #name,
static const char *const expat_names[] = {PROA_EXPAT_LIST(EXPAT_NAME)};
static proa_expat expat;
_Static_assert(sizeof expat == sizeof expat_names, "a pointer for each name");

static proa_err expat_error;
static pthread_once_t expat_once = PTHREAD_ONCE_INIT;

static void load_expat(void)
{
    void *handle = dlopen(LIBEXPAT, RTLD_NOW | RTLD_LOCAL);
    for (size_t i = 0; handle && i < PROA_COUNT(expat_names); i++) {
        void *symbol = dlsym(handle, expat_names[i]);
        if (symbol) memcpy((char *)&expat + i * sizeof symbol, &symbol, sizeof symbol);
        else handle = NULL;
    }
    if (!handle)
        (void)PROA_FAIL(&expat_error, UNSUPPORTED,
                        "%s is not installed, which reads lists of object stores (Debian: libexpat1)", LIBEXPAT);
}

proa_status proa_expat_open(const proa_expat **out, proa_err *err)
{
    pthread_once(&expat_once, load_expat);
    *out = &expat;
    return proa_err_copy(err, &expat_error);
}
