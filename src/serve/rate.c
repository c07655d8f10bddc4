/* SPDX-License-Identifier: Apache-2.0
 * rate.c - the rate limiter: resources that instances share, granted by priority. */
#include "serve/rate.h"

#include "base/alloc.h"
#include "base/status.h"
#include <string.h>
#include <strings.h>

enum { EVERY_DEVICE = -3, GLOBAL = -2 }; /* in addition to -1, the CPU, and CUDA devices */

/* Turns (of priority 1) that an idle instance may catch up on; the rest of what others got in that time is not made up.
 * Without an end a model that is loaded late would keep them all away until it had executed as often as they. */
enum { CATCH_UP = 100 };

typedef struct resource {
    struct resource *next;
    char *name;
    int device;
    int64_t all, used;
    uint64_t turn; /* the latest that was served */
} resource;

typedef struct resource_need {
    resource *of;
    int64_t count;
} resource_need;

/* An instance that takes part. */
typedef struct member {
    struct member *next;
    const proa_instance *instance;
    uint64_t priority;
    uint64_t turn; /* when it is served next: an execution moves it on by its priority */
    bool waits;
    resource_need *needs;
    int needs_count;
} member;

struct proa_rate {
    pthread_mutex_t lock;
    pthread_cond_t change;
    resource *given;     /* set by option */
    resource *resources; /* that instances need */
    member *members;
};

/* ---- options ---- */

static proa_status parse_resource(resource *to, const char *text, proa_err *err)
{
    const char *count = strchr(text, ':');
    char *end = NULL;
    long long n = count ? strtoll(count + 1, &end, 10) : 0;
    if (!count || count == text || end == count + 1 || n < 0 || n > INT32_MAX || (*end && *end != ':'))
        return PROA_FAIL(err, INVALID,
                         "--rate-limit-resource option format is '<resource_name>:<count>:<device>' or "
                         "'<resource_name>:<count>'. Got %s",
                         text);
    to->device = EVERY_DEVICE;
    if (*end == ':') {
        const char *device = end + 1;
        to->device = strcasecmp(device, "global") == 0 ? GLOBAL : (int)strtol(device, &end, 10);
        if (to->device != GLOBAL && (end == device || *end || to->device < 0))
            return PROA_FAIL(err, INVALID, "rate limit resource '%s' has no device number and is not global",
                             text);
    }
    to->all = n;
    to->name = proa_strdup(text);
    to->name[count - text] = 0;
    return PROA_OK;
}

proa_status proa_rate_new(proa_rate **out, const char *const *resources, int count, proa_err *err)
{
    proa_rate *rate = proa_calloc(1, sizeof *rate);
    pthread_mutex_init(&rate->lock, NULL);
    pthread_cond_init(&rate->change, NULL);
    for (int i = 0; i < count; i++) {
        resource *r = proa_calloc(1, sizeof *r);
        r->next = rate->given;
        rate->given = r;
        proa_status status = parse_resource(r, resources[i], err);
        if (status == PROA_OK) continue;
        proa_rate_free(rate);
        return status;
    }
    *out = rate;
    return PROA_OK;
}

static void free_resources(resource *r)
{
    for (resource *next; r; r = next) {
        next = r->next;
        free(r->name);
        free(r);
    }
}

void proa_rate_free(proa_rate *rate)
{
    if (!rate) return;
    PROA_ASSERT(!rate->members);
    free_resources(rate->given);
    free_resources(rate->resources);
    pthread_cond_destroy(&rate->change);
    pthread_mutex_destroy(&rate->lock);
    free(rate);
}

/* ---- resources and instances ---- */

static resource *find_resource(resource *list, const char *name, int device)
{
    for (resource *r = list; r; r = r->next)
        if (r->device == device && strcmp(r->name, name) == 0) return r;
    return NULL;
}

static resource *get_resource(proa_rate *rate, const char *name, int device)
{
    resource *r = find_resource(rate->resources, name, device);
    if (r) return r;
    r = proa_calloc(1, sizeof *r);
    r->name = proa_strdup(name);
    r->device = device;
    r->next = rate->resources;
    rate->resources = r;
    return r;
}

/* How many the options give: a global resource matches any device, another its own device or "every device". */
static int64_t given_count(const proa_rate *rate, const resource *r)
{
    int64_t most = 0;
    for (const resource *g = rate->given; g; g = g->next) {
        bool matches = r->device == GLOBAL || g->device == r->device || g->device == EVERY_DEVICE;
        if (matches && strcmp(g->name, r->name) == 0 && g->all > most) most = g->all;
    }
    return most;
}

/* A resource without an option has as many units as the largest need. */
static void count_all(proa_rate *rate)
{
    for (resource *r = rate->resources; r; r = r->next) r->all = rate->given ? given_count(rate, r) : 0;
    for (const member *m = rate->members; m && !rate->given; m = m->next)
        for (int i = 0; i < m->needs_count; i++)
            if (m->needs[i].count > m->needs[i].of->all) m->needs[i].of->all = m->needs[i].count;
}

static bool is_needed(const proa_rate *rate, const resource *r)
{
    for (const member *m = rate->members; m; m = m->next)
        for (int i = 0; i < m->needs_count; i++)
            if (m->needs[i].of == r) return true;
    return false;
}

