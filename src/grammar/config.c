/* SPDX-License-Identifier: Apache-2.0
 * config.c - steps of the pushdown automaton by one byte, each computed once. */
#include "grammar/config.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"
#include <stdlib.h>
#include <string.h>

static void grow_slots(int32_t **slots, int32_t *slots_count, int32_t used)
{
    if (2 * used < *slots_count) return;
    *slots_count = *slots_count ? 4 * *slots_count : 1024;
    free(*slots);
    *slots = proa_calloc((size_t)*slots_count, sizeof **slots);
}

/* ---- frames ---- */

static uint32_t hash_frame(proa_frame f)
{
    uint64_t a = (uint64_t)(uint32_t)f.state << 32 | (uint32_t)f.parent;
    return (uint32_t)proa_fold_multiply(a ^ 0x9E3779B97F4A7C15U,
                                        (uint64_t)(uint32_t)f.count ^ 0xD6E8FEB86659FD93U);
}

static int32_t *slot_of_frame(proa_configs *c, proa_frame f)
{
    for (uint32_t i = hash_frame(f);; i++) {
        int32_t *slot = &c->frame_slots[i & (uint32_t)(c->frame_slots_count - 1)];
        if (*slot == 0) return slot;
        const proa_frame *g = &c->frames[*slot - 1];
        if (g->state == f.state && g->count == f.count && g->parent == f.parent) return slot;
    }
}

static int32_t append_frame(proa_configs *c, proa_frame f)
{
    if (c->frames_count == c->frames_cap) {
        c->frames_cap = c->frames_cap ? 2 * c->frames_cap : 512;
        c->frames = proa_realloc(c->frames, (size_t)c->frames_cap * sizeof *c->frames);
        c->stamp = proa_realloc(c->stamp, (size_t)c->frames_cap * sizeof *c->stamp);
    }
    c->frames[c->frames_count] = f;
    c->stamp[c->frames_count] = 0;
    return c->frames_count++;
}

static int32_t frame_of(proa_configs *c, int32_t state, int32_t count, int32_t parent)
{
    proa_frame f = {state, count, parent};
    int32_t *slot = slot_of_frame(c, f);
    if (*slot) return *slot - 1;
    if (c->frames_count > 4 * PROA_GRAMMAR_FRAMES_MAX) {
        c->failed = true;
        return PROA_FRAME_OPEN;
    }
    int32_t frame = append_frame(c, f), before = c->frame_slots_count;
    *slot = frame + 1;
    grow_slots(&c->frame_slots, &c->frame_slots_count, c->frames_count);
    if (c->frame_slots_count != before)
        for (int32_t i = PROA_FRAME_END + 1; i < c->frames_count; i++)
            *slot_of_frame(c, c->frames[i]) = i + 1;
    return frame;
}

/* ---- configurations ---- */

static uint32_t hash_list(const int32_t *frames, int32_t count)
{
    return (uint32_t)proa_str_hash((proa_str){(const char *)frames, (size_t)count * sizeof *frames});
}

static int32_t *slot_of_config(proa_configs *c, const int32_t *frames, int32_t count)
{
    for (uint32_t i = hash_list(frames, count);; i++) {
        int32_t *slot = &c->config_slots[i & (uint32_t)(c->config_slots_count - 1)];
        if (*slot == 0) return slot;
        const proa_gconfig *g = &c->configs[*slot - 1];
        if (g->count != count) continue;
        if (count == 0 || memcmp(g->frames, frames, (size_t)count * sizeof *frames) == 0) return slot;
    }
}

static int compare_frames(const void *x, const void *y)
{
    int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    return a < b ? -1 : a > b;
}

