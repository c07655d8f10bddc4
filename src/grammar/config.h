/* SPDX-License-Identifier: Apache-2.0
 * config.h - configurations of the pushdown automaton, made lazily: stacks as shared linked frames, sets of stacks as
 *            numbered configurations, their successors by byte. Private to src/grammar.
 * Owner:   proa_configs_init/release. Threads: one at a time. */
#ifndef PROA_GRAMMAR_CONFIG_H
#define PROA_GRAMMAR_CONFIG_H

#include "grammar/automaton.h"

enum {
    PROA_FRAME_OPEN = 0, /* below a stack whose lower frames are not known */
    PROA_FRAME_END = 1   /* below the first frame: the text may end */
};
enum { PROA_COUNT_FREE = -1 }; /* of a counted frame: as if it had neither a minimum nor a maximum */
enum { PROA_CONFIG_UNKNOWN = 0, PROA_CONFIG_DEAD = 1, PROA_CONFIG_FIRST = 2 };

typedef struct proa_frame {
    int32_t state, count; /* count: matches of a counted machine's item so far */
    int32_t parent;       /* frame */
} proa_frame;

/* A mask of tokens: a list of ids, or a bit for each token where that is shorter. */
typedef struct proa_mask {
    int32_t *ids; /* [count], or NULL */
    uint32_t *bits;
    int32_t count;
    int32_t exits_count;
    /* of an open configuration: nodes of the vocabulary's tree at which its top frame may end: a list, or a bit for
     * each node where that is shorter */
    int32_t *exits;
    uint32_t *exit_bits;
} proa_mask;

/* Which bytes lead from a configuration to itself. */
typedef struct proa_loops {
    uint64_t ascii[2]; /* a bit for each */
    bool text;         /* each character of UTF-8 beyond ASCII does */
} proa_loops;

typedef struct proa_gconfig {
    const int32_t *frames; /* [count] ascending */
    int32_t count;
    bool ends;         /* PROA_FRAME_END is among them */
    bool open;         /* PROA_FRAME_OPEN is */
    int32_t *next;     /* [256] configurations */
    proa_mask *mask;   /* NULL: not computed yet */
    proa_loops *loops; /* likewise */
} proa_gconfig;

typedef struct proa_configs {
    const proa_automaton *a;
    proa_arena arena;
    proa_frame *frames;
    uint32_t *stamp; /* [frames] visited in this step */
    proa_gconfig *configs;
    int32_t frames_count, frames_cap, configs_count, configs_cap;
    int32_t *frame_slots, *config_slots; /* open addressing, 0: empty, else number + 1 */
    int32_t frame_slots_count, config_slots_count;
    int32_t *list; /* frames of the configuration that is made */
    int32_t list_count, list_cap;
    uint32_t epoch;
    int32_t root; /* the configuration of the empty text */
    bool failed;  /* a limit was exceeded */
} proa_configs;

void proa_configs_init(proa_configs *c, const proa_automaton *a);
void proa_configs_release(proa_configs *c);
bool proa_configs_full(const proa_configs *c); /* time to begin anew */
int32_t proa_configs_make_next(proa_configs *c, int32_t config, uint8_t byte);
/* The configuration after the end of the machine on top of `frame`: the frame below it, and what that can return to. */
int32_t proa_configs_return(proa_configs *c, int32_t parent);
/* The configuration of one state on an unknown stack. */
int32_t proa_configs_open(proa_configs *c, int32_t state, int32_t count);

static inline int32_t proa_configs_next(proa_configs *c, int32_t config, uint8_t byte)
{
    int32_t to = c->configs[config].next[byte];
    return to != PROA_CONFIG_UNKNOWN ? to : proa_configs_make_next(c, config, byte);
}

#endif
