/* SPDX-License-Identifier: Apache-2.0
 * state_slots.h - the recurrent states of sequences, in a slot for each sequence that can run.
 * Owner:   one per engine, made when the model is opened.
 * Threads: the stepping thread only.
 * Way in:  proa_state_slots_init; for a pass proa_state_slots_of, when sequences part proa_state_slots_share; around a
 *          pass whose rows may be undone proa_state_slots_mark and proa_state_slots_undo. */
#ifndef PROA_KV_STATE_SLOTS_H
#define PROA_KV_STATE_SLOTS_H

#include "kernels/device.h"
#include "kernels/op_state.h"

typedef struct proa_state_slots proa_state_slots;
typedef void proa_state_copied(void *arg, const proa_state_copy *copy);
typedef void proa_state_settle(void *arg);

/* Keys and values of a sequence are read by all later rows; a recurrent state is all that its rows leave behind, and is
 * overwritten by each of them. So a state cannot be shared: sequences that go on from one have copies of it. Sequence i
 * has slot slot_of[i] of the memory, [count + marks + kept][numbers] of f32. A sequence that begins does not read its
 * slot. With marks each sequence has a second slot, for the state that it may return to. The last `kept` slots keep
 * states for later (state_cache.h). */
struct proa_state_slots {
    int64_t count, marks, kept; /* marks: count, or 0 */
    int64_t numbers;            /* 0: the model has no such states */
    float *memory;              /* where the model runs */
    int64_t copies;             /* of states since the start */
    /* private */
    proa_device *device;
    int32_t *slot_of, *next;    /* [count] */
    int32_t *mark_of;           /* [marks] the second slot of a sequence */
    bool *claimed;              /* [count] */
    proa_state_slots *attached; /* the states that another rank has of the same sequences; or NULL */
    proa_state_copied *copied;  /* called after a state was copied; NULL: none */
    void *copied_arg;
    proa_state_settle *settle; /* called before this thread copies a state; NULL: no other thread uses them */
    void *settle_arg;
};

/* Bytes of memory of such slots, on the device; -1 if the number does not fit. */
int64_t proa_state_slots_bytes(int64_t count, int64_t numbers);
/* How many states there is room for. */
typedef struct proa_state_counts {
    int64_t sequences, kept;
    bool marks; /* a second state for each sequence */
} proa_state_counts;
static inline int64_t proa_state_counts_all(const proa_state_counts *n)
{
    return n->sequences * (n->marks ? 2 : 1) + n->kept;
}
/* NO_MEMORY with the sum. The device stays the caller's. On failure s is zero and needs no release. */
PROA_MUST_CHECK proa_status proa_state_slots_init(proa_state_slots *s, proa_device *device,
                                                  const proa_state_counts *counts, int64_t numbers,
                                                  proa_err *err);
void proa_state_slots_release(proa_state_slots *s); /* zero slots are fine */
/* The states that another rank of this process has of the same sequences, `numbers` each: slot i of `attached` is
 * copied together with slot i of s, so it knows no sequences. It must outlive s, and is released by itself. There may
 * be several. Errors as above. */
PROA_MUST_CHECK proa_status proa_state_slots_init_attached(proa_state_slots *attached, proa_state_slots *s,
                                                           proa_device *device, int64_t numbers, proa_err *err);
/* For ranks in other processes: `copied` is called with each copy, which they make too. */
void proa_state_slots_set_copied(proa_state_slots *s, proa_state_copied *copied, void *arg);
/* For ranks that are threads and may still run a pass: `settle` must wait until none does. */
void proa_state_slots_set_settle(proa_state_slots *s, proa_state_settle *settle, void *arg);
/* Copies a state, here and in what is attached. */
void proa_state_slots_copy(const proa_state_slots *s, const proa_state_copy *copy);
/* The slot of a sequence, for proa_span.state. */
int32_t proa_state_slots_of(const proa_state_slots *s, int64_t sequence);
/* Sequence `to` goes on from a copy of the state of `from`. */
void proa_state_slots_share(proa_state_slots *s, int64_t to, int64_t from);
/* Copies the state of a sequence aside, with marks; undo: it has that state again, without a copy. One state is marked
 * for a sequence, the last one. */
void proa_state_slots_mark(proa_state_slots *s, int64_t sequence);
void proa_state_slots_undo(proa_state_slots *s, int64_t sequence);
/* Copies the state of a sequence to kept slot i, and back. */
void proa_state_slots_save(proa_state_slots *s, int64_t i, int64_t sequence);
void proa_state_slots_load(proa_state_slots *s, int64_t sequence, int64_t i);
/* Reorders the states of a beam search: sequence first + i becomes that of first + parent[i]. The first child takes its
 * parent's slot; others get copies in slots of beams without children. */
void proa_state_slots_reorder(proa_state_slots *s, int64_t first, const int32_t *parent, int32_t count);

#endif
