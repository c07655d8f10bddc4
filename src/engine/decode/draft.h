/* SPDX-License-Identifier: Apache-2.0
 * draft.h - how many tokens to draft for a sequence: what drafts gain and cost, as measured.
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

/* How well drafts did for one sequence. Begin with PROA_DRAFT_STATE, or with the rate of other sequences. */
typedef struct proa_draft_state {
    float rate;   /* probability that a draft token is right if those before it are: a decaying mean */
    int32_t seen; /* tokens in that mean; the first ones weigh more */
    int32_t most; /* size limit of the next draft; doubled when a whole draft was right */
    int32_t idle; /* passes since the last draft */
    int32_t tries; /* idle passes after which a draft is tried although it seems not to pay; doubled by each try */
} proa_draft_state;
#define PROA_DRAFT_STATE     ((proa_draft_state){.rate = 0.7F, .most = 4, .tries = PROA_DRAFT_TRY_FIRST})
#define PROA_DRAFT_TRY_FIRST 16
#define PROA_DRAFT_TRY_LAST  1024

/* A pass verified `drafted` tokens, and `accepted` of them were right. */
void proa_draft_result(proa_draft_state *s, int32_t drafted, int32_t accepted);
/* Records whether the token after the draft, which was drafted but not verified, was right. */
void proa_draft_dropped(proa_draft_state *s, bool right);
/* The sequence could have drafted and did not. */
void proa_draft_idle(proa_draft_state *s);

/* Measured times of passes by their number of rows, in slots of similar numbers of rows. */
typedef struct proa_draft_times {
    double ns[PROA_DRAFT_SLOTS];    /* decaying means; 0: not measured */
    int64_t last[PROA_DRAFT_SLOTS]; /* number of the last pass that was measured, counted by `passes` */
    int64_t passes;
    double larger[PROA_DRAFT_SLOTS]; /* the least time of any larger pass; 0: none is known */
} proa_draft_times;
#define PROA_DRAFT_TIMES ((proa_draft_times){.passes = 0}) /* nothing is known */
void proa_draft_time(proa_draft_times *t, int64_t rows, double ns);
/* The mean for that many rows, interpolated between those that are known. Beyond the last known one it is taken to grow
 * by 1/64 for each row, or in proportion to the rows if they are more, so that larger drafts are tried. 0: nothing is
 * known, or no rows. */
double proa_draft_time_mean(const proa_draft_times *t, int64_t rows);
/* The time that a measured pass counts with: at most 1.5 times the mean, since a longer one was probably interrupted.
 * */
double proa_draft_time_clipped(const proa_draft_times *t, int64_t rows, double ns);
/* The mean to plan with: not more than that of any larger pass. A mean that is too high would not be corrected, because
 * such passes are avoided. */
double proa_draft_time_of(const proa_draft_times *t, int64_t rows);

/* Times of the passes of a draft model. The first pass of a draft runs all tokens since the last draft and reads the
 * weights from memory; the others have one row for each sequence and find more in the caches. */
typedef struct proa_drafter_times {
    proa_draft_times first, more;
} proa_drafter_times;

/* What drafts of one kind gained or lost, as measured. They may lose PROA_DRAFT_LOSS of the time of all passes. When
 * the credit is used up they stop, and they start again when it has grown to half a pass. */
typedef struct proa_draft_account {
    double credit_ns; /* what may be lost */
    bool begun, closed;
} proa_draft_account;
#define PROA_DRAFT_LOSS (1.0 / 128)

/* A pass took ns, including the time to draft its tokens. The same tokens without drafts would have taken plain_ns.
 * share: the part of its draft tokens that are of this kind. */
void proa_draft_account_pass(proa_draft_account *a, double ns, double plain_ns, double share);

/* How often draft tokens were right, by the probability that their proposer gave them: decaying means. Begin with
 * proa_draft_chances_init. The probability itself is too low an estimate, above all where sampling is greedy. */
#define PROA_DRAFT_CHANCES 10
typedef struct proa_draft_chances {
    float right[PROA_DRAFT_CHANCES]; /* of probabilities from i / 10 on */
} proa_draft_chances;
void proa_draft_chances_init(proa_draft_chances *c);
int32_t proa_draft_chance_of(float probability); /* index into right */
void proa_draft_chance_result(proa_draft_chances *c, int32_t chance, bool right);

/* A sequence that could draft in the next pass, and what the plan gives it. */
typedef struct proa_draft_offer {
    const proa_draft_state *state;
    /* The sequence's part of the time of drafting, if all sequences draft: for each token, and once for the draft. */
    double token_ns, first_ns;
    const proa_drafter_times *drafter; /* measured times of drafting by the number of sequences; NULL: none */
    int32_t behind;                    /* tokens that the draft model has to run before it can draft */
    /* `chances` are learnt without drafts too, so a draft is tried only to learn the time of a pass that has drafts. */
    bool is_known;
    /* [limit] probability that a token is accepted, in falling order: of the nodes of a tree. NULL: a chain, whose
     * tokens have state->rate. */
    const float *chances;
    int32_t limit; /* the most tokens that can be drafted */
    /* Out: */
    int32_t size;       /* tokens to draft; 0: a draft does not pay */
    float chance_least; /* proa_draft_chain.least */
    float chance_more;  /* proa_draft_chain.more */
} proa_draft_offer;

/* Chooses the sizes with which a pass is expected to make the most tokens a second; without drafts it has `rows` rows,
 * each of which makes a token. pause_ns: delay of the pass if it has any drafts. False: no draft is worth its cost, or
 * no times are known; offers with a size are then tries (proa_draft_state.tries). */
bool proa_draft_plan(proa_draft_offer *offers, int64_t count, const proa_draft_times *t, int64_t rows,
                     double pause_ns);
#endif
