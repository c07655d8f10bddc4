/* SPDX-License-Identifier: Apache-2.0
 * test_relative.c - DeBERTa's buckets of relative positions against transformers' own (make_log_bucket_position of 5.17
 * with torch on a CPU), and the rows that are kept of the tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include "model/relative.h"
#include <cmocka.h>

/* Distances from which on a bucket holds, until the next entry. Distances up to half of the buckets are their own. */
typedef struct run {
    int32_t from, bucket;
} run;

/* clang-format off */
static const run of_v3[] = { /* 256 buckets, 512 positions */
    {129, 129}, {130, 130}, {131, 131}, {133, 132}, {134, 133}, {136, 134}, {137, 135}, {139, 136},
    {140, 137}, {142, 138}, {143, 139}, {145, 140}, {146, 141}, {148, 142}, {150, 143}, {151, 144},
    {153, 145}, {155, 146}, {156, 147}, {158, 148}, {160, 149}, {161, 150}, {163, 151}, {165, 152},
    {167, 153}, {169, 154}, {170, 155}, {172, 156}, {174, 157}, {176, 158}, {178, 159}, {180, 160},
    {182, 161}, {184, 162}, {186, 163}, {188, 164}, {190, 165}, {192, 166}, {194, 167}, {196, 168},
    {198, 169}, {201, 170}, {203, 171}, {205, 172}, {207, 173}, {210, 174}, {212, 175}, {214, 176},
    {216, 177}, {219, 178}, {221, 179}, {224, 180}, {226, 181}, {229, 182}, {231, 183}, {234, 184},
    {236, 185}, {239, 186}, {241, 187}, {244, 188}, {247, 189}, {249, 190}, {252, 191}, {255, 192},
    {258, 193}, {260, 194}, {263, 195}, {266, 196}, {269, 197}, {272, 198}, {275, 199}, {278, 200},
    {281, 201}, {284, 202}, {287, 203}, {290, 204}, {294, 205}, {297, 206}, {300, 207}, {303, 208},
    {307, 209}, {310, 210}, {313, 211}, {317, 212}, {320, 213}, {324, 214}, {327, 215}, {331, 216},
    {335, 217}, {338, 218}, {342, 219}, {346, 220}, {349, 221}, {353, 222}, {357, 223}, {361, 224},
    {365, 225}, {369, 226}, {373, 227}, {377, 228}, {381, 229}, {385, 230}, {390, 231}, {394, 232},
    {398, 233}, {403, 234}, {407, 235}, {411, 236}, {416, 237}, {420, 238}, {425, 239}, {430, 240},
    {434, 241}, {439, 242}, {444, 243}, {449, 244}, {454, 245}, {459, 246}, {464, 247}, {469, 248},
    {474, 249}, {479, 250}, {484, 251}, {490, 252}, {495, 253}, {500, 254}, {506, 255}, {512, 256},
    {517, 257}, {523, 258}, {528, 259}, {534, 260}, {540, 261}, {546, 262}, {552, 263}};
static const run of_32[] = { /* 32 buckets, 128 positions */
    {17, 17}, {19, 18}, {22, 19}, {25, 20}, {28, 21}, {32, 22}, {37, 23}, {43, 24}, {49, 25}, {56, 26},
    {64, 27}, {74, 28}, {84, 29}, {97, 30}, {111, 31}, {128, 32}, {146, 33}, {168, 34}};
/* clang-format on */

static void check_runs(const run *runs, size_t count, int32_t buckets, int32_t most)
{
    size_t at = 0;
    for (int32_t d = 0; d <= most + 40; d++) {
        int32_t want = d <= buckets / 2 ? d : 0;
        while (at + 1 < count && d >= runs[at + 1].from) at++;
        if (d > buckets / 2) want = runs[at].bucket > buckets ? buckets : runs[at].bucket;
        if (proa_relative_bucket(d, buckets, most) != want || proa_relative_bucket(-d, buckets, most) != -want)
            fail_msg("%d of %d: bucket %d, expected %d", d, buckets, proa_relative_bucket(d, buckets, most),
                     want);
    }
}

static void buckets(void **state)
{
    PROA_UNUSED(state);
    check_runs(of_v3, PROA_COUNT(of_v3), 256, 512);
    check_runs(of_32, PROA_COUNT(of_32), 32, 128);
    assert_int_equal(proa_relative_bucket(0, 2, 5), 0);
    assert_int_equal(proa_relative_bucket(4, 2, 5), 1);
}

static proa_config config_of(int64_t context, int64_t span, int64_t distance, int64_t clamp)
{
    proa_config c = {.context = context};
    c.relative = (proa_relative_params){.used = true, .span = span, .distance = distance, .clamp = clamp};
    return c;
}

static int64_t rows_of(int64_t context, int64_t span, int64_t distance, int64_t clamp)
{
    proa_config c = config_of(context, span, distance, clamp);
    return proa_relative_rows(&c);
}

/* Only rows that inputs of this length need: of sinusoids one for each distance, of buckets one for each bucket. */
static void rows(void **state)
{
    PROA_UNUSED(state);
    proa_config none = {.context = 100};
    assert_int_equal(proa_relative_rows(&none), 0);
    assert_int_equal(rows_of(1, 0, 0, 0), 1);
    assert_int_equal(rows_of(100, 0, 0, 0), 199);
    assert_int_equal(rows_of(100, 0, 0, 30), 61);
    assert_int_equal(rows_of(512, 256, 512, 0), 511); /* buckets -255 to 255 */
    assert_int_equal(rows_of(10, 256, 512, 0), 19);
    assert_int_equal(rows_of(100, 20, 0, 0), 40);  /* -20 to 19: farther ones are at the ends of the table */
    assert_true(rows_of(512, 512, 512, 0) < 1024); /* buckets are left out where they rise by two */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(buckets), cmocka_unit_test(rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
