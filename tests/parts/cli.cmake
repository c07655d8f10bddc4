# The driver of the BLEU test (tests/cli/test_eval.py): the program's own files, without its main().
add_executable(cli_bleu_of cli/bleu_of.c ${PROJECT_SOURCE_DIR}/src/cli/eval/bleu.c ${PROJECT_SOURCE_DIR}/src/cli/lines.c)
target_link_libraries(cli_bleu_of PRIVATE proa_static ZLIB::ZLIB)
