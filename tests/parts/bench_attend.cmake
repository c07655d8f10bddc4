# bench-attend: attention of a decode step whose sequences share pages. Not a test; built on demand.
add_executable(bench-attend EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/attend.c)
target_link_libraries(bench-attend PRIVATE proa_kernels proa_tensor proa_base ${PROA_LIBS})