static int32_t append_config(proa_configs *c)
{
    if (c->configs_count == c->configs_cap) {
        c->configs_cap = c->configs_cap ? 2 * c->configs_cap : 64;
        c->configs = proa_realloc(c->configs, (size_t)c->configs_cap * sizeof *c->configs);
    }
    int32_t *frames = PROA_ARENA_NEW(&c->arena, int32_t, c->list_count);
    if (c->list_count) memcpy(frames, c->list, (size_t)c->list_count * sizeof *frames);
    proa_gconfig *g = &c->configs[c->configs_count];
    *g = (proa_gconfig){.frames = frames, .count = c->list_count, .next = PROA_ARENA_NEW(&c->arena, int32_t, 256)};
    for (int32_t i = 0; i < g->count && frames[i] <= PROA_FRAME_END; i++) {
        if (frames[i] == PROA_FRAME_END) g->ends = true;
        else g->open = true;
    }
    return c->configs_count++;
}

/* The configuration of the frames in c->list. */
static int32_t config_of_list(proa_configs *c)
{
    if (c->list_count == 0) return PROA_CONFIG_DEAD;
    if (c->list_count > 1) qsort(c->list, (size_t)c->list_count, sizeof *c->list, compare_frames);
    int32_t *slot = slot_of_config(c, c->list, c->list_count);
    if (*slot) return *slot - 1;
    if (c->failed || c->configs_count > 4 * PROA_GRAMMAR_CONFIGS_MAX) {
        c->failed = true;
        return PROA_CONFIG_DEAD;
    }
    int32_t config = append_config(c), before = c->config_slots_count;
    *slot = config + 1;
    grow_slots(&c->config_slots, &c->config_slots_count, c->configs_count);
    if (c->config_slots_count != before)
        for (int32_t i = PROA_CONFIG_FIRST; i < c->configs_count; i++)
            *slot_of_config(c, c->configs[i].frames, c->configs[i].count) = i + 1;
    return config;
}

static void begin_list(proa_configs *c)
{
    c->list_count = 0;
    c->epoch += 2; /* even: in the list; odd: called in this step */
}

static void add_frame(proa_configs *c, int32_t frame)
{
    if (c->stamp[frame] == c->epoch) return;
    c->stamp[frame] = c->epoch;
    if (c->list_count >= PROA_GRAMMAR_STACKS_MAX) {
        c->failed = true;
        return;
    }
    if (c->list_count == c->list_cap) {
        c->list_cap = c->list_cap ? 2 * c->list_cap : 64;
        c->list = proa_realloc(c->list, (size_t)c->list_cap * sizeof *c->list);
    }
    c->list[c->list_count++] = frame;
}

/* ---- steps ---- */

/* A machine has ended: the frame below it goes on, and if that may end too, the one below that. */
static void pop_frames(proa_configs *c, int32_t parent)
{
    while (parent > PROA_FRAME_END) {
        proa_frame f = c->frames[parent];
        const proa_gstate *s = &c->a->states[f.state];
        bool counted = s->body >= 0, is_free = counted && f.count == PROA_COUNT_FREE;
        if (counted ? f.count < s->max : s->bytes_count + s->calls_count > 0) add_frame(c, parent);
        if (!(counted ? is_free || f.count >= s->min : s->accepts)) return;
        parent = f.parent;
    }
    add_frame(c, parent);
}

static void arrive_at(proa_configs *c, int32_t state, int32_t parent)
{
    const proa_gstate *s = &c->a->states[state];
    if (s->bytes_count + s->calls_count > 0) add_frame(c, frame_of(c, state, 0, parent));
    if (s->accepts) pop_frames(c, parent);
}

static void step_frame(proa_configs *c, proa_frame f, uint8_t byte);

/* Calls a machine if it can begin with the byte, once for each way to go on after it. */
static void call_machine(proa_configs *c, int32_t machine, int32_t parent, uint8_t byte)
{
    const proa_machine *m = &c->a->machines[machine];
    if (c->failed || !proa_machine_begins(m, byte)) return;
    int32_t top = frame_of(c, m->start, 0, parent);
    if (c->stamp[top] == c->epoch + 1) return;
    c->stamp[top] = c->epoch + 1;
    step_frame(c, (proa_frame){m->start, 0, parent}, byte);
}

