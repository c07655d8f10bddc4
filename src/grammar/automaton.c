/* SPDX-License-Identifier: Apache-2.0
 * automaton.c - rules become machines: subset construction over bytes and calls (Rabin and Scott 1959), machine by
 * machine. A rule whose deterministic automaton would be much larger than its NFA keeps the NFA without empty edges. */
#include "grammar/automaton.h"

#include "grammar/nfa.h"
#include "base/alloc.h"
#include "base/limits.h"
#include <stdlib.h>
#include <string.h>

/* What a machine is made of: a rule's body, or a counted repetition's item. */
typedef struct source {
    const proa_expr *body;   /* NULL: a counted machine, */
    const proa_expr *repeat; /* of this repetition, */
    int32_t item;            /* whose item is this machine */
} source;

typedef struct builder {
    proa_automaton *a;
    const proa_rules *rules;
    proa_rule_facts facts;
    proa_arena arena;
    source *sources; /* [machines] */
    int32_t sources_cap;
    proa_nfa nfa;
    /* subset construction of one machine */
    int32_t base;   /* its first state */
    int32_t **sets; /* [states of the machine] sorted states of the NFA; element 0 is their number */
    int32_t sets_cap;
    int32_t *slots;         /* open addressing: 1 + number of a set, 0: empty */
    int32_t slots_count;    /* a power of two */
    uint32_t *stamp, epoch; /* [states of the NFA] */
    int32_t *work, *list;   /* the same: states to visit, and those that were found */
    int32_t list_count, nfa_cap;
    proa_arena sets_arena;
} builder;

#define GROW(array, count, cap)                                                                              \
    do {                                                                                                     \
        if ((count) >= (cap)) {                                                                              \
            (cap) = (cap) ? 2 * (cap) : 64;                                                                  \
            (array) = proa_realloc((array), (size_t)(cap) * sizeof *(array));                                \
        }                                                                                                    \
    } while (0)

static int32_t new_machine(builder *b, const char *name, source from)
{
    proa_automaton *a = b->a;
    GROW(a->machines, a->machines_count, a->machines_cap);
    GROW(b->sources, a->machines_count, b->sources_cap);
    b->sources[a->machines_count] = from;
    a->machines[a->machines_count] = (proa_machine){.start = -1, .name = name};
    return a->machines_count++;
}

static int32_t new_gstate(builder *b)
{
    proa_automaton *a = b->a;
    GROW(a->states, a->states_count, a->states_cap);
    a->states[a->states_count] = (proa_gstate){.body = -1};
    return a->states_count++;
}

/* The machine of a counted repetition. */
static int32_t counted_machine(void *arg, const proa_expr *repeat)
{
    builder *b = arg;
    const proa_expr *item = repeat->items[0];
    int32_t body = item->kind == PROA_EXPR_RULE ? item->rule
                                                : new_machine(b, "repeated", (source){.body = item});
    return new_machine(b, "repetition", (source){.repeat = repeat, .item = body});
}

/* ---- sets of NFA states ---- */

static int compare_ids(const void *x, const void *y)
{
    int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    return a < b ? -1 : a > b;
}

static void begin_set(builder *b)
{
    b->epoch++;
    b->list_count = 0;
}

/* Adds a state and what empty edges lead to. Only states that have other edges, or are final, are listed. */
static void add_to_set(builder *b, int32_t state)
{
    int32_t depth = 0;
    if (b->stamp[state] == b->epoch) return;
    b->stamp[state] = b->epoch;
    b->work[depth++] = state;
    while (depth) {
        int32_t s = b->work[--depth];
        bool listed = s == PROA_NFA_FINAL;
        for (int32_t i = b->nfa.first[s]; i >= 0; i = b->nfa.edges[i].next) {
            const proa_nfa_edge *e = &b->nfa.edges[i];
            if (e->kind != PROA_NFA_EMPTY) listed = true;
            else if (b->stamp[e->to] != b->epoch) b->stamp[e->to] = b->epoch, b->work[depth++] = e->to;
        }
        if (listed) b->list[b->list_count++] = s;
    }
}

static void store_set(builder *b, int32_t number)
{
    GROW(b->sets, number, b->sets_cap);
    int32_t *set = PROA_ARENA_NEW(&b->sets_arena, int32_t, b->list_count + 1);
    set[0] = b->list_count;
    if (b->list_count) memcpy(set + 1, b->list, (size_t)b->list_count * sizeof *set);
    b->sets[number] = set;
}

