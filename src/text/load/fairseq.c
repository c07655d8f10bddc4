/* SPDX-License-Identifier: Apache-2.0
 * fairseq.c - the ids of fairseq's dictionaries: XLM-RoBERTa, CamemBERT, XGLM, BARThez, mBART, mBART-50, NLLB and
 * M2M100 come with a SentencePiece model, whose pieces have other ids than their places in the file (but for BARThez).
 * Special tokens come first, then the pieces, languages and the mask (facts: transformers' tokenizers of these
 * classes). */
#include "base/limits.h"
#include "text/load/load.h"
#include <string.h>

struct proa_fairseq {
    const char *class; /* how tokenizer_class begins; the first row that fits counts */
    const char *codes; /* "language_codes" of tokenizer_config.json; NULL: whatever it says */
    const char *first; /* names of the first ids; NULL: vocab.json has the order of all pieces */
    int32_t replaced;  /* how many pieces of the file are among these names */
    const char *languages, *more_languages; /* after the pieces, in this order */
    const char *around;                     /* what begins and ends the name of a language */
    const char *source;                     /* language of the input, unless src_lang says another */
    bool mask;                              /* the last id is <mask> */
    const char *single, *pair;              /* a text, two texts: $A, $B; $L: the language of the input */
};

#define FIRST "<s> <pad> </s> <unk>"

static const char mbart[] = /* 25 */
    "ar_AR cs_CZ de_DE en_XX es_XX et_EE fi_FI fr_XX gu_IN hi_IN it_IT ja_XX kk_KZ ko_KR lt_LT lv_LV "
    "my_MM ne_NP nl_XX ro_RO ru_RU si_LK tr_TR vi_VN zh_CN";
static const char mbart50[] = /* 27 more */
    "af_ZA az_AZ bn_IN fa_IR he_IL hr_HR id_ID ka_GE km_KH mk_MK ml_IN mn_MN mr_IN pl_PL ps_AF pt_XX "
    "sv_SE sw_KE ta_IN te_IN th_TH tl_XX uk_UA ur_PK xh_ZA gl_ES sl_SI";
static const char nllb[] = /* 202 */
    "ace_Arab ace_Latn acm_Arab acq_Arab aeb_Arab afr_Latn ajp_Arab aka_Latn amh_Ethi apc_Arab "
    "arb_Arab ars_Arab ary_Arab arz_Arab asm_Beng ast_Latn awa_Deva ayr_Latn azb_Arab azj_Latn "
    "bak_Cyrl bam_Latn ban_Latn bel_Cyrl bem_Latn ben_Beng bho_Deva bjn_Arab bjn_Latn bod_Tibt "
    "bos_Latn bug_Latn bul_Cyrl cat_Latn ceb_Latn ces_Latn cjk_Latn ckb_Arab crh_Latn cym_Latn "
    "dan_Latn deu_Latn dik_Latn dyu_Latn dzo_Tibt ell_Grek eng_Latn epo_Latn est_Latn eus_Latn "
    "ewe_Latn fao_Latn pes_Arab fij_Latn fin_Latn fon_Latn fra_Latn fur_Latn fuv_Latn gla_Latn "
    "gle_Latn glg_Latn grn_Latn guj_Gujr hat_Latn hau_Latn heb_Hebr hin_Deva hne_Deva hrv_Latn "
    "hun_Latn hye_Armn ibo_Latn ilo_Latn ind_Latn isl_Latn ita_Latn jav_Latn jpn_Jpan kab_Latn "
    "kac_Latn kam_Latn kan_Knda kas_Arab kas_Deva kat_Geor knc_Arab knc_Latn kaz_Cyrl kbp_Latn "
    "kea_Latn khm_Khmr kik_Latn kin_Latn kir_Cyrl kmb_Latn kon_Latn kor_Hang kmr_Latn lao_Laoo "
    "lvs_Latn lij_Latn lim_Latn lin_Latn lit_Latn lmo_Latn ltg_Latn ltz_Latn lua_Latn lug_Latn "
    "luo_Latn lus_Latn mag_Deva mai_Deva mal_Mlym mar_Deva min_Latn mkd_Cyrl plt_Latn mlt_Latn "
    "mni_Beng khk_Cyrl mos_Latn mri_Latn zsm_Latn mya_Mymr nld_Latn nno_Latn nob_Latn npi_Deva "
    "nso_Latn nus_Latn nya_Latn oci_Latn gaz_Latn ory_Orya pag_Latn pan_Guru pap_Latn pol_Latn "
    "por_Latn prs_Arab pbt_Arab quy_Latn ron_Latn run_Latn rus_Cyrl sag_Latn san_Deva sat_Beng "
    "scn_Latn shn_Mymr sin_Sinh slk_Latn slv_Latn smo_Latn sna_Latn snd_Arab som_Latn sot_Latn "
    "spa_Latn als_Latn srd_Latn srp_Cyrl ssw_Latn sun_Latn swe_Latn swh_Latn szl_Latn tam_Taml "
    "tat_Cyrl tel_Telu tgk_Cyrl tgl_Latn tha_Thai tir_Ethi taq_Latn taq_Tfng tpi_Latn tsn_Latn "
    "tso_Latn tuk_Latn tum_Latn tur_Latn twi_Latn tzm_Tfng uig_Arab ukr_Cyrl umb_Latn urd_Arab "
    "uzn_Latn vec_Latn vie_Latn war_Latn wol_Latn xho_Latn ydd_Hebr yor_Latn yue_Hant zho_Hans "
    "zho_Hant zul_Latn";
