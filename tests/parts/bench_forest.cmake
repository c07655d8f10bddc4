# bench-forest: predicting with a forest, without a server. Not a test; built on demand (bench/forest.py runs it).
add_executable(bench-forest EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/forest.c)
target_link_libraries(bench-forest PRIVATE proa_forest proa_base ${PROA_LIBS})
# bench-forest-gpu: the same on a GPU, beside some cores.
add_executable(bench-forest-gpu EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/gpu/forest_gpu.c)
target_link_libraries(bench-forest-gpu PRIVATE proa_backends proa_forest proa_base ${PROA_LIBS})
