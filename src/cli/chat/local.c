/* SPDX-License-Identifier: Apache-2.0
 * local.c - a server inside this process that only this user can reach. */
#include "base/guard.h"
#include "base/log.h"
#include "cli/chat/chat.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CLOSE_MS = 2000 };

static proa_status make_socket_folder(proa_chat_server *s, proa_err *err)
{
    snprintf(s->folder, sizeof s->folder, "/tmp/proa-chat-XXXXXX");
    if (!mkdtemp(s->folder)) {
        s->folder[0] = '\0';
        return PROA_FAIL(err, IO, "cannot make a folder in /tmp: %s", strerror(errno));
    }
    snprintf(s->address, sizeof s->address, "unix:%s/socket", s->folder);
    return PROA_OK;
}

static proa_status open_server(proa_chat_server *s, proa_serve_options *o, proa_err *err)
{
    o->http_address = s->address;
    PROA_TRY(proa_serve_plan_make(&s->plan, o, err));
    PROA_TRY(proa_log_set(&s->plan.log, err));
    PROA_TRY(proa_api_check(&s->plan.api, err));
    PROA_TRY(proa_server_new(&s->server, &s->plan.server, err));
    return proa_api_open(&s->api, s->server, &s->plan.api, err);
}

/* The server's threads leave Ctrl-C to this one. */
proa_status proa_chat_server_open(proa_chat_server *s, proa_serve_options *o, proa_err *err)
{
    sigset_t interrupt, before;
    *s = (proa_chat_server){.server = NULL};
    PROA_TRY(make_socket_folder(s, err));
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    proa_guards_install();
    pthread_sigmask(SIG_BLOCK, &interrupt, &before);
    proa_status status = open_server(s, o, err);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

void proa_chat_server_close(proa_chat_server *s)
{
    if (s->api) proa_api_drain(s->api, CLOSE_MS);
    if (s->server) proa_server_stop(s->server, CLOSE_MS);
    if (s->api) proa_api_close(s->api);
    if (s->server) proa_server_free(s->server);
    proa_serve_plan_release(&s->plan);
    if (!s->folder[0]) return;
    unlink(s->address + strlen("unix:"));
    rmdir(s->folder);
}