static proa_status check_needs(const proa_rate *rate, const member *added, proa_err *err)
{
    for (const resource *r = rate->resources; r; r = r->next)
        for (const resource *other = rate->resources; r->device == GLOBAL && other; other = other->next)
            if (other->device != GLOBAL && strcmp(r->name, other->name) == 0 && is_needed(rate, r) &&
                is_needed(rate, other))
                return PROA_FAIL(
                    err, INVALID,
                    "Resource \"%s\" is present as both global and device-specific resource in the "
                    "model configuration.",
                    r->name);
    for (int i = 0; i < added->needs_count; i++)
        if (added->needs[i].count > added->needs[i].of->all)
            return PROA_FAIL(
                err, INVALID,
                "Resource count for \"%s\" is limited to %lld which will prevent scheduling of one or "
                "more model instances, the minimum required count is %lld",
                added->needs[i].of->name, (long long)added->needs[i].of->all, (long long)added->needs[i].count);
    return PROA_OK;
}

proa_status proa_rate_add(proa_rate *rate, const proa_instance *instance, proa_err *err)
{
    const Inference__ModelRateLimiter *config = instance->group ? instance->group->rate_limiter : NULL;
    member *m = proa_calloc(1, sizeof *m);
    m->instance = instance;
    m->priority = config && config->priority ? config->priority : 1;
    m->needs_count = config ? (int)config->n_resources : 0;
    m->needs = proa_calloc((size_t)m->needs_count + 1, sizeof *m->needs);
    pthread_mutex_lock(&rate->lock);
    for (int i = 0; i < m->needs_count; i++) {
        const Inference__ModelRateLimiter__Resource *r = config->resources[i];
        m->needs[i] = (resource_need){get_resource(rate, r->name, r->global ? GLOBAL : instance->device),
                                      (int64_t)r->count};
    }
    m->next = rate->members;
    rate->members = m;
    count_all(rate);
    proa_status status = check_needs(rate, m, err);
    pthread_mutex_unlock(&rate->lock);
    if (status != PROA_OK) proa_rate_remove(rate, instance);
    return status;
}

void proa_rate_remove(proa_rate *rate, const proa_instance *instance)
{
    pthread_mutex_lock(&rate->lock);
    for (member **at = &rate->members; *at; at = &(*at)->next)
        if ((*at)->instance == instance) {
            member *gone = *at;
            *at = gone->next;
            free(gone->needs);
            free(gone);
            break;
        }
    count_all(rate);
    pthread_cond_broadcast(&rate->change);
    pthread_mutex_unlock(&rate->lock);
}

/* ---- taking and giving back ---- */

static member *member_of(const proa_rate *rate, const proa_instance *instance)
{
    for (member *m = rate->members; m; m = m->next)
        if (m->instance == instance) return m;
    return NULL;
}

static bool member_fits(const member *m)
{
    for (int i = 0; i < m->needs_count; i++)
        if (m->needs[i].of->used + m->needs[i].count > m->needs[i].of->all) return false;
    return true;
}

static bool share_resource(const member *a, const member *b)
{
    for (int i = 0; i < a->needs_count; i++)
        for (int j = 0; j < b->needs_count; j++)
            if (a->needs[i].of == b->needs[j].of) return true;
    return false;
}

/* Is it m's turn? The instance with the fewest executions for its priority goes first, even while its resources are in
 * use: otherwise instances with large needs would never get all of them. Instances that need none of these may pass. */
static bool may_take(const proa_rate *rate, const member *m)
{
    if (!member_fits(m)) return false;
    for (const member *other = rate->members; other; other = other->next)
        if (other != m && other->waits && other->turn < m->turn && share_resource(other, m)) return false;
    return true;
}

/* Where all that m needs has moved on, it moves on too. */
static void keep_up(member *m)
{
    uint64_t reached = UINT64_MAX;
    for (int i = 0; i < m->needs_count; i++)
        if (m->needs[i].of->turn < reached) reached = m->needs[i].of->turn;
    if (m->needs_count && reached > CATCH_UP && m->turn < reached - CATCH_UP) m->turn = reached - CATCH_UP;
}

static void take_resources(member *m)
{
    for (int i = 0; i < m->needs_count; i++) {
        resource *r = m->needs[i].of;
        r->used += m->needs[i].count;
        if (r->turn < m->turn) r->turn = m->turn;
    }
    m->turn += m->priority;
}

void proa_rate_acquire(proa_rate *rate, const proa_instance *instance)
{
    pthread_mutex_lock(&rate->lock);
    member *m = member_of(rate, instance);
    keep_up(m);
    m->waits = true;
    while (!may_take(rate, m)) pthread_cond_wait(&rate->change, &rate->lock);
    m->waits = false;
    take_resources(m);
    pthread_cond_broadcast(&rate->change); /* another instance may be next */
    pthread_mutex_unlock(&rate->lock);
}

void proa_rate_release(proa_rate *rate, const proa_instance *instance)
{
    pthread_mutex_lock(&rate->lock);
    member *m = member_of(rate, instance);
    for (int i = 0; i < m->needs_count; i++) m->needs[i].of->used -= m->needs[i].count;
    pthread_cond_broadcast(&rate->change);
    pthread_mutex_unlock(&rate->lock);
}
