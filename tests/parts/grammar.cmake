# grammar_walk: random walks through the masks of grammars, for tests/grammar and bench/constrained.py.
add_executable(grammar_walk ${CMAKE_CURRENT_LIST_DIR}/../grammar/grammar_walk.c)
target_link_libraries(grammar_walk PRIVATE proa_grammar proa_text)
