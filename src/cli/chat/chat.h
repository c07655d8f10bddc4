/* SPDX-License-Identifier: Apache-2.0
 * chat.h - inside `proa chat`: a conversation in the terminal with a server that speaks OpenAI's API. For a local model
 *          that is a server of this process on a private Unix socket, so that there is one way to chat.
 * Owner:   the caller's structs. Threads: main's; the private server has its own.
 * Way in:  cmd_chat.c. */
#ifndef PROA_CLI_CHAT_CHAT_H
#define PROA_CLI_CHAT_CHAT_H

#include "api/api.h"
#include "cli/client/client.h"
#include "cli/decoding.h"
#include "cli/output.h"
#include "cli/serve/options.h"

/* ---- local.c: a server for one conversation ---- */

typedef struct proa_chat_server {
    proa_serve_plan plan;
    proa_server *server;
    proa_api *api;
    char folder[64], address[96]; /* of the socket; folder is this user's only */
} proa_chat_server;

/* Loads options->paths and listens. */
PROA_MUST_CHECK proa_status proa_chat_server_open(proa_chat_server *s, proa_serve_options *options,
                                                  proa_err *err);
void proa_chat_server_close(proa_chat_server *s); /* also what open has begun */

/* ---- line.c: input with editing and history on a terminal, plain lines elsewhere ---- */

typedef struct proa_chat_input proa_chat_input;
/* history: a file that is read now and written at the end; NULL: none. */
proa_chat_input *proa_chat_input_open(const char *history);
void proa_chat_input_close(proa_chat_input *in);

typedef enum proa_chat_read {
    PROA_CHAT_MESSAGE,
    PROA_CHAT_ABANDONED, /* Ctrl-C: what was typed is dropped */
    PROA_CHAT_END        /* Ctrl-D, or the end of the input */
} proa_chat_read;
/* One message into out (cleared first): a line; several if each but the last ends in a backslash; or all between two
 * lines of three quotation marks. */
proa_chat_read proa_chat_input_read(proa_chat_input *in, proa_buf *out);

/* ---- talk.c: the conversation ---- */

typedef struct proa_chat_message {
    const char *role; /* static */
    char *content;    /* heap */
} proa_chat_message;

typedef struct proa_talk {
    proa_target target;
    char *model;  /* heap; the server's name of it */
    char *system; /* heap; NULL: none */
    proa_decoding *decoding;
    proa_chat_message *messages;
    int count, cap;
    proa_output out;
    bool terminal; /* standard output is one: reasoning and speed are dim */
    bool quiet;    /* no line about the speed */

    /* the answer that arrives */
    proa_buf body, answer;
    int status;
    bool thinking;
    int64_t start_ns, first_ns, tokens, prompt_tokens;
} proa_talk;

void proa_chat_init(proa_talk *c);
void proa_chat_release(proa_talk *c);
/* The name of the first model that the server has. */
PROA_MUST_CHECK proa_status proa_chat_find_model(proa_talk *c, proa_err *err);
/* Sends the conversation with a new message of the user and prints the answer while it arrives. CANCELLED after
 * Ctrl-C: the part that has arrived stays in the conversation. After another failure the message is taken back. */
PROA_MUST_CHECK proa_status proa_chat_say(proa_talk *c, const char *text, proa_err *err);
void proa_chat_drop(proa_talk *c, int count); /* forgets the last messages */
/* The messages as a JSON array, with the system prompt. */
void proa_chat_json(const proa_talk *c, proa_buf *out);

/* ---- interrupt.c ---- */

/* Whether Ctrl-C was pressed since the last call of proa_chat_watch_interrupt. System calls have then returned
 * EINTR. */
bool proa_chat_interrupted(void);
void proa_chat_watch_interrupt(void);

#endif