static int32_t *slot_of_set(builder *b)
{
    uint64_t hash = proa_str_hash((proa_str){(const char *)b->list, (size_t)b->list_count * sizeof *b->list});
    for (uint32_t i = (uint32_t)hash;; i++) {
        int32_t *slot = &b->slots[i & (uint32_t)(b->slots_count - 1)];
        const int32_t *set = *slot ? b->sets[*slot - 1] : NULL;
        if (!set) return slot;
        if (set[0] != b->list_count) continue;
        if (!set[0] || memcmp(set + 1, b->list, (size_t)set[0] * sizeof *set) == 0) return slot;
    }
}

/* The state of the set that was collected; -1 when the machine has as many states as it may. */
static int32_t state_of_set(builder *b)
{
    int32_t number = b->a->states_count - b->base;
    if (b->list_count) qsort(b->list, (size_t)b->list_count, sizeof *b->list, compare_ids);
    int32_t *slot = slot_of_set(b);
    if (*slot) return b->base + *slot - 1;
    if (2 * (number + 1) > b->slots_count) return -1;
    int32_t state = new_gstate(b);
    store_set(b, number);
    *slot = number + 1;
    for (int32_t i = 0; i < b->list_count; i++)
        if (b->list[i] == PROA_NFA_FINAL) b->a->states[state].accepts = true;
    return state;
}

/* ---- edges ---- */

static void put_bytes(builder *b, proa_gstate *s, uint8_t lo, uint8_t hi, int32_t to)
{
    proa_automaton *a = b->a;
    proa_byte_edge *last = s->bytes_count ? &a->bytes[a->bytes_count - 1] : NULL;
    if (last && last->to == to && last->hi + 1 == lo) {
        last->hi = hi;
        return;
    }
    GROW(a->bytes, a->bytes_count, a->bytes_cap);
    a->bytes[a->bytes_count++] = (proa_byte_edge){lo, hi, to};
    s->bytes_count++;
}

static void put_call(builder *b, proa_gstate *s, int32_t machine, int32_t to)
{
    proa_automaton *a = b->a;
    GROW(a->calls, a->calls_count, a->calls_cap);
    a->calls[a->calls_count++] = (proa_call_edge){machine, to};
    s->calls_count++;
}

/* Marks where a byte edge of the set begins, and the byte after its end. */
static void mark_cuts(const builder *b, const int32_t *set, bool cut[257])
{
    for (int32_t k = 1; k <= set[0]; k++)
        for (int32_t i = b->nfa.first[set[k]]; i >= 0; i = b->nfa.edges[i].next) {
            const proa_nfa_edge *e = &b->nfa.edges[i];
            if (e->kind == PROA_NFA_BYTES) cut[e->lo] = cut[e->hi + 1] = true;
        }
}

/* The set after a byte, or after the end of a machine (byte -1). */
static void follow_set(builder *b, const int32_t *set, int byte, int32_t machine)
{
    begin_set(b);
    for (int32_t k = 1; k <= set[0]; k++)
        for (int32_t i = b->nfa.first[set[k]]; i >= 0; i = b->nfa.edges[i].next) {
            const proa_nfa_edge *e = &b->nfa.edges[i];
            bool matches = byte >= 0 ? e->kind == PROA_NFA_BYTES && e->lo <= byte && byte <= e->hi
                                     : e->kind == PROA_NFA_CALL && e->machine == machine;
            if (matches) add_to_set(b, e->to);
        }
}

static bool expand_bytes(builder *b, proa_gstate *s, const int32_t *set)
{
    bool cut[257] = {false};
    mark_cuts(b, set, cut);
    for (int lo = 0, hi; lo < 256; lo = hi) {
        for (hi = lo + 1; hi < 256 && !cut[hi];) hi++;
        follow_set(b, set, lo, -1);
        if (b->list_count == 0) continue;
        int32_t to = state_of_set(b);
        if (to < 0) return false;
        put_bytes(b, s, (uint8_t)lo, (uint8_t)(hi - 1), to);
    }
    return true;
}

static bool has_call(const builder *b, const proa_gstate *s, int32_t machine)
{
    for (int32_t i = 0; i < s->calls_count; i++)
        if (b->a->calls[s->calls + i].machine == machine) return true;
    return false;
}

static bool expand_calls(builder *b, proa_gstate *s, const int32_t *set)
{
    for (int32_t k = 1; k <= set[0]; k++)
        for (int32_t i = b->nfa.first[set[k]]; i >= 0; i = b->nfa.edges[i].next) {
            int32_t machine = b->nfa.edges[i].machine;
            if (b->nfa.edges[i].kind != PROA_NFA_CALL || has_call(b, s, machine)) continue;
            follow_set(b, set, -1, machine);
            int32_t to = state_of_set(b);
            if (to < 0) return false;
            put_call(b, s, machine, to);
        }
    return true;
}

