/* SPDX-License-Identifier: Apache-2.0
 * http.h - requests to a hub over libcurl's multi interface: several at a time on the caller's thread, with repetition,
 *          pauses and redirects.
 * Owner:   the caller owns a transfer until its on_done is called, and the client.
 * Threads: one at a time for a client.
 * Way in:  proa_hub_client_open, proa_hub_start, proa_hub_step until nothing is active.
 *
 * A token or signature goes to the endpoint's scheme, host and port only, whatever redirects say. A request whose
 * connection breaks goes on after the bytes that have arrived. 408, 429, 500, 502, 503 and 504 are repeated after
 * Retry-After, or after pauses that double. */
#ifndef PROA_HUB_HTTP_H
#define PROA_HUB_HTTP_H

#include "base/str.h"
#include "hub/curl.h"
#include "hub/settings.h"
#include "hub/tree.h"

/* What a response says, with the headers of the hub's own answer where it redirected. */
typedef struct proa_hub_reply {
    long code;
    char etag[PROA_HUB_REVISION_MAX], linked_etag[PROA_HUB_REVISION_MAX], commit[64];
    char error_code[64], error_message[256];
    char *location;                   /* owned by the transfer; NULL: none */
    int64_t length;                   /* Content-Length; -1: none */
    int64_t linked_size;              /* X-Linked-Size; -1: none */
    int64_t range_first, range_total; /* of Content-Range; -1: none */
    int64_t retry_after_s;            /* -1: none */
    char encryption[32];              /* X-Amz-Server-Side-Encryption */
} proa_hub_reply;

typedef struct proa_hub_transfer proa_hub_transfer;
struct proa_hub_transfer {
    char *url;          /* heap; follows redirects */
    const char *what;   /* for errors: a file's name, or NULL for the repository itself */
    bool head;          /* HEAD, which stops at a redirect to another host; else GET */
    const char *form;   /* POST with this body of a form, which follows no redirect; NULL: none */
    const char *method; /* in place of GET; NULL: none */
    int attempts_max;   /* 0: PROA_HUB_ATTEMPTS_MAX */
    int timeout_ms; /* of a whole attempt, which is not repeated then; 0: without bytes for settings->timeout_s */
    bool no_redirect;   /* a redirect is a refusal */
    bool no_proxy;      /* for services of this machine */
    const char *match;  /* the state of the object that is meant, for the site; NULL: any */
    bool no_retry;      /* if a connection fails: the cache can be used instead of the hub */
    int64_t first, end; /* bytes [first, end) of the file; end -1: all, without a Range */
    int64_t bytes_max;  /* of a body without a range */
    /* Takes bytes in order. A failure, which fills err, ends the transfer. */
    proa_status (*on_body)(proa_hub_transfer *t, const char *bytes, size_t len, proa_err *err);
    void (*on_restart)(proa_hub_transfer *t); /* without a range: what on_body took comes again from its beginning */
    void (*on_done)(proa_hub_transfer *t); /* err.status says how it ended; the client has forgotten t */
    void *arg;

    /* results */
    proa_err err;
    proa_hub_reply reply;
    int64_t received;   /* bytes of the body that on_body has taken, over all attempts */
    bool range_ignored; /* CORRUPT because the server sent the whole file where a later part was requested */

    /* the client's */
    struct proa_hub_client *client;
    proa_hub_transfer *next;
    CURL *easy; /* NULL: waits until start_ns */
    struct curl_slist *headers;
    int64_t start_ns, received_before;
    int attempts, redirects;
    bool body_begun;
    proa_buf error_body;
};

/* What differs between a hub and an object store. */
typedef struct proa_hub_client proa_hub_client;
typedef struct proa_hub_site {
    /* The address of a file, on the heap. */
    char *(*address)(const proa_hub_client *c, const char *commit, const proa_hub_entry *entry);
    /* Headers with which the client proves who it is; called for each attempt, and only where the request goes to the
     * scheme, host and port of settings->endpoint. Returns the longer list. */
    struct curl_slist *(*sign)(const proa_hub_transfer *t, struct curl_slist *headers);
    /* Fills err with what a response other than 200 and 206 means to the user. */
    void (*refuse)(const proa_hub_transfer *t, proa_err *err);
} proa_hub_site;

struct proa_hub_client {
    const proa_curl *curl;
    const proa_hub_site *site;
    void *site_arg; /* for the functions of the site */
    const proa_hub_settings *settings;
    const char *repo, *revision; /* for errors; no revision in clouds */
    CURLM *multi;
    proa_hub_transfer *transfers; /* all that have not ended */
    int active;
    char waiting[160]; /* why nothing arrives; "": something does */
};

PROA_MUST_CHECK proa_status proa_hub_client_open(proa_hub_client *c, const proa_hub_site *site,
                                                 const proa_hub_settings *settings, const char *repo,
                                                 proa_err *err);
/* Ends all transfers without calling on_done. */
void proa_hub_client_close(proa_hub_client *c);
void proa_hub_start(proa_hub_client *c, proa_hub_transfer *t);
/* Ends a transfer without calling on_done. Not from its own callbacks. */
void proa_hub_stop(proa_hub_transfer *t);
/* Sends and receives, and calls on_body and on_done; returns after at most wait_ms. */
void proa_hub_step(proa_hub_client *c, int wait_ms);
/* Runs a transfer to its end, appends its body to `body` and releases the transfer, which has no callbacks. The client
 * has no other transfer. LIMIT: the answer is larger than body->bytes_max; else the transfer's error. */
PROA_MUST_CHECK proa_status proa_hub_receive(proa_hub_client *c, proa_hub_transfer *t, proa_buf *body,
                                             proa_err *err);
/* Releases what a transfer that has ended holds, and its url. */
void proa_hub_transfer_release(proa_hub_transfer *t);

#endif