/* A state after which nothing is left needs no frame. */
static int32_t return_frame(proa_configs *c, int32_t state, int32_t parent)
{
    const proa_gstate *s = &c->a->states[state];
    bool last = s->accepts && s->bytes_count + s->calls_count == 0;
    return last ? parent : frame_of(c, state, 0, parent);
}

static void step_frame(proa_configs *c, proa_frame f, uint8_t byte)
{
    const proa_automaton *a = c->a;
    const proa_gstate s = a->states[f.state];
    if (s.body >= 0) {
        if (f.count == PROA_COUNT_FREE) {
            call_machine(c, s.body, frame_of(c, f.state, PROA_COUNT_FREE, f.parent), byte);
            return;
        }
        bool last = f.count + 1 == s.max;
        call_machine(c, s.body, last ? f.parent : frame_of(c, f.state, f.count + 1, f.parent), byte);
        return;
    }
    for (int32_t i = s.bytes; i < s.bytes + s.bytes_count; i++)
        if (a->bytes[i].lo <= byte && byte <= a->bytes[i].hi) arrive_at(c, a->bytes[i].to, f.parent);
    for (int32_t i = s.calls; i < s.calls + s.calls_count; i++)
        if (proa_machine_begins(&a->machines[a->calls[i].machine], byte))
            call_machine(c, a->calls[i].machine, return_frame(c, a->calls[i].to, f.parent), byte);
}

int32_t proa_configs_make_next(proa_configs *c, int32_t config, uint8_t byte)
{
    const int32_t *frames = c->configs[config].frames;
    int32_t count = c->configs[config].count;
    begin_list(c);
    for (int32_t i = 0; i < count; i++)
        if (frames[i] > PROA_FRAME_END) step_frame(c, c->frames[frames[i]], byte);
    int32_t to = config_of_list(c);
    if (!c->failed) c->configs[config].next[byte] = to;
    return to;
}

int32_t proa_configs_return(proa_configs *c, int32_t parent)
{
    begin_list(c);
    pop_frames(c, parent);
    return config_of_list(c);
}

int32_t proa_configs_open(proa_configs *c, int32_t state, int32_t count)
{
    int32_t frame = frame_of(c, state, count, PROA_FRAME_OPEN);
    begin_list(c);
    add_frame(c, frame);
    return config_of_list(c);
}

/* ---- life ---- */

void proa_configs_init(proa_configs *c, const proa_automaton *a)
{
    *c = (proa_configs){.a = a};
    proa_arena_init(&c->arena);
    grow_slots(&c->frame_slots, &c->frame_slots_count, 0);
    grow_slots(&c->config_slots, &c->config_slots_count, 0);
    append_frame(c, (proa_frame){-1, 0, -1}); /* PROA_FRAME_OPEN */
    append_frame(c, (proa_frame){-1, 0, -1}); /* PROA_FRAME_END */
    for (int i = 0; i < PROA_CONFIG_FIRST; i++) append_config(c);
    for (int i = 0; i < 256; i++) c->configs[PROA_CONFIG_DEAD].next[i] = PROA_CONFIG_DEAD;
    int32_t start = frame_of(c, a->machines[a->root].start, 0, PROA_FRAME_END);
    begin_list(c);
    add_frame(c, start);
    if (a->root_empty) add_frame(c, PROA_FRAME_END);
    c->root = config_of_list(c);
}

void proa_configs_release(proa_configs *c)
{
    void *all[] = {c->frames, c->stamp, c->configs, c->frame_slots, c->config_slots, c->list};
    for (size_t i = 0; i < PROA_COUNT(all); i++) free(all[i]);
    proa_arena_release(&c->arena);
    *c = (proa_configs){.a = NULL};
}

bool proa_configs_full(const proa_configs *c)
{
    return c->failed || c->configs_count > PROA_GRAMMAR_CONFIGS_MAX || c->frames_count > PROA_GRAMMAR_FRAMES_MAX;
}