/* Gives the NFA's arrays and the hash table their sizes. */
static void prepare_sets(builder *b)
{
    int32_t wanted = b->nfa.states > 2048 ? 4 * b->nfa.states : 8192, slots = 2;
    if (b->nfa.states > b->nfa_cap) {
        b->nfa_cap = b->nfa.states * 2;
        b->stamp = proa_realloc(b->stamp, (size_t)b->nfa_cap * sizeof *b->stamp);
        b->work = proa_realloc(b->work, (size_t)b->nfa_cap * sizeof *b->work);
        b->list = proa_realloc(b->list, (size_t)b->nfa_cap * sizeof *b->list);
        memset(b->stamp, 0, (size_t)b->nfa_cap * sizeof *b->stamp);
        b->epoch = 0;
    }
    if (b->nfa.states < 256) wanted = 16 * b->nfa.states;
    while (slots < wanted) slots *= 2;
    if (slots > b->slots_count) b->slots = proa_realloc(b->slots, (size_t)slots * sizeof *b->slots);
    b->slots_count = slots;
    memset(b->slots, 0, (size_t)slots * sizeof *b->slots);
    proa_arena_reset(&b->sets_arena);
}

/* The first set is not in the hash table, so no edge leads back to it. */
static bool make_subsets(builder *b)
{
    proa_automaton *a = b->a;
    b->base = a->states_count;
    prepare_sets(b);
    begin_set(b);
    add_to_set(b, PROA_NFA_START);
    if (b->list_count) qsort(b->list, (size_t)b->list_count, sizeof *b->list, compare_ids);
    new_gstate(b);
    store_set(b, 0);
    for (int32_t at = b->base; at < a->states_count; at++) {
        proa_gstate s = a->states[at];
        s.bytes = a->bytes_count;
        s.calls = a->calls_count;
        bool fits = expand_bytes(b, &s, b->sets[at - b->base]) && expand_calls(b, &s, b->sets[at - b->base]);
        a->states[at] = s;
        if (!fits) return false;
    }
    return true;
}

/* One state for each of the NFA's, with the edges of all states that empty edges lead to. */
static void keep_nfa(builder *b)
{
    proa_automaton *a = b->a;
    b->base = a->states_count;
    for (int32_t i = 0; i < b->nfa.states; i++) new_gstate(b);
    for (int32_t i = 0; i < b->nfa.states; i++) {
        proa_gstate s = {.bytes = a->bytes_count, .calls = a->calls_count, .body = -1};
        begin_set(b);
        add_to_set(b, i);
        for (int32_t k = 0; k < b->list_count; k++) {
            if (b->list[k] == PROA_NFA_FINAL) s.accepts = i != PROA_NFA_START;
            for (int32_t j = b->nfa.first[b->list[k]]; j >= 0; j = b->nfa.edges[j].next) {
                const proa_nfa_edge *e = &b->nfa.edges[j];
                if (e->kind == PROA_NFA_CALL) put_call(b, &s, e->machine, b->base + e->to);
                if (e->kind == PROA_NFA_BYTES) put_bytes(b, &s, e->lo, e->hi, b->base + e->to);
            }
        }
        a->states[b->base + i] = s;
    }
}

/* ---- edges that lead nowhere ---- */

static bool leads_on(const proa_automaton *a, const proa_gstate *s, const bool *alive, int32_t base)
{
    for (int32_t i = 0; i < s->bytes_count; i++)
        if (alive[a->bytes[s->bytes + i].to - base]) return true;
    for (int32_t i = 0; i < s->calls_count; i++)
        if (alive[a->calls[s->calls + i].to - base]) return true;
    return false;
}

static void drop_edges(proa_automaton *a, proa_gstate *s, const bool *alive, int32_t base)
{
    int32_t bytes = 0, calls = 0;
    for (int32_t i = 0; i < s->bytes_count; i++)
        if (alive[a->bytes[s->bytes + i].to - base]) a->bytes[s->bytes + bytes++] = a->bytes[s->bytes + i];
    for (int32_t i = 0; i < s->calls_count; i++)
        if (alive[a->calls[s->calls + i].to - base]) a->calls[s->calls + calls++] = a->calls[s->calls + i];
    s->bytes_count = bytes;
    s->calls_count = calls;
}

/* Removes edges to states from which the machine cannot end. */
static void prune_machine(builder *b)
{
    proa_automaton *a = b->a;
    int32_t n = a->states_count - b->base;
    bool *alive = proa_calloc((size_t)n, sizeof *alive);
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t i = n; i-- > 0;) {
            const proa_gstate *s = &a->states[b->base + i];
            if (alive[i] || !(s->accepts || leads_on(a, s, alive, b->base))) continue;
            alive[i] = changed = true;
        }
    }
    for (int32_t i = 0; i < n; i++) drop_edges(a, &a->states[b->base + i], alive, b->base);
    free(alive);
}

