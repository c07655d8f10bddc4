# bench-serve: what a request costs inside the server core. Not a test; built on demand (ninja bench-serve).
add_executable(bench-serve EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/serve.c)
target_link_libraries(bench-serve PRIVATE proa_static)
