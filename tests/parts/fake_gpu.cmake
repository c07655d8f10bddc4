# A plug-in with two GPUs that are none: tests of device tensors run with it where there is no GPU.
add_library(fake_gpu MODULE fake_gpu/fake_gpu.c $<TARGET_OBJECTS:proa_base> $<TARGET_OBJECTS:proa_tensor>
                            $<TARGET_OBJECTS:proa_comm> $<TARGET_OBJECTS:proa_kernels>)
target_include_directories(fake_gpu PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(fake_gpu PRIVATE ${PROA_LIBS})
target_compile_definitions(backends_test_gpu PRIVATE PROA_FAKE_GPU="$<TARGET_FILE:fake_gpu>")
add_dependencies(backends_test_gpu fake_gpu)
