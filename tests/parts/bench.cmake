# bench-sampler: what choosing the tokens of a step costs. Not a test: it prints numbers, and is built on demand
# (ninja bench-sampler).
add_executable(bench-sampler EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/sampler.c)
target_link_libraries(bench-sampler PRIVATE proa_static)
