# A plug-in with three GPUs that are none: tests of device tensors run with it where there is no GPU.
add_library(fake_gpu MODULE fake_gpu/fake_gpu.c $<TARGET_OBJECTS:proa_base> $<TARGET_OBJECTS:proa_tensor>
                            $<TARGET_OBJECTS:proa_comm> $<TARGET_OBJECTS:proa_kernels>)
target_include_directories(fake_gpu PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(fake_gpu PRIVATE ${PROA_LIBS})
foreach(test backends_test_gpu backends_test_onnx_device backends_test_encoder_gpu)
  target_compile_definitions(${test} PRIVATE PROA_FAKE_GPU="$<TARGET_FILE:fake_gpu>")
  add_dependencies(${test} fake_gpu)
endforeach()
