/* SPDX-License-Identifier: Apache-2.0
 * connect.c - what the ranks of several processes tell each other of their GPUs, and what follows from it. */
#include "kernels/connect.h"

#include "base/checked.h"
#include "base/limits.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The boot of the kernel, and the IPC namespace: containers with different ones do not open each other's memory. */
static void name_host(char *out, size_t size)
{
    char boot[48] = "";
    struct stat space = {.st_ino = 0};
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file && !fgets(boot, sizeof boot, file)) boot[0] = '\0';
    if (file) fclose(file);
    boot[strcspn(boot, "\n")] = '\0';
    if (!boot[0]) gethostname(boot, sizeof boot - 1);
    if (stat("/proc/self/ns/ipc", &space) != 0) space.st_ino = 0;
    snprintf(out, size, "%s %llu", boot, (unsigned long long)space.st_ino);
}

proa_status proa_collectives_wait_ms(int32_t *ms, proa_err *err)
{
    const char *word = getenv("PROA_COLLECTIVES_WAIT");
    char *end;
    *ms = PROA_RANK_WAIT_MS;
    if (!word || !*word) return PROA_OK;
    long seconds = strtol(word, &end, 10);
    if (*end || seconds < 1 || seconds > PROA_RANK_WAIT_S_MAX)
        return PROA_FAIL(err, INVALID, "PROA_COLLECTIVES_WAIT is '%.32s', must be 1 to %d seconds", word,
                         PROA_RANK_WAIT_S_MAX);
    *ms = (int32_t)seconds * 1000;
    return PROA_OK;
}

proa_status proa_gpu_card_make(proa_gpu_card *card, proa_err *err)
{
    static const char *const words[] = {"auto", "peer", "nccl"};
    const char *word = getenv("PROA_COLLECTIVES");
    *card = (proa_gpu_card){.status = PROA_OK};
    name_host(card->host, sizeof card->host);
    PROA_TRY(proa_collectives_wait_ms(&card->wait_ms, err));
    if (!word || !*word) return PROA_OK;
    for (int32_t i = 0; i < (int32_t)PROA_COUNT(words); i++)
        if (strcmp(word, words[i]) == 0) return card->collectives = i, PROA_OK;
    return PROA_FAIL(err, INVALID, "PROA_COLLECTIVES is '%.32s', must be auto, peer or nccl", word);
}

void proa_gpu_card_fail(proa_gpu_card *card, proa_status status, const proa_err *err)
{
    if (card->status != PROA_OK || status == PROA_OK) return;
    card->status = (int32_t)status;
    snprintf(card->text, sizeof card->text, "%s", err->text);
}

proa_status proa_gpu_cards_exchange(proa_gpu_card *all, const proa_gpu_card *own, proa_comm *control,
                                    proa_err *err)
{
    for (int32_t rank = 0; rank < control->ranks; rank++) {
        if (rank == control->rank) all[rank] = *own;
        control->broadcast(control, &all[rank], (int64_t)sizeof *all, rank);
        if (control->stopped && control->stopped(control))
            return PROA_FAIL(err, UNAVAILABLE, "the other ranks have ended");
        all[rank].text[sizeof all->text - 1] = all[rank].host[sizeof all->host - 1] = '\0';
        all[rank].gpu[sizeof all->gpu - 1] = '\0';
    }
    return PROA_OK;
}

static int32_t rank_of(proa_rank_line line, int32_t i)
{
    return line.first + i * line.step;
}

proa_status proa_gpu_cards_failed(const proa_gpu_card *all, proa_rank_line line, proa_err *err)
{
    for (int32_t i = 0; i < line.count; i++) {
        const proa_gpu_card *card = &all[rank_of(line, i)];
        if (card->status == PROA_OK) continue;
        bool known = card->status > 0 && card->status < PROA_STATUS_COUNT;
        return proa_err_set(err, known ? (proa_status)card->status : PROA_INTERNAL, __FILE__, __LINE__,
                            "rank %d: %s", rank_of(line, i), card->text);
    }
    return PROA_OK;
}

static proa_status check_gpus_differ(const proa_gpu_card *all, proa_rank_line line, proa_err *err)
{
    for (int32_t i = 0; i < line.count; i++)
        for (int32_t k = 0; k < i; k++)
            if (strcmp(all[rank_of(line, i)].gpu, all[rank_of(line, k)].gpu) == 0)
                return PROA_FAIL(
                    err, INVALID,
                    "ranks %d and %d have the same GPU (%s): a host needs as many as it has ranks "
                    "(CUDA_VISIBLE_DEVICES)",
                    rank_of(line, k), rank_of(line, i), all[rank_of(line, i)].gpu);
    return PROA_OK;
}

proa_status proa_gpu_cards_choose(bool *peer, const proa_gpu_card *all, proa_rank_line line, proa_err *err)
{
    int32_t elsewhere = -1, wanted = all[0].collectives;
    *peer = false;
    PROA_TRY(check_gpus_differ(all, line, err));
    for (int32_t i = 1; i < line.count && elsewhere < 0; i++)
        if (strcmp(all[rank_of(line, i)].host, all[line.first].host) != 0) elsewhere = rank_of(line, i);
    if (wanted == PROA_COLLECTIVES_PEER && elsewhere >= 0)
        return PROA_FAIL(err, INVALID, "PROA_COLLECTIVES is 'peer', but ranks %d and %d are on different hosts",
                         line.first, elsewhere);
    *peer = wanted != PROA_COLLECTIVES_NCCL && elsewhere < 0;
    return PROA_OK;
}

proa_status proa_gpu_cards_check_nccl(const proa_gpu_card *all, proa_rank_line line, proa_err *err)
{
    int32_t first = all[line.first].nccl;
    for (int32_t i = 1; i < line.count; i++) {
        int32_t other = all[rank_of(line, i)].nccl;
        if (other != first)
            return PROA_FAIL(err, UNSUPPORTED,
                             "rank %d has NCCL %d.%d.%d, rank %d has %d.%d.%d: all ranks need the same",
                             line.first, first / 10000, first / 100 % 100, first % 100, rank_of(line, i),
                             other / 10000, other / 100 % 100, other % 100);
    }
    return PROA_OK;
}
