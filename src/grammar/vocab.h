/* SPDX-License-Identifier: Apache-2.0
 * vocab.h - the bytes of a vocabulary's tokens as a prefix tree in depth-first order, which masks are computed from.
 * Owner:   proa_token_trie_new/free. Threads: it never changes. */
#ifndef PROA_GRAMMAR_VOCAB_H
#define PROA_GRAMMAR_VOCAB_H

#include "base/str.h"

typedef struct proa_token_node {
    int32_t end;      /* the first node that is not below this one */
    int32_t token;    /* that ends at this node, -1: none; further ones by `same` */
    uint16_t depth;   /* bytes from the root */
    uint16_t deepest; /* the greatest depth of this node and those below it */
    uint8_t byte;
} proa_token_node;

/* What the bytes below a node are, of a node with many below it. */
typedef struct proa_token_set {
    uint64_t ascii[2]; /* a bit for each */
    bool other;        /* there are bytes from 0x80 on, */
    bool text; /* and all tokens are the beginnings of UTF-8, with a whole character up to this node */
} proa_token_set;

typedef struct proa_token_trie {
    proa_token_node *nodes; /* [nodes_count]; node 0 is the root */
    int32_t nodes_count;
    int32_t *parent;         /* [nodes_count] */
    int32_t *of_byte;        /* [nodes_count] all nodes in the order of their bytes: */
    int32_t byte_begin[257]; /* those of byte b begin here */
    int32_t *order,
        *rank;    /* [size] the tokens in the order of their nodes; [nodes_count + 1] how many come before */
    int32_t *set; /* [nodes_count] of a node with many below it: its place in sets; else -1 */
    proa_token_set *sets;
    uint32_t *inner; /* a bit for each node that has others below it and whose bytes are whole characters of UTF-8 */
    int32_t size;       /* columns of a mask */
    int32_t *same;      /* [size] next token with the same bytes, -1: none */
    int32_t longest;    /* bytes of the longest token */
    int32_t *by_length; /* [by_length_count] tokens with bytes, the longest first */
    int32_t by_length_count;
    int32_t *begins; /* [size + 1] where a token's bytes are */
    char *bytes;
} proa_token_trie;

/* The bytes that stand for a special token in grammars and vocabularies: they begin and end with 0xFF, which no text in
 * UTF-8 has. */
enum { PROA_TOKEN_SPECIAL_BYTES = 16 };
proa_str proa_token_special(char out[PROA_TOKEN_SPECIAL_BYTES], int32_t id);

/* bytes[size]: what each token adds to a text; of a special token proa_token_special, or the empty slice if no grammar
 * may name it. Tokens longer than PROA_GRAMMAR_TOKEN_MAX count as empty. The bytes are copied. */
proa_token_trie *proa_token_trie_new(const proa_str *bytes, int32_t size);
void proa_token_trie_free(proa_token_trie *v);                           /* NULL is fine */
proa_str proa_token_trie_bytes(const proa_token_trie *v, int32_t token); /* empty for ids outside */

#endif
