/* SPDX-License-Identifier: Apache-2.0
 * message.h - the text that a chat model writes, split into content, reasoning and tool calls while it is generated.
 *
 *     proa_message_parser *p = proa_message_parser_new(&setup);
 *     proa_message_push(p, "<tool_call>{\"name\": \"f\", ", ...);   // any pieces of text: calls setup.on_event
 *     proa_message_finish(p);                                       // the end of the text
 *     proa_message_parser_free(p);
 *
 * Models mark tool calls and reasoning in forms of their own (message/README.md). A parser reads one form. It is a
 * state machine over bytes: how the text is cut into pieces does not change the events, except where one delta ends and
 * the next begins. No text is lost: what is not a complete call of the form is content. White space next to a marker
 * belongs to the form.
 *
 * Owner:   the parser owns what it holds back; it borrows the tools of its setup. The text of an event is valid during
 *          the call.
 * Threads: a parser belongs to one thread. */
#ifndef PROA_TEXT_MESSAGE_H
#define PROA_TEXT_MESSAGE_H

#include "base/arena.h"
#include "base/json.h"
#include "base/str.h"

/* ---- forms ---- */

typedef enum proa_tool_form {
    PROA_TOOL_FORM_NONE,
    PROA_TOOL_FORM_HERMES, /* <tool_call>{"name": .., "arguments": {..}}</tool_call>: Hermes, Qwen 2.5 and 3 */
    PROA_TOOL_FORM_LLAMA3,  /* {"name": .., "parameters": {..}}, also after <|python_tag|>; joined by ; */
    PROA_TOOL_FORM_MISTRAL, /* [TOOL_CALLS][{..}, ..], or [TOOL_CALLS]name[ARGS]{..} */
    PROA_TOOL_FORM_QWEN3_CODER, /* <tool_call><function=name><parameter=key>value</parameter></function></tool_call> */
    PROA_TOOL_FORM_HARMONY /* gpt-oss: <|channel|>commentary to=functions.name <|message|>{..}<|call|> */
} proa_tool_form;

typedef enum proa_reasoning_form {
    PROA_REASONING_NONE,
    PROA_REASONING_THINK,       /* <think>..</think>, where the text or its prompt opens it */
    PROA_REASONING_THINK_FIRST, /* the same, and the text begins as reasoning unless its prompt closed it */
    PROA_REASONING_MISTRAL,     /* [THINK]..[/THINK] */
    PROA_REASONING_HARMONY      /* gpt-oss: the channel `analysis` */
} proa_reasoning_form;

typedef struct proa_message_form {
    proa_tool_form tools;
    proa_reasoning_form reasoning;
    bool named_arguments; /* Mistral: the template writes [TOOL_CALLS]name[ARGS]{..} */
} proa_message_form;

/* By vLLM's names: "hermes", "llama3_json", "mistral", "qwen3_coder", "openai", "none". False: there is none. */
bool proa_tool_form_find(proa_tool_form *out, const char *name);
/* "deepseek_r1", "qwen3", "think", "mistral", "openai_gptoss", "none". */
bool proa_reasoning_form_find(proa_reasoning_form *out, const char *name);
/* All names, for the text of an error: "hermes, llama3_json, ..." */
extern const char proa_tool_form_names[], proa_reasoning_form_names[];
/* Adds to *form what the source of a chat template shows of the model's forms; what is already set stays. */
void proa_message_form_detect(proa_message_form *form, proa_str template_source);

/* The texts of a form's markers, for each that may be a special token of the model: such tokens must stay in the text
 * that goes to the parser. At most `cap` are written; returns how many there are. */
enum { PROA_MESSAGE_MARKERS_MAX = 16 };
int proa_message_markers(const proa_message_form *form, const char **out, int cap);

/* Whether the end of a prompt opened reasoning (1), closed it (0), or does not show it (-1). */
int proa_message_prompt_reasons(const proa_message_form *form, proa_str prompt);
/* Appends the text that begins a call of `function`, up to its arguments; with an empty name up to the name of any.
 * open: the prompt left reasoning open, which is closed first. The text is added to the prompt of a request that must
 * call a tool, and pushed to its parser as the first piece. */
void proa_message_begin_call(const proa_message_form *form, proa_str function, bool open, proa_buf *out);

/* ---- tools ---- */

/* The names of a request's tools and which of their parameters are texts. */
typedef struct proa_toolset proa_toolset;
/* tools: OpenAI's list, or NULL. Everything is copied into the arena. */
proa_toolset *proa_toolset_new(proa_arena *arena, const proa_json *tools);

/* ---- calls that follow their schemas: message/call_grammar.c ---- */

typedef struct proa_call_grammar {
    const proa_message_form *form;
    const proa_json *tools; /* OpenAI's list */
    const proa_toolset *toolset;
    bool forced;    /* the prompt has begun a call (proa_message_begin_call) of */
    proa_str named; /* this function, or of any if it is empty */
    bool one_call;
    int32_t (*special)(const void *arg,
                       const char *marker); /* id of a marker that is a special token; -1: it is a text */
    const void *arg;
} proa_call_grammar;
/* The grammar in Lark's form that a message must follow: the arguments of each call are held to the schema of its tool,
 * if the call is forced or the tool is `strict`. False: nothing is to be held. */
bool proa_message_call_grammar(const proa_call_grammar *g, proa_buf *out);

/* ---- parsers ---- */

typedef enum proa_message_event_kind {
    PROA_MESSAGE_CONTENT,   /* text: what is added */
    PROA_MESSAGE_REASONING, /* text: what is added */
    PROA_MESSAGE_CALL,      /* call `call` begins; text: the function's name; id: the model's own, or empty */
    PROA_MESSAGE_ARGUMENTS, /* of call `call`; text: what is added to its JSON */
    PROA_MESSAGE_CALL_END   /* of call `call` */
} proa_message_event_kind;

typedef struct proa_message_event {
    proa_message_event_kind kind;
    int32_t call; /* from 0, in the order of the text */
    proa_str text, id;
} proa_message_event;
typedef void proa_message_fn(void *arg, const proa_message_event *event);

typedef struct proa_message_setup {
    proa_message_form form;
    const proa_toolset *tools; /* NULL: none are known */
    bool reasoning_open;       /* the text begins inside reasoning */
    bool one_call;             /* what follows the first call is dropped */
    proa_message_fn *on_event;
    void *arg;
} proa_message_setup;

typedef struct proa_message_parser proa_message_parser;
proa_message_parser *proa_message_parser_new(const proa_message_setup *setup);
void proa_message_parser_free(proa_message_parser *p);               /* NULL is fine */
void proa_message_parser_set_arg(proa_message_parser *p, void *arg); /* of on_event, in place of setup.arg */
void proa_message_push(proa_message_parser *p, proa_str text);
/* The end of the text: what was held back comes out. Nothing may be pushed afterwards. */
void proa_message_finish(proa_message_parser *p);

#endif
