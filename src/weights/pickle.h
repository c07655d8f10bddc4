/* SPDX-License-Identifier: Apache-2.0
 * pickle.h - a Python pickle as a graph of values. Nothing in it is executed.
 *            A pickle is a program for a stack machine. Its instructions that would import a name or call something
 *            make nodes which say so (GLOBAL, CALL), and the reader of the file decides what it knows.
 * Owner:   proa_pickle_read fills the caller's struct, proa_pickle_release frees it. Texts point into the input.
 * Way in:  proa_pickle_read, then the accessors; a value is the number of its node. */
#ifndef PROA_WEIGHTS_PICKLE_H
#define PROA_WEIGHTS_PICKLE_H

#include "base/arena.h"
#include "base/status.h"

typedef enum proa_pickle_kind {
    PROA_PICKLE_NONE,
    PROA_PICKLE_BOOL,    /* integer */
    PROA_PICKLE_INT,     /* integer */
    PROA_PICKLE_FLOAT,   /* number */
    PROA_PICKLE_STRING,  /* text */
    PROA_PICKLE_BYTES,   /* text */
    PROA_PICKLE_TUPLE,   /* items */
    PROA_PICKLE_LIST,    /* items; sets too */
    PROA_PICKLE_DICT,    /* items: key, value, key, value, ... */
    PROA_PICKLE_GLOBAL,  /* head: the module, args: the name */
    PROA_PICKLE_CALL,    /* head called with args; then items (of a list) or pairs, and a state, were added */
    PROA_PICKLE_OUTSIDE, /* head: what the file says of an object that is stored elsewhere (a persistent id) */
} proa_pickle_kind;

/* 1-based number of a node; 0: no value. */
typedef int32_t proa_pickle_value;

typedef struct proa_pickle_node {
    uint8_t kind;
    bool paired;                         /* items are pairs: a DICT, or a CALL that got such */
    proa_pickle_value head, args, state; /* 0: none */
    int32_t count, cap;                  /* of items */
    union {
        int64_t integer;
        double number;
        proa_str text;
        proa_pickle_value *items; /* [count] */
    };
} proa_pickle_node;

typedef struct proa_pickle {
    proa_pickle_node *node; /* [count], heap; value v is node[v - 1] */
    int32_t count, cap;
    proa_pickle_value root;
    int64_t used; /* bytes of the input up to the end of the pickle */
    proa_arena arena;
} proa_pickle;

/* Reads one pickle of protocol 2 to 5 from the beginning of bytes. what: its name in errors. CORRUPT for anything that
 * is no pickle, for cycles, and for nesting deeper than PROA_PICKLE_DEPTH_MAX; LIMIT beyond PROA_PICKLE_NODES_MAX
 * values; UNSUPPORTED for instructions of other protocols. Takes memory in the order of the input. Release p also on
 * failure. */
PROA_MUST_CHECK proa_status proa_pickle_read(proa_pickle *p, const unsigned char *bytes, int64_t len,
                                             const char *what, proa_err *err);
void proa_pickle_release(proa_pickle *p);

/* The node; one of kind NONE for 0. */
const proa_pickle_node *proa_pickle_at(const proa_pickle *p, proa_pickle_value v);
proa_pickle_kind proa_pickle_kind_of(const proa_pickle *p, proa_pickle_value v);
proa_str proa_pickle_text(const proa_pickle *p, proa_pickle_value v); /* of a STRING; else empty */
/* Member i of a TUPLE or LIST; 0 if there is none. */
proa_pickle_value proa_pickle_item(const proa_pickle *p, proa_pickle_value v, int32_t i);
/* The value of a key that is a string, of a DICT or of a CALL's pairs, then of its state; the last one wins, as in
 * Python. 0 if there is none. Takes time in the order of the members. */
proa_pickle_value proa_pickle_get(const proa_pickle *p, proa_pickle_value v, const char *key);

#endif
