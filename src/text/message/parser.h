/* SPDX-License-Identifier: Apache-2.0
 * parser.h - what the forms of messages share; internal to this folder.
 * A state is a function that reads from the parser's unread text. It returns true if it read something or went to
 * another state, and false if it needs more text. With `ending` no more text comes. */
#ifndef PROA_TEXT_MESSAGE_PARSER_H
#define PROA_TEXT_MESSAGE_PARSER_H

#include "text/message.h"

/* ---- JSON, byte by byte: json_scan.c ---- */

typedef enum proa_scan {
    PROA_SCAN_MORE,
    PROA_SCAN_DONE,   /* with this byte the value is complete */
    PROA_SCAN_BEFORE, /* a number was complete before this byte, which was not read */
    PROA_SCAN_BAD     /* this byte cannot follow; it was not read */
} proa_scan;

typedef struct proa_json_scan {
    uint64_t arrays; /* bit d: level d is an array, else an object */
    int depth, state;
    int left;            /* of a literal or \u escape: bytes to come */
    const char *literal; /* what must follow */
    bool key;            /* the string is a key */
} proa_json_scan;
void proa_json_scan_begin(proa_json_scan *s);
/* White space before the value is read too. Nesting above PROA_JSON_DEPTH_MAX is bad. */
proa_scan proa_json_scan_byte(proa_json_scan *s, char c);

/* ---- an object {"name": .., "arguments": {..}}: call_object.c ---- */

typedef struct proa_call_object {
    proa_json_scan scan;
    int state, key;
    proa_buf text; /* of the key or value under way */
    proa_buf name, id, arguments;
    bool strict; /* no other keys, arguments must be there, and the name must be that of a tool */
    bool begun, has_arguments;
} proa_call_object;

/* ---- parsers: parser.c ---- */

typedef bool proa_message_state(proa_message_parser *p);

struct proa_message_parser {
    proa_message_setup setup;
    proa_message_state *state, *content; /* content: the state between calls */
    proa_message_state *after;           /* the state after the call under way */
    bool ending;
    proa_buf unread; /* from `at` on */
    size_t at;
    proa_buf raw;   /* read, and not yet in an event: becomes content if the call is malformed */
    proa_buf space; /* white space that is dropped if a marker follows */
    bool trim;      /* white space is dropped: nothing came since a marker */
    proa_message_event_kind kind; /* of text: content or reasoning */
    proa_buf name, id;            /* of a call whose parts come one by one */
    proa_json_scan scan;          /* of its arguments */
    proa_call_object object;
    int32_t calls, ended;
    bool arguments; /* the open call has some */
    bool spoke[2];  /* harmony: an earlier message of this kind */
    proa_buf delta; /* of kind delta_kind: not yet an event */
    proa_message_event_kind delta_kind;
};

/* What is unread. */
proa_str proa_parser_rest(const proa_message_parser *p);
void proa_parser_skip(proa_message_parser *p, size_t bytes); /* they are read */
void proa_parser_take(proa_message_parser *p, size_t bytes); /* the same, into raw */
/* Takes white space; true if something else is unread. */
bool proa_parser_take_space(proa_message_parser *p);

typedef enum proa_match { PROA_MATCH_NO, PROA_MATCH_PART, PROA_MATCH_YES } proa_match;
/* Does the unread text begin with the marker? PART: as far as it goes; never while ending. */
proa_match proa_parser_match(const proa_message_parser *p, const char *marker);
/* While ending: drops what is unread if the marker begins so, as where max_tokens cuts a closing tag. Goes on with
 * content, of which nothing is left. */
bool proa_parser_drop_part(proa_message_parser *p, const char *marker);
/* Emits text up to the first of the markers (NULL ends the list) and takes the marker. Returns its index; -1: none came
 * yet, and only what may begin one is still unread. */
int proa_parser_until(proa_message_parser *p, const char *const *markers);

/* Text that was added and is in no event yet becomes one. */
void proa_parser_flush(proa_message_parser *p);
/* Text of p->kind. White space at its end waits. */
void proa_parser_text(proa_message_parser *p, proa_str text);
/* No text follows: white space that waited is text too, and all of it becomes an event. */
void proa_parser_end_text(proa_message_parser *p);
/* A marker was read: the white space before it and after it is dropped. */
void proa_parser_at_marker(proa_message_parser *p);
/* raw is no call: it becomes content, and the parser goes on with content. True, as a state that has read something. */
bool proa_parser_give_back(proa_message_parser *p);

void proa_parser_call(proa_message_parser *p, proa_str name, proa_str id);
void proa_parser_arguments(proa_message_parser *p, const char *bytes, size_t len);
void proa_parser_call_end(proa_message_parser *p);                   /* empty arguments become {} */
bool proa_parser_knows(const proa_message_parser *p, proa_str name); /* true also if no tools are known */
bool proa_parser_name_fits(proa_str name);

/* A state: an object with the call. `after` is the next state. */
bool proa_parser_object(proa_message_parser *p);
void proa_call_object_begin(proa_message_parser *p, bool strict, proa_message_state *after);
/* Takes white space and begins such an object. Anything else is no call. False: more bytes are needed. */
bool proa_call_object_expect(proa_message_parser *p, bool strict, proa_message_state *after);
void proa_call_object_init(proa_call_object *o);
void proa_call_object_release(proa_call_object *o);
/* A state: JSON arguments of an open call. `after` is the next state. */
bool proa_parser_json(proa_message_parser *p);
void proa_parser_json_begin(proa_message_parser *p, proa_message_state *after);

/* ---- forms: the states that their texts begin with ---- */

bool proa_state_plain(proa_message_parser *p);     /* parser.c: no tools */
bool proa_state_tags(proa_message_parser *p);      /* tags.c: Hermes and Qwen */
bool proa_state_llama(proa_message_parser *p);     /* llama.c */
bool proa_state_mistral(proa_message_parser *p);   /* mistral.c */
bool proa_state_harmony(proa_message_parser *p);   /* harmony.c */
bool proa_state_reasoning(proa_message_parser *p); /* reasoning.c */
bool proa_state_opening(proa_message_parser *p);

/* Is the parameter of a function a text? Unknown ones are. *nullable: it may be null too. */
bool proa_toolset_is_text(const proa_toolset *tools, proa_str function, proa_str parameter, bool *nullable);
bool proa_toolset_has(const proa_toolset *tools, proa_str function);

#endif
