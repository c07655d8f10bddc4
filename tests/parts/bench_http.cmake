# bench-http-static: a static reply over HTTP, on one loop. Not a test; built on demand (bench/http.sh runs it).
add_executable(bench-http-static EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/http_static.c)
target_link_libraries(bench-http-static PRIVATE proa_net proa_base ${PROA_LIBS})
