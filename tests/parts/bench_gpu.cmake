# bench-gpu-attend: decode attention alone on a GPU. Not a test: it prints numbers, and is built on demand.
add_executable(bench-gpu-attend EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/gpu/attend.c)
target_link_libraries(bench-gpu-attend PRIVATE proa_static)
# bench-gpu-beams: beam searches, all included.
add_executable(bench-gpu-beams EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/gpu/beams.c)
target_link_libraries(bench-gpu-beams PRIVATE proa_static)
# bench-gpu-ahead: an encoder's passes launched ahead against passes one by one.
add_executable(bench-gpu-ahead EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/gpu/ahead.c)
target_link_libraries(bench-gpu-ahead PRIVATE proa_static)
# bench-gpu-comm: collectives between GPUs.
add_executable(bench-gpu-comm EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/gpu/comm.c)
target_link_libraries(bench-gpu-comm PRIVATE proa_static)
# bench-gpu-disaggregate: the time between tokens beside long prompts, with prompts on a GPU of their own.
add_executable(bench-gpu-disaggregate EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/gpu/disaggregate.c)
target_link_libraries(bench-gpu-disaggregate PRIVATE proa_static)