/* ---- machines ---- */

static void build_counted(builder *b, int32_t machine)
{
    source from = b->sources[machine];
    int32_t state = new_gstate(b);
    bool empty_item = proa_expr_may_be_empty(&b->facts, from.repeat->items[0]);
    int32_t min = empty_item ? 0 : from.repeat->min;
    b->a->states[state].body = from.item;
    b->a->states[state].min = min > 1 ? min : 1;
    b->a->states[state].max = from.repeat->max < 0 ? from.repeat->min : from.repeat->max;
    b->a->machines[machine].start = state;
}

static proa_status build_machine(builder *b, int32_t machine, proa_err *err)
{
    proa_automaton *a = b->a;
    const proa_expr *body = b->sources[machine].body;
    if (!body) return build_counted(b, machine), PROA_OK;
    int32_t states = a->states_count, bytes = a->bytes_count, calls = a->calls_count;
    proa_nfa_clear(&b->nfa);
    PROA_TRY(proa_nfa_add(&b->nfa, body, PROA_NFA_START, PROA_NFA_FINAL, err));
    if (!make_subsets(b)) {
        a->states_count = states, a->bytes_count = bytes, a->calls_count = calls;
        keep_nfa(b);
    }
    if (a->states_count > PROA_GRAMMAR_STATES_MAX || a->bytes_count > 4 * PROA_GRAMMAR_STATES_MAX ||
        a->machines_count > PROA_GRAMMAR_STATES_MAX)
        return PROA_FAIL(err, LIMIT, "the grammar needs more than %d states", PROA_GRAMMAR_STATES_MAX);
    prune_machine(b);
    a->machines[machine].start = b->base;
    return PROA_OK;
}

/* Unions of the first bytes, until nothing changes: calls at a start form no cycle. */
static void find_first_bytes(proa_automaton *a)
{
    for (bool changed = true; changed;) {
        changed = false;
        for (int32_t m = a->machines_count; m-- > 0;) {
            const proa_gstate *s = &a->states[a->machines[m].start];
            uint64_t first[4] = {0};
            for (int32_t i = 0; i < s->bytes_count; i++)
                for (int c = a->bytes[s->bytes + i].lo; c <= a->bytes[s->bytes + i].hi; c++)
                    first[c >> 6] |= (uint64_t)1 << (c & 63);
            for (int32_t i = 0; i < s->calls_count; i++)
                for (int k = 0; k < 4; k++) first[k] |= a->machines[a->calls[s->calls + i].machine].first[k];
            for (int k = 0; k < 4 && s->body >= 0; k++) first[k] |= a->machines[s->body].first[k];
            if (memcmp(first, a->machines[m].first, sizeof first) == 0) continue;
            memcpy(a->machines[m].first, first, sizeof first);
            changed = true;
        }
    }
}

static proa_status build_all(builder *b, proa_err *err)
{
    proa_automaton *a = b->a;
    PROA_TRY(proa_rules_check(b->rules, err));
    PROA_TRY(proa_rules_analyze(&b->facts, b->rules, &b->arena, err));
    b->nfa = (proa_nfa){.rules = b->rules, .facts = &b->facts, .counted = counted_machine, .arg = b};
    for (int32_t i = 0; i < b->rules->count; i++) {
        const proa_grammar_rule *rule = &b->rules->rule[i];
        new_machine(b, proa_arena_strdup(&a->arena, proa_str_c(rule->name)), (source){.body = rule->body});
    }
    for (int32_t i = 0; i < a->machines_count; i++) PROA_TRY(build_machine(b, i, err));
    find_first_bytes(a);
    a->root = b->rules->root;
    a->root_empty = b->facts.empty[a->root];
    return PROA_OK;
}

proa_status proa_automaton_build(proa_automaton *a, const proa_rules *rules, proa_err *err)
{
    builder b = {.a = a, .rules = rules};
    *a = (proa_automaton){0};
    proa_arena_init(&a->arena);
    proa_arena_init(&b.arena);
    proa_arena_init(&b.sets_arena);
    proa_status status = build_all(&b, err);
    void *all[] = {b.sources, b.sets, b.slots, b.stamp, b.work, b.list};
    for (size_t i = 0; i < PROA_COUNT(all); i++) free(all[i]);
    proa_nfa_release(&b.nfa);
    proa_arena_release(&b.arena);
    proa_arena_release(&b.sets_arena);
    if (status != PROA_OK) proa_automaton_release(a);
    return status;
}

void proa_automaton_release(proa_automaton *a)
{
    free(a->states);
    free(a->bytes);
    free(a->calls);
    free(a->machines);
    proa_arena_release(&a->arena);
    *a = (proa_automaton){0};
}
