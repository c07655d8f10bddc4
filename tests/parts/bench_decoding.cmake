# bench-decoding: what decoding options cost in the engine. Not a test; built on demand (bench/decoding.sh runs it).
add_executable(bench-decoding EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/decoding.c)
target_link_libraries(bench-decoding PRIVATE proa_static)
target_link_options(bench-decoding PRIVATE -Wl,--wrap=proa_model_decode -Wl,--wrap=proa_model_head)