static const char m2m100[] = /* 100 */
    "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha "
    "he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne "
    "nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo "
    "xh yi yo zh zu";

static const char madeup[] = /* XGLM's, to make the number of ids a multiple of 8 */
    "<madeupword0> <madeupword1> <madeupword2> <madeupword3> <madeupword4> <madeupword5> <madeupword6>";

static const char wmt21[] = "en ha is ja cs ru zh de";

static const proa_fairseq rows[] = {
    {"XLMRoberta", NULL, FIRST, 3, "", "", "", "", true, "<s> $A </s>", "<s> $A </s> </s> $B </s>"},
    {"Camembert", NULL, "<s>NOTUSED <pad> </s>NOTUSED <unk> <unk>NOTUSED", 1, "", "", "", "", true,
     "<s> $A </s>", "<s> $A </s> </s> $B </s>"},
    {"XGLM", NULL, FIRST, 3, madeup, "", "", "", false, "</s> $A", "</s> $A </s> </s> $B"},
    {"Barthez", NULL, "", 0, "", "", "", "", false, "<s> $A </s>", "<s> $A </s> </s> $B </s>"}, /* the file's own ids */
    {"MBart50", NULL, FIRST, 3, mbart, mbart50, "", "en_XX", true, "$L $A </s>", "$L $A $B </s>"},
    {"MBart", NULL, FIRST, 3, mbart, "", "", "en_XX", true, "$A </s> $L", "$A $B </s> $L"},
    {"Nllb", NULL, FIRST, 3, nllb, "", "", "eng_Latn", true, "$L $A </s>", "$L $A $B </s>"},
    {"M2M100", "wmt21", NULL, 0, wmt21, "", "__", "en", false, "$L $A </s>", "$L $A $B </s>"},
    {"M2M100", NULL, NULL, 0, m2m100, "", "__", "en", false, "$L $A </s>", "$L $A $B </s>"},
};

const proa_fairseq *proa_fairseq_of(const proa_json *config)
{
    proa_str class = proa_json_str(proa_json_get(config, "tokenizer_class"));
    proa_str codes = proa_json_str(proa_json_get(config, "language_codes"));
    for (size_t i = 0; i < PROA_COUNT(rows); i++)
        if (proa_str_starts(class, proa_str_c(rows[i].class)) &&
            (!rows[i].codes || proa_str_is(codes, rows[i].codes)))
            return &rows[i];
    return NULL;
}

/* The next of the words that spaces separate; false when there is none. */
static bool next_word(const char **rest, proa_str *word)
{
    *word = (proa_str){*rest, strcspn(*rest, " ")};
    *rest += word->len;
    *rest += strspn(*rest, " ");
    return word->len > 0;
}

/* ---- the order of ids ---- */

static proa_str name_language(const proa_fairseq *order, proa_str code, proa_arena *arena)
{
    if (!*order->around) return code;
    size_t size = code.len + 2 * strlen(order->around) + 1;
    char *name = proa_arena_alloc(arena, size);
    snprintf(name, size, "%s%.*s%s", order->around, (int)code.len, code.ptr, order->around);
    return (proa_str){name, size - 1};
}

/* The names that words has, counted only where `to` is NULL. */
static int32_t put_words(proa_str *to, const char *words, const proa_fairseq *languages_of, proa_arena *arena)
{
    proa_str word;
    int32_t n = 0;
    for (; next_word(&words, &word); n++)
        if (to) to[n] = languages_of ? name_language(languages_of, word, arena) : word;
    return n;
}

