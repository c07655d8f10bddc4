/* SPDX-License-Identifier: Apache-2.0
 * fleet.h - several engines with the same model, its replicas, behind one interface: requests go where their prefix is
 * cached, else where least is queued.
 *
 * A request with a session goes to the replica that has the session. Any other goes to the replica with the lowest
 * cost:
 *
 *     prompt tokens queued there + its own that are not cached there + 64 for each request that runs there
 *
 * (The routers of SGLang and of NVIDIA Dynamo also weigh cached prefixes against load.) So a prefix that many
 * requests have in common stays on one replica until that one is busier than the prefix is worth, and then spreads.
 *
 * A replica whose device has failed takes no requests for a second, and is tried again then. If the device fails again
 * soon, the time doubles, up to a minute. Requests that ran there end with an error; they are not run elsewhere, since
 * their tokens were emitted.
 *
 * Owner:   the caller; engines of a fleet belong to it.
 * Threads: open, start, stop and close: one thread; everything else: any. Events come on the thread of the replica that
 *          runs the request.
 * Way in:  proa_fleet_open, proa_fleet_submit. */
#ifndef PROA_ENGINE_FLEET_FLEET_H
#define PROA_ENGINE_FLEET_FLEET_H

#include "base/compiler.h"
#include "base/limits.h"
#include "proa/proa.h"

typedef struct proa_fleet proa_fleet;

/* With `prefill` above 0 the first `prefill` replicas run long prompts for the others, which generate (disaggregated
 * prefill): the keys and values of a prompt are copied from one to the other in pages of 64 tokens, and the rest, at
 * most 64 tokens, is run where the tokens are generated. So what is generated is the same. Prompts that have at most
 * PROA_HANDOFF_TOKENS_MIN tokens that are not cached run where they generate, and so do texts without ids, sessions,
 * requests with a prompt table, and those that want outputs of the prompt's own rows. */
typedef struct proa_fleet_options {
    int32_t count;   /* of replicas, 1 to PROA_REPLICAS_MAX */
    int32_t prefill; /* of them, which run prompts for the others; 0: each runs its own */
    const char *device[PROA_REPLICAS_MAX]; /* of the first rank of each; NULL: as the engine's option says */
    int32_t rest_ms; /* how long a replica takes no requests after a first failure; 0: 1,000 */
} proa_fleet_options;

/* Opens the replicas one after the other, each with the options; threads of the host (0: all CPUs) are divided among
 * them. Errors are those of proa_engine_open, with the replica's number if there are several. *out is NULL then. */
PROA_MUST_CHECK proa_status proa_fleet_open(proa_fleet **out, const char *path,
                                            const proa_engine_options *options,
                                            const proa_fleet_options *fleet, proa_err *err);
void proa_fleet_close(proa_fleet *f); /* NULL is fine */
/* As proa_engine_start and proa_engine_stop, for all replicas. */
PROA_MUST_CHECK proa_status proa_fleet_start(proa_fleet *f, proa_err *err);
void proa_fleet_stop(proa_fleet *f);

int32_t proa_fleet_count(const proa_fleet *f);
/* Replica `i`, for its statistics, and for what is the same in all: tokenizer, files, defaults. */
proa_engine *proa_fleet_engine(const proa_fleet *f, int32_t i);

/* Why a request went to its replica: it has the request's session; it has a part of the prompt in its prefix cache; it
 * had the least queued. */
typedef enum proa_route { PROA_ROUTE_SESSION, PROA_ROUTE_PREFIX, PROA_ROUTE_LOAD, PROA_ROUTES } proa_route;

/* As proa_engine_submit. Only prompts given as ids are looked up in prefix caches. */
PROA_MUST_CHECK proa_status proa_fleet_submit(proa_fleet *f, const proa_request *request, uint64_t *id,
                                              proa_err *err);
void proa_fleet_cancel(proa_fleet *f, uint64_t id);
/* The sums of all replicas. */
void proa_fleet_stats(const proa_fleet *f, proa_stats *stats);
/* Requests that replica i has got so far for that reason; of a fleet of one they are not counted. */
uint64_t proa_fleet_routed(const proa_fleet *f, int32_t i, proa_route why);
/* Whether replica i takes requests now; whether any does. With one replica: true. */
bool proa_fleet_serves(const proa_fleet *f, int32_t i);
bool proa_fleet_ready(const proa_fleet *f);

/* As the functions of the engine, in all replicas: if one fails, those before it go back to what they had. */
PROA_MUST_CHECK proa_status proa_fleet_load_adapter(proa_fleet *f, const char *name, const char *path,
                                                    proa_err *err);
PROA_MUST_CHECK proa_status proa_fleet_load_adapter_rows(proa_fleet *f, const char *name,
                                                         const proa_adapter_rows *rows, proa_err *err);
PROA_MUST_CHECK proa_status proa_fleet_unload_adapter(proa_fleet *f, const char *name, proa_err *err);

#endif
