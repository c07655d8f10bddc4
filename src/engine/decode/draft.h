/* SPDX-License-Identifier: Apache-2.0
 * draft.h - how many tokens to draft for a sequence.
 * Owner:   the caller owns all memory. Threads: any, one at a time on one object.
 * Way in:  proa_draft_plan for their number, proa_draft_result for what became of them, proa_draft_account_pass for
 *          what that cost.
 *
 * Draft tokens are verified in one pass: row j of the sequence's span sees the draft tokens before it, and its logits
 * give the token that follows (Leviathan, Kalman, Matias 2023; Chen et al. 2023). Here a draft token is a guess without
 * a distribution, so it is accepted if the token that is sampled from its row, with the same random number as without
 * drafts, is equal to it. This accepts it with its probability, the most that any rule can for such a guess, and the
 * tokens are those without drafts, for sampling too. */
#ifndef PROA_ENGINE_DECODE_DRAFT_H
#define PROA_ENGINE_DECODE_DRAFT_H

#include <stdbool.h>
#include <stdint.h>

#define PROA_DRAFT_SLOTS 128 /* times that are kept: of passes with up to 2,080 rows */

/* What drafting was worth for one sequence. Begin with PROA_DRAFT_STATE, or with the rate of others. */
typedef struct proa_draft_state {
    float rate;    /* share of draft tokens that are accepted, one after the other; decaying mean */
    int32_t seen;  /* tokens that it is the mean of; the first ones have more weight */
    int32_t most;  /* tokens of the next draft at most: doubled after a draft that was accepted whole */
    int32_t idle;  /* passes since the last draft, */
    int32_t tries; /* and before one is tried although it does not seem to pay: doubled by each try */
} proa_draft_state;
#define PROA_DRAFT_STATE     ((proa_draft_state){.rate = 0.7F, .most = 4, .tries = PROA_DRAFT_TRY_FIRST})
#define PROA_DRAFT_TRY_FIRST 16
#define PROA_DRAFT_TRY_LAST  1024

/* A pass verified `drafted` tokens, and `accepted` of them were right. */
void proa_draft_result(proa_draft_state *s, int32_t drafted, int32_t accepted);
/* Whether the token after the draft, which was guessed but not verified, was right. */
void proa_draft_dropped(proa_draft_state *s, bool right);
/* The sequence could have drafted and did not. */
void proa_draft_idle(proa_draft_state *s);

/* Times of passes by their number of rows, as measured: decaying means, 0 where there is none. */
typedef struct proa_draft_times {
    double ns[PROA_DRAFT_SLOTS];
    int64_t last[PROA_DRAFT_SLOTS]; /* the number of the pass that was measured last, of `passes` */
    int64_t passes;
    double larger[PROA_DRAFT_SLOTS]; /* the least time of any larger pass; 0: none is known */
} proa_draft_times;
#define PROA_DRAFT_TIMES ((proa_draft_times){.passes = 0}) /* nothing is known */
void proa_draft_time(proa_draft_times *t, int64_t rows, double ns);
/* The mean for that many rows, interpolated between those that are known. Beyond the last known one it is taken to grow
 * by 1/64 for each row, or in proportion to the rows if they are more, so that larger drafts are tried. 0: nothing is
 * known, or no rows. */
double proa_draft_time_mean(const proa_draft_times *t, int64_t rows);
/* What a pass counts as that took so long: no more than half as much again as the mean, or it was interrupted. */
double proa_draft_time_clipped(const proa_draft_times *t, int64_t rows, double ns);
/* The mean to plan with: not more than that of any larger pass. A mean that is too high would not be corrected, because
 * such passes are avoided. */
double proa_draft_time_of(const proa_draft_times *t, int64_t rows);

/* Times of a draft model: of the first pass of a draft by all its rows, the tokens since the last one, and of the
 * others, which have one row for each sequence. The first one reads from memory what the caches have for the others. */
typedef struct proa_drafter_times {
    proa_draft_times first, more;
} proa_drafter_times;

/* What drafts of one kind gained or lost, as measured. They may lose PROA_DRAFT_LOSS of the time of all passes: with
 * nothing left to lose they stop, and begin again when half a pass can be lost. */
typedef struct proa_draft_account {
    double credit_ns; /* what may be lost */
    bool begun, closed;
} proa_draft_account;
#define PROA_DRAFT_LOSS (1.0 / 128)

/* A pass took ns, with the time to draft its tokens, and would have taken plain_ns for as many tokens without drafts.
 * share: of its draft tokens that are of this kind; 0: it had none of them. */
void proa_draft_account_pass(proa_draft_account *a, double ns, double plain_ns, double share);

/* How often draft tokens are right, by the probability that their proposer gave them: decaying means. Begin with
 * proa_draft_chances_init. They are right more often than this probability says, where the most likely token is taken
 * above all, so it is the wrong thing to go by. */
#define PROA_DRAFT_CHANCES 10
typedef struct proa_draft_chances {
    float right[PROA_DRAFT_CHANCES]; /* of probabilities from i / 10 on */
} proa_draft_chances;
void proa_draft_chances_init(proa_draft_chances *c);
int32_t proa_draft_chance_of(float probability); /* index into right */
void proa_draft_chance_result(proa_draft_chances *c, int32_t chance, bool right);

/* A sequence that could draft in the next pass. */
typedef struct proa_draft_offer {
    const proa_draft_state *state;
    double token_ns; /* that it takes to draft one token, */
    double first_ns; /* and once for all of them; both are a part of the time if all sequences draft, */
    const proa_drafter_times *drafter; /* which is known by the number of those that do; or NULL */
    int32_t behind;                    /* tokens that the draft model has to run first */
    bool is_known;                     /* its chances are learnt without drafts, so none is tried for that */
    /* [limit] falling chances that a token is accepted, of a tree's nodes; NULL: of a chain's, by state->rate */
    const float *chances;
    int32_t limit; /* tokens at most */
    int32_t size;  /* set by the plan: tokens to draft; 0: none pays */
    /* set with the size: */
    float chance_least; /* a draft token is worth its row if it and those before it are right with this chance */
    float chance_more; /* one more is worth its time if those before it are */
} proa_draft_offer;

/* Chooses the sizes that promise the most tokens a second from a pass with `rows` rows, each of which makes a token
 * without drafts. pause_ns: how much later the pass begins if it has any drafts. False: none are worth their cost, or
 * no times are known; offers with a size are tries then, which are due although they promise little. */
bool proa_draft_plan(proa_draft_offer *offers, int64_t count, const proa_draft_times *t, int64_t rows,
                     double pause_ns);
#endif
