/* SPDX-License-Identifier: Apache-2.0
 * race.c - two threads at vectors of one row. The first writes one half of it; the second does what argv[1] says,
 * `write` or `read`, from argv[2] floats before the other half on. From 1 (write) or 8 (read) on ThreadSanitizer must
 * tell, for which vectors.h decides what it sees. Exit 77: the CPU has no AVX2. */
#include <immintrin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HALF = 128, VECTOR = 8 };

static _Alignas(64) float row[2 * HALF];

static void *write_vectors(void *arg)
{
    float *begin = arg;
    for (int i = 0; i < HALF; i += VECTOR) _mm256_storeu_ps(begin + i, _mm256_set1_ps(1.0f));
    return NULL;
}

static void *read_vectors(void *arg)
{
    const float *begin = arg;
    float lane[VECTOR];
    __m256 sum = _mm256_setzero_ps();
    for (int i = 0; i < HALF; i += VECTOR) sum = _mm256_add_ps(sum, _mm256_loadu_ps(begin + i));
    _mm256_storeu_ps(lane, sum);
    return lane[0] < 0 ? arg : NULL;
}

int main(int argc, char **argv)
{
    int early = argc == 3 ? atoi(argv[2]) : -1;
    pthread_t first, second;
    if (!__builtin_cpu_supports("avx2")) return 77;
    if (early < 0 || early > HALF || pthread_create(&first, NULL, write_vectors, row)) return 2;
    void *(*other)(void *) = strcmp(argv[1], "write") == 0 ? write_vectors : read_vectors;
    if (pthread_create(&second, NULL, other, row + HALF - early)) return 2;
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    puts("no race");
    return 0;
}
