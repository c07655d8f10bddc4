/* SPDX-License-Identifier: Apache-2.0
 * curl.h - libcurl, opened at run time: programs that never download need not have it.
 * Owner:   the process; it stays open.
 * Threads: any. */
#ifndef PROA_HUB_CURL_H
#define PROA_HUB_CURL_H

#include "base/status.h"
#include <curl/curl.h>

#define PROA_CURL_LIST(X)                                                                                    \
    X(global_init)                                                                                           \
    X(easy_init)                                                                                             \
    X(easy_cleanup)                                                                                          \
    X(easy_reset)                                                                                            \
    X(easy_perform)                                                                                          \
    X(easy_setopt)                                                                                           \
    X(easy_getinfo)                                                                                          \
    X(easy_strerror)                                                                                         \
    X(easy_escape)                                                                                           \
    X(multi_init)                                                                                            \
    X(multi_cleanup)                                                                                         \
    X(multi_add_handle)                                                                                      \
    X(multi_remove_handle)                                                                                   \
    X(multi_perform)                                                                                         \
    X(multi_poll)                                                                                            \
    X(multi_info_read)                                                                                       \
    X(slist_append)                                                                                          \
    X(slist_free_all)                                                                                        \
    X(url)                                                                                                   \
    X(url_cleanup)                                                                                           \
    X(url_set)                                                                                               \
    X(url_get)                                                                                               \
    X(getdate)                                                                                               \
    X(free)

#define PROA_CURL_FIELD(name) __typeof__(curl_##name) *name;
typedef struct proa_curl {
    PROA_CURL_LIST(PROA_CURL_FIELD)
    void *handle; /* of dlopen */
} proa_curl;

/* UNSUPPORTED if libcurl is not installed. */
PROA_MUST_CHECK proa_status proa_curl_open(const proa_curl **out, proa_err *err);

#endif