/* Special tokens, pieces, languages, mask; the number of names, which are counted only where `to` is NULL. */
static int32_t put_names(proa_str *to, const proa_fairseq *order, const proa_piece_list *pieces, proa_arena *arena)
{
    int32_t n = order->first ? put_words(to, order->first, NULL, arena) : 0;
    for (int32_t i = order->replaced; i < pieces->len; i++, n++)
        if (to) to[n] = pieces->ptr[i];
    n += put_words(to ? to + n : NULL, order->languages, order, arena);
    n += put_words(to ? to + n : NULL, order->more_languages, order, arena);
    if (to && order->mask) to[n] = proa_str_c("<mask>");
    return n + order->mask;
}

proa_status proa_fairseq_list(proa_piece_list *out, const proa_fairseq *order, const proa_piece_list *file,
                              const proa_piece_list *listed, proa_arena *arena, proa_err *err)
{
    const proa_piece_list *pieces = order->first ? file : listed;
    if (!pieces)
        return PROA_FAIL(err, NOT_FOUND, "%s's tokenizer needs vocab.json beside its .model file", order->class);
    int32_t n = put_names(NULL, order, pieces, arena);
    proa_str *names = PROA_ARENA_NEW(arena, proa_str, n);
    put_names(names, order, pieces, arena);
    *out = (proa_piece_list){names, n};
    return PROA_OK;
}

/* ---- special tokens, and what surrounds a text ---- */

/* Adds a special token, unless tokenizer_config.json has it. */
static proa_status add_special(proa_tokenizer *tok, proa_str name, proa_err *err)
{
    int32_t at;
    if (proa_map_find(&tok->added.by_content, name, &at)) return PROA_OK;
    proa_added_token t = {.id = proa_vocab_find(&tok->vocab, name), .special = true};
    t.lstrip = proa_str_is(name, "<mask>");
    t.content = (proa_str){proa_arena_strdup(&tok->arena, name), name.len};
    return t.id < 0 ? PROA_OK : proa_added_put(tok, t, err);
}

static proa_status add_languages(proa_tokenizer *tok, const proa_fairseq *order, const char *codes, proa_err *err)
{
    proa_str code;
    while (next_word(&codes, &code)) PROA_TRY(add_special(tok, name_language(order, code, &tok->arena), err));
    return PROA_OK;
}

int64_t proa_fairseq_added_max(const proa_fairseq *order)
{
    static const proa_piece_list none = {NULL, 0};
    return put_names(NULL, order, &none, NULL) + 5;
}

/* The id of a word of a template: a special token, or $L. */
static proa_status find_token(const proa_tokenizer *tok, const proa_fairseq *order, const proa_json *config,
                              proa_str word, int32_t *id, proa_err *err)
{
    char name[64];
    if (proa_str_is(word, "$L")) {
        proa_str source = proa_config_token(config, "src_lang");
        if (source.len == 0) source = proa_str_c(order->source);
        snprintf(name, sizeof name, "%s%.*s%s", order->around, source.len > 40 ? 40 : (int)source.len,
                 source.ptr, order->around);
        word = proa_str_c(name);
    }
    if (proa_tokenizer_find(tok, word, id)) return PROA_OK;
    return PROA_FAIL(err, INVALID, "the tokenizer has no token '%.*s'", (int)word.len, word.ptr);
}

static proa_status write_template(proa_post_template *out, proa_tokenizer *tok, const proa_fairseq *order,
                                  const proa_json *config, const char *words, proa_err *err)
{
    proa_str word;
    out->ptr = PROA_ARENA_NEW(&tok->arena, proa_post_piece, (int64_t)strlen(words));
    while (next_word(&words, &word)) {
        proa_post_piece *p = &out->ptr[out->len++];
        bool second = proa_str_is(word, "$B");
        p->sequence = second;
        if (second || proa_str_is(word, "$A")) continue;
        p->ids = PROA_ARENA_NEW(&tok->arena, int32_t, 1);
        p->ids_len = 1;
        PROA_TRY(find_token(tok, order, config, word, p->ids, err));
    }
    return PROA_OK;
}

proa_status proa_fairseq_finish(proa_tokenizer *tok, const proa_fairseq *order, const proa_json *config,
                                proa_err *err)
{
    static const char *const special[] = {"<s>", "<pad>", "</s>", "<unk>", "<mask>"};
    for (size_t i = 0; i < PROA_COUNT(special); i++) PROA_TRY(add_special(tok, proa_str_c(special[i]), err));
    PROA_TRY(add_languages(tok, order, order->languages, err));
    PROA_TRY(add_languages(tok, order, order->more_languages, err));
    PROA_TRY(write_template(&tok->post.single, tok, order, config, order->single, err));
    PROA_TRY(write_template(&tok->post.pair, tok, order, config, order->pair, err));
    tok->post.on = true;
    return PROA_OK;
}
