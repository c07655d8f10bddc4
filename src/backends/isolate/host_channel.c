/* SPDX-License-Identifier: Apache-2.0
 * host_channel.c - the channel of the process to its server: messages with and without payloads, and memory for outputs
 * that the server reads where it is written. */
#include "backends/isolate/host.h"

#include "base/limits.h"
#include <stdio.h>
#include <unistd.h>

static proa_channel *channel;
static const char *process_name = "";
static proa_device_open_fn *open_device;

/* ---- messages ---- */

bool proa_host_send_plain(const proa_channel_message *m)
{
    return proa_channel_send(channel, m, 1);
}

bool proa_host_send(proa_channel_message m, const proa_payload_content *c)
{
    proa_shared_arena *a = proa_channel_arena(channel);
    if (!proa_payload_write(a, c, &m.at, &m.bytes)) return false;
    uint64_t at = m.at;
    bool sent = proa_channel_send(channel, &m, 1);
    if (!sent) proa_shared_arena_cancel_send(a, at);
    proa_shared_arena_release_block(a, at);
    return sent;
}

void proa_host_post(proa_buf *head)
{
    (void)proa_host_send((proa_channel_message){.kind = PROA_CHANNEL_POST},
                         &(proa_payload_content){.head = proa_buf_view(head)});
    proa_buf_release(head);
}

const char *proa_host_name(void)
{
    return process_name;
}

/* The server does not break the protocol unless it is another program. */
void proa_host_payload(proa_payload *w, const proa_channel_message *m)
{
    proa_err err = {0};
    if (proa_payload_open(w, proa_channel_view(channel), m, &err) == PROA_OK) {
        w->open_device = open_device;
        return;
    }
    fprintf(stderr, "proa backend-host: %s\n", err.text);
    _exit(EXIT_FAILURE);
}

/* ---- outputs: written where the server reads them ---- */

#define SHARED_LEAST ((size_t)32 << 10) /* smaller ones are copied into the payload of their response */

static void release_block(void *at)
{
    proa_shared_arena_release_block(proa_channel_arena(channel), (uint64_t)(uintptr_t)at);
}

/* NULL: there is no room, and the output is in other memory until it is sent. */
static proa_buffer *shared_buffer(size_t bytes)
{
    proa_shared_arena *a = proa_channel_arena(channel);
    uint64_t at = proa_shared_arena_alloc(a, bytes);
    if (!at) return NULL;
    proa_shared_arena_cancel_send(a, at); /* the server holds it from proa_payload_write on */
    return proa_buffer_wrap(proa_shared_arena_at(a, at), bytes, release_block, (void *)(uintptr_t)at);
}

/* ---- life ---- */

proa_status proa_host_connect(const char *name, proa_device_open_fn *device_open, proa_err *err)
{
    process_name = name, open_device = device_open;
    PROA_TRY(proa_channel_open(&channel, (size_t)PROA_PROCESS_KEEP_BYTES, err));
    proa_buffer_set_source(shared_buffer, SHARED_LEAST);
    return PROA_OK;
}

int proa_host_receive(proa_channel_message *in, int most, int wait_ms)
{
    return proa_channel_receive(channel, in, most, wait_ms);
}

void proa_host_shutdown(void)
{
    proa_channel_shutdown(channel);
}
