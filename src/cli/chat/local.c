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
    snprintf(s->address, sizeof s->address, "unix:");
    o->http_address = s->address;
    PROA_TRY(proa_serve_plan_make(&s->plan, o, err));
    PROA_TRY(proa_log_set(&s->plan.log, err));
    PROA_TRY(proa_server_new(&s->server, &s->plan.server, err));
    PROA_TRY(make_socket_folder(s, err)); /* not before the model is loaded: until then Ctrl-C ends the program */
    PROA_TRY(proa_api_check(&s->plan.api, err));
    return proa_api_open(&s->api, s->server, &s->plan.api, err);
}

/* Ctrl-C ends the program while the model loads. Later the main thread catches it: Linux hands a signal of the process
 * to the main thread first, and that does not block it. */
proa_status proa_chat_server_open(proa_chat_server *s, proa_serve_options *o, proa_err *err)
{
    *s = (proa_chat_server){.server = NULL};
    signal(SIGINT, SIG_DFL);
    proa_guards_install();
    return open_server(s, o, err);
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
